"""A lease that a thread keeps."""

from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import Callable, Optional, Type

from ..durations import Duration, finite_ms
from ..errors import LatchgateError, LeaseLost
from ..lease_view import LeaseView
from ..protocol.grant import Grant
from ..protocol.lease_state import LeaseState
from ..protocol.releasing import release
from ..protocol.renewing import keep, renew
from ..protocol.settings import Settings
from ..records import ReleaseRequest
from .driver import Cancelled, run
from .lost_event import LostEvent
from .transport import HttpTransport


class Lease(LeaseView):
    """A lease of one lock, or of several as one.

    It is renewed by a thread until it is released, is lost, or nobody refers to it any more: then it ends with its TTL. As a
    context manager it is released at the end of the block.
    """

    def __init__(
        self,
        settings: Settings,
        transport: HttpTransport,
        grant: Grant,
        *,
        renews: bool,
        on_release_requested: Optional[Callable[[ReleaseRequest], None]],
    ) -> None:
        state = LeaseState(grant)
        super().__init__(state)
        self._settings = settings
        self._transport = transport
        self._renewing = threading.Lock()
        self._stop = threading.Event()
        #: Set as soon as the lease is over: before it can be somebody else's.
        self.lost: threading.Event = LostEvent(state)
        lost, stop = self.lost, self._stop

        def on_lost() -> None:
            lost.set()
            stop.set()

        state.on_lost = on_lost
        if on_release_requested is not None:
            state.on_release_requested = on_release_requested
        state.start()
        #: Whether a thread renews it.
        self.renews = renews
        if renews:
            # The thread does not know the lease, only how it stands.
            threading.Thread(
                target=_keep, args=(settings, transport, state, self._stop), name="latchgate-renew", daemon=True
            ).start()
            weakref.finalize(self, self._stop.set)

    def renew(self, ttl: Optional[Duration] = None) -> None:
        """Makes it last its TTL again, or another one, from now on."""
        self.check()
        state = self._state
        ttl_ms = finite_ms(ttl, "ttl")
        with self._renewing:
            before = state.asked_ttl
            asked = before if ttl_ms is None else ttl_ms / 1000
            # A renewal by itself that follows asks for the same.
            state.asked_ttl = asked
            try:
                grant = run(renew(self._settings, state.grant, asked), self._transport)
            except LeaseLost as lost:
                state.lose(lost)
                raise
            except LatchgateError:
                state.asked_ttl = before
                raise
            state.renewed(grant)
        self.check()

    def release(self) -> None:
        """Ends it. Once it is released, this does nothing; of a lease that was lost it raises :class:`LeaseLost`."""
        state = self._state
        if not state.begin_release():
            return
        lost = state.lost
        state.lose(LeaseLost("the lease was released", "released"))
        # What is over by our clock may be alive by that of the store.
        within = 1.0 if lost is not None else None
        try:
            run(release(self._settings, state.grant, within), self._transport)
        except LatchgateError:
            if lost is None:
                raise
        if lost is not None:
            raise lost.again()

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
            # The work may have been done beside somebody else's. An error of its own says more.
            if error is None:
                raise
        except LatchgateError:
            # The work is done, and the lease ends with its TTL.
            pass


def _keep(settings: Settings, transport: HttpTransport, state: LeaseState, stop: threading.Event) -> None:
    try:
        # Each request that can be cut needs a thread more.
        run(keep(settings, state), transport, stop, cuts_requests=False)
    except Cancelled:
        pass
