"""A gateway that does not answer: when the log says so, and how long the ends of a client wait for it."""

from __future__ import annotations

import logging

from .clock import now

#: How long no gateway answers before the log says so, in seconds.
TOLD_AFTER = 3.0
#: How long the ends of leases, of their client and of the process wait for a gateway, all together, in seconds.
ENDING = 5.0
#: The time limit of an end after that, in seconds: enough for a gateway that answers again.
LAST_TRY = 0.5
#: How long after the last wait an end has the whole time again, in seconds.
FORGOTTEN_AFTER = 30.0

_log = logging.getLogger("latchgate")


class Silence:
    """What a client has seen of a gateway that does not answer. Threads may share it: a race does no more harm than a
    second line in the log."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._since = 0.0
        self._is_silent = False
        self._is_told = False
        self._waited = 0.0
        self._waited_at = 0.0

    def answered(self) -> None:
        """Records the answer of a gateway."""
        self._is_silent = self._is_told = False

    def unanswered(self, sent_at: float, reason: object) -> None:
        """Records that no gateway has answered a request. The first time after a few seconds, the log says so."""
        if not self._is_silent:
            self._since, self._is_silent = sent_at, True
        lasts = now() - self._since
        if lasts >= TOLD_AFTER and not self._is_told:
            self._is_told = True
            _log.warning("no gateway at %s has answered for %.0f s: %s", self._url, lasts, reason)

    # === Ends ===

    def end_by(self) -> float:
        """Until when an end that begins now waits for the gateway."""
        began = now()
        if began - self._waited_at > FORGOTTEN_AFTER:
            self._waited = 0.0
        return began + max(ENDING - self._waited, LAST_TRY)

    def ended(self, began: float, answered: bool) -> None:
        """Records that an end has waited for the gateway since ``began``."""
        self._waited_at = now()
        self._waited = 0.0 if answered else self._waited + self._waited_at - began
