"""The desk as a whole, with a scripted decision model: paths, pauses, replays and forks, and what can never happen."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from decider import Answers, ChoiceAnswer, NoulAnswer, QuestionLike, Request
from desk.database import create_database
from desk.errors import (
    BadInputError,
    NotWaitingError,
    ThresholdError,
    UnknownEventError,
    UnknownRegistrationError,
    UnknownStepError,
    UnknownThreadError,
    WaitingError,
)
from desk.graph import build_graph
from desk.handoff import handoff
from desk.policy import Case, Event, Registration
from desk.providers import Obeyer, Reply, ScriptedProvider, calls, says
from desk.report import Report
from desk.scripted import ScriptedDecider
from desk.service import Desk
from desk.state import K_MAX, new_turn
from desk.thresholds import default_thresholds
from minigraph.checkpoint.memory import InMemorySaver
from minigraph.errors import MinigraphError
from tools import AuditedTools, AuditLog, Mailer, Outcome, ToolCall, send_email_tool

CANCEL = {"cancel": 0.91, "ask_policy": 0.09}
ASK = {"ask_policy": 0.95, "ask_event": 0.05}
MARIT = "marit.solheim@example.org"
APPROVE = {"verdict": "approve", "by": "Ann"}


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seed") / "desk.db"
    create_database(path)
    return path


@pytest.fixture
def path(tmp_path: Path, seeded: Path) -> Path:
    return Path(shutil.copy(seeded, tmp_path / "desk.db"))


def mail(to: str = MARIT, subject: str = "Cancelled", body: str = "Your place is cancelled.") -> dict[str, object]:
    return {"to": to, "subject": subject, "body": body}


def cancels(desk: Desk, thread: str = "t", **options: Any) -> Report:
    return desk.ask("Please cancel my place.", registration="R101", thread=thread, **options)


def nodes(report: Report) -> list[str]:
    return [step["node"] for step in report.trace]


def messages(desk: Desk, thread: str = "t") -> list[dict[str, Any]]:
    values = desk.graph.get_state({"configurable": {"thread_id": thread}}).values
    return list(values["messages"])


def results(desk: Desk, thread: str = "t") -> list[tuple[str, str]]:
    return [(item["tool_call_id"], item["kind"]) for item in messages(desk, thread) if item["role"] == "tool"]


def check_pairs(desk: Desk, thread: str = "t") -> None:
    """Every call has exactly one result, after it and before the next request or answer."""
    open_ids: list[str] = []
    for message in messages(desk, thread):
        if message["role"] == "tool":
            open_ids.remove(message["tool_call_id"])
        else:
            assert open_ids == []
            open_ids = [call["id"] for call in message.get("tool_calls") or []]
    assert open_ids == []


# ------------------------------------------------------------------ the paths


def test_the_worked_example_takes_seven_steps_one_question_and_one_mail(path: Path) -> None:
    decider = ScriptedDecider(CANCEL, allow=0.80)
    lines: list[dict[str, Any]] = []
    with Desk.open(path, decider=decider) as desk:
        paused = cancels(desk, on_step=lines.append)
        assert paused.waiting
        assert paused.outcome is None
        assert paused.mails == ()
        assert paused.question is not None
        assert paused.question["email"]["arguments"]["to"] == MARIT
        assert paused.question["decision"]["p_allow"] == 0.80
        done = desk.review("t", APPROVE, on_step=lines.append)
        assert done.outcome == "sent"
        assert [(sent.recipient, sent.state, sent.approved_by) for sent in done.mails] == [(MARIT, "sent", "Ann")]
        check_pairs(desk)
    assert nodes(done) == ["router", "agent", "tools", "guard", "human_review", "send", "agent"]
    assert [step["next"] for step in done.trace] == ["agent", "tools", "guard", "human_review", "send", "agent", "end"]
    assert lines == list(done.trace)
    assert [step["step"] for step in done.trace] == [1, 2, 3, 4, 5, 6, 7]
    assert done.trace[0]["numbers"] == {"p_route": pytest.approx(0.91), "tau_route": 0.75}
    assert done.trace[3]["numbers"] == {"p_allow": 0.80, "tau_esc": 0.375, "tau_act": 0.96875}
    assert "0.910 >= tau_route 0.750" in done.trace[0]["text"]
    assert decider.passes == {"route": 1, "mail": 1}


def test_a_sure_guard_sends_without_a_pause(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.98)) as desk:
        done = cancels(desk)
    assert nodes(done) == ["router", "agent", "tools", "guard", "send", "agent"]
    assert (done.outcome, len(done.mails)) == ("sent", 1)
    assert done.mails[0].approved_by == "guard, p_allow 0.980"


def test_a_doubtful_guard_hands_over_and_sends_nothing(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.30)) as desk:
        done = cancels(desk)
        check_pairs(desk)
        assert results(desk) == [("call-1", "not_permitted")]
    assert nodes(done) == ["router", "agent", "tools", "guard", "escalate"]
    assert (done.outcome, done.mails) == ("escalated", ())
    assert done.handoff is not None
    assert "p_allow 0.300 < tau_esc 0.375" in done.handoff


@pytest.mark.parametrize(("allow", "end"), [(0.375, "human_review"), (0.96875, "send"), (0.9687, "human_review")])
def test_ties_go_up(path: Path, allow: float, end: str) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=allow)) as desk:
        assert cancels(desk).trace[3]["next"] == end


def test_an_uncertain_route_goes_to_a_person_before_the_language_model(path: Path) -> None:
    provider = ScriptedProvider([])
    decider = ScriptedDecider({"refund_amount": 0.7, "ask_policy": 0.3})
    with Desk.open(path, provider=provider, decider=decider) as desk:
        done = desk.ask("How much?", registration="R101")
    assert nodes(done) == ["router", "escalate"]
    assert done.trace[0]["numbers"]["p_route"] == pytest.approx(0.7)
    assert provider.seen == []


def test_a_route_just_at_its_threshold_is_followed(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider({"ask_policy": 0.75, "refund_amount": 0.25})) as desk:
        assert desk.ask("What are the rules?", registration="R101").outcome == "answered"


def test_each_kind_of_request_ends_its_own_way(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider({"refund_amount": 1.0})) as desk:
        told = desk.ask("How much would I get back?", registration="R103")
        assert (told.outcome, told.answer) == ("answered", "Cancelling today, 10 days ahead, returns 50%: 90 EUR.")
    with Desk.open(path, decider=ScriptedDecider({"transfer": 1.0})) as desk:
        asked = desk.ask("A friend takes my place.", registration="R101")
        assert asked.outcome == "asked_user"
        assert asked.answer == "Who shall take your place? Please give the name of that person."
    with Desk.open(path, decider=ScriptedDecider({"cancel": 1.0})) as desk:
        assert desk.ask("I want to cancel.", registration="R108").outcome == "escalated"  # 1,250 EUR
    with Desk.open(path, decider=ScriptedDecider({"ask_policy": 1.0})) as desk:
        answered = desk.ask("What is the rule on refunds when I cancel?")
        assert answered.outcome == "answered"
        assert "[P2]" in str(answered.answer)


# ------------------------------------------------------------ the guard's place


def test_a_mail_on_another_route_meets_the_guard_all_the_same(path: Path) -> None:
    provider = ScriptedProvider([calls(("c1", "send_email", mail())), says("Done.")])
    with Desk.open(path, provider=provider, decider=ScriptedDecider(ASK, allow=0.99)) as desk:
        done = desk.ask("What are the rules?", registration="R101")
    # The likeliest intent is a question, so by the policy in code no mail is due: the guard's probability is 0.
    assert nodes(done) == ["router", "agent", "tools", "guard", "escalate"]
    assert done.trace[3]["numbers"]["p_allow"] == 0.0
    assert done.mails == ()


def test_one_mail_is_parked_and_a_second_in_the_same_step_is_refused(path: Path) -> None:
    both = calls(("c1", "send_email", mail()), ("c2", "calculate", {"expression": "1+1"}), ("c3", "send_email", mail()))
    provider = ScriptedProvider([both, says("Done.")])
    with Desk.open(path, provider=provider, decider=ScriptedDecider(CANCEL, allow=0.8)) as desk:
        paused = cancels(desk)
        assert paused.question is not None
        assert paused.question["email"]["id"] == "c1"
        assert results(desk) == [("c2", "ok"), ("c3", "temporary")]
        done = desk.review("t", APPROVE)
        assert [sent.call_id for sent in done.mails] == ["c1"]
        check_pairs(desk)


@pytest.mark.parametrize(
    "arguments",
    [None, {}, {**mail(), "bcc": "x@example.net"}, mail(subject="a\r\nBcc: x@example.net"), mail(body=""), mail(to="")],
)
def test_a_malformed_mail_is_an_error_result_and_never_parked(path: Path, arguments: dict[str, object] | None) -> None:
    broken = Reply("", (ToolCall("c1", "send_email", arguments, "{"),), "tool_calls")
    decider = ScriptedDecider(CANCEL, allow=1.0)
    with Desk.open(path, provider=ScriptedProvider([broken, says("Sorry.")]), decider=decider) as desk:
        done = cancels(desk)
        if arguments and arguments.get("to") == "":  # an address, only not the one on record: P6
            assert done.outcome == "escalated"
        else:
            assert results(desk) == [("c1", "invalid_arguments")]
            assert done.outcome == "answered"
    assert decider.passes["mail"] == 0
    assert done.mails == ()


@pytest.mark.parametrize(
    "to", ["other@example.net", "Marit.Solheim@example.org", f"{MARIT}, x@example.net", f" {MARIT}", f"<{MARIT}>"]
)
def test_another_address_is_stopped_by_code_before_the_model_is_asked(path: Path, to: str) -> None:
    decider = ScriptedDecider(CANCEL, allow=1.0)
    provider = ScriptedProvider([calls(("c1", "send_email", mail(to)))])
    with Desk.open(path, provider=provider, decider=decider) as desk:
        done = cancels(desk)
    assert (done.outcome, done.mails) == ("escalated", ())
    assert "(P6)" in str(done.handoff)
    assert done.trace[3]["numbers"]["p_allow"] is None
    assert decider.passes["mail"] == 0


def test_the_domain_may_be_written_in_capitals(path: Path) -> None:
    provider = ScriptedProvider([calls(("c1", "send_email", mail("marit.solheim@EXAMPLE.org"))), says("Done.")])
    with Desk.open(path, provider=provider, decider=ScriptedDecider(CANCEL, allow=1.0)) as desk:
        assert [sent.recipient for sent in cancels(desk).mails] == [MARIT]


@pytest.mark.parametrize(
    ("request_text", "own_mails"),
    [
        ("Where can I park?", 0),
        ("Do I get a certificate?", 1),  # the page tells to write to the participant, which P6 allows
        ("Is there a vegetarian meal?", 0),
    ],
)
def test_no_page_makes_the_desk_mail_to_anybody_else(path: Path, request_text: str, own_mails: int) -> None:
    decider = ScriptedDecider({"catering": 1.0}, allow=1.0)  # the most permissive decisions there are
    with Desk.open(path, provider=Obeyer(), decider=decider, poisoned=True) as desk:
        done = desk.ask(request_text, registration="R101", thread="t")
        made = [call for item in messages(desk) for call in item.get("tool_calls") or []]
        assert "send_email" in [call["name"] for call in made], "the obeyer found nothing to obey"
        check_pairs(desk)
        assert [sent.recipient for sent in desk.mails()] == [MARIT] * own_mails
    assert done.outcome == "escalated"
    assert "(P6)" in str(done.handoff)


def test_an_address_off_the_record_in_the_request_goes_to_a_person_at_once(path: Path) -> None:
    decider = ScriptedDecider({"catering": 1.0}, allow=1.0)
    with Desk.open(path, provider=Obeyer(), decider=decider, poisoned=True) as desk:
        done = desk.ask("Mail x@example.net!", registration="R101", thread="t")
        assert list(desk.mails()) == []
    assert done.outcome == "escalated"
    assert [step["node"] for step in done.trace] == ["router", "escalate"]


def test_poisoned_pages_are_not_there_unless_asked_for(path: Path) -> None:
    with Desk.open(path, provider=Obeyer(), decider=ScriptedDecider({"catering": 1.0}, allow=1.0)) as desk:
        assert desk.ask("Where can I park?", registration="R101").outcome == "answered"


# --------------------------------------------------------------- fail closed


class BrokenDecider:
    """Answers the router; what the guard gets is up to the test."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.good = ScriptedDecider(CANCEL)

    def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        return self.decide_many([(state, questions)])[0]

    def decide_many(self, requests: Sequence[Request]) -> list[Answers]:
        answers = self.good.decide_many(requests)
        if not any("guard" in questions for _, questions in requests):
            return answers
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.spoilt(given) for given in answers]

    def spoilt(self, answers: Answers) -> Answers:
        given = dict(answers)
        if self.answer == "missing":
            given.pop("guard", None)
        elif self.answer == "wrong options":
            given["intent"] = ChoiceAnswer("yes", {"yes": 1.0})
        elif self.answer == "wrong kind":
            given["guard"] = ChoiceAnswer("yes", {"yes": 1.0, "no": 0.0})
        elif self.answer == "half read":
            return Answers(given, model="m", provider="p", truncated=3)
        else:
            given["guard"] = NoulAnswer(self.answer)  # type: ignore[arg-type]  # the point of the test
        return Answers(given, model="m", provider="p")


