"""Checks the names of locks, and makes paths from them."""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional, Sequence, TypedDict, Union

from ..records import Mode


class _Named(TypedDict):
    #: The name of the lock.
    name: str


class LockTerms(_Named, total=False):
    """A lock with a mode, a limit and an order of its own, for a group of locks."""

    #: ``shared`` to hold this lock together with other shared leases.
    mode: Optional[Mode]
    #: This lock is granted while fewer than this many leases hold it, and has a slot.
    limit: Optional[int]
    #: The order of this lock, which must be held alone.
    order: Optional[int]


#: One lock, or a group of locks: each a name, or a name with terms of its own.
Names = Union[str, LockTerms, Sequence[Union[str, LockTerms]]]

# Segments with `/` between; the last of several is no operation. The messages of the gateway say why.
_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._:@~-]+"
_OPERATION = r"/(?:break|check|granted-order|history|hold|release|renew)\Z"
_NAME = re.compile(rf"(?!.*{_OPERATION}){_SEGMENT}(?:/{_SEGMENT})*")
_FIELDS = ("name", "mode", "limit", "order")
_LONGEST = 200
_MOST = 16


def check_name(name: object) -> str:
    """Returns the name if it is a valid lock name, and raises otherwise."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a lock is a text, not {name!r}")
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        rule = f"1 to {_LONGEST} of A-Z a-z 0-9 . _ : @ ~ - /, and no path that a proxy may change"
        raise ValueError(f"{name!r} cannot name a lock: {rule}")
    return name


def listed(names: Names) -> tuple[Union[str, Mapping[str, Any]], ...]:
    """The locks, each a name, or a copy of the mapping with its name and its terms."""
    if isinstance(names, (str, Mapping)):
        names = (names,)
    try:
        return tuple(_terms(lock) if isinstance(lock, Mapping) else lock for lock in names)
    except TypeError:
        raise TypeError(f"locks are given as a name, or a list of names, not {names!r}") from None


def _terms(lock: Mapping[str, Any]) -> Mapping[str, Any]:
    for field in lock:
        if field not in _FIELDS:
            raise ValueError(f"a lock has no field {field!r}, only {', '.join(_FIELDS)}")
    return dict(lock)


def check_names(locks: Sequence[Union[str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """Checks the name of one lock, or the names of a group, and returns them."""
    checked = tuple(check_name(lock.get("name") if isinstance(lock, Mapping) else lock) for lock in locks)
    if not 1 <= len(checked) <= _MOST:
        raise ValueError(f"a group has 2 to {_MOST} locks, not {len(checked)}")
    if len(set(checked)) < len(checked):
        raise ValueError("a group names each lock once")
    return checked


def lease_path(names: Sequence[str], operation: str = "") -> str:
    """The path of a lease, of one lock or of a group of locks."""
    if len(names) == 1:
        # All other characters of a lock name stand for themselves in a path.
        return f"/locks/{names[0].replace('/', '%2F')}{operation}"
    return f"/locks?names={','.join(names)}"


def other_lock(answered: Sequence[str], asked: Sequence[str]) -> str:
    """The message for an answer about other locks than those of the request."""
    about = f"the answer is about {', '.join(answered)}, not {', '.join(asked)}"
    return f"{about}: a proxy has changed the path of the request"
