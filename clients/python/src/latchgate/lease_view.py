"""What both clients show of a lease."""

from __future__ import annotations

from typing import Mapping, Optional

from .protocol.lease_state import LeaseState
from .records import Mode, ReleaseRequest


class LeaseView:
    """A lease of one lock, or of several as one."""

    def __init__(self, state: LeaseState) -> None:
        self._state = state

    @property
    def name(self) -> str:
        """The lock; of several the first."""
        return self.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """All locks that it is of."""
        return self._state.names

    @property
    def token(self) -> str:
        """The secret that renews and releases it."""
        return self._state.grant.token

    @property
    def fencing_token(self) -> int:
        """The number that only rises, for the resource that the lock protects; of several locks that of the first."""
        return self._state.grant.parts[0].fencing_token

    @property
    def fencing_tokens(self) -> Mapping[str, int]:
        """The fencing token of each lock."""
        return {part.name: part.fencing_token for part in self._state.grant.parts}

    @property
    def mode(self) -> Mode:
        """Whether it holds the lock alone (``exclusive``) or beside others (``shared``)."""
        return self._state.grant.parts[0].mode

    @property
    def slot(self) -> Optional[int]:
        """Its slot if it was acquired with a limit; of several locks that in the first."""
        return self._state.grant.parts[0].slot

    @property
    def slots(self) -> Mapping[str, Optional[int]]:
        """The slot in each lock."""
        return {part.name: part.slot for part in self._state.grant.parts}

    @property
    def owner(self) -> Optional[str]:
        """Who asked, for people."""
        return self._state.grant.owner

    @property
    def ttl_ms(self) -> int:
        """How long it lasts from a renewal."""
        return round(self._state.grant.ttl * 1000)

    @property
    def waited_ms(self) -> int:
        """How long it stood in the queue."""
        return round(self._state.grant.waited * 1000)

    @property
    def expires_in_ms(self) -> int:
        """What is certainly left of it; 0 if it is over."""
        return int(self._state.expires_in() * 1000)

    @property
    def release_requested(self) -> Optional[ReleaseRequest]:
        """Present if somebody has asked for the lock: finish, and release it in time."""
        return self._state.release_requested

    def check(self) -> None:
        """Raises :class:`~latchgate.LeaseLost` if it is over, also right after a suspended machine went on."""
        self._state.check()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.names)}, fencing token {self.fencing_token}>"
