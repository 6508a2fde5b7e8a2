"""What the guard decides, in its order, and the four ways in which a guard of this kind is known to fail open."""

from __future__ import annotations

import ast
import math
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from guard_rules import (
    LEVELS,
    NOW,
    examples,
    refund,
    refund_desk,
    reply,
    triage_desk,
    triage_examples,
    with_rule,
)

from decider.costs import Costs, CostWarning
from decider.guard import (
    ApprovalError,
    BrokenRuleError,
    Call,
    Coverage,
    Decision,
    Guard,
    GuardSettingError,
    HardRule,
    Joint,
    ProfileError,
    Selective,
    read_decision,
    versioned,
)

ROOT = Path(__file__).parent.parent


def scoring(value: object) -> Callable[[object], object]:
    """A scorer that passes for the calibrated one and gives a value, or raises it."""

    @versioned("a number by hand")
    def score(context: object) -> object:
        if isinstance(value, Exception):
            raise value
        return value

    return score


# ------------------------------------------------------------- the whole way


@pytest.mark.parametrize(
    ("score", "action", "code"),
    [(0.999, "act", "approved"), (0.6, "ask", "costs"), (0.3, "escalate", "costs"), (0, "escalate", "costs")],
)
def test_a_score_leads_to_an_action(tmp_path: Path, score: float, action: str, code: str) -> None:
    found = refund_desk(tmp_path).guard().check(refund(score))
    assert (found.action, found.codes) == (action, (code,))
    assert (found.tau_esc, found.tau_act, found.score) == (0.375, 0.96875, score)


def test_a_decision_says_what_it_rests_on_and_is_plain_data(tmp_path: Path) -> None:
    desk = refund_desk(tmp_path, probability="venn-abers")
    version = desk.write().version
    found = desk.guard().check(refund())
    # 15 may be wrong of 320: the wrong scores are 0.475, 0.45, ... and the 15th of them is 0.125.
    assert found.threshold == 0.125
    assert found.p == pytest.approx(299 / 300, abs=1e-3)
    assert found.profile_version == version
    assert "at most 5 in 100 calls are both approved and wrong" in found.guarantee
    assert "of the approved 15 of 315 are wrong (4.8%" in found.guarantee
    assert found.decided == NOW
    assert read_decision(found.to_dict()) == found
    assert msgspec.json.decode(msgspec.json.encode(found), type=Decision) == found


def test_costs_alone_do_not_make_it_act(tmp_path: Path) -> None:
    # Both kinds are spread from 0.6 to 1. Of 170, k = floor(0.05 * 171) - 1 = 7 may be wrong; the highest 20 hold 7.
    given = examples(right=110, wrong=0) + [replace_id(one, n) for n, one in enumerate(examples(right=60, wrong=0))]
    desk = refund_desk(tmp_path, probability="score")
    desk.write([*given[:110], *(msgspec.structs.replace(one, label=False) for one in given[110:])])
    found = desk.guard().check(refund(0.97))
    assert found.p == 0.97
    assert (found.action, found.codes) == ("ask", ("bound",))
    assert found.threshold is None
    assert "and the cap is 20.0%" in found.reasons[0].text
    assert "7 of 20 are wrong (35.0%" in found.guarantee


def replace_id(one: Any, n: int) -> Any:
    return msgspec.structs.replace(one, id=f"w{n}", run_id=f"rw{n}")


def test_where_asking_never_pays_a_refused_bound_escalates(tmp_path: Path) -> None:
    with pytest.warns(CostWarning, match="refund: esc < ask"):
        desk = refund_desk(tmp_path, costs=Costs(20, 5, 4, 3), guarantee=Joint("0.001", cap="0.5"))
    found = desk.guard().check(refund())
    assert (found.action, found.codes, found.threshold) == ("escalate", ("bound",), None)
    assert "320 labelled calls are too few for this level." in found.reasons[0].text


