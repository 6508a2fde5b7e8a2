"""Trains from several seeds side by side, keeps the run that does best on held-out wordings, and tunes it.

Tuning starts several shorter runs from the weights that were kept and tries the mean of theirs too: networks that start
together end up near each other, and their mean does better on wordings that none of them saw (Wortsman et al. 2022,
"Model soups", arXiv:2203.05482). The mean of runs that start apart, with heads at random, is worse than either.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from decider.layout import Layout, Limits
from decider.rendering import render
from decider.train.base import Base, pretrained_base, tiny_base
from decider.train.batches import LabelledRow, label_rows
from decider.train.examples import Example, read_examples
from decider.train.fit import Outcome, Settings, held_out_loss, train
from decider.train.network import Network

COMPARED_ROWS: Final = 600
TUNING_RUNS: Final = 2

Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Plan:
    """What every run shares. `layers` are those of the pretrained encoder; none: a tiny random network.

    `tuning` are the settings of the second stage; None: there is none.
    """

    training: Path
    held_out: Path
    layers: tuple[int, ...]
    settings: Settings
    tuning: Settings | None = None

    def base(self, training: Sequence[Example]) -> Base:
        """Return where training starts."""
        if self.layers:
            return pretrained_base(self.layers, Limits())
        return tiny_base([render(example.state) for example in training])


@dataclass(frozen=True, slots=True)
class Stage:
    """The outcome of each run of a stage by seed, the held-out loss of each candidate, and which was kept."""

    settings: Settings
    runs: dict[str, Outcome]
    held_out_losses: dict[str, float]
    kept: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The network that is kept, where it started, and what each stage did."""

    network: Network
    base: Base
    stages: tuple[Stage, ...]


def train_runs(plan: Plan, seeds: Sequence[int], threads: int, say: Callable[[str], None]) -> Finished:
    """Train one network a seed, `threads` at once, keep the best, and tune it with TUNING_RUNS further seeds."""
    examples = read_examples(plan.training)
    base = plan.base(examples)
    layout = Layout(base.tokenizer, base.markers, base.limits)
    held_out = label_rows(layout, read_examples(plan.held_out))[:COMPARED_ROWS]
    network = Network(base)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        runs = _side_by_side(plan, seeds, threads, folder, None)
        candidates = {seed: load(folder / f"{seed}.pt") for seed in runs}
        stages = [_choose(network, base, held_out, candidates, plan.settings, runs, say)]
        if plan.tuning is not None:
            torch.save(network.state_dict(), start := folder / "start.pt")
            tuned = replace(plan, settings=plan.tuning)
            runs = _side_by_side(tuned, range(max(seeds) + 1, max(seeds) + 1 + TUNING_RUNS), threads, folder, start)
            candidates = {seed: load(folder / f"{seed}.pt") for seed in runs}
            candidates["mean"] = mean(list(candidates.values()))
            stages.append(_choose(network, base, held_out, candidates, plan.tuning, runs, say))
    torch.set_num_threads(threads)
    return Finished(network, base, tuple(stages))


def train_run(plan: Plan, seed: int, threads: int, folder: Path, start: Path | None) -> Outcome:
    """Train one network, from the weights in `start` where given, and write its weights to `folder` by its seed."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    examples = read_examples(plan.training)
    base = plan.base(examples)
    layout = Layout(base.tokenizer, base.markers, base.limits)
    network = Network(base)
    if start is not None:
        network.load_state_dict(load(start))
    held_out = label_rows(layout, read_examples(plan.held_out))
    settings = replace(plan.settings, seed=seed)
    outcome = train(network, base, label_rows(layout, examples), held_out, settings, _teller(seed))
    torch.save(network.state_dict(), folder / f"{seed}.pt")
    return outcome


def mean(weights: Sequence[Weights]) -> Weights:
    """Return the mean of several networks' weights, tensor by tensor."""
    return {name: torch.stack([each[name] for each in weights]).mean(dim=0) for name in weights[0]}


def load(path: Path) -> Weights:
    """Read weights that a run wrote."""
    loaded: Weights = torch.load(path, weights_only=True)
    return loaded


def _side_by_side(
    plan: Plan, seeds: Sequence[int], threads: int, folder: Path, start: Path | None
) -> dict[str, Outcome]:
    """Train with every seed: in a process of one thread each, or, alone or with one thread, here."""
    if threads == 1 or len(seeds) == 1:
        return {str(seed): train_run(plan, seed, threads, folder, start) for seed in seeds}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(threads, len(seeds)), mp_context=context) as pool:
        started = {str(seed): pool.submit(train_run, plan, seed, 1, folder, start) for seed in seeds}
        return {seed: future.result() for seed, future in started.items()}


def _choose(
    network: Network,
    base: Base,
    held_out: Sequence[LabelledRow],
    candidates: dict[str, Weights],
    settings: Settings,
    runs: dict[str, Outcome],
    say: Callable[[str], None],
) -> Stage:
    """Give the network the candidate with the lowest loss on the same held-out rows for all."""
    losses: dict[str, float] = {}
    for name, weights in candidates.items():
        network.load_state_dict(weights)
        losses[name] = held_out_loss(network, base, held_out, settings)
        say(f"{name}: held out {losses[name]:.4f}")
    kept = min(losses, key=lambda name: losses[name])
    network.load_state_dict(candidates[kept])
    return Stage(settings, runs, losses, kept)


def _teller(seed: int) -> Callable[[str], None]:
    def tell(text: str) -> None:
        print(f"seed {seed}: {text}", flush=True)

    return tell
