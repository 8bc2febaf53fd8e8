"""What a gateway shows of locks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Mapping, Optional

Mode = Literal["exclusive", "shared"]


@dataclass(frozen=True)
class ReleaseRequest:
    """Somebody has asked for the lock: finish, and release it in time."""

    #: Who asked: the name of an API key.
    by: Optional[str]
    reason: str
    #: How much time was left when the gateway answered.
    within_ms: int
    #: Of several locks the one that is asked for.
    name: Optional[str] = None

    @classmethod
    def of(cls, value: Optional[Mapping[str, Any]], name: Optional[str] = None) -> Optional[ReleaseRequest]:
        if not value:
            return None
        within_ms = value["within_ms"]
        if type(within_ms) is not int or not 0 <= within_ms < 2**53:
            raise ValueError("within_ms")
        return cls(value.get("by"), value.get("reason") or "", within_ms, name)


@dataclass(frozen=True)
class Holder:
    """Who holds a lock, as far as the caller may know."""

    owner: Optional[str] = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    fencing_token: Optional[int] = None
    mode: Optional[Mode] = None
    slot: Optional[int] = None
    #: What is left of its lease when the gateway answered; ``None`` if it has no expiry.
    expires_in_ms: Optional[int] = None
    #: Whether it took the lock in the store itself, without a gateway.
    foreign: bool = False
    foreign_mark: Optional[str] = None
    #: Present if it was asked to release the lock.
    release_requested: Optional[ReleaseRequest] = None

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Holder:
        return cls(
            owner=value.get("owner"),
            metadata=value.get("metadata") or {},
            fencing_token=value.get("fencing_token"),
            mode=value.get("mode"),
            slot=value.get("slot"),
            expires_in_ms=value.get("expires_in_ms"),
            foreign=bool(value.get("foreign")),
            foreign_mark=value.get("foreign_mark"),
            release_requested=ReleaseRequest.of(value.get("release_requested")),
        )


@dataclass(frozen=True)
class Waiter:
    """One of those who wait for a lock; position 1 is the next to be served."""

    position: int
    owner: Optional[str]
    mode: Optional[Mode]
    limit: Optional[int]
    waited_ms: int

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Waiter:
        return cls(
            position=value["position"],
            owner=value.get("owner"),
            mode=value.get("mode"),
            limit=value.get("limit"),
            waited_ms=value["waited_ms"],
        )


@dataclass(frozen=True)
class Lock:
    """A lock as a gateway shows it."""

    name: str
    state: Literal["free", "held"]
    #: Those first whose leases end soonest, at most 100.
    holders: tuple[Holder, ...]
    holder_count: int
    #: Those who wait, in order: the beginning of the queue. Empty in a list.
    waiters: tuple[Waiter, ...]
    waiter_count: int

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Lock:
        holders = tuple(Holder.of(holder) for holder in value["holders"])
        return cls(
            name=value["name"],
            state=value.get("state", "held"),
            holders=holders,
            holder_count=value.get("holder_count", len(holders)),
            waiters=tuple(Waiter.of(waiter) for waiter in value.get("waiters") or ()),
            waiter_count=value.get("waiter_count") or 0,
        )


@dataclass(frozen=True)
class Page:
    """A part of the locks that are held. There may be few or none on it, and still more pages."""

    locks: tuple[Lock, ...]
    #: Where the next page begins; ``None``: this was the last.
    next_cursor: Optional[str]
