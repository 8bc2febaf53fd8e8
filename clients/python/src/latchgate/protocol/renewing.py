"""Renews a lease once, or keeps it renewed until it is released."""

from __future__ import annotations

import json
import random
from typing import Optional

from ..errors import GatewayUnreachable, LatchgateError, LeaseLost, OutcomeUnknown
from .clock import now
from .exchange import Answer, Call, Failure, Operation, Pause, send_copy
from .grant import Grant, grant_of, renewed_group
from .lease_state import LeaseState
from .names import lease_path
from .retry import Retry, asked_pause, backoff, send
from .settings import Settings

#: The longest single pause in seconds: timers stop while the machine is suspended, but the clock for leases does not.
STRETCH = 1.0


def _call(grant: Grant, ttl: Optional[float]) -> Call:
    body = {} if ttl is None else {"ttl_ms": round(ttl * 1000)}
    return Call(
        "PUT",
        lease_path(grant.names, "/renew"),
        {"Lock-Token": grant.token},
        json.dumps(body).encode(),
    )


def _renewed(grant: Grant, ttl: Optional[float], answer: Answer, retry: Retry) -> Grant:
    if answer.status != 200:
        raise retry.refusal(answer)
    if len(grant.parts) > 1:
        return renewed_group(grant, ttl, answer)
    renewed = grant_of(answer, grant.names)
    if renewed.token != grant.token:
        raise OutcomeUnknown("the gateway answered with another lease than the one to renew", status=answer.status)
    return renewed


def _lose(state: LeaseState, lost: LeaseLost, answer: Optional[Answer]) -> None:
    # For a group, a successful answer reports the loss of single locks.
    if answer is not None and answer.status == 200:
        state.lose_part(lost)
    else:
        state.lose(lost)


def copy_time_out(settings: Settings, left: float) -> float:
    """The time limit of one renewal in seconds, so that there is time for another renewal before the lease ends."""
    return min(max(left / 2, 0.05), left, settings.request_timeout)


def renew(settings: Settings, state: LeaseState, ttl: Optional[float]) -> Operation[None]:
    """Renews a lease for its holder. An unanswered renewal is sent again, because a second copy does no harm."""
    state.check()
    before = state.asked_ttl
    ttl = before if ttl is None else ttl
    # Later automatic renewals ask for the same TTL.
    state.asked_ttl = ttl
    grant = state.grant
    retry = Retry(now() + settings.deadline)
    may_last = True

    def time_out() -> float:
        state.check()
        return copy_time_out(settings, state.until - now())

    answer: Optional[Answer] = None
    try:
        answer = yield from send(_call(grant, ttl), settings, retry, time_out)
        renewed = _renewed(grant, ttl, answer, retry)
    except LeaseLost as lost:
        _lose(state, lost, answer)
        raise
    except LatchgateError as error:
        # No copy has reached a gateway, so the lease lasts no longer than before.
        may_last = not isinstance(error, GatewayUnreachable)
        state.asked_ttl = before
        raise
    finally:
        if may_last:
            state.asked(ttl)
    state.renewed(renewed)
    state.check()


def renew_first(settings: Settings, grant: Grant) -> Operation[Grant]:
    """Renews a lease whose acquire took long, before it is used: the lease was probably granted after a wait, at an
    unknown time."""
    # The lease cannot last longer than this deadline.
    retry = Retry(now() + grant.expires_in)
    while True:
        time_out = copy_time_out(settings, retry.deadline - now())
        answer = yield from send_copy(_call(grant, None), settings.silence, time_out)
        if not isinstance(answer, Failure):
            return _renewed(grant, None, answer, retry)
        yield from retry.after(answer)


def keep(settings: Settings, state: LeaseState) -> Operation[None]:
    """Keeps a lease renewed until it is over.

    A failed renewal is repeated until the lease is over. Its end is computed on this machine's clock, from when the
    last successful renewal was sent. If a gateway reports that the lease has ended, the lease is over at once.
    """
    failed = 0
    renew_at = first_renewal(state.grant)
    kept = state.grant
    while True:
        if state.grant is not kept:
            # The holder has renewed the lease itself.
            kept, failed = state.grant, 0
            renew_at = first_renewal(kept)
        if state.is_over():
            return
        pause = min(renew_at, state.until) - now()
        if pause > 0:
            yield Pause(min(pause, STRETCH))
            continue
        ttl = state.asked_ttl
        time_out = copy_time_out(settings, state.until - now())
        answer = yield from send_copy(_call(kept, ttl), settings.silence, time_out)
        if not isinstance(answer, Failure) or answer.in_doubt:
            state.asked(ttl)
        failure: LatchgateError
        retry_after: Optional[float] = None
        if isinstance(answer, Failure):
            failure, retry_after = answer.error, answer.retry_after
        else:
            try:
                state.renewed(_renewed(kept, ttl, answer, Retry(now())))
                continue
            except LeaseLost as lost:
                _lose(state, lost, answer)
                return
            except LatchgateError as error:
                failure = error
                if ttl is not None and answer.status in (400, 403):
                    # The API key may not ask for this TTL any more, so from now on the lease is renewed with its own
                    # TTL.
                    state.asked_ttl = None
                    continue
        # Any other failure may pass before the lease is over, so the renewal is repeated.
        failed += 1
        state.trouble = str(failure)
        longest = kept.ttl / 10
        pause_asked = 0.0 if retry_after is None else asked_pause(retry_after)
        renew_at = now() + min(max(backoff(failed), pause_asked), longest)


def first_renewal(grant: Grant) -> float:
    """When the lease is renewed next."""
    if grant.at_hold_limit:
        return grant.good_until
    # The time is shortened at random, so that leases granted together are not always renewed together.
    early = 0.1 * random.random()
    return grant.sent_at + grant.renew_after * (1 - early)
