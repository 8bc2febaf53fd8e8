"""Acquire: a chain of requests under one idempotency key, which keep the place in the queue."""

from __future__ import annotations

import json
import math
import re
import secrets
from dataclasses import dataclass, field
from typing import Mapping, Optional

from ..durations import Duration, Wait, finite_ms, wait_seconds
from ..errors import GatewayUnreachable, LeaseLost, OutcomeUnknown
from ..records import Mode
from .clock import now
from .exchange import Answer, Call, Failure, Operation, Pause, retry_after, send_copy
from .grant import Grant, grant_of
from .names import Names, check_names
from .releasing import release
from .renewing import renew_first
from .retry import Retry, asked_pause, backoff, send
from .settings import Settings

#: A gateway that allows no longer waits than this is asked no shorter ones.
SHORTEST_WAIT = 0.5
#: How long giving up may take.
WITHDRAWAL = 3.0
#: A lease has come soon if it took no more than this part of itself.
SOON = 0.1

_KEY = re.compile(r"[\x21-\x7e]{16,128}")


@dataclass(frozen=True)
class AcquireRequest:
    """What to ask for. What is ``None`` is left to the gateway."""

    names: tuple[str, ...]
    ttl_ms: Optional[int]
    #: In seconds; 0: not at all.
    wait: float
    mode: Optional[Mode]
    limit: Optional[int]
    owner: Optional[str]
    metadata: Optional[Mapping[str, str]]
    max_hold_ms: Optional[int]
    #: Of the caller: another process may continue the request under it.
    idempotency_key: Optional[str] = field(repr=False)

    @classmethod
    def of(
        cls,
        names: Names,
        *,
        ttl: Optional[Duration] = None,
        wait: Wait = None,
        mode: Optional[Mode] = None,
        limit: Optional[int] = None,
        owner: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        max_hold: Optional[Duration] = None,
        idempotency_key: Optional[str] = None,
    ) -> AcquireRequest:
        if idempotency_key is not None and not _KEY.fullmatch(idempotency_key):
            raise ValueError("an idempotency key has 16 to 128 visible ASCII characters")
        return cls(
            names=check_names(names),
            ttl_ms=finite_ms(ttl, "ttl"),
            wait=wait_seconds(wait),
            mode=mode,
            limit=limit,
            owner=owner,
            metadata=metadata,
            max_hold_ms=finite_ms(max_hold, "max_hold"),
            idempotency_key=idempotency_key,
        )

    def call(self, key: str, wait: float) -> Call:
        """A copy that waits for so long at the gateway."""
        body = {
            "names": list(self.names) if len(self.names) > 1 else None,
            "ttl_ms": self.ttl_ms,
            "wait_ms": math.ceil(wait * 1000) or None,
            "mode": self.mode,
            "limit": self.limit,
            "owner": self.owner,
            "metadata": self.metadata,
            "max_hold_ms": self.max_hold_ms,
        }
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
        self._sent = False

    def _left(self) -> float:
        """How long it still wants to wait."""
        return max(self._over - now(), 0.0) if self._request.wait > 0 else 0.0

    def run(self) -> Operation[Grant]:
        """Goes on until the lock is ours or the wait is over."""
        waits = self._request.wait > 0
        retry = Retry(self._over if waits else self._start_over_until)
        # Answers that came at once although they were asked to wait.
        hasty = 0
        while True:
            wait = min(self._left(), self._longest)
            time_out = self._settings.request_timeout
            time_out = wait + time_out if waits else min(time_out, retry.deadline - now())
            self._sent = True
            sent_at = now()
            answer = yield from send_copy(self._request.call(self._key, wait), time_out)
            if isinstance(answer, Failure):
                yield from retry.after(answer)
                continue
            if answer.status in (200, 201):
                grant = grant_of(answer)
                if grant.took <= grant.ttl * SOON:
                    return grant
                try:
                    return (yield from renew_first(self._settings, grant))
                except LeaseLost:
                    # It was on its way for longer than it lasted.
                    if not self._may_start_again() or self._request.idempotency_key is not None:
                        raise
                    self._key = _fresh_key()
                except (OutcomeUnknown, GatewayUnreachable):
                    # The same key yields what is left of the lease, or says that it has ended.
                    if not self._may_start_again():
                        raise
                    retry.in_doubt = True
                continue
            pause = self._pause_before_next(answer, wait, retry)
            if pause is None:
                raise retry.refusal(answer)
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
        if answer.status == 429:
            asked = retry_after(answer)
            pause = asked_pause(1.0 if asked is None else asked)
            return pause if now() + pause < retry.deadline else None
        if code == "locked":
            # It says how the lock stands, earlier copies included. The last request of the chain does not wait: it takes
            # what was granted since the one before, and gives up the place.
            again = wait > 0
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

    def withdraw(self) -> Operation[None]:
        """Gives up: asks once more without waiting, which gives the place in the queue up. What was granted in the last
        moment, heard or unheard, is released at once.

        An acquire under a key of its caller's may be continued by somebody else, so it is left to the gateway, which keeps
        a place for a few seconds.
        """
        if not self._sent or self._request.idempotency_key is not None:
            return
        deadline = now() + WITHDRAWAL
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
            yield from release(self._settings, grant_of(answer), within=WITHDRAWAL)


def _fresh_key() -> str:
    return secrets.token_urlsafe(24)