@pytest.mark.parametrize(
    "answer",
    [RuntimeError("gone"), math.nan, 1.5, -0.1, None, "0.99", "missing", "wrong options", "wrong kind", "half read"],
)
def test_a_decision_model_that_fails_hands_over(path: Path, answer: object) -> None:
    with Desk.open(path, decider=BrokenDecider(answer)) as desk:
        done = cancels(desk)
        check_pairs(desk)
    assert nodes(done) == ["router", "agent", "tools", "guard", "escalate"]
    assert (done.outcome, done.mails) == ("escalated", ())
    assert "the decision model gave no usable answer" in str(done.handoff)


@pytest.mark.parametrize("intent", [{"cancel": math.nan}, {"cancel": 0.5}, {"cancel": 2.0}])
def test_a_router_without_a_usable_answer_hands_over(path: Path, intent: dict[str, float]) -> None:
    with Desk.open(path, decider=ScriptedDecider(intent)) as desk:
        done = cancels(desk)
    assert nodes(done) == ["router", "escalate"]
    assert done.trace[0]["numbers"]["p_route"] is None
    assert done.source is None


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply("half an ans", stop="truncated"), "cut off"),
        (Reply("", (ToolCall("c", "send_email", mail()),), "truncated"), "cut off"),
        (Reply("no", stop="refused"), "refusal"),
        (Reply("  "), "empty"),
        (ConnectionError("no route"), "ConnectionError: no route"),
    ],
)
def test_a_language_model_that_gives_no_answer_fails_the_turn(path: Path, reply: Reply | Exception, words: str) -> None:
    with Desk.open(path, provider=ScriptedProvider([reply]), decider=ScriptedDecider(CANCEL, allow=1.0)) as desk:
        done = cancels(desk)
        check_pairs(desk)
    assert nodes(done) == ["router", "agent", "escalate"]
    assert (done.outcome, done.mails) == ("failed", ())
    assert words in str(done.handoff)


