"""Inspect, list and break: what an operator does with locks."""

from __future__ import annotations

import json
from typing import Any, Callable, Mapping, Optional, TypeVar
from urllib.parse import urlencode

from ..durations import Duration, finite_ms
from ..errors import LatchgateError, OutcomeUnknown
from ..records import Holder, Lock, Page
from .clock import now
from .exchange import Answer, Call, Operation
from .names import check_name
from .retry import Retry, send
from .settings import Settings

#: The longest page: a thousand locks, each with all the metadata there may be.
MAX_PAGE = 16 * 1024 * 1024

T = TypeVar("T")


def inspect(settings: Settings, name: str) -> Operation[Lock]:
    """Shows who holds a lock, and who waits for it."""
    return _asked(settings, Call("GET", f"/locks/{check_name(name)}"), Lock.of)


def list_locks(
    settings: Settings,
    prefix: str,
    owner: Optional[str],
    search: Optional[str],
    limit: Optional[int],
    cursor: Optional[str],
) -> Operation[Page]:
    """Shows a part of the locks that are held."""
    given = {"prefix": prefix, "owner": owner, "search": search, "limit": limit, "cursor": cursor}
    query = urlencode({key: value for key, value in given.items() if value is not None})
    return _asked(settings, Call("GET", f"/locks?{query}", max_answer=MAX_PAGE), _page)


def break_lock(
    settings: Settings,
    name: str,
    reason: str,
    fencing_token: Optional[int],
    foreign_mark: Optional[str],
    all_holders: bool,
    grace: Optional[Duration],
) -> Operation[Lock]:
    """Takes a lock away from whoever holds it, or asks the holder first.

    Only a break that names its lease is sent again if it may have been carried out: any other would break the next holder.
    """
    body = {
        "reason": reason,
        "fencing_token": fencing_token,
        "foreign_mark": foreign_mark,
        "all": True if all_holders else None,
        "grace_ms": finite_ms(grace, "grace"),
    }
    sent = json.dumps({key: value for key, value in body.items() if value is not None}).encode()
    call = Call("POST", f"/locks/{check_name(name)}/break", body=sent)
    retry = Retry(now() + settings.deadline, in_doubt_too=fencing_token is not None)
    try:
        answer = yield from send(call, settings, retry)
    except OutcomeUnknown as error:
        if fencing_token is not None:
            raise
        advice = "it is not known whether the lock was broken; inspect it, and name the fencing token of the lease to break"
        raise OutcomeUnknown(f"{advice}: {error}", status=error.status, problem=error.problem) from None
    is_gone = (answer.problem() or {}).get("code") in ("not-held", "holder-changed")
    if is_gone and retry.in_doubt and fencing_token is not None:
        # An earlier copy did it. What it broke is known by its fencing token alone.
        return Lock(name, "held", (Holder(fencing_token=fencing_token),), 1, (), 0)
    return _read(answer, retry, Lock.of)


def _page(document: Mapping[str, Any]) -> Page:
    return Page(tuple(Lock.of(lock) for lock in document["locks"]), document.get("next_cursor"))


def _asked(settings: Settings, call: Call, read: Callable[[Mapping[str, Any]], T]) -> Operation[T]:
    retry = Retry(now() + settings.deadline)
    answer = yield from send(call, settings, retry)
    return _read(answer, retry, read)


def _read(answer: Answer, retry: Retry, read: Callable[[Mapping[str, Any]], T]) -> T:
    if not 200 <= answer.status < 300:
        raise retry.refusal(answer)
    try:
        return read(answer.document() or {})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise LatchgateError(f"status {answer.status} without a lock", status=answer.status) from None
