"""Release: give a lease back."""

from __future__ import annotations

from typing import Optional

from ..errors import LatchgateError, LeaseLost
from .clock import now
from .exchange import Call, Failure, Operation
from .grant import Grant, check_results, results_of
from .names import lease_path
from .retry import Retry, send
from .settings import Settings

_NOT_DONE = ("store-unavailable", "outcome-unknown")


def release(settings: Settings, grant: Grant, within: Optional[float] = None) -> Operation[None]:
    """Ends a lease, of one lock or of several. What is not answered is sent again.

    The leases of this client have an idempotency key, so a second copy of a release is answered like the first. Of several
    locks only the last is remembered so: of the others an unanswered copy that is followed by ``lease-lost`` has done it.
    """
    retry = Retry(now() + (settings.deadline if within is None else within))
    names = [part.name for part in grant.parts]
    in_doubt = False
    while True:
        answer = yield from send(Call("DELETE", lease_path(names), {"Lock-Token": grant.token}), settings, retry)
        in_doubt = in_doubt or retry.in_doubt
        if answer.status == 204:
            return
        if answer.status != 200:
            error = retry.refusal(answer)
            if isinstance(error, LeaseLost) and in_doubt and len(grant.parts) > 1:
                return
            raise error
        results = results_of(answer)
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
