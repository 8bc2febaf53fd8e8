"""Tests that an answer that does not follow the API is refused, and that a lease that it may have granted is
released."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted import SETTINGS, TOKEN, acquiring, answer, lease, play, problem

from latchgate import (
    AwaitedLock,
    Holder,
    LatchgateError,
    LockHeld,
    OrderGrant,
    OutcomeUnknown,
    Reservation,
    Rest,
    ShorterLeases,
)
from latchgate.protocol import lease_state
from latchgate.protocol.clock import now
from latchgate.protocol.exchange import Answer, NoAnswer
from latchgate.protocol.grant import grant_of, renewed_group
from latchgate.protocol.lease_state import LeaseState
from latchgate.protocol.looking import check, history, inspect
from latchgate.protocol.releasing import give_back
from latchgate.protocol.renewing import renew

INFINITY, NAN = float("inf"), float("nan")
BAD = [
    ("fencing_token", value) for value in (None, 0, "1", 1.5, True, 2**53)
] + [
    (field, value)
    for field in ("ttl_ms", "expires_in_ms", "renew_after_ms")
    for value in (None, -1, "1", 1.5, True, NAN, INFINITY, 2**53, 10**400)
] + [
    ("name", 1), ("name", "another"), ("mode", "other"), ("slot", -1), ("owner", 1), ("metadata", ["m"]),
    ("hold_expires_in_ms", NAN), ("waited_ms", -1), ("leases", "l"), ("leases", [1]),
    ("release_requested", {"by": None, "reason": "r", "within_ms": INFINITY}),
]  # fmt: skip


@pytest.mark.parametrize("field, value", BAD)
def test_a_lease_that_cannot_be_used_is_refused_and_released(field: str, value: Any) -> None:
    acquire = acquiring()
    sent, error = play(acquire.run(), lease(0.0, **{field: value}))
    assert type(error) is OutcomeUnknown and error.status == 201 and len(sent) == 1
    assert TOKEN not in str(error)
    assert acquire.owes_release
    sent, error = play(acquire.withdraw(), answer(204))
    assert error is None
    assert [(it.call.method, it.call.path, it.call.headers["Lock-Token"]) for it in sent] == [("DELETE", "/locks/n", TOKEN)]


@pytest.mark.parametrize("token", [None, "", "short", 1, "t" * 42 + "\n", "t" * 44, "t" * 42 + "ä"])
@pytest.mark.parametrize("key", [None, "of-the-caller-0123456789"])
def test_a_lease_without_its_token_is_asked_for_once_more_to_be_released(token: Any, key: Any) -> None:
    acquire = acquiring(idempotency_key=key)
    sent, error = play(acquire.run(), lease(0.0, token=token))
    assert type(error) is OutcomeUnknown and "token" in str(error)
    again, error = play(acquire.withdraw(), lease(0.0), answer(204))
    assert error is None
    assert [it.call.method for it in again] == ["POST", "DELETE"]
    assert again[0].call.headers == sent[0].call.headers


def test_an_answer_that_is_no_document_is_refused() -> None:
    _, error = play(acquiring().run(), Answer(201, {}, b"[]", 0.0, 0.001))
    assert type(error) is OutcomeUnknown
    # A body that is no JSON was cut off, or was written by a proxy.
    for body in (b"", b"\xff", b"[" * 10, b"[" * 100_000, b'{"a":' * 100_000):
        sent, grant = play(acquiring().run(), Answer(201, {}, body, 0.0, 0.001), lease(0.0))
        assert grant.token == TOKEN and len(sent) == 2


@pytest.mark.parametrize(
    "location, to",
    [
        ("https://u:s3cret@locks.example:1/locks/team@prod?key=s3cret#s3cret", "https://locks.example:1/locks/team@prod"),
        ("/login?next=s3cret", "/login"),
    ],
)
def test_a_redirect_says_where_to_and_shows_no_secret(location: str, to: str) -> None:
    for operation in (acquiring().run(), inspect(SETTINGS, "n")):
        _, error = play(operation, Answer(308, {"location": location}, b"", 0.0, 0.001))
        assert str(error).startswith(f"status 308 is a redirect to {to}, which is not followed"), error
    for answered in (Answer(308, {"location": "http://["}, b"", 0, 0), Answer(404, {"location": location}, b"", 0, 0)):
        _, error = play(acquiring().run(), answered)
        assert "this is no gateway" in str(error) and "s3cret" not in str(error)


def test_what_answers_a_release_otherwise_has_not_released_it() -> None:
    state = LeaseState(grant_of(lease(now()), ["n"]))
    sent, error = play(give_back(SETTINGS, state, now() + 10.0), answer(200, status="ok"), Answer(200, {}, b"<html>", 0, 0), answer(204))
    assert error is None and len(sent) == 3


def test_a_refusal_that_cannot_be_read_is_a_refusal() -> None:
    _, error = play(acquiring().run(), problem(423, "locked", holders=[1]))
    assert type(error) is LatchgateError and error.status == 423
    _, error = play(acquiring().run(), problem(423, "locked", holders=[{"owner": "anna"}]))
    assert type(error) is LockHeld and str(error) == "n is held by anna (locked, 423)"
    reservation = {"until": "2026-12-04T18:00:00Z", "reason": "load test"}
    for by, who in (({"reserved_by": None}, ""), ({"reserved_by": "ops"}, " by ops")):
        _, error = play(acquiring().run(), problem(423, "locked", holders=[{"reservation": {**reservation, **by}}]))
        assert type(error) is LockHeld
        assert str(error) == f"n is reserved{who} until 2026-12-04T18:00:00Z because load test (locked, 423)"
    many = [{"owner": None, "foreign": True}, {"owner": "anna"}]
    _, error = play(acquiring(names=["a", "b"]).run(), problem(423, "locked", holders=many, holder_count=3, name="b"))
    assert str(error) == "b is held by a program that uses no gateway and 2 others (locked, 423)"
    resting = [{"fencing_token": 7, "slot": None, "available_in_ms": 4000}]
    _, error = play(acquiring().run(), problem(423, "locked", holders=[], resting=resting, available_in_ms=4000))
    assert str(error) == "n rests for another 4000 ms (locked, 423)" and error.available_in_ms == 4000


@pytest.mark.parametrize("field, value", [("token", "u" * 43), ("expires_in_ms", NAN), ("ttl_ms", -1), ("name", "another")])
def test_a_renewal_that_cannot_be_used_does_not_count(monkeypatch: pytest.MonkeyPatch, field: str, value: Any) -> None:
    moment = 100.0
    monkeypatch.setattr(lease_state, "now", lambda: moment)
    state = LeaseState(grant_of(lease(100.0), ["n"]))
    until = state.until
    moment = 102.0
    answered = lease(102.0, **{field: value})
    _, error = play(renew(SETTINGS, state, None), Answer(200, {}, answered.body, 102.0, 102.0))
    assert type(error) is OutcomeUnknown
    assert state.until == until


def group(**more: Any) -> dict[str, Any]:
    results = [{"name": name, "code": None, "expires_in_ms": 10_000, "hold_expires_in_ms": None} for name in ("a", "b")]
    return {"results": results, "expires_in_ms": 10_000, "renew_after_ms": 3_333, **more}


def test_a_group_is_answered_for_each_of_its_locks() -> None:
    part = {"fencing_token": 1, "mode": "exclusive", "slot": None}
    leases = [{"name": "a", **part}, {"name": "b", **part}]
    grant = grant_of(lease(0.0, leases=leases), ["b", "a"])
    with pytest.raises(OutcomeUnknown):
        grant_of(lease(0.0, leases=leases), ["a", "b", "c"])
    assert renewed_group(grant, None, answer(200, 1.0, **group())).expires_in == 10
    bad: list[dict[str, Any]] = [{"renew_after_ms": NAN}, {"results": []}, {"results": group()["results"][:1]}, {"results": [1, 2]}]
    for name in ("a", "b"):
        results = [{**it, "expires_in_ms": None} if it["name"] == name else it for it in group()["results"]]
        bad.append({"results": results})
    for more in bad:
        with pytest.raises(OutcomeUnknown):
            renewed_group(grant, None, answer(200, 1.0, **group(**more)))


def test_each_lock_may_have_terms_of_its_own() -> None:
    def sent(names: Any, **options: Any) -> tuple[str, Any]:
        [it], _ = play(acquiring(names=names, **options).run(), problem(423, "locked"))
        assert it.call.body is not None
        return it.call.path, json.loads(it.call.body)

    pool = {"name": "b", "limit": 20}
    assert sent(["a", pool]) == ("/locks", {"names": ["a", pool]})
    assert sent([pool, {"name": "c", "mode": "shared"}], ttl="1s")[1]["names"] == [pool, {"name": "c", "mode": "shared"}]
    assert sent(["a", "b"], limit=2) == ("/locks", {"names": ["a", "b"], "limit": 2})
    for one in (pool, [pool]):
        assert sent(one) == ("/locks/b", {"limit": 20})
    assert sent("a", mode="shared") == ("/locks/a", {"mode": "shared"})
    for wrong in ({"mode": "shared"}, {"limit": 2}):
        with pytest.raises(ValueError, match="for each lock, or for all"):
            acquiring(names=["a", pool], **wrong)
    with pytest.raises(TypeError, match="the name of a lock is a text"):
        acquiring(names=["a", {"limit": 2}])
    with pytest.raises(ValueError, match="names each lock once"):
        acquiring(names=["b", pool])
    for field, value in (("ttl", "1h"), ("owner", "me"), ("wait_ms", 5), ("limits", 2), ("mode ", None)):
        other: Any = {**pool, field: value}
        for names in (other, [other], ["a", other]):
            with pytest.raises(ValueError, match=f"a lock has no field '{field}'"):
                acquiring(names=names)


def test_what_nobody_was_granted_is_not_released() -> None:
    acquire = acquiring()
    play(acquire.run(), NoAnswer("r"), problem(403, "forbidden"))
    assert not acquire.owes_release
    sent, _ = play(acquire.withdraw(), problem(423, "locked"))
    assert [it.call.method for it in sent] == ["POST"]


def released(*exchanges: Any, names: Any = "n", **options: Any) -> str:
    """The path of the release with which an acquire withdraws a lease."""
    acquire = acquiring(names=names, **options)
    _, error = play(acquire.run(), *exchanges)
    again = [] if acquire.owes_release else [lease(0.0)]
    end = answer(204) if names == "n" else answer(200, results=[{"name": "a", "code": None}, {"name": "b", "code": None}])
    sent, _ = play(acquire.withdraw(), *again, end)
    assert [it.call.method for it in sent] == ["POST"] * len(again) + ["DELETE"]
    return sent[-1].call.path


def test_a_lease_that_no_caller_had_is_released_as_unused_if_it_has_a_minimum_hold() -> None:
    part = {"fencing_token": 1, "mode": "exclusive", "slot": None}
    leases = [{"name": "a", **part}, {"name": "b", **part}]
    # The caller was interrupted when the lease was granted; the answer cannot be used; or the answer was lost.
    for exchanges in ([lease(0.0)], [lease(0.0, ttl_ms=-1)], [NoAnswer("r"), problem(403, "forbidden")]):
        assert released(*exchanges, min_hold="1m") == "/locks/n?unused=true"
        assert released(*exchanges, min_hold="1m", ttl="1h") == "/locks/n?unused=true"
        assert released(*exchanges, min_hold=0) == "/locks/n"
        assert released(*exchanges) == "/locks/n"
    group = lease(0.0, leases=leases)
    assert released(group, names=["a", "b"], min_hold="1m") == "/locks?names=a,b&unused=true"
    # Another process may have used the lease of a caller's key.
    assert released(lease(0.0), min_hold="1m", idempotency_key="of-the-caller-0123456789") == "/locks/n"


def test_the_release_of_a_holder_says_nothing_of_its_use() -> None:
    _, grant = play(acquiring(min_hold="1m").run(), lease(now()))
    sent, _ = play(give_back(SETTINGS, LeaseState(grant), 10.0), answer(204))
    assert [it.call.path for it in sent] == ["/locks/n"]


@pytest.mark.parametrize(
    "options, sent",
    [
        ({"min_hold": "1m"}, (None, 60_000)),
        ({"min_hold": "1m", "ttl": "2m"}, (120_000, 60_000)),
        ({"min_hold": "1m", "ttl": "1s"}, (60_000, 60_000)),
        ({"min_hold": "1s"}, (None, 1_000)),
        ({}, (None, None)),
    ],
)
def test_a_minimum_hold_raises_a_shorter_ttl(options: dict[str, Any], sent: Any) -> None:
    asked, _ = play(acquiring(**options).run(), lease(0.0))
    body = json.loads(asked[0].call.body or b"")
    assert (body.get("ttl_ms"), body.get("min_hold_ms")) == sent


def test_a_holder_says_what_its_request_for_several_locks_waits_for() -> None:
    waits_for = {"name": "freeze", "since_ms": 31_000, "holders": [{"owner": "ann"}]}
    holder = Holder.of({"fencing_token": 1, "waiting": True, "waits_for": waits_for})
    assert (holder.waiting, holder.waits_for) == (True, AwaitedLock("freeze", 31_000, (Holder(owner="ann"),)))
    assert (Holder.of({}).waiting, Holder.of({}).waits_for) == (False, None)


def test_a_reservation_is_sent_and_shown() -> None:
    reserve = {"until": "2026-12-04T18:00:00Z", "reason": "load test"}
    asked, _ = play(acquiring(reserve=reserve).run(), lease(0.0))
    assert json.loads(asked[0].call.body or b"")["reserve"] == reserve
    holder = Holder.of({"fencing_token": 1, "reservation": {**reserve, "reserved_by": None}})
    assert holder.reservation == Reservation(reserve["until"], reserve["reason"], None)


def test_a_lock_that_rests_shows_for_how_long() -> None:
    rest = {"fencing_token": 7, "slot": 1, "available_in_ms": 9}
    shown = answer(200, name="n", state="resting", holders=[], holder_count=0, resting=[rest], waiters=[], waiter_count=0)
    _, lock = play(inspect(SETTINGS, "n"), shown)
    assert (lock.state, lock.resting) == ("resting", (Rest(7, 1, 9),))


def test_an_outdated_order_is_final_whatever_became_of_an_earlier_copy() -> None:
    outdated = problem(409, "outdated-order", order=4, granted_order=5)
    sent, error = play(acquiring(wait="1m", order=4, rollback="why").run(), NoAnswer("cut"), outdated)
    assert type(error) is LatchgateError and (error.code, error.problem["granted_order"]) == ("outdated-order", 5)
    body = json.loads(sent[0].call.body or b"")
    assert len(sent) == 2 and (body["order"], body["rollback"]) == (4, "why")


def test_an_order_of_a_lock_counts_before_that_of_all() -> None:
    for names, order in (("n", 9), ({"name": "n"}, 9), ({"name": "n", "order": 0}, 0)):
        sent, _ = play(acquiring(names=names, order=9).run(), lease(0.0))
        assert json.loads(sent[0].call.body or b"")["order"] == order


def test_only_further_requests_of_a_wait_that_supersedes_say_how_long_it_has_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for supersedes, known in (("deploy", [None, 0, 3_600_000]), (None, [None] * 3)):
        clock = [1_000.0]
        monkeypatch.setattr("latchgate.protocol.acquiring.now", lambda: clock[0])
        operation = acquiring(wait="2h", supersedes=supersedes)
        sent = []
        for passed in (0.0, 0.0, 4_000.0):
            clock[0] += passed
            sent.append(operation._call(1.0))
        assert [json.loads(call.body or b"").get("waiting_since_ms") for call in sent] == known


def test_the_order_of_a_lock_is_shown() -> None:
    grant = {"at": "2026-11-28T09:00:00.000Z", "by": None, "owner": "run 5"}
    shown = {"name": "n", "holders": [{"order": 4, "rollback": "why"}], "granted_order": 5, "order_granted": grant}
    _, lock = play(inspect(SETTINGS, "n"), answer(200, **shown))
    assert (lock.granted_order, lock.order_granted) == (5, OrderGrant(grant["at"] or "", None, "run 5"))
    assert (lock.holders[0].order, lock.holders[0].rollback) == (4, "why")


def test_a_history_shows_since_when_shorter_leases_are_counted() -> None:
    since = "2026-11-28T09:00:00.000Z"
    for counted, shown in (({"count": 3, "since": since}, ShorterLeases(3, since)), (None, None)):
        answered = answer(200, name="n", entries=[], shorter_leases=counted, dropped=0, enabled=True)
        _, past = play(history(SETTINGS, "n"), answered)
        assert past.shorter_leases == shown


def test_another_success_than_204_does_not_let_a_check_pass() -> None:
    for status in (200, 201):
        _, error = play(check(SETTINGS, "n", 7, None), answer(status, name="n"))
        assert type(error) is LatchgateError and error.status == status
