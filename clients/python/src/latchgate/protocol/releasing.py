"""Releases leases."""

from __future__ import annotations

from typing import Sequence

from ..errors import LatchgateError, LeaseLost
from .clock import now
from .exchange import Call, Failure, Operation, Pause
from .grant import check_results, results_of
from .lease_state import LeaseState
from .names import lease_path
from .retry import Retry, backoff, send
from .settings import Settings

#: How long a release is tried, in seconds, for a lease that has ended by this clock, but perhaps not by the store's.
OVERDUE = 1.0

_NOT_DONE = ("store-unavailable", "outcome-unknown")


def end_lease(settings: Settings, state: LeaseState) -> Operation[None]:
    """Releases the lease of a holder that is done. If an earlier release failed, sends it again. If the lease was lost,
    raises that error at the first call."""
    state.check_process()
    if not state.begin_release():
        if state.owes_release():
            yield from give_back(settings, state, settings.deadline)
        return
    lost = state.lost
    if lost is None:
        state.lose(LeaseLost("the lease was released", "released"), ends=False)
        yield from give_back(settings, state, settings.deadline)
        return
    try:
        yield from give_back(settings, state, OVERDUE)
    except LatchgateError:
        pass
    raise lost.again()


def give_back(settings: Settings, state: LeaseState, within: float) -> Operation[None]:
    """Releases a lease, and records whether it has ended."""
    try:
        yield from release(settings, state.names, state.grant.token, within, again=state.release_in_doubt)
    except LeaseLost:
        state.ended()
        raise
    except BaseException:
        state.release_in_doubt = True
        raise
    state.ended()


def go_on_releasing(settings: Settings, state: LeaseState) -> Operation[None]:
    """Releases a lease in the background, with repeated attempts, until the lease has ended."""
    failed = 0
    while state.owes_release():
        try:
            yield from give_back(settings, state, state.release_within)
        except LeaseLost:
            return
        except LatchgateError as error:
            # A gateway that failed may work again later. A gateway that refuses the release would refuse it again.
            if error.status is not None and 400 <= error.status < 500 and error.status not in (408, 429):
                return
            failed += 1
            yield Pause(min(backoff(failed), state.release_within))


def release(
    settings: Settings,
    names: Sequence[str],
    token: str,
    within: float,
    *,
    again: bool = False,
    unused: bool = False,
) -> Operation[None]:
    """Releases a lease, of one lock or of a group of locks. An unanswered release is sent again.

    The leases of this client have an idempotency key, so for a minute a second copy of a release is answered like the
    first. For a group, the gateway remembers only the release of the last lock: for the other locks, ``lease-lost``
    after an unanswered copy means that this copy released them. After an earlier release (``again``), ``lease-lost``
    always means that. ``unused`` says that no caller had the lease: the lock does not rest
    for the minimum hold.
    """
    retry = Retry(now() + within)
    names = list(names)
    of_several = len(names) > 1
    in_doubt = again
    while True:
        path = lease_path(names)
        if unused:
            path += ("&" if "?" in path else "?") + "unused=true"
        call = Call("DELETE", path, {"Lock-Token": token})
        answer = yield from send(call, settings, retry)
        in_doubt = in_doubt or retry.in_doubt
        if answer.status == 204:
            return
        if answer.status != 200:
            error = retry.refusal(answer)
            if isinstance(error, LeaseLost) and (again or (in_doubt and of_several)):
                return
            raise error
        results = results_of(answer, names)
        left = [str(result["name"]) for result in results if result.get("code") in _NOT_DONE]
        lost = [result for result in results if result.get("code") == "lease-lost"]
        if lost and not in_doubt:
            check_results(lost)
        if not left:
            return
        in_doubt = True
        # The remaining locks can be released separately or together, because they have one token.
        names = left
        try:
            check_results([result for result in results if result.get("code") in _NOT_DONE])
        except LatchgateError as error:
            yield from retry.after(Failure(error, in_doubt=True))
