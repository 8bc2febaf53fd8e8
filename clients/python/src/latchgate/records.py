"""The locks, holders and waiters that a gateway shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Mapping, Optional

Mode = Literal["exclusive", "shared"]


@dataclass(frozen=True)
class ReleaseRequest:
    """A release request: another caller wants the lock. Finish the work, and release the lease in time."""

    #: The name of the API key that requested the release.
    by: Optional[str]
    reason: str
    #: The time left for the holder when the gateway answered, in milliseconds.
    within_ms: int
    #: For a group: the lock whose release is requested.
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
    """A holder of a lock, with the fields that the caller may view."""

    owner: Optional[str] = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    fencing_token: Optional[int] = None
    mode: Optional[Mode] = None
    slot: Optional[int] = None
    #: The time left of the holder's lease when the gateway answered, in milliseconds; ``None`` if it has no expiry.
    expires_in_ms: Optional[int] = None
    #: Whether the holder took the lock in the store itself, without a gateway.
    foreign: bool = False
    foreign_mark: Optional[str] = None
    #: The release request, if a caller has asked the holder to release the lock.
    release_requested: Optional[ReleaseRequest] = None
    #: The reservation that the lease is, if it is one.
    reservation: Optional[Reservation] = None
    #: The order with which the lease was granted, if it has one.
    order: Optional[int] = None
    #: Why the lease went back to an older order on purpose, if it did.
    rollback: Optional[str] = None
    #: Whether the lease only keeps the lock for a request for several locks that waits for another lock.
    waiting: bool = False
    #: The lock that such a request waits for. Only in an inspection.
    waits_for: Optional[AwaitedLock] = None

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
            reservation=Reservation.of(value.get("reservation")),
            order=value.get("order"),
            rollback=value.get("rollback"),
            waiting=bool(value.get("waiting")),
            waits_for=AwaitedLock.of(value.get("waits_for")),
        )


@dataclass(frozen=True)
class AwaitedLock:
    """The lock that a request for several locks waits for."""

    #: The name of the lock; ``None`` if the caller may not view it.
    name: Optional[str]
    #: For how long the request has waited for the lock, in milliseconds.
    since_ms: int
    #: The first holders of the lock; empty if it has none, or the caller may not view it.
    holders: tuple[Holder, ...]
    #: ``held``, ``resting`` or ``free``; ``None`` if the caller may not view the lock.
    state: Optional[str] = None
    #: The number of all holders of the lock.
    holder_count: int = 0

    @classmethod
    def of(cls, value: Optional[Mapping[str, Any]]) -> Optional[AwaitedLock]:
        if value is None:
            return None
        holders = tuple(Holder.of(holder) for holder in value["holders"])
        return cls(value["name"], value["since_ms"], holders, value.get("state"), value.get("holder_count", 0))


@dataclass(frozen=True)
class Reservation:
    """A reservation: a person holds the lock until a time, and no renewal changes that."""

    #: When the lease ends, as an RFC 3339 time.
    until: str
    reason: str
    #: The name of the API key that reserved the lock, if the gateway has keys.
    reserved_by: Optional[str]

    @classmethod
    def of(cls, value: Optional[Mapping[str, Any]]) -> Optional[Reservation]:
        if value is None:
            return None
        return cls(value["until"], value["reason"], value.get("reserved_by"))


@dataclass(frozen=True)
class Rest:
    """A rest of a lock: a lease was released before its minimum hold was over, and until then the lock, or the slot, is
    granted to no caller."""

    #: The fencing token of the released lease, for a break that ends the rest.
    fencing_token: int
    slot: Optional[int]
    #: The time until the rest is over, in milliseconds.
    available_in_ms: int

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Rest:
        return cls(value["fencing_token"], value.get("slot"), value["available_in_ms"])


@dataclass(frozen=True)
class Waiter:
    """A waiter in the queue of a lock. The waiter at position 1 is served next."""

    position: int
    owner: Optional[str]
    mode: Optional[Mode]
    limit: Optional[int]
    waited_ms: int
    metadata: Mapping[str, str]

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Waiter:
        return cls(
            position=value["position"],
            owner=value.get("owner"),
            mode=value.get("mode"),
            limit=value.get("limit"),
            waited_ms=value["waited_ms"],
            metadata=value.get("metadata") or {},
        )


@dataclass(frozen=True)
class OrderGrant:
    """The grant for the order that a lock remembers."""

    #: When the lock was granted: a text in RFC 3339.
    at: str
    #: The name of the API key that was granted the lock.
    by: Optional[str]
    owner: Optional[str]

    @classmethod
    def of(cls, value: Optional[Mapping[str, Any]]) -> Optional[OrderGrant]:
        return cls(value["at"], value.get("by"), value.get("owner")) if value else None


@dataclass(frozen=True)
class Lock:
    """A lock as a gateway shows it: its state, its holders, its rests and its waiters."""

    name: str
    state: Literal["free", "held", "resting"]
    #: The holders, at most 100, in the order in which their leases end.
    holders: tuple[Holder, ...]
    holder_count: int
    #: The first waiters of the queue, in order. Empty in a list.
    waiters: tuple[Waiter, ...]
    waiter_count: int
    #: The rests of the lock: places of leases that were released before their minimum hold was over.
    resting: tuple[Rest, ...] = ()
    #: The highest order for which the lock was granted, if it remembers one.
    granted_order: Optional[int] = None
    #: The grant for that order, if it is known.
    order_granted: Optional[OrderGrant] = None

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
            resting=tuple(Rest.of(rest) for rest in value.get("resting") or ()),
            granted_order=value.get("granted_order"),
            order_granted=OrderGrant.of(value.get("order_granted")),
        )


@dataclass(frozen=True)
class Page:
    """A page of the list of held locks. It may be short or empty although more pages follow."""

    locks: tuple[Lock, ...]
    #: The cursor for the request of the next page; ``None``: this was the last page.
    next_cursor: Optional[str]


@dataclass(frozen=True)
class HistoryNote:
    """Something that happened to a lease, such as ``release-requested``. Times are texts in RFC 3339."""

    kind: str
    at: str
    by: Optional[str]
    reason: Optional[str]

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> HistoryNote:
        return cls(value["kind"], value["at"], value.get("by"), value.get("reason"))


@dataclass(frozen=True)
class HistoryEntry:
    """A lease in the history of a lock. What was not recorded is ``None``. Times are texts in RFC 3339."""

    fencing_token: int
    mode: Optional[Mode]
    slot: Optional[int]
    owner: Optional[str]
    metadata: Mapping[str, str]
    acquired_at: Optional[str]
    #: The name of an API key, or an address.
    acquired_by: Optional[str]
    waited_ms: Optional[int]
    ended_at: Optional[str]
    ended: Optional[Literal["released", "expired", "broken", "lost"]]
    ended_by: Optional[str]
    reason: Optional[str]
    #: If no gateway has recorded the end of the lease: it ended at this time at the latest.
    ended_at_latest: Optional[str]
    #: Other events of the lease, such as release requests; oldest first.
    notes: tuple[HistoryNote, ...]
    #: The order of the lease, if it had one.
    order: Optional[int] = None
    #: Why the lease went back to an older order on purpose, if it did.
    rollback: Optional[str] = None

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> HistoryEntry:
        return cls(
            fencing_token=value["fencing_token"],
            mode=value.get("mode"),
            slot=value.get("slot"),
            owner=value.get("owner"),
            metadata=value.get("metadata") or {},
            acquired_at=value.get("acquired_at"),
            acquired_by=value.get("acquired_by"),
            waited_ms=value.get("waited_ms"),
            ended_at=value.get("ended_at"),
            ended=value.get("ended"),
            ended_by=value.get("ended_by"),
            reason=value.get("reason"),
            ended_at_latest=value.get("ended_at_latest"),
            notes=tuple(HistoryNote.of(note) for note in value.get("notes") or ()),
            order=value.get("order"),
            rollback=value.get("rollback"),
        )


@dataclass(frozen=True)
class ShorterLeases:
    """The leases of a lock that were too short for entries in its history."""

    count: int
    #: Since when they are counted: a text in RFC 3339.
    since: str

    @classmethod
    def of(cls, value: Optional[Mapping[str, Any]]) -> Optional[ShorterLeases]:
        return cls(value["count"], value["since"]) if value else None


@dataclass(frozen=True)
class History:
    """The history of a lock."""

    name: str
    #: The last leases, newest first.
    entries: tuple[HistoryEntry, ...]
    #: The leases that were too short for entries; ``None`` if there were none.
    shorter_leases: Optional[ShorterLeases]
    #: How many records the gateways have dropped, because the store did not take them in time.
    dropped: int
    #: Whether the gateway records leases. If not, there are no entries.
    enabled: bool

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> History:
        return cls(
            name=value["name"],
            entries=tuple(HistoryEntry.of(entry) for entry in value["entries"]),
            shorter_leases=ShorterLeases.of(value.get("shorter_leases")),
            dropped=value.get("dropped") or 0,
            enabled=bool(value["enabled"]),
        )
