"""Renew: make a lease last longer, and keep it for as long as it is wanted."""

from __future__ import annotations

import json
import random
from typing import Optional

from ..errors import LatchgateError, LeaseLost, OutcomeUnknown
from .clock import now
from .exchange import Answer, Call, Failure, Operation, Pause, send_copy
from .grant import Grant, grant_of, renewed_group
from .lease_state import LeaseState
from .names import lease_path
from .retry import Retry, asked_pause, backoff, send
from .settings import Settings

#: The longest pause at a stretch: timers stand still while a machine is suspended, and the clock of leases does not.
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
    # Of a group it is answered what came of each.
    if answer is not None and answer.status == 200:
        state.lose_part(lost)
    else:
        state.lose(lost)


def copy_time_out(settings: Settings, left: float) -> float:
    """How long one renewal may take: so that there is time for another one in what is left of the lease."""
    return min(max(left / 2, 0.05), left, settings.request_timeout)


def renew(settings: Settings, state: LeaseState, ttl: Optional[float]) -> Operation[None]:
    """Renews until it is answered. Renewing twice does no harm."""
    state.check()
    before = state.asked_ttl
    ttl = before if ttl is None else ttl
    # A renewal by itself that follows asks for the same.
    state.asked_ttl = ttl
    grant = state.grant
    retry = Retry(now() + settings.deadline)
    state.asks(ttl)

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
    except LatchgateError:
        state.asked_ttl = before
        raise
    state.renewed(renewed)
    state.check()


def renew_first(settings: Settings, grant: Grant) -> Operation[Grant]:
    """Renews a lease that took long to come: most likely it was waited for, but nobody knows how long ago it was granted."""
    # No lease can last longer than this.
    retry = Retry(now() + grant.expires_in)
    while True:
        time_out = copy_time_out(settings, retry.deadline - now())
        answer = yield from send_copy(_call(grant, None), time_out)
        if not isinstance(answer, Failure):
            return _renewed(grant, None, answer, retry)
        yield from retry.after(answer)


def keep(settings: Settings, state: LeaseState) -> Operation[None]:
    """Renews a lease until it is over.

    What fails is tried again until the lease is over. That is decided on this machine's clock, from when the last successful
    renewal was sent. A gateway that says that the lease has ended is believed at once.
    """
    failed = 0
    renew_at = first_renewal(state.grant)
    kept = state.grant
    while True:
        if state.grant is not kept:
            # It was renewed by hand.
            kept, failed = state.grant, 0
            renew_at = first_renewal(kept)
        if state.is_over():
            return
        pause = min(renew_at, state.until) - now()
        if pause > 0:
            yield Pause(min(pause, STRETCH))
            continue
        ttl = state.asked_ttl
        state.asks(ttl)
        time_out = copy_time_out(settings, state.until - now())
        answer = yield from send_copy(_call(kept, ttl), time_out)
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
                    # A key that may not ask for as much any more may renew what there is.
                    state.asked_ttl = None
                    continue
        # Whatever else is wrong may be mended before the lease is over.
        failed += 1
        state.trouble = str(failure)
        longest = kept.ttl / 10
        pause_asked = 0.0 if retry_after is None else asked_pause(retry_after)
        renew_at = now() + min(max(backoff(failed), pause_asked), longest)


def first_renewal(grant: Grant) -> float:
    """When a lease is to be renewed."""
    if grant.at_hold_limit:
        return grant.good_until
    # Leases that were granted together are not renewed together for ever.
    early = 0.1 * random.random()
    return grant.sent_at + grant.renew_after * (1 - early)
