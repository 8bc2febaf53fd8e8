"""Tests of what a failed acquire, or an acquire of a closed client, leaves at the gateway."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from both import Clients
from rig import Rig, until
from scripted import TOKEN, acquiring, answer, lease, play, problem
from test_conformance import is_free, line, waits

from latchgate import GatewayUnreachable, LatchgateError, LeaseLost, LockHeld, OutcomeUnknown
from latchgate.protocol.exchange import NoAnswer, NotSent

OWN_KEY = "of-the-caller-0123456789-"


# === In doubt ===


def test_what_an_acquire_in_doubt_may_hold_is_taken_back(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy, deadline="500ms"), clients(rig.b)
    rig.fault("lose-reply", count=1_000, method="POST")
    with pytest.raises(OutcomeUnknown):
        locks.acquire(name, ttl="2m")
    assert at_b.inspect(name).state == "held"
    rig.no_faults()
    until(is_free(at_b, name), 20)


def test_what_the_key_of_a_caller_may_hold_is_left(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy, deadline="500ms"), clients(rig.b)
    rig.fault("lose-reply", count=1_000, method="POST")
    with pytest.raises(OutcomeUnknown):
        locks.acquire(name, ttl="2m", idempotency_key=OWN_KEY + name)
    rig.no_faults()
    time.sleep(1)
    assert at_b.inspect(name).state == "held"
    locks.acquire(name, ttl="2m", idempotency_key=OWN_KEY + name).release()


@pytest.mark.parametrize("exchanges, wait, may_hold", [
    ([NoAnswer("r"), problem(403, "forbidden")], 0, True),
    ([problem(500, "internal")], 0, True),
    ([NoAnswer("r"), NotSent("r", for_good=True)], 0, True),
    ([problem(423, "locked"), NotSent("r", for_good=True)], "1m", True),
    ([NoAnswer("r"), problem(423, "locked")], 0, False),
    ([problem(403, "forbidden")], 0, False),
    ([NotSent("r", for_good=True)], 0, False),
])  # fmt: skip
def test_a_refusal_leaves_nothing_behind(exchanges: Any, wait: Any, may_hold: bool) -> None:
    acquire = acquiring(wait)
    _, error = play(acquire.run(), *exchanges)
    assert isinstance(error, LatchgateError)
    assert (acquire.may_hold, acquire.owes_release) == (may_hold, False)
    acquire = acquiring(wait, idempotency_key=OWN_KEY)
    play(acquire.run(), *exchanges)
    assert not acquire.may_hold


@pytest.mark.parametrize(("key", "asks_for"), [(OWN_KEY, 1), (None, None)])
def test_a_copy_after_the_wait_keeps_the_place_under_the_key_of_a_caller(key: str | None, asks_for: int | None) -> None:
    acquire = acquiring(0.001, idempotency_key=key)
    time.sleep(0.01)
    sent, error = play(acquire.run(), problem(423, "locked"))
    assert isinstance(error, LockHeld)
    assert [json.loads(it.call.body or b"").get("wait_ms") for it in sent] == [asks_for]


@pytest.mark.parametrize(("options", "unused"), [({}, ""), ({"min_hold": "1s"}, "&unused=true")])
def test_of_a_group_that_was_lost_before_it_was_heard_the_rest_is_released(options: Any, unused: str) -> None:
    acquire = acquiring(names=["a", "b"], **options)
    part = {"fencing_token": 1, "mode": "exclusive", "slot": None}
    late = lease(-5.0, leases=[{"name": "a", **part}, {"name": "b", **part}])
    late = type(late)(201, {}, late.body, -5.0, 0.0)
    results = [{"name": "a", "code": "lease-lost"}, {"name": "b", "code": None, "expires_in_ms": 1}]
    released = answer(200, results=[{"name": "a", "code": "lease-lost"}, {"name": "b", "code": None}])
    sent, _ = play(acquire.run(), late, answer(200, results=results), released, problem(403, "forbidden"))
    assert [it.call.method for it in sent] == ["POST", "PUT", "DELETE", "POST"]
    assert (sent[2].call.headers["Lock-Token"], sent[2].call.path) == (TOKEN, f"/locks?names=a,b{unused}")


# === The end of a client ===


def test_a_client_that_is_closed_ends_its_acquires(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    held = at_b.acquire(name)
    waiters = [clients.background(locks.acquire, name, wait=wait) for wait in ("1m", float("inf"))]
    waits(at_b, name, 2)
    begun = time.monotonic()
    locks.close()
    assert time.monotonic() - begun < 3
    for waiter in waiters:
        error = waiter.exception(5)
        assert type(error) is LatchgateError and error.code == "closed"
    assert at_b.inspect(name).waiter_count == 0
    with pytest.raises(LatchgateError) as caught:
        locks.acquire(f"{name}-other")
    assert caught.value.code == "closed"
    held.release()
    assert at_b.inspect(name).state == "free"


def test_closing_does_not_wait_for_a_gateway_that_hangs(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    rig.fault("hang-reply", count=1_000, method="POST")
    waiter = clients.background(locks.acquire, name, wait="1m")
    until(lambda: rig.log("POST", name))
    begun = time.monotonic()
    locks.close()
    assert time.monotonic() - begun < 8
    error = waiter.exception(10)
    assert isinstance(error, LatchgateError) and error.code == "closed"
    assert at_b.inspect(name).state == "held"


DAEMON = """
import sys, threading, time
import latchgate
locks = latchgate.Latchgate(sys.argv[1])
threading.Thread(target=lambda: locks.acquire(sys.argv[2], wait="1m"), daemon=True).start()
sys.stdin.readline()
"""


def test_a_daemon_thread_gives_its_place_up_at_the_end_of_its_process(rig: Rig, name: str) -> None:
    clients = Clients("threads")
    at_b = clients(rig.b)
    with at_b.acquire(name):
        process = subprocess.Popen(
            [sys.executable, "-c", DAEMON, rig.proxy, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        with process:
            waits(at_b, name)
            assert process.stdin is not None
            process.stdin.close()
            # The daemon thread prints no error at the end of the process.
            assert line(process) == ""
            process.wait(30)
        assert at_b.inspect(name).waiter_count == 0
    clients.close()


# === Release ===


def test_a_release_goes_on_after_a_failure_inside_the_gateway(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    rig.fault("status", count=3, method="DELETE", status=500, code="internal")
    with locks.acquire(name, ttl="2m"):
        pass
    until(is_free(at_b, name), 20)
    assert len(rig.log("DELETE", name)) == 4


@pytest.mark.parametrize("by_hand", [True, False])
def test_the_rest_of_a_group_is_released_when_one_is_lost(clients: Clients, rig: Rig, name: str, by_hand: bool) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    lease = locks.acquire([f"{name}-1", f"{name}-2"], ttl="1m" if by_hand else "3s", renew=not by_hand)
    at_b.break_(f"{name}-2", reason="r", fencing_token=lease.fencing_tokens[f"{name}-2"])
    if by_hand:
        with pytest.raises(LeaseLost):
            lease.renew()
    assert lease.lost.wait(10)
    lost_at = time.monotonic()
    until(is_free(at_b, f"{name}-1"), 5)
    assert by_hand or time.monotonic() - lost_at < 1.5
    with pytest.raises(LeaseLost) as caught:
        lease.release()
    assert caught.value.why == "broken"


# === The end of a wait ===


def test_a_wait_is_kept_to_although_nothing_answers(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    rig.fault("hang", count=1_000, method="POST")
    begun = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        locks.acquire(name, wait="1s")
    assert 1 <= time.monotonic() - begun < 4


def test_a_wait_is_used_to_its_end(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.nobody)
    for _ in range(3):
        begun = time.monotonic()
        with pytest.raises(GatewayUnreachable):
            locks.acquire(name, wait="1s")
        assert 1 <= time.monotonic() - begun < 4


def test_a_gateway_that_comes_back_at_the_end_of_the_wait_is_asked(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    held = clients(rig.b).acquire(name)
    rig.fault("status", count=1, method="POST", status=503, code="overloaded", retry_after=4)
    with pytest.raises(LockHeld):
        locks.acquire(name, wait="5s")
    held.release()
