"""What a forked child does not share with its parent."""

from __future__ import annotations

import os
from typing import Callable, Generic, TypeVar

T = TypeVar("T")


class OfProcess(Generic[T]):
    """A value of this process. A forked child makes its own: a lock may have been held when it was forked, by a thread that
    the child does not have, and a connection would be used by both."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values = {os.getpid(): make()}

    def __call__(self) -> T:
        process = os.getpid()
        value = self._values.get(process)
        if value is None:
            # Whichever thread comes first makes it for all.
            value = self._values.setdefault(process, self._make())
            for other in list(self._values):
                if other != process:
                    self._values.pop(other, None)
        return value
