"""The leases and the acquires under way that must be released when a client is closed or the process ends."""

from __future__ import annotations

import threading
from typing import Callable, Iterator

from ..errors import LatchgateError, LeaseLost
from .acquiring import Acquiring
from .exchange import Operation
from .lease_state import LeaseState
from .process import OfProcess
from .releasing import give_back
from .settings import Settings
from .silence import Silence

#: The number of leases from which the ended ones are removed before another is added. It doubles with the live leases.
_FEW = 64


class UnderWay:
    """An acquire that runs, or that is being withdrawn in the background."""

    def __init__(self, acquiring: Acquiring, end: Callable[[], bool]) -> None:
        self.acquiring = acquiring
        #: Ends the acquire; the thread or task that runs it then withdraws it. Returns False if none runs it any more.
        self.end = end
        #: Whether the acquire was ended by the end of its client or of the process.
        self.is_ended = False
        #: Whether the acquire is finished, and has nothing left to withdraw.
        self.is_done = False


def closed() -> LatchgateError:
    """The error of an acquire whose client is closed."""
    return LatchgateError("the client is closed", code="closed")


class _Held:
    def __init__(self) -> None:
        self.under_way: dict[UnderWay, None] = {}
        # Reentrant, because a signal handler may close the client while this thread has the lock.
        self.lock = threading.RLock()
        self.states: list[LeaseState] = []
        self.look_through_at = _FEW


class Holdings:
    """The leases of a client that are renewed or could not be released, even if the program has no reference to them
    any more; and its acquires under way."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held = OfProcess(_Held)
        self._is_closed = False

    def begin(self, under_way: UnderWay) -> None:
        """Records that an acquire begins. Raises if the client is closed."""
        held = self._held()
        with held.lock:
            if self._is_closed:
                raise closed()
            held.under_way[under_way] = None

    def done(self, under_way: UnderWay) -> None:
        """Records that an acquire has a lease, or has nothing left to withdraw."""
        under_way.is_done = True
        held = self._held()
        with held.lock:
            held.under_way.pop(under_way, None)

    def close(self) -> list[UnderWay]:
        """Ends the acquires under way, and refuses new ones. Returns the acquires that will now be withdrawn."""
        self._is_closed = True
        return self.end_acquires()

    def end_acquires(self) -> list[UnderWay]:
        """Ends the acquires under way. Returns them without those that no thread or task runs any more."""
        return [under_way for under_way in self.under_way() if self._end(under_way)]

    def under_way(self) -> list[UnderWay]:
        """The acquires that have begun and are not done."""
        held = self._held()
        with held.lock:
            return list(held.under_way)

    @staticmethod
    def _end(under_way: UnderWay) -> bool:
        under_way.is_ended = True
        return under_way.end()

    def add(self, state: LeaseState) -> None:
        held = self._held()
        with held.lock:
            if len(held.states) >= held.look_through_at:
                held.states = [state for state in held.states if state.owes_release()]
                held.look_through_at = max(_FEW, 2 * len(held.states))
            if state not in held.states:
                held.states.append(state)

    @property
    def silence(self) -> Silence:
        """What the client has seen of a gateway that does not answer."""
        return self._settings.silence

    def is_empty(self) -> bool:
        held = self._held()
        with held.lock:
            return not held.under_way and not any(state.owes_release() for state in held.states)

    def give_back(self, until: float) -> Iterator[Operation[None]]:
        """Yields the release of each lease that is left, which ends by this time."""
        held = self._held()
        with held.lock:
            # A lease that cannot be released now stays in the list, for the end of the process.
            held.states = [state for state in held.states if state.owes_release()]
            states = list(held.states)
        for state in states:
            state.begin_release()
            state.lose(LeaseLost("the lease was released", "released"), ends=False)
            yield give_back(self._settings, state, until)
