"""Approvals and reviews: what releases a call, once, and everything that does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from guard_rules import NOW, Desk, refund, refund_desk

from decider.guard import (
    Approval,
    ApprovalError,
    BrokenRuleError,
    Call,
    Decision,
    Guard,
    GuardError,
    Rejection,
    approve,
    read_review,
    redeem,
    refused,
    review_question,
    waiting,
)

HOUR = timedelta(hours=1)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return refund_desk(tmp_path)


@pytest.fixture
def guard(desk: Desk) -> Guard:
    return desk.guard()


def asked(guard: Guard, **fields: Any) -> tuple[Call, Decision]:
    call = refund(0.6, **fields)
    decision = guard.check(call)
    assert decision.action == "ask"
    return call, decision


def approved(call: Call, decision: Decision, **changed: Any) -> Approval:
    return approve(call, decision, **{"actor": "Ann", "now": NOW, "lifetime": HOUR, **changed})


# ------------------------------------------------------------------ approvals


def test_an_approval_releases_its_call_once(guard: Guard) -> None:
    call, decision = asked(guard)
    approval = approved(call, decision)
    released = guard.release(call, decision, approval)
    assert (released.approval_id, released.released_by) == (approval.id, "Ann")
    assert released.arguments_hash == decision.arguments_hash
    with pytest.raises(ApprovalError) as caught:
        guard.release(call, decision, approval, redeemed=[approval.id])
    assert caught.value.code == "redeemed"


def test_a_run_again_with_another_id_is_the_same_call(guard: Guard) -> None:
    call, decision = asked(guard)
    approval = approved(call, decision)
    again = replace(call, id="c9", arguments=dict(reversed(list(call.arguments.items()))))
    assert guard.release(again, guard.check(again), approval).call_id == "c9"


def test_records_are_plain_data(guard: Guard) -> None:
    call, decision = asked(guard)
    approval = approved(call, decision)
    plain = json.loads(json.dumps(msgspec.to_builtins(approval)))
    assert msgspec.convert(plain, Approval) == approval


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda call, one: (replace(call, arguments={"amount": 41}), one), "other_arguments"),
        (lambda call, one: (replace(call, arguments={"amount": 40, "to": "x"}), one), "other_arguments"),
        (lambda call, one: (replace(call, arguments={"amount": 40.0}), one), "hard_rule"),
        (lambda call, one: (replace(call, thread="u"), one), "other_call"),
        (lambda call, one: (call, msgspec.structs.replace(one, tool="wire")), "other_call"),
        (lambda call, one: (call, msgspec.structs.replace(one, decision_id="x")), "other_decision"),
        (lambda call, one: (call, msgspec.structs.replace(one, arguments={"amount": 1})), "other_arguments"),
        (lambda call, one: (call, msgspec.structs.replace(one, arguments_hash="x")), "other_arguments"),
        (lambda call, one: (call, msgspec.structs.replace(one, expires=NOW)), "expired"),
        (lambda call, one: (call, msgspec.structs.replace(one, made=NOW + HOUR)), "clock"),
    ],
)
def test_an_approval_of_something_else_releases_nothing(
    guard: Guard, change: Callable[[Call, Approval], tuple[Call, Approval]], code: str
) -> None:
    call, decision = asked(guard)
    other, approval = change(call, approved(call, decision))
    with pytest.raises(GuardError) as caught:
        guard.release(other, decision, approval)
    assert caught.value.code == code


def test_an_approval_for_other_arguments_passes_only_as_an_edit(guard: Guard) -> None:
    call, decision = asked(guard)
    smaller = replace(call, arguments={"amount": 20})
    forged = msgspec.structs.replace(
        approved(call, decision, arguments={"amount": 20}, check_hard_rules=lambda call: None), edited=False
    )
    with pytest.raises(ApprovalError, match="not those decided on"):
        guard.release(smaller, decision, forged)


def test_time_goes_forward_or_nothing_runs(desk: Desk, guard: Guard) -> None:
    call, decision = asked(guard)
    approval = approved(call, decision)
    desk.clock.time = NOW + HOUR
    with pytest.raises(ApprovalError, match="was good until"):
        guard.release(call, decision, approval)
    desk.clock.time = NOW + HOUR - timedelta(seconds=1)
    with pytest.raises(GuardError) as caught:
        guard.release(call, decision, approval)
    assert caught.value.code == "clock"
    assert desk.guard().release(call, decision, approval).released_by == "Ann"  # another process, whose clock is right
    desk.clock.time = NOW - timedelta(seconds=1)
    with pytest.raises(ApprovalError, match="before the approval"):
        desk.guard().release(call, decision, approval)


@pytest.mark.parametrize("p", [0.999, None])
def test_what_waits_for_nobody_takes_no_approval(guard: Guard, p: float | None) -> None:
    call = refund(0.999) if p else refund(0.999, 501)
    decision = guard.check(call)
    assert decision.action in ("act", "block")
    with pytest.raises(ApprovalError, match="waits for nobody"):
        approved(call, decision)
    waited, waiting_decision = asked(guard)
    approval = msgspec.structs.replace(
        approved(waited, waiting_decision),
        decision_id=decision.id,
        arguments=dict(call.arguments),
        arguments_hash=decision.arguments_hash or "",
    )
    with pytest.raises(GuardError):
        guard.release(call, decision, approval)
    with pytest.raises(ApprovalError, match="takes none"):
        redeem(approval, call, decision, now=NOW)


@pytest.mark.parametrize(
    "changed",
    [
        {"actor": " "},
        {"now": NOW.replace(tzinfo=None)},
        {"lifetime": timedelta(0)},
        {"arguments": {"amount": 1}},  # without hard rules
    ],
)
def test_an_approval_needs_a_person_a_time_and_hard_rules(guard: Guard, changed: dict[str, Any]) -> None:
    call, decision = asked(guard)
    with pytest.raises(ApprovalError):
        approved(call, decision, **changed)
    with pytest.raises(ApprovalError, match="not those that were decided on"):
        approved(replace(call, arguments={"amount": 1}), decision)
    with pytest.raises(ApprovalError, match="about call 'c1'"):
        approved(replace(call, thread="u"), decision)


# -------------------------------------------------------------------- reviews


def answer(**verdicts: object) -> dict[str, object]:
    return {"by": "Ann", "verdicts": verdicts}


def turn(guard: Guard) -> list[tuple[Call, Decision]]:
    """Four calls: one to ask about, one that acts, one that is blocked, and one to hand over."""
    calls = [refund(0.6, 1, call_id="a"), refund(0.999, 2, call_id="b"), refund(0.9, 501, call_id="c")]
    calls.append(refund(0.1, 3, call_id="d"))
    return [(call, guard.check(call)) for call in calls]


def test_one_question_about_all_calls_of_a_turn(guard: Guard) -> None:
    calls = turn(guard)
    assert [call.id for call, _ in waiting(calls)] == ["a", "d"]
    question = review_question(calls)
    assert json.loads(json.dumps(question)) == question
    listed = question["calls"]
    assert isinstance(listed, list)
    assert [(one["call_id"], one["arguments"], one["action"]) for one in listed] == [
        ("a", {"amount": 1}, "ask"),
        ("d", {"amount": 3}, "escalate"),
    ]
    assert (listed[0]["p"], listed[0]["tau_act"], listed[0]["threshold"]) == (0.6, 0.96875, 0.125)
    assert "at most 5 in 100 calls" in listed[0]["guarantee"]
    with pytest.raises(ApprovalError, match="no call of this turn waits"):
        review_question(calls[1:3])
    with pytest.raises(ApprovalError, match="same id"):
        review_question([calls[0], calls[0]])
    with pytest.raises(ApprovalError, match="same id"):  # or one verdict would approve both
        read_review(answer(a={"verdict": "approve"}), [calls[0], calls[0]], guard)


def test_an_answer_is_read_call_by_call(guard: Guard) -> None:
    calls = turn(guard)
    found = read_review(
        answer(a={"verdict": "edit", "arguments": {"amount": 50}}, d={"verdict": "reject", "reason": "paid already"}),
        calls,
        guard,
    )
    edited, rejected = found
    assert isinstance(edited, Approval)
    assert isinstance(rejected, Rejection)
    assert (edited.edited, edited.arguments, edited.actor) == (True, {"amount": 50}, "Ann")
    assert (rejected.call_id, rejected.reason, rejected.actor) == ("d", "paid already", "Ann")
    call, decision = calls[0]
    assert guard.release(replace(call, arguments={"amount": 50}), decision, edited).released_by == "Ann"
    with pytest.raises(ApprovalError):
        guard.release(call, decision, edited)  # the old arguments are gone


def test_hard_rules_apply_to_what_a_person_wrote(guard: Guard) -> None:
    calls = turn(guard)[:1]
    with pytest.raises(BrokenRuleError, match="more than was paid"):
        read_review(answer(a={"verdict": "edit", "arguments": {"amount": 501}}), calls, guard)
    call, decision = calls[0]
    forged = approved(call, decision, arguments={"amount": 501}, check_hard_rules=lambda call: None)
    with pytest.raises(BrokenRuleError):
        guard.release(replace(call, arguments={"amount": 501}), decision, forged)


def test_an_edit_does_not_ask_the_model(tmp_path: Path) -> None:
    desk = refund_desk(tmp_path)
    guard = desk.guard()
    calls = turn(guard)[:1]
    desk.rule.profile.unlink()  # nothing could be scored any more
    (edited,) = read_review(answer(a={"verdict": "edit", "arguments": {"amount": 50}}), calls, guard)
    assert isinstance(edited, Approval)
    call, decision = calls[0]
    assert guard.release(replace(call, arguments={"amount": 50}), decision, edited).approval_id == edited.id


@pytest.mark.parametrize(
    "given",
    [
        None,
        "approve",
        {"by": "Ann"},
        {"by": "", "verdicts": {}},
        {"by": 1, "verdicts": {}},
        answer(),
        answer(a={"verdict": "approve"}),  # nothing is said about d
        answer(a={"verdict": "approve"}, d={"verdict": "approve"}, b={"verdict": "approve"}),
        answer(a={"verdict": "approve"}, d={"verdict": "approve", "reason": "x"}),
        answer(a={"verdict": "approve"}, d={"verdict": "reject"}),
        answer(a={"verdict": "approve"}, d={"verdict": "reject", "reason": ""}),
        answer(a={"verdict": "approve"}, d={"verdict": "edit", "arguments": [1]}),
        answer(a={"verdict": "approve"}, d={"verdict": "edit", "arguments": {1: 2}}),
        answer(a={"verdict": "approve"}, d={"verdict": "yes"}),
        answer(a={"verdict": "approve"}, d={"verdict": ["approve"]}),
        answer(a={"verdict": "approve"}, d="approve"),
        {**answer(a={"verdict": "approve"}, d={"verdict": "approve"}), "more": 1},
    ],
    ids=repr,
)
def test_an_answer_that_is_not_clear_approves_nothing(guard: Guard, given: object) -> None:
    with pytest.raises(ApprovalError):
        read_review(given, turn(guard), guard)


def test_without_a_person_what_waits_is_refused_and_can_be_queued(guard: Guard) -> None:
    found = refused(turn(guard))
    assert [(one.call_id, one.status) for one in found] == [
        ("a", "needs_human_review"),
        ("c", "blocked"),
        ("d", "needs_human_review"),
    ]
    assert found[0].text.startswith("refund was not run: p 0.6000, tau_esc 0.3750, tau_act 0.9688.")
    assert found[0].text.endswith("A person has to decide on it.")
    assert found[1].text == "refund was not run: paid: it is more than was paid"
    entry = json.loads(json.dumps(msgspec.to_builtins(found[0])))
    assert entry["arguments"] == {"amount": 1}
    assert msgspec.convert(entry["decision"], Decision) == found[0].decision
