"""Tests that a break whose answer is lost does not break the next holder."""

from __future__ import annotations

import pytest
from both import Clients
from rig import Rig, until

from latchgate import LatchgateError, OutcomeUnknown


@pytest.mark.parametrize("kind", ["lose-reply", "unknown"])
def test_without_a_fencing_token_it_is_not_repeated(clients: Clients, rig: Rig, name: str, kind: str) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    at_b.acquire(name)
    waiter = clients.background(at_b.acquire, name, wait="30s")
    until(lambda: at_b.inspect(name).waiter_count == 1)
    rig.fault(kind, count=1, path=f"/locks/{name}/break")
    with pytest.raises(OutcomeUnknown, match="it is not known whether the lock was broken"):
        locks.break_(name, reason="gone")
    next_lease = waiter.result(10)
    assert at_b.inspect(name).holders[0].fencing_token == next_lease.fencing_token
    assert len(rig.log("POST", "/break")) == 1


def test_what_certainly_did_not_happen_is_repeated(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name)
    rig.fault("status", count=2, status=503, code="overloaded", path=f"/locks/{name}/break")
    lock = locks.break_(name, reason="gone")
    assert lock.holders[0].fencing_token == lease.fencing_token
    assert len(rig.log("POST", "/break")) == 3


@pytest.mark.parametrize("waits", [False, True])
def test_with_a_fencing_token_it_is_repeated(clients: Clients, rig: Rig, name: str, waits: bool) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    lease = at_b.acquire(name)
    waiter = clients.background(at_b.acquire, name, wait="30s") if waits else None
    until(lambda: at_b.inspect(name).waiter_count == int(waits))
    rig.fault("lose-reply", count=2, path=f"/locks/{name}/break")
    # The repeated copies are answered `holder-changed`, or `not-held` if there is no waiter.
    lock = locks.break_(name, reason="gone", fencing_token=lease.fencing_token)
    assert [holder.fencing_token for holder in lock.holders] == [lease.fencing_token]
    assert len(rig.log("POST", "/break")) == 3
    if waiter is not None:
        assert at_b.inspect(name).holders[0].fencing_token == waiter.result(10).fencing_token
    else:
        assert at_b.inspect(name).state == "free"


def test_another_holder_is_a_refusal_if_nothing_was_in_doubt(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name)
    lease.release()
    with pytest.raises(LatchgateError) as caught:
        locks.break_(name, reason="gone", fencing_token=lease.fencing_token)
    assert caught.value.code == "not-held"
    locks.acquire(name)
    with pytest.raises(LatchgateError) as caught:
        locks.break_(name, reason="gone", fencing_token=lease.fencing_token)
    assert caught.value.code == "holder-changed"
