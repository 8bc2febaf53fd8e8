"""Tests of the end of a lease, of its client and of the process: what a release came to, and for how long it is tried."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from typing import Any, Iterator

import pytest
from both import Clients
from rig import Rig, until
from scripted import SETTINGS, TOKEN, answer, lease, play, problem
from test_conformance import is_free

from latchgate import GatewayUnreachable, LatchgateError, LeaseLost, OutcomeUnknown
from latchgate.protocol import silence
from latchgate.protocol.clock import now
from latchgate.protocol.exchange import NoAnswer, NotSent
from latchgate.protocol.grant import grant_of
from latchgate.protocol.lease_state import LeaseState
from latchgate.protocol.releasing import end_lease, release
from latchgate.protocol.renewing import keep, renew
from latchgate.protocol.settings import Settings

LOST = {"code": "lease-lost", "held": False}
DONE = {"code": None}
AWAY = {"code": "store-unavailable"}
UNKNOWN = {"code": "outcome-unknown"}


def results(**codes: Any) -> Any:
    return answer(200, results=[{"name": name, **result} for name, result in codes.items()])


# === What a release came to ===


@pytest.mark.parametrize("exchanges, expected", [
    ([results(a=LOST, b=DONE)], LeaseLost),
    # The others are released, and the loss is told nevertheless.
    ([results(a=AWAY, b=LOST), answer(204)], LeaseLost),
    ([results(a=LOST, b=UNKNOWN), answer(204)], LeaseLost),
    ([results(a=LOST, b=AWAY), problem(403, "forbidden")], LeaseLost),
    # Nothing had happened, so the loss is older than the release.
    ([results(a=DONE, b=AWAY), problem(410, "lease-lost")], LeaseLost),
    # An earlier copy may have ended the lease.
    ([results(a=DONE, b=UNKNOWN), problem(410, "lease-lost")], OutcomeUnknown),
    ([NoAnswer("r"), problem(410, "lease-lost")], OutcomeUnknown),
    ([NoAnswer("r"), results(a=LOST, b=DONE)], OutcomeUnknown),
    ([NoAnswer("r"), results(a=LOST, b=LOST)], OutcomeUnknown),
    ([NotSent("r"), problem(410, "lease-lost")], LeaseLost),
    ([NoAnswer("r"), results(a=DONE, b=DONE)], None),
])  # fmt: skip
def test_a_group_is_lost_unless_a_release_may_have_ended_it(exchanges: Any, expected: Any) -> None:
    sent, error = play(release(SETTINGS, ["a", "b"], TOKEN, 10.0), *exchanges)
    assert len(sent) == len(exchanges)
    assert type(error) is (expected or type(None))
    if expected is OutcomeUnknown:
        assert getattr(error, "status") == 410


@pytest.mark.parametrize("before, expected", [("r", OutcomeUnknown), (None, LeaseLost)])
def test_a_lock_that_is_lost_after_an_unanswered_release_is_not_known(before: Any, expected: Any) -> None:
    earlier = [NoAnswer("r")] if before else []
    _, error = play(release(SETTINGS, ["a"], TOKEN, 10.0), *earlier, problem(410, "lease-lost"))
    assert type(error) is expected and error.status == 410


def test_an_end_that_is_not_known_is_told_once_and_not_sent_again() -> None:
    state = LeaseState(grant_of(lease(now()), ["n"]))
    settings = Settings("http://gateway.invalid")
    _, error = play(end_lease(settings, state), NoAnswer("r"), problem(410, "lease-lost"))
    assert type(error) is OutcomeUnknown and not state.owes_release()
    assert play(end_lease(settings, state)) == ([], None)


# === A lease that is over ===


def test_a_lease_that_is_over_is_worth_no_release() -> None:
    state = LeaseState(grant_of(lease(now() - 60.0), ["n"]))
    sent, error = play(end_lease(SETTINGS, state))
    assert sent == [] and type(error) is LeaseLost and error.why == "expired"


@pytest.mark.parametrize("exchange, lasts", [(NotSent("r", for_good=True), False), (NoAnswer("r"), True)])
def test_only_a_renewal_that_was_sent_may_keep_a_lease(exchange: Any, lasts: bool) -> None:
    state = LeaseState(grant_of(lease(now(), ttl_ms=10_000, expires_in_ms=1_000), ["n"]))
    before = state.release_within
    operation = keep(Settings("http://gateway.invalid"), state)
    next(operation)
    while state.release_within > before - 0.6:
        time.sleep(0.05)
    state.asked_ttl = 10.0
    operation = renew(Settings("http://gateway.invalid", deadline=0.2), state, None)
    play(operation, *[exchange] * 99)
    assert (state.release_within > 5) == lasts


# === How long an end takes ===

END = """
import sys, time, latchgate
url, name, ttl, form = sys.argv[1:]
with latchgate.Latchgate(url) as locks:
    if form == "block":
        with locks(name, ttl=ttl):
            print("held", flush=True)
            sys.stdin.readline()
    else:
        leases = [locks.acquire(f"{name}-{i}", ttl=ttl) for i in range(4)]
        print("held", flush=True)
        sys.stdin.readline()