def test_a_selective_bound_takes_its_threshold_from_the_certified_chain(tmp_path: Path) -> None:
    given = examples()
    desk = refund_desk(tmp_path, guarantee=Selective("0.1", "0.1"), probability="venn-abers")
    found = desk.guard().check(refund(0.97))
    assert found.action == "act"
    # Thresholds approve 15 % (twice the 22 calls that could show anything), 20 %, ... of the scores. All are certified
    # as far as 100 %; p = n / (n + 1) with n right ones up to the score reaches tau_act = 31 / 32 from n = 31 on.
    scores = sorted((float(one.evidence) for one in given), reverse=True)  # type: ignore[arg-type]
    chain = [scores[16 * step - 1] for step in range(3, 21)]
    assert found.threshold == chain[13]  # 80 %: above 45 right ones; at 85 % there are 29
    assert "at most 10 % wrong among what is approved" in found.guarantee
    # The score is the probability and has to reach 0.96875 = 1 - 1/32, which the walk never tests: it begins lower.
    strict = refund_desk(tmp_path, guarantee=Selective("0.1", "0.1"), probability="score")
    assert strict.guard().check(refund(0.97)).threshold is None


def test_a_temperature_that_means_nothing_stops_the_guard(tmp_path: Path) -> None:
    desk = refund_desk(tmp_path, probability="temperature")
    found = desk.guard().check(refund())
    assert (found.action, found.codes) == ("escalate", ("temperature",))


# ----------------------------------------------------------------- tool policy


def test_a_tool_without_a_rule_is_blocked_unless_it_is_named_free(tmp_path: Path) -> None:
    guard = refund_desk(tmp_path).guard()
    unknown = guard.check(Call("c", "wire_money", {}))
    assert (unknown.action, unknown.codes) == ("block", ("unlisted_tool",))
    assert guard.check(Call("c", "lookup", {"id": 1})).codes == ("free_tool",)
    assert refund_desk(tmp_path).guard(unlisted="escalate").check(Call("c", "Refund", {})).action == "escalate"
    with pytest.raises(ApprovalError, match="wire_money"):
        guard.release(Call("c", "wire_money", {}), unknown)


def test_two_rules_for_one_tool_are_refused(tmp_path: Path) -> None:
    desk = refund_desk(tmp_path)
    with pytest.raises(GuardSettingError, match="two rules are about the tool 'refund'"):
        Guard([desk.rule, desk.rule])
    with pytest.raises(GuardSettingError, match="free, and with a rule"):
        desk.guard(free=["refund"])


# ----------------------------------------------------------------- hard rules


def test_a_hard_rule_is_above_every_score(tmp_path: Path) -> None:
    desk = refund_desk(tmp_path)
    found = desk.guard().check(refund(1.0, 501))
    assert (found.action, found.codes) == ("block", ("hard_rule",))
    assert found.reasons[0].text == "paid: it is more than was paid"
    assert found.score is None
    soft = with_rule(desk, hard_rules=(HardRule("always", lambda call: "no", "escalate"),))
    assert soft.guard().check(refund()).action == "escalate"


@pytest.mark.parametrize("answer", [True, 0, "", ["x"], b"no"], ids=repr)
def test_a_hard_rule_that_gives_no_sentence_never_lets_a_call_through(tmp_path: Path, answer: Any) -> None:
    desk = with_rule(refund_desk(tmp_path), hard_rules=(HardRule("odd", lambda call: answer),))
    found = desk.guard().check(refund())
    assert (found.action, found.codes) == ("escalate", ("hard_rule",))


# -------------------------------------------------------------------- repeats


def test_a_retry_of_the_same_call_is_the_same_decision(tmp_path: Path) -> None:
    scores = iter([0.6, 0.999, 0.999])
    asked = []

    @versioned("a number by hand")
    def resampled(context: object) -> float:
        asked.append(context)
        return next(scores)

    guard = with_rule(refund_desk(tmp_path), scorer=resampled).guard()
    first = guard.check(refund())
    again = guard.check(refund(call_id="c2"))
    assert (first.action, again.action, again.repeat, again.call_id) == ("ask", "ask", True, "c2")
    assert (again.id, len(asked)) == (first.id, 1)
    assert guard.check(refund(amount=41)).action == "act"  # other arguments are another call
    keys = guard.check(Call("c3", "refund", {"amount": 40}, "t", {"order": {"p": 0.999, "id": 7}}))
    assert keys.id == first.id  # the order of keys does not count


def test_a_retry_after_a_restart_finds_the_decision_in_the_state(tmp_path: Path) -> None:
    desk = refund_desk(tmp_path)
    first = desk.guard().check(refund(0.6))
    other = with_rule(desk, scorer=scoring(0.999))
    assert other.guard().check(refund(0.6), earlier=[read_decision(first.to_dict())]).id == first.id
    assert other.guard().check(refund(0.6)).action == "act"
    later = msgspec.structs.replace(first, decided=NOW + timedelta(hours=1))
    assert other.guard().check(refund(0.6), earlier=[later]).id != first.id  # made in the future: not believed


