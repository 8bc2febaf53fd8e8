"""The options of an acquire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Mapping, Optional, TypedDict

from .durations import Duration, Wait
from .records import Mode

if TYPE_CHECKING:
    # Only type checkers need ``Unpack``, and they know it; nothing imports it at run time.
    from typing_extensions import Unpack as Unpack


class RequestOptions(TypedDict, total=False):
    """The options that are sent to the gateway. The gateway chooses the value of an option that is missing or
    ``None``."""

    #: How long the lease lasts from each renewal.
    ttl: Optional[Duration]
    #: How long to wait while the lock is held: not at all by default; ``math.inf`` waits without an end.
    wait: Wait
    #: ``shared`` to hold the lock together with other shared leases.
    mode: Optional[Mode]
    #: The lease is granted while fewer than this many leases hold the lock, and has a ``slot``.
    limit: Optional[int]
    #: Takes an older waiter of the same lock and API key, with the same text here, out of the queue.
    supersedes: Optional[str]
    #: The order of the work: a whole number that is higher for newer work. The lock is granted only if it was not granted
    #: for a higher order before. For a group, the order of the locks that are held alone.
    order: Optional[int]
    #: Why older work is done on purpose: the order is neither compared nor remembered.
    rollback: Optional[str]
    #: Reserves the lock until a time: ``{"until": "2026-12-04T18:00:00Z", "reason": "load test"}``.
    reserve: Optional[Mapping[str, str]]
    #: The owner text, for people to read; by default that of the client.
    owner: Optional[str]
    metadata: Optional[Mapping[str, str]]
    #: The longest time for which renewals may keep the lease.
    max_hold: Optional[Duration]
    #: For how long after its grant the lock is granted to no other caller, even if the lease is released earlier. A
    #: shorter TTL is raised to it.
    min_hold: Optional[Duration]
    #: The key under which another process may continue this acquire.
    idempotency_key: Optional[str]


class LeaseOptions(RequestOptions, total=False):
    """The options of an acquire, including those for what this process does with the lease."""

    #: Whether a thread renews the lease, which is the default. If not, the lease lasts for its TTL, even after the end
    #: of the process.
    renew: bool


def check_callback(callback: object) -> None:
    """Raises at once if the callback cannot be called, instead of failing when it is needed."""
    if callback is not None and not callable(callback):
        raise TypeError(f"on_release_requested must be callable, not {callback!r}")


def check_known(options: Iterable[str], known: Iterable[str]) -> None:
    """Raises for an unknown option, as Python does for a function without ``**options``."""
    for unknown in set(options) - set(known):
        raise TypeError(f"an acquire has no option {unknown!r}")
