"""Fits the corrections of the flags: ``python -m desk.decisions.fit_flags --cases calibration_cases.jsonl``.

Asks the shipped model (or ``--model``) about generated calibration cases, whose readings are known by construction,
and fits one bias and slope a flag by maximum likelihood with a small ridge. Test cases and the public set play no part.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from decider import Decider, NoulAnswer
from decider.calibration import fit_platt
from desk.decisions.evaluate import Item, ask
from desk.flags import CORRECTIONS, Correction, Corrections, logit
from desk.policy import Case
from desk.routing import FLAGS

RIDGE = 1.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m desk.decisions.fit_flags", description=__doc__)
    parser.add_argument("--cases", type=Path, required=True, metavar="FILE", help="generated calibration cases")
    parser.add_argument("--model", type=Path, default=None, help="model folder; the one shipped where left out")
    parser.add_argument("--limit", type=int, default=600, help="how many cases to ask about")
    parser.add_argument("--out", type=Path, default=CORRECTIONS)
    options = parser.parse_args(arguments)
    lines = [json.loads(line) for line in options.cases.read_text(encoding="utf-8").splitlines()[: options.limit]]
    decider = Decider.load(options.model)
    items = [Item(Case.from_json(line["case"]), line["route"], line["rule"], line["core"], None) for line in lines]
    answers = ask(decider, items)
    flags: dict[str, Correction] = {}
    for flag in FLAGS:
        logits, truth = [], []
        for line, given in zip(lines, answers, strict=True):
            answer, reading = given[flag], line["reading"]
            assert isinstance(answer, NoulAnswer)
            if flag == "names_person" and reading["intent"] != "transfer":
                continue  # the flag matters for transfers alone
            logits.append(logit(answer.noul))
            truth.append(float(_holds(flag, reading)))
        fitted = fit_platt(logits, truth, RIDGE)
        flags[flag] = Correction(round(fitted.bias, 4), round(fitted.slope, 4))
        print(f"{flag}: {len(truth)} cases, {sum(truth):.0f} yes, {flags[flag]}")
    found = Corrections(decider.manifest.sha256, len(lines), flags)
    options.out.write_text(msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n", encoding="utf-8")


def _holds(flag: str, reading: dict[str, object]) -> bool:
    if flag == "outside_rules":
        return bool(reading["exception"] or reading["override"] or reading["policy_change"])
    return bool(reading[flag])


if __name__ == "__main__":
    main()
