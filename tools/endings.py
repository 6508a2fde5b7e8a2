"""How a run ended: one of ten kinds, what was established until then, and what stands in the way.

Every run ends in an ``Ending``, a stopped one too: whoever reads it need not guess from a text whether the task was
done. Only ``answered`` is a success.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from tools.call import ToolCall, ToolResult, cut
from tools.errors import Kind
from tools.plain import PlainRecord

EndingKind: TypeAlias = Literal[
    "answered",
    "asked_user",
    "insufficient_evidence",
    "unsupported",
    "not_permitted",
    "tool_failure",
    "budget_exhausted",
    "repeated_calls",
    "gave_up",
    "escalated",
]
"""How a run ended. ``unsupported`` is a task outside what the agent is for; ``insufficient_evidence`` one within it,
for which nothing was found; ``escalated`` went to a person."""

Exchange: TypeAlias = tuple[ToolCall, ToolResult]
"""A call and its result."""

FINDINGS: Final = 20
"""Findings, and blockers, that an ending holds: the newest ones."""

FINDING_LIMIT: Final = 500
"""Characters of a finding or a blocker."""

_WITH_TEXT: Final = ("answered", "asked_user")
# None stands for every other kind of failure.
_HARDEST_FIRST: Final[Sequence[tuple[EndingKind, Kind | None]]] = (
    ("not_permitted", "not_permitted"),
    ("budget_exhausted", "budget"),
    ("tool_failure", None),
)
_EMPTY: Final = frozenset({"", "[]", "{}", "null", '""'})


class Finding(PlainRecord, frozen=True, forbid_unknown_fields=True):
    """What one call established: the beginning of its result."""

    call_id: str
    tool: str
    content: str


class Blocker(PlainRecord, frozen=True, forbid_unknown_fields=True):
    """One call that failed and was not made good later: the kind of the failure and its text."""

    call_id: str
    tool: str
    kind: Kind
    text: str


class Ending(PlainRecord, frozen=True, forbid_unknown_fields=True):
    """How a run ended. ``answer`` is what the user is told; ``reason`` says why there is no answer."""

    kind: EndingKind
    answer: str = ""
    reason: str = ""
    established: tuple[Finding, ...] = ()
    blockers: tuple[Blocker, ...] = ()

    def __post_init__(self) -> None:
        if self.kind in _WITH_TEXT and not self.answer.strip():
            raise ValueError(f"a run that ended as {self.kind!r} has a text for the user, and this one has none")
        if self.kind not in _WITH_TEXT and not self.reason.strip():
            raise ValueError(f"a run that ended as {self.kind!r} has a reason, and this one has none")

    @property
    def is_success(self) -> bool:
        """Whether the task was done."""
        return self.kind == "answered"

    def text(self) -> str:
        """The ending as lines to read."""
        lines = [f"{self.kind}: {self.answer if self.kind in _WITH_TEXT else self.reason}"]
        lines += [f"established by {item.tool} ({item.call_id}): {item.content}" for item in self.established]
        lines += [f"blocked at {item.tool} ({item.call_id}), {item.kind}: {item.text}" for item in self.blockers]
        return "\n".join(lines)


def end(kind: EndingKind, exchanges: Sequence[Exchange] = (), *, answer: str = "", reason: str = "") -> Ending:
    """The ending of a run, with what its calls established and what blocked them.

    A failure counts as made good when the same call, or after wrong arguments the same tool, succeeded later. Raises
    ValueError for an answer or a reason that is missing.
    """
    found = [
        Finding(call.id, call.name, cut(result.content, FINDING_LIMIT))
        for call, result in exchanges
        if not result.is_error
    ]
    blocked = [
        Blocker(call.id, call.name, result.kind, cut(result.content, FINDING_LIMIT))
        for place, (call, result) in enumerate(exchanges)
        if result.is_error and not _made_good(call, result, exchanges[place + 1 :])
    ]
    return Ending(kind, answer, reason, tuple(found[-FINDINGS:]), tuple(blocked[-FINDINGS:]))


def end_with_answer(answer: str, exchanges: Sequence[Exchange], *, needs_evidence: bool) -> Ending:
    """The ending of a run whose model gave an answer: ``answered``, or ``insufficient_evidence``.

    With ``needs_evidence`` an answer counts only when some call found something: a model's word alone is no evidence,
    and neither is an empty result. An empty answer is ``insufficient_evidence`` in any case.
    """
    if not answer.strip():
        return end("insufficient_evidence", exchanges, reason="the model gave no answer")
    if needs_evidence and not any(_tells(result) for _, result in exchanges):
        return end("insufficient_evidence", exchanges, reason="the answer rests on no result of a tool", answer=answer)
    return end("answered", exchanges, answer=answer)


def end_without_answer(exchanges: Sequence[Exchange]) -> Ending:
    """The ending of a run that has no answer and no other reason: what blocked it says which kind it is."""
    blockers = end("escalated", exchanges, reason="to read the blockers").blockers
    for kind, failure in _HARDEST_FIRST:
        for item in reversed(blockers):
            if failure in (item.kind, None):
                return end(kind, exchanges, reason=item.text)
    return end("insufficient_evidence", exchanges, reason="the model gave no answer")


def _tells(result: ToolResult) -> bool:
    return not result.is_error and result.content.strip() not in _EMPTY


def _made_good(call: ToolCall, result: ToolResult, later: Sequence[Exchange]) -> bool:
    for other, outcome in later:
        same = other.name == call.name if result.kind == "invalid_arguments" else other.fingerprint == call.fingerprint
        if same and not outcome.is_error:
            return True
    return False
