"""Runs operations on the thread that asks for it, or on one of their own."""

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
    """The event that cancels an operation was set."""


def run(
    operation: Operation[T],
    transport: HttpTransport,
    cancelled: Optional[Cancel] = None,
    *,
    cuts_requests: bool = True,
) -> T:
    """Runs an operation to its end, or until the event is set: in the middle of a request, or only after its answer. What
    an answer means is heard in any case."""
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
    """Runs what nobody waits for on a daemon thread. What fails is logged."""

    def logged() -> None:
        try:
            work()
        except Exception:
            _log.exception("%s failed", name)

    try:
        threading.Thread(target=logged, name=f"latchgate-{name}", daemon=True).start()
    except RuntimeError:
        _log.exception("%s: no thread can be started", name)
