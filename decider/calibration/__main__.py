"""Fits the intervals of a model's yes/no answers and writes calibration.json into its folder.

    python -m decider.calibration MODEL_FOLDER FILE.jsonl

The file holds labelled examples (see decider.train.examples) whose wordings the model was not trained on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from decider.calibration.stored import write_stored
from decider.manifest import CALIBRATION_FILE
from decider.model import Decider
from decider.train.evaluate import fit_intervals, judge
from decider.train.examples import read_examples


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m decider.calibration", description="Fit intervals for yes and no.")
    parser.add_argument("model", type=Path, help="model folder")
    parser.add_argument("file", type=Path, help="labelled examples, JSON Lines")
    options = parser.parse_args(arguments)
    examples = read_examples(options.file)
    (options.model / CALIBRATION_FILE).unlink(missing_ok=True)  # one of other weights would keep the model from loading
    decider = Decider.load(options.model)
    stored = fit_intervals(judge(decider, examples), decider.manifest.sha256)
    write_stored(options.model, stored)
    steps = len(stored.noul.lower_scores) + len(stored.noul.upper_scores)
    print(f"{stored.noul.count} answers, {steps} steps, written to {options.model}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
