"""Tests of how a lease ends: by its release, by a fork, by failures."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest
from both import Clients
from rig import Rig, until
from test_conformance import child, is_free, line

import latchgate
import latchgate.aio
from latchgate import LatchgateError, LeaseLost
from latchgate.aio.transport import HttpxTransport
from latchgate.blocking.driver import run
from latchgate.blocking.transport import HttpTransport
from latchgate.protocol.clock import now
from latchgate.protocol.exchange import Call, Exchange

OWN_KEY = "of-the-caller-0123456789-"


def fails_on(monkeypatch: pytest.MonkeyPatch, method: str, error: BaseException) -> None:
    """Makes both clients fail with an unexpected error when they send a request with this method."""
    exchange, exchange_of_loop = HttpTransport.exchange, HttpxTransport.exchange

    def sync(self: HttpTransport, call: Call, *args: Any) -> Exchange:
        if call.method == method:
            raise error
        return exchange(self, call, *args)

    async def on_loop(self: HttpxTransport, call: Call, time_out: float) -> Exchange:
        if call.method == method:
            raise error
        return await exchange_of_loop(self, call, time_out)

    monkeypatch.setattr(HttpTransport, "exchange", sync)
    monkeypatch.setattr(HttpxTransport, "exchange", on_loop)


# === A release that fails ===


def test_a_release_that_failed_can_be_repeated(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy, deadline="500ms"), clients(rig.b)
    lease = locks.acquire(name, ttl="1m")
    rig.fault("lose-request", count=1_000, method="DELETE")
    with pytest.raises(LatchgateError):
        lease.release()
    assert lease.lost.is_set() and at_b.inspect(name).state == "held"
    with pytest.raises(LatchgateError):
        lease.release()
    rig.no_faults()
    lease.release()
    assert at_b.inspect(name).state == "free"
    # The lease is released now, so a further release does nothing to the next lease.
    with at_b.acquire(name) as other:
        lease.release()
        assert at_b.inspect(name).holders[0].fencing_token == other.fencing_token


@pytest.mark.parametrize("renew", [True, False])
def test_a_release_that_failed_goes_on_in_the_background(clients: Clients, rig: Rig, name: str, renew: bool) -> None:
    locks, at_b = clients(rig.proxy, deadline="500ms"), clients(rig.b)
    rig.fault("lose-request", count=1_000, method="DELETE")
    # The block does not raise, because its work is done.
    with locks.acquire(name, ttl="2m", renew=renew):
        pass
    assert at_b.inspect(name).state == "held"
    rig.no_faults()
    until(is_free(at_b, name), 30)


def test_a_process_that_ends_repeats_a_release_that_failed(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.b)
    process = child(clients, rig.proxy, name, "2m", "release")
    with process:
        assert process.stdin is not None
        assert int(line(process)) > 0
        # The fault makes the release in the background pause until after the end of the process.
        rig.fault("status", count=1_000, method="DELETE", status=503, code="overloaded", retry_after=60)
        process.stdin.write("\n")
        process.stdin.flush()
        assert line(process) == "failed"
        # The block's release sends two copies, and the release in the background has sent one.
        until(lambda: len(rig.log("DELETE", name)) == 3, 30)
        rig.no_faults()
        process.stdin.close()
        process.wait(30)
    assert locks.inspect(name).state == "free"


# === A grant that reaches no caller ===


def test_a_lease_that_cannot_be_renewed_at_first_is_released(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    # The grant comes so late that the client renews the lease before it uses it.
    rig.fault("delay", ms=2_500, method="POST")
    rig.fault("status", count=100, method="PUT", status=403, code="forbidden")
    with pytest.raises(LatchgateError) as caught:
        locks.acquire(name, ttl="20s", idempotency_key=OWN_KEY + name)
    assert caught.value.status == 403
    assert locks.inspect(name).state == "free"


def test_a_lease_that_was_heard_is_released_by_who_gives_up(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    rig.fault("delay", ms=2_500, method="POST")
    rig.fault("hang", count=100, method="PUT")
    cancel = threading.Event()
    # With the caller's key, the acquire is not repeated.
    waiter = clients.background(locks.acquire, name, ttl="20s", idempotency_key=OWN_KEY + name, cancel=cancel)
    until(lambda: rig.log("PUT", name), 30)
    cancel.set()
    assert type(waiter.exception(30)).__name__ in ("LatchgateError", "Cancelled")
    assert locks.inspect(name).state == "free"
    assert len(rig.log("POST", name)) == 1


def test_a_lease_without_a_thread_to_renew_it_is_released(
    clients: Clients, rig: Rig, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = clients(rig.proxy)
    start = threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        if thread.name == "latchgate-renew":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    with pytest.raises(RuntimeError, match="thread"):
        locks.acquire(name, ttl="1m")
    assert locks.inspect(name).state == "free"


# === Unexpected ends of a lease ===


def test_a_forked_child_holds_nothing(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.b)
    process = child(clients, rig.proxy, name, "3s", "fork")
    with process:
        fence = int(line(process))
        assert line(process) == "forked forked forked True True 0"
        if clients.kind == "threads":
            assert int(line(process)) > 0
        assert line(process) == "0 held"
        until(is_free(locks, f"{name}-child"), 10)
        # Meanwhile the parent process renews the lease.
        time.sleep(3.5)
        assert locks.inspect(name).holders[0].fencing_token == fence
        assert process.stdin is not None
        process.stdin.close()
        assert line(process) == "held"
        process.wait(30)
    assert process.returncode == 0
    assert locks.inspect(name).state == "free"


def test_a_lease_is_lost_if_what_renews_it_fails(
    clients: Clients, rig: Rig, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    locks = clients(rig.proxy)
    fails_on(monkeypatch, "PUT", ZeroDivisionError())
    lease = locks.acquire(name, ttl="9s")
    with caplog.at_level(logging.ERROR, "latchgate"):
        assert lease.lost.wait(60)
    with pytest.raises(LeaseLost, match="ZeroDivisionError") as caught:
        lease.check()
    assert caught.value.why == "expired"
    assert "is not renewed any more" in caplog.text
    with pytest.raises(LeaseLost):
        lease.release()
    until(is_free(locks, name), 30)


def test_a_lease_is_lost_if_its_loop_is_closed(rig: Rig, name: str) -> None:
    async def acquired() -> latchgate.aio.Lease:
        return await locks.acquire(name, ttl="1m")

    locks = latchgate.aio.Latchgate(rig.proxy)
    lease = asyncio.run(acquired())
    # The loop is closed, so no task can release the lease.
    until(lease.lost.is_set, 30)
    with pytest.raises(LeaseLost, match="nothing keeps the lease"):
        lease.check()
    # The lease is not renewed any more, and is released at the end of the process.
    (give_back,) = locks._holdings.give_back(now() + 5)
    run(give_back, locks._thread_transport)
    with latchgate.Latchgate(rig.b) as at_b:
        assert at_b.inspect(name).state == "free"


# === A renewal with a shorter TTL ===


def test_a_shorter_renewal_whose_answer_is_lost_ends_no_lease_earlier(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    lease = locks.acquire(name, ttl="1m", renew=False)
    # The gateway carries out the first copy of the renewal, and only its answer is lost.
    rig.fault("hang-reply", count=1, method="PUT")
    renewal = clients.background(lease.renew, "4s")
    assert not lease.lost.wait(4.5)
    assert at_b.inspect(name).state == "held"
    renewal.result(60)
    assert lease.expires_in_ms <= 4_000
    lease.renew("1m")
    assert lease.expires_in_ms > 30_000


def test_a_shorter_renewal_that_was_refused_changes_nothing(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name, ttl="1m", renew=False)
    rig.fault("status", count=1, method="PUT", status=403, code="forbidden")
    with pytest.raises(LatchgateError):
        lease.renew("4s")
    assert lease.expires_in_ms > 30_000


# === Release requests ===


def test_what_drains_does_not_end_the_lease(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    asked, drained = threading.Event(), threading.Event()

    def drain(request: Any) -> None:
        asked.set()
        drained.wait(60)

    async def drain_on_loop(request: Any) -> None:
        asked.set()
        while not drained.is_set():
            await asyncio.sleep(0.05)

    callback = drain if clients.kind == "threads" else drain_on_loop
    lease = locks.acquire(name, ttl="3s", on_release_requested=callback)
    at_b.break_(name, reason="a newer one is ready", fencing_token=lease.fencing_token, grace="1m")
    assert asked.wait(30)
    # The wait is longer than the lease lasts without a renewal.
    assert not lease.lost.wait(5)
    assert at_b.inspect(name).holders[0].fencing_token == lease.fencing_token
    drained.set()
    lease.release()
    assert at_b.inspect(name).state == "free"


@pytest.mark.parametrize("error", [ZeroDivisionError(), LatchgateError("of mine")])
def test_a_callback_that_raises_is_logged(
    clients: Clients, rig: Rig, name: str, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)

    def fails(request: Any) -> None:
        raise error

    with caplog.at_level(logging.ERROR, "latchgate"):
        lease = locks.acquire(name, ttl="3s", on_release_requested=fails)
        at_b.break_(name, reason="a newer one is ready", fencing_token=lease.fencing_token, grace="1m")
        until(lambda: "on_release_requested failed" in caplog.text, 30)
    assert not lease.lost.wait(4)
