"""Trains the network and keeps the weights that did best on wordings held out for the purpose."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from decider.layout import IntArray
from decider.train.base import Base
from decider.train.batches import Batch, LabelledRow, build_batch, drop_words, make_batches
from decider.train.network import Network

WEIGHT_DECAY: Final = 0.01
GRADIENT_NORM: Final = 1.0
HEAD_FACTOR: Final = 5.0  # the head starts at random and learns faster
ANSWERABLE_WEIGHT: Final = 0.5  # of learning whether a question can be answered, beside learning the answer


@dataclass(frozen=True, slots=True)
class Settings:
    """How to train. `budget` is in CPU seconds, checks not counted; `cells` is a step's tokens, padding included.

    Small steps: with a fixed budget, many small updates teach more than a few large ones.
    At so many evenly spread `meetings`, a multiple of `checks`, processes that train together take the mean of their
    weights. `bfloat16` computes in that format where a processor has instructions for it; elsewhere it is many times
    slower.
    """

    seed: int = 0
    epochs: int = 1
    budget: float = 3960.0
    learning_rate: float = 1.5e-4
    warm_up: float = 0.06
    dropped_words: float = 0.06
    cells: int = 1024
    meetings: int = 100
    checks: int = 10
    patience: int = 4
    check_rows: int = 250
    bfloat16: bool = False
    frozen_layers: int = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What training did: steps, epochs begun, the best held-out loss and its step, tokens seen and CPU seconds."""

    steps: int
    best_step: int
    best_loss: float
    tokens: int
    cpu_seconds: float
    wall_seconds: float
    stopped_by: str


def train(
    network: Network,
    base: Base,
    training: Sequence[LabelledRow],
    held_out: Sequence[LabelledRow],
    settings: Settings,
    say: Callable[[str], None],
    member: int = 0,
    meet: Callable[[], None] = lambda: None,
) -> Outcome:
    """Train in place; at the end the network has the weights of the lowest loss on `held_out`.

    Ends after the epochs, at the CPU budget, or, in the second half, when `patience` checks in a row brought nothing
    better. Of several processes that train the same network, each is a `member` with a shuffle of its own, and `meet`
    gives all of them the same weights; checks come right after it, so all see the same.
    """
    if settings.meetings % settings.checks:
        raise ValueError(
            f"{settings.meetings} meetings are no multiple of {settings.checks} checks; choose other numbers"
        )
    held_out = _sample(held_out, settings.check_rows, np.random.default_rng(settings.seed))
    random = np.random.default_rng((settings.seed, member))
    network.freeze_below(settings.frozen_layers)
    optimiser, rates = _optimiser(network, settings)
    steps = settings.epochs * sum(1 for _ in make_batches(training, settings.cells, np.random.default_rng(0)))
    continuations = _continuations(base)
    best = _Best(network, settings.patience)
    start_cpu, start_wall = time.process_time(), time.monotonic()
    say(f"{len(training)} rows, {steps} steps at most")
    step = meetings = checks = tokens = 0
    progress = running = checking = 0.0
    while step < steps and progress < 1 and not best.exhausted:
        for indices in make_batches(training, settings.cells, random):
            step += 1
            progress = max(step / steps, (time.process_time() - start_cpu - checking) / settings.budget)
            _set_rate(optimiser, rates, progress, settings.warm_up)
            batch = build_batch([training[index] for index in indices], base.markers.pad)
            tokens += sum(len(training[index].row) for index in indices)
            inputs = drop_words(batch.inputs, settings.dropped_words, base.mask_token, continuations, random)
            loss = _step(network, optimiser, replace(batch, inputs=inputs), settings.bfloat16)
            running = loss if step == 1 else 0.95 * running + 0.05 * loss
            while meetings < int(min(progress, 1) * settings.meetings):
                meetings += 1
                meet()
            if meetings * settings.checks < (checks + 1) * settings.meetings:
                continue
            checks = meetings * settings.checks // settings.meetings
            start_check = time.process_time()
            best.offer(step, current := held_out_loss(network, base, held_out, settings), patient=progress < 0.5)
            checking += time.process_time() - start_check
            say(
                f"step {step}, {min(progress, 1):4.0%}: loss {running:.4f}, held out {current:.4f}"
                f"{' (best)' if best.step == step else ''}, {time.process_time() - start_cpu:.0f} CPU s"
            )
            if progress >= 1 or best.exhausted:
                break
    network.load_state_dict(best.weights)
    stopped_by = "no improvement" if best.exhausted else "epochs" if step >= steps else "budget"
    seconds, wall = time.process_time() - start_cpu, time.monotonic() - start_wall
    return Outcome(step, best.step, best.loss, tokens, seconds, wall, stopped_by)


class _Best:
    """Keeps a copy of the best weights so far and counts the checks in a row that were no better."""

    def __init__(self, network: Network, patience: int) -> None:
        self.network = network
        self.patience = patience
        self.loss = float("inf")
        self.step = 0
        self.weights = network.state_dict()
        self.worse = 0

    def offer(self, step: int, loss: float, patient: bool) -> None:
        if loss < self.loss:
            self.loss, self.step, self.worse = loss, step, 0
            self.weights = {name: value.clone() for name, value in self.network.state_dict().items()}
        elif not patient:
            self.worse += 1

    @property
    def exhausted(self) -> bool:
        return self.worse >= self.patience


