"""How a lease stands that somebody here holds."""

from __future__ import annotations

import logging
import threading
from typing import Callable, Optional

from ..errors import LeaseLost
from ..records import ReleaseRequest
from .clock import now
from .grant import Grant

#: A request that ends sooner than the last by less than this is the same: each answer takes another time.
SAME_REQUEST = 0.5

_log = logging.getLogger("latchgate")


class LeaseState:
    """A lease from its grant to its end. Any thread may ask and tell."""

    def __init__(self, grant: Grant) -> None:
        self._lock = threading.Lock()
        #: As it was answered last.
        self.grant = grant
        #: Until when the lease certainly lasts.
        self.until = grant.good_until
        #: What a renewal asks for, whatever others with the token have made of it; ``None``: what the lease has.
        self.asked_ttl: Optional[float] = grant.ttl
        #: Why the last renewal failed.
        self.trouble = "no answer in time"
        self.lost: Optional[LeaseLost] = None
        self.release_requested: Optional[ReleaseRequest] = None
        self._release_by: Optional[float] = None
        self._released = False
        #: Called once when the lease is over.
        self.on_lost: Callable[[], None] = lambda: None
        #: Called when somebody asks for the lock, and again if less time is left than was said before.
        self.on_release_requested: Callable[[ReleaseRequest], None] = lambda request: None

    def begin_release(self) -> bool:
        """Whether nobody has begun to release it before."""
        # What the clock has ended by now was lost and not released.
        self.is_over()
        with self._lock:
            begins, self._released = not self._released, True
        return begins

    def start(self) -> None:
        """Tells what the grant itself says, once somebody listens."""
        self._hear(self.grant)

    def expires_in(self) -> float:
        """What is left of it in seconds; 0 if it is over."""
        return 0.0 if self.is_over() else max(self.until - now(), 0.0)

    def is_over(self) -> bool:
        """Whether it has ended. The clock decides, also if no timer has run since a machine was suspended."""
        if self.lost is None and now() >= self.until:
            self.lose(self._expired())
        return self.lost is not None

    def check(self) -> None:
        """Raises if it is over."""
        if self.is_over():
            assert self.lost is not None
            raise self.lost.again()

    def lose(self, lost: LeaseLost) -> None:
        """It is over, for good."""
        with self._lock:
            if self.lost is not None:
                return
            self.lost = lost
        self.on_lost()

    def renewed(self, grant: Grant) -> None:
        """It was renewed. What ended before the answer came does not come back."""
        if self.is_over():
            return
        with self._lock:
            # Of two renewals at the same time that one counts which was sent later.
            if grant.sent_at < self.grant.sent_at:
                return
            self.grant = grant
            self.until = grant.good_until
        self._hear(grant)

    def _hear(self, grant: Grant) -> None:
        request = grant.release_requested
        if request is None:
            return
        by = grant.sent_at + request.within_ms / 1000
        with self._lock:
            if self._release_by is not None and by + SAME_REQUEST >= self._release_by:
                return
            self._release_by = by
            self.release_requested = request
        try:
            self.on_release_requested(request)
        except Exception:
            # Whatever becomes of the request, the lease is renewed as long as it may be.
            _log.exception("on_release_requested failed")

    def _expired(self) -> LeaseLost:
        if self._release_by is not None:
            return LeaseLost("somebody asked for the lock, and it was not released in time", "broken")
        if self.grant.at_hold_limit:
            return LeaseLost("the hold limit of the lease is reached", "expired")
        return LeaseLost(f"the lease could not be renewed in time: {self.trouble}", "expired")
