"""What can go wrong. No message holds a token, an idempotency key or an API key."""

from __future__ import annotations

from typing import Any, Callable, Literal, Mapping, Optional, Sequence

from .records import Holder

#: ``expired``: it could not be renewed in time, or its hold limit was reached. ``lost``: the gateway says that it has ended.
#: ``broken``: an operator broke it, or it was not released when one had asked for it. ``released``: it was released here.
#: ``forked``: it is that of the process that forked this one.
LostWhy = Literal["expired", "lost", "broken", "released", "forked"]


class LatchgateError(Exception):
    """A request that was refused or failed."""

    def __init__(
        self,
        message: str,
        *,
        status: Optional[int] = None,
        code: Optional[str] = None,
        problem: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        #: The problem document of the gateway, if there was one.
        self.problem: Mapping[str, Any] = problem or {}
        #: The HTTP status, if there was an answer.
        self.status = status if status is not None else self.problem.get("status")
        #: Which problem it is: ``locked``, ``lease-lost``, ..
        self.code = code if code is not None else self.problem.get("code")
        #: What was wrong in this case, in a sentence.
        self.detail: str = str(self.problem.get("detail") or message)

    def __reduce__(self) -> tuple[Callable[..., LatchgateError], tuple[object, ...]]:
        # By itself an exception would be made again from its message alone: pools of processes pickle what is raised.
        return _made_again, (type(self), self.args, dict(self.__dict__))


class LockHeld(LatchgateError):
    """Somebody else holds the lock, and did so until the wait was over."""

    def __init__(self, message: str, *, problem: Mapping[str, Any]) -> None:
        super().__init__(message, status=423, problem=problem)
        #: Who holds it: at most 100 of them.
        self.holders = tuple(Holder.of(holder) for holder in problem.get("holders") or ())
        #: How many hold it.
        self.holder_count: int = problem.get("holder_count") or len(self.holders)
        #: How many wait for it.
        self.waiters: int = problem.get("waiters") or 0
        #: Of several locks the one that is held, if that is known.
        self.name: Optional[str] = problem.get("name")


class LeaseLost(LatchgateError):
    """The lease is over. Stop the work that the lock protects."""

    def __init__(self, message: str, why: LostWhy, *, problem: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(message, status=410 if problem else None, code="lease-lost", problem=problem)
        #: How it ended.
        self.why: LostWhy = why
        #: Whether somebody else holds the lock now, if the gateway said so.
        self.held: Optional[bool] = self.problem.get("held")

    def again(self) -> LeaseLost:
        """A copy to raise: a traceback belongs to one raise."""
        return LeaseLost(str(self), self.why, problem=self.problem or None)


class OutcomeUnknown(LatchgateError):
    """It may have happened or not, and nobody could say which in time."""


class GatewayUnreachable(LatchgateError):
    """No gateway could be reached. Nothing happened."""


def _made_again(kind: type[LatchgateError], args: tuple[object, ...], fields: Mapping[str, Any]) -> LatchgateError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


def _held_by(held: LockHeld, names: Sequence[str]) -> str:
    first, *others = held.holders or (Holder(),)
    who = first.owner or ("a program that uses no gateway" if first.foreign else "somebody")
    more = max(held.holder_count - 1, len(others))
    others_too = f" and {more} other{'s' * (more > 1)}" if more else ""
    return f"{held.name or ', '.join(names) or 'the lock'} is held by {who}{others_too} (locked, 423)"


def refusal(problem: Mapping[str, Any], names: Sequence[str] = ()) -> LatchgateError:
    """The error that a problem document is, if it answers a request for these locks."""
    detail = str(problem.get("detail") or problem.get("title") or "").rstrip(".")
    code = problem.get("code")
    message = f"{detail} ({code}, {problem.get('status')})"
    if code == "locked":
        try:
            held = LockHeld(message, problem=problem)
            held.args = (_held_by(held, names),)
            return held
        except (KeyError, TypeError, ValueError, AttributeError):
            # Who holds it was not told in a way that can be read.
            return LatchgateError(message, problem=problem)
    if code == "lease-lost":
        # The gateway says in the detail only that an operator was it.
        why: LostWhy = "broken" if "broken by" in detail else "lost"
        return LeaseLost(message, why, problem=problem)
    if code == "outcome-unknown":
        return OutcomeUnknown(message, problem=problem)
    return LatchgateError(message, problem=problem)
