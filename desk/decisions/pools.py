"""The wordings the generator composes requests from, in pools that share nothing between training and measuring.

A pool is a JSON file ``{"author": ..., "parts": {part: [wording, ...]}}`` beside this module, one for each author. The
files of a split are read together: ``train_*``, ``calibration_*`` (early stopping, temperatures) and ``test_*``
(figures only), all by different authors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Split = Literal["train", "calibration", "test"]
SPLITS: tuple[Split, ...] = ("train", "calibration", "test")
POOLS = Path(__file__).parent / "pools"

EVENT_SLOTS = frozenset({"event", "topic", "city"})
SLOTS: Mapping[str, frozenset[str]] = {
    "opening_name": frozenset({"name"}),
    "opening_plain": frozenset(),
    "closing_name": frozenset({"name"}),
    "closing_plain": frozenset(),
    "register": EVENT_SLOTS,
    "contact": frozenset({"email"}),
    "cancel": EVENT_SLOTS,
    "cancel_refund": EVENT_SLOTS,
    "transfer_named": EVENT_SLOTS | {"new_name"},
    "transfer_unnamed": EVENT_SLOTS,
    "catering": EVENT_SLOTS,
    "room_parking": EVENT_SLOTS,
    "refund_amount": EVENT_SLOTS,
    "days_to_event": EVENT_SLOTS,
    "days_to_close": EVENT_SLOTS,
    "ask_policy": EVENT_SLOTS,
    "ask_event": EVENT_SLOTS,
    "exception": EVENT_SLOTS,
    "override": frozenset(),
    "policy_change": frozenset(),
    "email_other": frozenset({"other_email"}),
    "email_own": frozenset({"email"}),
    "asks_person": frozenset(),
    "claim_paid": frozenset({"amount"}),
    "claim_date": frozenset({"date"}),
    "distractor": frozenset({"number", "time", "date", "phone"}),
    "false_alarm": frozenset(),
    "pressure": frozenset(),
    "quoted_policy": frozenset(),
    "second_question": EVENT_SLOTS,
    "other": frozenset(),
}
"""The parts of a request and the slots a wording of each may use."""
REQUIRED: Mapping[str, str] = {
    "opening_name": "name",
    "closing_name": "name",
    "contact": "email",
    "transfer_named": "new_name",
    "email_other": "other_email",
    "email_own": "email",
    "claim_paid": "amount",
    "claim_date": "date",
}
"""The slot that every wording of a part must use."""
FORMULAS = frozenset({"opening_name", "opening_plain", "closing_name", "closing_plain"})
"""Parts whose wordings are everybody's."""

_SLOT = re.compile(r"\{(\w+)\}")


class PoolError(ValueError):
    """A pool cannot be used. ``where`` names file and part, ``problem`` what is wrong there."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"cannot use the wordings of {where}: {problem}")
        self.where = where
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Pools:
    """The wordings of all splits: ``parts[split][part]`` is a tuple of wordings."""

    parts: Mapping[Split, Mapping[str, tuple[str, ...]]]


def load_pools(folder: Path = POOLS) -> Pools:
    """Read every pool in ``folder``, check it, and leave no wording in two splits.

    Raises:
        PoolError: a file or part is missing, or a slot is not allowed or lacking.
    """
    parts: dict[Split, dict[str, tuple[str, ...]]] = {split: _split_parts(split, folder) for split in SPLITS}
    return Pools(_keep_apart(parts))


def _split_parts(split: Split, folder: Path) -> dict[str, tuple[str, ...]]:
    files = sorted(folder.glob(f"{split}_*.json"))
    if not files:
        raise PoolError(str(folder), f"there is no file for {split}; add {split}_a.json")
    merged: dict[str, dict[str, None]] = {part: {} for part in SLOTS}
    for file in files:
        for part, wordings in json.loads(file.read_text(encoding="utf-8"))["parts"].items():
            if part not in SLOTS:
                raise PoolError(f"{file.name}, {part}", f"no such part; allowed are {', '.join(SLOTS)}")
            for wording in wordings:
                _check_slots(f"{file.name}, {part}", part, wording)
                merged[part][wording] = None
    empty = [part for part, wordings in merged.items() if not wordings]
    if empty:
        raise PoolError(f"{split}", f"no wording for {', '.join(empty)}; add at least one for each")
    return {part: tuple(wordings) for part, wordings in merged.items()}


def _check_slots(where: str, part: str, wording: str) -> None:
    used = frozenset(_SLOT.findall(wording))
    if not used <= SLOTS[part]:
        allowed = ", ".join(sorted(SLOTS[part])) or "none"
        raise PoolError(where, f"slot {sorted(used - SLOTS[part])} in {wording!r}; allowed: {allowed}")
    required = REQUIRED.get(part)
    if required is not None and required not in used:
        raise PoolError(where, f"{wording!r} lacks the slot {{{required}}}; every wording of this part needs it")


def plain(wording: str) -> str:
    """Give a wording without case, punctuation and spacing, for comparing wordings between pools."""
    return " ".join(re.findall(r"[\w{}]+", wording.lower()))


def _keep_apart(parts: Mapping[Split, Mapping[str, tuple[str, ...]]]) -> dict[Split, dict[str, tuple[str, ...]]]:
    """Leave each wording in one split: what two writers happened to write alike stays where it is measured with.

    Greetings and sign-offs are formulas that everybody shares; they stay in all.
    """
    taken: set[str] = set()
    kept: dict[Split, dict[str, tuple[str, ...]]] = {}
    for split in ("test", "calibration", "train"):
        kept[split] = {
            part: wordings if part in FORMULAS else tuple(each for each in wordings if plain(each) not in taken)
            for part, wordings in parts[split].items()
        }
        taken |= {plain(each) for part, wordings in kept[split].items() if part not in FORMULAS for each in wordings}
    return kept
