"""A lease as an answer of the gateway describes it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Optional, Sequence

from ..errors import LatchgateError, OutcomeUnknown, refusal
from ..records import Mode, ReleaseRequest
from .exchange import LARGEST, Answer
from .names import other_lock

#: The longest safety margin for a holder to stop, in seconds. A second margin is for differences between clocks.
LONGEST_MARGIN = 0.25

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True)
class Part:
    """The lease of one lock, which may belong to a group."""

    name: str
    fencing_token: int
    mode: Mode
    slot: Optional[int]


@dataclass(frozen=True)
class Grant:
    """A lease at the time of the gateway's answer. Times are in seconds."""

    #: The leases of the locks, one or several of a group, in the order of the request.
    parts: tuple[Part, ...]
    token: str = field(repr=False)
    ttl: float
    expires_in: float
    #: How long after the answer the lease should be renewed.
    renew_after: float
    #: The time that was left until the hold limit of the lease, if it has one.
    hold_expires_in: Optional[float]
    owner: Optional[str]
    metadata: Mapping[str, str]
    waited: float
    release_requested: Optional[ReleaseRequest]
    sent_at: float
    received_at: float

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all locks of the lease."""
        return tuple(part.name for part in self.parts)

    @property
    def good_for(self) -> float:
        """The time for which the holder may count on the lease: after a release request, only until the gateway breaks
        it."""
        if self.release_requested is None:
            return self.expires_in
        return min(self.expires_in, self.release_requested.within_ms / 1000)

    @property
    def good_until(self) -> float:
        """Until when the lease certainly lasts. Counted from when the request was sent, because the time of the grant
        after that is unknown. A margin is subtracted, because work needs time to stop, and clocks differ in speed."""
        return self.sent_at + max(self.good_for - margin(self.good_for), 0.0)

    @property
    def took(self) -> float:
        """How long the request and its answer took, including the wait in the queue."""
        return self.received_at - self.sent_at

    @property
    def at_hold_limit(self) -> bool:
        """Whether the lease ends at its hold limit, so that no renewal can extend it."""
        return self.hold_expires_in is not None and self.hold_expires_in <= self.expires_in


def margin(left: float) -> float:
    """The safety margin: how much earlier a lease with ``left`` seconds left ends for its holder."""
    return left / 100 + min(left / 20, LONGEST_MARGIN)


def grant_of(answer: Answer, names: Sequence[str]) -> Grant:
    """Reads the lease of these locks from the answer to an acquire, or to the renewal of one lock."""
    document = answer.document()
    if document is None:
        raise _unusable(answer, "a lease")
    try:
        grant = _grant(document, answer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # The message contains the name of a field, and no content of the answer, which has secrets.
        raise _unusable(answer, f"a usable lease ({_field(error)})") from None
    if sorted(grant.names) != sorted(names):
        raise OutcomeUnknown(other_lock(grant.names, names), status=answer.status)
    return grant


def token_in(answer: Answer) -> Optional[str]:
    """The token in an answer, even if the rest of the answer cannot be used."""
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
        # After a renewal with a shorter TTL, the gateway may report more time than the TTL.
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
    # ``type`` is compared, because True is an int; and Python's JSON parser accepts NaN and Infinity.
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
    """The lease of a group after a renewal, whose answer has a result for each lock. If the lease of one lock is lost,
    raises that the whole lease is lost."""
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
    """The results in an answer: one for the lease of each lock of the group."""
    results = (answer.document() or {}).get("results")
    if (
        not isinstance(results, list)
        or not all(isinstance(result, dict) for result in results)
        or sorted(str(result.get("name")) for result in results) != sorted(names)
    ):
        raise _unusable(answer, "the outcome of each lease")
    return results


def check_results(results: list[Mapping[str, Any]]) -> None:
    """Raises if a lease was not renewed or released. A lost lease is reported before a lease whose outcome is
    unknown."""
    failed = [result for result in results if result.get("code")]
    if not failed:
        return
    # A lease whose lock another caller holds now is reported first, because its work must stop at once.
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
    """The error for a success whose document cannot be used: a program on the way has changed the answer."""
    return OutcomeUnknown(f"the gateway answered with status {answer.status} and without {what}", status=answer.status)
