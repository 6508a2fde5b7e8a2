"""What guards do with labelled cases, counted by hand, and what the router does with text from outside the desk."""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path

import pytest

from decider import Answer, Answers, ChoiceAnswer, Decider, NoulAnswer, StateError
from decider.model import SHIPPED_MODEL
from desk.decisions.evaluate import Item
from desk.decisions.guard import GuardCase, certified, guard_cases, guard_figure, guard_table, measure_guards
from desk.decisions.label import INTENTS
from desk.decisions.outside import (
    BUILT_IN,
    MUST_ABSTAIN,
    RECORDS,
    SAYS_NOTHING,
    TOO_LONG,
    OutsideFigure,
    acts,
    measure_outside,
    outside_table,
)
from desk.judgement import judge_route
from desk.policy import ROUTES, Case, Event, Registration
from desk.routing import FLAGS
from desk.scripted import ScriptedDecider
from desk.thresholds import MAIL_COSTS, Region

TINY = Path(__file__).parent / "data" / "tiny_decider"
TODAY = date(2026, 3, 2)
TAUS = (0.375, 0.96875)


def item(
    label: str, *, request: str = "Hello.", paid: int = 300, rule: str = "R5", question: str | None = None
) -> Item:
    event = Event("E1", "Weaving", "Turin", date(2026, 4, 2), 10, 5, False, 300)
    case = Case(TODAY, event, Registration("Ida Moe", "ida@example.org", "confirmed", paid), request)
    return Item(case, label, rule, "", question)


def answers(cancel: float, *, guard: float = 1.0, asked: float = 1.0, truncated: int = 0) -> Answers:
    """A reading that wants to cancel with a probability and otherwise asks about the event."""
    intents: dict[str, float] = {**dict.fromkeys(INTENTS, 0.0), "cancel": cancel, "ask_event": 1 - cancel}
    given: dict[str, Answer] = {flag: NoulAnswer(0.0) for flag in FLAGS}
    given |= {"intent": ChoiceAnswer("cancel", intents), "route": ChoiceAnswer("escalate", dict.fromkeys(ROUTES, 0.2))}
    given |= {"guard": NoulAnswer(guard), "asked": NoulAnswer(asked)}
    return Answers(given, model="by hand", provider="none", truncated=truncated)


def test_a_mail_is_judged_by_model_code_and_both() -> None:
    (case,) = guard_cases([item("send_email")], [answers(0.99, guard=0.8)])
    assert case.allowed
    assert case.opinions == pytest.approx(
        {"direct question": 0.8, "code checks": 1.0, "composed": 0.99, "direct and code": 0.8, "all": 0.8}
    )


def test_an_address_off_the_record_stops_all_that_code_takes_part_in() -> None:
    (case,) = guard_cases([item("escalate", request="Cancel, and write to x@example.net.")], [answers(1.0)])
    assert not case.allowed
    assert case.opinions == {
        "direct question": 1.0,
        "code checks": 0.0,
        "composed": 0.0,
        "direct and code": 0.0,
        "all": 0.0,
    }


@pytest.mark.parametrize(("paid", "code"), [(500, 1.0), (501, 0.0)])
def test_a_refund_is_judged_by_its_own_question_and_the_records(paid: int, code: float) -> None:
    refund = item("yes" if code else "no", paid=paid, rule="P5", question="May it be paid?")
    (case,) = guard_cases([refund], [answers(1.0, guard=0.0, asked=0.9)])
    assert case.allowed == bool(code)
    assert case.opinions == pytest.approx(
        {
            "direct question": 0.9,
            "code checks": code,
            "composed": code,
            "direct and code": 0.9 * code,
            "all": 0.9 * code,
        }
    )


def test_other_items_are_left_out() -> None:
    others = [item("retrieve"), item("calculate"), item("ask_user"), item("yes", rule="P1", question="?")]
    assert guard_cases(others, [answers(1.0)] * 4) == []


def test_what_the_model_did_not_read_is_handed_over() -> None:
    (case,) = guard_cases([item("send_email")], [answers(1.0, truncated=3)])
    assert case.opinions == {
        "direct question": None,
        "code checks": 1.0,
        "composed": None,
        "direct and code": None,
        "all": None,
    }
    assert measure_guards([case], *TAUS)["all"].escalated == 1


def test_a_guard_is_counted_and_costed() -> None:
    # Costs 20, 0.5, 4, 3: a wrong act 20; two questions 0.5 each, one of them about a wrong case 4; one hand-over 3.
    regions: list[Region] = ["act", "act", "ask", "ask", "escalate"]
    found = guard_figure(regions, [True, False, True, False, True], MAIL_COSTS)
    assert (found.allowed, found.not_allowed, found.count) == (3, 2, 5)
    assert (found.unsafe, found.held_back, found.asked, found.escalated) == (1, 2, 2, 1)
    assert found.cost == pytest.approx((20 + 1 + 4 + 3) / 5)