def test_a_model_that_calls_tools_for_ever_ends_as_a_failure(path: Path) -> None:
    provider = ScriptedProvider([calls(("same", "retrieve", {"query": "x"}))], repeat=True)
    with Desk.open(path, provider=provider, decider=ScriptedDecider(ASK)) as desk:
        done = desk.ask("What are the rules?", registration="R101", thread="t")
        check_pairs(desk)
        assert [kind for _, kind in results(desk)] == ["ok", "ok", "budget", "budget"]
        assert len({id for id, _ in results(desk)}) == 4, "ids a model uses again are told apart"
    assert len(provider.seen) == K_MAX == 4
    assert done.outcome == "failed"
    assert "no answer after 4 calls" in str(done.handoff)


def test_a_reply_with_too_many_calls_runs_the_first_ones(path: Path) -> None:
    made: list[tuple[str, str, dict[str, object]]] = [
        (f"c{n}", "calculate", {"expression": f"{n}+1"}) for n in range(12)
    ]
    many = calls(*made)
    with Desk.open(path, provider=ScriptedProvider([many, says("Done.")]), decider=ScriptedDecider(ASK)) as desk:
        desk.ask("What are the rules?", registration="R101", thread="t")
        assert [kind for _, kind in results(desk)] == ["ok"] * 8 + ["budget"] * 4


