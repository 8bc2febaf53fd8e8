"""The errors of the client. No message contains a token, an idempotency key or an API key."""

from __future__ import annotations

from typing import Any, Callable, Literal, Mapping, Optional, Sequence

from .records import Holder

#: How a lease was lost. ``expired``: it could not be renewed in time, or its hold limit was reached. ``lost``: the
#: gateway reported that it has ended. ``broken``: an operator broke it, or it was not released after a release request.
#: ``released``: this program released it. ``forked``: it belongs to the process that forked this one.
LostWhy = Literal["expired", "lost", "broken", "released", "forked"]


class LatchgateError(Exception):
    """The error of a request that was refused or failed."""

    def __init__(
        self,
        message: str,
        *,
        status: Optional[int] = None,
        code: Optional[str] = None,
        problem: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        #: The problem document of the gateway; empty if the gateway sent none.
        self.problem: Mapping[str, Any] = problem or {}
        #: The HTTP status of the answer; ``None`` without an answer.
        self.status = status if status is not None else self.problem.get("status")
        #: The code of the problem: ``locked``, ``lease-lost``, ..
        self.code = code if code is not None else self.problem.get("code")
        #: What was wrong with this request, in a sentence.
        self.detail: str = str(self.problem.get("detail") or message)

    def __reduce__(self) -> tuple[Callable[..., LatchgateError], tuple[object, ...]]:
        # Pickling of an exception keeps only its message, but pools of processes pickle exceptions, so all fields are
        # kept here.
        return _made_again, (type(self), self.args, dict(self.__dict__))


class LockHeld(LatchgateError):
    """Other callers held the lock until the wait was over."""

    def __init__(self, message: str, *, problem: Mapping[str, Any]) -> None:
        super().__init__(message, status=423, problem=problem)
        #: The holders of the lock, at most 100.
        self.holders = tuple(Holder.of(holder) for holder in problem.get("holders") or ())
        #: The number of holders of the lock.
        self.holder_count: int = problem.get("holder_count") or len(self.holders)
        #: The number of waiters for the lock.
        self.waiters: int = problem.get("waiters") or 0
        #: The time until the request could be granted the lock, in milliseconds, if the lock has no holder and rests.
        self.available_in_ms: Optional[int] = problem.get("available_in_ms")
        #: For a group: the lock that is held, if known.
        self.name: Optional[str] = problem.get("name")


class LeaseLost(LatchgateError):
    """The lease has ended. Stop the work that the lock protects."""

    def __init__(self, message: str, why: LostWhy, *, problem: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(message, status=410 if problem else None, code="lease-lost", problem=problem)
        #: How the lease was lost.
        self.why: LostWhy = why
        #: Whether another lease holds the lock now, if the gateway reported that.
        self.held: Optional[bool] = self.problem.get("held")

    def again(self) -> LeaseLost:
        """Makes a copy of the error to raise, because each raise needs a traceback of its own."""
        return LeaseLost(str(self), self.why, problem=self.problem or None)


class OutcomeUnknown(LatchgateError):
    """The outcome of the request is unknown: it may have been carried out, and no answer came in time."""


class GatewayUnreachable(LatchgateError):
    """No gateway could be reached, so nothing happened."""


def _made_again(kind: type[LatchgateError], args: tuple[object, ...], fields: Mapping[str, Any]) -> LatchgateError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


def _held_by(held: LockHeld, names: Sequence[str]) -> str:
    if held.available_in_ms is not None:
        return f"{held.name or ', '.join(names) or 'the lock'} rests for another {held.available_in_ms} ms (locked, 423)"
    first, *others = held.holders or (Holder(),)
    if first.reservation is not None:
        by = f" by {first.reservation.reserved_by}" if first.reservation.reserved_by else ""
        until = f"until {first.reservation.until} because {first.reservation.reason}"
        return f"{held.name or ', '.join(names) or 'the lock'} is reserved{by} {until} (locked, 423)"
    who = first.owner or ("a program that uses no gateway" if first.foreign else "somebody")
    more = max(held.holder_count - 1, len(others))
    others_too = f" and {more} other{'s' * (more > 1)}" if more else ""
    return f"{held.name or ', '.join(names) or 'the lock'} is held by {who}{others_too} (locked, 423)"


def refusal(problem: Mapping[str, Any], names: Sequence[str] = ()) -> LatchgateError:
    """The error for the gateway's problem document, as the answer to a request for these locks."""
    detail = str(problem.get("detail") or problem.get("title") or "").rstrip(".")
    code = problem.get("code")
    message = f"{detail} ({code}, {problem.get('status')})"
    if code == "locked":
        try:
            held = LockHeld(message, problem=problem)
            held.args = (_held_by(held, names),)
            return held
        except (KeyError, TypeError, ValueError, AttributeError):
            # The holders in the problem document cannot be read, so the error does not name them.
            return LatchgateError(message, problem=problem)
    if code == "lease-lost":
        # Only the detail of the problem says whether an operator broke the lease.
        why: LostWhy = "broken" if "broken by" in detail else "lost"
        return LeaseLost(message, why, problem=problem)
    if code == "outcome-unknown":
        return OutcomeUnknown(message, problem=problem)
    return LatchgateError(message, problem=problem)
