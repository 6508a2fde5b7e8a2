"""How a turn of the desk ended, in the kinds that every run of an agent shares, with what was found and what blocked.

It is read from the stored state, so that it can be told of conversations that ended long ago too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from desk.providers.base import this_turn
from desk.state import K_MAX, turn_trace
from tools import Ending, EndingKind, ToolCall, ToolResult, end, end_with_answer, exchanges, history_of, judge

_LOOKED_UP: Final = ("retrieve", "calculate")


def ending(state: Mapping[str, Any]) -> Ending:
    """Give the ending of a turn that has ended: the newest of a conversation.

    An answer on a route that looks something up counts only if something was found. A turn that a person refused is
    ``not_permitted``. One that was cut off after ``K_MAX`` calls of the language model is ``budget_exhausted``, or
    ``repeated_calls`` where its last call was made again and again; any other failure is a ``tool_failure``.

    Raises:
        ValueError: the turn has not ended.
    """
    calls = exchanges(this_turn(state.get("messages") or []))
    answer, trace = state.get("answer") or "", turn_trace(state)
    match state.get("outcome"):
        case "answered":
            return end_with_answer(answer, calls, needs_evidence=state.get("route") in _LOOKED_UP)
        case "sent":
            return end("answered", calls, answer=answer)
        case "asked_user":
            return end("asked_user", calls, answer=answer)
        case "rejected":
            return end("not_permitted", calls, answer=answer, reason=f"a person refused: {_refusal(state)}")
        case "escalated":
            return end("escalated", calls, answer=answer, reason=str(trace[-1]["reason"]))
        case "failed":
            return end(_failed(state, calls), calls, answer=answer, reason=_reason(state, trace))
    raise ValueError("the turn has not ended; an ending is there once it has an outcome")


def _failed(state: Mapping[str, Any], calls: Sequence[tuple[ToolCall, ToolResult]]) -> EndingKind:
    if calls and judge(history_of(calls[:-1]), calls[-1][0].fingerprint).verdict == "stop":
        return "repeated_calls"
    cut_off = state.get("k", 0) >= K_MAX and any(result.kind == "budget" for _, result in calls)
    return "budget_exhausted" if cut_off else "tool_failure"


def _reason(state: Mapping[str, Any], trace: list[dict[str, Any]]) -> str:
    return str(state.get("failure") or trace[-1].get("reason") or "the mail did not go out")


def _refusal(state: Mapping[str, Any]) -> str:
    return str((state.get("review") or {}).get("reason", "no reason is kept"))