@torch.no_grad()
def held_out_loss(network: Network, base: Base, rows: Sequence[LabelledRow], settings: Settings) -> float:
    """Return the mean loss of a question."""
    network.eval()
    total, questions = 0.0, 0
    for indices in make_batches(rows, settings.cells, None):
        batch = build_batch([rows[index] for index in indices], base.markers.pad)
        count = len(batch.noul_targets) + len(batch.option_targets)
        total += float(_loss(network, batch, settings.bfloat16)) * count
        questions += count
    network.train()
    return total / questions


def run_network(network: Network, inputs: dict[str, IntArray]) -> Tensor:
    """Return the logits (rows, tokens, 3) of one batch."""
    logits: Tensor = network(**{name: torch.from_numpy(array) for name, array in inputs.items()})
    return logits


def bfloat16_is_faster() -> bool:
    """Time a product of matrices of the network's size in both formats; decided by what this processor does."""
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        left, right = torch.ones((64, 384), dtype=dtype), torch.ones((384, 1536), dtype=dtype)
        _ = left @ right
        start = time.process_time()
        for _ in range(3):
            _ = left @ right
        seconds[dtype] = time.process_time() - start
    return seconds[torch.bfloat16] < seconds[torch.float32]


def _loss(network: Network, batch: Batch, bfloat16: bool) -> Tensor:
    """Return the mean over the questions of the cross-entropy with the target, of the answer and of column 2."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
        logits = run_network(network, batch.inputs)
    logits = logits.float()
    noul = logits[batch.noul_places[:, 0], batch.noul_places[:, 1], 0]
    total = functional.binary_cross_entropy_with_logits(noul, torch.from_numpy(batch.noul_targets), reduction="sum")
    if len(batch.option_targets):
        scores = logits[batch.option_places[..., 0], batch.option_places[..., 1], 1]
        scores = scores.masked_fill(~torch.from_numpy(batch.option_exists), -1e9)
        total = total - (functional.log_softmax(scores, dim=-1) * torch.from_numpy(batch.option_targets)).sum()
    mean: Tensor = total / (len(batch.noul_targets) + len(batch.option_targets))
    return mean + ANSWERABLE_WEIGHT * _answerable_loss(logits, batch) if len(batch.answerable) else mean


def _answerable_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Return the mean cross-entropy of column 2, averaged over the markers of each question."""
    questions = torch.from_numpy(batch.marker_questions)
    at_markers = logits[batch.marker_places[:, 0], batch.marker_places[:, 1], 2]
    sums = torch.zeros(len(batch.answerable)).index_add(0, questions, at_markers)
    means = sums / torch.bincount(questions, minlength=len(batch.answerable))
    return functional.binary_cross_entropy_with_logits(means, torch.from_numpy(batch.answerable))


def _step(network: Network, optimiser: torch.optim.AdamW, batch: Batch, bfloat16: bool) -> float:
    loss = _loss(network, batch, bfloat16)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves backward without annotations
    torch.nn.utils.clip_grad_norm_(network.parameters(), GRADIENT_NORM)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return float(loss.detach())


def _optimiser(network: Network, settings: Settings) -> tuple[torch.optim.AdamW, list[float]]:
    head: list[nn.Parameter] = []
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        if name.startswith(("dense", "out", "marker_words", "focus", "match_scale", "match_bias")):
            head.append(parameter)
        else:
            (decayed if parameter.ndim > 1 else plain).append(parameter)
    rates = [settings.learning_rate * HEAD_FACTOR, settings.learning_rate, settings.learning_rate]
    groups = [
        {"params": parameters, "lr": rate, "weight_decay": decay}
        for parameters, rate, decay in zip((head, decayed, plain), rates, (WEIGHT_DECAY, WEIGHT_DECAY, 0), strict=True)
    ]
    return torch.optim.AdamW(groups), rates


def _set_rate(optimiser: torch.optim.AdamW, rates: Sequence[float], progress: float, warm_up: float) -> None:
    """Raise the learning rate evenly during warm-up, then lower it evenly to zero."""
    factor = progress / warm_up if progress < warm_up else max(0.0, (1 - progress) / (1 - warm_up))
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = rate * factor


def _continuations(base: Base) -> NDArray[np.bool_]:
    """Return for each token whether it continues a word, shape (vocabulary,)."""
    continues = np.zeros(base.shape.vocabulary, dtype=np.bool_)
    continues[[index for piece, index in base.tokenizer.get_vocab().items() if piece.startswith("##")]] = True
    return continues


def _sample(rows: Sequence[LabelledRow], most: int, random: np.random.Generator) -> list[LabelledRow]:
    if len(rows) <= most:
        return list(rows)
    return [rows[index] for index in random.choice(len(rows), most, replace=False).tolist()]