def test_other_thresholds_make_another_decision(tmp_path: Path) -> None:
    guard = refund_desk(tmp_path, probability="score").guard()
    assert guard.check(refund(0.6)).action == "ask"
    assert guard.check(refund(0.6), thresholds=(0.3, 0.55)).action == "act"
    assert guard.check(refund(0.6)).action == "ask"
    for pair in [(0.9, 0.1), (math.nan, 0.5), (0.0, -1.0), (0.0, True)]:
        assert guard.check(refund(0.7), thresholds=pair).action == "escalate"


def test_remembered_decisions_are_bounded_and_shared_by_threads(tmp_path: Path) -> None:
    guard = refund_desk(tmp_path).guard(remembered=2)
    for amount in range(5):
        guard.check(refund(amount=amount))
    assert len(guard._made) == 2
    barrier, found = threading.Barrier(4), []

    def run() -> None:
        barrier.wait()
        found.append(guard.check(refund(amount=99)).id)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(set(found)) == 1


# ------------------------------------------------------------------- evidence


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (math.nan, "not_finite"),
        (math.inf, "not_finite"),
        (-0.1, "negative"),
        (1.0000001, "above_one"),
        (True, "unparsable"),
        ("0.99", "unparsable"),
        (None, "unparsable"),
        ({"yes": 0.99}, "unparsable"),
        ([0.99], "unparsable"),
    ],
)
def test_a_score_that_is_no_probability_is_never_acted_on(tmp_path: Path, value: object, code: str) -> None:
    desk = with_rule(refund_desk(tmp_path), scorer=scoring(value))
    found = desk.guard().check(refund())
    assert (found.action, found.codes, found.score, found.p) == ("escalate", (code,), None, None)
    assert desk.guard(on_failure="block").check(refund()).action == "block"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (dict.fromkeys(LEVELS, math.nan), "not_finite"),
        (dict.fromkeys(LEVELS, 0), "all_zero"),
        ({"routine": 1.0}, "missing_option"),
        ({}, "missing_option"),
        ({**dict.fromkeys(LEVELS, 0.25), "none": 0.25}, "unknown_option"),
        ({"self_care": -0.1, "routine": 1.0, "emergency": 0.1}, "negative"),
        ({"self_care": 0.0, "routine": True, "emergency": 0.0}, "unparsable"),
        (dict.fromkeys(LEVELS, 0.9), "sum"),
        (dict.fromkeys(LEVELS, 0.3), "sum"),
        (0.99, "unparsable"),
        (None, "unparsable"),
        ([0.0, 1.0, 0.0], "unparsable"),
    ],
)
@pytest.mark.parametrize("method", ["LAC", "APS"])
def test_probabilities_that_are_no_distribution_are_never_acted_on(
    tmp_path: Path, value: object, code: str, method: Any
) -> None:
    desk = triage_desk(tmp_path, value, guarantee=Coverage("0.05", method))
    found = desk.guard().check(reply("self_care"))
    assert (found.action, found.codes, found.labels) == ("escalate", (code,), None)


# ------------------------------------------------------------ prediction sets


@pytest.mark.parametrize(
    ("scores", "level", "action", "code"),
    [
        ((0.01, 0.98, 0.01), "routine", "act", "approved"),
        ((0.01, 0.98, 0.01), "self_care", "escalate", "other_label"),
        ((0.01, 0.98, 0.01), 1, "escalate", "other_label"),
        ((0.01, 0.01, 0.98), "routine", "block", "blocked_labels"),
        ((0.01, 0.01, 0.98), "emergency", "block", "blocked_labels"),
        ((0.34, 0.33, 0.33), "self_care", "escalate", "empty_set"),
    ],
)
def test_a_set_leads_to_an_action(
    tmp_path: Path, scores: tuple[float, ...], level: object, action: str, code: str
) -> None:
    found = triage_desk(tmp_path, dict(zip(LEVELS, scores, strict=True))).guard().check(reply(level))
    assert (found.action, found.codes) == (action, (code,))


def test_a_set_of_several_labels_is_asked_about(tmp_path: Path) -> None:
    desk = triage_desk(tmp_path, {"self_care": 0.5, "routine": 0.5, "emergency": 0.0})
    # 40 more wrong ones make the limit so wide that both fit.
    desk.write(triage_examples(wrong=40))
    found = desk.guard().check(reply())
    assert found.labels is not None
    assert len(found.labels) > 1
    assert found.codes == ("several_labels",)
    assert found.action in ("ask", "escalate")


