"""What a conversation knows: the table of keys that every node reads and some node writes.

Every value is plain data (dicts, lists, text, numbers), so a checkpoint can be read by anybody. ``actions`` and
``trace`` only ever grow; ``messages`` merges by message id; every other key is overwritten.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict

from desk.policy import Case
from desk.thresholds import checked_thresholds
from minigraph import add_messages

Outcome: TypeAlias = Literal["answered", "asked_user", "sent", "rejected", "escalated", "failed"]
"""How a turn ended: with an answer, a question to the participant, a mail that surely went out, a mail that a person
refused, a hand-off to a person, or a failure (which is handed off as well)."""

K_MAX: Final = 4
"""Calls of the language model in one turn; a turn that wants more has failed."""

RECURSION_LIMIT: Final = 40
"""Steps of one run, a second bound that ``K_MAX`` keeps out of reach."""


class DeskState(TypedDict):
    """The state of one conversation.

    | key | written by | meaning |
    |---|---|---|
    | case | input | the records and the request of this turn (``desk.policy.Case`` as JSON) |
    | thresholds | input, a fork | tau_route, tau_esc, tau_act |
    | turn | input | which request of the thread this is, from 1 |
    | messages | input, agent, tools, human_review, send, ask_user, escalate | the conversation |
    | route, p_route, routing | router | the next step, its probability, and where both come from |
    | k | agent | language-model calls of this turn |
    | pending | tools, human_review; cleared by send, human_review, escalate | the send_email call that waits |
    | p_allow, region, decision | guard | probability, act/ask/escalate, and the full record of the decision |
    | review | human_review | what the person answered |
    | failure | agent, send | why this turn cannot go on, or None |
    | outcome, answer, handoff | agent, ask_user, escalate | how the turn ended |
    | actions | human_review, send, escalate, ask_user | what was done, ``sent:<call id>`` and the like |
    | trace | every node | one entry a step with every probability and threshold |
    """

    case: dict[str, Any]
    thresholds: dict[str, float]
    turn: int
    messages: Annotated[list[dict[str, Any]], add_messages]
    route: str | None
    p_route: float | None
    routing: dict[str, Any] | None
    k: int
    pending: dict[str, Any] | None
    p_allow: float | None
    region: str | None
    decision: dict[str, Any] | None
    review: dict[str, Any] | None
    failure: str | None
    outcome: str | None
    answer: str | None
    handoff: str | None
    actions: Annotated[list[str], operator.add]
    trace: Annotated[list[dict[str, Any]], operator.add]


def new_turn(case: Case, thresholds: Mapping[str, object], turn: int, message: str | None = None) -> DeskState:
    """Give the input of a run that takes up a request as turn number ``turn`` of its thread.

    ``message`` is what joins the conversation, where it is only the last part of the request.

    Raises:
        ThresholdError: see ``desk.thresholds.checked_thresholds``.
    """
    return DeskState(
        case=case.to_json(),
        thresholds=checked_thresholds(thresholds),
        turn=turn,
        messages=[{"role": "user", "content": case.request if message is None else message, "id": f"turn-{turn}"}],
        route=None,
        p_route=None,
        routing=None,
        k=0,
        pending=None,
        p_allow=None,
        region=None,
        decision=None,
        review=None,
        failure=None,
        outcome=None,
        answer=None,
        handoff=None,
        actions=[],
        trace=[],
    )


def turn_trace(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the trace entries of the current turn."""
    return [entry for entry in state.get("trace") or [] if entry["turn"] == state["turn"]]


def turn_actions(state: Mapping[str, Any]) -> list[str]:
    """Give what was done in the current turn."""
    return [action for entry in turn_trace(state) for action in entry["actions"]]
