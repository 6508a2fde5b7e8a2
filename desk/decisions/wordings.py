"""Writes the desk's ways to ask each question, for ``decider report --wordings``.

    python -m desk.decisions.wordings --split test --out wordings.json

A question's base is its canonical wording; the wordings of a split mean the same, its negated ones the opposite.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from desk.decisions.ask import PlainQuestion, canonical, question_bank
from desk.decisions.pools import SPLITS, Split


def wordings(split: Split) -> dict[str, dict[str, PlainQuestion | list[PlainQuestion]]]:
    """Give base, same and opposite of every yes/no question and choice, in plain form."""
    bank = question_bank()
    found: dict[str, dict[str, PlainQuestion | list[PlainQuestion]]] = {}
    for name, texts in bank["nouls"].items():
        same, opposite = _nouls(texts[split]), _nouls(texts[f"{split}_not"])
        found[name] = {"base": canonical(name), "same": same, "opposite": opposite}
    for name, choice in bank["choices"].items():
        instructions = choice["instructions"]
        assert isinstance(instructions, Mapping)
        base = canonical(name)
        found[name] = {"base": base, "same": [{**base, "instructions": text} for text in instructions[split]]}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m desk.decisions.wordings", description=__doc__)
    parser.add_argument("--split", choices=SPLITS, default="test", help="whose wordings to take")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    options = parser.parse_args(arguments)
    options.out.write_text(json.dumps(wordings(options.split), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _nouls(texts: object) -> list[PlainQuestion]:
    assert isinstance(texts, list)
    return [{"type": "noul", "instructions": text} for text in texts]


if __name__ == "__main__":
    main()
