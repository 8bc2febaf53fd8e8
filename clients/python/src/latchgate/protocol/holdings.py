"""The leases that are given back when a client is closed or a process ends."""

from __future__ import annotations

import os
import threading
from typing import Iterator

from ..errors import LeaseLost
from .exchange import Operation
from .lease_state import LeaseState
from .releasing import release
from .settings import Settings

#: How many leases are looked through before one is added; it doubles with those that are alive.
_FEW = 64


class Holdings:
    """The leases of a client that are renewed, whether or not somebody still refers to them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        # With the process: a forked child holds nothing of what its parent holds.
        self._held: list[tuple[int, LeaseState]] = []
        self._look_through_at = _FEW

    def add(self, state: LeaseState) -> None:
        with self._lock:
            if len(self._held) >= self._look_through_at:
                self._held = [held for held in self._held if not held[1].is_over()]
                self._look_through_at = max(_FEW, 2 * len(self._held))
            self._held.append((os.getpid(), state))

    def is_empty(self) -> bool:
        with self._lock:
            return all(state.is_over() for _, state in self._held)

    def give_back(self, within: float) -> Iterator[Operation[None]]:
        """The release of each that is left."""
        with self._lock:
            held, self._held = self._held, []
        for process, state in held:
            if process == os.getpid() and not state.is_over() and state.begin_release():
                state.lose(LeaseLost("the lease was released", "released"))
                yield release(self._settings, state.grant, within)
