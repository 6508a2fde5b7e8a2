"""Trains a model and writes its folder.

    python -m decider.train --train F --calibration F --test F --out FOLDER [--minutes 66] [--seed 0]

The calibration file holds wordings that training never sees: it decides when to stop and sets the temperatures. The
test file is measured once, at the end. `--quick` trains a tiny random network for a few steps, to try the recipe.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from decider.layout import Layout
from decider.train.evaluate import report
from decider.train.examples import read_examples
from decider.train.fit import Settings, bfloat16_is_faster
from decider.train.publish import write_description, write_weights
from decider.train.together import Finished, Plan, train_together

QUICK = Settings(epochs=60, budget=20.0, learning_rate=3e-3, meetings=30, checks=3, frozen_layers=0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    files = {name: read_examples(getattr(options, name)) for name in ("train", "calibration", "test")}
    for name, examples in files.items():
        _say(f"{name}: {len(examples)} states, {sum(len(example.questions) for example in examples)} questions")
    layers = () if options.quick else tuple(int(layer) for layer in options.layers.split(","))
    settings = _settings(options)
    plan = Plan(options.train, options.calibration, layers, settings)
    finished = train_together(plan, options.processes, _say)
    base = finished.base
    layout = Layout(base.tokenizer, base.markers, base.limits)
    comparison = write_weights(finished.network, base, layout, files["calibration"], options.out)
    _say(f"files: {comparison}, {_folder_size(options.out):.2f} MB")
    described = _description(options, plan, finished)
    evaluation = write_description(
        options.out, base, options.name, files["calibration"], files["test"], described, comparison, _say
    )
    sys.stdout.write("\n".join(report(evaluation)) + "\n")
    _say(f"wrote {options.out}, {_folder_size(options.out):.2f} MB, {time.process_time():.0f} CPU s in all")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m decider.train", description="Train a decision model.")
    for name in ("train", "calibration", "test"):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="FILE", help=f"{name} examples, JSON Lines")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the model folder to write")
    parser.add_argument("--name", default="desk", help="name of the model in its answers")
    parser.add_argument("--minutes", type=float, default=66.0, help="CPU time for the training, of each process")
    parser.add_argument("--epochs", type=int, help="passes over the training file")
    parser.add_argument("--learning-rate", type=float, help="of the encoder; the head's is higher")
    parser.add_argument("--patience", type=int, help="checks without improvement before stopping")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="that train side by side")
    parser.add_argument("--layers", default="0,1,2,3,4,5", help="layers of the encoder to keep, such as 0,2,5")
    parser.add_argument("--frozen", type=int, help="lowest layers that stay as they were pretrained")
    parser.add_argument("--dropped", type=float, help="share of the words of a state that are masked while training")
    parser.add_argument("--quick", action="store_true", help="a tiny random network, a few seconds")
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    standard = QUICK if options.quick else Settings()
    chosen = {name: getattr(options, name) for name in ("epochs", "learning_rate", "patience")}
    chosen |= {"frozen_layers": options.frozen, "dropped_words": options.dropped}
    budget = min(options.minutes * 60, standard.budget if options.quick else float("inf"))
    given = {name: value for name, value in chosen.items() if value is not None}
    return replace(standard, seed=options.seed, budget=budget, bfloat16=bfloat16_is_faster(), **given)


def _description(options: argparse.Namespace, plan: Plan, finished: Finished) -> dict[str, object]:
    """What decider.json says about the making of the model."""
    hashes = {
        name: hashlib.sha256(getattr(options, name).read_bytes()).hexdigest()
        for name in ("train", "calibration", "test")
    }
    return {
        "base": finished.base.name,
        "layers": list(plan.layers) or finished.base.shape.layers,
        "data_sha256": hashes,
        "settings": msgspec.to_builtins(plan.settings),
        "processes": msgspec.to_builtins(finished.outcomes),
        "torch": str(torch.__version__),
    }


def _folder_size(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
