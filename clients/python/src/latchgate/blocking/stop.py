"""The stop of an acquire: set by an event of its caller, or by the end of its client."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Callable, Iterator, Optional

#: How often a waiting acquire checks the caller's event, in seconds.
LOOK_EVERY = 0.1


class Stop:
    """Stops an acquire. The client sets it directly, which takes effect at once; an event of the caller can only be
    polled."""

    def __init__(self, cancel: Optional[threading.Event] = None) -> None:
        #: The event of the caller that cancels the acquire, if any.
        self.cancel = cancel
        self._event = threading.Event()
        # Reentrant, because a signal handler may close the client while this thread has the lock.
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
        """While the block runs, setting the stop calls ``cut``. If the stop is already set, ``cut`` is called at
        once."""
        with self._lock:
            self._cut = cut
            if self._event.is_set():
                cut()
        try:
            yield
        finally:
            with self._lock:
                self._cut = None
