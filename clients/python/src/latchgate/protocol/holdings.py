"""What is given back when a client is closed or a process ends: leases, and acquires under way."""

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

#: How many leases are looked through before one is added; it doubles with those that are alive.
_FEW = 64


class UnderWay:
    """An acquire that waits, or that is given up in the background."""

    def __init__(self, acquiring: Acquiring, end: Callable[[], bool]) -> None:
        self.acquiring = acquiring
        #: Ends it: whoever runs it gives back what it leaves. False if nobody runs it any more.
        self.end = end
        #: Whether somebody else than its caller has ended it.
        self.is_ended = False
        #: Whether it leaves nothing behind any more.
        self.is_done = False


def closed() -> LatchgateError:
    """The error of an acquire whose client is closed."""
    return LatchgateError("the client is closed", code="closed")


class _Held:
    def __init__(self) -> None:
        self.under_way: dict[UnderWay, None] = {}
        # A signal handler may close the client.
        self.lock = threading.RLock()
        self.states: list[LeaseState] = []
        self.look_through_at = _FEW


class Holdings:
    """The leases of a client that are renewed or could not be released, whether or not somebody still refers to them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held = OfProcess(_Held)
        self._is_closed = False

    def begin(self, under_way: UnderWay) -> None:
        """An acquire begins."""
        held = self._held()
        with held.lock:
            if self._is_closed:
                raise closed()
            held.under_way[under_way] = None

    def done(self, under_way: UnderWay) -> None:
        """It has a lease, or leaves nothing behind."""
        under_way.is_done = True
        held = self._held()
        with held.lock:
            held.under_way.pop(under_way, None)

    def close(self) -> list[UnderWay]:
        """Ends the acquires under way, and lets none begin any more."""
        self._is_closed = True
        return self.end_acquires()

    def end_acquires(self) -> list[UnderWay]:
        """Ends the acquires under way. Those are left out that nobody runs any more."""
        return [under_way for under_way in self.under_way() if self._end(under_way)]

    def under_way(self) -> list[UnderWay]:
        """What has begun and is not done."""
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

    def is_empty(self) -> bool:
        held = self._held()
        with held.lock:
            return not held.under_way and not any(state.owes_release() for state in held.states)

    def give_back(self, within: float) -> Iterator[Operation[None]]:
        """The release of each that is left."""
        held = self._held()
        with held.lock:
            # What cannot be released now is left for the end of the process.
            held.states = [state for state in held.states if state.owes_release()]
            states = list(held.states)
        for state in states:
            state.begin_release()
            state.lose(LeaseLost("the lease was released", "released"), ends=False)
            yield give_back(self._settings, state, within)
