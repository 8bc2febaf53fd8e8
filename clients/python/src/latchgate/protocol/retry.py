"""How often one call is sent, and for how long."""

from __future__ import annotations

import random
from typing import Callable, Optional, Sequence
from urllib.parse import urlsplit

from ..errors import LatchgateError, OutcomeUnknown, refusal
from .clock import now
from .exchange import Answer, Call, Failure, Operation, Pause, send_copy
from .settings import Settings

#: The longest first pause in seconds, which doubles with every copy.
BASE_PAUSE = 0.2
#: The longest pause of all.
MAX_PAUSE = 2.0
#: With less time than this there is no last copy, if its answer is to come before the deadline.
TOO_LATE = 0.05


def backoff(copy: int) -> float:
    """A pause before copy number ``copy`` (the first to be sent again is 1): anything up to the longest, so that clients
    whose gateway came back do not come all at once."""
    longest = min(BASE_PAUSE * 2.0 ** min(copy - 1, 10), MAX_PAUSE)
    return longest * random.random()


def asked_pause(retry_after: float) -> float:
    """At least as long as a gateway asks for, and not for all clients the same."""
    return retry_after * (1 + random.random() / 2)


class Retry:
    """The copies of one call."""

    def __init__(self, deadline: float, *, in_doubt_too: bool = True, last_at_deadline: bool = False) -> None:
        self.deadline = deadline
        # Whether the last copy may be sent at the deadline, because its answer may come later.
        self._last_at_deadline = last_at_deadline
        self._is_last = False
        # Whether a copy that may have been carried out is followed by another.
        self._in_doubt_too = in_doubt_too
        self.failed = 0
        #: Whether one of the copies may have been carried out unheard.
        self.in_doubt = False

    def answered(self, settled: bool) -> None:
        """A copy was answered: what failed before is over, and what was in doubt if the answer settles it."""
        self.failed = 0
        self.in_doubt = self.in_doubt and not settled

    def pause(self, wanted: float, asked: float = 0.0) -> Optional[float]:
        """How long to pause before the next copy: less than is wanted if there is time for one more copy only, and no less
        than was asked for if there is time for that. ``None``: there is no time for it."""
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
        """Pauses before the next copy, or raises why there is none."""
        self.failed += 1
        self.in_doubt = self.in_doubt or failure.in_doubt
        asked = failure.retry_after or 0.0
        cannot_repeat = failure.for_good or (failure.in_doubt and not self._in_doubt_too)
        pause = None if cannot_repeat else self.pause(max(backoff(self.failed), asked_pause(asked)), asked)
        if pause is None:
            raise self.doubted(failure.error, failure.in_doubt)
        yield Pause(pause)

    def doubted(self, error: LatchgateError, in_doubt: bool = False) -> LatchgateError:
        """What one copy left in doubt, no later failure settles."""
        if in_doubt or not self.in_doubt:
            return error
        reason = f"an earlier copy of the request was not answered; then {error}"
        return OutcomeUnknown(reason, status=error.status, problem=error.problem)

    def refusal(self, answer: Answer, names: Sequence[str] = ()) -> LatchgateError:
        """The error that an answer to a request for these locks is."""
        problem = answer.problem()
        if problem is None:
            what = _redirect(answer) or "without a problem document: this is no gateway"
            return self.doubted(LatchgateError(f"status {answer.status} {what}", status=answer.status))
        error = refusal(problem, names)
        # These say how the lock stands, earlier copies included; the others speak of this copy alone.
        if answer.status == 409 or problem["code"] in ("locked", "lease-lost"):
            return error
        return self.doubted(error)


def _redirect(answer: Answer) -> Optional[str]:
    """Where an answer redirects to, without the password and the query, which may be secrets."""
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
    """Sends a call until it is answered or its deadline has passed. ``longest`` bounds each copy instead of the settings."""
    while True:
        time_out = settings.request_timeout if longest is None else longest()
        answer = yield from send_copy(call, min(time_out, retry.deadline - now()))
        if not isinstance(answer, Failure):
            return answer
        yield from retry.after(answer)