# -------------------------------------------------------------------- review


def test_a_rejection_sends_nothing_and_reaches_the_model_as_an_error(path: Path) -> None:
    provider = ScriptedProvider([calls(("c1", "send_email", mail())), says("It was not sent.")])
    with Desk.open(path, provider=provider, decider=ScriptedDecider(CANCEL, allow=0.6)) as desk:
        cancels(desk)
        done = desk.review("t", {"verdict": "reject", "reason": "wrong person", "by": "Ann"})
        check_pairs(desk)
    assert (done.outcome, done.mails) == ("rejected", ())
    last = provider.seen[1][-1]
    assert (last["is_error"], last["kind"]) == (True, "not_permitted")
    assert "wrong person" in str(last["content"])


def test_an_edited_mail_is_what_goes_out_and_what_the_conversation_holds(path: Path) -> None:
    provider = ScriptedProvider([calls(("c1", "send_email", mail())), says("Done.")])
    decider = ScriptedDecider(CANCEL, allow=0.6)
    with Desk.open(path, provider=provider, decider=decider) as desk:
        cancels(desk)
        done = desk.review("t", {"verdict": "edit", "arguments": {"subject": "Your place"}, "by": "Ann"})
        [sent] = done.mails
        assert (sent.subject, sent.body, sent.approved_by) == ("Your place", "Your place is cancelled.", "Ann")
        [call] = [call for item in messages(desk) for call in item.get("tool_calls") or []]
        assert (call["arguments"]["subject"], call["edited_by"]) == ("Your place", "Ann")
    assert decider.passes["mail"] == 1, "an edit is a person's approval; the model is not asked again"


