"""The properties of a lease that the threaded and the asyncio client share."""

from __future__ import annotations

from typing import Mapping, Optional

from .protocol.lease_state import LeaseState
from .records import Mode, ReleaseRequest


class LeaseView:
    """A lease of one lock, or of a group of locks."""

    def __init__(self, state: LeaseState) -> None:
        self._state = state

    @property
    def name(self) -> str:
        """The name of the lock; for a group, the name of its first lock."""
        return self.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all locks of the lease."""
        return self._state.names

    @property
    def token(self) -> str:
        """The secret that renews and releases the lease."""
        return self._state.grant.token

    @property
    def fencing_token(self) -> int:
        """The fencing token of the lease, for the resource that the lock protects: a number that is larger for each
        later grant. For a group: the fencing token of its first lock."""
        return self._state.grant.parts[0].fencing_token

    @property
    def fencing_tokens(self) -> Mapping[str, int]:
        """The fencing token of each lock, by lock name."""
        return {part.name: part.fencing_token for part in self._state.grant.parts}

    @property
    def mode(self) -> Mode:
        """Whether the lease holds the lock alone (``exclusive``) or together with other leases (``shared``). For a group:
        the mode of its first lock."""
        return self._state.grant.parts[0].mode

    @property
    def modes(self) -> Mapping[str, Mode]:
        """The mode of the lease in each lock, by lock name."""
        return {part.name: part.mode for part in self._state.grant.parts}

    @property
    def slot(self) -> Optional[int]:
        """The slot of the lease, if it was acquired with a limit. For a group: the slot in its first lock."""
        return self._state.grant.parts[0].slot

    @property
    def slots(self) -> Mapping[str, Optional[int]]:
        """The slot of the lease in each lock, by lock name."""
        return {part.name: part.slot for part in self._state.grant.parts}

    @property
    def owner(self) -> Optional[str]:
        """The owner text of the lease, for people to read."""
        return self._state.grant.owner

    @property
    def ttl_ms(self) -> int:
        """The TTL in milliseconds: how long the lease lasts from each renewal."""
        return round(self._state.grant.ttl * 1000)

    @property
    def waited_ms(self) -> int:
        """How long the acquire waited in the queue, in milliseconds."""
        return round(self._state.grant.waited * 1000)

    @property
    def expires_in_ms(self) -> int:
        """The time in milliseconds that is certainly left of the lease; 0 if the lease is over."""
        return int(self._state.expires_in() * 1000)

    @property
    def release_requested(self) -> Optional[ReleaseRequest]:
        """The release request, if another caller wants the lock: finish the work, and release the lease in time."""
        return self._state.release_requested

    def check(self) -> None:
        """Raises :class:`~latchgate.LeaseLost` if the lease is over, even right after a machine that was suspended
        continues."""
        self._state.check()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.names)}, fencing token {self.fencing_token}>"