"""


@pytest.fixture
def away(rig: Rig) -> Iterator[Rig]:
    yield rig
    rig.no_faults()


@pytest.mark.parametrize("kind", ["hang", "lose-request"])
@pytest.mark.parametrize("form, ttl, later, within", [
    ("block", "1m", 0.0, 8.0),
    ("leases", "1m", 0.0, 8.0),
    ("block", "3s", 0.0, 5.0),
    # The lease has ended long before.
    ("block", "1s", 4.0, 1.5),
])  # fmt: skip
def test_block_close_and_exit_wait_for_five_seconds_together(
    away: Rig, name: str, kind: str, form: str, ttl: str, later: float, within: float
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", END, away.proxy, name, ttl, form],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "held\n"
        away.fault(kind, count=10_000)
        time.sleep(later)
        began = time.monotonic()
        process.stdin.close()
        process.wait(60)
        # The interpreter itself takes a moment to end.
        assert time.monotonic() - began < within


def test_a_gateway_that_answers_again_is_asked_although_it_was_waited_for_before(clients: Clients, rig: Rig, name: str) -> None:
    locks, at_b = clients(rig.proxy), clients(rig.b)
    first, second = locks.acquire(name, ttl="2m"), locks.acquire(f"{name}-2", ttl="2m")
    rig.fault("hang", count=1_000, method="DELETE")
    began = time.monotonic()
    with pytest.raises(LatchgateError):
        first.release()
    with pytest.raises(LatchgateError):
        second.release()
    assert time.monotonic() - began < 8
    third = locks.acquire(f"{name}-3", ttl="2m")
    rig.no_faults()
    third.release()
    assert at_b.inspect(f"{name}-3").state == "free"
    until(is_free(at_b, name), 30)


# === A gateway that does not answer is told ===


def test_a_gateway_that_is_not_reached_is_told_once(
    clients: Clients, rig: Rig, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(GatewayUnreachable):
        clients(rig.nobody).acquire(name, wait="6s")
    told = [record for record in caplog.records if "has answered for" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.WARNING]
    assert f"no gateway at {rig.nobody} has answered for" in caplog.text and "cannot be reached" in caplog.text


def test_each_outage_is_told_and_a_busy_gateway_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moment = 100.0
    monkeypatch.setattr(silence, "now", lambda: moment)
    of = silence.Silence("http://gateway")
    for at, answered in [(100.0, False), (102.9, False), (103.1, False), (900.0, False), (901.0, True), (902.0, False), (903.0, False)]:
        moment = at
        if answered:
            of.answered()
        else:
            of.unanswered(at, "refused")
    assert [record.getMessage() for record in caplog.records] == ["no gateway at http://gateway has answered for 3 s: refused"]
    moment = 906.0
    of.unanswered(906.0, "refused")
    assert len(caplog.records) == 2


def test_an_end_has_the_whole_time_again_after_an_answer_or_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 100.0
    monkeypatch.setattr(silence, "now", lambda: moment)
    of = silence.Silence("http://gateway")
    assert of.end_by() == 105.0
    moment = 103.0
    of.ended(100.0, answered=False)
    assert of.end_by() == 105.0
    moment = 105.0
    of.ended(103.0, answered=False)
    assert of.end_by() == 105.5
    moment = 105.1
    of.ended(105.0, answered=True)
    assert of.end_by() == pytest.approx(110.1)
    of.ended(100.0, answered=False)
    moment = 136.0
    assert of.end_by() == 141.0
