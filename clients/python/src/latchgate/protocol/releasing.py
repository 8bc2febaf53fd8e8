"""Releases leases."""

from __future__ import annotations

from typing import Optional, Sequence

from ..errors import LatchgateError, LeaseLost, OutcomeUnknown
from .clock import now
from .exchange import Call, Failure, Operation, Pause
from .grant import check_results, results_of
from .lease_state import LeaseState
from .names import lease_path
from .retry import Retry, backoff, send
from .settings import Settings

_NOT_DONE = ("store-unavailable", "outcome-unknown")


def end_lease(settings: Settings, state: LeaseState) -> Operation[None]:
    """Releases the lease of a holder that is done. If an earlier release failed, sends it again. If the lease was lost,
    raises that error at the first call, and sends nothing: a lease that is over is worth no wait."""
    state.check_process()
    if state.begin_release():
        lost = state.lost
        if lost is not None:
            raise lost.again()
        state.lose(LeaseLost("the lease was released", "released"), ends=False)
    if not state.owes_release():
        return
    began = now()
    until = min(settings.silence.end_by(), began + settings.deadline)
    answered = False
    try:
        yield from give_back(settings, state, until)
        answered = True
    finally:
        settings.silence.ended(began, answered)


def give_back(settings: Settings, state: LeaseState, until: float) -> Operation[None]:
    """Releases a lease by a time, and records whether it has ended. The lease is not waited for longer than it lasts."""
    within = min(until - now(), state.release_within)
    try:
        yield from release(settings, state.names, state.grant.token, within, again=state.release_in_doubt)
    except LatchgateError as error:
        # 410: the lease has ended, by an earlier copy of the release or before it.
        if error.status == 410:
            state.ended()
        else:
            state.release_in_doubt = True
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
            yield from give_back(settings, state, now() + state.release_within)
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
    first. For a group, the gateway remembers only the release of the last lock. If the gateway reports after an unanswered
    copy, or after an earlier release (``again``), that a lease is lost, that copy may have released it: the outcome is
    unknown. ``unused`` says that no caller had the lease: the lock does not rest for the minimum hold.
    """
    retry = Retry(now() + within)
    names = list(names)
    in_doubt = again
    loss: Optional[LatchgateError] = None
    while True:
        path = lease_path(names)
        if unused:
            path += ("&" if "?" in path else "?") + "unused=true"
        call = Call("DELETE", path, {"Lock-Token": token})
        try:
            answer = yield from send(call, settings, retry)
            in_doubt = in_doubt or retry.in_doubt
            if answer.status == 204:
                break
            if answer.status != 200:
                raise retry.refusal(answer)
            results = results_of(answer, names)
            codes = {str(result["name"]): result.get("code") for result in results}
            names = [name for name in codes if codes[name] in _NOT_DONE]
            try:
                check_results([result for result in results if result.get("code") == "lease-lost"])
            except LeaseLost as lost:
                loss = loss or (_unknown(lost) if in_doubt else lost)
            if not names:
                break
            in_doubt = in_doubt or "outcome-unknown" in codes.values()
            # The remaining locks can be released separately or together, because they have one token.
            try:
                check_results([result for result in results if result.get("code") in _NOT_DONE])
            except LatchgateError as error:
                yield from retry.after(Failure(error, in_doubt=in_doubt))
        except LatchgateError as error:
            # The loss of a lock of the group is more important than the failure to release the others.
            raise loss or (_unknown(error) if in_doubt and isinstance(error, LeaseLost) else error) from None
    if loss is not None:
        raise loss


def _unknown(lost: LeaseLost) -> OutcomeUnknown:
    reason = f"an earlier copy of the release was not answered, and may have ended the lease; then {lost}"
    return OutcomeUnknown(reason, status=410, problem=lost.problem)
