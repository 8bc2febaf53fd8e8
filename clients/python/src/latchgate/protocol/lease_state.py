"""How a lease stands that somebody here holds."""

from __future__ import annotations

import os
import threading
from typing import Callable, Optional

from ..errors import LeaseLost
from ..records import ReleaseRequest
from .clock import now
from .grant import Grant

#: A request that ends sooner than the last by less than this is the same: each answer takes another time.
SAME_REQUEST = 0.5


class LeaseState:
    """A lease from its grant to its end. Any thread may ask and tell. In a forked child it is over."""

    def __init__(self, grant: Grant) -> None:
        self._process = os.getpid()
        # A signal handler may come in between, and ask.
        self._lock = threading.RLock()
        #: As it was answered last.
        self.grant = grant
        #: Until when the lease certainly lasts.
        self.until = grant.good_until
        #: Until when it may last at most.
        self._lasts_until = grant.received_at + grant.expires_in
        #: What a renewal asks for, whatever others with the token have made of it; ``None``: what the lease has.
        self.asked_ttl: Optional[float] = grant.ttl
        #: Why the last renewal failed.
        self.trouble = "no answer in time"
        self._lost: Optional[LeaseLost] = None
        self.release_requested: Optional[ReleaseRequest] = None
        self._release_by: Optional[float] = None
        self._release_begun = False
        self._owes_release = True
        #: Whether a release was sent that nobody has answered.
        self.release_in_doubt = False
        #: Called once when the lease is over.
        self.on_lost: Callable[[], None] = lambda: None
        #: Called when the lease may end sooner than before.
        self.on_shorter: Callable[[], None] = lambda: None
        #: Called when one lock of a group is lost, and the others are to be released. It returns at once.
        self.on_rest_left: Callable[[], None] = lambda: None
        #: Called when somebody asks for the lock, and again if less time is left than was said before. It returns at once.
        self.on_release_requested: Callable[[ReleaseRequest], None] = lambda request: None

    @property
    def names(self) -> tuple[str, ...]:
        return self.grant.names

    @property
    def lost(self) -> Optional[LeaseLost]:
        """Why it is over, as far as somebody has noticed."""
        if self._process != os.getpid():
            return LeaseLost("the lease belongs to the process that forked this process", "forked")
        return self._lost

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
            lost = self.lost
            assert lost is not None
            raise lost.again()

    def check_process(self) -> None:
        """Raises in a forked child."""
        if self._process != os.getpid():
            self.check()

    def lose(self, lost: LeaseLost, *, ends: bool = True) -> None:
        """It is over, for good. If it does not end by itself, it is still to be released."""
        if self._process != os.getpid():
            return
        with self._lock:
            if self._lost is not None:
                return
            self._lost = lost
            if ends:
                self._owes_release = False
        self.on_lost()

    def lose_part(self, lost: LeaseLost) -> None:
        """One lock of a group is lost, so the lease is over; the others are still to be released."""
        # That the one has ended is known, and is no reason to stop.
        self.release_in_doubt = True
        self.lose(lost, ends=False)
        if self.owes_release():
            self.on_rest_left()

    # === Renewals ===

    def asks(self, ttl: Optional[float]) -> None:
        """A renewal is about to be sent. From then on the lease may last as long as that gives it."""
        lasts = self.grant.ttl if ttl is None else ttl
        with self._lock:
            self._lasts_until = max(self._lasts_until, now() + lasts)

    def renewed(self, grant: Grant) -> None:
        """It was renewed. What ended before the answer came does not come back."""
        if self.is_over():
            return
        with self._lock:
            # Of two renewals at the same time that one counts which was sent later.
            if grant.sent_at < self.grant.sent_at:
                return
            self.grant = grant
            self._lasts_until = max(self._lasts_until, grant.received_at + grant.expires_in)
            is_shorter = grant.good_until < self.until
            self.until = grant.good_until
        if is_shorter:
            self.on_shorter()
        self._hear(grant)

    # === Its release ===

    def begin_release(self) -> bool:
        """Whether nobody has begun to release it before."""
        # What the clock has ended by now was lost and not released.
        self.is_over()
        with self._lock:
            begins, self._release_begun = not self._release_begun, True
        return begins

    def owes_release(self) -> bool:
        """Whether the gateway may keep it although nobody needs it any more, or will at the end of this process."""
        return self._process == os.getpid() and not self._is_gone() and now() < self._lasts_until

    def _is_gone(self) -> bool:
        self.is_over()
        return not self._owes_release

    def ended(self) -> None:
        """The gateway has released it, or says that it has ended."""
        self._owes_release = False

    @property
    def release_within(self) -> float:
        """How long a release makes sense, in seconds."""
        return max(self._lasts_until - now(), 0.0)

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
        self.on_release_requested(request)

    def _expired(self) -> LeaseLost:
        if self._release_by is not None:
            return LeaseLost("a release of the lock was requested, and the lock was not released in time", "broken")
        if self.grant.at_hold_limit:
            return LeaseLost("the hold limit of the lease is reached", "expired")
        return LeaseLost(f"the lease could not be renewed in time: {self.trouble}", "expired")
