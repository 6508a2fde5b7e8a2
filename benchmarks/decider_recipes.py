"""Compares recipes for the decision model at the same CPU budget; needs PyTorch (`make model` installs it).

    python benchmarks/decider_recipes.py --data runs/decisions --minutes 8 --jobs 2 [--only "seed 0,4 layers"] [--write]

Every recipe trains on the same decisions for the same CPU time, one thread each, and is measured on the same held-out
wordings: the loss of a question, the share of right answers to yes/no questions and to the desk's question for the
intent, and the size of the weights at one byte each. A recipe is the standard one with one thing changed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import numpy as np
import pages
import torch

from decider.layout import Layout, Limits
from decider.train.base import Base, pretrained_base
from decider.train.batches import LabelledRow, build_batch, label_rows, make_batches
from decider.train.examples import read_examples
from decider.train.fit import Settings, held_out_loss, run_network, train
from decider.train.network import Network

DOCS: Final = Path(__file__).parent.parent / "docs"
OUT: Final = DOCS / "decider-recipes.json"
PAGE: Final = DOCS / "decider.md"
HELD_OUT_ROWS: Final = 800
TEACHERS: Final = ("seed 0", "seed 1", "seed 2")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one row of the table changes; `taught`: the targets are half the truth, half what the teachers answer."""

    name: str
    layers: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    pieces: int | None = None
    seed: int = 0
    frozen: int = 3
    dropped: float = 0.06
    taught: bool = False


RECIPES: Final = (
    Recipe("seed 0"),
    Recipe("seed 1", seed=1),
    Recipe("seed 2", seed=2),
    Recipe("no frozen layers", frozen=0),
    Recipe("4 layers", layers=(0, 1, 2, 5), frozen=2),
    Recipe("3 layers", layers=(0, 2, 5), frozen=1),
    Recipe("no words dropped", dropped=0.0),
    Recipe("8,000 word pieces", pieces=8_000),
    Recipe("taught by three seeds", taught=True),
)


class Measured(msgspec.Struct, frozen=True):
    """One row of the table: loss of a question, shares of right answers, millions of weights, what training saw."""

    name: str
    loss: float
    yes_no: float
    intent: float
    weights: float
    steps: int
    tokens: int


class Recipes(msgspec.Struct, frozen=True):
    """What was compared, and for how many minutes of CPU time each recipe trained."""

    minutes: float
    recipes: list[Measured]


def measure(recipe: Recipe, data: Path, minutes: float, folder: Path) -> Measured:
    """Train by a recipe and measure it; its weights stay in `folder` for those it teaches."""
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    base, rows = _rows(recipe, data / "train.jsonl")
    held_out = _sample(_rows(recipe, data / "calibration.jsonl")[1], HELD_OUT_ROWS, 0)
    settings = Settings(
        seed=recipe.seed, budget=minutes * 60, frozen_layers=recipe.frozen, dropped_words=recipe.dropped, checks=2
    )
    network = Network(base)
    if recipe.taught:
        teachers = [torch.load(folder / f"{name}.pt", weights_only=True) for name in TEACHERS]
        rows = _taught(base, _sample(rows, int(minutes * 480), recipe.seed), teachers)
    outcome = train(network, base, rows, held_out, settings, lambda text: _say(f"{recipe.name}: {text}"))
    torch.save(network.state_dict(), folder / f"{recipe.name}.pt")
    loss = held_out_loss(network, base, held_out, settings)
    yes_no, intent = _accuracies(network, base, held_out)
    weights = sum(parameter.numel() for parameter in network.parameters()) / 1e6
    return Measured(recipe.name, loss, yes_no, intent, weights, outcome.steps, outcome.tokens)


def _rows(recipe: Recipe, path: Path) -> tuple[Base, list[LabelledRow]]:
    base = pretrained_base(recipe.layers, Limits(), recipe.pieces)
    return base, label_rows(Layout(base.tokenizer, base.markers, base.limits), read_examples(path))


def _sample(rows: Sequence[LabelledRow], count: int, seed: int) -> list[LabelledRow]:
    return Random(seed).sample(list(rows), min(count, len(rows)))


