"""A refund tool and a triage tool with calibrated guards, of which a test can break any part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from decider.costs import Costs
from decider.guard import (
    Call,
    Coverage,
    Example,
    Guard,
    HardRule,
    Joint,
    Profile,
    ToolRule,
    make_profile,
    versioned,
    write_profile,
)

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
TODAY = NOW.date()
COSTS = Costs(20, 0.5, 4, 3)  # tau_esc 0.375, tau_act 0.96875


def refund_context(call: Call) -> object:
    """What the scorer sees: the order from the system of record, and what is proposed."""
    assert isinstance(call.state, dict)
    return {"order": call.state["order"], "amount": call.arguments["amount"]}


@versioned("a number by hand")
def refund_score(context: object) -> object:
    """The probability that is written on the order."""
    assert isinstance(context, dict)
    return context["order"]["p"]


def within_the_order(call: Call) -> str | None:
    """No refund above what was paid."""
    assert isinstance(call.arguments["amount"], int)
    return "it is more than was paid" if call.arguments["amount"] > 500 else None


def examples(*, right: int = 300, wrong: int = 20, group: str | None = None, day: date = TODAY) -> list[Example]:
    """Right calls with scores from 0.6 up to 1, and wrong ones with scores from 0 up to 0.5."""
    made = [(0.6 + 0.4 * place / right, True) for place in range(1, right + 1)]
    made += [(0.5 * place / max(1, wrong), False) for place in range(wrong)]
    prefix = group or "x"
    created = day - timedelta(days=10)
    return [
        Example(f"{prefix}{n}", f"run {prefix}{n}", score, label, created, day - timedelta(days=1), group)
        for n, (score, label) in enumerate(made)
    ]


@dataclass
class Clock:
    """A clock that tests set."""

    time: Any = NOW

    def __call__(self) -> datetime:
        if isinstance(self.time, Exception):
            raise self.time
        found: datetime = self.time
        return found


@dataclass
class Desk:
    """One rule, its profile and a guard; `calls` counts how often the scorer was asked."""

    folder: Path
    rule: ToolRule
    clock: Clock = field(default_factory=Clock)
    calls: int = 0

    def guard(self, **settings: Any) -> Guard:
        return Guard([self.rule], **{"free": ["lookup"], "clock": self.clock, **settings})

    def write(self, given: list[Example] | None = None, **changed: Any) -> Profile:
        """Write the profile of the rule."""
        settings: dict[str, Any] = {"calibrated": TODAY, "max_age_days": 90, "options": self.rule.options, **changed}
        fingerprints = settings.pop("fingerprints", None) or self.rule.fingerprints()
        tool = settings.pop("tool", self.rule.tool)
        profile = make_profile(tool, fingerprints, examples() if given is None else given, **settings)
        write_profile(self.rule.profile, profile)
        return profile


def refund_desk(folder: Path, **changed: Any) -> Desk:
    """A refund tool: at most 5 in 100 calls are refunded alone and wrong; written with its profile."""
    settings: dict[str, Any] = {
        "tool": "refund",
        "profile": folder / "refund.json",
        "context": refund_context,
        "scorer": refund_score,
        "guarantee": Joint("0.05", cap="0.2"),
        "costs": COSTS,
        "model": "by hand 1",
        "question": "Is this refund right?",
        "policy": "Refunds up to what was paid.",
        "tool_schema": {"amount": "integer"},
        "label_protocol": "two people",
        "probability": "score",
        "hard_rules": (HardRule("paid", within_the_order),),
        **changed,
    }
    desk = Desk(folder, ToolRule(**settings))
    desk.write()
    return desk


def refund(p: object = 0.999, amount: object = 40, *, call_id: str = "c1", thread: str = "t") -> Call:
    """A call of the refund tool with the score that it will get."""
    return Call(call_id, "refund", {"amount": amount}, thread, {"order": {"id": 7, "p": p}})


LEVELS = ("self_care", "routine", "emergency")


def triage_context(call: Call) -> object:
    """What the scorer sees."""
    assert isinstance(call.state, dict)
    return {"message": call.state["message"]}


def triage_scorer(scores: object) -> Callable[[object], object]:
    """A scorer that gives these probabilities to every message."""

    @versioned("triage by hand")
    def score(context: object) -> object:
        return scores

    return score


def triage_examples(*, wrong: int = 3) -> list[Example]:
    """320 messages: the likeliest level has 0.99 to 0.8 and is right, but for some that are emergencies."""
    found = []
    for n in range(320):
        p, level = 0.99 - 0.19 * n / 320, LEVELS[n % 2]
        rest = {one: (1 - p) / 2 for one in LEVELS if one != level}
        label = "emergency" if n < wrong else level
        found.append(Example(f"m{n}", f"r{n}", {level: p, **rest}, label, TODAY - timedelta(days=5), TODAY))
    return found


def triage_desk(folder: Path, scores: object, **changed: Any) -> Desk:
    """A tool that answers messages by itself when the set is the one level that it proposes."""
    settings: dict[str, Any] = {
        "tool": "reply",
        "profile": folder / "reply.json",
        "context": triage_context,
        "scorer": triage_scorer(scores),
        "guarantee": Coverage("0.05"),
        "costs": Costs(20, 2, 4, 5),  # tau_esc 0.25, tau_act 0.875
        "model": "by hand 1",
        "question": "How urgent is it?",
        "policy": "protocol 3",
        "tool_schema": {"level": LEVELS},
        "label_protocol": "a nurse",
        "options": LEVELS,
        "allow_labels": frozenset({"self_care", "routine"}),
        "block_labels": frozenset({"emergency"}),
        "match_argument": "level",
        **changed,
    }
    desk = Desk(folder, ToolRule(**settings))
    desk.write(triage_examples())
    return desk


def reply(level: object = "routine") -> Call:
    """A call of the reply tool."""
    return Call("c1", "reply", {"level": level}, "t", {"message": "my back"})


def with_rule(desk: Desk, **changed: Any) -> Desk:
    """The same files, judged by a rule that was changed afterwards."""
    return replace(desk, rule=replace(desk.rule, **changed))
