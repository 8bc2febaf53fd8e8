"""The state of a lease that this program holds."""

from __future__ import annotations

import os
import threading
from typing import Callable, Optional

from ..errors import LeaseLost
from ..records import ReleaseRequest
from .clock import now
from .grant import Grant

#: A release request that ends earlier than the last one by less than this many seconds is the same: each answer takes a
#: different time.
SAME_REQUEST = 0.5


class LeaseState:
    """The state of a lease from its grant to its end, for use by all threads. In a forked child the lease counts as
    lost."""

    def __init__(self, grant: Grant) -> None:
        self._process = os.getpid()
        # Reentrant, because a signal handler may read the state while this thread has the lock.
        self._lock = threading.RLock()
        #: The lease as the last answer described it.
        self.grant = grant
        #: Until when the lease certainly lasts.
        self.until = grant.good_until
        #: Until when the lease may last at the gateway at most.
        self._lasts_until = grant.received_at + grant.expires_in
        #: The TTL that renewals ask for, whatever TTL other callers with the token have set; ``None``: the lease keeps
        #: its TTL.
        self.asked_ttl: Optional[float] = grant.ttl
        #: Why the last renewal failed.
        self.trouble = "no answer in time"
        self._lost: Optional[LeaseLost] = None
        self.release_requested: Optional[ReleaseRequest] = None
        self._release_by: Optional[float] = None
        self._release_begun = False
        self._owes_release = True
        #: Whether a release was sent and not answered.
        self.release_in_doubt = False
        #: Called once when the lease is over.
        self.on_lost: Callable[[], None] = lambda: None
        #: Called when the lease may end sooner than before.
        self.on_shorter: Callable[[], None] = lambda: None
        #: Called when the lease of one lock of a group is lost, and the others must be released. The callback returns
        #: at once.
        self.on_rest_left: Callable[[], None] = lambda: None
        #: Called when another caller requests the release of the lock, and again if a request leaves less time than the
        #: last one. The callback returns at once.
        self.on_release_requested: Callable[[ReleaseRequest], None] = lambda request: None

    @property
    def names(self) -> tuple[str, ...]:
        return self.grant.names

    @property
    def lost(self) -> Optional[LeaseLost]:
        """How the lease was lost; ``None`` until an end was noticed. The clock is not compared."""
        if self._process != os.getpid():
            return LeaseLost("the lease belongs to the process that forked this process", "forked")
        return self._lost

    def start(self) -> None:
        """Reports the release request of the grant itself, once the callbacks are set."""
        self._hear(self.grant)

    def expires_in(self) -> float:
        """The time left of the lease in seconds; 0 if the lease is over."""
        return 0.0 if self.is_over() else max(self.until - now(), 0.0)

    def is_over(self) -> bool:
        """Whether the lease is over. The clock decides, because no timer may have run since the machine was
        suspended."""
        if self.lost is None and now() >= self.until:
            self.lose(self._expired())
        return self.lost is not None

    def check(self) -> None:
        """Raises if the lease is over."""
        if self.is_over():
            lost = self.lost
            assert lost is not None
            raise lost.again()

    def check_process(self) -> None:
        """Raises in a forked child, where the lease counts as lost."""
        if self._process != os.getpid():
            self.check()

    def lose(self, lost: LeaseLost, *, ends: bool = True) -> None:
        """Marks the lease as lost, which is final. Without ``ends``, the gateway may still hold the lease, so it must
        be released."""
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
        """Marks the lease of a group as lost, because the lease of one lock is lost. The leases of the other locks must
        be released."""
        # The release will report the one lock as lost, which is expected and must not end the release of the others.
        self.release_in_doubt = True
        self.lose(lost, ends=False)
        if self.owes_release():
            self.on_rest_left()

    # === Renewals ===

    def asked(self, ttl: Optional[float]) -> None:
        """Records that a renewal has been sent, with an answer or without. The lease may last at the gateway for the TTL of
        that renewal."""
        lasts = self.grant.ttl if ttl is None else ttl
        with self._lock:
            self._lasts_until = max(self._lasts_until, now() + lasts)

    def renewed(self, grant: Grant) -> None:
        """Records a successful renewal. If the lease ended before the answer came, it stays lost."""
        if self.is_over():
            return
        with self._lock:
            # If two renewals overlap, the one that was sent later counts.
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
        """Records that a release begins. Returns whether no release has begun before."""
        # If the lease has expired by now, that is recorded first: it was lost, and not released.
        self.is_over()
        with self._lock:
            begins, self._release_begun = not self._release_begun, True
        return begins

    def owes_release(self) -> bool:
        """Whether the gateway may still hold the lease, so that it must be released when it is not needed any more."""
        return self._process == os.getpid() and not self._is_gone() and now() < self._lasts_until

    def _is_gone(self) -> bool:
        self.is_over()
        return not self._owes_release

    def ended(self) -> None:
        """Records that the gateway has released the lease, or reported that the lease has ended."""
        self._owes_release = False

    @property
    def release_within(self) -> float:
        """How long a release makes sense, in seconds: as long as the lease may last."""
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
