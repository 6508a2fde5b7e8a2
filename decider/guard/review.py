"""One question to a person about all the calls of a turn that wait, and what the answer means.

    {"by": "Ann", "verdicts": {"call-1": {"verdict": "approve"},
                               "call-2": {"verdict": "edit", "arguments": {"amount": 50}},
                               "call-3": {"verdict": "reject", "reason": "paid already"}}}

Where nobody can be asked there is a refusal instead, which can wait in a queue. All is plain data: store decisions
before the pause, and what came of the answer after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, Literal, TypeAlias

import msgspec

from decider.guard.approvals import Approval, Rejection, approve
from decider.guard.check import Guard
from decider.guard.errors import ApprovalError
from decider.guard.records import Call, Decision

Waiting: TypeAlias = tuple[Call, Decision]
"""A call with the decision that made it wait."""

LIFETIME: Final = timedelta(hours=24)
_FIELDS: Final = {"approve": {"verdict"}, "reject": {"verdict", "reason"}, "edit": {"verdict", "arguments"}}


class RefusedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a call that does not run: for the model a typed error, for people an entry of a queue."""

    call_id: str
    tool: str
    status: Literal["needs_human_review", "blocked"]
    text: str
    arguments: dict[str, object]
    decision: Decision


def waiting(turn: Iterable[Waiting]) -> tuple[Waiting, ...]:
    """Return the calls of a turn that a person has to decide on, in their order."""
    return tuple((call, decision) for call, decision in turn if decision.action in ("ask", "escalate"))


def review_question(turn: Iterable[Waiting]) -> dict[str, object]:
    """Return one question about all calls of a turn that wait, as plain data; raises ApprovalError when none does.

    It shows the arguments that would run and the numbers that were used.
    """
    pending = waiting(turn)
    if not pending:
        raise ApprovalError("not_waiting", "no call of this turn waits for a person", "Ask nothing.")
    if len({call.id for call, _ in pending}) != len(pending):
        raise ApprovalError("other_call", "two calls of this turn have the same id", "Give each its own.")
    return {
        "kind": "approve_calls",
        "calls": [{"arguments": dict(call.arguments), **decision.to_dict()} for call, decision in pending],
    }


def read_review(
    answer: object, turn: Iterable[Waiting], guard: Guard, lifetime: timedelta = LIFETIME
) -> tuple[Approval | Rejection, ...]:
    """Return what a person's answer means for each call that waits, in their order.

    Every one needs a verdict and no other may have one, so that nothing is approved by leaving it out. Hard rules
    apply to edited arguments, and to approved ones again. Raises ApprovalError, or BrokenRuleError.
    """
    pending = waiting(turn)
    if len({call.id for call, _ in pending}) != len(pending):
        raise ApprovalError("answer", "two calls that wait have the same id", "Give each call of a turn its own.")
    if not isinstance(answer, Mapping) or set(answer) != {"by", "verdicts"}:
        raise ApprovalError("answer", f"{answer!r} is no answer"[:200], 'Write {"by": ..., "verdicts": {...}}.')
    by, verdicts = answer["by"], answer["verdicts"]
    if not isinstance(by, str) or not by.strip():
        raise ApprovalError("actor", f"'by' is {by!r}"[:200], "Say who answers.")
    if not isinstance(verdicts, Mapping) or set(verdicts) != {call.id for call, _ in pending}:
        expected = ", ".join(repr(call.id) for call, _ in pending)
        raise ApprovalError(
            "answer", "the verdicts do not fit the calls that wait", f"Give one for each of {expected}."
        )
    return tuple(_read_verdict(verdicts[call.id], call, decision, by, guard, lifetime) for call, decision in pending)


def refused(turn: Sequence[Waiting]) -> tuple[RefusedCall, ...]:
    """Return a typed refusal of every call of a turn that may not run by itself, for runs without a person."""
    return tuple(_refusal(call, decision) for call, decision in turn if decision.action != "act")


def _refusal(call: Call, decision: Decision) -> RefusedCall:
    blocked = decision.action == "block"
    why = " ".join(reason.text for reason in decision.reasons)
    text = f"{call.tool} was not run: {why} {'' if blocked else 'A person has to decide on it.'}".strip()
    status: Literal["needs_human_review", "blocked"] = "blocked" if blocked else "needs_human_review"
    return RefusedCall(call.id, call.tool, status, text, dict(call.arguments), decision)


def _read_verdict(
    given: object, call: Call, decision: Decision, by: str, guard: Guard, lifetime: timedelta
) -> Approval | Rejection:
    verdict: object = given.get("verdict") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(verdict, str) or set(given) != _FIELDS.get(verdict):
        raise ApprovalError(
            "answer", f"the verdict on {call.id!r} is {given!r}"[:200], "Approve, reject with a reason, or edit."
        )
    now = guard.now()
    if verdict == "reject":
        reason = given["reason"]
        if not isinstance(reason, str) or not reason.strip():
            raise ApprovalError("answer", f"the rejection of {call.id!r} has no reason", "Say why.")
        return Rejection(decision.id, call.id, call.tool, by, reason, now)
    arguments = given.get("arguments")
    if verdict == "edit" and (not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments)):
        raise ApprovalError("answer", f"the edited arguments of {call.id!r} are no mapping", "Give all of them.")
    rule = guard.rules.get(call.tool)
    if rule is None:
        raise ApprovalError("unlisted_tool", f"no rule is about the tool {call.tool!r}", "Reject the call.")
    rule.check_hard_rules(call if arguments is None else Call(call.id, call.tool, arguments, call.thread, call.state))
    return approve(
        call,
        decision,
        actor=by,
        now=now,
        lifetime=lifetime,
        arguments=arguments,
        check_hard_rules=rule.check_hard_rules,
    )
