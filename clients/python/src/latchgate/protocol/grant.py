"""A lease as a gateway answers it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Optional

from ..errors import LatchgateError, OutcomeUnknown, refusal
from ..records import Mode, ReleaseRequest
from .exchange import Answer

#: How much earlier than necessary a long lease is over for its holder, in seconds, beside what clocks may differ.
LONGEST_MARGIN = 0.25


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
    def good_for(self) -> float:
        """How much of it may be counted on: one that is to be released is broken when the time for that is over."""
        if self.release_requested is None:
            return self.expires_in
        return min(self.expires_in, self.release_requested.within_ms / 1000)

    @property
    def good_until(self) -> float:
        """Until when it certainly lasts: counted from when the request was sent, because nobody knows when it was granted
        after that. A margin is left in which work can stop, and because clocks do not run at quite the same speed."""
        margin = self.ttl / 100 + min(self.ttl / 20, LONGEST_MARGIN)
        return self.sent_at + max(self.good_for - margin, 0.0)

    @property
    def took(self) -> float:
        """How long the request and its answer took, the wait included."""
        return self.received_at - self.sent_at

    @property
    def at_hold_limit(self) -> bool:
        """Whether it ends with its hold limit, beyond which no renewal goes."""
        return self.hold_expires_in is not None and self.hold_expires_in <= self.expires_in


def grant_of(answer: Answer) -> Grant:
    """The lease in an answer to an acquire, or to the renewal of one lock."""
    document = answer.document()
    try:
        assert document is not None
        return _grant(document, answer)
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError):
        raise _unusable(answer, "a lease") from None


def _grant(document: Mapping[str, Any], answer: Answer) -> Grant:
    leases = document.get("leases") or [document]
    hold_expires_in = document.get("hold_expires_in_ms")
    return Grant(
        parts=tuple(
            Part(lease["name"], int(lease["fencing_token"]), lease.get("mode") or "exclusive", lease.get("slot"))
            for lease in leases
        ),
        token=str(document["token"]),
        ttl=document["ttl_ms"] / 1000,
        expires_in=document["expires_in_ms"] / 1000,
        renew_after=document["renew_after_ms"] / 1000,
        hold_expires_in=None if hold_expires_in is None else hold_expires_in / 1000,
        owner=document.get("owner"),
        metadata=document.get("metadata") or {},
        waited=(document.get("waited_ms") or 0) / 1000,
        release_requested=_soonest(leases, named="leases" in document),
        sent_at=answer.sent_at,
        received_at=answer.received_at,
    )


def renewed_group(before: Grant, ttl: Optional[float], answer: Answer) -> Grant:
    """A group after a renewal that was answered with what came of each. A part that is lost is the loss of all."""
    results = results_of(answer)
    document = answer.document() or {}
    check_results(results)
    holds = [result["hold_expires_in_ms"] for result in results if result.get("hold_expires_in_ms") is not None]
    return replace(
        before,
        ttl=before.ttl if ttl is None else ttl,
        expires_in=min(result["expires_in_ms"] for result in results) / 1000,
        renew_after=(document.get("renew_after_ms") or 0) / 1000,
        hold_expires_in=min(holds) / 1000 if holds else None,
        release_requested=_soonest(results, named=True),
        sent_at=answer.sent_at,
        received_at=answer.received_at,
    )


def results_of(answer: Answer) -> list[Mapping[str, Any]]:
    """What came of each lease of a group."""
    results = (answer.document() or {}).get("results")
    if not isinstance(results, list) or not results:
        raise _unusable(answer, "what came of each lease")
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
