"""What a renewal that is not answered leaves of a lease."""

from __future__ import annotations

from typing import Iterator

import pytest
from scripted import SETTINGS, lease, play, problem

from latchgate import LatchgateError, LeaseLost, OutcomeUnknown
from latchgate.protocol import lease_state, renewing, retry
from latchgate.protocol.exchange import Answer, NoAnswer, NotSent, Pause, Send
from latchgate.protocol.grant import grant_of
from latchgate.protocol.lease_state import LeaseState
from latchgate.protocol.renewing import keep, renew


class Clock:
    moment = 100.0

    def __call__(self) -> float:
        return self.moment


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    for module in (lease_state, renewing, retry):
        monkeypatch.setattr(module, "now", clock)
    yield clock


def renewed(sent_at: float, ttl_ms: int) -> Answer:
    answered = lease(sent_at, ttl_ms=ttl_ms, expires_in_ms=ttl_ms, renew_after_ms=ttl_ms // 3)
    return Answer(200, {}, answered.body, sent_at, sent_at)


def test_a_shorter_renewal_bounds_the_lease_until_it_is_answered(clock: Clock) -> None:
    state = LeaseState(grant_of(lease(100.0), ["n"]))
    told: list[float] = []
    state.on_shorter = lambda: told.append(state.until)
    clock.moment = 101.0
    state.asks(10.0)
    assert state.until > 109 and told == []
    clock.moment = 102.0
    state.asks(2.0)
    assert 103 < state.until < 104 and told == [state.until]
    bound = state.until
    # The answer to the one before says nothing of it.
    state.renewed(grant_of(renewed(101.0, 10_000), ["n"]))
    assert state.until == bound
    clock.moment = 103.0
    state.renewed(grant_of(renewed(102.5, 2_000), ["n"]))
    assert 104 < state.until < 105
    state.asks(10.0)
    state.renewed(grant_of(renewed(103.0, 10_000), ["n"]))
    assert state.until > 112


def test_a_renewal_that_was_not_carried_out_bounds_nothing(clock: Clock) -> None:
    for exchange in (problem(403, "forbidden"), NotSent("r", for_good=True)):
        state = LeaseState(grant_of(lease(clock.moment), ["n"]))
        until = state.until
        _, error = play(renew(SETTINGS, state, 2.0), exchange)
        assert isinstance(error, LatchgateError) and not isinstance(error, OutcomeUnknown)
        assert (state.until, state.asked_ttl) == (until, 10.0)


def test_what_follows_a_shorter_renewal_in_doubt_asks_for_no_more(clock: Clock) -> None:
    state = LeaseState(grant_of(lease(100.0), ["n"]))
    _, error = play(renew(SETTINGS, state, 2.0), NoAnswer("r"), problem(403, "forbidden"))
    assert type(error) is OutcomeUnknown
    # It may arrive after the next one.
    assert state.asked_ttl == 2.0 and state.until < 102
    clock.moment = state.until
    _, error = play(renew(SETTINGS, state, None))
    assert type(error) is LeaseLost and error.why == "expired"


def test_a_shorter_renewal_in_doubt_is_followed_by_one_in_time(clock: Clock) -> None:
    state = LeaseState(grant_of(lease(100.0), ["n"]))
    keeping = keep(SETTINGS, state)
    effect = next(keeping)
    # It would be renewed after 3 s.
    assert isinstance(effect, Pause)
    state.asked_ttl = 2.0
    state.asks(2.0)
    while isinstance(effect, Pause):
        clock.moment += min(effect.seconds, 0.1)
        effect = next(keeping)
    assert isinstance(effect, Send) and effect.call.body == b'{"ttl_ms": 2000}'
    assert 100.6 < clock.moment < 101
    assert effect.time_out < state.until - clock.moment
    # Nor is a gateway asked without a pause that does not answer.
    assert isinstance(keeping.send(NoAnswer("r")), Pause)
    keeping.close()
