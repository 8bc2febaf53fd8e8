"""The leases that are given back when a client is closed or a process ends."""

from __future__ import annotations

import threading
from typing import Iterator

from ..errors import LeaseLost
from .exchange import Operation
from .lease_state import LeaseState
from .process import OfProcess
from .releasing import give_back
from .settings import Settings

#: How many leases are looked through before one is added; it doubles with those that are alive.
_FEW = 64


class _Held:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.states: list[LeaseState] = []
        self.look_through_at = _FEW


class Holdings:
    """The leases of a client that are renewed or could not be released, whether or not somebody still refers to them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held = OfProcess(_Held)

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
            return not any(state.owes_release() for state in held.states)

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
