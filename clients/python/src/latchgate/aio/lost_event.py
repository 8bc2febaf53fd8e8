"""An event that is set as soon as a lease is over."""

from __future__ import annotations

import asyncio
from typing import Literal

from ..protocol.clock import now
from ..protocol.lease_state import LeaseState
from ..protocol.renewing import STRETCH


class LostEvent(asyncio.Event):
    """Set when the lease is over. It looks at the clock itself: after a process was stopped no task may have run."""

    def __init__(self, state: LeaseState) -> None:
        super().__init__()
        self._state = state

    def is_set(self) -> bool:
        return self._state.is_over() or super().is_set()

    async def wait(self) -> Literal[True]:
        while not self.is_set():
            stretch = min(STRETCH, max(self._state.until - now(), 0.001))
            try:
                await asyncio.wait_for(super().wait(), stretch)
            except asyncio.TimeoutError:
                pass
        return True