def test_a_label_that_allows_nothing_and_a_missing_argument(tmp_path: Path) -> None:
    scores = {"self_care": 0.01, "routine": 0.98, "emergency": 0.01}
    desk = triage_desk(tmp_path, scores, allow_labels=frozenset({"self_care"}))
    assert desk.guard().check(reply()).codes == ("label_not_allowed",)
    other = triage_desk(tmp_path, scores)
    found = other.guard().check(Call("c", "reply", {}, "t", {"message": "x"}))
    assert (found.action, found.codes) == ("escalate", ("other_label",))


# --------------------------------------------------------------------- groups


def test_a_group_has_its_own_threshold_and_an_unseen_one_never_acts(tmp_path: Path) -> None:
    def group(call: Call) -> str:
        assert isinstance(call.state, dict)
        return str(call.state["order"]["id"])

    desk = with_rule(refund_desk(tmp_path), group=group)
    desk.write([*examples(group="7"), *examples(right=20, wrong=100, group="8")])
    guard = desk.guard()
    assert guard.check(refund()).action == "act"
    hard = guard.check(Call("c", "refund", {"amount": 1}, "t", {"order": {"id": 8, "p": 0.999}}))
    assert hard.action != "act"
    assert hard.group == "8"
    unseen = guard.check(Call("c", "refund", {"amount": 1}, "t", {"order": {"id": 9, "p": 0.999}}))
    assert (unseen.action, unseen.codes) == ("escalate", ("unseen_group",))


def test_groups_are_named_by_both_or_by_neither(tmp_path: Path) -> None:
    desk = refund_desk(tmp_path)
    desk.write(examples(group="7"))
    assert desk.guard().check(refund()).codes == ("groups",)

    def always(call: Call) -> str:
        return "7"

    named = with_rule(desk, group=always)
    named.write(examples())
    assert named.guard().check(refund()).codes == ("unseen_group",)


# ---------------------------------------------------------------------- audit


def test_a_random_share_of_all_calls_is_audited(tmp_path: Path) -> None:
    desk = with_rule(refund_desk(tmp_path), audit_share="0.1")
    drawn = iter([0.0999, 0.1, 0.05])
    guard = desk.guard(random=lambda: next(drawn))
    found = [guard.check(refund(p, amount)) for p, amount in [(0.999, 1), (0.999, 2), (0.1, 3)]]
    assert [one.audited for one in found] == [True, False, True]
    assert {one.audit_weight for one in found} == {10.0}
    assert guard.check(refund(0.999, 1)).audited  # a repeat draws no second time
    assert refund_desk(tmp_path).guard().check(refund()).audit_weight is None
    for number in (1.0, -0.1, math.nan, None, "0"):
        bad = desk.guard(random=lambda number=number: number)
        assert bad.check(refund()).codes == ("approved", "random")
        assert bad.check(refund()).action == "escalate"


# ------------------------------------------------- the four known ways to fail open


@pytest.mark.parametrize("method", ["LAC", "APS"])
def test_hole_1_scores_that_are_all_nan_do_not_answer_with_the_first_option(tmp_path: Path, method: Any) -> None:
    desk = triage_desk(tmp_path, dict.fromkeys(LEVELS, math.nan), guarantee=Coverage("0.05", method))
    assert desk.guard().check(reply("self_care")).action == "escalate"


@pytest.mark.parametrize("scores", [{}, None, {"": 0.5}, "no valid sample"])
def test_hole_2_a_scorer_without_scores_is_no_even_chance(tmp_path: Path, scores: object) -> None:
    gate = refund_desk(tmp_path)
    assert gate.guard().check(refund(0.5)).threshold == 0.125  # so an even chance would pass the bound
    assert with_rule(gate, scorer=scoring(scores)).guard().check(refund(), thresholds=(0.0, 0.0)).action == "escalate"
    assert triage_desk(tmp_path, scores).guard().check(reply()).action == "escalate"


