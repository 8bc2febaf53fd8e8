"""The client for programs with threads."""

from __future__ import annotations

import functools
import inspect
import ssl
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, Type, TypeVar, cast

from ..durations import Duration
from ..errors import LatchgateError
from ..options import LeaseOptions, check_callback, check_known
from ..protocol import looking
from ..protocol.acquiring import WITHDRAWAL, AcquireRequest, Acquiring
from ..protocol.clock import now
from ..protocol.holdings import Holdings, UnderWay, closed
from ..protocol.id_token import IdToken
from ..protocol.names import Names
from ..protocol.settings import Settings
from ..records import History, Lock, Page, ReleaseRequest
from . import at_exit
from .driver import Cancelled, run, run_in_background
from .lease import Lease
from .stop import Stop
from .transport import HttpTransport

if TYPE_CHECKING:
    from ..options import Unpack

F = TypeVar("F", bound=Callable[..., Any])


class AcquireOptions(LeaseOptions, total=False):
    """The options of :meth:`Latchgate.acquire`."""

    #: Called on a thread of its own when another caller requests the release of the lock.
    on_release_requested: Optional[Callable[[ReleaseRequest], None]]
    #: An event that the caller sets to cancel the acquire.
    cancel: Optional[threading.Event]


OPTIONS = AcquireOptions.__optional_keys__


def _check(options: AcquireOptions) -> None:
    check_known(options, OPTIONS)
    check_callback(options.get("on_release_requested"))
    cancel = options.get("cancel")
    if cancel is not None and not isinstance(cancel, threading.Event):
        raise TypeError(f"cancel must be a threading.Event, not {cancel!r}")


