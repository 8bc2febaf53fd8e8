"""Releases leases and leaves queues when the process ends."""

from __future__ import annotations

import atexit
import threading
import time

from ..errors import LatchgateError
from ..protocol.clock import now
from ..protocol.holdings import Holdings
from ..protocol.process import OfProcess
from .driver import run
from .transport import HttpTransport

#: The time limit for all releases at the end of the process, in seconds.
WITHIN = 2.0
#: The number of registered clients from which those that hold nothing are removed before another one is added.
_FEW = 64


class _Clients:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.transports: dict[Holdings, HttpTransport] = {}
        self.look_through_at = _FEW


_clients = OfProcess(_Clients)


def register(holdings: Holdings, transport: HttpTransport) -> None:
    """Registers a client, so that the end of this process releases its leases and ends its acquires."""
    clients = _clients()
    with clients.lock:
        if len(clients.transports) >= clients.look_through_at and holdings not in clients.transports:
            for client in [client for client in clients.transports if client.is_empty()]:
                del clients.transports[client]
            clients.look_through_at = max(_FEW, 2 * len(clients.transports))
        clients.transports[holdings] = transport


_at_end = threading.Event()


def stay_if_at_end(thread: threading.Thread) -> None:
    """Blocks a daemon thread whose acquire was ended by the end of the process: raising an error there would only print
    it."""
    if _at_end.is_set() and thread.daemon:
        threading.Event().wait()


def _give_all_back() -> None:
    _at_end.set()
    deadline = now() + WITHIN
    # A client whose other ends have waited in vain for the gateway waits for less time.
    clients = [(holdings, transport, min(deadline, holdings.silence.end_by())) for holdings, transport in _registered()]
    _end_acquires(clients)
    for holdings, transport, until in clients:
        for operation in holdings.give_back(until):
            try:
                run(operation, transport)
            except LatchgateError:
                # A failed release is ignored: the lease ends with its TTL.
                pass


def _registered() -> list[tuple[Holdings, HttpTransport]]:
    return list(_clients().transports.items())


def _end_acquires(clients: list[tuple[Holdings, HttpTransport, float]]) -> None:
    """Ends the acquires of daemon threads, and withdraws the acquires that no thread or loop runs any more."""
    ending = [(under_way, until) for holdings, _, until in clients for under_way in holdings.end_acquires()]
    ended = [under_way for under_way, _ in ending]
    for holdings, transport, until in clients:
        for under_way in holdings.under_way():
            if under_way in ended or now() >= until:
                continue
            try:
                run(under_way.acquiring.withdraw(until - now()), transport)
            except LatchgateError:
                pass
    while any(now() < until and not under_way.is_done for under_way, until in ending):
        time.sleep(0.01)


atexit.register(_give_all_back)
