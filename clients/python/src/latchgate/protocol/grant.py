"""A lease as a gateway answers it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Optional, Sequence

from ..errors import LatchgateError, OutcomeUnknown, refusal
from ..records import Mode, ReleaseRequest
from .exchange import LARGEST, Answer

#: How much earlier than necessary a long lease is over for its holder, in seconds, beside what clocks may differ.
LONGEST_MARGIN = 0.25

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True)
class Part:
    """The lease of one lock."""

    name: str
    fencing_token: int
    mode: Mode
    slot: Optional[int]


@dataclass(frozen=True)
class Grant:
    """A lease as it was when the gateway answered. Times are in seconds."""

    #: One, or several as one, in the order of the request.
    parts: tuple[Part, ...]
    token: str = field(repr=False)
    ttl: float
    expires_in: float
    #: How long after the answer it should be renewed.
    renew_after: float
    #: What was left until its hold limit, if it has one.
    hold_expires_in: Optional[float]
    owner: Optional[str]
    metadata: Mapping[str, str]
    waited: float
    release_requested: Optional[ReleaseRequest]
    sent_at: float
    received_at: float

    @property
    def names(self) -> tuple[str, ...]:
        """All locks that it is of."""
        return tuple(part.name for part in self.parts)

    @property
    def good_for(self) -> float:
        """How much of it may be counted on: one that is to be released is broken when the time for that is over."""
        if self.release_requested is None:
            return self.expires_in
        return min(self.expires_in, self.release_requested.within_ms / 1000)

    @property
    def good_until(self) -> float:
        """Until when it certainly lasts: counted from when the request was sent, because nobody knows when it was granted
        after that. A margin is left in which work can stop, and because clocks do not run at quite the same speed."""
        return self.sent_at + max(self.good_for - margin(self.good_for), 0.0)

    @property
    def took(self) -> float:
        """How long the request and its answer took, the wait included."""
        return self.received_at - self.sent_at

    @property
    def at_hold_limit(self) -> bool:
        """Whether it ends with its hold limit, beyond which no renewal goes."""
        return self.hold_expires_in is not None and self.hold_expires_in <= self.expires_in


def margin(left: float) -> float:
    """How much earlier than necessary a lease is over for its holder that lasts so long yet."""
    return left / 100 + min(left / 20, LONGEST_MARGIN)


def grant_of(answer: Answer, names: Sequence[str]) -> Grant:
    """The lease of these locks in an answer to an acquire, or to the renewal of one lock."""
    document = answer.document()
    if document is None:
        raise _unusable(answer, "a lease")
    try:
        grant = _grant(document, answer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # What was wrong is a name of ours, and no secret of the answer.
        raise _unusable(answer, f"a usable lease ({_field(error)})") from None
    if sorted(grant.names) != sorted(names):
        raise _unusable(answer, "the lease that was requested")
    return grant


def token_in(answer: Answer) -> Optional[str]:
    """The token of an answer that may be unusable otherwise."""
    token = (answer.document() or {}).get("token")
    return token if isinstance(token, str) and _TOKEN.fullmatch(token) else None


def _grant(document: Mapping[str, Any], answer: Answer) -> Grant:
    leases = document["leases"] if "leases" in document else [document]
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ValueError("metadata")
    token = token_in(answer)
    if token is None:
        raise ValueError("token")
    ttl_ms = _number(document, "ttl_ms")
    return Grant(
        parts=tuple(_part(lease) for lease in leases),
        token=token,
        ttl=ttl_ms / 1000,
        # After a renewal with a shorter TTL a gateway may say more.
        expires_in=min(_number(document, "expires_in_ms"), ttl_ms) / 1000,
        renew_after=_number(document, "renew_after_ms") / 1000,
        hold_expires_in=_seconds_or_none(document, "hold_expires_in_ms"),
        owner=_text_or_none(document, "owner"),
        metadata=metadata,
        waited=(_seconds_or_none(document, "waited_ms") or 0.0),
        release_requested=_soonest(leases, named="leases" in document),
        sent_at=answer.sent_at,
        received_at=answer.received_at,
    )


def _part(lease: Mapping[str, Any]) -> Part:
    name, mode = lease["name"], lease.get("mode", "exclusive")
    if not isinstance(name, str):
        raise ValueError("name")
    if mode not in ("exclusive", "shared"):
        raise ValueError("mode")
    slot = None if lease.get("slot") is None else _number(lease, "slot")
    return Part(name, _number(lease, "fencing_token", 1), mode, slot)


def _number(values: Mapping[str, Any], field: str, least: int = 0) -> int:
    value = values.get(field)
    # True is an int, and JSON of Python knows NaN and Infinity.
    if type(value) is not int or not least <= value <= LARGEST:
        raise ValueError(field)
    return value


def _seconds_or_none(values: Mapping[str, Any], field: str) -> Optional[float]:
    return None if values.get(field) is None else _number(values, field) / 1000


def _text_or_none(values: Mapping[str, Any], field: str) -> Optional[str]:
    value = values.get(field)
    if value is not None and not isinstance(value, str):
        raise ValueError(field)
    return value


def _field(error: Exception) -> str:
    return str(error.args[0]) if isinstance(error, (KeyError, ValueError)) and error.args else "its form"


def renewed_group(before: Grant, ttl: Optional[float], answer: Answer) -> Grant:
    """A group after a renewal that was answered with what came of each. A part that is lost is the loss of all."""
    results = results_of(answer, before.names)
    document = answer.document() or {}
    check_results(results)
    ttl = before.ttl if ttl is None else ttl
    try:
        holds = [hold for result in results for hold in [_seconds_or_none(result, "hold_expires_in_ms")] if hold is not None]
        return replace(
            before,
            ttl=ttl,
            expires_in=min(ttl, *(_number(result, "expires_in_ms") / 1000 for result in results)),
            renew_after=_number(document, "renew_after_ms") / 1000,
            hold_expires_in=min(holds, default=None),
            release_requested=_soonest(results, named=True),
            sent_at=answer.sent_at,
            received_at=answer.received_at,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unusable(answer, f"a usable renewal ({_field(error)})") from None


def results_of(answer: Answer, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """What came of each lease of a group."""
    results = (answer.document() or {}).get("results")
    if (
        not isinstance(results, list)
        or not all(isinstance(result, dict) for result in results)
        or sorted(str(result.get("name")) for result in results) != sorted(names)
    ):
        raise _unusable(answer, "the outcome of each lease")
    return results


def check_results(results: list[Mapping[str, Any]]) -> None:
    """Raises if anything was not done: of a lost lease rather than of one of which it is not known."""
    failed = [result for result in results if result.get("code")]
    if not failed:
        return
    # Who has lost a lock to somebody else must stop sooner.
    worst = min(failed, key=lambda it: (it["code"] != "lease-lost", it.get("held") is not True))
    what = "is lost" if worst["code"] == "lease-lost" else "was neither renewed nor released"
    more = worst.get("detail")
    detail = f"the lease of {worst['name']} {what}" + (f": {more}" if more else "")
    status = {"lease-lost": 410, "outcome-unknown": 504}.get(worst["code"], 503)
    raise refusal({**worst, "detail": detail, "status": status})


def _soonest(values: list[Mapping[str, Any]], named: bool) -> Optional[ReleaseRequest]:
    requests = [
        request
        for value in values
        for request in [ReleaseRequest.of(value.get("release_requested"), value["name"] if named else None)]
        if request is not None
    ]
    return min(requests, key=lambda request: request.within_ms, default=None)


def _unusable(answer: Answer, what: str) -> LatchgateError:
    """Success without what comes with it: something on the way has changed the answer."""
    return OutcomeUnknown(f"the gateway answered with status {answer.status} and without {what}", status=answer.status)
