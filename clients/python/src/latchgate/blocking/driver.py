"""Runs operations, such as an acquire, on the calling thread or on a thread of their own."""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Optional, TypeVar, cast

from ..protocol.exchange import Operation, Send
from .transport import Cancel, HttpTransport

T = TypeVar("T")

_log = logging.getLogger("latchgate")


class Cancelled(Exception):
    """Raised when the event that cancels an operation was set."""


def run(
    operation: Operation[T],
    transport: HttpTransport,
    cancelled: Optional[Cancel] = None,
    *,
    cuts_requests: bool = True,
) -> T:
    """Runs an operation to its end, or until ``cancelled`` is set. With ``cuts_requests``, the event interrupts a
    request; otherwise it counts only after the answer. An answer that has arrived is always passed to the operation."""
    result: object = None
    try:
        while True:
            try:
                effect = operation.send(result)
            except StopIteration as stop:
                return cast(T, stop.value)
            if cancelled is not None and cancelled.is_set():
                raise Cancelled
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


def run_in_background(work: Callable[[], None], name: str) -> None:
    """Runs work on a daemon thread, for which no caller waits. An error of the work is logged."""

    def logged() -> None:
        try:
            work()
        except Exception:
            _log.exception("%s failed", name)

    try:
        threading.Thread(target=logged, name=f"latchgate-{name}", daemon=True).start()
    except RuntimeError:
        _log.exception("%s: no thread can be started", name)
