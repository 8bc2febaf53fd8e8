"""An acquire: a chain of requests under one idempotency key, which keep one position in the queue."""

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
from .names import Names, check_names, lease_path, listed
from .releasing import release
from .renewing import renew_first
from .retry import Retry, backoff, send
from .settings import Settings

#: The shortest wait to which requests are halved, in seconds, when a gateway refuses longer waits.
SHORTEST_WAIT = 0.5
#: The time limit for the withdrawal of an acquire, in seconds.
WITHDRAWAL = 3.0
#: The time limit for the release of the rest of a group that was lost before its caller had it, in seconds.
REST = 1.0
#: The time limit for a withdrawal in the background, in seconds.
BACKGROUND_WITHDRAWAL = 30.0
#: The shortest wait of a request, in seconds.
LEAST_WAIT = 0.001
#: How much later than the end of the wait the last answer may come, in seconds.
BEYOND_WAIT = 2.0
#: The minimum time for the answer to the last copy of a request, in seconds.
LEAST_TIME_OUT = 0.25
#: The longest earlier wait that a request may report, in seconds.
LONGEST_EARLIER_WAIT = 3600.0
#: A lease is renewed before its first use if its acquire took longer than this part of its TTL.
SOON = 0.1

_KEY = re.compile(r"[\x21-\x7e]{16,128}")


@dataclass(frozen=True)
class AcquireRequest:
    """The options of an acquire, checked. The gateway chooses the value of an option that is ``None``."""

    names: tuple[str, ...]
    #: The wait in seconds; 0 is no wait.
    wait: float
    #: The caller's idempotency key, if it gave one: another process may continue the acquire under this key.
    idempotency_key: Optional[str] = field(repr=False)
    #: The body of the request, without the wait.
    _body: Mapping[str, object]

    @classmethod
    def of(cls, names: Names, settings: Settings, options: RequestOptions) -> AcquireRequest:
        locks = listed(names)
        checked = check_names(locks)
        of_lock = [lock for lock in locks if isinstance(lock, Mapping)]
        if of_lock and (options.get("mode") is not None or options.get("limit") is not None):
            raise ValueError("mode and limit are given for each lock, or for all locks, not for both")
        key = options.get("idempotency_key")
        if key is not None and not _KEY.fullmatch(key):
            raise ValueError("an idempotency key has 16 to 128 visible ASCII characters")
        owner = options.get("owner")
        ttl_ms = finite_ms(options.get("ttl"), "ttl")
        min_hold_ms = finite_ms(options.get("min_hold"), "min_hold")
        # The gateway refuses a TTL that is shorter than the minimum hold, and chooses a missing TTL itself.
        if min_hold_ms is not None and ttl_ms is not None:
            ttl_ms = max(ttl_ms, min_hold_ms)
        body = {
            "names": list(locks),
            "ttl_ms": ttl_ms,
            "min_hold_ms": min_hold_ms,
            "mode": options.get("mode"),
            "limit": options.get("limit"),
            "supersedes": options.get("supersedes"),
            "order": options.get("order"),
            "rollback": options.get("rollback"),
            "reserve": options.get("reserve"),
            "owner": settings.owner if owner is None else owner,
            "metadata": options.get("metadata"),
            "max_hold_ms": finite_ms(options.get("max_hold"), "max_hold"),
        }
        if len(checked) == 1:
            # A single lock is named in the path, and its terms are those of the request.
            del body["names"]
            for lock in of_lock:
                body.update(mode=lock.get("mode"), limit=lock.get("limit"))
                if lock.get("order") is not None:
                    body["order"] = lock["order"]
        return cls(checked, wait_seconds(options.get("wait")), key, body)

    @property
    def ttl(self) -> Optional[float]:
        """The TTL in seconds, if the caller gave one."""
        ttl_ms = self._body.get("ttl_ms")
        return ttl_ms / 1000 if isinstance(ttl_ms, int) else None

    @property
    def rests(self) -> bool:
        """Whether the lock may rest after a release, because the request has a minimum hold."""
        return bool(self._body.get("min_hold_ms"))

    def call(self, key: str, wait: float, waited: Optional[float]) -> Call:
        """Makes a copy of the request that waits at the gateway for ``wait`` seconds. ``waited`` is the time since the first
        request of the acquire, in seconds; ``None`` for the first request."""
        body = {**self._body, "wait_ms": math.ceil(wait * 1000) or None}
        if waited is not None and body["supersedes"] is not None:
            # Without this time, a waiter that continues its wait after a restart of the gateway would count as newer than
            # the waiters that came in between.
            body["waiting_since_ms"] = int(min(waited, LONGEST_EARLIER_WAIT) * 1000)
        path = "/locks" if len(self.names) > 1 else lease_path(self.names)
        sent = json.dumps({name: value for name, value in body.items() if value is not None})
        return Call("POST", path, {"Idempotency-Key": key}, sent.encode())


