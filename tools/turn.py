"""The calls of one reply: all decided first, then run one after another, every one of them with one result.

    plan = plan_turn(calls, tools, progress, limits)     # pure: the same state gives the same plan
    ...                                                  # ask a person about plan.questions
    done = run_turn(plan, run, answers={"c2": Approval("Ann", fingerprint)})
    done.results                                         # in the order of the calls, one for each id

Nothing has run while a question is open, so a node that pauses to ask may plan again when it goes on. The plan lies in
``tools.plan``, what a person answers too.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tools.call import ToolCall, ToolResult, cut, error_result
from tools.errors import ToolError
from tools.give_up import GIVE_UP
from tools.limits import Amounts, LimitReachedError, Usage, refund, reserve, settle, time_slice
from tools.loops import note
from tools.plan import Approval, Planned, Progress, Rejection, StopReason, TurnPlan
from tools.tool import ToolContext
from tools.transcript import LOST

LONGEST_CALL: Final = 30_000
"""Milliseconds a call may take unless the limits leave less."""

_EDIT_LIMIT: Final = 1_000


@dataclass(frozen=True, slots=True)
class TurnDone:
    """A turn that was run: one result for each call, in the order of the calls, and why the run must end, if it must.

    ``calls`` are the calls as they ran or would have run, ``edited`` those whose arguments a person changed: they
    belong into the conversation in place of what the model wrote (``tools.with_edited``).
    """

    results: tuple[ToolResult, ...]
    calls: tuple[ToolCall, ...]
    edited: tuple[ToolCall, ...]
    progress: Progress
    stop: StopReason | None

    @property
    def by_id(self) -> dict[str, ToolResult]:
        """The results by the ids of their calls."""
        return {result.call_id: result for result in self.results}


def _never() -> bool:
    return False


def _nowhere(result: ToolResult) -> None:
    del result


def run_turn(
    plan: TurnPlan,
    run: Callable[[ToolCall, ToolContext], ToolResult],
    *,
    context: ToolContext | None = None,
    answers: Mapping[str, Approval | Rejection] | None = None,
    longest: int = LONGEST_CALL,
    clock: Callable[[], float] = time.monotonic,
    cancelled: Callable[[], bool] = _never,
    record: Callable[[ToolResult], None] = _nowhere,
) -> TurnDone:
    """Run what was planned and close every call.

    ``run`` executes one call (``tools.execute`` with its tools, or ``AuditedTools.execute``); what it raises becomes an
    error result. ``answers`` holds what a person said, by the id of the call; a call without an answer is not run.
    Each call gets a deadline of ``longest`` milliseconds or what the limits leave, and what it took by ``clock``, in
    seconds, is put down. Once ``cancelled`` says so, no further call starts. ``record`` is given each result at once;
    when something stops the program from outside (KeyboardInterrupt and other exceptions that are no ``Exception``), it
    is given an error result for every call that has none, and the stop goes on its way.
    """
    turn = _Turn(plan, run, context or ToolContext(), answers or {}, longest, clock)
    try:
        for item in plan.planned:
            turn.close(item, cancelled())
            record(turn.results[-1])
    except BaseException as stop:
        for item in plan.planned[len(turn.results) :]:
            try:
                record(error_result(item.call, "failed", LOST))
            except Exception as second:
                stop.add_note(f"the result of {item.call.id} could not be recorded: {second}")
        raise
    return turn.done()


class _Turn:
    """What grows while a turn runs."""

    def __init__(
        self,
        plan: TurnPlan,
        run: Callable[[ToolCall, ToolContext], ToolResult],
        context: ToolContext,
        answers: Mapping[str, Approval | Rejection],
        longest: int,
        clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._run = run
        self._context = context
        self._answers = answers
        self._longest = longest
        self._clock = clock
        self._usage: Usage = plan.progress.usage
        self._history = plan.progress.history
        self._stop: StopReason | None = plan.stop
        self._calls: list[ToolCall] = []
        self._edited: list[ToolCall] = []
        self.results: list[ToolResult] = []

    def done(self) -> TurnDone:
        progress = Progress(self._usage, self._history)
        return TurnDone(tuple(self.results), tuple(self._calls), tuple(self._edited), progress, self._stop)

    def close(self, item: Planned, cancelled: bool) -> None:
        """Give one call its result, settle what was set aside for it, and put it into the history."""
        took: Amounts | None = Amounts(tool_calls=1)
        call = item.call
        if item.result is not None:
            result = item.result
        elif cancelled:
            result, took = error_result(call, "failed", "The run was cancelled before this call started."), None
            self._stop = self._stop or "cancelled"
        else:
            call, result, started = self._released(item)
            took = Amounts(tool_calls=1, money=item.price if started else 0)
        if item.is_reserved:
            self._usage = refund(self._usage, call.id) if took is None else settle(self._usage, call.id, took)
        temporary = result.kind == "temporary" or item.is_retry
        self._history = note(self._history, call.fingerprint, temporary=temporary, data_version=self._plan.data_version)
        if call.name == GIVE_UP and not result.is_error:
            self._stop = self._stop or "gave_up"
        self._calls.append(call)
        self.results.append(result)

    def _released(self, item: Planned) -> tuple[ToolCall, ToolResult, bool]:
        """The call as it ran, its result, and whether the tool was entered."""
        if item.action == "run":
            return item.call, *self._timed(item.call, item.by)
        answer = self._answers.get(item.call.id)
        call = item.call if answer is None else answer.final(item.call, self._plan.tools)
        if isinstance(call, ToolResult):
            return item.call, call, False
        if answer is None:
            text = f"{call.name} needs an approval, and nobody gave one."
            return call, error_result(call, "not_permitted", text), False
        result, started = self._timed(call, answer.by)
        if call.arguments != item.call.arguments:
            self._edited.append(call)
            shown = cut(json.dumps(call.arguments, ensure_ascii=True), _EDIT_LIMIT)
            text = f"(Edited by a person, {answer.by}, before it ran: {shown}) {result.content}"
            result = dataclasses.replace(result, content=text)
        return call, result, started

    def _timed(self, call: ToolCall, by: str | None) -> tuple[ToolResult, bool]:
        limits, id = self._plan.limits, f"{call.id}/time"
        try:
            longest = time_slice(limits, self._usage, self._longest)
            self._usage = reserve(limits, self._usage, id, Amounts(milliseconds=longest))
        except LimitReachedError as error:
            self._stop = self._stop or "budget_exhausted"
            return error_result(call, "budget", f"{call.name} was not run: {error}."), False
        deadline = time.monotonic() + longest / 1_000
        if self._context.deadline is not None:
            deadline = min(deadline, self._context.deadline)
        context = dataclasses.replace(self._context, call_id=call.id, approved_by=by, deadline=deadline)
        started = self._clock()
        try:
            result = self._run(call, context)
        except Exception as error:
            result = error_result(call, "failed", self._broken(call, error))
        took = max(0, round((self._clock() - started) * 1_000))
        self._usage = settle(self._usage, id, Amounts(milliseconds=took))
        if not isinstance(result, ToolResult) or result.call_id != call.id:
            text = f"{call.name}: the program gave no result of this call. It is not known what was done."
            result = error_result(call, "failed", text)
        return result, True

    def _broken(self, call: ToolCall, error: Exception) -> str:
        text = str(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
        if self._plan.tools[call.name].tier == "safe":
            return f"{call.name}: {text}"
        return f"{call.name}: {text}. It is not known what was done; do not call it again."
