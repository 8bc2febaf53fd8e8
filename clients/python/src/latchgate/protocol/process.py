"""Values that a forked child does not share with its parent."""

from __future__ import annotations

import os
from typing import Callable, Generic, TypeVar

T = TypeVar("T")


class OfProcess(Generic[T]):
    """A value that belongs to this process; a forked child makes its own. The parent's value cannot be used in the
    child: a thread that the child does not have may hold a lock in it, and both processes would use one connection."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values = {os.getpid(): make()}

    def __call__(self) -> T:
        process = os.getpid()
        value = self._values.get(process)
        if value is None:
            # If several threads make a value at the same time, ``setdefault`` keeps the first one for all.
            value = self._values.setdefault(process, self._make())
            for other in list(self._values):
                if other != process:
                    self._values.pop(other, None)
        return value