class Acquiring:
    """An acquire under way: run it, and withdraw it if it fails."""

    def __init__(self, settings: Settings, request: AcquireRequest) -> None:
        self._settings = settings
        self._request = request
        self._key = request.idempotency_key or _fresh_key()
        asked = now()
        self._start_over_until = asked + settings.deadline
        self._over = asked + request.wait
        # When the first request was made.
        self._first: Optional[float] = None
        self._longest = settings.request_wait
        # Whether a request has been sent, so that a gateway may know the acquire.
        self._sent = False
        #: The token of a lease that was granted and that no caller has yet.
        self._granted: Optional[str] = None
        # Whether an answer reported a lease, but cannot be used.
        self._unusable = False
        self._retry = Retry(asked)
        # Whether the acquire has a position in a queue, as far as answers have shown.
        self._is_queued = False
        # Whether a gateway reported an internal error, so that the outcome of the request is unknown.
        self._has_failed = False

    def _left(self) -> float:
        """The time left of the wait, in seconds."""
        return max(self._over - now(), 0.0) if self._request.wait > 0 else 0.0

    def _call(self, wait: float) -> Call:
        waited = None if self._first is None else now() - self._first
        if self._first is None:
            self._first = now()
        return self._request.call(self._key, wait, waited)

    def run(self) -> Operation[Grant]:
        """Sends requests until the lock is granted or the wait is over."""
        waits = self._request.wait > 0
        retry = Retry(self._over if waits else self._start_over_until, last_at_deadline=waits)
        self._retry = retry
        # The number of answers in a row that came much earlier than the end of the requested wait.
        hasty = 0
        while True:
            wait = min(self._left(), self._longest)
            if waits and self._request.idempotency_key is not None:
                # With the caller's key no request is sent without a wait, not even after the end of the wait: such a
                # request would give up the position, which the caller's next call may take.
                wait = max(wait, LEAST_WAIT)
            time_out = self._settings.request_timeout
            if waits:
                time_out = min(wait + time_out, max(self._over + BEYOND_WAIT - now(), LEAST_TIME_OUT))
            else:
                time_out = min(time_out, retry.deadline - now())
            sent_before, self._sent = self._sent, True
            sent_at = now()
            answer = yield from send_copy(self._call(wait), self._settings.silence, time_out)
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
                    # The lease ended before its answer arrived.
                    if len(self._request.names) > 1:
                        yield from self._release_rest()
                    self._granted = None
                    if not self._may_start_again() or self._request.idempotency_key is not None:
                        raise
                    self._key = _fresh_key()
                except (OutcomeUnknown, GatewayUnreachable):
                    # A further request with the same key gets the rest of the lease, or the answer that the lease has
                    # ended.
                    if not self._may_start_again():
                        raise
                    retry.in_doubt = True
                continue
            if (answer.problem() or {}).get("code") in ("locked", "request-replaced", "idempotency-expired"):
                # After these answers, the lease granted before has ended or belongs to a newer request.
                self._granted = None
            pause = self._pause_before_next(answer, wait, retry)
            if pause is None:
                self._is_queued = False
                self._has_failed = answer.status == 500
                code = (answer.problem() or {}).get("code")
                # Nearly every 409 says that no copy of the request holds anything, so nothing is withdrawn. A gateway
                # refuses a request that contradicts its declarations before it looks at the lock.
                if code == "locked" or (answer.status == 409 and code not in (None, "request-replaced", "declared-differently")):
                    retry.answered(settled=True)
                raise retry.refusal(answer, self._request.names)
            self._is_queued = wait > 0
            retry.answered(settled=(answer.problem() or {}).get("code") == "locked")
            hasty = hasty + 1 if now() - sent_at < wait / 2 else 0
            if pause == 0 and hasty:
                pause = backoff(hasty)
            yield Pause(min(pause, self._left()) if waits else pause)

    def _pause_before_next(self, answer: Answer, wait: float, retry: Retry) -> Optional[float]:
        """How long to pause before the next copy of the request; ``None`` if this answer is final."""
        problem = answer.problem()
        if problem is None:
            return None
        code = problem["code"]
        again = False
        if code == "locked":
            # The answer describes the lock after all copies of the request. The last request of the chain does not
            # wait: it takes a lease granted since the previous request, or leaves the queue. With the caller's key
            # there is no such request, because the caller's next call may take the lease or the position.
            again = wait > 0 and (self._request.idempotency_key is None or self._left() > 0)
        elif code == "request-replaced":
            # With a generated key, only an earlier copy of this request, which arrived late, can have taken the
            # position. A further request takes it back.
            again = self._request.idempotency_key is None and (
                wait > 0 or (retry.in_doubt and self._may_start_again())
            )
        elif code == "idempotency-expired":
            # A lease was granted, its answer was lost or came too late, and the gateway has released the lease.
            again = (
                self._request.idempotency_key is None
                and (retry.in_doubt or wait > 0)
                and self._may_start_again()
            )
            if again:
                self._key = _fresh_key()
        elif code == "invalid-request" and any(it.get("field") == "wait_ms" for it in problem.get("errors") or ()):
            # This gateway does not allow so long a wait, so the next request waits half as long.
            self._longest = max(wait / 2, SHORTEST_WAIT)
            again = wait > self._longest
        return 0.0 if again else None

    def _may_start_again(self) -> bool:
        return self._left() > 0 or now() < self._start_over_until

    @property
    def owes_release(self) -> bool:
        """Whether a lease was granted that no caller has, so that it must be released."""
        return self._granted is not None or self._unusable

    @property
    def may_hold(self) -> bool:
        """Whether the gateway may hold a lease or a position for this acquire after its failure. With the caller's key,
        only a known lease counts, because another process may continue the acquire."""
        unheard = self._retry.in_doubt or self._is_queued or self._has_failed
        return self.owes_release or (self._sent and unheard and self._request.idempotency_key is None)

    @property
    def background(self) -> float:
        """The time limit for a withdrawal in the background, in seconds."""
        return min(self._request.ttl or BACKGROUND_WITHDRAWAL, BACKGROUND_WITHDRAWAL)

    def _release_rest(self) -> Operation[None]:
        # The lease of one lock of the group is lost; the leases of the other locks may still exist.
        try:
            yield from self._release(REST, again=True)
        except LatchgateError:
            pass

    def _release(self, within: float, *, again: bool = False) -> Operation[None]:
        """Releases the granted lease, if there is one. With the caller's key, another process may have had the lease."""
        if self._granted is None:
            return
        unused = self._request.rests and self._request.idempotency_key is None
        yield from release(self._settings, self._request.names, self._granted, within, again=again, unused=unused)

    def withdraw(self, within: float = WITHDRAWAL) -> Operation[None]:
        """Withdraws the acquire: sends a request without a wait, which leaves the queue. If a lease was granted
        meanwhile, or before without an answer, releases the lease at once.

        With the caller's key, only a lease that was granted to this acquire is released, because another process may
        continue the acquire. The gateway keeps the position for a few seconds.
        """
        deadline = now() + within
        if self._granted is None and self._sent and (self._unusable or self._request.idempotency_key is None):
            copies = 0
            while True:
                answer = yield from send(self._call(0), self._settings, Retry(deadline))
                problem = answer.problem() or {}
                copies += 1
                pause = backoff(copies)
                # An earlier copy of the request arrived late. The next copy withdraws what that copy holds.
                if problem.get("code") != "request-replaced" or now() + pause > deadline:
                    break
                yield Pause(pause)
            if answer.status in (200, 201):
                self._granted = token_in(answer)
        yield from self._release(within)


def _fresh_key() -> str:
    return secrets.token_urlsafe(24)
