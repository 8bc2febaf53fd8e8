"""The event of an asyncio lease that is set as soon as the lease is over."""

from __future__ import annotations

import asyncio
from typing import Literal

from ..protocol.clock import now
from ..protocol.lease_state import LeaseState
from ..protocol.renewing import STRETCH


class LostEvent(asyncio.Event):
    """An event that is set when the lease is over. It compares the clock itself, because no task may have run since the
    process was suspended."""

    def __init__(self, state: LeaseState) -> None:
        super().__init__()
        self._state = state
        self._looks_again = asyncio.Event()

    def is_set(self) -> bool:
        return self._state.is_over() or super().is_set()

    def set(self) -> None:
        super().set()
        self.look_again()

    def look_again(self) -> None:
        """Wakes the tasks that wait for the event: the lease is over, or ends sooner than they assume."""
        self._looks_again.set()
        self._looks_again = asyncio.Event()

    async def wait(self) -> Literal[True]:
        while not self.is_set():
            stretch = min(STRETCH, max(self._state.until - now(), 0.001))
            try:
                await asyncio.wait_for(self._looks_again.wait(), stretch)
            except asyncio.TimeoutError:
                pass
        return True