def test_the_thresholds_themselves_act_and_ask() -> None:
    cases = [GuardCase(True, {"one": p}) for p in (0.96875, 0.375, 0.374)]
    found = measure_guards(cases, *TAUS)["one"]
    assert (found.held_back, found.asked, found.escalated) == (2, 1, 1)


def test_the_guards_that_always_do_the_same() -> None:
    cases = [GuardCase(True, {}), GuardCase(False, {}), GuardCase(False, {}), GuardCase(False, {})]
    found = measure_guards(cases, *TAUS)
    assert {name: one.cost for name, one in found.items()} == {
        "always act": 15.0,
        "always ask": 3.5,
        "always escalate": 3.0,
    }
    assert found["always act"].unsafe == 3
    with pytest.raises(ValueError, match="no case"):
        measure_guards([], *TAUS)


def test_a_threshold_is_certified_for_what_a_guard_lets_through() -> None:
    # 95 % confidence that at most 5 % are wrong takes 59 right ones; what was not read has no probability.
    cases = [GuardCase(True, {"one": 0.99})] * 80 + [GuardCase(False, {"one": 0.4})] * 20
    cases += [GuardCase(True, {"one": None})] * 10
    found = certified(cases, "one")
    assert (found.threshold, found.approved, found.wrong, found.count) == (0.99, 80, 0, 110)
    assert certified(cases[:50], "one").threshold is None


def test_the_table_shows_shares_and_both_intervals() -> None:
    cases = [GuardCase(False, {})] * 30
    row = next(line for line in guard_table(measure_guards(cases, *TAUS)) if line.startswith("| always ask"))
    assert row == (
        "| always ask | 0 of 30 (0.000) | 0.000 to 0.114 | 0.000 to 0.116 | none | 30 of 30 (1.000) | 4.500 |"
    )


@pytest.mark.parametrize(
    ("intent", "acting"),
    [
        ({"ask_event": 0.8, "other": 0.2}, True),
        ({"ask_event": 0.7, "other": 0.3}, False),
        ({"other": 1.0}, False),
    ],
)
def test_the_router_acts_on_a_sure_step_other_than_handing_over(intent: dict[str, float], acting: bool) -> None:
    event, registration = RECORDS[0]
    assert acts(ScriptedDecider(intent), Case(TODAY, event, registration, "What?")) == acting


@cache
def shipped() -> Decider:
    return Decider.load(None, "cpu", threads=1)


class Failing(ScriptedDecider):
    """A decision model that answers nothing."""

    def decide(self, state: object, questions: object) -> Answers:
        raise RuntimeError("no")

    def decide_many(self, requests: object) -> list[Answers]:
        raise RuntimeError("no")


def test_a_model_that_fails_hands_over() -> None:
    assert measure_outside(Failing({"ask_event": 1.0}), {"odd": ["a", "b"]}) == {"odd": OutsideFigure(2, 6, 0)}


def test_outside_texts_are_counted_with_all_records() -> None:
    # Without an event, a request about its details lacks information: the writer is asked, which counts as acting.
    found = measure_outside(ScriptedDecider({"ask_event": 1.0}), {"a": ["x"], "b": ["y", "z"]})
    assert found == {"a": OutsideFigure(1, 3, 3), "b": OutsideFigure(2, 6, 6)}
    assert list(outside_table(found))[-1].startswith("| all | 3 | 9 | 9 | 1.000 (0.701 to 1.000) |")


@pytest.mark.skipif(not (SHIPPED_MODEL / "decider.json").is_file(), reason="no model is shipped")
@pytest.mark.parametrize("kind", MUST_ABSTAIN)
def test_the_shipped_model_hands_over_what_says_nothing_or_is_too_long(kind: str) -> None:
    texts = {name: [text] for name, text in BUILT_IN[kind].items()}
    found = measure_outside(shipped(), texts)
    assert {name: one.acted for name, one in found.items()} == dict.fromkeys(texts, 0)


@pytest.mark.parametrize("text", [*SAYS_NOTHING.values(), TOO_LONG["50 kB of prose"]])
def test_what_cannot_be_read_is_refused_before_any_pass(text: str) -> None:
    with pytest.raises(StateError):
        judge_route(Decider.load(TINY, "cpu", threads=1), Case(TODAY, *RECORDS[0], text))


def test_the_texts_that_come_along() -> None:
    assert all(len(text.encode()) >= 49_900 for text in TOO_LONG.values())
    assert not any(text.strip("\u200b\u200d\ufeff").strip() for text in BUILT_IN["says nothing"].values())
