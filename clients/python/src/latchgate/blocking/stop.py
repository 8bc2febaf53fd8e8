"""What ends an acquire early: an event of its caller, or the end of its client."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Callable, Iterator, Optional

#: How often somebody who waits looks whether that was cancelled.
LOOK_EVERY = 0.1


class Stop:
    """Set from within at once, or by the event of a caller, which can only be looked at."""

    def __init__(self, cancel: Optional[threading.Event] = None) -> None:
        #: Of the caller.
        self.cancel = cancel
        self._event = threading.Event()
        # A signal handler may close the client.
        self._lock = threading.RLock()
        self._cut: Optional[Callable[[], None]] = None

    def set(self) -> None:
        self._event.set()
        with self._lock:
            if self._cut is not None:
                self._cut()

    def is_set(self) -> bool:
        return self._event.is_set() or (self.cancel is not None and self.cancel.is_set())

    def wait(self, seconds: float) -> bool:
        if self.cancel is None:
            return self._event.wait(seconds)
        while seconds > 0 and not self.is_set():
            self.cancel.wait(min(seconds, LOOK_EVERY))
            seconds -= LOOK_EVERY
        return self.is_set()

    @contextmanager
    def cuts(self, cut: Callable[[], None]) -> Iterator[None]:
        """Calls this once it is set, as long as the block lasts."""
        with self._lock:
            self._cut = cut
            if self._event.is_set():
                cut()
        try:
            yield
        finally:
            with self._lock:
                self._cut = None
