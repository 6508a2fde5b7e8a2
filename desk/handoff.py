"""The record a person reads who takes a case over: it stands alone, without the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from desk.policy import Case
from desk.state import turn_actions, turn_trace
from desk.trace import number

LIMIT: Final = 1_500
"""Characters a hand-off stays under."""

_LIMITS: Final = {"participant": 120, "request": 280, "reason": 280, "done": 150, "pending_email": 200}
_PAIRS: Final = (("p_route", "tau_route"), ("p_allow", "tau_esc"), ("p_allow", "tau_act"))


@dataclass(frozen=True, slots=True)
class Handoff:
    """Who asked for what, where and why the desk stopped, what it did, and what it would have done next."""

    participant: str
    request: str
    stopped_at: str
    reason: str
    probabilities: str
    done: str
    pending_email: str
    next_step: str

    def text(self) -> str:
        """Give the record as lines of text, below ``LIMIT`` characters."""
        names = self.__slots__
        return "\n".join(f"{name.replace('_', ' ')}: {_one_line(getattr(self, name))}" for name in names)


def handoff(state: Mapping[str, Any]) -> Handoff:
    """Read the hand-off of the current turn from its own trace.

    Raises:
        ValueError: the turn did not end in a hand-off.
    """
    trace = turn_trace(state)
    if not trace or trace[-1]["node"] != "escalate":
        raise ValueError("this turn did not end in a hand-off; its last step is not escalate")
    before = trace[-2]["node"] if len(trace) > 1 else "the start"
    parked = trace[-1].get("pending_email")
    return Handoff(
        participant=_cut("participant", _participant(Case.from_json(state["case"]))),
        request=_cut("request", str(state["case"]["request"])),
        stopped_at=f"{before}, step {len(trace) - 1}",
        reason=_cut("reason", str(trace[-1]["reason"])),
        probabilities=_probabilities(trace),
        done=_cut("done", ", ".join(a for a in turn_actions(state) if not a.startswith("escalated")) or "nothing"),
        pending_email=_cut("pending_email", _mail(parked)),
        next_step=_next_step(trace, parked),
    )


def _participant(case: Case) -> str:
    person = case.registration
    about = f", {case.event.topic} ({case.event.id})" if case.event else ", no event known"
    return (f"{person.name} <{person.email}>, {person.status}" if person else "no registration found") + about


def _probabilities(trace: list[dict[str, Any]]) -> str:
    numbers: dict[str, float | None] = {}
    for step in trace:
        numbers |= step["numbers"]
    shown = [f"{p} {number(numbers[p])} ({tau} {number(numbers[tau])})" for p, tau in _PAIRS if p in numbers]
    return "; ".join(shown) or "none"


def _mail(parked: Mapping[str, Any] | None) -> str:
    if parked is None:
        return "none"
    arguments = parked["arguments"]
    to, subject = str(arguments.get("to"))[:80], str(arguments.get("subject"))[:80]
    return f"not sent on this branch (another may have: desk show); to {to}, subject {subject!r}"


def _next_step(trace: list[dict[str, Any]], parked: Mapping[str, Any] | None) -> str:
    if parked is not None:
        return "check the request, then write to the address on the record, or refuse"
    if any(step["node"] == "agent" for step in trace):
        return "answer the participant; the assistant came to no answer"
    return "read the request and decide; the assistant did not start on it"


def _cut(field: str, text: str) -> str:
    limit = _LIMITS[field]
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _one_line(text: str) -> str:
    return " ".join(text.split())
