"""What a run may use, and what it has used: reserved before each call, settled after it, kept in the state.

    usage = reserve(limits, usage, "call-7", Amounts(tool_calls=1))    # before: LimitReachedError says there is no room
    usage = settle(usage, "call-7", Amounts(tool_calls=1))             # after: what it really took
    usage = refund(usage, "call-7")                                    # or it never started

The records are plain data and the functions are pure, so a pause, another process or a fork goes on with the same
counts. What a crash left reserved is taken as used (``forfeit``), because nobody knows how much of it was.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tools.errors import BudgetError, ToolsError
from tools.plain import PlainRecord, check_counts


class Amounts(PlainRecord, frozen=True, forbid_unknown_fields=True):
    """How much of each kind. ``money`` is in millionths of a currency unit; time is what calls took, no pause."""

    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    money: int = 0
    milliseconds: int = 0

    def __post_init__(self) -> None:
        check_counts(self)

    def plus(self, other: Amounts) -> Amounts:
        """Both together."""
        return Amounts(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class Limits(PlainRecord, frozen=True, forbid_unknown_fields=True):
    """The most a run may use of each kind; None allows any amount. ``calls_by_tool`` limits single tools by name."""

    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    money: int | None = None
    milliseconds: int | None = None
    calls_by_tool: dict[str, int] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_counts(self)


class Reservation(PlainRecord, frozen=True, forbid_unknown_fields=True):
    """What a call may still take: its id, the amounts and, for a tool with a limit of its own, the tool."""

    id: str
    amounts: Amounts
    tool: str | None = None


class Usage(PlainRecord, frozen=True, forbid_unknown_fields=True):
    """What a run has spent, in all and by tool, and what is reserved for the calls under way."""

    spent: Amounts = Amounts()
    spent_by_tool: dict[str, int] = msgspec.field(default_factory=dict)
    reserved: tuple[Reservation, ...] = ()

    def in_use(self) -> Amounts:
        """Spent and reserved together."""
        total = self.spent
        for item in self.reserved:
            total = total.plus(item.amounts)
        return total

    def calls_of(self, tool: str) -> int:
        """The calls of one tool with a limit of its own, spent and reserved together."""
        reserved = sum(item.amounts.tool_calls for item in self.reserved if item.tool == tool)
        return self.spent_by_tool.get(tool, 0) + reserved


class LimitReachedError(BudgetError):
    """A call does not fit: ``limit`` names which one, ``allowed``, ``in_use`` and ``wanted`` are the numbers."""

    def __init__(self, limit: str, allowed: int, in_use: int, wanted: int) -> None:
        left = max(0, allowed - in_use)
        super().__init__(f"the budget of {allowed} {limit} is used up: {left} left, {wanted} wanted")
        self.limit = limit
        self.allowed = allowed
        self.in_use = in_use
        self.wanted = wanted

    def __reduce__(self) -> tuple[type[LimitReachedError], tuple[str, int, int, int]]:
        return type(self), (self.limit, self.allowed, self.in_use, self.wanted)


class ReservationError(ToolsError):
    """A reservation that is there already, or is not there: the program settles what it did not reserve."""

    def __init__(self, id: str, problem: str) -> None:
        super().__init__(f"reservation {id!r}: {problem}")
        self.id = id
        self.problem = problem

    def __reduce__(self) -> tuple[type[ReservationError], tuple[str, str]]:
        return type(self), (self.id, self.problem)


def reserve(limits: Limits, usage: Usage, id: str, amounts: Amounts, *, tool: str | None = None) -> Usage:
    """Set aside the most a call can take, before it starts.

    ``tool`` is the tool's name; only tools with a limit of their own are counted by name.

    Raises:
        LimitReachedError: some limit has no room for it; nothing is set aside.
        ReservationError: the id has a reservation already.
    """
    if any(item.id == id for item in usage.reserved):
        raise ReservationError(id, "it is there already; settle or refund it first")
    named = tool if tool in limits.calls_by_tool else None
    for limit, allowed, in_use, wanted in _claims(limits, usage, amounts, named):
        if wanted and in_use + wanted > allowed:
            raise LimitReachedError(limit, allowed, in_use, wanted)
    return msgspec.structs.replace(usage, reserved=(*usage.reserved, Reservation(id, amounts, named)))


def settle(usage: Usage, id: str, took: Amounts) -> Usage:
    """Put down what a call really took in place of what was set aside, be it less or more.

    More than was set aside is put down in full, since it is gone; what does not fit any more is refused from then on.
    Raises ``ReservationError`` for an id without a reservation.
    """
    found, rest = _taken_out(usage, id)
    by_tool = dict(usage.spent_by_tool)
    if found.tool is not None:
        by_tool[found.tool] = by_tool.get(found.tool, 0) + took.tool_calls
    return Usage(usage.spent.plus(took), by_tool, rest)


def refund(usage: Usage, id: str) -> Usage:
    """Drop the reservation of a call that never started. Raises ``ReservationError`` for an id without one."""
    _, rest = _taken_out(usage, id)
    return msgspec.structs.replace(usage, reserved=rest)


def forfeit(usage: Usage) -> Usage:
    """Count everything still reserved as spent: to be called when a run goes on after a crash."""
    for item in usage.reserved:
        usage = settle(usage, item.id, item.amounts)
    return usage


def time_slice(limits: Limits, usage: Usage, longest: int) -> int:
    """The milliseconds a call may take: ``longest``, or what is left if that is less.

    Raises ``LimitReachedError`` when no time is left.
    """
    if limits.milliseconds is None:
        return longest
    in_use = usage.in_use().milliseconds
    left = limits.milliseconds - in_use
    if left <= 0:
        raise LimitReachedError("milliseconds", limits.milliseconds, in_use, longest)
    return min(longest, left)


def _claims(limits: Limits, usage: Usage, amounts: Amounts, tool: str | None) -> Iterator[tuple[str, int, int, int]]:
    """For each limit that is set: its name, what it allows, what is in use, what is wanted."""
    in_use = usage.in_use()
    for name in amounts.__struct_fields__:
        allowed = getattr(limits, name)
        if allowed is not None:
            yield name.replace("_", " "), allowed, getattr(in_use, name), getattr(amounts, name)
    if tool is not None:
        yield f"calls of {tool}", limits.calls_by_tool[tool], usage.calls_of(tool), amounts.tool_calls


def _taken_out(usage: Usage, id: str) -> tuple[Reservation, tuple[Reservation, ...]]:
    for item in usage.reserved:
        if item.id == id:
            return item, tuple(other for other in usage.reserved if other is not item)
    raise ReservationError(id, "there is none with this id; reserve before the call starts")
