"""Checks the names of locks, and makes paths from them."""

from __future__ import annotations

import re
from typing import Sequence, Union

#: The name of one lock, or the names of a group of locks.
Names = Union[str, Sequence[str]]

# No character of a lock name needs escaping in a path.
_NAME = re.compile(r"\.*[A-Za-z0-9_:@~-][A-Za-z0-9._:@~-]*|\.{3,}")
_LONGEST = 200
_MOST = 16


def check_name(name: str) -> str:
    """Returns the name if it is a valid lock name, and raises otherwise."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a lock is a text, not {name!r}")
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a lock: 1 to {_LONGEST} of A-Z a-z 0-9 . _ : @ ~ -, and not only dots")
    return name


def check_names(names: Names) -> tuple[str, ...]:
    """Checks the name of one lock, or the names of a group."""
    if isinstance(names, str):
        return (check_name(names),)
    try:
        listed = tuple(names)
    except TypeError:
        raise TypeError(f"locks are given as a name, or a list of names, not {names!r}") from None
    checked = tuple(check_name(name) for name in listed)
    if not 1 <= len(checked) <= _MOST:
        raise ValueError(f"a group has 2 to {_MOST} locks, not {len(checked)}")
    if len(set(checked)) < len(checked):
        raise ValueError("a group names each lock once")
    return checked


def lease_path(names: Sequence[str], operation: str = "") -> str:
    """The path of a lease, of one lock or of a group of locks."""
    if len(names) == 1:
        return f"/locks/{names[0]}{operation}"
    return f"/locks?names={','.join(names)}"
