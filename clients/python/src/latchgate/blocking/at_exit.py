"""Gives leases back when the process ends."""

from __future__ import annotations

import atexit
import threading

from ..errors import LatchgateError
from ..protocol.holdings import Holdings
from .driver import run
from .transport import HttpTransport

#: How long the end of a process waits for the release of one lease, in seconds.
WITHIN = 2.0
#: How many clients are looked through before one is added.
_FEW = 64

_lock = threading.Lock()
_clients: dict[Holdings, HttpTransport] = {}
_look_through_at = _FEW


def register(holdings: Holdings, transport: HttpTransport) -> None:
    """What a client holds is given back at the end of this process."""
    global _look_through_at
    with _lock:
        if len(_clients) >= _look_through_at and holdings not in _clients:
            for client in [client for client in _clients if client.is_empty()]:
                del _clients[client]
            _look_through_at = max(_FEW, 2 * len(_clients))
        _clients[holdings] = transport


def _give_all_back() -> None:
    for holdings, transport in list(_clients.items()):
        for operation in holdings.give_back(WITHIN):
            try:
                run(operation, transport)
            except LatchgateError:
                # The lease ends with its TTL.
                pass


atexit.register(_give_all_back)
