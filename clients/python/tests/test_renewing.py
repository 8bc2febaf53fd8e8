"""Tests of the state of a lease after a renewal that was not answered, or that has a shorter TTL."""

from __future__ import annotations

from typing import Iterator

import pytest
from scripted import SETTINGS, lease, play, problem

from latchgate import LatchgateError, OutcomeUnknown
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


def test_a_shorter_renewal_counts_when_it_is_answered(clock: Clock) -> None:
    state = LeaseState(grant_of(lease(100.0), ["n"]))
    told: list[float] = []
    state.on_shorter = lambda: told.append(state.until)
    clock.moment = 101.0
    until = state.until
    state.asked(2.0)
    assert state.until == until and told == []
    # The gateway does not end the lease earlier, although the TTL is shorter.
    shorter = lease(101.0, ttl_ms=2_000, expires_in_ms=9_000, renew_after_ms=666)
    state.renewed(grant_of(Answer(200, {}, shorter.body, 101.0, 101.0), ["n"]))
    assert 102 < state.until < 103 and told == [state.until]
    clock.moment = 102.0
    state.renewed(grant_of(renewed(102.0, 10_000), ["n"]))
    assert state.until > 111


def test_a_renewal_that_was_not_answered_changes_nothing(clock: Clock) -> None:
    forbidden = problem(403, "forbidden")
    for exchanges in ([forbidden], [NotSent("r", for_good=True)], [NoAnswer("r"), forbidden]):
        for ttl in (2.0, 60.0):
            state = LeaseState(grant_of(lease(clock.moment), ["n"]))
            until = state.until
            _, error = play(renew(SETTINGS, state, ttl), *exchanges)
            assert isinstance(error, LatchgateError) and isinstance(error, OutcomeUnknown) == (len(exchanges) > 1)
            assert (state.until, state.asked_ttl) == (until, 10.0)


def test_a_lease_is_kept_with_the_ttl_of_a_shorter_renewal(clock: Clock) -> None:
    state = LeaseState(grant_of(lease(100.0), ["n"]))
    keeping = keep(SETTINGS, state)
    # Without the shorter renewal, the lease would be renewed after 3 s.
    effect = next(keeping)
    answer = lease(100.0, ttl_ms=2_000, expires_in_ms=10_000, renew_after_ms=666)
    play(renew(SETTINGS, state, 2.0), Answer(200, {}, answer.body, 100.0, 100.0))
    while isinstance(effect, Pause):
        clock.moment += min(effect.seconds, 0.1)
        effect = next(keeping)
    assert isinstance(effect, Send) and effect.call.body == b'{"ttl_ms": 2000}'
    assert 100.5 < clock.moment < 101
    # After a renewal without an answer, the client pauses before the next one.
    assert isinstance(keeping.send(NoAnswer("r")), Pause)
    keeping.close()
