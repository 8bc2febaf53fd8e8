"""Acquire: a chain of requests under one idempotency key, which keep the place in the queue."""

from __future__ import annotations

import json
import math
import re
import secrets
from dataclasses import dataclass, field
from typing import Mapping, Optional

from ..durations import finite_ms, wait_seconds
from ..errors import GatewayUnreachable, LatchgateError, LeaseLost, OutcomeUnknown
from ..options import RequestOptions
from .clock import now
from .exchange import Answer, Call, Failure, Operation, Pause, send_copy
from .grant import Grant, grant_of, token_in
from .names import Names, check_names
from .releasing import OVERDUE, release
from .renewing import renew_first
from .retry import Retry, backoff, send
from .settings import Settings

#: A gateway that allows no longer waits than this is asked no shorter ones.
SHORTEST_WAIT = 0.5
#: How long giving up may take.
WITHDRAWAL = 3.0
#: How long it may take in the background: as long as a lease lasts by default.
BACKGROUND_WITHDRAWAL = 30.0
#: The shortest wait that a gateway can be asked for.
LEAST_WAIT = 0.001
#: How much later than the end of the wait the last answer may come.
BEYOND_WAIT = 2.0
#: The last copy is given so much at least.
LEAST_TIME_OUT = 0.25
#: A lease has come soon if it took no more than this part of itself.
SOON = 0.1

_KEY = re.compile(r"[\x21-\x7e]{16,128}")


@dataclass(frozen=True)
class AcquireRequest:
    """What to ask for, as the caller says it. What is ``None`` is left to the gateway."""

    names: tuple[str, ...]
    #: In seconds; 0: not at all.
    wait: float
    #: Of the caller: another process may continue the request under it.
    idempotency_key: Optional[str] = field(repr=False)
    #: The body but for the wait.
    _body: Mapping[str, object]

    @classmethod
    def of(cls, names: Names, settings: Settings, options: RequestOptions) -> AcquireRequest:
        checked = check_names(names)
        key = options.get("idempotency_key")
        if key is not None and not _KEY.fullmatch(key):
            raise ValueError("an idempotency key has 16 to 128 visible ASCII characters")
        owner = options.get("owner")
        body = {
            "names": list(checked) if len(checked) > 1 else None,
            "ttl_ms": finite_ms(options.get("ttl"), "ttl"),
            "mode": options.get("mode"),
            "limit": options.get("limit"),
            "owner": settings.owner if owner is None else owner,
            "metadata": options.get("metadata"),
            "max_hold_ms": finite_ms(options.get("max_hold"), "max_hold"),
        }
        return cls(checked, wait_seconds(options.get("wait")), key, body)

    @property
    def ttl(self) -> Optional[float]:
        """In seconds, if it was said."""
        ttl_ms = self._body.get("ttl_ms")
        return ttl_ms / 1000 if isinstance(ttl_ms, int) else None

    def call(self, key: str, wait: float) -> Call:
        """A copy that waits for so long at the gateway."""
        body = {**self._body, "wait_ms": math.ceil(wait * 1000) or None}
        path = "/locks" if len(self.names) > 1 else f"/locks/{self.names[0]}"
        sent = json.dumps({name: value for name, value in body.items() if value is not None})
        return Call("POST", path, {"Idempotency-Key": key}, sent.encode())