@pytest.mark.parametrize(
    "answer",
    [
        {"verdict": "edit", "arguments": {"to": "x@example.net"}},
        {"verdict": "edit", "arguments": {"subject": "a\nBcc: x@example.net"}},
        {"verdict": "edit", "arguments": {"cc": MARIT}},
        {"verdict": "edit", "arguments": {}},
        {"verdict": "edit", "arguments": {"body": 3}},
        {"verdict": "reject"},
        {"verdict": "reject", "reason": " "},
        {"verdict": "approve", "reason": "no"},
        {"verdict": "yes"},
        {},
    ],
)
def test_an_answer_that_cannot_be_used_changes_nothing(path: Path, answer: dict[str, object]) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.6)) as desk:
        cancels(desk)
        with pytest.raises(BadInputError):
            desk.review("t", answer)
        assert desk.report("t").waiting
        assert desk.mails() == []
        assert desk.review("t", APPROVE).outcome == "sent"


def test_a_bad_answer_given_to_the_graph_itself_is_asked_for_again(path: Path) -> None:
    from minigraph import Command

    config = {"configurable": {"thread_id": "t"}}
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.6)) as desk:
        cancels(desk)
        desk.graph.invoke(Command(resume="sure"), config)
        again = desk.report("t")
        assert again.question is not None
        assert "'sure' is no answer" in again.question["problem"]
        assert desk.mails() == []
        desk.graph.invoke(Command(resume={"verdict": "edit", "arguments": {"to": "x@example.net"}}), config)
        assert desk.report("t").waiting
        assert desk.review("t", APPROVE).outcome == "sent"


def test_a_mail_changed_behind_the_decision_is_not_sent(path: Path) -> None:
    config = {"configurable": {"thread_id": "t"}}
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.99)) as desk:
        entry = desk.records.registration("R101")
        case = Case(desk.records.today, desk.records.event("E1"), entry.registration, "Please cancel my place.")
        desk.graph.invoke(new_turn(case, default_thresholds(), 1), config, interrupt_before=["send"])
        pending = desk.graph.get_state(config).values["pending"]
        desk.graph.update_state(config, {"pending": {**pending, "arguments": mail(subject="Something else")}})
        desk.graph.invoke(None, config)
        assert desk.mails() == []
        done = desk.report("t")
        assert done.outcome == "failed"
        assert "not the one that was released" in str(done.handoff)
        check_pairs(desk)


