"""Gives leases back when the process ends."""

from __future__ import annotations

import atexit
import threading

from ..errors import LatchgateError
from ..protocol.holdings import Holdings
from ..protocol.process import OfProcess
from .driver import run
from .transport import HttpTransport

#: How long the end of a process waits for the release of one lease, in seconds.
WITHIN = 2.0
#: How many clients are looked through before one is added.
_FEW = 64


class _Clients:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.transports: dict[Holdings, HttpTransport] = {}
        self.look_through_at = _FEW


_clients = OfProcess(_Clients)


def register(holdings: Holdings, transport: HttpTransport) -> None:
    """What a client holds is given back at the end of this process."""
    clients = _clients()
    with clients.lock:
        if len(clients.transports) >= clients.look_through_at and holdings not in clients.transports:
            for client in [client for client in clients.transports if client.is_empty()]:
                del clients.transports[client]
            clients.look_through_at = max(_FEW, 2 * len(clients.transports))
        clients.transports[holdings] = transport


def _give_all_back() -> None:
    for holdings, transport in list(_clients().transports.items()):
        for operation in holdings.give_back(WITHIN):
            try:
                run(operation, transport)
            except LatchgateError:
                # The lease ends with its TTL.
                pass


atexit.register(_give_all_back)
