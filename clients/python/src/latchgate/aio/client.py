"""The client for asyncio."""

from __future__ import annotations

import asyncio
import functools
import inspect
import ssl
from types import TracebackType
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Optional, Type, TypeVar, cast

from ..blocking import at_exit
from ..blocking.transport import HttpTransport
from ..durations import Duration
from ..errors import LatchgateError
from ..options import LeaseOptions, check_callback, check_known
from ..protocol import looking
from ..protocol.acquiring import WITHDRAWAL, AcquireRequest, Acquiring
from ..protocol.clock import now
from ..protocol.grant import Grant
from ..protocol.holdings import Holdings, UnderWay, closed
from ..protocol.id_token import IdToken
from ..protocol.names import Names
from ..protocol.settings import Settings
from ..records import History, Lock, Page
from .driver import run, run_in_background
from .lease import Lease, OnReleaseRequested, on_loop
from .transport import HttpxTransport

if TYPE_CHECKING:
    from ..options import Unpack

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class AcquireOptions(LeaseOptions, total=False):
    """The options of :meth:`Latchgate.acquire`."""

    #: Called in a task of its own when another caller requests the release of the lock.
    on_release_requested: Optional[OnReleaseRequested]


OPTIONS = AcquireOptions.__optional_keys__


def _check(options: AcquireOptions) -> None:
    check_known(options, OPTIONS)
    check_callback(options.get("on_release_requested"))


