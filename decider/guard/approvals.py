"""What a person answered about a call, as plain records: bound to exact arguments, used once, and expiring.

An edit is the approval of new arguments: hard rules apply to them, the model is not asked about them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from uuid import uuid4

import msgspec

from decider.guard.errors import ApprovalError
from decider.guard.fingerprint import hash_call
from decider.guard.records import Call, Decision


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person, `actor`, agreed to these very arguments of a call, once and for as long as it says.

    It holds for the decision, the thread, the tool and the arguments; a re-run may give the call another id.

    `edited` tells that they are the person's own arguments instead of those that were decided on.
    """

    id: str
    decision_id: str
    thread: str
    tool: str
    arguments: dict[str, object]
    arguments_hash: str
    edited: bool
    actor: str
    made: datetime
    expires: datetime


class Rejection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person, `actor`, decided against a call, and why."""

    decision_id: str
    call_id: str
    tool: str
    actor: str
    reason: str
    made: datetime


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call with exactly these arguments may run now, once. `released_by` is a person's name, or "guard"."""

    call_id: str
    decision_id: str
    arguments_hash: str | None
    approval_id: str | None
    released_by: str


def approve(
    call: Call,
    decision: Decision,
    *,
    actor: str,
    now: datetime,
    lifetime: timedelta,
    arguments: Mapping[str, object] | None = None,
    check_hard_rules: Callable[[Call], None] | None = None,
) -> Approval:
    """Return a person's approval of a call that waits, or of other `arguments` for it.

    Other arguments need `check_hard_rules`, which raises for a call that breaks one. Raises ApprovalError for a call
    that does not wait, or is not the one that was decided on.
    """
    if decision.action not in ("ask", "escalate"):
        raise ApprovalError("not_waiting", f"call {call.id!r} waits for nobody: {decision.action}", "Check it first.")
    if (call.thread, call.tool) != (decision.thread, decision.tool):
        raise ApprovalError("other_call", f"the decision is about call {decision.call_id!r}", "Give its own decision.")
    if decision.arguments_hash is None:
        raise ApprovalError("other_arguments", "the arguments are no data that JSON can hold", "Reject the call.")
    if hash_call(call.tool, call.arguments) != decision.arguments_hash:
        raise ApprovalError("other_arguments", "the arguments are not those that were decided on", "Check them anew.")
    if not actor.strip():
        raise ApprovalError("actor", "nobody is named", "Say who approves.")
    if now.tzinfo is None or lifetime <= timedelta(0):
        raise ApprovalError(
            "lifetime", f"made {now}, for {lifetime}", "Give a time with a zone and some time to use it."
        )
    final: dict[str, object] = dict(call.arguments if arguments is None else arguments)
    if arguments is not None:
        if check_hard_rules is None:
            raise ApprovalError("hard_rules", "edited arguments were not checked", "Give check_hard_rules.")
        check_hard_rules(Call(call.id, call.tool, final, call.thread, call.state))
    digest = hash_call(call.tool, final)
    return Approval(
        uuid4().hex,
        decision.id,
        call.thread,
        call.tool,
        final,
        digest,
        arguments is not None,
        actor,
        now,
        now + lifetime,
    )


def redeem(
    approval: Approval, call: Call, decision: Decision, *, now: datetime, redeemed: Collection[str] = ()
) -> Release:
    """Say that an approved call may run now; raises ApprovalError.

    Every part has to fit: the decision, the call, the exact arguments, the time, and that it was not used before.
    """
    if decision.action not in ("ask", "escalate"):
        raise ApprovalError(
            "not_waiting", f"the decision was {decision.action}", "It needs no approval, or takes none."
        )
    if approval.decision_id != decision.id:
        raise ApprovalError("other_decision", "the approval is about another decision", "Ask again.")
    if not (approval.thread, approval.tool) == (call.thread, call.tool) == (decision.thread, decision.tool):
        raise ApprovalError("other_call", f"the approval is about {approval.tool!r} in its thread", "Ask again.")
    digest = hash_call(call.tool, call.arguments)
    if digest != approval.arguments_hash or digest != hash_call(approval.tool, approval.arguments):
        raise ApprovalError("other_arguments", "the arguments are not those that were approved", "Ask again.")
    if not approval.edited and digest != decision.arguments_hash:
        raise ApprovalError("other_arguments", "the approved arguments are not those decided on", "Ask again.")
    if now < approval.made:
        raise ApprovalError("clock", f"it is {now}, before the approval of {approval.made}", "Check the clock.")
    if now >= approval.expires:
        raise ApprovalError("expired", f"the approval was good until {approval.expires}", "Ask again.")
    if approval.id in redeemed:
        raise ApprovalError("redeemed", "the approval has been used", "Ask again: one approval, one action.")
    return Release(call.id, decision.id, digest, approval.id, approval.actor)
