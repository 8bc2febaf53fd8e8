"""Runs operations on the event loop."""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

from ..protocol.exchange import Operation, Send
from .transport import HttpxTransport

T = TypeVar("T")


async def run(operation: Operation[T], transport: HttpxTransport) -> T:
    """Runs an operation to its end."""
    result: object = None
    try:
        while True:
            try:
                effect = operation.send(result)
            except StopIteration as stop:
                return cast(T, stop.value)
            if isinstance(effect, Send):
                result = await transport.exchange(effect.call, effect.time_out)
            else:
                result = None
                await asyncio.sleep(effect.seconds)
    finally:
        operation.close()