def test_hole_3_a_decision_to_act_does_not_outlive_its_profile(tmp_path: Path) -> None:
    desk = refund_desk(tmp_path)
    guard = desk.guard()
    acted = guard.check(refund())
    assert acted.action == "act"
    content = desk.rule.profile.read_bytes()
    desk.rule.profile.unlink()
    gone = guard.check(refund(), earlier=[acted])
    assert (gone.action, gone.codes) == ("escalate", ("missing",))
    with pytest.raises(ProfileError, match="there is no profile"):
        guard.release(refund(), acted)
    desk.write(examples(right=30, wrong=290))
    anew = guard.check(refund(), earlier=[acted])
    assert anew.action != "act"
    assert anew.profile_version != acted.profile_version
    with pytest.raises(ApprovalError, match="another profile"):
        guard.release(refund(), acted)
    desk.rule.profile.write_bytes(content)
    assert guard.check(refund()).id == acted.id
    assert guard.release(refund(), acted).released_by == "guard"


@pytest.mark.parametrize("p", [0.999, 0.6, 0.1])
def test_hole_4_arguments_that_were_changed_after_the_decision_do_not_run(tmp_path: Path, p: float) -> None:
    guard = refund_desk(tmp_path).guard()
    decision = guard.check(refund(p))
    with pytest.raises(ApprovalError):
        guard.release(refund(p, 50), decision)
    blocked = guard.check(refund(p, 501))
    assert blocked.action == "block"
    for amount in (501, 40):
        with pytest.raises((ApprovalError, BrokenRuleError)):
            guard.release(refund(p, amount), blocked)


# --------------------------------------------------------------------- release


def test_what_was_decided_on_is_released_and_nothing_else(tmp_path: Path) -> None:
    guard = refund_desk(tmp_path).guard()
    decision = guard.check(refund())
    released = guard.release(refund(call_id="again"), decision)
    assert (released.decision_id, released.arguments_hash) == (decision.id, decision.arguments_hash)
    for other in (
        refund(amount=41),
        refund(amount=40.0),
        refund(thread="u"),
        Call("c1", "lookup", {"amount": 40}, "t"),
    ):
        with pytest.raises((ApprovalError, BrokenRuleError)):
            guard.release(other, decision)
    with pytest.raises(ApprovalError, match="waits for a person"):
        guard.release(refund(0.6), guard.check(refund(0.6)))
    assert guard.release(Call("c", "lookup", {}), guard.check(Call("c", "lookup", {}))).released_by == "guard"


# -------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "changed",
    [
        {"guarantee": Coverage("0.05")},
        {"options": LEVELS},
        {"match_argument": "amount"},
        {"allow_labels": frozenset({"x"})},
        {"hard_rules": (HardRule("a", lambda call: None), HardRule("a", lambda call: None))},
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(GuardSettingError, match="contradicts itself"):
        refund_desk(tmp_path, **changed)


@pytest.mark.parametrize("changed", [{"allow_labels": frozenset()}, {"block_labels": frozenset({"routine"})}])
def test_labels_that_allow_nothing_or_both_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(GuardSettingError, match="some labels allow"):
        triage_desk(tmp_path, {}, **changed)


def test_levels_are_checked_when_they_are_written() -> None:
    with pytest.raises(ValueError, match="write"):
        Joint("1.5", cap="0.1")
    with pytest.raises(ValueError, match="write"):
        Joint("0.1", cap=0)
    with pytest.raises(ValueError, match="write"):
        Joint("0.1", cap="0.5", delta="2")
    with pytest.raises(ValueError, match="write"):
        Selective("0.1", "x")
    with pytest.raises(ValueError, match="write"):
        Coverage("0.1", "RAPS")  # type: ignore[arg-type]


def test_a_function_without_a_fingerprint_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(GuardSettingError, match="has no fingerprint"):
        refund_desk(tmp_path, scorer=object())


def code_lines(path: Path) -> int:
    """Lines that hold code: no docstring, comment or blank."""
    text = path.read_text()
    skipped = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            skipped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(1 for n, line in lines if n not in skipped and line.strip() and not line.strip().startswith("#"))


def test_the_statistics_and_the_core_of_the_guard_are_read_in_one_sitting() -> None:
    core = [ROOT / "decider" / "guard" / f"{name}.py" for name in ("levels", "sets", "verdict", "check")]
    assert sum(map(code_lines, core)) < 400


def test_threads_that_share_a_guard_do_not_see_the_clock_go_back() -> None:
    guard = Guard([], free=["search"])
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: guard.check(Call("c", "search", {})).action, range(2_000)))
    finally:
        sys.setswitchinterval(before)
    assert set(found) == {"act"}
