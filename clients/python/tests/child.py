"""Holds a lock in a process of its own: ``child.py KIND URL NAME TTL DO``."""

from __future__ import annotations

import asyncio
import sys

import latchgate
import latchgate.aio

kind, url, name, ttl, do = sys.argv[1:]


def stopped(lease: latchgate.Lease | latchgate.aio.Lease) -> None:
    """What comes first after the process was stopped."""
    try:
        lease.check()
        checked = "held"
    except latchgate.LeaseLost as lost:
        checked = lost.why
    print(checked, lease.lost.is_set(), flush=True)


def say(lease: latchgate.Lease | latchgate.aio.Lease) -> None:
    print(lease.fencing_token, flush=True)


def with_threads() -> None:
    locks = latchgate.Latchgate(url)
    if do == "interrupt":
        print("waiting", flush=True)
        locks.acquire(name, ttl=ttl, wait="1m")
    lease = locks.acquire(name, ttl=ttl)
    say(lease)
    if do == "stop":
        # The process is stopped while it reads.
        sys.stdin.readline()
        stopped(lease)
    elif do == "raise":
        with lease:
            sys.exit(3)
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
        # Kept until here, and given back by the end of the process.
        globals()["lease"] = lease
    elif do == "raise":
        async with lease:
            sys.exit(3)
    elif do == "end":
        globals()["lease"] = lease
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


if kind == "threads":
    with_threads()
else:
    asyncio.run(with_asyncio())
