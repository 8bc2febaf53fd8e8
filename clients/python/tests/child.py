"""A test program that holds a lock in a process of its own: ``child.py KIND URL NAME TTL DO``."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, Callable

import latchgate
import latchgate.aio

kind, url, name, ttl, do = sys.argv[1:]


def stopped(lease: latchgate.Lease | latchgate.aio.Lease) -> None:
    """Prints what the first check of the lease says after the process was suspended, and whether the lost event is
    set."""
    try:
        lease.check()
        checked = "held"
    except latchgate.LeaseLost as lost:
        checked = lost.why
    print(checked, lease.lost.is_set(), flush=True)


def say(lease: latchgate.Lease | latchgate.aio.Lease) -> None:
    print(lease.fencing_token, flush=True)


def why_not(call: Callable[[], Any]) -> str:
    """Why the lease is lost, as the error of a call says; ``held`` if the call succeeds."""
    try:
        call()
    except latchgate.LeaseLost as lost:
        return lost.why
    return "held"


def started(coroutine: Any) -> Any:
    """Runs a coroutine up to its first wait for the event loop, which belongs to the parent process."""
    coroutine.send(None)
    coroutine.close()


def with_threads() -> None:
    locks = latchgate.Latchgate(url)
    if do == "interrupt":
        print("waiting", flush=True)
        locks.acquire(name, ttl=ttl, wait="1m")
    lease = locks.acquire(name, ttl=ttl)
    say(lease)
    if do == "stop":
        # The test suspends the process while it reads from standard input.
        sys.stdin.readline()
        stopped(lease)
    elif do == "raise":
        with lease:
            sys.exit(3)
    elif do == "fork":
        child = os.fork()
        if child == 0:
            calls: list[Callable[[], Any]] = [lease.check, lease.renew, lease.release]
            print(*map(why_not, calls), lease.lost.is_set(), lease.lost.wait(60), lease.expires_in_ms, flush=True)
            own = locks.acquire(f"{name}-child", ttl=ttl)
            own.renew()
            say(own)
            # The end of the child releases only the lease that the child has acquired, not that of its parent.
            sys.exit()
        print(os.waitpid(child, 0)[1], why_not(lease.check), flush=True)
        sys.stdin.readline()
        print(why_not(lease.release), flush=True)
    elif do == "release":
        sys.stdin.readline()
        with lease:
            pass
        print("failed", flush=True)
        sys.stdin.readline()
    elif do == "end":
        sys.stdin.readline()


async def with_asyncio() -> None:
    locks = latchgate.aio.Latchgate(url)
    if do == "interrupt":
        print("waiting", flush=True)
        await locks.acquire(name, ttl=ttl, wait="1m")
    lease = await locks.acquire(name, ttl=ttl)
    say(lease)
    if do == "stop":
        sys.stdin.readline()
        stopped(lease)
        # The lease is still referenced at the end of the process, which releases it.
        globals()["lease"] = lease
    elif do == "raise":
        async with lease:
            sys.exit(3)
    elif do == "fork":
        child = os.fork()
        if child == 0:
            calls: list[Callable[[], Any]] = [
                lease.check, lambda: started(lease.renew()), lambda: started(lease.release())
            ]  # fmt: skip
            print(*map(why_not, calls), lease.lost.is_set(), True, lease.expires_in_ms, flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1], why_not(lease.check), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        await lease.release()
        print("held", flush=True)
    elif do == "release":
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        async with lease:
            pass
        print("failed", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    elif do == "end":
        globals()["lease"] = lease
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


if kind == "threads":
    with_threads()
else:
    asyncio.run(with_asyncio())