class Latchgate:
    """A client of a gateway, for use on one event loop."""

    def __init__(
        self,
        url: str,
        *,
        key: Optional[str] = None,
        owner: Optional[str] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
        request_wait: Optional[Duration] = None,
        request_timeout: Optional[Duration] = None,
        deadline: Optional[Duration] = None,
        id_token: Optional[IdToken] = None,
        key_name: Optional[str] = None,
    ) -> None:
        """The parameters are those of :class:`latchgate.Latchgate`."""
        self._settings = Settings.of(
            url, key, owner, request_wait, request_timeout, deadline, id_token, key_name
        )
        self._transport = HttpxTransport(self._settings, ssl_context)
        # The transport for renewals and for releases at the end of the process, which run on threads: the event loop
        # may be blocked when a lease must be renewed, and does not run any more when the process ends.
        self._thread_transport = HttpTransport(self._settings, self._transport.tls)
        self._holdings = Holdings(self._settings)

    async def acquire(self, names: Names, **options: Unpack[AcquireOptions]) -> Lease:
        """Acquires a lock, or a group of locks (all or none). The parameters are those of
        :meth:`latchgate.Latchgate.acquire` without ``cancel``; ``on_release_requested`` is called in a task of its own,
        and may be a coroutine function.

        If the task is cancelled during the call, the call leaves the queue first, which takes 3 seconds at most.
        """
        _check(options)
        acquiring = Acquiring(self._settings, AcquireRequest.of(names, self._settings, options))
        loop = asyncio.get_running_loop()

        def end() -> bool:
            if not loop.is_running():
                return False
            on_loop(loop, running.cancel)
            return True

        under_way = UnderWay(acquiring, end)
        self._holdings.begin(under_way)
        at_exit.register(self._holdings, self._thread_transport)
        running = run_in_background(run(acquiring.run(), self._transport))
        try:
            # ``wait`` does not raise the task's error, so that a cancelled caller can be told from a closed client.
            await asyncio.wait([running])
            if under_way.is_ended:
                raise closed()
            lease = Lease(
                self._settings,
                self._transport,
                self._thread_transport,
                self._holdings,
                running.result(),
                renews=options.get("renew", True),
                on_release_requested=options.get("on_release_requested"),
            )
            self._holdings.done(under_way)
            return lease
        except LatchgateError:
            if under_way.is_ended or acquiring.owes_release:
                await asyncio.shield(run_in_background(self._withdraw(under_way, running)))
            elif acquiring.may_hold:
                # The withdrawal may take long and runs in the background. If the client is closed, it waits for the
                # withdrawal.
                under_way.end = loop.is_running
                run_in_background(self._withdraw(under_way, running, acquiring.background))
            else:
                self._holdings.done(under_way)
            raise
        except BaseException:
            running.cancel()
            await asyncio.shield(run_in_background(self._withdraw(under_way, running)))
            raise

    async def _withdraw(self, under_way: UnderWay, running: asyncio.Task[Grant], within: float = WITHDRAWAL) -> None:
        await asyncio.wait([running])
        if not running.cancelled():
            # The exception is only read, so that asyncio does not log it: the caller knows it or does not need it.
            running.exception()
        try:
            await run(under_way.acquiring.withdraw(within), self._transport)
        except LatchgateError:
            # A failure is ignored: the gateway keeps a position for a few seconds only, and a granted lease ends with
            # its TTL.
            pass
        self._holdings.done(under_way)

    def __call__(self, names: Names, **options: Unpack[AcquireOptions]) -> Guard:
        """Makes a guard for ``async with locks("deploy", wait="10m") as lease:``, or a decorator. Takes the parameters
        of
        :meth:`acquire`.
        """
        _check(options)
        return Guard(self, names, options)

    async def inspect(self, name: str) -> Lock:
        """Shows the holders and the waiters of a lock."""
        return await run(looking.inspect(self._settings, name), self._transport)

    async def history(self, name: str) -> History:
        """Shows who held a lock, from when to when, and how that ended; newest first."""
        return await run(looking.history(self._settings, name), self._transport)

    async def check(self, name: str, fencing_token: int, *, lasts: Optional[Duration] = None) -> None:
        """Raises unless a lease with this fencing token holds the lock now, and with ``lasts`` for so long.

        A resource carries a write out only if this returns. The error has the code ``stale-fencing-token`` if no such
        lease holds the lock, and ``ends-too-soon`` if the lease ends before ``lasts`` is over; any other error does not
        say whether the lease lives.
        """
        await run(looking.check(self._settings, name, fencing_token, lasts), self._transport)

    async def list(
        self,
        *,
        prefix: str = "",
        owner: Optional[str] = None,
        search: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page:
        """Lists one page of the locks that are held."""
        return await run(looking.list_locks(self._settings, prefix, owner, search, limit, cursor), self._transport)

    async def break_(
        self,
        name: str,
        *,
        reason: str,
        fencing_token: Optional[int] = None,
        foreign_mark: Optional[str] = None,
        all: bool = False,
        grace: Optional[Duration] = None,
    ) -> Lock:
        """Takes a lock away from its holder; with ``grace`` the holder is first asked to release the lock.

        Breaking a lock does not stop its holder. Only a resource that checks the fencing token is safe.

        Give the fencing token of the lease to break: only then an unanswered break is sent again. Without the token, an
        unanswered break raises :class:`~latchgate.OutcomeUnknown`. If an earlier copy whose answer was lost broke the
        lease, the returned holder has only its fencing token.
        """
        operation = looking.break_lock(self._settings, name, reason, fencing_token, foreign_mark, all, grace)
        return await run(operation, self._transport)

    async def close(self) -> None:
        """Releases the leases that are renewed, ends the acquires that wait (with the code ``closed``), and closes the
        connections. The end of the process does the same. A closed client acquires no more locks.

        If no gateway answers, the end of a block, this and the end of the process wait for 5 s together."""
        ending, began, until = self._holdings.close(), now(), self._settings.silence.end_by()
        while now() < until and not all(under_way.is_done for under_way in ending):
            await asyncio.sleep(0.01)
        operations = self._holdings.give_back(until)
        released = await asyncio.gather(
            *(run(operation, self._transport) for operation in operations), return_exceptions=True
        )
        for error in released:
            # A lease that could not be released ends with its TTL.
            if error is not None and not isinstance(error, LatchgateError):
                raise error
        answered = not any(released) and all(under_way.is_done for under_way in ending)
        self._settings.silence.ended(began, answered)
        self._thread_transport.close()
        await self._transport.close()

    async def __aenter__(self) -> Latchgate:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Latchgate at {self._settings.url}>"


class Guard:
    """A guard: acquires at the beginning of a block or a function, and releases at its end. A guard can be used for one
    block at a time, which any task may leave; several tasks may call a decorated function at the same time."""

    def __init__(self, locks: Latchgate, names: Names, options: AcquireOptions) -> None:
        self._locks = locks
        self._names = names
        self._options = options
        self._is_entered = False
        self._lease: Optional[Lease] = None

    async def _acquire(self) -> Lease:
        return await self._locks.acquire(self._names, **self._options)

    async def __aenter__(self) -> Lease:
        if self._is_entered:
            raise RuntimeError("this guard has been entered and not left; make another one for each block")
        self._is_entered = True
        try:
            self._lease = await self._acquire()
        except BaseException:
            self._is_entered = False
            raise
        return self._lease

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        lease, self._lease = self._lease, None
        if lease is None:
            raise RuntimeError("this guard has not been entered")
        self._is_entered = False
        await lease.__aexit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        if not inspect.iscoroutinefunction(function):
            raise TypeError("this guard decorates coroutine functions only; use latchgate.Latchgate, or a block inside it")

        @functools.wraps(function)
        async def locked(*args: Any, **kwargs: Any) -> Any:
            async with await self._acquire():
                return await function(*args, **kwargs)

        return cast(F, locked)
