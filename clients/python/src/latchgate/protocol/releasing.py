"""Release: give a lease back."""

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

#: How long a release is tried of what is over by our clock, and may be alive by that of the store.
OVERDUE = 1.0

_NOT_DONE = ("store-unavailable", "outcome-unknown")


def end_lease(settings: Settings, state: LeaseState) -> Operation[None]:
    """What the holder does who is done: a release that is sent again if the one before has failed. Of a lease that was lost
    it raises that, the first time."""
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
    """Releases a lease, unless it is known by then that it has ended."""
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
    """Releases a lease in the background, until it has ended."""
    failed = 0
    while state.owes_release():
        try:
            yield from give_back(settings, state, state.release_within)
        except LeaseLost:
            return
        except LatchgateError as error:
            # A gateway that has failed may be mended; one that refuses does so again.
            if error.status is not None and 400 <= error.status < 500 and error.status not in (408, 429):
                return
            failed += 1
            yield Pause(min(backoff(failed), state.release_within))


def release(settings: Settings, names: Sequence[str], token: str, within: float, *, again: bool = False) -> Operation[None]:
    """Ends a lease, of one lock or of several. What is not answered is sent again.

    The leases of this client have an idempotency key, so a second copy of a release is answered like the first for a minute.
    Of several locks only the last is remembered so: of the others an unanswered copy that is followed by ``lease-lost`` has
    done it. So has any release before this one (``again``), however long ago it was.
    """
    retry = Retry(now() + within)
    names = list(names)
    of_several = len(names) > 1
    in_doubt = again
    while True:
        answer = yield from send(Call("DELETE", lease_path(names), {"Lock-Token": token}), settings, retry)
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
        # Each by itself or together: the token is the same.
        names = left
        try:
            check_results([result for result in results if result.get("code") in _NOT_DONE])
        except LatchgateError as error:
            yield from retry.after(Failure(error, in_doubt=True))
