"""The cases of clients/conformance.md, each for both clients. The name of a test has the number of its case."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable

import pytest
from both import Clients
from rig import Rig, until

from latchgate import GatewayUnreachable, Latchgate, LatchgateError, LeaseLost, LockHeld, LockTerms, OutcomeUnknown

CHILD = str(Path(__file__).with_name("child.py"))


def child(clients: Clients, url: str, name: str, ttl: str, do: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, CHILD, clients.kind, url, name, ttl, do],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # A shell makes background programs ignore SIGINT, so the child sets the default again.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def is_free(rig_or_locks: Any, name: str) -> Callable[[], bool]:
    return lambda: bool(rig_or_locks.inspect(name).state == "free")


def reachable(value: Any, depth: int = 0) -> list[str]:
    """The text of a value, and of all values that its public fields lead to."""
    found = [repr(value)]
    if depth > 8:
        return found
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = list(value)
    elif hasattr(value, "__dict__"):
        parts = [it for field, it in vars(value).items() if not field.startswith("_")]
    if isinstance(value, BaseException):
        parts += [*value.args, value.__cause__, value.__context__]
    return found + [text for part in parts if part is not None for text in reachable(part, depth + 1)]


def waits(locks: Any, name: str, count: int = 1) -> None:
    until(lambda: locks.inspect(name).waiter_count == count, what=f"{count} waiters")


# === A lease ===


def test_c01_a_free_lock_is_granted_and_released(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name, ttl="30s")
    assert (lease.name, lease.names, lease.mode, lease.slot) == (name, (name,), "exclusive", None)
    assert len(lease.token) >= 22 and lease.fencing_token > 0
    assert lease.fencing_tokens == {name: lease.fencing_token}
    assert 25_000 < lease.expires_in_ms <= 30_000
    assert not lease.lost.is_set()
    lease.check()
    lease.release()
    assert lease.lost.is_set() and lease.expires_in_ms == 0
    assert locks.inspect(name).state == "free"
    assert locks.acquire(name).fencing_token > lease.fencing_token

    # A name that is a path is one segment.
    path = f"{name}/acme/web"
    lease = locks.acquire(path)
    lease.renew()
    assert (lease.name, locks.inspect(path).state) == (path, "held")
    lease.release()
    assert [it["path"].split("?")[0] for it in rig.log(name="acme")] == [
        f"/locks/{name}%2Facme%2Fweb{operation}" for operation in ("", "/renew", "", "")
    ]


def test_c02_a_block_releases_also_when_it_raises(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    with locks(name) as lease:
        assert locks.inspect(name).holders[0].fencing_token == lease.fencing_token
    assert locks.inspect(name).state == "free"
    with pytest.raises(ZeroDivisionError):
        with locks.acquire(name):
            1 / 0
    assert locks.inspect(name).state == "free"

    @locks(name)  # type: ignore[untyped-decorator, unused-ignore]
    def held() -> bool:
        return bool(locks.inspect(name).state == "held")

    assert held() and held()
    assert locks.inspect(name).state == "free"


def test_c03_a_held_lock_says_who_holds_it(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name, owner="anna")
    for wait in (None, False, 0):
        with pytest.raises(LockHeld) as caught:
            locks.acquire(name, wait=wait)
        held = caught.value
        assert (held.status, held.code, held.holder_count) == (423, "locked", 1)
        assert str(held) == f"{name} is held by anna (locked, 423)"
        assert held.holders[0].owner == "anna"
        assert held.holders[0].fencing_token == lease.fencing_token
        assert lease.token not in repr(held.problem) + str(held)


def test_c04_inspect_shows_who_holds(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy, owner="of the client")
    assert locks.inspect(name).state == "free"
    lease = locks.acquire(name, metadata={"branch": "main"})
    lock = locks.inspect(name)
    assert (lock.name, lock.state, lock.holder_count) == (name, "held", 1)
    holder = lock.holders[0]
    assert (holder.owner, holder.metadata) == ("of the client", {"branch": "main"})
    assert holder.fencing_token == lease.fencing_token
    lease.release()
    with locks.acquire(name, owner="of the call"):
        assert locks.inspect(name).holders[0].owner == "of the call"
        assert [lock.name for lock in locks.list(prefix=name).locks] == [name]
    path = f"{name}/web"
    lease = locks.acquire(path, owner="of the call", renew=False)
    locks.check(path, lease.fencing_token)
    locks.break_(path, reason="stuck")
    last = locks.history(path).entries[0]
    assert (last.owner, last.ended, last.reason) == ("of the call", "broken", "stuck")


def test_c05_renew_gives_the_ttl_again(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name, ttl="2s", renew=False)
    at_first = len(rig.log("PUT", name))
    time.sleep(0.8)
    assert len(rig.log("PUT", name)) == at_first
    assert lease.expires_in_ms < 1_300
    lease.renew()
    assert lease.expires_in_ms > 1_500
    lease.renew("10s")
    assert lease.expires_in_ms > 5_000
    lease.renew(1_500)
    assert lease.expires_in_ms < 1_500 == lease.ttl_ms
    by_hand = len(rig.log("PUT", name))
    assert by_hand >= at_first + 3
    assert lease.lost.wait(4)
    assert locks.inspect(name).state == "held"
    until(is_free(locks, name), 12)
    assert len(rig.log("PUT", name)) == by_hand
    with pytest.raises(LeaseLost, match="in time"):
        lease.check()


def test_c06_a_lease_is_renewed_by_itself(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name, ttl="3s")
    shortened = clients(rig.b).acquire(f"{name}:shorter", ttl="6s")
    shortened.renew("3s")
    assert not lease.lost.wait(5)
    lease.check()
    shortened.check()
    assert locks.inspect(name).holders[0].fencing_token == lease.fencing_token
    # A lease whose acquire took long, as on a busy machine, is renewed at once, and later as the gateway asks.
    renewals = rig.log("PUT", name)
    assert 3 <= len(renewals) <= 14
    assert renewals[0]["at_ms"] - rig.log("POST", name)[0]["at_ms"] <= 2_000


def test_c07_the_hold_limit_ends_a_lease(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    other = clients(rig.b)
    # The client ends the lease half a second before it ends at the gateway.
    lease = locks.acquire(name, ttl="10s", max_hold="12s")
    next_lease = clients.background(other.acquire, name, wait="1m")
    waits(other, name)
    assert lease.lost.wait(40)
    assert not next_lease.done()
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.why == "expired"
    assert next_lease.result(20).fencing_token > lease.fencing_token


def test_c08_a_second_release_changes_nothing(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name)
    lease.release()
    other = locks.acquire(name)
    lease.release()
    assert locks.inspect(name).holders[0].fencing_token == other.fencing_token
    for call in (lease.renew, lease.check):
        with pytest.raises(LeaseLost) as caught:
            call()
        assert caught.value.why == "released"
    assert len(rig.log("DELETE", name)) == 1


def test_c08_a_late_copy_of_a_release_does_not_end_the_next_lease(clients: Clients, rig: Rig, name: str) -> None:
    locks, other = clients(rig.proxy), clients(rig.b)
    lease = locks.acquire(name)
    following = clients.background(other.acquire, name, wait="20s")
    waits(other, name)
    rig.fault("lose-reply", count=1, method="DELETE")
    lease.release()
    held = following.result(20)
    assert [it["token"] for it in rig.log("DELETE", name)] == [lease.token] * 2
    assert other.inspect(name).holders[0].fencing_token == held.fencing_token


def test_c09_durations(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    given = {
        500: 500,
        "500ms": 500,
        "30s": 30_000,
        "10m": 600_000,
        "2h": 7_200_000,
        "1d": 86_400_000,
        timedelta(minutes=1): 60_000,
    }
    for ttl in given:
        locks.acquire(name, ttl=ttl, renew=False).release()
    # On a busy machine, the answer may take longer than half a second, so a request may be repeated.
    sent = [it["body"]["ttl_ms"] for it in rig.log("POST", name)]
    assert list(dict.fromkeys(sent)) == list(dict.fromkeys(given.values()))
    rig.forget()
    for bad in (-1, "5 apples", "", "-5s", float("nan"), float("inf"), timedelta(seconds=-1)):
        with pytest.raises(ValueError):
            locks.acquire(name, ttl=bad)
        with pytest.raises(ValueError):
            locks.acquire(name, ttl=1_000, wait="5 apples")
    for bad_name in ("", "..", "a//b", "/a", "a/", "a/../b", "a/renew", "a,b", "a b", "a\\b", "a%2Fb", "x" * 201):
        with pytest.raises(ValueError):
            locks.acquire(bad_name)
    assert rig.log() == []


# === Waiting ===


def test_c10_waiters_are_served_in_order(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name)
    first = clients.background(locks.acquire, name, wait="20s")
    waits(locks, name)
    second = clients.background(locks.acquire, name, wait=float("inf"))
    waits(locks, name, 2)
    released_at = time.monotonic()
    lease.release()
    first_lease = first.result(5)
    assert time.monotonic() - released_at < 1
    assert first_lease.waited_ms > 0 and not second.done()
    first_lease.release()
    assert second.result(5).fencing_token > first_lease.fencing_token


def test_c11_a_wait_runs_out(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    locks_of_holder = clients(rig.b)
    lease = locks_of_holder.acquire(name)
    begun = time.monotonic()
    with pytest.raises(LockHeld) as caught:
        locks.acquire(name, wait="1s")
    assert 1 <= time.monotonic() - begun <= 3
    assert caught.value.holders[0].fencing_token == lease.fencing_token
    assert locks.inspect(name).waiter_count == 0


def test_c12_the_place_is_kept_over_short_waits_and_a_restart(clients: Clients, rig: Rig, name: str) -> None:
    short = {"LATCHGATE_LIMITS_MAX_WAIT_MS": "1000"}
    for which in "ab":
        rig.gateway(which, "term")
        rig.gateway(which, "start", env=short)
    locks, at_b = clients(rig.proxy), clients(rig.b)
    lease = at_b.acquire(name)
    rig.forget()
    asked = time.monotonic()
    first = clients.background(locks.acquire, name, wait="30s")
    waits(at_b, name)
    second = clients.background(at_b.acquire, name, wait="30s")
    waits(at_b, name, 2)
    rig.to("b")
    rig.gateway("a", "term")
    rig.gateway("a", "start", env=short)
    time.sleep(max(0, asked + 4 - time.monotonic()))
    lease.release()
    first_lease = first.result(5)
    assert not second.done()
    assert len({it["key"] for it in rig.log("POST", name)}) == 1
    assert len(rig.log("POST", name)) >= 4
    first_lease.release()
    assert second.result(5).fencing_token > first_lease.fencing_token


def test_c13_a_cancelled_wait_gives_up_its_place(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name)
    cancel = threading.Event()
    waiter = clients.background(locks.acquire, name, wait="1m", cancel=cancel)
    waits(locks, name)
    cancelled_at = time.monotonic()
    cancel.set()
    assert type(waiter.exception(5)).__name__ in ("LatchgateError", "Cancelled")
    assert time.monotonic() - cancelled_at < 1
    assert locks.inspect(name).waiter_count == 0

    cancel.clear()
    waiter = clients.background(locks.acquire, name, wait="1m", cancel=cancel)
    waits(locks, name)
    lease.release()
    cancel.set()
    if waiter.exception(5) is None:
        waiter.result().release()
    until(is_free(locks, name), 2)


def test_c13_a_lock_that_was_granted_while_the_wait_was_given_up_does_not_rest(
    clients: Clients, rig: Rig, name: str
) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    rig.fault("hang-reply", count=1, method="POST")
    cancel = threading.Event()
    waiter = clients.background(locks.acquire, name, wait="20s", ttl="1m", min_hold="1m", cancel=cancel)
    until(lambda: at_b.inspect(name).state == "held")
    cancel.set()
    assert type(waiter.exception(10)).__name__ in ("LatchgateError", "Cancelled")
    until(is_free(at_b, name), 10)


def test_c13_an_interrupted_process_gives_up_its_place(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    locks.acquire(name)
    process = child(clients, rig.proxy, name, "1m", "interrupt")
    with process:
        assert line(process) == "waiting"
        waits(locks, name)
        process.send_signal(signal.SIGINT)
        until(lambda: locks.inspect(name).waiter_count == 0, 2)
    assert process.returncode != 0


# === Sharing ===


def test_c14_shared_leases(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    readers = [locks.acquire(name, mode="shared") for _ in range(2)]
    assert [reader.mode for reader in readers] == ["shared", "shared"]
    assert len({reader.token for reader in readers}) == 2
    with pytest.raises(LockHeld) as caught:
        locks.acquire(name)
    assert caught.value.holder_count == 2
    writer = clients.background(locks.acquire, name, wait="10s")
    waits(locks, name)
    readers[0].release()
    time.sleep(0.2)
    assert not writer.done()
    readers[1].release()
    assert writer.result(5).mode == "exclusive"


def test_c15_slots(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    first, second = locks.acquire(name, limit=2), locks.acquire(name, limit=2)
    assert (first.slot, second.slot, second.slots) == (0, 1, {name: 1})
    with pytest.raises(LockHeld):
        locks.acquire(name, limit=2)
    first.release()
    assert locks.acquire(name, limit=2).slot == 0


def test_c16_a_group(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    names = (f"{name}-1", f"{name}-2")
    lease = locks.acquire(list(names), ttl="2s")
    assert (lease.name, lease.names) == (names[0], names)
    assert tuple(lease.fencing_tokens) == names
    assert lease.fencing_tokens[names[0]] == lease.fencing_token
    assert not lease.lost.wait(2.5)
    lease.renew("5s")
    # An automatic renewal under way may have been sent later and count instead; a further renewal follows it.
    until(lambda: lease.expires_in_ms > 3_000, 2)
    lease.release()
    assert [locks.inspect(it).state for it in names] == ["free", "free"]
    with locks.acquire(names[1]):
        with pytest.raises(LockHeld) as caught:
            locks.acquire(names)
        assert caught.value.name == names[1]
        assert locks.inspect(names[0]).state == "free"
    pool: LockTerms = {"name": f"{name}-pool", "limit": 2}
    one = locks.acquire([f"{name}-3", pool])
    two = locks.acquire([{"name": f"{name}-pool", "mode": "shared", "limit": 2}, {"name": f"{name}-4"}])
    assert (one.mode, one.slots) == ("exclusive", {f"{name}-3": None, f"{name}-pool": 0})
    assert two.modes == {f"{name}-4": "exclusive", f"{name}-pool": "shared"}
    assert two.slots[f"{name}-pool"] == 1
    with pytest.raises(LockHeld) as caught:
        locks.acquire([f"{name}-5", pool])
    assert caught.value.name == f"{name}-pool"
    with pytest.raises(LockHeld):
        locks.acquire(f"{name}-pool")
    one.release()
    assert locks.acquire(pool).slot == 0


def test_c17_a_polite_break(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    heard: list[Any] = []
    lease = locks.acquire(name, ttl="5s", on_release_requested=heard.append)
    assert lease.release_requested is None
    locks.break_(name, reason="a newer one is ready", fencing_token=lease.fencing_token, grace="8s")
    asked_at = time.monotonic()
    request = until(lambda: lease.release_requested, 6)
    assert request.reason == "a newer one is ready" and 0 < request.within_ms <= 8_000
    until(lambda: heard == [request], 5)
    # The pause is longer than the TTL, so the lease must be renewed meanwhile.
    time.sleep(max(0, asked_at + 5.5 - time.monotonic()))
    lease.check()
    assert lease.lost.wait(20)
    assert time.monotonic() - asked_at > 5.5
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.why == "broken"

    until(lambda: locks.inspect(name).state == "free", 20)
    long = locks.acquire(name, ttl="1h")
    asked_at = time.monotonic()
    locks.break_(name, reason="a newer one is ready", fencing_token=long.fencing_token, grace="6s")
    long.renew()
    assert long.lost.wait(20)
    assert time.monotonic() - asked_at > 4


# === Before the lease can be somebody else's ===


def test_c18_a_gateway_that_hangs(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    # The client ends the lease a second before it ends at the gateway.
    lease = locks.acquire(name, ttl="20s")
    waiter = clients.background(at_b.acquire, name, wait="1m")
    waits(at_b, name)
    rig.fault("hang", count=1_000, method="PUT")
    assert lease.lost.wait(40)
    lock = at_b.inspect(name)
    assert not waiter.done()
    assert lock.holders[0].fencing_token == lease.fencing_token
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.why == "expired"
    assert waiter.result(20).fencing_token > lease.fencing_token


def test_c19_a_suspended_process_knows_before_it_goes_on(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.b)
    process = child(clients, rig.proxy, name, "3s", "stop")
    with process:
        assert process.stdin is not None
        fence = int(line(process))
        process.send_signal(signal.SIGSTOP)
        process.stdin.write("\n")
        process.stdin.flush()
        other = locks.acquire(name, wait="30s")
        assert other.fencing_token > fence
        time.sleep(1)
        process.send_signal(signal.SIGCONT)
        assert line(process) == "expired True"
    assert process.returncode == 0
    assert locks.inspect(name).holders[0].fencing_token == other.fencing_token


def test_c20_a_clock_that_jumps_changes_nothing(
    clients: Clients, rig: Rig, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name, ttl="2s", renew=False)
    real = time.time
    for jump in (3_600, -3_600):
        before, at = lease.expires_in_ms, time.monotonic()
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        passed = (time.monotonic() - at) * 1000
        assert abs(before - passed - lease.expires_in_ms) < 200
    lease.release()
    monkeypatch.setattr(time, "time", lambda: real() + 3_600)
    kept = locks.acquire(name, ttl="3s")
    assert not kept.lost.wait(2)
    monkeypatch.setattr(time, "time", lambda: real() - 3_600)
    assert not kept.lost.wait(3)
    assert locks.inspect(name).holders[0].fencing_token == kept.fencing_token


def test_c21_a_break_ends_the_lease(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name, ttl="3s")
    locks.break_(name, reason="gone", fencing_token=lease.fencing_token)
    assert lease.lost.wait(20)
    renewals = len(rig.log("PUT", name))
    for call in (lease.check, lease.renew):
        with pytest.raises(LeaseLost) as caught:
            call()
        assert caught.value.why == "broken"
    time.sleep(1.5)
    assert len(rig.log("PUT", name)) == renewals


# === When something fails ===


def test_c22_an_unknown_outcome_is_repeated_with_the_same_key(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    rig.fault("unknown", count=3, method="POST")
    lease = locks.acquire(name, ttl="1m")
    log = rig.log("POST", name)
    assert len(log) == 4
    assert len({it["key"] for it in log}) == 1 and all(it["body"] == log[0]["body"] for it in log)
    lock = locks.inspect(name)
    assert (lock.holder_count, lock.holders[0].fencing_token) == (1, lease.fencing_token)


def test_c23_replies_that_are_lost(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    rig.fault("lose-reply", count=1, method="POST")
    lease = locks.acquire(name, ttl="1m", renew=False)
    log = rig.log("POST", name)
    assert len(log) == 2 and len({it["key"] for it in log}) == 1
    assert locks.inspect(name).holders[0].fencing_token == lease.fencing_token
    rig.fault("lose-reply", count=1, method="PUT")
    lease.renew()
    assert len(rig.log("PUT", name)) == 2
    rig.fault("lose-reply", count=1, method="DELETE")
    lease.release()
    assert len(rig.log("DELETE", name)) == 2
    assert locks.inspect(name).state == "free"


@pytest.mark.parametrize("said_in", ["header", "body", "both"])
@pytest.mark.parametrize("status, code", [(503, "overloaded"), (429, "rate-limited")])
def test_c24_retry_after_is_honoured(
    clients: Clients, rig: Rig, name: str, status: int, code: str, said_in: str
) -> None:
    locks = clients(rig.proxy)
    where = {} if said_in == "both" else {"retry_after_in": said_in}
    rig.fault("status", count=1, method="POST", status=status, code=code, retry_after=1, **where)
    locks.acquire(name)
    first, second = rig.log("POST", name)
    assert first["status"] == status
    assert 1_000 <= second["at_ms"] - first["answered_at_ms"] <= 10_000
    assert first["key"] == second["key"]


def test_c25_a_refusal_is_not_retried(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    rig.fault("status", count=5, status=403, code="forbidden")
    with pytest.raises(LatchgateError) as caught:
        locks.acquire(name, wait="5s")
    error = caught.value
    assert (type(error), error.status, error.code) == (LatchgateError, 403, "forbidden")
    assert error.detail and error.problem["status"] == 403
    assert len(rig.log("POST", name)) == 1
    rig.no_faults()
    rig.fault("status", count=1, method="POST", status=408, code="request-timeout")
    locks.acquire(name)
    assert len(rig.log("POST", name)) == 3


@pytest.mark.parametrize("bare", [False, True])
def test_c25_a_refusal_says_nothing_about_an_earlier_copy(clients: Clients, rig: Rig, name: str, bare: bool) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name, ttl="1m")
    for method, again in (("DELETE", lease.release), ("POST", lambda: locks.acquire(name, wait="1m"))):
        rig.fault("lose-request", count=1, method=method)
        rig.fault("status", count=100, status=403, code="forbidden", bare=bare)
        with pytest.raises(OutcomeUnknown) as caught:
            again()
        assert caught.value.status == 403
        rig.no_faults()


def test_c26_closed_connections_are_retried(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    rig.fault("lose-request", count=3, method="POST")
    locks.acquire(name)
    log = rig.log("POST", name)
    assert len(log) == 4 and len({it["key"] for it in log}) == 1


def test_c26_pauses_are_random(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    asked = []
    for number in range(8):
        rig.fault("lose-request", count=1, path=f"/locks/{name}-{number}")
        locks.inspect(f"{name}-{number}")
        one, two = rig.log("GET", f"{name}-{number}")
        asked.append(two["at_ms"] - one["at_ms"])
    assert max(asked) - min(asked) >= 20, asked


def test_c26_nobody_listens(clients: Clients, rig: Rig, name: str) -> None:
    begun = time.monotonic()
    with pytest.raises(GatewayUnreachable):
        clients(rig.nobody).acquire(name)
    assert time.monotonic() - begun <= 12
    begun = time.monotonic()
    with pytest.raises(GatewayUnreachable):
        clients(rig.nobody).acquire(name, wait="1s")
    assert time.monotonic() - begun <= 3


def test_c27_a_request_that_hangs_is_repeated(clients: Clients, rig: Rig, name: str) -> None:
    # Without these options the time-out of a request that waits is 25 s.
    locks = clients(rig.proxy, request_wait="1s", request_timeout="1s")
    rig.fault("hang", count=1, method="POST")
    locks.acquire(name, wait="30s").release()
    rig.fault("hang-reply", count=1, method="POST")
    lease = locks.acquire(name)
    log = rig.log("POST", name)
    assert len(log) == 4 and log[0]["key"] == log[1]["key"] and log[2]["key"] == log[3]["key"]
    lock = locks.inspect(name)
    assert (lock.holder_count, lock.holders[0].fencing_token) == (1, lease.fencing_token)


# === Who asks, and who is done ===


def test_c28_secrets_stay_secret(clients: Clients, rig: Rig, name: str) -> None:
    key = f"lgk_test_{uuid.uuid4().hex}"
    locks = clients(rig.proxy, key=key, deadline="1s")
    idempotency_key = f"of-the-caller-{uuid.uuid4().hex}"
    lease = locks.acquire(name, idempotency_key=idempotency_key, renew=False)
    lease.renew()
    locks.inspect(name)
    shown = [repr(locks), str(locks), repr(lease), str(lease)]
    for cause in ("forbidden", "store-unavailable", "outcome-unknown"):
        status = {"forbidden": 403, "store-unavailable": 503, "outcome-unknown": 504}[cause]
        rig.fault("status", count=100, status=status, code=cause)
        for call in (lease.renew, lambda: locks.acquire(name), lambda: locks.inspect(name)):
            with pytest.raises(LatchgateError) as caught:
                call()
            shown += [str(caught.value), *reachable(caught.value)]
        rig.no_faults()
    rig.fault("lose-reply", count=100)
    with pytest.raises(OutcomeUnknown) as unknown:
        lease.release()
    rig.no_faults()
    shown += reachable(unknown.value)
    for bad in (f"{key}\n", f"ä{key}"):
        with pytest.raises(ValueError) as refused:
            clients(rig.proxy, key=bad)
        shown.append(str(refused.value))
    keys = {it["key"] for it in rig.log("POST", name)}
    assert idempotency_key in keys
    for secret in {key, lease.token, *keys}:
        assert secret not in " ".join(shown)
    assert {it["authorization"] for it in rig.log() if it["method"] != "DELETE"} == {f"Bearer {key}"}


def test_c29_idempotency_keys(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    locks.acquire(f"{name}-1")
    locks.acquire(f"{name}-2")
    keys = [it["key"] for it in rig.log("POST", name)]
    assert len(set(keys)) == 2 and all(len(key) >= 22 for key in keys)
    mine = uuid.uuid4().hex
    leases = [locks.acquire(name, idempotency_key=mine) for _ in range(2)]
    assert leases[0].token == leases[1].token
    assert leases[0].fencing_token == leases[1].fencing_token
    assert [it["key"] for it in rig.log("POST", f"/{name}")][-2:] == [mine, mine]
    with pytest.raises(ValueError):
        locks.acquire(name, idempotency_key="too-short")


def test_c29_the_place_of_a_wait_that_ran_out_is_kept(clients: Clients, rig: Rig, name: str) -> None:
    # The grace is long enough for the other waiter to come, however slow the machine is.
    rig.gateway("a", "term")
    rig.gateway("a", "start", env={"LATCHGATE_LIMITS_RECONNECT_GRACE_MS": "60000"})
    locks, other = clients(rig.proxy), clients(rig.b)
    held = other.acquire(name)
    turn = uuid.uuid4().hex
    with pytest.raises(LockHeld):
        locks.acquire(name, idempotency_key=turn, wait=0.5)
    later = clients.background(other.acquire, name, wait="1m")
    waits(other, name, 2)
    again = clients.background(locks.acquire, name, idempotency_key=turn, wait="1m")
    held.release()
    first = again.result(20)
    first.release()
    second = later.result(20)
    assert first.fencing_token < second.fencing_token
    second.release()


@pytest.mark.parametrize("do", ["end", "raise"])
def test_c30_a_process_that_ends_gives_back(clients: Clients, rig: Rig, name: str, do: str) -> None:
    locks = clients(rig.b)
    process = child(clients, rig.proxy, name, "1m", do)
    with process:
        assert int(line(process)) > 0
        if do == "end":
            assert locks.inspect(name).state == "held"
        assert process.stdin is not None
        process.stdin.close()
        process.wait(20)
        until(is_free(locks, name), 1)


def test_c30_a_client_that_is_closed_gives_back(clients: Clients, rig: Rig, name: str) -> None:
    locks, other = clients(rig.proxy), clients(rig.b)
    lease = locks.acquire(name, ttl="1m")
    locks.close()
    until(is_free(other, name), 1)
    assert lease.lost.is_set()


# === Answers of proxies, and answers that make no sense ===


@pytest.mark.parametrize("bare", [False, True])
def test_c31_too_many_requests_are_asked_again_whoever_answers(clients: Clients, rig: Rig, name: str, bare: bool) -> None:
    locks = clients(rig.proxy)
    busy = {"status": 429, "code": "too-many-leases", "bare": bare, "retry_after": 1}
    rig.fault("status", method="POST", **busy)
    lease = locks.acquire(name, ttl="1m", wait="20s", renew=False)
    rig.fault("status", method="PUT", **busy)
    lease.renew()
    rig.fault("status", method="DELETE", **busy)
    lease.release()
    for method in ("POST", "PUT", "DELETE"):
        first, second = rig.log(method, name)
        assert first["status"] == 429
        assert 1_000 <= second["at_ms"] - first["answered_at_ms"] <= 10_000
    assert locks.inspect(name).state == "free"


def test_c31_who_is_put_off_beyond_the_wait_asks_at_its_end(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    rig.fault("status", count=100, method="POST", status=429, code="too-many-leases", retry_after=60)
    begun = time.monotonic()
    with pytest.raises(LatchgateError) as caught:
        locks.acquire(name, wait="2s")
    assert caught.value.code == "too-many-leases"
    assert 2 <= time.monotonic() - begun <= 4
    assert len(rig.log("POST", name)) == 2
    rig.no_faults()
    rig.fault("status", count=100, method="POST", status=502, bare=True)
    begun = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        locks.acquire(name, wait="2s")
    assert 2 <= time.monotonic() - begun <= 4


@pytest.mark.parametrize("where", ["head", "body"])
def test_c32_an_answer_that_drips_is_given_up_in_time(clients: Clients, rig: Rig, name: str, where: str) -> None:
    locks = clients(rig.proxy, request_timeout="2s")
    rig.fault("drip", method="POST", ms=100, **{"from": where})
    lease = locks.acquire(name, ttl="6s")
    first, second = rig.log("POST", name)
    assert first["key"] == second["key"] and second["at_ms"] - first["at_ms"] < 6_000
    rig.fault("drip", method="PUT", ms=100, **{"from": where})
    assert not lease.lost.wait(8)
    assert locks.inspect(name).holders[0].fencing_token == lease.fencing_token


def test_c33_an_answer_without_end_is_not_read(clients: Clients, rig: Rig, name: str) -> None:
    rig.fault("flood", method="POST", bytes=200_000_000)
    clients(rig.proxy).acquire(name).release()
    first, second = rig.log("POST", name)
    assert first["key"] == second["key"]
    assert 0 <= first["sent"] < 100_000_000


@pytest.mark.parametrize("number", [2**53, 1e300])
def test_c34_a_number_that_json_does_not_carry_is_none(clients: Clients, rig: Rig, name: str, number: float) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    for field in ("fencing_token", "ttl_ms", "expires_in_ms", "renew_after_ms"):
        rig.fault("alter", method="POST", fields={field: number})
        with pytest.raises(OutcomeUnknown, match=field):
            locks.acquire(f"{name}-{field}", ttl="1m")
        until(is_free(at_b, f"{name}-{field}"), 2)
    lease = locks.acquire(name, ttl="3s")
    rig.fault("alter", count=100, method="PUT", fields={"expires_in_ms": number})
    assert lease.lost.wait(20)
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.why == "expired"
    assert len(rig.log("PUT", name)) >= 2


def test_c34_an_answer_about_another_lock_is_no_lease(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    rig.fault("alter", method="POST", fields={"name": "other"})
    with pytest.raises(OutcomeUnknown, match="a proxy has changed the path"):
        locks.acquire(name, ttl="1m")
    until(is_free(at_b, name), 2)
    lease = locks.acquire(name, ttl="1m")
    for method, call in (("PUT", lease.renew), ("GET", lambda: locks.inspect(name))):
        rig.fault("alter", method=method, fields={"name": "other"})
        with pytest.raises(LatchgateError, match="a proxy has changed the path"):
            call()
    rig.fault("alter", method="POST", fields={"name": "other"})
    with pytest.raises(OutcomeUnknown, match="a proxy has changed the path"):
        locks.break_(name, reason="it hangs")


def test_c35_a_busy_thread_starves_no_renewal(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy), Latchgate(rig.b)
    lease = locks.acquire(name, ttl="2s")
    waiter = clients.background(at_b.acquire, name, wait="1m")
    waits(at_b, name)

    def work() -> None:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            pass

    if clients._loop is None:
        work()
    else:
        # The work blocks the event loop, so no task runs meanwhile.
        clients._loop.call(work)
    lease.check()
    assert not lease.lost.is_set() and not waiter.done()
    assert at_b.inspect(name).holders[0].fencing_token == lease.fencing_token
    lease.release()
    assert waiter.result(20).fencing_token > lease.fencing_token
    at_b.close()


# === What a resource asks ===


def test_c36_the_fencing_token_of_a_living_lease_passes(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name, ttl="30s")
    locks.check(name, lease.fencing_token)
    locks.check(name, lease.fencing_token, lasts="20s")
    with pytest.raises(LatchgateError) as too_soon:
        locks.check(name, lease.fencing_token, lasts="31s")
    assert (too_soon.value.status, too_soon.value.code) == (403, "ends-too-soon")
    assert too_soon.value.problem["expires_in_ms"] <= 30_000
    lease.release()
    with pytest.raises(LatchgateError) as stale:
        locks.check(name, lease.fencing_token)
    assert (stale.value.status, stale.value.code) == (403, "stale-fencing-token")


def test_c36_a_lost_answer_is_asked_for_again_and_a_refusal_is_not(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    lease = locks.acquire(name)
    rig.fault("lose-reply", count=1, path=f"/locks/{name}/check")
    locks.check(name, lease.fencing_token)
    assert len(rig.log("GET", "/check")) == 2
    with pytest.raises(LatchgateError):
        locks.check(name, 1)
    assert len(rig.log("GET", "/check")) == 3


def test_c36_what_is_no_fencing_token_is_not_sent(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    for wrong in ("7", "7\r\nX: y", None, 7.5, 0, -1, True, 2**53):
        with pytest.raises(ValueError, match="is no fencing token"):
            locks.check(name, wrong)
    for lasts in (-1, "soon", float("inf")):
        with pytest.raises((ValueError, TypeError)):
            locks.check(name, 7, lasts=lasts)
    assert rig.log("GET", "/check") == []


# === A lost lock ===


@pytest.mark.parametrize("form", ["block", "decorator", "release"])
@pytest.mark.parametrize("count, min_hold", [(1, None), (1, "1s"), (2, None)])
def test_c37_a_lock_that_was_lost_is_never_success(
    clients: Clients, rig: Rig, name: str, form: str, count: int, min_hold: Any, caplog: pytest.LogCaptureFixture
) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    all_names = [f"{name}-{number}" for number in range(count)]
    names: Any = all_names if count > 1 else all_names[0]

    def run(work: Callable[[Any], None], ttl: str = "1m") -> None:
        if form == "block":
            with locks(names, ttl=ttl, min_hold=min_hold) as lease:
                work(lease)
        elif form == "decorator":
            locks(names, ttl=ttl, min_hold=min_hold)(lambda: work(None))()
        else:
            lease = locks.acquire(names, ttl=ttl, min_hold=min_hold)
            work(lease)
            lease.release()

    def free() -> None:
        for each in all_names:
            if at_b.inspect(each).state != "free":
                at_b.break_(each, reason="the test", all=True)

    def lost(_: Any) -> None:
        at_b.break_(all_names[0], reason="the test", all=True)
        at_b.acquire(all_names[0], ttl="1m")

    def renewed(lease: Any) -> None:
        lost(lease)
        if lease is not None:
            with pytest.raises(LeaseLost):
                lease.renew()

    for work in (lost, renewed):
        with pytest.raises(LeaseLost) as caught:
            run(work)
        assert caught.value.why == "broken"
        for each in all_names[1:]:
            until(is_free(at_b, each), 5)
        free()

    def fault(kind: str, **more: Any) -> None:
        # The fault hits only releases of this test: the test before may still release a lease in the background.
        path = f"/locks?names={all_names[0]}" if count > 1 else f"/locks/{all_names[0]}"
        rig.fault(kind, method="DELETE", path=path, **more)

    def in_doubt(_: Any) -> None:
        fault("lose-request")
        fault("status", status=410, code="lease-lost")

    with pytest.raises(OutcomeUnknown) as unknown:
        run(in_doubt)
    assert unknown.value.status == 410 and caplog.text == ""
    free()
    if form != "release":
        # No gateway answers the release.
        run(lambda _: fault("lose-request", count=99), ttl="2s")
        assert f"it is not known whether {name}-0" in caplog.text


def test_c38_a_lock_is_granted_for_no_older_work(clients: Clients, rig: Rig, name: str) -> None:
    locks = clients(rig.proxy)
    locks.acquire(name, order=5, owner="run 5").release()
    rig.forget()
    rig.fault("lose-reply", method="POST")
    begun = time.monotonic()
    with pytest.raises(LatchgateError) as caught:
        locks.acquire(name, order=4, wait="1m")
    assert time.monotonic() - begun < 5
    error = caught.value
    assert (type(error), error.status, error.code) == (LatchgateError, 409, "outdated-order")
    assert (error.problem["order"], error.problem["granted_order"]) == (4, 5)
    assert error.problem["order_granted"]["owner"] == "run 5"
    assert len(rig.log("POST", name)) == 2
    equal = locks.acquire(name, order=5)

    seventh = clients.background(locks.acquire, name, order=7, wait="1m")
    waits(locks, name)
    sixth = clients.background(locks.acquire, name, order=6, wait="1m")
    waits(locks, name, 2)
    equal.release()
    lease = seventh.result(5)
    lease.release()
    outdated = sixth.exception(1)
    assert isinstance(outdated, LatchgateError) and outdated.code == "outdated-order"
    assert locks.inspect(name).state == "free"

    lease = locks.acquire(name, order=4, rollback="the new one fails")
    lock = locks.inspect(name)
    assert (lock.granted_order, lock.holders[0].order, lock.holders[0].rollback) == (7, 4, "the new one fails")
    locks.break_(name, reason="the test", fencing_token=lease.fencing_token)
    last = locks.history(name).entries[0]
    assert (last.order, last.rollback) == (4, "the new one fails")

    names = [f"{name}-{end}" for end in "abc"]
    group: list[Any] = [names[0], {"name": names[1], "order": 3}, {"name": names[2], "mode": "shared"}]
    locks.acquire(group, order=9).release()
    assert [locks.inspect(each).granted_order for each in names] == [9, 3, None]
    with pytest.raises(LatchgateError) as caught:
        locks.acquire(group, order=8)
    assert caught.value.code == "outdated-order"
    locks.acquire({"name": names[1], "order": 3}).release()


def test_c39_a_wait_in_pieces_says_how_long_it_has_taken(clients: Clients, rig: Rig, name: str) -> None:
    short = {"LATCHGATE_LIMITS_MAX_WAIT_MS": "1000"}
    rig.gateway("a", "term")
    rig.gateway("a", "start", env=short)
    locks = clients(rig.proxy)
    clients(rig.b).acquire(name)
    rig.forget()
    with pytest.raises(LockHeld):
        locks.acquire(name, supersedes="deploy", wait="3s")
    first, *more = rig.log("POST", name)
    assert "waiting_since_ms" not in first["body"] and len(more) >= 3
    for asked in more:
        passed = asked["at_ms"] - first["at_ms"]
        assert passed - 300 <= asked["body"]["waiting_since_ms"] <= passed + 1_000
    assert more[-1]["body"]["waiting_since_ms"] >= 2_000
    rig.forget()
    with pytest.raises(LockHeld):
        locks.acquire(name, wait="2s")
    others = rig.log("POST", name)
    assert len(others) >= 2 and not any("waiting_since_ms" in it["body"] for it in others)
    rig.forget()
    rig.fault("status", count=1, method="POST", path=f"/locks/{name}-o", status=429, code="too-many-orders", retry_after=1)
    locks.acquire(f"{name}-o", order=1)
    refused, again = rig.log("POST", f"{name}-o")
    assert 1_000 <= again["at_ms"] - refused["answered_at_ms"] <= 10_000
