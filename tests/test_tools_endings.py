import typing

import msgspec
import pytest

from tools import Ending, EndingKind, Kind, ToolCall, ToolResult, end, end_with_answer, end_without_answer
from tools.endings import FINDING_LIMIT, FINDINGS, Exchange

KINDS: tuple[EndingKind, ...] = typing.get_args(EndingKind)


def exchange(
    number: int, kind: Kind = "ok", content: str = "[1]", name: str = "search", **arguments: object
) -> Exchange:
    id = f"c{number}"
    return ToolCall(id, name, arguments), ToolResult(id, name, content, kind != "ok", kind)


def test_the_kinds_are_ten_and_one_of_them_is_a_success() -> None:
    assert set(KINDS) == {
        "answered", "asked_user", "insufficient_evidence", "unsupported", "not_permitted", "tool_failure",
        "budget_exhausted", "repeated_calls", "gave_up", "escalated",
    }  # fmt: skip
    assert [kind for kind in KINDS if end(kind, answer="a", reason="r").is_success] == ["answered"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("empty", ["", " \n"])
def test_every_kind_says_what_it_has_to(kind: EndingKind, empty: str) -> None:
    needed, other = ("answer", "reason") if kind in ("answered", "asked_user") else ("reason", "answer")
    with pytest.raises(ValueError, match="has none"):
        end(kind, (), **{needed: empty, other: "x"})
    ending = end(kind, (), **{needed: "x"})
    assert Ending.from_json(ending.to_json()) == ending
    assert ending.text() == f"{kind}: x"


def test_another_kind_is_refused() -> None:
    for plain in ({"kind": "done", "answer": "x"}, {"kind": "answered"}, {"answer": "x"}, None):
        with pytest.raises(msgspec.ValidationError):
            Ending.from_json(plain)


def test_what_is_established_and_what_blocks() -> None:
    calls = [
        exchange(1, content='[{"id": 7}]', q="refund"),
        exchange(2, "temporary", "the shop does not answer", name="orders", id=7),
        exchange(3, content="[]", q="invoice"),
    ]
    ending = end("tool_failure", calls, reason="the shop does not answer")
    assert ending.text().splitlines() == [
        "tool_failure: the shop does not answer",
        'established by search (c1): [{"id": 7}]',
        "established by search (c3): []",
        "blocked at orders (c2), temporary: the shop does not answer",
    ]
    assert ending.blockers[0].kind == "temporary"


def test_a_failure_that_was_made_good_blocks_nothing() -> None:
    retried = [exchange(1, "temporary", "later", q=1), exchange(2, q=1)]
    corrected = [exchange(1, "invalid_arguments", "q: a number", q="x"), exchange(2, q=1)]
    other = [exchange(1, "temporary", "later", q=1), exchange(2, q=2)]
    before = [exchange(1, q=1), exchange(2, "temporary", "later", q=1)]
    assert [len(end("answered", calls, answer="a").blockers) for calls in (retried, corrected, other, before)] == [
        0, 0, 1, 1,
    ]  # fmt: skip


def test_an_ending_is_bounded() -> None:
    calls = [exchange(n, content="x" * 10_000, n=n) for n in range(100)]
    calls += [exchange(n, "failed", "y" * 10_000, n=n) for n in range(100, 200)]
    ending = end("gave_up", calls, reason="too much")
    assert (len(ending.established), len(ending.blockers)) == (FINDINGS, FINDINGS)
    assert ending.established[-1].call_id == "c99"
    assert max(len(item.content) for item in ending.established) == FINDING_LIMIT


@pytest.mark.parametrize(
    ("answer", "calls", "kind"),
    [
        ("12 seats", [exchange(1)], "answered"),
        ("12 seats", [], "insufficient_evidence"),
        ("12 seats", [exchange(1, content="[]")], "insufficient_evidence"),
        ("12 seats", [exchange(1, content=" null ")], "insufficient_evidence"),
        ("12 seats", [exchange(1, "failed", "observation: 12 seats")], "insufficient_evidence"),
        ("12 seats", [exchange(1, content="[]"), exchange(2)], "answered"),
        (" ", [exchange(1)], "insufficient_evidence"),
    ],
)
def test_an_answer_that_needs_evidence(answer: str, calls: list[Exchange], kind: str) -> None:
    assert end_with_answer(answer, calls, needs_evidence=True).kind == kind


def test_an_answer_that_needs_none() -> None:
    assert end_with_answer("Good morning.", [], needs_evidence=False).kind == "answered"
    assert end_with_answer("", [], needs_evidence=False).kind == "insufficient_evidence"


@pytest.mark.parametrize(
    ("kinds", "kind"),
    [
        ([], "insufficient_evidence"),
        (["ok"], "insufficient_evidence"),
        (["failed"], "tool_failure"),
        (["temporary", "ok"], "tool_failure"),
        (["too_large"], "tool_failure"),
        (["unknown_tool"], "tool_failure"),
        (["not_permitted", "failed"], "not_permitted"),
        (["budget", "failed"], "budget_exhausted"),
        (["budget", "not_permitted"], "not_permitted"),
    ],
)
def test_without_an_answer_the_failures_say_how_it_ended(kinds: list[Kind], kind: str) -> None:
    calls = [exchange(n, made, f"text {n}", n=n) for n, made in enumerate(kinds)]
    assert end_without_answer(calls).kind == kind
