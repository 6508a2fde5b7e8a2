"""What a person may answer when a mail waits, and what the answer means.

    {"verdict": "approve", "by": "Ann"}
    {"verdict": "reject", "reason": "the course is over", "by": "Ann"}
    {"verdict": "edit", "arguments": {"subject": "..."}, "by": "Ann"}

Edited arguments are the person's approval of them: the hard rules are applied again, the decision model is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from desk.errors import BadInputError
from desk.policy import Case, facts
from tools import RECORD_EMAIL, Tool, ToolCall, ToolContext, execute

Verdict: TypeAlias = Literal["approve", "reject", "edit"]
EDITABLE: Final = ("to", "subject", "body")
REASON_LIMIT: Final = 500
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "approve": frozenset({"verdict", "by"}),
    "reject": frozenset({"verdict", "by", "reason"}),
    "edit": frozenset({"verdict", "by", "arguments"}),
}


def read_answer(answer: object, state: Mapping[str, Any], send_email: Tool) -> dict[str, Any]:
    """Give a person's answer about the pending mail in its stored form, bound to the exact arguments it is about.

    Raises:
        BadInputError: the answer is not one of the three forms, or edited arguments break a rule.
    """
    if not isinstance(answer, Mapping):
        raise BadInputError("answer", f"{answer!r} is no answer; write approve, reject with a reason, or edit")
    verdict = answer.get("verdict")
    if not isinstance(verdict, str) or verdict not in _FIELDS:
        raise BadInputError("verdict", f"{verdict!r} is none of approve, reject, edit")
    unknown = set(answer) - _FIELDS[verdict]
    if unknown:
        raise BadInputError("answer", f"{sorted(unknown)!r} does not belong to {verdict!r}")
    by = _text(answer.get("by", "a reviewer"), "by")
    pending = state["pending"]
    arguments = dict(pending["arguments"])
    if verdict == "edit":
        arguments |= _edits(answer.get("arguments"))
        _check_rules(arguments, state, send_email)
    call = ToolCall(pending["id"], pending["name"], arguments)
    read: dict[str, Any] = {"verdict": verdict, "by": by, "arguments": arguments, "fingerprint": call.fingerprint}
    if verdict == "reject":
        read["reason"] = _text(answer.get("reason"), "reason")
    return read


def may_be_parked(call: ToolCall, case: Case, send_email: Tool) -> bool:
    """Tell whether the arguments of a mail are well formed; P6 and permission are the guard's to decide."""
    return execute(call, [send_email], record_context(case), dry_run=True).kind in ("ok", "not_permitted")


def record_context(case: Case, **fields: Any) -> ToolContext:
    """Give the context of a tool call: the address on the record, and ``fields`` of ``ToolContext``."""
    return ToolContext(facts={RECORD_EMAIL: facts(case).record_address}, **fields)


def _edits(edits: object) -> dict[str, str]:
    if not isinstance(edits, Mapping) or not edits:
        raise BadInputError("edit", "nothing is changed; write for example subject=Your place")
    for name, value in edits.items():
        if name not in EDITABLE:
            raise BadInputError("edit", f"{name!r} cannot be edited; there are {', '.join(EDITABLE)}")
        if not isinstance(value, str):
            raise BadInputError("edit", f"{name} is {value!r}; write text")
    return dict(edits)


def _check_rules(arguments: dict[str, object], state: Mapping[str, Any], send_email: Tool) -> None:
    call = ToolCall(state["pending"]["id"], send_email.name, arguments)
    result = execute(call, [send_email], record_context(Case.from_json(state["case"])), dry_run=True)
    if result.is_error:
        raise BadInputError("edit", result.content)


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadInputError(field, f"{value!r} says nothing; write a few words")
    if len(value) > REASON_LIMIT:
        raise BadInputError(field, f"it has {len(value)} characters and {REASON_LIMIT} are allowed")
    return value.strip()
