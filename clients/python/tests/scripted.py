"""Runs operations of the client with scripted answers instead of a gateway."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from latchgate import LatchgateError
from latchgate.protocol.acquiring import AcquireRequest, Acquiring
from latchgate.protocol.exchange import Answer, Operation, Pause, Send
from latchgate.protocol.settings import Settings

T = TypeVar("T")

SETTINGS = Settings("http://gateway.invalid")
TOKEN = "t" * 43


def answer(status: int, sent_at: float = 0.0, /, **document: Any) -> Answer:
    return Answer(status, {}, json.dumps(document).encode(), sent_at, sent_at + 0.001)


def problem(status: int, code: str, **more: Any) -> Answer:
    return answer(status, **{"status": status, "code": code, "detail": "d", **more})


def lease(sent_at: float, **more: Any) -> Answer:
    fields = {"name": "n", "token": TOKEN, "fencing_token": 1, "ttl_ms": 10_000, "expires_in_ms": 10_000}
    return answer(201, sent_at, **{**fields, "renew_after_ms": 3_333, **more})


def play(operation: Operation[T], *exchanges: Any) -> tuple[list[Send], Any]:
    """Runs an operation with these answers. Returns what the operation sends, and its result or error."""
    sent: list[Send] = []
    left = list(exchanges)
    result: Any = None
    try:
        while True:
            effect = operation.send(result)
            result = None
            if isinstance(effect, Send):
                sent.append(effect)
                result = left.pop(0)
            else:
                assert isinstance(effect, Pause)
    except StopIteration as stop:
        return sent, stop.value
    except LatchgateError as error:
        return sent, error


def acquiring(wait: Any = None, names: Any = "n", **options: Any) -> Acquiring:
    request: Any = {"wait": wait, **options}
    return Acquiring(SETTINGS, AcquireRequest.of(names, SETTINGS, request))


def acquire(wait: Any, *exchanges: Any) -> tuple[list[Send], Any]:
    """Runs an acquire with these answers. Returns what the acquire sends, and its result or error."""
    return play(acquiring(wait).run(), *exchanges)
