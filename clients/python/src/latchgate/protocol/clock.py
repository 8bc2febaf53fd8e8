"""The clock by which leases end: nobody sets it, and it goes on while the machine is suspended."""

from __future__ import annotations

import sys
import time
from typing import Callable


def _clock_id() -> int | None:
    if sys.platform == "win32":
        return None
    # On Linux CLOCK_MONOTONIC stands still while the machine sleeps; on Darwin it goes on, and time.monotonic does not.
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


#: Seconds since some moment in the past.
now: Callable[[], float] = _clock()