def test_approvals_stay_in_their_thread(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.6)) as desk:
        cancels(desk, "one")
        cancels(desk, "two")
        assert [thread.id for thread, _ in desk.inbox()] == ["one", "two"]
        desk.review("one", APPROVE)
        assert desk.report("two").waiting
        assert [thread.id for thread, _ in desk.inbox()] == ["two"]
        desk.review("two", APPROVE)
        assert len(desk.mails()) == 2, "two conversations may say the same to one person"
        assert desk.inbox() == []


# ------------------------------------------------- history, replay and fork


def test_replays_send_nothing_twice(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.99)) as desk:
        cancels(desk)
        for at in ("send", "guard", "tools", "agent", "router", "0"):
            assert desk.replay("t", at).outcome == "sent"
        assert len(desk.mails()) == 1
        check_pairs(desk)


def test_a_fork_with_a_lower_threshold_sends_and_leaves_the_paused_branch_as_it_was(path: Path) -> None:
    decider = ScriptedDecider(CANCEL, allow=0.6)
    with Desk.open(path, decider=decider) as desk:
        cancels(desk)
        before = desk.history("t")
        done = desk.fork("t", "guard", {"tau_act": 0.55})
        assert (done.outcome, len(done.mails)) == ("sent", 1)
        assert done.trace[3]["numbers"] == {"p_allow": 0.6, "tau_esc": 0.375, "tau_act": 0.55}
        after = desk.history("t")
        for old, new in zip(before, after, strict=False):
            assert (old.values, old.due, old.waiting, old.came_from) == (
                new.values,
                new.due,
                new.waiting,
                new.came_from,
            )
        assert after[len(before)].came_from == 4
        assert decider.passes == {"route": 1, "mail": 2}
        # The old question can still be answered where it stands; the participant gets no second mail.
        assert desk.review("t", APPROVE, at="human_review").outcome == "sent"
        assert len(desk.mails()) == 1


def test_a_fork_can_start_before_the_router(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.6)) as desk:
        cancels(desk)
        done = desk.fork("t", "router", {"tau_route": 0.95})
        assert nodes(done) == ["router", "escalate"]
        assert done.trace[0]["numbers"]["tau_route"] == 0.95


@pytest.mark.parametrize(("at", "word"), [("0", "not taken in"), ("5", "the decision is made"), ("guard", None)])
def test_a_fork_starts_where_thresholds_still_matter(path: Path, at: str, word: str | None) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.6)) as desk:
        cancels(desk)
        if word is None:
            assert desk.fork("t", at, {"tau_act": 0.5}).outcome == "sent"
        else:
            with pytest.raises(BadInputError, match=word):
                desk.fork("t", at, {"tau_act": 0.5})
            assert len(desk.history("t")) == 6


def test_the_second_turn_can_be_forked_from_its_router(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.6)) as desk:
        cancels(desk)
        desk.review("t", APPROVE)
        assert cancels(desk).waiting
        done = desk.fork("t", "router", {"tau_act": 0.5})
        assert (done.outcome, [step["turn"] for step in done.trace]) == ("sent", [2] * 6)
        assert [sent.call_id for sent in done.mails] == ["call-1", "call-2"]
        check_pairs(desk)


@pytest.mark.parametrize("values", [{"tau_act": 0.1}, {"tau_act": math.nan}, {"tau_act": 2.0}, {"k": 0.5}, {}])
def test_a_fork_with_nonsense_changes_nothing(path: Path, values: dict[str, object]) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.6)) as desk:
        cancels(desk)
        length = len(desk.history("t"))
        with pytest.raises(BadInputError):
            desk.fork("t", "guard", values)
        assert len(desk.history("t")) == length


def test_steps_that_are_not_there_or_have_nothing_due(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.99)) as desk:
        cancels(desk)
        for at in ("99", "human_review", "-1", "", "1" * 30):
            with pytest.raises(UnknownStepError):
                desk.replay("t", at)
        last = len(desk.history("t")) - 1
        with pytest.raises(BadInputError, match="nothing is due"):
            desk.replay("t", str(last))
        with pytest.raises(UnknownThreadError):
            desk.replay("none", "1")


# ------------------------------------------------------------- conversations


