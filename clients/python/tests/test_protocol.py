"""Tests of the rules that need no gateway: clocks, pauses, and the meaning of answers."""

from __future__ import annotations

import copy
import json
import pickle
import sys
import time
from typing import Any

import pytest
from scripted import SETTINGS, TOKEN, acquire, lease, problem

from latchgate import GatewayUnreachable, Latchgate, LatchgateError, LeaseLost, LockHeld, OutcomeUnknown
from latchgate.aio import Latchgate as OfLoop
from latchgate.errors import refusal
from latchgate.protocol import clock, lease_state
from latchgate.protocol.exchange import NoAnswer, NotSent
from latchgate.protocol.grant import grant_of
from latchgate.protocol.lease_state import LeaseState
from latchgate.protocol.retry import BASE_PAUSE, MAX_PAUSE, backoff
from latchgate.protocol.settings import Settings


def test_the_clock_goes_on_while_the_machine_is_suspended() -> None:
    assert sys.platform == "linux", "the tests run on Linux"
    assert abs(clock.now() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1


def test_pauses_grow_up_to_a_limit_and_differ() -> None:
    assert all(backoff(1) <= BASE_PAUSE for _ in range(100))
    assert all(backoff(99) <= MAX_PAUSE for _ in range(100))
    assert len({backoff(3) for _ in range(10)}) == 10


def test_a_lease_is_over_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 100.0
    monkeypatch.setattr(lease_state, "now", lambda: moment)
    state = LeaseState(grant_of(lease(100.0), ["n"]))
    assert 109 < state.until < 110
    moment = state.until - 0.01
    state.check()
    moment = state.until
    with pytest.raises(LeaseLost) as caught:
        state.check()
    assert caught.value.why == "expired"
    # A renewal whose answer comes after the end of the lease does not revive it.
    state.renewed(grant_of(lease(109.0), ["n"]))
    assert state.is_over()


def test_a_renewal_that_was_sent_earlier_does_not_shorten_what_a_later_one_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_state, "now", lambda: 100.0)
    state = LeaseState(grant_of(lease(100.0), ["n"]))
    state.renewed(grant_of(lease(103.0), ["n"]))
    until = state.until
    state.renewed(grant_of(lease(101.0), ["n"]))
    assert state.until == until


def test_a_release_that_is_asked_for_bounds_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_state, "now", lambda: 100.0)
    state = LeaseState(grant_of(lease(100.0), ["n"]))

    state.renewed(grant_of(lease(100.0, release_requested={"by": "anna", "reason": "r", "within_ms": 2_000}), ["n"]))
    assert state.release_requested is not None and state.release_requested.by == "anna"
    assert state.until < 102


def test_all_copies_have_one_key_and_one_body() -> None:
    unknown = problem(504, "outcome-unknown")
    sent, grant = acquire(0, unknown, NoAnswer("r"), NotSent("r"), lease(0.0))
    assert grant.token == TOKEN
    assert len({(it.call.headers["Idempotency-Key"], it.call.body) for it in sent}) == 1 and len(sent) == 4


def test_what_was_in_doubt_stays_in_doubt() -> None:
    forbidden = problem(403, "forbidden")
    assert type(acquire(0, forbidden)[1]) is LatchgateError
    assert type(acquire(0, NoAnswer("r"), forbidden)[1]) is OutcomeUnknown
    different = problem(409, "declared-differently")
    assert type(acquire(0, different)[1]) is LatchgateError
    assert type(acquire(0, NoAnswer("r"), different)[1]) is OutcomeUnknown
    assert type(acquire(0, NotSent("r", for_good=True))[1]) is GatewayUnreachable


def test_a_gateway_that_allows_shorter_waits_is_asked_for_shorter_ones() -> None:
    too_long = problem(400, "invalid-request", errors=[{"field": "wait_ms", "reason": "r"}])
    sent, _ = acquire("1m", too_long, too_long, lease(0.0))
    waits = [json.loads(it.call.body or b"")["wait_ms"] for it in sent]
    assert waits == [20_000, 10_000, 5_000]
    assert [it.time_out for it in sent] == pytest.approx([25, 15, 10])


