"""Decides how often a request is sent, and for how long."""

from __future__ import annotations

import random
from typing import Callable, Optional, Sequence
from urllib.parse import urlsplit

from ..errors import LatchgateError, OutcomeUnknown, refusal
from .clock import now
from .exchange import Answer, Call, Failure, Operation, Pause, send_copy
from .settings import Settings

#: The upper bound of the first pause, in seconds. The bound doubles with every copy of the request.
BASE_PAUSE = 0.2
#: The largest upper bound of a pause, in seconds.
MAX_PAUSE = 2.0
#: If less time than this is left before the deadline, in seconds, no last copy is sent, because its answer would be
#: late.
TOO_LATE = 0.05


def backoff(copy: int) -> float:
    """A random pause before copy number ``copy`` (the first repeated copy is 1), so that not all clients come back at
    the same moment after an outage of the gateway."""
    longest = min(BASE_PAUSE * 2.0 ** min(copy - 1, 10), MAX_PAUSE)
    return longest * random.random()


def asked_pause(retry_after: float) -> float:
    """A pause at least as long as the gateway asks for, and different for each client."""
    return retry_after * (1 + random.random() / 2)


class Retry:
    """The retry state of one call: its deadline, and the copies of its request that have failed."""

    def __init__(self, deadline: float, *, in_doubt_too: bool = True, last_at_deadline: bool = False) -> None:
        self.deadline = deadline
        # Whether the last copy may be sent at the deadline itself, because its answer may come later.
        self._last_at_deadline = last_at_deadline
        self._is_last = False
        # Whether a further copy is sent after a copy that may have been carried out.
        self._in_doubt_too = in_doubt_too
        self.failed = 0
        #: Whether a copy may have been carried out although its answer was lost.
        self.in_doubt = False

    def answered(self, settled: bool) -> None:
        """Records that a copy was answered, which resets the count of failures. If ``settled``, no earlier copy is in
        doubt."""
        self.failed = 0
        self.in_doubt = self.in_doubt and not settled

    def pause(self, wanted: float, asked: float = 0.0) -> Optional[float]:
        """The pause before the next copy; ``None`` if no time is left for a copy. If there is time for only one more
        copy, the pause is shorter than ``wanted``, but if possible as long as the gateway ``asked`` for."""
        left = self.deadline - now()
        if wanted < left:
            return wanted
        least = 0.0 if self._last_at_deadline else TOO_LATE
        if self._is_last or left <= least:
            return None
        self._is_last = True
        if self._last_at_deadline:
            return left
        return (asked + left) / 2 if asked < left else left / 2

    def after(self, failure: Failure) -> Operation[None]:
        """Pauses before the next copy of the request, or raises the error of the call if no further copy may be
        sent."""
        self.failed += 1
        self.in_doubt = self.in_doubt or failure.in_doubt
        asked = failure.retry_after or 0.0
        cannot_repeat = failure.for_good or (failure.in_doubt and not self._in_doubt_too)
        pause = None if cannot_repeat else self.pause(max(backoff(self.failed), asked_pause(asked)), asked)
        if pause is None:
            raise self.doubted(failure.error, failure.in_doubt)
        yield Pause(pause)

    def doubted(self, error: LatchgateError, in_doubt: bool = False) -> LatchgateError:
        """The error of the call. If an earlier copy is in doubt, the outcome is unknown, whatever a later failure
        says."""
        if in_doubt or not self.in_doubt:
            return error
        reason = f"an earlier copy of the request was not answered; then {error}"
        return OutcomeUnknown(reason, status=error.status, problem=error.problem)

    def refusal(self, answer: Answer, names: Sequence[str] = ()) -> LatchgateError:
        """The error for an answer to a request for these locks."""
        problem = answer.problem()
        if problem is None:
            what = _redirect(answer) or "without a problem document: this is no gateway"
            return self.doubted(LatchgateError(f"status {answer.status} {what}", status=answer.status))
        error = refusal(problem, names)
        # Status 409 and these problem codes describe the lock after all copies of the request. Any other problem
        # is only about the copy that was answered, and so is a contradiction to the declarations of one gateway.
        settles = answer.status == 409 and problem["code"] != "declared-differently"
        if settles or problem["code"] in ("locked", "lease-lost"):
            return error
        return self.doubted(error)


def _redirect(answer: Answer) -> Optional[str]:
    """The target of a redirect, without its password and its query, which may be secrets."""
    location = answer.headers.get("location")
    if location is None or not 300 <= answer.status < 400:
        return None
    try:
        parts = urlsplit(location)
    except ValueError:
        return None
    host = parts.netloc.rpartition("@")[2]
    to = parts._replace(netloc=host, query="", fragment="").geturl()
    return f"is a redirect to {to}, which is not followed: name that address if it is the gateway's"


def send(
    call: Call, settings: Settings, retry: Retry, longest: Optional[Callable[[], float]] = None
) -> Operation[Answer]:
    """Sends a request until it is answered or its deadline has passed. ``longest`` is the time limit of each copy,
    instead of that in the settings."""
    while True:
        time_out = settings.request_timeout if longest is None else longest()
        answer = yield from send_copy(call, settings.silence, min(time_out, retry.deadline - now()))
        if not isinstance(answer, Failure):
            return answer
        yield from retry.after(answer)
