"""What the desk says about a conversation: where it stands, and the moments it went through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from desk.state import Outcome
from tools import Delivery, Ending


@dataclass(frozen=True, slots=True)
class Report:
    """Where a conversation stands: how its newest turn ended, or the question it waits with.

    ``question`` is what a person is asked while ``outcome`` is None. ``provider`` and ``source`` say who spoke:
    the language model, and the model, machine and calibration behind the probabilities. ``ending`` is the outcome in
    the kinds that all agents share, with what was established and what blocked (``desk.outcome``).
    """

    thread: str
    outcome: Outcome | None
    answer: str | None
    question: Mapping[str, Any] | None
    trace: tuple[Mapping[str, Any], ...]
    handoff: str | None
    thresholds: Mapping[str, float]
    provider: str
    source: Mapping[str, str] | None
    mails: tuple[Delivery, ...]
    ending: Ending | None

    @property
    def waiting(self) -> bool:
        """Tell whether a person is asked."""
        return self.question is not None

    @property
    def unfinished(self) -> bool:
        """Tell whether the run was stopped from outside and can go on."""
        return self.outcome is None and self.question is None


@dataclass(frozen=True, slots=True)
class Moment:
    """One checkpoint of a conversation. ``step`` counts all of them, in the order they were stored, from 0.

    ``came_from`` is the step it follows, which is not the one before where a branch begins; ``due`` are the nodes
    that run next; ``current`` marks where the conversation stands.
    """

    step: int
    came_from: int | None
    due: tuple[str, ...]
    values: Mapping[str, Any]
    current: bool
    waiting: bool
    config: Mapping[str, Any]