def test_a_lease_that_ended_unheard_is_asked_for_under_a_new_key() -> None:
    expired = problem(409, "idempotency-expired")
    sent, grant = acquire(0, NoAnswer("r"), expired, lease(0.0))
    assert grant.token == TOKEN
    keys = [it.call.headers["Idempotency-Key"] for it in sent]
    assert keys[0] == keys[1] != keys[2]


def test_no_secret_is_shown() -> None:
    settings = Settings.of("http://gateway.invalid/", "the-key", None, None, None, None)
    grant = grant_of(lease(0.0), ["n"])
    sent, _ = acquire(0, lease(0.0))
    shown = repr((settings, grant, sent, lease(0.0)))
    for secret in ("the-key", TOKEN, sent[0].call.headers["Idempotency-Key"]):
        assert secret not in shown


@pytest.mark.parametrize("url", ["gateway", "ftp://gateway", "http://", "http://u:p@gateway", "http://gateway?q"])
def test_a_url_that_names_no_gateway_is_refused(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        Settings.of(url, None, None, None, None, None)
    assert "u:p" not in str(caught.value)


def test_a_function_whose_body_runs_later_is_not_decorated() -> None:
    async def coroutine() -> None: ...

    def generator() -> Any:
        yield

    with Latchgate("http://gateway.invalid") as locks:
        for function in (coroutine, generator):
            with pytest.raises(TypeError, match="latchgate.aio"):
                locks("x")(function)


def test_an_option_that_there_is_not_is_refused() -> None:
    with Latchgate("http://gateway.invalid") as locks:
        with pytest.raises(TypeError, match="tll"):
            locks.acquire("x", tll="1m")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="tll"):
            locks("x", tll="1m")  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="ttl"):
            locks.acquire("x", ttl="5 apples")


@pytest.mark.parametrize("ttl", [10**400, "9" * 400 + "ms", "9" * 400 + "d", 1e308, 2**70])
def test_a_duration_that_nothing_holds_is_refused(ttl: Any) -> None:
    with Latchgate("http://gateway.invalid") as locks, pytest.raises(ValueError, match="ttl"):
        locks.acquire("x", ttl=ttl)


def test_what_is_given_is_checked_before_anything_is_sent() -> None:
    locks, on_loop = Latchgate("http://gateway.invalid"), OfLoop("http://gateway.invalid")
    given: Any = {"on_release_requested": 5}
    for acquire in (locks.acquire, locks, on_loop, lambda *a, **o: on_loop.acquire(*a, **o).send(None)):
        with pytest.raises(TypeError, match="on_release_requested"):
            acquire("x", **given)
    with pytest.raises(TypeError, match="threading.Event"):
        locks.acquire("x", cancel=5)  # type: ignore[arg-type]
    for names in (None, 5):
        with pytest.raises(TypeError, match="a name, or a list of names"):
            locks.acquire(names)  # type: ignore[arg-type]
    for many in ([], [f"n{it}" for it in range(17)]):
        with pytest.raises(ValueError, match="2 to 16"):
            locks.acquire(many)


HELD = {"status": 423, "code": "locked", "detail": "d", "holders": [{"owner": "anna"}], "waiters": 2, "name": "n"}


@pytest.mark.parametrize("error", [
    LatchgateError("m", code="closed"),
    refusal(HELD),
    refusal({"status": 410, "code": "lease-lost", "detail": "broken by anna", "held": True}),
    LeaseLost("m", "forked"),
    OutcomeUnknown("m", status=504),
    GatewayUnreachable("m"),
])  # fmt: skip
def test_an_error_goes_from_one_process_to_another(error: LatchgateError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error) and str(other) == str(error) and other.args == error.args
        assert vars(other) == vars(error)
    held = pickle.loads(pickle.dumps(refusal(HELD)))
    assert type(held) is LockHeld and held.holders[0].owner == "anna" and held.waiters == 2
