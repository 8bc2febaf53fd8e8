"""Parses durations as callers write them."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Optional, Union

#: A duration: a text with a unit (``"500ms"``, ``"30s"``, ``"10m"``, ``"2h"``, ``"1d"``), a
#: :class:`~datetime.timedelta`, or a number of milliseconds, as in every field of the gateway.
Duration = Union[int, float, str, timedelta]
#: How long to wait: ``False``, ``None`` or ``0`` is not at all, ``math.inf`` is without an end.
Wait = Optional[Duration]

_TEXT = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}

#: The largest number of milliseconds that a gateway reads.
LARGEST = 2**63 - 1


def seconds(duration: Duration, what: str) -> float:
    """The duration in seconds. ``what`` is the name of the argument, for an error."""
    try:
        value = _seconds(duration, what)
    except OverflowError:
        raise ValueError(f"{what} is longer than any duration of a gateway") from None
    if not value >= 0:
        raise ValueError(f"{what} is {duration!r}; it cannot be negative")
    return value


def _seconds(duration: Duration, what: str) -> float:
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, str):
        match = _TEXT.fullmatch(duration)
        if match is None:
            raise ValueError(f"{what} is {duration!r}; write it like '500ms', '30s', '10m', '2h' or '1d'")
        return float(int(match[1])) * _SECONDS[match[2]]
    if isinstance(duration, (int, float)) and not isinstance(duration, bool):
        return duration / 1000
    raise TypeError(f"{what} must be a text like '30s', a timedelta or milliseconds, not {duration!r}")


def finite_ms(duration: Duration | None, what: str) -> int | None:
    """The duration in whole milliseconds, as the gateway takes it. An infinite duration is an error."""
    if duration is None:
        return None
    value = seconds(duration, what)
    if math.isinf(value):
        raise ValueError(f"{what} cannot be infinite")
    if value * 1000 > LARGEST:
        raise ValueError(f"{what} is longer than any duration of a gateway")
    return round(value * 1000)


def wait_seconds(wait: Wait) -> float:
    """The duration of a wait in seconds; 0 is no wait."""
    if wait is None or wait is False:
        return 0.0
    return seconds(wait, "wait")
