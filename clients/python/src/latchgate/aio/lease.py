"""A lease for a program with an event loop, renewed by a thread."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
import weakref
from types import TracebackType
from typing import Awaitable, Callable, Optional, Type, Union

from ..blocking.driver import run as run_blocking
from ..blocking.driver import run_in_background as run_on_thread
from ..blocking.lease import keep_on_thread, let_go
from ..blocking.transport import HttpTransport
from ..durations import Duration, finite_ms
from ..errors import LatchgateError, LeaseLost
from ..lease_view import LeaseView
from ..protocol.grant import Grant
from ..protocol.holdings import Holdings
from ..protocol.lease_state import LeaseState
from ..protocol.releasing import end_lease, go_on_releasing
from ..protocol.renewing import renew
from ..protocol.settings import Settings
from ..records import ReleaseRequest
from .driver import run, run_in_background
from .lost_event import LostEvent
from .transport import HttpxTransport

#: The type of ``on_release_requested``: a function or a coroutine function.
OnReleaseRequested = Callable[[ReleaseRequest], Union[None, Awaitable[None]]]

_log = logging.getLogger("latchgate")


class Lease(LeaseView):
    """A lease of one lock, or of a group of locks.

    A thread renews the lease, even while the event loop is blocked, until the lease is released or lost, the loop is
    closed, or the program has no reference to the lease any more; then it ends with its TTL. As an asynchronous context
    manager, the lease is released at the end of the block. It belongs to its process: in a forked child it counts as
    lost.
    """

    def __init__(
        self,
        settings: Settings,
        transport: HttpxTransport,
        thread_transport: HttpTransport,
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
        #: Set as soon as the lease is over, before another caller can get the lock.
        self.lost: asyncio.Event
        lost, loop = LostEvent(state), asyncio.get_running_loop()
        self.lost = lost
        stop = _StopWithLoop(loop)

        def on_lost() -> None:
            stop.set()
            on_loop(loop, lost.set)

        # Any thread may notice that the lease is over, but only code on the event loop may set the loop's event.
        state.on_lost = on_lost
        state.on_shorter = lambda: on_loop(loop, lost.look_again)

        def on_rest_left() -> None:
            holdings.add(state)
            run_on_thread(lambda: run_blocking(go_on_releasing(settings, state), thread_transport), "release")

        state.on_rest_left = on_rest_left
        if on_release_requested is not None:
            tell = _apart(on_release_requested)
            state.on_release_requested = lambda request: on_loop(loop, lambda: tell(request))
        state.start()
        #: Whether a thread renews the lease.
        self.renews = renews
        if renews:
            keep_on_thread(settings, thread_transport, state, stop)
            weakref.finalize(self, let_go, stop, os.getpid())
            holdings.add(state)

    async def renew(self, ttl: Optional[Duration] = None) -> None:
        """Renews the lease: it lasts for its TTL from now, or for the given TTL. A shorter TTL does not end the lease
        earlier at the gateway."""
        self.check()
        ttl_ms = finite_ms(ttl, "ttl")
        async with self._renewing:
            await run(renew(self._settings, self._state, None if ttl_ms is None else ttl_ms / 1000), self._transport)

    async def release(self) -> None:
        """Releases the lease. If the lease is already released, does nothing; if it was lost, raises
        :class:`LeaseLost`. If an earlier copy of the release got no answer, a lost lease is :class:`OutcomeUnknown`: that
        copy may have ended it.

        A release takes 5 s at most. If it fails, it is repeated in the background until the lease has ended, and it can be
        called again.
        """
        self._state.check_process()
        # The release is shielded: if the calling task is cancelled, the lease is released nevertheless.
        await asyncio.shield(run_in_background(self._release()))

    async def _release(self) -> None:
        state = self._state
        async with self._releasing:
            try:
                await run(end_lease(self._settings, state), self._transport)
            finally:
                if state.owes_release() and not self._goes_on_releasing:
                    self._goes_on_releasing = True
                    # If the process ends before the background release succeeds, its end releases the lease.
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
            # While the lease was lost, another caller may have held the lock. An error of the block itself is more
            # important.
            if error is None:
                raise
        except LatchgateError as failure:
            if error is None:
                # 410: the lease is over. It was lost, or an earlier copy of the release has ended it.
                if failure.status == 410:
                    raise
                # The work is done, and the lease ends with its TTL.
                names = ", ".join(self.names)
                _log.warning("it is not known whether %s was held until its release: %s", names, failure)


class _StopWithLoop(threading.Event):
    """The event that ends the renewals of a lease. It also counts as set when the event loop is closed, because then no
    task could release the lease."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop

    def is_set(self) -> bool:
        return super().is_set() or self._loop.is_closed()


def _apart(callback: OnReleaseRequested) -> Callable[[ReleaseRequest], None]:
    """Returns a function that runs the callback in a task of its own, so that the lease is renewed meanwhile."""

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
        # The event loop is closed, so no task waits for the result of this call.
        pass