class Latchgate:
    """A client of a gateway. Several threads may share it."""

    def __init__(
        self,
        url: str,
        *,
        key: Optional[str] = None,
        owner: Optional[str] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
        request_wait: Optional[Duration] = None,
        request_timeout: Optional[Duration] = None,
        deadline: Optional[Duration] = None,
        id_token: Optional[IdToken] = None,
        key_name: Optional[str] = None,
    ) -> None:
        """
        Makes a client; no connection is made yet.

        :param url: the address of the gateway, or of the load balancer in front of several gateways.
        :param key: the API key.
        :param owner: the owner text, for people to read, of leases whose acquire names no owner.
        :param ssl_context: the TLS context for an ``https`` gateway whose certificate authority the system does not
            trust.
        :param request_wait: the longest wait of one request (20 s), shorter than the time-outs of proxies.
        :param request_timeout: how long an answer may take after the wait, and how long connecting may take (5 s).
        :param id_token: an ID token of OpenID Connect, which the client exchanges for a key of the gateway: the text; a path,
            whose file is read again for each exchange; or a function that returns the text, such as
            :func:`environment_id_token`. If there is a ``key``, the key counts.
        :param key_name: the name of the gateway's key to ask for, if the claims of the ID token match several.
        :param deadline: how long a call without a wait is tried (10 s; a release 5 s at most).
        """
        self._settings = Settings.of(
            url, key, owner, request_wait, request_timeout, deadline, id_token, key_name
        )
        self._transport = HttpTransport(self._settings, ssl_context)
        self._holdings = Holdings(self._settings)

    def acquire(self, names: Names, **options: Unpack[AcquireOptions]) -> Lease:
        """Acquires a lock, or a group of locks (all or none).

        :param names: a lock name, or a list of 2 to 16 lock names. In place of a name, ``{"name": "openai", "limit": 20}``
            gives a lock of the list a mode, a limit and an order of its own.
        :param ttl: how long the lease lasts from each renewal.
        :param wait: how long to wait while the lock is held: not at all by default; ``math.inf`` waits without an end.
        :param mode: ``shared`` to hold the lock together with other shared leases; for a list, the mode of all locks.
        :param limit: the lease is granted while fewer than this many leases hold the lock, and has a
            :attr:`Lease.slot`.
        :param supersedes: takes an older waiter of the same lock and API key, with the same text here, out of the
            queue. The older acquire raises :class:`LatchgateError` with the code ``newer-waiter``. For one lock only.
        :param order: the order of the work, a whole number that is higher for newer work. If the lock was granted for a
            higher order, the acquire raises :class:`LatchgateError` with the code ``outdated-order``, also during its
            wait. For a list, the order of the locks that are held alone.
        :param rollback: why older work is done on purpose: ``order`` is neither compared nor remembered.
        :param reserve: ``{"until": .., "reason": ..}`` reserves the lock until this time, in RFC 3339 with an offset. For
            one lock only, without ``ttl``, ``max_hold``, ``min_hold``, ``limit`` and the mode ``shared``.
        :param owner: the owner text, for people to read; by default that of the client.
        :param metadata: texts by name to attach to the lease.
        :param max_hold: the longest time for which renewals may keep the lease.
        :param min_hold: for how long after its grant the lock is granted to no other caller, even if the lease is
            released earlier; a shorter TTL is raised to it.
        :param idempotency_key: the key under which another process may continue this acquire.
        :param renew: whether a thread renews the lease. If not, it lasts for its TTL, even after the end of the
            process.
        :param on_release_requested: called on a thread of its own when another caller requests the release of the lock.
        :param cancel: an event that the caller sets to cancel the acquire.
        :raises LockHeld: other callers held the lock until the wait was over.
        """
        _check(options)
        acquiring = Acquiring(self._settings, AcquireRequest.of(names, self._settings, options))
        stop, thread = Stop(options.get("cancel")), threading.current_thread()

        def end() -> bool:
            stop.set()
            # False for a signal handler that closes the client on the acquiring thread itself: it must not wait for the
            # acquire that it has interrupted.
            return thread is not threading.current_thread()

        under_way = UnderWay(acquiring, end)
        self._holdings.begin(under_way)
        at_exit.register(self._holdings, self._transport)
        try:
            grant = run(acquiring.run(), self._transport, stop)
            if under_way.is_ended:
                raise Cancelled
            lease = Lease(
                self._settings,
                self._transport,
                self._holdings,
                grant,
                renews=options.get("renew", True),
                on_release_requested=options.get("on_release_requested"),
            )
            self._holdings.done(under_way)
            return lease
        except (Cancelled, LatchgateError) as error:
            if under_way.is_ended:
                self._withdraw(under_way)
                at_exit.stay_if_at_end(thread)
                raise closed() from None
            if isinstance(error, Cancelled):
                self._withdraw(under_way)
                raise LatchgateError("the acquire was cancelled", code="cancelled") from None
            if acquiring.owes_release or not acquiring.may_hold:
                self._withdraw(under_way, acquiring.owes_release)
            else:
                # The withdrawal may take long, and the caller need not wait for it.
                self._withdraw_in_background(under_way)
            raise
        except BaseException:
            # KeyboardInterrupt, an error that a signal handler raises, or a thread that cannot be started.
            self._withdraw(under_way)
            raise

    def _withdraw(self, under_way: UnderWay, owes: bool = True, within: float = WITHDRAWAL) -> None:
        try:
            if owes:
                run(under_way.acquiring.withdraw(within), self._transport)
        except LatchgateError:
            # A failure is ignored: the gateway keeps a position for a few seconds only, and a granted lease ends with
            # its TTL.
            pass
        finally:
            self._holdings.done(under_way)

    def _withdraw_in_background(self, under_way: UnderWay) -> None:
        # If the client is closed, it waits for the withdrawal, which already runs in the background.
        under_way.end = lambda: True
        within = under_way.acquiring.background
        run_in_background(lambda: self._withdraw(under_way, within=within), "withdraw")

    def __call__(self, names: Names, **options: Unpack[AcquireOptions]) -> Guard:
        """Makes a guard for ``with locks("deploy", wait="10m") as lease:``, or a decorator. Takes the parameters of
        :meth:`acquire`.
        """
        _check(options)
        return Guard(self, names, options)

    def inspect(self, name: str) -> Lock:
        """Shows the holders and the waiters of a lock."""
        return run(looking.inspect(self._settings, name), self._transport)

    def history(self, name: str) -> History:
        """Shows who held a lock, from when to when, and how that ended; newest first."""
        return run(looking.history(self._settings, name), self._transport)

    def check(self, name: str, fencing_token: int, *, lasts: Optional[Duration] = None) -> None:
        """Raises unless a lease with this fencing token holds the lock now, and with ``lasts`` for so long.

        A resource carries a write out only if this returns. The error has the code ``stale-fencing-token`` if no such
        lease holds the lock, and ``ends-too-soon`` if the lease ends before ``lasts`` is over; any other error does not
        say whether the lease lives.
        """
        run(looking.check(self._settings, name, fencing_token, lasts), self._transport)

    def list(
        self,
        *,
        prefix: str = "",
        owner: Optional[str] = None,
        search: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page:
        """Lists one page of the locks that are held."""
        return run(looking.list_locks(self._settings, prefix, owner, search, limit, cursor), self._transport)

    def break_(
        self,
        name: str,
        *,
        reason: str,
        fencing_token: Optional[int] = None,
        foreign_mark: Optional[str] = None,
        all: bool = False,
        grace: Optional[Duration] = None,
    ) -> Lock:
        """Takes a lock away from its holder; with ``grace`` the holder is first asked to release the lock.

        Breaking a lock does not stop its holder. Only a resource that checks the fencing token is safe.

        Give the fencing token of the lease to break: only then an unanswered break is sent again. Without the token, an
        unanswered break raises :class:`OutcomeUnknown`. If an earlier copy whose answer was lost broke the lease, the
        returned holder has only its fencing token.
        """
        operation = looking.break_lock(self._settings, name, reason, fencing_token, foreign_mark, all, grace)
        return run(operation, self._transport)

    def close(self) -> None:
        """Releases the leases that are renewed, ends the acquires that wait (with the code ``closed``), and closes the
        connections. The end of the process does the same. A closed client acquires no more locks.

        If no gateway answers, the end of a block, this and the end of the process wait for 5 s together."""
        ending, began, until = self._holdings.close(), now(), self._settings.silence.end_by()
        while now() < until and not all(under_way.is_done for under_way in ending):
            time.sleep(0.01)
        answered = all(under_way.is_done for under_way in ending)
        for operation in self._holdings.give_back(until):
            try:
                run(operation, self._transport)
            except LatchgateError:
                # A failed release is ignored: the lease ends with its TTL.
                answered = False
        self._settings.silence.ended(began, answered)
        self._transport.close()

    def __enter__(self) -> Latchgate:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Latchgate at {self._settings.url}>"


class Guard:
    """A guard: acquires at the beginning of a block or a function, and releases at its end. A guard can be used for one
    block at a time, which any thread may leave; several threads may call a decorated function at the same time."""

    def __init__(self, locks: Latchgate, names: Names, options: AcquireOptions) -> None:
        self._locks = locks
        self._names = names
        self._options = options
        self._entered = threading.Lock()
        self._lease: Optional[Lease] = None

    def _acquire(self) -> Lease:
        return self._locks.acquire(self._names, **self._options)

    def __enter__(self) -> Lease:
        if not self._entered.acquire(blocking=False):
            raise RuntimeError("this guard has been entered and not left; make another one for each block")
        try:
            self._lease = self._acquire()
        except BaseException:
            self._entered.release()
            raise
        return self._lease

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        lease, self._lease = self._lease, None
        if lease is None:
            raise RuntimeError("this guard has not been entered")
        self._entered.release()
        lease.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(is_kind(function) for is_kind in kinds):
            raise TypeError("the body of the function would run after the release; use latchgate.aio, or a block inside it")

        @functools.wraps(function)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with self._acquire():
                return function(*args, **kwargs)

        return cast(F, locked)
