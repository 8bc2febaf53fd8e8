"""Runs operations on the thread that asks for it."""

from __future__ import annotations

import threading
import time
from typing import Optional, TypeVar, cast

from ..protocol.exchange import Operation, Send
from .transport import HttpTransport

T = TypeVar("T")


class Cancelled(Exception):
    """The event that cancels an operation was set."""


def run(
    operation: Operation[T],
    transport: HttpTransport,
    cancelled: Optional[threading.Event] = None,
    *,
    cuts_requests: bool = True,
) -> T:
    """Runs an operation to its end, or until the event is set: in the middle of a request, or only after its answer."""
    result: object = None
    try:
        while True:
            if cancelled is not None and cancelled.is_set():
                raise Cancelled
            try:
                effect = operation.send(result)
            except StopIteration as stop:
                return cast(T, stop.value)
            if isinstance(effect, Send):
                result = transport.exchange(effect.call, effect.time_out, cancelled if cuts_requests else None)
            else:
                result = None
                if cancelled is None:
                    time.sleep(effect.seconds)
                else:
                    cancelled.wait(effect.seconds)
    finally:
        operation.close()