@torch.no_grad()
def _taught(base: Base, rows: Sequence[LabelledRow], teachers: Sequence[dict[str, torch.Tensor]]) -> list[LabelledRow]:
    """Return the rows with targets half the truth and half the mean of what the teachers answer."""
    network = Network(base)
    answers: list[LabelledRow] = list(rows)
    order = list(make_batches(rows, 4096, None))
    sums: dict[tuple[int, int], np.ndarray] = {}
    for weights in teachers:
        network.load_state_dict(weights)
        for indices in order:
            logits = run_network(network, build_batch([rows[index] for index in indices], base.markers.pad).inputs)
            for place, index in enumerate(indices):
                for number, answer in enumerate(_answers(rows[index], logits[place].numpy())):
                    sums[index, number] = sums.get((index, number), np.zeros(len(answer))) + answer / len(teachers)
    for index, row in enumerate(rows):
        taught = [sums[index, number].tolist() for number in range(len(row.nouls) + len(row.choices))]
        nouls = [
            (marker, (truth + mean[0]) / 2)
            for (marker, truth), mean in zip(row.nouls, taught[: len(row.nouls)], strict=True)
        ]
        choices = [
            (markers, [(each + mean) / 2 for each, mean in zip(truth, means, strict=True)])
            for (markers, truth), means in zip(row.choices, taught[len(row.nouls) :], strict=True)
        ]
        answers[index] = replace(row, nouls=nouls, choices=choices)
    return answers


def _answers(row: LabelledRow, logits: np.ndarray) -> list[np.ndarray]:
    """Return the distribution of each answer of a row: [P(yes)] for a Noul."""
    answers = [1 / (1 + np.exp(-logits[[marker], 0])) for marker, _ in row.nouls]
    for markers, _ in row.choices:
        raised = np.exp(logits[markers, 1] - logits[markers, 1].max())
        answers.append(raised / raised.sum())
    return answers


@torch.no_grad()
def _accuracies(network: Network, base: Base, rows: Sequence[LabelledRow]) -> tuple[float, float]:
    """Return the shares of right answers to yes/no questions and to the question for the intent, where answerable."""
    network.eval()
    nouls: list[bool] = []
    intents: list[bool] = []
    for indices in make_batches(rows, 4096, None):
        logits = run_network(network, build_batch([rows[index] for index in indices], base.markers.pad).inputs).numpy()
        for place, index in enumerate(indices):
            row = rows[index]
            answers = _answers(row, logits[place])
            for (_, truth), answer in zip(row.nouls, answers, strict=False):
                if truth != 0.5:
                    nouls.append((answer[0] > 0.5) == (truth > 0.5))
            places = row.row.markers.get("intent")
            for (markers, spread), answer in zip(row.choices, answers[len(row.nouls) :], strict=True):
                if markers == places and max(spread) == 1:
                    intents.append(int(answer.argmax()) == spread.index(1))
    network.train()
    return float(np.mean(nouls)), float(np.mean(intents))


def table(found: Recipes) -> str:
    """Return what was compared as a Markdown table."""
    lines = [f"CPU time of each: {found.minutes:g} minutes.", ""]
    lines += ["| recipe | loss | yes/no right | intent right | million weights | steps |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.name} | {row.loss:.3f} | {row.yes_no:.3f} | {row.intent:.3f} | {row.weights:.1f} | {row.steps:,} |"
        for row in found.recipes
    ]
    return "\n".join(lines)


def write(found: Recipes) -> None:
    """Put rows into the file and its page, in place of older ones of the same name and the same CPU time."""
    known = read() if OUT.exists() else found
    older = {row.name: row for row in known.recipes if known.minutes == found.minutes}
    rows = older | {row.name: row for row in found.recipes}
    both = Recipes(found.minutes, [rows[recipe.name] for recipe in RECIPES if recipe.name in rows])
    OUT.write_bytes(msgspec.json.format(msgspec.json.encode(both), indent=1) + b"\n")
    pages.write(PAGE, "recipes", table(both))


def read() -> Recipes:
    """Read the file."""
    return msgspec.json.decode(OUT.read_bytes(), type=Recipes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.jsonl and calibration.jsonl")
    parser.add_argument("--minutes", type=float, default=8.0, help="CPU time a recipe")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="names of recipes, separated by commas")
    parser.add_argument("--weights", type=Path, default=Path("runs/recipes"), help="folder for the weights")
    parser.add_argument("--write", action="store_true", help=f"write {OUT.name}")
    options = parser.parse_args(arguments)
    options.weights.mkdir(parents=True, exist_ok=True)
    chosen = [recipe for recipe in RECIPES if not options.only or recipe.name in options.only.split(",")]
    start = time.monotonic()
    context = multiprocessing.get_context("spawn")
    measured: list[Measured] = []
    for group in (False, True):
        with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=1) as pool:
            futures = [
                pool.submit(measure, recipe, options.data, options.minutes, options.weights)
                for recipe in chosen
                if recipe.taught == group
            ]
            for future in futures:
                measured.append(future.result())
                _say(str(measured[-1]))
    sys.stdout.write(table(Recipes(options.minutes, measured)) + "\n")
    _say(f"{time.monotonic() - start:.0f} s")
    if options.write:
        write(Recipes(options.minutes, measured))
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