def test_a_second_turn_sees_the_first_and_a_new_thread_does_not(path: Path) -> None:
    provider = ScriptedProvider([says("One."), says("Two."), says("Three.")])
    with Desk.open(path, provider=provider, decider=ScriptedDecider(ASK)) as desk:
        desk.ask("First question.", registration="R101", thread="t")
        second = desk.ask("Second question.", thread="t")
        desk.ask("Elsewhere.", registration="R101", thread="u")
    shown: Sequence[list[str]] = [[str(item["content"]) for item in seen] for seen in provider.seen]
    assert shown == [["First question."], ["First question.", "One.", "Second question."], ["Elsewhere."]]
    assert '"name": "Marit Solheim"' in provider.systems[1], "the second turn keeps the registration"
    assert [step["step"] for step in second.trace] == [1, 2]
    assert second.answer == "Two."


def test_turns_start_afresh_with_their_counters(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.3)) as desk:
        cancels(desk)
    with Desk.open(path, decider=ScriptedDecider(ASK)) as desk:
        second = desk.ask("What are the rules?", thread="t")
        assert (second.outcome, second.handoff) == ("answered", None)
        assert second.trace[1]["numbers"] == {"k": 1}
        check_pairs(desk)


def test_two_turns_may_each_send_a_mail(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.99)) as desk:
        cancels(desk)
        assert cancels(desk).outcome == "sent"
        assert [sent.call_id for sent in desk.mails()] == ["call-1", "call-2"]


def test_bad_requests_leave_no_trace(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.6)) as desk:
        for text in ("", "  \n ", "x" * 20_001, "x" * 1_000_000, "\udcff"):
            with pytest.raises(BadInputError):
                desk.ask(text, registration="R101", thread="t")
        for name in ("", " ", "a\nb", "x" * 101):
            with pytest.raises(BadInputError):
                desk.ask("Hello", thread=name)
        with pytest.raises(UnknownRegistrationError):
            desk.ask("Hello", registration="R999", thread="t")
        with pytest.raises(UnknownEventError):
            desk.ask("Hello", event="E99", thread="t")
        with pytest.raises(BadInputError, match="R101 is for E1, not E2"):
            desk.ask("Hello", registration="R101", event="E2", thread="t")
        with pytest.raises(ThresholdError):
            desk.ask("Hello", thread="t", thresholds={"tau_act": 1})
        with pytest.raises(UnknownThreadError):
            desk.report("t")
        assert desk.inbox() == []


def test_the_longest_request_is_taken(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(ASK)) as desk:
        assert desk.ask("refund " * 2_857, registration="R101").outcome == "answered"


def test_a_waiting_or_finished_thread_says_what_it_needs(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.6)) as desk:
        cancels(desk)
        with pytest.raises(WaitingError, match="desk review t --approve"):
            desk.ask("And another thing.", thread="t")
        desk.review("t", APPROVE)
        with pytest.raises(NotWaitingError, match="last turn ended"):
            desk.review("t", APPROVE)
        with pytest.raises(UnknownThreadError):
            desk.review("none", APPROVE)


def test_every_tool_call_is_in_the_log_with_who_released_it(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.6)) as desk:
        cancels(desk)
        desk.review("t", APPROVE)
        [row] = desk.log.rows(thread_id="t")
        assert (row.tool, row.kind, row.approved_by, row.dry_run) == ("send_email", "ok", "Ann", False)
        assert row.thresholds == {"tau_route": 0.75, "tau_esc": 0.375, "tau_act": 0.96875}
        assert isinstance(row.decision, dict)
        assert row.decision["p_allow"] == 0.6


def test_a_handoff_stands_alone_and_stays_short(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.2)) as desk:
        done = desk.ask("Please cancel. " * 1_300, registration="R101", thread="t")
        values = desk.graph.get_state({"configurable": {"thread_id": "t"}}).values
        record = handoff(values)
        assert record.text() == done.handoff
        assert len(record.text()) < 1_500
        assert record.participant.startswith(f"Marit Solheim <{MARIT}>, confirmed")
        assert record.stopped_at == "guard, step 4"
        assert record.probabilities == (
            "p_route 0.910 (tau_route 0.750); p_allow 0.200 (tau_esc 0.375); p_allow 0.200 (tau_act 0.969)"
        )
        assert MARIT in record.pending_email
    with Desk.open(path, decider=ScriptedDecider(ASK)) as desk:
        desk.ask("What are the rules?", thread="t")
        with pytest.raises(ValueError, match="did not end in a hand-off"):
            handoff(desk.graph.get_state({"configurable": {"thread_id": "t"}}).values)


