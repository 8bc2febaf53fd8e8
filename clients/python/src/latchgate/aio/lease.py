"""A lease that a task keeps."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import weakref
from types import TracebackType
from typing import Awaitable, Callable, Optional, Type, Union

from ..durations import Duration, finite_ms
from ..errors import LatchgateError, LeaseLost
from ..lease_view import LeaseView
from ..protocol.grant import Grant
from ..protocol.holdings import Holdings
from ..protocol.lease_state import LeaseState
from ..protocol.releasing import end_lease, go_on_releasing
from ..protocol.renewing import keep, renew
from ..protocol.settings import Settings
from ..records import ReleaseRequest
from .driver import run, run_in_background
from .lost_event import LostEvent
from .transport import HttpxTransport

#: It may be a coroutine function.
OnReleaseRequested = Callable[[ReleaseRequest], Union[None, Awaitable[None]]]

_log = logging.getLogger("latchgate")


class Lease(LeaseView):
    """A lease of one lock, or of several as one.

    It is renewed by a task until it is released, is lost, or nobody refers to it any more: then it ends with its TTL. As an
    asynchronous context manager it is released at the end of the block. It is that of this process: in a forked child it is
    lost.
    """

    def __init__(
        self,
        settings: Settings,
        transport: HttpxTransport,
        holdings: Holdings,
        grant: Grant,
        *,
        renews: bool,
        on_release_requested: Optional[OnReleaseRequested],
    ) -> None:
        state = LeaseState(grant)
        super().__init__(state)
        self._settings = settings
        self._transport = transport
        self._holdings = holdings
        self._renewing = asyncio.Lock()
        self._releasing = asyncio.Lock()
        self._goes_on_releasing = False
        #: Set as soon as the lease is over: before it can be somebody else's.
        self.lost: asyncio.Event
        lost, loop = LostEvent(state), asyncio.get_running_loop()
        self.lost = lost
        task: Optional[asyncio.Task[None]] = None

        def on_lost() -> None:
            lost.set()
            if task is not None:
                task.cancel()

        # Any thread may be the first to look at the clock.
        state.on_lost = lambda: on_loop(loop, on_lost)
        state.on_shorter = lambda: on_loop(loop, lost.look_again)

        def on_rest_left() -> None:
            holdings.add(state)
            # Only what runs on the loop renews.
            run_in_background(run(go_on_releasing(settings, state), transport))

        state.on_rest_left = on_rest_left
        if on_release_requested is not None:
            state.on_release_requested = _apart(on_release_requested)
        state.start()
        #: Whether a task renews it.
        self.renews = renews
        if renews:
            # The task does not know the lease, only how it stands.
            task = run_in_background(_keep(settings, transport, state))
            # The last reference to a lease can end on any thread.
            weakref.finalize(self, _let_go, loop, task, os.getpid())
            holdings.add(state)

    async def renew(self, ttl: Optional[Duration] = None) -> None:
        """Makes it last its TTL again, or another one, from now on."""
        self.check()
        ttl_ms = finite_ms(ttl, "ttl")
        async with self._renewing:
            await run(renew(self._settings, self._state, None if ttl_ms is None else ttl_ms / 1000), self._transport)

    async def release(self) -> None:
        """Ends it. Once it is released, this does nothing; of a lease that was lost it raises :class:`LeaseLost`.

        If it fails, it goes on in the background until the lease has ended, and it can be called again.
        """
        self._state.check_process()
        # A task that is cancelled here gives the lease back all the same.
        await asyncio.shield(run_in_background(self._release()))

    async def _release(self) -> None:
        state = self._state
        async with self._releasing:
            try:
                await run(end_lease(self._settings, state), self._transport)
            finally:
                if state.owes_release() and not self._goes_on_releasing:
                    self._goes_on_releasing = True
                    # The process may end before.
                    self._holdings.add(state)
                    run_in_background(run(go_on_releasing(self._settings, state), self._transport))

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


async def _keep(settings: Settings, transport: HttpxTransport, state: LeaseState) -> None:
    why = "was cancelled"
    try:
        await run(keep(settings, state), transport)
        return
    except asyncio.CancelledError:
        raise
    except Exception as error:
        why = f"has failed: {type(error).__name__}"
        _log.exception("the lease of %s is not renewed any more", ", ".join(state.names))
    finally:
        # Nobody renews it any more, if it is not over anyway.
        state.lose(LeaseLost(f"the task that renews the lease {why}", "expired"), ends=False)


def _apart(callback: OnReleaseRequested) -> Callable[[ReleaseRequest], None]:
    """The lease is renewed while the callback drains what there is."""

    async def told(request: ReleaseRequest) -> None:
        try:
            result = callback(request)
            if inspect.isawaitable(result):
                await result
        except Exception:
            _log.exception("on_release_requested failed")

    def tell(request: ReleaseRequest) -> None:
        run_in_background(told(request))

    return tell


def _let_go(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None], process: int) -> None:
    # A forked child would wake the loop of its parent.
    if process == os.getpid():
        on_loop(loop, task.cancel)


def on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
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
