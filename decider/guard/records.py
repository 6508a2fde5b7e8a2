"""The guard's records: a call, a decision about it, and why. All but the call are plain data that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import msgspec

from decider.metrics import Action

__all__ = ["Action", "Call", "Decision", "Reason", "ReasonCode", "read_decision"]

ReasonCode: TypeAlias = str
"""One word for programs: where in the guard's order a decision was made, and for what."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a model asks for in a conversation, its `thread`.

    `state` is what the program knows, for hard rules and the context builder; it is not stored.
    """

    id: str
    tool: str
    arguments: Mapping[str, object]
    thread: str = ""
    state: object = None


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a decision is what it is: one word for programs, and a sentence for people."""

    code: ReasonCode
    text: str


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to become of a call, bound to its exact arguments. Keep it in the state before anything pauses.

    `p` is the probability that the call is right, as the costs are applied to it; `score` what the scorer gave;
    `threshold` the lowest score that the guarantee approves, None where it approves nothing; `labels` the prediction
    set. `guarantee` says in words what was promised. `audited` calls are a random sample of all, each standing for
    `audit_weight` calls. `repeat` marks a decision that had been made before for the same call.
    """

    id: str
    call_id: str
    thread: str
    tool: str
    action: Action
    reasons: tuple[Reason, ...]
    decided: datetime | None
    arguments_hash: str | None = None
    context_hash: str | None = None
    profile_version: str | None = None
    group: str | None = None
    p: float | None = None
    score: float | dict[str, float] | None = None
    labels: tuple[str, ...] | None = None
    tau_esc: float | None = None
    tau_act: float | None = None
    threshold: float | None = None
    guarantee: str = ""
    audited: bool = False
    audit_weight: float | None = None
    repeat: bool = False

    @property
    def codes(self) -> tuple[ReasonCode, ...]:
        """The codes of the reasons."""
        return tuple(reason.code for reason in self.reasons)

    def to_dict(self) -> dict[str, object]:
        """Return the decision as data of JSON's own types, for a state."""
        plain: object = msgspec.json.decode(msgspec.json.encode(self))
        assert isinstance(plain, dict)
        return plain


def read_decision(plain: object) -> Decision:
    """Return the decision in plain data; raises msgspec.ValidationError for anything else."""
    return msgspec.convert(plain, Decision)
