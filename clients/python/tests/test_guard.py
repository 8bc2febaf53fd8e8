"""Tests that a guard has one lease, whatever thread or task enters and leaves it."""

from __future__ import annotations

from typing import Any

import pytest
from both import Clients
from rig import Rig

import latchgate
import latchgate.aio


def test_a_guard_may_be_left_by_another_thread_or_task(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    # The guards are left in another order than they were entered, each on a thread or in a task of its own.
    first, second = locks(f"{name}-1"), locks(f"{name}-2")
    for guard in (first, second):
        clients.background(guard.__enter__).result(10)
    assert [locks.inspect(f"{name}-{it}").state for it in (1, 2)] == ["held", "held"]
    clients.background(first.__exit__, None, None, None).result(10)
    assert [locks.inspect(f"{name}-{it}").state for it in (1, 2)] == ["free", "held"]
    second.__exit__(None, None, None)
    assert locks.inspect(f"{name}-2").state == "free"


def test_a_guard_is_in_one_block_at_a_time(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    guard = locks(name, mode="shared")
    with guard as lease:
        for enter in (guard.__enter__, clients.background(guard.__enter__).result):
            with pytest.raises(RuntimeError, match="another one for each block"):
                enter()
        lock = locks.inspect(name)
        assert lock.holder_count == 1 and lock.holders[0].fencing_token == lease.fencing_token
    assert locks.inspect(name).state == "free"
    with pytest.raises(RuntimeError, match="not been entered"):
        guard.__exit__(None, None, None)
    with guard:
        assert locks.inspect(name).state == "held"
    assert locks.inspect(name).state == "free"


def test_a_guard_that_was_refused_can_be_entered_again(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    guard = locks(name)
    with locks.acquire(name):
        with pytest.raises(latchgate.LockHeld):
            guard.__enter__()
    with guard:
        assert locks.inspect(name).state == "held"


def test_each_call_of_a_function_has_a_lease_of_its_own(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    depth = 0

    @locks(name, mode="shared")  # type: ignore[untyped-decorator, unused-ignore]
    def held() -> int:
        nonlocal depth
        depth += 1
        inner: int = held() if depth < 3 else locks.inspect(name).holder_count
        return inner

    assert held() == 3
    assert locks.inspect(name).state == "free"


def test_the_asyncio_client_decorates_coroutine_functions_only() -> None:
    def function() -> None: ...

    async def generator() -> Any:
        yield

    locks = latchgate.aio.Latchgate("http://gateway.invalid")
    for wrong in (function, generator, lambda: None):
        with pytest.raises(TypeError, match="coroutine functions only"):
            locks("x")(wrong)  # type: ignore[type-var, unused-ignore]
