"""A lease for a program with threads, renewed by a thread."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from types import TracebackType
from typing import Callable, Optional, Type

from ..durations import Duration, finite_ms
from ..errors import LatchgateError, LeaseLost
from ..lease_view import LeaseView
from ..protocol.grant import Grant
from ..protocol.holdings import Holdings
from ..protocol.lease_state import LeaseState
from ..protocol.releasing import end_lease, go_on_releasing
from ..protocol.renewing import keep, renew
from ..protocol.settings import Settings
from ..records import ReleaseRequest
from .driver import Cancelled, run, run_in_background
from .lost_event import LostEvent
from .transport import HttpTransport

_log = logging.getLogger("latchgate")


class Lease(LeaseView):
    """A lease of one lock, or of a group of locks.

    A thread renews the lease until it is released or lost, or the program has no reference to it any more; then it ends
    with its TTL. As a context manager, the lease is released at the end of the block. It belongs to its process: in a
    forked child it counts as lost.
    """

    def __init__(
        self,
        settings: Settings,
        transport: HttpTransport,
        holdings: Holdings,
        grant: Grant,
        *,
        renews: bool,
        on_release_requested: Optional[Callable[[ReleaseRequest], None]],
    ) -> None:
        state = LeaseState(grant)
        super().__init__(state)
        self._settings = settings
        self._transport = transport
        self._holdings = holdings
        self._renewing = threading.Lock()
        # Reentrant, because a signal handler may release the lease while its thread is releasing it.
        self._releasing = threading.RLock()
        self._goes_on_releasing = False
        self._stop = threading.Event()
        #: Set as soon as the lease is over, before another caller can get the lock.
        self.lost: threading.Event
        lost, stop = LostEvent(state), self._stop
        self.lost = lost

        def on_lost() -> None:
            lost.set()
            stop.set()

        state.on_lost = on_lost
        state.on_shorter = lost.look_again

        def on_rest_left() -> None:
            holdings.add(state)
            run_in_background(lambda: run(go_on_releasing(settings, state), transport), "release")

        state.on_rest_left = on_rest_left
        if on_release_requested is not None:
            state.on_release_requested = _apart(on_release_requested)
        state.start()
        #: Whether a thread renews the lease.
        self.renews = renews
        if renews:
            keep_on_thread(settings, transport, state, self._stop)
            weakref.finalize(self, let_go, self._stop, os.getpid())
            holdings.add(state)

    def renew(self, ttl: Optional[Duration] = None) -> None:
        """Renews the lease: it lasts for its TTL from now, or for the given TTL. A shorter TTL does not end the lease
        earlier at the gateway."""
        self.check()
        ttl_ms = finite_ms(ttl, "ttl")
        with self._renewing:
            run(renew(self._settings, self._state, None if ttl_ms is None else ttl_ms / 1000), self._transport)

    def release(self) -> None:
        """Releases the lease. If the lease is already released, does nothing; if it was lost, raises
        :class:`LeaseLost`. If an earlier copy of the release got no answer, a lost lease is :class:`OutcomeUnknown`: that
        copy may have ended it.

        A release takes 5 s at most. If it fails, it is repeated in the background until the lease has ended, and it can be
        called again.
        """
        state = self._state
        state.check_process()
        with self._releasing:
            try:
                run(end_lease(self._settings, state), self._transport)
            finally:
                if state.owes_release() and not self._goes_on_releasing:
                    self._goes_on_releasing = True
                    # If the process ends before the background release succeeds, its end releases the lease.
                    self._holdings.add(state)
                    settings, transport = self._settings, self._transport
                    run_in_background(lambda: run(go_on_releasing(settings, state), transport), "release")

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            self.release()
        except LeaseLost:
            # While the lease was lost, another caller may have held the lock. An error of the block itself is more
            # important.
            if error is None:
                raise
        except LatchgateError as failure:
            if error is None:
                # 410: the lease is over. It was lost, or an earlier copy of the release has ended it.
                if failure.status == 410:
                    raise
                # The work is done, and the lease ends with its TTL.
                names = ", ".join(self.names)
                _log.warning("it is not known whether %s was held until its release: %s", names, failure)


def keep_on_thread(settings: Settings, transport: HttpTransport, state: LeaseState, stop: threading.Event) -> None:
    """Renews a lease on a thread of its own. The thread has no reference to the lease object, only to the state of the
    lease, so that an unused lease object can be collected."""

    def kept() -> None:
        try:
            # Requests are not interrupted, because each request that can be needs one more thread.
            run(keep(settings, state), transport, stop, cuts_requests=False)
        except Cancelled:
            # The renewals were stopped, so a lease that is not over yet counts as lost.
            state.lose(LeaseLost("nothing keeps the lease any more", "expired"), ends=False)
        except BaseException as error:
            _log.exception("the lease of %s is not renewed any more", ", ".join(state.names))
            why = f"the thread that renews the lease has failed: {type(error).__name__}"
            state.lose(LeaseLost(why, "expired"), ends=False)

    threading.Thread(target=kept, name="latchgate-renew", daemon=True).start()


def let_go(stop: threading.Event, process: int) -> None:
    """Ends the renewals of a lease when the program has no reference to the lease object any more."""
    # Not in a forked child: it has no renewing thread, and the lock inside the event may stay locked there for ever.
    if process == os.getpid():
        stop.set()


def _apart(callback: Callable[[ReleaseRequest], None]) -> Callable[[ReleaseRequest], None]:
    """Returns a function that runs the callback on a thread of its own, so that the lease is renewed meanwhile."""

    def tell(request: ReleaseRequest) -> None:
        run_in_background(lambda: callback(request), "on_release_requested")

    return tell
