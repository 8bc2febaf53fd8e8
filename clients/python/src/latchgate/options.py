"""What an acquire can be asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Mapping, Optional, TypedDict

from .durations import Duration, Wait
from .records import Mode

if TYPE_CHECKING:
    # Type checkers know it themselves; at run time nothing needs it.
    from typing_extensions import Unpack as Unpack


class RequestOptions(TypedDict, total=False):
    """What a request says. What is left out or ``None`` is left to the gateway."""

    #: How long the lease lasts from each renewal.
    ttl: Optional[Duration]
    #: How long to wait if somebody holds the lock: not at all by default, ``math.inf`` without an end.
    wait: Wait
    #: ``shared`` to hold it beside others.
    mode: Optional[Mode]
    #: As long as fewer than so many hold it; the lease has a ``slot`` then.
    limit: Optional[int]
    #: Who asks, for people to read; that of the client by default.
    owner: Optional[str]
    metadata: Optional[Mapping[str, str]]
    #: How long the lease may be kept with renewals.
    max_hold: Optional[Duration]
    #: Under which another process may continue this request.
    idempotency_key: Optional[str]


class LeaseOptions(RequestOptions, total=False):
    """And what this process does with the lease."""

    #: Whether it is renewed, which it is by default. If not, it lasts its TTL, also after the end of the process.
    renew: bool


def check_callback(callback: object) -> None:
    """Refuses at once what could only fail when it is called."""
    if callback is not None and not callable(callback):
        raise TypeError(f"on_release_requested must be callable, not {callback!r}")


def check_known(options: Iterable[str], known: Iterable[str]) -> None:
    """Refuses what a function without ``**options`` would refuse by itself."""
    for unknown in set(options) - set(known):
        raise TypeError(f"an acquire has no option {unknown!r}")
