"""From checked evidence, a bound and thresholds from costs to what becomes of a call. Nothing here does any input."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime

from decider.costs import as_probability, region
from decider.guard.bounds import GateBound, SetBound
from decider.guard.records import Action, Call, Decision, Reason
from decider.guard.rules import ToolRule


@dataclass(slots=True)
class Draft:
    """What is known of a decision while it is made; the fields are those of `Decision`."""

    arguments_hash: str | None = None
    context_hash: str | None = None
    profile_version: str | None = None
    group: str | None = None
    p: float | None = None
    score: float | dict[str, float] | None = None
    labels: tuple[str, ...] | None = None
    tau_esc: float = 1.0
    tau_act: float = 1.0
    threshold: float | None = None
    guarantee: str = ""
    audited: bool = False
    audit_weight: float | None = None
    decided: datetime | None = None
    reasons: list[Reason] = field(default_factory=list)

    def because(self, action: Action, code: str, text: str) -> Action:
        """Note a reason and return the action."""
        self.reasons.append(Reason(code, text))
        return action

    def key(self, tool: str) -> tuple[object, ...]:
        """What makes two calls the same: tool, arguments, context, profile and thresholds."""
        return (
            tool, self.arguments_hash, self.context_hash, self.profile_version, self.group, self.tau_esc, self.tau_act
        )  # fmt: skip

    def is_repeated_by(self, known: Decision, tool: str) -> bool:
        """Tell whether a decision was made about the same call, by the same profile, and not in the future."""
        same = (
            known.tool, known.arguments_hash, known.context_hash, known.profile_version, known.group, known.tau_esc,
            known.tau_act,
        )  # fmt: skip
        in_order = known.decided is not None and self.decided is not None and known.decided <= self.decided
        return in_order and known.p is not None and same == self.key(tool)


def through_gate(bound: GateBound, draft: Draft) -> Action:
    """Act when the probability reaches tau_act and the score the threshold; otherwise ask or escalate by the costs."""
    score = draft.score
    assert isinstance(score, float)
    draft.threshold = bound.threshold if bound.threshold < math.inf else None
    draft.p = as_probability(bound.probability(score))
    if (held := _held_by_costs(draft)) is not None:
        return held
    if score >= bound.threshold:
        return draft.because("act", "approved", f"the score {score:.4f} reaches {bound.threshold:.4f}.")
    needed = "nothing is approved" if draft.threshold is None else f"{draft.threshold:.4f} is needed"
    return draft.because(_less_than_acting(draft), "bound", f"the score is {score:.4f} and {needed}. {bound.text}")


def through_set(bound: SetBound, rule: ToolRule, call: Call, draft: Draft) -> Action:
    """Act when the set is the one allowed label that the call proposes; block when it holds blocked labels alone."""
    chances = draft.score
    assert isinstance(chances, dict)
    labels = tuple(rule.options[place] for place in bound.rule.options([chances[one] for one in rule.options]))
    draft.labels, draft.p = labels, as_probability(bound.probability(max(chances.values())))
    if not labels:
        return draft.because("escalate", "empty_set", "no option fits.")
    if rule.block_labels.issuperset(labels):
        return draft.because("block", "blocked_labels", f"it can only be {', '.join(labels)}.")
    label, *others = labels
    if others:
        held = region(draft.p, draft.tau_esc, draft.tau_act)
        lesser = _less_than_acting(draft) if held == "act" else held
        return draft.because(lesser, "several_labels", f"it may be {', '.join(labels)}.")
    if label not in rule.allow_labels:
        return draft.because("escalate", "label_not_allowed", f"it is {label}, which allows nothing.")
    if rule.match_argument is not None and call.arguments.get(rule.match_argument) != label:
        proposed = call.arguments.get(rule.match_argument)
        return draft.because("escalate", "other_label", f"it is {label}, and {rule.match_argument} is {proposed!r}.")
    if (held_back := _held_by_costs(draft)) is not None:
        return held_back
    return draft.because("act", "approved", f"it is {label}, and nothing else.")


def _held_by_costs(draft: Draft) -> Action | None:
    where = region(draft.p, draft.tau_esc, draft.tau_act)
    if where == "act":
        return None
    shown = "no probability" if draft.p is None else f"p {draft.p:.4f}"
    return draft.because(where, "costs", f"{shown}, tau_esc {draft.tau_esc:.4f}, tau_act {draft.tau_act:.4f}.")


def _less_than_acting(draft: Draft) -> Action:
    """Ask where the costs have a region for it."""
    return "ask" if draft.tau_esc < draft.tau_act else "escalate"