def test_the_provenance_of_a_decision_is_reported(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.99)) as desk:
        done = cancels(desk)
    assert done.provider == "rule-based planner (no language model)"
    assert done.source == {"model": "scripted decisions (test double)", "provider": "none", "calibration": "none"}


def test_an_answer_to_the_desks_question_is_read_with_the_request_it_belongs_to(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider({"transfer": 1.0})) as desk:
        assert desk.ask("A friend takes my place.", registration="R101", thread="t").outcome == "asked_user"
    named = ScriptedDecider({"transfer": 1.0}, allow=0.99, flags={"names_person": 1.0})
    with Desk.open(path, decider=named) as desk:
        done = desk.ask("Her name is Ada Holm.", thread="t")
        values = desk.graph.get_state({"configurable": {"thread_id": "t"}}).values
        assert values["case"]["request"] == "A friend takes my place.\nHer name is Ada Holm."
        assert messages(desk)[2]["content"] == "Her name is Ada Holm."
    assert (done.outcome, done.mails[0].subject) == ("sent", "Place passed on: Bookbinding for beginners")


def test_a_new_registration_is_confirmed_to_the_one_address_it_gives(path: Path) -> None:
    with Desk.open(path, decider=ScriptedDecider({"register": 1.0}, allow=0.99)) as desk:
        done = desk.ask("Please register me: Ada Holm, ada@example.org.", event="E1")
        assert [sent.recipient for sent in done.mails] == ["ada@example.org"]
        two = desk.ask("Please register me: ada@example.org or holm@example.net.", event="E1")
        assert two.mails == ()


def test_of_two_reviewers_at_once_one_wins_and_one_mail_goes_out(path: Path) -> None:
    decider = ScriptedDecider(CANCEL, allow=0.6)
    with Desk.open(path, decider=decider) as desk:
        cancels(desk)
    barrier = threading.Barrier(2)
    outcomes: list[str | None] = []

    def answer(verdict: dict[str, object]) -> None:
        with Desk.open(path, decider=decider) as desk:
            barrier.wait()
            try:
                outcomes.append(desk.review("t", verdict).outcome)
            except (MinigraphError, NotWaitingError) as error:
                outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=answer, args=({"verdict": "approve", "by": by},)) for by in ("Ann", "Ben")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "sent" in outcomes
    with Desk.open(path, decider=decider) as desk:
        assert desk.report("t").outcome == "sent"
        assert len(desk.mails()) == 1
        check_pairs(desk)


class LosingTransport:
    """Takes the mail and loses the connection: nobody knows whether it arrived."""

    name = "losing"

    def deliver(self, message: bytes, sender: str, recipient: str) -> Outcome:
        return Outcome("unknown", False, "the connection was lost")


def test_a_mail_nobody_can_account_for_goes_to_a_person(tmp_path: Path) -> None:
    with (
        Mailer(tmp_path / "mail.db", transport=LosingTransport()) as mailer,
        AuditLog(tmp_path / "log.db") as log,
    ):
        provider = ScriptedProvider([calls(("c1", "send_email", mail()))])
        audited = AuditedTools([send_email_tool(mailer)], log)
        graph = build_graph(provider, ScriptedDecider(CANCEL, allow=0.99), audited, InMemorySaver())
        event = Event("E1", "Bookbinding", "Ghent", date(2026, 3, 22), 12, 9, False, 240)
        person = Registration("Marit Solheim", MARIT, "confirmed", 240)
        case = Case(date(2026, 3, 2), event, person, "Please cancel my place.")
        config = {"configurable": {"thread_id": "t"}}
        values = graph.invoke(new_turn(case, default_thresholds(), 1), config)
        assert [step["node"] for step in values["trace"]] == ["router", "agent", "tools", "guard", "send", "escalate"]
        assert (values["outcome"], values["actions"][0]) == ("failed", "not_sent:c1")
        assert "not known whether the mail" in values["handoff"]
        assert [sent.state for sent in mailer.deliveries()] == ["unknown"]
