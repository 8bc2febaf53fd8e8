"""Requests and the meaning of their results, without the transport that sends them.

An operation is a generator: it yields what to do next (:class:`Send`, :class:`Pause`) and returns its result. The
threaded and the asyncio client run the same operations.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Generator, Mapping, Optional, TypeVar, Union

from ..errors import GatewayUnreachable, LatchgateError, OutcomeUnknown, refusal
from .clock import now
from .silence import Silence

#: The maximum length of an answer in bytes. The longest answer about one lock shows the lock with its queue.
MAX_ANSWER = 1024 * 1024
#: The largest number in an answer: larger numbers are not exact in JavaScript, so gateways send none.
LARGEST = 2**53 - 1


@dataclass(frozen=True)
class Call:
    """A request of which several copies do no more harm than one."""

    method: str
    #: The path of the request, with its query.
    path: str
    #: The headers of the request, which may contain secrets and are not shown.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Optional[bytes] = field(default=None, repr=False)
    max_answer: int = MAX_ANSWER

    @property
    def only_looks(self) -> bool:
        """Whether the request only reads, so that its outcome is never in doubt."""
        return self.method == "GET"


@dataclass(frozen=True)
class Answer:
    """A complete answer to a request."""

    status: int
    #: The headers of the answer, with names in lower case.
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    sent_at: float
    received_at: float

    def is_json(self) -> bool:
        """Whether the body is a complete JSON document, and not a page of a proxy."""
        return self._json()[0]

    def document(self) -> Optional[Mapping[str, Any]]:
        _, document = self._json()
        return document if isinstance(document, dict) else None

    def _json(self) -> tuple[bool, Any]:
        try:
            return True, json.loads(self.body)
        except (ValueError, RecursionError):
            # RecursionError: the document is nested too deeply.
            return False, None

    def problem(self) -> Optional[Mapping[str, Any]]:
        document = self.document()
        return document if document is not None and isinstance(document.get("code"), str) else None


@dataclass(frozen=True)
class NotSent:
    """The result of a copy of a request that reached no gateway."""

    reason: str
    #: Whether a further copy of the request would fail in the same way.
    for_good: bool = False


@dataclass(frozen=True)
class NoAnswer:
    """The result of a copy of a request that was sent, and to which no complete answer came."""

    reason: str


Exchange = Union[Answer, NotSent, NoAnswer]


@dataclass(frozen=True)
class Send:
    """Asks the client to send one copy of a request, and to give it up after ``time_out`` seconds."""

    call: Call
    time_out: float


@dataclass(frozen=True)
class Pause:
    """Asks the client to wait for this many seconds."""

    seconds: float


T = TypeVar("T")
#: A generator that yields :class:`Send` and :class:`Pause`, receives the :data:`Exchange` of each :class:`Send`, and
#: returns a result.
Operation = Generator[Union[Send, Pause], Any, T]


@dataclass(frozen=True)
class Failure:
    """The failure of a copy of a request, after which a further copy may succeed."""

    error: LatchgateError
    #: Whether the failed copy may have been carried out.
    in_doubt: bool = False
    #: The pause before the next copy that the gateway asks for, in seconds.
    retry_after: Optional[float] = None
    #: Whether a further copy of the request would fail in the same way.
    for_good: bool = False


def send_copy(call: Call, silence: Silence, time_out: float) -> Operation[Union[Answer, Failure]]:
    """Sends one copy of a request. Returns its answer, or a failure if a further copy may succeed."""
    sent_at = now()
    exchange: Exchange = yield Send(call, max(time_out, 0.001))
    result = _result_of(exchange, call)
    if isinstance(result, Failure) and not result.error.problem:
        silence.unanswered(sent_at, result.error)
    else:
        silence.answered()
    return result


def _result_of(exchange: Exchange, call: Call) -> Union[Answer, Failure]:
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
    """The failure that an answer reports, if the same request may succeed a moment later; ``None`` if the answer is
    final. The table is in ``clients/conformance.md``."""
    status, problem, asked = answer.status, answer.problem(), retry_after(answer)
    in_doubt = not call.only_looks
    if 200 <= status < 300:
        # A release needs status 204 or a document with results: no other answer proves that the lease is released.
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
        # A proxy that limits the rate has not passed the request on to a gateway.
        if status == 429:
            return Failure(LatchgateError("a proxy answered with status 429", status=429), retry_after=asked)
        return Failure(_by_proxy(answer), in_doubt=in_doubt, retry_after=asked)
    # ``fence-exhausted`` is final: the counter of fencing tokens stays exhausted.
    if is_busy and problem["code"] != "fence-exhausted":
        return Failure(refusal(problem), retry_after=asked)
    if status == 504:
        return Failure(refusal(problem), in_doubt=in_doubt, retry_after=asked)
    # Any other problem is final: a bug in the gateway or foreign data causes the same answer again.
    return None


def _by_proxy(answer: Answer) -> LatchgateError:
    """The error for an answer of a proxy, which may have passed the request on to the gateway."""
    return OutcomeUnknown(f"a proxy answered with status {answer.status}", status=answer.status)


def retry_after(answer: Answer) -> Optional[float]:
    """The pause that the gateway asks for before the next request, in seconds."""
    asked = (answer.problem() or {}).get("retry_after_ms")
    if isinstance(asked, int) and asked >= 0:
        # The number is bounded, because a very large one cannot be converted to a float.
        return min(asked, LARGEST) / 1000
    header = answer.headers.get("retry-after", "")
    return float(header) if header.isascii() and header.isdigit() else None
