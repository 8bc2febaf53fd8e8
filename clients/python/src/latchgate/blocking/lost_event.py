"""The event of a lease that is set as soon as the lease is over."""

from __future__ import annotations

import threading
from typing import Optional

from ..protocol.clock import now
from ..protocol.lease_state import LeaseState
from ..protocol.renewing import STRETCH


class LostEvent(threading.Event):
    """An event that is set when the lease is over. It compares the clock itself, because no other thread may have run
    since the process was suspended."""

    def __init__(self, state: LeaseState) -> None:
        super().__init__()
        self._state = state
        self._looks_again = threading.Condition()

    def is_set(self) -> bool:
        return self._state.is_over() or super().is_set()

    def set(self) -> None:
        super().set()
        self.look_again()

    def look_again(self) -> None:
        """Wakes the threads that wait for the event: the lease is over, or ends sooner than they assume."""
        with self._looks_again:
            self._looks_again.notify_all()

    def wait(self, timeout: Optional[float] = None) -> bool:
        if self.is_set():
            # In a forked child the lock inside the event may stay locked for ever, so the event is not asked.
            return True
        give_up = None if timeout is None else now() + timeout
        with self._looks_again:
            while not self.is_set():
                stretch = min(STRETCH, max(self._state.until - now(), 0.001))
                if give_up is not None:
                    stretch = min(stretch, give_up - now())
                    if stretch <= 0:
                        return False
                self._looks_again.wait(stretch)
        return True
