"""Inspect, list and break, the operations of an operator; and check, the operation of a resource."""

from __future__ import annotations

import json
from typing import Any, Callable, Mapping, Optional, TypeVar
from urllib.parse import urlencode

from ..durations import Duration, finite_ms
from ..errors import LatchgateError, OutcomeUnknown
from ..records import History, Holder, Lock, Page
from .clock import now
from .exchange import LARGEST, Answer, Call, Operation
from .names import check_name, lease_path, other_lock
from .retry import Retry, send
from .settings import Settings

#: The maximum length of a page in bytes: a thousand locks, each with as much metadata as is allowed.
MAX_PAGE = 16 * 1024 * 1024

T = TypeVar("T")


#: An answer that names its lock.
Named = TypeVar("Named", Lock, History)


def _about(name: str, answered: Named) -> Named:
    """The answer, if it is about the lock that was asked for."""
    if answered.name != name:
        raise LatchgateError(other_lock([answered.name], [name]), status=200)
    return answered


def inspect(settings: Settings, name: str) -> Operation[Lock]:
    """Shows the holders and the waiters of a lock."""
    return _about(name, (yield from _asked(settings, Call("GET", lease_path([check_name(name)])), Lock.of)))


def check(settings: Settings, name: str, fencing_token: int, lasts: Optional[Duration]) -> Operation[None]:
    """Raises unless a lease with this fencing token holds the lock."""
    # ``type`` is compared, because True is an int.
    if type(fencing_token) is not int or not 1 <= fencing_token <= LARGEST:
        raise ValueError(f"{fencing_token!r} is no fencing token: 1 to {LARGEST}")
    ms = finite_ms(lasts, "lasts")
    path = lease_path([check_name(name)], "/check") + ("" if ms is None else f"?for_ms={ms}")
    retry = Retry(now() + settings.deadline)
    answer = yield from send(Call("GET", path, headers={"Fencing-Token": str(fencing_token)}), settings, retry)
    # Only 204 is the answer of a gateway: a proxy may answer with another success.
    if answer.status != 204:
        raise retry.refusal(answer)


def history(settings: Settings, name: str) -> Operation[History]:
    """Shows who held a lock, from when to when, and how that ended."""
    call = Call("GET", lease_path([check_name(name)], "/history"), max_answer=MAX_PAGE)
    return _about(name, (yield from _asked(settings, call, History.of)))


def list_locks(
    settings: Settings,
    prefix: str,
    owner: Optional[str],
    search: Optional[str],
    limit: Optional[int],
    cursor: Optional[str],
) -> Operation[Page]:
    """Lists one page of the locks that are held."""
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
    """Takes a lock away from its holder, or first asks the holder to release the lock.

    If a break may have been carried out, it is sent again only if it names the fencing token of the lease: a second
    copy of any other break could break the next holder.
    """
    body = {
        "reason": reason,
        "fencing_token": fencing_token,
        "foreign_mark": foreign_mark,
        "all": True if all_holders else None,
        "grace_ms": finite_ms(grace, "grace"),
    }
    sent = json.dumps({key: value for key, value in body.items() if value is not None}).encode()
    call = Call("POST", lease_path([check_name(name)], "/break"), body=sent)
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
        # An earlier copy of this break has broken the lease, of which only the fencing token is known.
        return Lock(name, "held", (Holder(fencing_token=fencing_token),), 1, (), 0)
    lock = _read(answer, retry, Lock.of)
    if lock.name != name:
        raise OutcomeUnknown(other_lock([lock.name], [name]), status=answer.status)
    return lock


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
