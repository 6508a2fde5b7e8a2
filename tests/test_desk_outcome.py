"""Every turn of the desk ends in one of the shared kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from desk.database import create_database
from desk.outcome import ending
from desk.providers import Reply, ScriptedProvider, calls, says
from desk.report import Report
from desk.scripted import ScriptedDecider
from desk.service import Desk
from tools import Ending, ToolCall

CANCEL = {"cancel": 0.91, "ask_policy": 0.09}
ASK = {"ask_policy": 0.95, "ask_event": 0.05}
MAIL: dict[str, object] = {
    "to": "marit.solheim@example.org",
    "subject": "Cancelled",
    "body": "Your place is cancelled.",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "desk.db"
    create_database(path)
    return path


def asked(path: Path, intent: dict[str, float], *replies: Reply | Exception, allow: float = 0.8) -> tuple[Desk, Report]:
    provider = ScriptedProvider(list(replies), repeat=True)
    desk = Desk.open(path, provider=provider, decider=ScriptedDecider(intent, allow=allow))
    return desk, desk.ask("Please see to it.", registration="R101", thread="t")


@pytest.mark.parametrize(
    ("replies", "kind", "words"),
    [
        ([calls(("c1", "retrieve", {"query": "refund"})), says("Half is returned.")], "answered", "Half is returned."),
        ([calls(("c1", "retrieve", {"query": "zzzz"})), says("Half.")], "insufficient_evidence", "no result of a tool"),
        ([says("Half is returned, trust me.")], "insufficient_evidence", "no result of a tool"),
        (
            [calls(("c1", "calculate", {"expression": "1/0"})), says("0")],
            "insufficient_evidence",
            "no result of a tool",
        ),
        ([calls(("c1", "retrieve", {"query": "refund"}))], "repeated_calls", "no answer after 4 calls"),
        (
            [calls(("c1", "retrieve", {"query": word})) for word in ("refund", "cancel", "place", "fee")],
            "budget_exhausted",
            "no answer after 4 calls",
        ),
        ([Reply("", (), "refused")], "tool_failure", "a refusal"),
        ([ConnectionError("no route")], "tool_failure", "no route"),
    ],
)
def test_a_question_ends_as_it_went(path: Path, replies: list[Reply | Exception], kind: str, words: str) -> None:
    desk, report = asked(path, ASK, *replies)
    with desk:
        assert report.ending is not None
        assert report.ending.kind == kind
        assert words in report.ending.text()
        assert Ending.from_json(report.ending.to_json()) == report.ending


def test_what_was_found_and_what_failed_stands_in_the_ending(path: Path) -> None:
    both = calls(("c1", "retrieve", {"query": "refund"}), ("c2", "calculate", {"expression": "1/0"}))
    desk, report = asked(path, ASK, both, says("Half is returned."))
    with desk:
        assert report.ending is not None
        assert [item.call_id for item in report.ending.established] == ["c1"]
        assert [(item.call_id, item.kind) for item in report.ending.blockers] == [("c2", "invalid_arguments")]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"verdict": "approve", "by": "Ann"}, "answered"),
        ({"verdict": "reject", "reason": "wrong person", "by": "Ann"}, "not_permitted"),
    ],
)
def test_a_mail_ends_as_a_person_decides(path: Path, answer: dict[str, object], kind: str) -> None:
    desk, waiting = asked(path, CANCEL, calls(("c1", "send_email", MAIL)), says("Done."))
    with desk:
        assert waiting.waiting
        assert waiting.ending is None
        done = desk.review("t", answer)
        assert done.ending is not None
        assert done.ending.kind == kind
        assert ("wrong person" in done.ending.reason) is (kind == "not_permitted")


def test_a_hand_off_and_a_question_to_the_participant(path: Path) -> None:
    desk, report = asked(path, CANCEL, calls(("c1", "send_email", MAIL)), allow=0.1)
    with desk:
        assert report.ending is not None
        assert (report.ending.kind, report.ending.blockers[0].call_id) == ("escalated", "c1")
        assert "p_allow 0.100 < tau_esc 0.375" in report.ending.reason
    with Desk.open(path, decider=ScriptedDecider({"transfer": 1.0})) as other:
        question = other.ask("A friend takes my place.", registration="R101")
        assert question.ending is not None
        assert (question.ending.kind, question.ending.answer) == ("asked_user", question.answer)


def test_a_turn_that_has_not_ended_has_no_ending() -> None:
    with pytest.raises(ValueError, match="not ended"):
        ending({"outcome": None, "messages": [], "trace": [], "turn": 1})


@pytest.mark.parametrize("call", [ToolCall("a.b", "calculate", {"expression": "1"}), ToolCall("", "run code!", {})])
def test_ids_and_names_that_a_provider_would_refuse_are_not_stored(path: Path, call: ToolCall) -> None:
    desk, _ = asked(path, ASK, Reply("", (call,), "tool_calls"), says("Done."))
    with desk:
        messages = desk.graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
        [stored] = [item for message in messages for item in message.get("tool_calls") or []]
        assert stored["id"] == "call-1"
        assert stored["name"] in ("calculate", "unreadable_name")
