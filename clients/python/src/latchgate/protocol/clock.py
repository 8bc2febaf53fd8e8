"""The clock for the end of leases: it is never set, and it runs while the machine is suspended."""

from __future__ import annotations

import sys
import time
from typing import Callable


def _clock_id() -> int | None:
    if sys.platform == "win32":
        return None
    # On Linux CLOCK_MONOTONIC stops while the machine sleeps. On Darwin it runs on, and time.monotonic stops.
    name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    clock: int | None = getattr(time, name, None)
    if clock is not None:
        try:
            time.clock_gettime(clock)
        except OSError:
            return None
    return clock


def _clock() -> Callable[[], float]:
    clock = _clock_id()
    if clock is None:
        return time.monotonic
    gettime, identifier = time.clock_gettime, clock
    return lambda: gettime(identifier)


#: The time in seconds since a fixed instant in the past.
now: Callable[[], float] = _clock()
