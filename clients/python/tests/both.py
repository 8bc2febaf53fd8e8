"""The threaded and the asyncio client behind one interface, so that each test case is written once."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Callable, Coroutine, Optional, Type, TypeVar

import latchgate
import latchgate.aio

T = TypeVar("T")
KINDS = ("threads", "asyncio")


class Loop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T], cancel: Optional[threading.Event] = None) -> T:
        async def cancellable() -> T:
            task = asyncio.ensure_future(work)
            while not task.done():
                if cancel is not None and cancel.is_set():
                    task.cancel()
                    break
                await asyncio.wait([task], timeout=None if cancel is None else 0.02)
            try:
                return await task
            except asyncio.CancelledError:
                raise Cancelled from None

        return asyncio.run_coroutine_threadsafe(cancellable(), self.loop).result()

    def call(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return self.run(called())


class Cancelled(Exception):
    """Raised if the task of an asyncio call was cancelled, and has ended."""


class LostOfLoop:
    def __init__(self, loop: Loop, event: asyncio.Event) -> None:
        self._loop, self._event = loop, event

    def is_set(self) -> bool:
        return self._loop.call(self._event.is_set)

    def wait(self, timeout: float) -> bool:
        async def waited() -> bool:
            try:
                return await asyncio.wait_for(self._event.wait(), timeout)
            except asyncio.TimeoutError:
                return False

        return self._loop.run(waited())


class LeaseOfLoop:
    """An asyncio lease with the interface of a threaded lease."""

    def __init__(self, loop: Loop, lease: latchgate.aio.Lease) -> None:
        self._loop, self._lease = loop, lease
        self.lost = LostOfLoop(loop, lease.lost)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    def __repr__(self) -> str:
        return repr(self._lease)

    def renew(self, ttl: Any = None) -> None:
        self._loop.run(self._lease.renew(ttl))

    def release(self) -> None:
        self._loop.run(self._lease.release())

    def __enter__(self) -> LeaseOfLoop:
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.run(self._lease.__aexit__(*error))


class GuardOfLoop:
    def __init__(self, loop: Loop, guard: latchgate.aio.Guard) -> None:
        self._loop, self._guard = loop, guard

    def __enter__(self) -> LeaseOfLoop:
        return LeaseOfLoop(self._loop, self._loop.run(self._guard.__aenter__()))

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._loop.run(self._guard.__aexit__(kind, error, traceback))

    def __call__(self, function: Callable[[], T]) -> Callable[[], T]:
        async def awaited() -> T:
            return await asyncio.get_running_loop().run_in_executor(None, function)

        locked = self._guard(awaited)
        return lambda: self._loop.run(locked())


class LocksOfLoop:
    """An asyncio client with the interface of a threaded client."""

    def __init__(self, loop: Loop, url: str, **options: Any) -> None:
        self._loop = loop
        self._locks = loop.call(lambda: latchgate.aio.Latchgate(url, **options))

    def __repr__(self) -> str:
        return repr(self._locks)

    def __call__(self, names: Any, **options: Any) -> GuardOfLoop:
        return GuardOfLoop(self._loop, self._locks(names, **options))

    def acquire(self, names: Any, *, cancel: Optional[threading.Event] = None, **options: Any) -> LeaseOfLoop:
        return LeaseOfLoop(self._loop, self._loop.run(self._locks.acquire(names, **options), cancel))

    def inspect(self, name: str) -> latchgate.Lock:
        return self._loop.run(self._locks.inspect(name))

    def check(self, name: str, fencing_token: int, **options: Any) -> None:
        self._loop.run(self._locks.check(name, fencing_token, **options))

    def list(self, **options: Any) -> latchgate.Page:
        return self._loop.run(self._locks.list(**options))

    def break_(self, name: str, **options: Any) -> latchgate.Lock:
        return self._loop.run(self._locks.break_(name, **options))

    def close(self) -> None:
        self._loop.run(self._locks.close())


class Clients:
    """Makes clients of one kind, and closes them at the end of the test."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._loop = Loop() if kind == "asyncio" else None
        self._made: list[Any] = []
        self._pool = ThreadPoolExecutor()

    def __call__(self, url: str, **options: Any) -> Any:
        if self._loop is None:
            self._made.append(latchgate.Latchgate(url, **options))
        else:
            self._made.append(LocksOfLoop(self._loop, url, **options))
        return self._made[-1]

    def background(self, work: Callable[..., T], *args: Any, **options: Any) -> Future[T]:
        return self._pool.submit(work, *args, **options)

    def close(self) -> None:
        for client in self._made:
            client.close()
        self._pool.shutdown()
        if self._loop is not None:
            self._loop.loop.call_soon_threadsafe(self._loop.loop.stop)
