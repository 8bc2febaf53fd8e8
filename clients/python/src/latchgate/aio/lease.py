"""A lease that a task keeps."""

from __future__ import annotations

import asyncio
import weakref
from types import TracebackType
from typing import Callable, Optional, Type

from ..durations import Duration, finite_ms
from ..errors import LatchgateError, LeaseLost
from ..lease_view import LeaseView
from ..protocol.grant import Grant
from ..protocol.lease_state import LeaseState
from ..protocol.releasing import release
from ..protocol.renewing import keep, renew
from ..protocol.settings import Settings
from ..records import ReleaseRequest
from .driver import run
from .lost_event import LostEvent
from .transport import HttpxTransport


class Lease(LeaseView):
    """A lease of one lock, or of several as one.

    It is renewed by a task until it is released, is lost, or nobody refers to it any more: then it ends with its TTL. As an
    asynchronous context manager it is released at the end of the block.
    """

    def __init__(
        self,
        settings: Settings,
        transport: HttpxTransport,
        grant: Grant,
        *,
        renews: bool,
        on_release_requested: Optional[Callable[[ReleaseRequest], None]],
    ) -> None:
        state = LeaseState(grant)
        super().__init__(state)
        self._settings = settings
        self._transport = transport
        self._renewing = asyncio.Lock()
        #: Set as soon as the lease is over: before it can be somebody else's.
        self.lost: asyncio.Event = LostEvent(state)
        lost, loop = self.lost, asyncio.get_running_loop()
        task: Optional[asyncio.Task[None]] = None

        def on_lost() -> None:
            lost.set()
            if task is not None:
                task.cancel()

        # Any thread may be the first to look at the clock.
        state.on_lost = lambda: _on_loop(loop, on_lost)
        if on_release_requested is not None:
            state.on_release_requested = on_release_requested
        state.start()
        #: Whether a task renews it.
        self.renews = renews
        if renews:
            # The task does not know the lease, only how it stands.
            task = asyncio.ensure_future(run(keep(settings, state), transport))
            # The last reference to a lease can end on any thread.
            weakref.finalize(self, _on_loop, loop, task.cancel)

    async def renew(self, ttl: Optional[Duration] = None) -> None:
        """Makes it last its TTL again, or another one, from now on."""
        self.check()
        state = self._state
        ttl_ms = finite_ms(ttl, "ttl")
        async with self._renewing:
            before = state.asked_ttl
            asked = before if ttl_ms is None else ttl_ms / 1000
            # A renewal by itself that follows asks for the same.
            state.asked_ttl = asked
            try:
                grant = await run(renew(self._settings, state.grant, asked), self._transport)
            except LeaseLost as lost:
                state.lose(lost)
                raise
            except LatchgateError:
                state.asked_ttl = before
                raise
            state.renewed(grant)
        self.check()

    async def release(self) -> None:
        """Ends it. Once it is released, this does nothing; of a lease that was lost it raises :class:`LeaseLost`."""
        if not self._state.begin_release():
            return
        # A task that is cancelled here gives the lease back all the same.
        await asyncio.shield(self._release())

    async def _release(self) -> None:
        state = self._state
        lost = state.lost
        state.lose(LeaseLost("the lease was released", "released"))
        # What is over by our clock may be alive by that of the store.
        within = 1.0 if lost is not None else None
        try:
            await run(release(self._settings, state.grant, within), self._transport)
        except LatchgateError:
            if lost is None:
                raise
        if lost is not None:
            raise lost.again()

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            await self.release()
        except LeaseLost:
            # The work may have been done beside somebody else's. An error of its own says more.
            if error is None:
                raise
        except LatchgateError:
            # The work is done, and the lease ends with its TTL.
            pass


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    try:
        running: Optional[asyncio.AbstractEventLoop] = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        call()
        return
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        # The loop is closed, and nobody waits on it.
        pass