class Acquiring:
    """An acquire under way."""

    def __init__(self, settings: Settings, request: AcquireRequest) -> None:
        self._settings = settings
        self._request = request
        self._key = request.idempotency_key or _fresh_key()
        asked = now()
        self._start_over_until = asked + settings.deadline
        self._over = asked + request.wait
        self._longest = settings.request_wait
        # Whether a gateway may know of it.
        self._sent = False
        #: The token of what was granted here, as long as nobody has it.
        self._granted: Optional[str] = None
        # Whether something was granted that was not told in a way to be used.
        self._unusable = False
        self._retry = Retry(asked)
        # Whether it stands in a queue, as far as it was told.
        self._is_queued = False
        # Whether a gateway has failed inside, so that nobody knows what it has done.
        self._has_failed = False

    def _left(self) -> float:
        """How long it still wants to wait."""
        return max(self._over - now(), 0.0) if self._request.wait > 0 else 0.0

    def run(self) -> Operation[Grant]:
        """Goes on until the lock is ours or the wait is over."""
        waits = self._request.wait > 0
        retry = Retry(self._over if waits else self._start_over_until, last_at_deadline=waits)
        self._retry = retry
        # Answers that came at once although they were asked to wait.
        hasty = 0
        while True:
            wait = min(self._left(), self._longest)
            if waits and self._request.idempotency_key is not None:
                # No copy gives up the place that the next call may take, not even one after the wait.
                wait = max(wait, LEAST_WAIT)
            time_out = self._settings.request_timeout
            if waits:
                time_out = min(wait + time_out, max(self._over + BEYOND_WAIT - now(), LEAST_TIME_OUT))
            else:
                time_out = min(time_out, retry.deadline - now())
            sent_before, self._sent = self._sent, True
            sent_at = now()
            answer = yield from send_copy(self._request.call(self._key, wait), time_out)
            if isinstance(answer, Failure):
                if isinstance(answer.error, GatewayUnreachable):
                    self._sent = sent_before
                yield from retry.after(answer)
                continue
            if answer.status in (200, 201):
                self._granted = token_in(answer)
                self._unusable = True
                grant = grant_of(answer, self._request.names)
                self._unusable = False
                if grant.took <= grant.ttl * SOON:
                    return grant
                try:
                    return (yield from renew_first(self._settings, grant))
                except LeaseLost:
                    # It was on its way for longer than it lasted.
                    if len(self._request.names) > 1:
                        yield from self._release_rest()
                    self._granted = None
                    if not self._may_start_again() or self._request.idempotency_key is not None:
                        raise
                    self._key = _fresh_key()
                except (OutcomeUnknown, GatewayUnreachable):
                    # The same key yields what is left of the lease, or says that it has ended.
                    if not self._may_start_again():
                        raise
                    retry.in_doubt = True
                continue
            if (answer.problem() or {}).get("code") in ("locked", "superseded", "idempotency-expired"):
                # What was granted before has ended, or is a newer request's.
                self._granted = None
            pause = self._pause_before_next(answer, wait, retry)
            if pause is None:
                self._is_queued = False
                self._has_failed = answer.status == 500
                if (answer.problem() or {}).get("code") == "locked":
                    retry.answered(settled=True)
                raise retry.refusal(answer, self._request.names)
            self._is_queued = wait > 0
            retry.answered(settled=(answer.problem() or {}).get("code") == "locked")
            hasty = hasty + 1 if now() - sent_at < wait / 2 else 0
            if pause == 0 and hasty:
                pause = backoff(hasty)
            yield Pause(min(pause, self._left()) if waits else pause)

    def _pause_before_next(self, answer: Answer, wait: float, retry: Retry) -> Optional[float]:
        """How long to pause before the next copy; ``None`` if this answer is the last word."""
        problem = answer.problem()
        if problem is None:
            return None
        code = problem["code"]
        again = False
        if code == "locked":
            # It says how the lock stands, earlier copies included. The last request of the chain does not wait: it takes
            # what was granted since the one before, and gives up the place. Under a key of the caller's the next call may
            # take both.
            again = wait > 0 and (self._request.idempotency_key is None or self._left() > 0)
        elif code == "superseded":
            # With a key of our own it can only be an earlier copy of ours, which was given up and arrived late. Asking
            # again takes the place back.
            again = self._request.idempotency_key is None and (
                wait > 0 or (retry.in_doubt and self._may_start_again())
            )
        elif code == "idempotency-expired":
            # A lease was granted, its answer got lost or came too late for us, and the gateway has given it back.
            again = (
                self._request.idempotency_key is None
                and (retry.in_doubt or wait > 0)
                and self._may_start_again()
            )
            if again:
                self._key = _fresh_key()
        elif code == "invalid-request" and any(it.get("field") == "wait_ms" for it in problem.get("errors") or ()):
            # This gateway allows no wait as long as ours.
            self._longest = max(wait / 2, SHORTEST_WAIT)
            again = wait > self._longest
        return 0.0 if again else None

    def _may_start_again(self) -> bool:
        return self._left() > 0 or now() < self._start_over_until

    @property
    def owes_release(self) -> bool:
        """Whether something was granted that nobody has."""
        return self._granted is not None or self._unusable

    @property
    def may_hold(self) -> bool:
        """Whether something may be left of it after it has failed. Under a key of its caller's somebody else may go on with
        what was not heard of."""
        unheard = self._retry.in_doubt or self._is_queued or self._has_failed
        return self.owes_release or (self._sent and unheard and self._request.idempotency_key is None)

    @property
    def background(self) -> float:
        """How long it makes sense to give up in the background."""
        return min(self._request.ttl or BACKGROUND_WITHDRAWAL, BACKGROUND_WITHDRAWAL)

    def _release_rest(self) -> Operation[None]:
        # One lock of a group is lost, perhaps not the others.
        try:
            if self._granted is not None:
                yield from release(self._settings, self._request.names, self._granted, OVERDUE, again=True)
        except LatchgateError:
            pass

    def withdraw(self, within: float = WITHDRAWAL) -> Operation[None]:
        """Gives up: asks once more without waiting, which gives the place in the queue up. What was granted in the last
        moment, heard or unheard, is released at once.

        An acquire under a key of its caller's may be continued by somebody else, so it is left to the gateway, which keeps
        a place for a few seconds; but not a lease that was granted here.
        """
        deadline = now() + within
        if self._granted is None and self._sent and (self._unusable or self._request.idempotency_key is None):
            copies = 0
            while True:
                answer = yield from send(self._request.call(self._key, 0), self._settings, Retry(deadline))
                problem = answer.problem() or {}
                copies += 1
                pause = backoff(copies)
                # An earlier copy of the request arrived late.
                if problem.get("code") != "superseded" or now() + pause > deadline:
                    break
                yield Pause(pause)
            if answer.status in (200, 201):
                self._granted = token_in(answer)
        if self._granted is not None:
            yield from release(self._settings, self._request.names, self._granted, within)


def _fresh_key() -> str:
    return secrets.token_urlsafe(24)
