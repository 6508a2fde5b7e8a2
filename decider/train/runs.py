"""Trains from several seeds side by side and puts the runs together.

Runs from one pretrained encoder end up near each other, so the mean of their weights is a network too, and often a
better one on wordings that none of them saw (Wortsman et al. 2022, "Model soups", arXiv:2203.05482). Which of the runs
and their mean is kept is decided on the held-out wordings. Their losses also show how much a seed matters.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from decider.layout import Layout, Limits
from decider.rendering import render
from decider.train.base import Base, pretrained_base, tiny_base
from decider.train.batches import LabelledRow, label_rows
from decider.train.examples import Example, read_examples
from decider.train.fit import Outcome, Settings, held_out_loss, train
from decider.train.network import Network

Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Plan:
    """What every run shares. `layers` are those of the pretrained encoder; none: a tiny random network."""

    training: Path
    held_out: Path
    layers: tuple[int, ...]
    settings: Settings

    def base(self, training: Sequence[Example]) -> Base:
        """Return where training starts."""
        if self.layers:
            return pretrained_base(self.layers, Limits())
        return tiny_base([render(example.state) for example in training])


@dataclass(frozen=True, slots=True)
class Finished:
    """The network that is kept, where it started, each run's outcome by seed, and each candidate's held-out loss."""

    network: Network
    base: Base
    outcomes: dict[str, Outcome]
    losses: dict[str, float]
    kept: str


def train_runs(plan: Plan, seeds: Sequence[int], threads: int, say: Callable[[str], None]) -> Finished:
    """Train one network a seed, `threads` at once, and keep the best of them and their mean.

    A single run uses all `threads` itself.
    """
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        if len(seeds) == 1:
            outcomes = {str(seeds[0]): train_run(plan, seeds[0], threads, folder)}
        else:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(min(threads, len(seeds)), mp_context=context) as pool:
                started = {str(seed): pool.submit(train_run, plan, seed, 1, folder) for seed in seeds}
                outcomes = {seed: future.result() for seed, future in started.items()}
        weights = {seed: load(folder / f"{seed}.pt") for seed in outcomes}
    torch.set_num_threads(threads)
    return choose(plan, weights, outcomes, say)


def train_run(plan: Plan, seed: int, threads: int, folder: Path) -> Outcome:
    """Train one network and write its weights to `folder`, under the seed's number."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    examples = read_examples(plan.training)
    base = plan.base(examples)
    layout = Layout(base.tokenizer, base.markers, base.limits)
    network = Network(base)
    held_out = label_rows(layout, read_examples(plan.held_out))
    settings = replace(plan.settings, seed=seed)
    outcome = train(network, base, label_rows(layout, examples), held_out, settings, _teller(seed))
    torch.save(network.state_dict(), folder / f"{seed}.pt")
    return outcome


def choose(
    plan: Plan, weights: dict[str, Weights], outcomes: dict[str, Outcome], say: Callable[[str], None]
) -> Finished:
    """Return the candidate with the lowest loss on all held-out examples: one of the runs, or the mean of all."""
    base = plan.base(read_examples(plan.training))
    layout = Layout(base.tokenizer, base.markers, base.limits)
    held_out: list[LabelledRow] = label_rows(layout, read_examples(plan.held_out))
    candidates = {**weights, "mean": mean(list(weights.values()))} if len(weights) > 1 else weights
    network = Network(base)
    losses: dict[str, float] = {}
    for name, candidate in candidates.items():
        network.load_state_dict(candidate)
        losses[name] = held_out_loss(network, base, held_out, plan.settings)
        say(f"{name}: held out {losses[name]:.4f}")
    kept = min(losses, key=lambda name: losses[name])
    network.load_state_dict(candidates[kept])
    return Finished(network, base, outcomes, losses, kept)


def mean(weights: Sequence[Weights]) -> Weights:
    """Return the mean of several networks' weights, tensor by tensor."""
    return {name: torch.stack([each[name] for each in weights]).mean(dim=0) for name in weights[0]}


def load(path: Path) -> Weights:
    """Read weights that a run wrote."""
    loaded: Weights = torch.load(path, weights_only=True)
    return loaded


def _teller(seed: int) -> Callable[[str], None]:
    def tell(text: str) -> None:
        print(f"seed {seed}: {text}", flush=True)

    return tell
