"""What will become of each call of a reply, decided before any of them runs, and what a person may answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tools.call import ToolCall, ToolResult, error_result, is_name
from tools.execute import prepare
from tools.limits import Amounts, LimitReachedError, Limits, Usage, reserve
from tools.loops import CallHistory, judge, note
from tools.plain import PlainRecord
from tools.tool import Tool, tools_by_name

Action: TypeAlias = Literal["run", "ask", "refuse"]
"""What is to become of a call: it runs, a person is asked, or it does not run."""

StopReason: TypeAlias = Literal["repeated_calls", "budget_exhausted", "gave_up", "cancelled"]
"""Why a run must end after a turn; the first three are kinds of endings as well."""


class Progress(PlainRecord, frozen=True, forbid_unknown_fields=True):
    """What the state of a run keeps of its calls: what was used, and what was called."""

    usage: Usage = Usage()
    history: CallHistory = CallHistory()


@dataclass(frozen=True, slots=True)
class Release:
    """What a guard says of a call. ``by`` names who releases a call that runs, ``reason`` says why one does not."""

    action: Action
    by: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Approval:
    """A person releases a call: the one with this fingerprint, or other arguments for it."""

    by: str
    fingerprint: str
    arguments: Mapping[str, object] | None = None

    def final(self, call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall | ToolResult:
        """The call that may run, or the error result where the approval is not for this call or cannot be used."""
        if not is_name(self.by):
            return error_result(call, "not_permitted", "The approval does not say who gave it.")
        if self.fingerprint != call.fingerprint:
            return error_result(call, "not_permitted", "The approval is for another call or other arguments.")
        if self.arguments is None:
            return call
        return prepare(dataclasses.replace(call, arguments=dict(self.arguments)), tools)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A person decides against a call."""

    by: str
    reason: str

    def final(self, call: ToolCall, tools: Mapping[str, Tool]) -> ToolResult:
        """The error result that tells the model so."""
        del tools
        return error_result(call, "not_permitted", f"Not executed. A person, {self.by}, decided: {self.reason}")


@dataclass(frozen=True, slots=True)
class Planned:
    """One call and what was decided on it; ``result`` is there already where it does not run.

    ``price`` is what it costs at most, ``is_reserved`` says that the limits had room for it, ``is_retry`` that it was
    refused as one attempt too many at something that keeps failing for the time being.
    """

    call: ToolCall
    action: Action
    by: str | None = None
    result: ToolResult | None = None
    price: int = 0
    is_reserved: bool = True
    is_retry: bool = False


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """A reply decided on: its calls in order, and the progress of the run with room set aside for each."""

    planned: tuple[Planned, ...]
    progress: Progress
    tools: Mapping[str, Tool]
    limits: Limits
    data_version: str
    stop: StopReason | None

    @property
    def questions(self) -> tuple[ToolCall, ...]:
        """The calls a person is to be asked about, with the arguments that will run."""
        return tuple(item.call for item in self.planned if item.action == "ask")


Decide: TypeAlias = Callable[[ToolCall, Tool], Release]
"""Looks at a call in the form that will run and says what becomes of it."""


def by_tier(call: ToolCall, tool: Tool) -> Release:
    """The rule where there is no guard: a safe tool runs, for a dangerous one a person is asked."""
    del call
    return Release("run") if tool.tier == "safe" else Release("ask")


def plan_turn(
    calls: Sequence[ToolCall],
    tools: Iterable[Tool],
    progress: Progress | None = None,
    limits: Limits | None = None,
    *,
    decide: Decide = by_tier,
    prices: Mapping[str, int] | None = None,
    data_version: str = "",
) -> TurnPlan:
    """Decide on every call of a reply, in order. Pure where ``decide`` is.

    Each call takes one of the tool calls that the limits allow, whether it can run or not; one past the limits gets a
    result of kind ``budget`` and takes none. A call that goes round in circles (see ``tools.loops``) does not run, and
    if it ends the run, neither does any other call of the reply. ``prices`` says what one call of a tool costs at most,
    in millionths. A ``decide`` that raises refuses the call.

    Raises:
        ValueError: two calls have one id; ``tools.admit`` makes them unique before they are stored.
    """
    ids = [call.id for call in calls]
    if len(set(ids)) != len(ids):
        raise ValueError(f"the ids {ids!r} are not unique; pass the calls through `admit` before they are stored")
    known, allowed, start = tools_by_name(tools), limits or Limits(), progress or Progress()
    usage, history = start.usage, start.history
    stop: StopReason | None = None
    planned: list[Planned] = []
    for call in calls:
        price = (prices or {}).get(call.name, 0)
        ready = prepare(call, known)
        seen = call if isinstance(ready, ToolResult) else ready
        judgement = judge(history, seen.fingerprint, data_version)
        history = note(history, seen.fingerprint, temporary=judgement.is_retry, data_version=data_version)
        try:
            usage = reserve(allowed, usage, call.id, Amounts(tool_calls=1, money=price), tool=call.name)
        except LimitReachedError as error:
            result = error_result(call, "budget", f"{call.name} was not run: {error}.")
            planned.append(Planned(seen, "refuse", None, result, is_reserved=False))
            stop = stop or "budget_exhausted"
            continue
        if judgement.verdict != "go":
            result = error_result(call, "budget", judgement.text(call.name))
            planned.append(Planned(seen, "refuse", None, result, is_retry=judgement.is_retry))
            stop = "repeated_calls" if judgement.verdict == "stop" else stop
        elif isinstance(ready, ToolResult):
            planned.append(Planned(seen, "refuse", None, ready))
        else:
            planned.append(_decided(seen, known[seen.name], decide, price))
    if stop == "repeated_calls":
        planned = [_ended(item) for item in planned]
    return TurnPlan(tuple(planned), Progress(usage, start.history), known, allowed, data_version, stop)


def _decided(call: ToolCall, tool: Tool, decide: Decide, price: int) -> Planned:
    try:
        release = decide(call, tool)
        action, by, reason = release.action, release.by, release.reason
    except Exception as error:  # whatever failed, the call does not run
        action, by, reason = "refuse", None, f"no decision could be made ({type(error).__name__})"
    if action in ("run", "ask"):
        return Planned(call, action, by, price=price)
    return Planned(call, "refuse", by, error_result(call, "not_permitted", f"{call.name} was not run: {reason}."))


def _ended(item: Planned) -> Planned:
    if item.result is not None:
        return item
    text = f"{item.call.name} was not run: the run ends, because calls are made again and again."
    return Planned(item.call, "refuse", None, error_result(item.call, "budget", text))
