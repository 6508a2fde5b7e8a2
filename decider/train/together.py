"""Trains one network in several processes that start from the same weights and meet often to take their mean.

Between meetings each process takes its own steps on its own shuffle of the examples (local SGD: Stich 2019, "Local SGD
converges fast and communicates little", arXiv:1805.09767), so that every core of a small machine works on the same
network with no traffic but a file of weights now and then.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Final

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from decider.layout import Layout, Limits
from decider.rendering import render
from decider.train.base import Base, pretrained_base, tiny_base
from decider.train.batches import label_rows
from decider.train.examples import read_examples
from decider.train.fit import Outcome, Settings, train
from decider.train.network import Network

PATIENCE_SECONDS: Final = 1200.0  # a process that waits longer for the others gives up: one of them has died
WEIGHTS_FILE: Final = "weights.pt"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to train on and how. `layers` are those of the pretrained encoder; none: a tiny random network."""

    training: Path
    held_out: Path
    layers: tuple[int, ...]
    settings: Settings

    def base(self) -> Base:
        """Return where training starts."""
        if self.layers:
            return pretrained_base(self.layers, Limits())
        return tiny_base([render(example.state) for example in read_examples(self.training)])


@dataclass(frozen=True, slots=True)
class Finished:
    """The trained network, where it started, and what each process did."""

    network: Network
    base: Base
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where processes that train the same network leave their weights and take the mean of all, in `file`."""

    barrier: Barrier
    file: Path
    members: int

    def average(self, network: Network, member: int) -> None:
        """Give the network the mean of all members' trained weights; returns when every member has it.

        Raises BrokenBarrierError when another member does not come.
        """
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        mine = parameters_to_vector(trained).detach().numpy()
        weights = np.memmap(self.file, dtype=np.float32, mode="r+", shape=(self.members, len(mine)))
        weights[member] = mine
        self.barrier.wait(PATIENCE_SECONDS)
        mean = torch.from_numpy(weights.mean(axis=0))
        self.barrier.wait(PATIENCE_SECONDS)  # nobody writes the next weights before all have read these
        vector_to_parameters(mean, trained)


def train_together(plan: Plan, processes: int, say: Callable[[str], None]) -> Finished:
    """Train with so many processes of one thread each; with one, here."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        alone = processes == 1
        outcomes = [train_member(plan, 0, folder, None)] if alone else _side_by_side(plan, processes, folder)
        base = plan.base()
        network = Network(base)
        network.load_state_dict(torch.load(folder / WEIGHTS_FILE, weights_only=True))
    torch.set_num_threads(processes)
    for number, outcome in enumerate(outcomes):
        say(f"process {number}: {outcome.steps} steps, best loss {outcome.best_loss:.4f} at step {outcome.best_step}")
    return Finished(network, base, tuple(outcomes))


def train_member(plan: Plan, member: int, folder: Path, meeting: Meeting | None) -> Outcome:
    """Train as one of several processes; the first writes the weights of the end to `folder`."""
    torch.set_num_threads(1)
    torch.manual_seed(plan.settings.seed)  # the same for all: they start together
    base = plan.base()
    layout = Layout(base.tokenizer, base.markers, base.limits)
    network = Network(base)
    rows, held_out = (label_rows(layout, read_examples(path)) for path in (plan.training, plan.held_out))

    def meet() -> None:
        if meeting is not None:
            meeting.average(network, member)

    def tell(text: str) -> None:
        if member == 0:
            print(text, flush=True)

    outcome = train(network, base, rows, held_out, plan.settings, tell, member, meet)
    if member == 0:
        torch.save(network.state_dict(), folder / WEIGHTS_FILE)
    return outcome


def _side_by_side(plan: Plan, processes: int, folder: Path) -> list[Outcome]:
    context = multiprocessing.get_context("spawn")
    network = Network(plan.base())
    network.freeze_below(plan.settings.frozen_layers)
    trained = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    file = folder / "meeting.f32"
    file.write_bytes(bytes(4 * processes * trained))
    with context.Manager() as manager:
        meeting = Meeting(manager.Barrier(processes), file, processes)
        with ProcessPoolExecutor(processes, mp_context=context) as pool:
            members = [pool.submit(train_member, plan, member, folder, meeting) for member in range(processes)]
            return [member.result() for member in members]
