"""Runs operations, such as an acquire, on the event loop."""

from __future__ import annotations

import asyncio
from typing import Any, Coroutine, TypeVar, cast

from ..protocol.exchange import Operation, Send
from .transport import HttpxTransport

T = TypeVar("T")

# References to the tasks in the background. The event loop itself keeps only weak references to tasks.
_in_background: set[asyncio.Task[Any]] = set()


async def run(operation: Operation[T], transport: HttpxTransport) -> T:
    """Runs an operation to its end on the event loop."""
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


def run_in_background(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Starts a task that runs to its end, whether or not the caller waits for it."""
    task = asyncio.ensure_future(work)
    _in_background.add(task)
    task.add_done_callback(_in_background.discard)
    return task
