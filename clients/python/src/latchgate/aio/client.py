"""The client for asyncio."""

from __future__ import annotations

import asyncio
import functools
import ssl
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Awaitable, Callable, Mapping, Optional, Type, TypeVar, cast

from ..blocking import at_exit
from ..blocking.client import CLOSING
from ..blocking.transport import HttpTransport
from ..durations import Duration, Wait
from ..errors import LatchgateError
from ..protocol import looking
from ..protocol.acquiring import AcquireRequest, Acquiring
from ..protocol.holdings import Holdings
from ..protocol.names import Names
from ..protocol.settings import Settings
from ..records import Lock, Mode, Page, ReleaseRequest
from .driver import run
from .lease import Lease
from .transport import HttpxTransport

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class Latchgate:
    """A client of a gateway, for one event loop."""

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
    ) -> None:
        """The parameters are those of :class:`latchgate.Latchgate`."""
        self._settings = Settings.of(url, key, owner, request_wait, request_timeout, deadline)
        self._transport = HttpxTransport(self._settings, ssl_context)
        # When the process ends, no loop runs any more.
        self._at_exit_transport = HttpTransport(self._settings, ssl_context)
        self._holdings = Holdings(self._settings)

    async def acquire(
        self,
        names: Names,
        *,
        ttl: Optional[Duration] = None,
        wait: Wait = None,
        mode: Optional[Mode] = None,
        limit: Optional[int] = None,
        owner: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        max_hold: Optional[Duration] = None,
        idempotency_key: Optional[str] = None,
        renew: bool = True,
        on_release_requested: Optional[Callable[[ReleaseRequest], None]] = None,
    ) -> Lease:
        """Acquires a lock, or several as one: all or none. The parameters are those of :meth:`latchgate.Latchgate.acquire`.

        A task that is cancelled here gives its place in the queue up, which takes 3 seconds at most.
        """
        request = AcquireRequest.of(
            names,
            ttl=ttl,
            wait=wait,
            mode=mode,
            limit=limit,
            owner=self._settings.owner if owner is None else owner,
            metadata=metadata,
            max_hold=max_hold,
            idempotency_key=idempotency_key,
        )
        acquiring = Acquiring(self._settings, request)
        try:
            grant = await run(acquiring.run(), self._transport)
        except LatchgateError:
            raise
        except BaseException:
            await asyncio.shield(self._withdraw(acquiring))
            raise
        lease = Lease(
            self._settings,
            self._transport,
            grant,
            renews=renew,
            on_release_requested=on_release_requested,
        )
        if renew:
            self._holdings.add(lease._state)
            at_exit.register(self._holdings, self._at_exit_transport)
        return lease

    async def _withdraw(self, acquiring: Acquiring) -> None:
        try:
            await run(acquiring.withdraw(), self._transport)
        except LatchgateError:
            # The gateway keeps a place for a few seconds only, and a lease that there is ends by itself.
            pass

    def __call__(self, names: Names, **options: Any) -> Guard:
        """For ``async with locks("deploy", wait="10m") as lease:``, or as a decorator. Takes what :meth:`acquire` takes."""
        return Guard(self, names, options)

    async def inspect(self, name: str) -> Lock:
        """Shows who holds a lock, and who waits for it."""
        return await run(looking.inspect(self._settings, name), self._transport)

    async def list(
        self,
        *,
        prefix: str = "",
        owner: Optional[str] = None,
        search: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page:
        """Shows a part of the locks that are held."""
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
        """Takes a lock away from whoever holds it; with ``grace`` the holder is asked first.

        Breaking a lock does not stop its holder. Only a resource that checks the fencing token is safe.
        """
        operation = looking.break_lock(self._settings, name, reason, fencing_token, foreign_mark, all, grace)
        return await run(operation, self._transport)

    async def close(self) -> None:
        """Releases the leases that are renewed, and closes the connections. The end of the process does the same."""
        operations = self._holdings.give_back(CLOSING)
        released = await asyncio.gather(
            *(run(operation, self._transport) for operation in operations), return_exceptions=True
        )
        for error in released:
            # What could not be released ends with its TTL.
            if error is not None and not isinstance(error, LatchgateError):
                raise error
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
    """Acquires at the beginning of a block or of a function, and releases at its end."""

    def __init__(self, locks: Latchgate, names: Names, options: Mapping[str, Any]) -> None:
        self._locks = locks
        self._names = names
        self._options = options
        # A guard may be used by several tasks, and in itself.
        self._leases: ContextVar[tuple[Lease, ...]] = ContextVar("latchgate_leases", default=())

    async def _acquire(self) -> Lease:
        return await self._locks.acquire(self._names, **self._options)

    async def __aenter__(self) -> Lease:
        lease = await self._acquire()
        self._leases.set((*self._leases.get(), lease))
        return lease

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        *before, lease = self._leases.get()
        self._leases.set(tuple(before))
        await lease.__aexit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        async def locked(*args: Any, **kwargs: Any) -> Any:
            async with await self._acquire():
                return await function(*args, **kwargs)

        return cast(F, locked)
