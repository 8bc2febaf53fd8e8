"""Requests and what they come to, without saying how they travel.

An operation is a generator: it yields what is to be done (:class:`Send`, :class:`Pause`) and returns its result. The
threaded and the asyncio client run the same operations.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Generator, Mapping, Optional, TypeVar, Union

from ..errors import GatewayUnreachable, LatchgateError, OutcomeUnknown, refusal

#: The longest answer about one lock is the lock with its queue.
MAX_ANSWER = 1024 * 1024
#: The largest number: JavaScript has no larger one, so no gateway says one.
LARGEST = 2**53 - 1


@dataclass(frozen=True)
class Call:
    """A request whose copies do no harm beyond the first."""

    method: str
    #: With its query.
    path: str
    #: Secrets travel here, so they are not shown.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Optional[bytes] = field(default=None, repr=False)
    max_answer: int = MAX_ANSWER

    @property
    def only_looks(self) -> bool:
        """Nothing is ever in doubt then."""
        return self.method == "GET"


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    #: With names in lower case.
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    sent_at: float
    received_at: float

    def is_json(self) -> bool:
        """Whether the body is whole, and no page of a proxy."""
        return self._json()[0]

    def document(self) -> Optional[Mapping[str, Any]]:
        _, document = self._json()
        return document if isinstance(document, dict) else None

    def _json(self) -> tuple[bool, Any]:
        try:
            return True, json.loads(self.body)
        except (ValueError, RecursionError):
            # The latter if it is nested too deeply.
            return False, None

    def problem(self) -> Optional[Mapping[str, Any]]:
        document = self.document()
        return document if document is not None and isinstance(document.get("code"), str) else None


@dataclass(frozen=True)
class NotSent:
    """The request reached no gateway."""

    reason: str
    #: Whether another copy would fail in the same way.
    for_good: bool = False


@dataclass(frozen=True)
class NoAnswer:
    """The request was sent, and no whole answer came back."""

    reason: str


Exchange = Union[Answer, NotSent, NoAnswer]


@dataclass(frozen=True)
class Send:
    """Send one copy, and give it up after so many seconds."""

    call: Call
    time_out: float


@dataclass(frozen=True)
class Pause:
    """Do nothing for so many seconds."""

    seconds: float


T = TypeVar("T")
#: Yields effects, is sent the :data:`Exchange` of each :class:`Send`, and returns a result.
Operation = Generator[Union[Send, Pause], Any, T]


@dataclass(frozen=True)
class Failure:
    """A copy that another one may do better than."""

    error: LatchgateError
    #: Whether this copy may have been carried out.
    in_doubt: bool = False
    #: How long the gateway asks to be left alone, in seconds.
    retry_after: Optional[float] = None
    #: Whether another copy would fail in the same way.
    for_good: bool = False


def send_copy(call: Call, time_out: float) -> Operation[Union[Answer, Failure]]:
    """Sends one copy."""
    exchange: Exchange = yield Send(call, max(time_out, 0.001))
    if isinstance(exchange, NotSent):
        error = GatewayUnreachable(f"the gateway cannot be reached: {exchange.reason}")
        return Failure(error, for_good=exchange.for_good)
    if isinstance(exchange, NoAnswer):
        if call.only_looks:
            return Failure(GatewayUnreachable(f"the gateway did not answer: {exchange.reason}"))
        return Failure(OutcomeUnknown(f"the gateway did not answer: {exchange.reason}"), in_doubt=True)
    failure = _failure_of(exchange, call)
    return exchange if failure is None else failure


def _failure_of(answer: Answer, call: Call) -> Optional[Failure]:
    """What an answer says, if the same request may be answered otherwise a moment later. The table is in
    ``clients/conformance.md``."""
    status, problem, asked = answer.status, answer.problem(), retry_after(answer)
    in_doubt = not call.only_looks
    if 200 <= status < 300:
        # Only these answers prove that the lease is released.
        is_release = call.method == "DELETE"
        is_whole = "results" in (answer.document() or {}) if is_release else answer.is_json()
        if call.only_looks or status == 204 or is_whole:
            return None
        error = OutcomeUnknown(f"the gateway answered with status {status} and without a document", status=status)
        return Failure(error, in_doubt=True)
    is_busy = status in (408, 429, 503)
    if not is_busy and status < 500:
        return None
    if problem is None:
        # A proxy that limits the rate has not passed the request on.
        if status == 429:
            return Failure(LatchgateError("a proxy answered with status 429", status=429), retry_after=asked)
        return Failure(_by_proxy(answer), in_doubt=in_doubt, retry_after=asked)
    # No fencing token will come back.
    if is_busy and problem["code"] != "fence-exhausted":
        return Failure(refusal(problem), retry_after=asked)
    if status == 504:
        return Failure(refusal(problem), in_doubt=in_doubt, retry_after=asked)
    # A bug or foreign data: the same the next time.
    return None


def _by_proxy(answer: Answer) -> LatchgateError:
    """An answer of something between us and the gateway, which may have passed the request on."""
    return OutcomeUnknown(f"a proxy answered with status {answer.status}", status=answer.status)


def retry_after(answer: Answer) -> Optional[float]:
    """When the gateway asks us to come again, in seconds."""
    asked = (answer.problem() or {}).get("retry_after_ms")
    if isinstance(asked, int) and asked >= 0:
        # A larger one may be no float.
        return min(asked, LARGEST) / 1000
    header = answer.headers.get("retry-after", "")
    return float(header) if header.isascii() and header.isdigit() else None
