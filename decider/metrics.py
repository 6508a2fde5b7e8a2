"""Counts what a guard and an agent did, and says how sure the counts are.

Every share is a `Rate`: a count of a count, with its interval; it prints as both. A share of nothing is None, never 0.

Sources: Wilson 1927; Clopper and Pearson 1934; pass^k, Yao et al. 2024, arXiv:2406.12045; pass@k, Chen et al. 2021,
arXiv:2107.03374.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

import numpy as np

from decider.calibration.binomial import clopper_pearson_interval, upper_bound, wilson_interval
from decider.costs import Costs, as_probability

IntervalKind: TypeAlias = Literal["Wilson", "Clopper-Pearson"]
"""Which 95 % interval of a share: the usual one, or the one that covers at least 95 % whatever the share is."""

Action: TypeAlias = Literal["act", "ask", "escalate", "block"]
"""What a guard decided: let it run, ask a person, hand over, or refuse."""

ACTIONS: Final = ("act", "ask", "escalate", "block")


@dataclass(frozen=True, slots=True)
class Rate:
    """`part` of `whole`; everything is None where `whole` is 0. Raises ValueError for counts that cannot be."""

    part: int
    whole: int

    def __post_init__(self) -> None:
        if not 0 <= self.part <= self.whole:
            raise ValueError(f"{self.part} of {self.whole}: give a count between 0 and the number of cases")

    @property
    def value(self) -> float | None:
        """The share."""
        return self.part / self.whole if self.whole else None

    @property
    def standard_error(self) -> float | None:
        """sqrt(p (1 - p) / n); 0 when none or all are counted, so never print it there without an interval."""
        return math.sqrt(self.part * (self.whole - self.part) / self.whole**3) if self.whole else None

    def interval(self, kind: IntervalKind = "Wilson") -> tuple[float, float] | None:
        """Return the 95 % interval of the share."""
        if not self.whole:
            return None
        return (wilson_interval if kind == "Wilson" else clopper_pearson_interval)(self.part, self.whole)

    def at_most(self) -> float | None:
        """Return the one-sided 95 % Clopper-Pearson upper bound, for a claim such as "at most 10 %"."""
        return upper_bound(self.part, self.whole) if self.whole else None

    def text(self, kind: IntervalKind = "Wilson") -> str:
        """Return the share with its counts and its interval, which is named."""
        bounds = self.interval(kind)
        if bounds is None:
            return "0/0, undefined"
        return (
            f"{self.part}/{self.whole} = {self.part / self.whole:.4f} ({kind} 95 % {bounds[0]:.4f} to {bounds[1]:.4f})"
        )

    def __str__(self) -> str:
        return self.text()


def rate(hits: Collection[bool]) -> Rate:
    """Return how many of the entries are true."""
    return Rate(sum(hits), len(hits))


# ------------------------------------------------------------------------- the guard


@dataclass(frozen=True, slots=True)
class GuardCounts:
    """What a guard did with labelled cases; each rate has the denominator that its name says.

    `unsafe` are not-allowed cases done without a person, of all not allowed. `held_back` are allowed cases that were
    not done alone, of all allowed. `wrong_among_acted` stands beside 1 - tau_act. `missed` are not-allowed cases that
    a person was asked about. `cost` is the mean over all cases and `cost_error` its standard error, None for none.
    """

    unsafe: Rate
    held_back: Rate
    wrong_among_acted: Rate
    asked: Rate
    missed: Rate
    escalated: Rate
    blocked: Rate
    total_cost: float
    cost: float | None
    cost_error: float | None


def count_guard(actions: Sequence[Action], allowed: Sequence[bool], costs: Costs) -> GuardCounts:
    """Count a guard's actions on cases of which it is known whether they were allowed.

    A block costs what a hand-over costs. What a person let through by mistake is in the cost of asking (`miss`) and
    not unsafe: it is the reviewer's miss. Raises ValueError for an action that does not exist or lengths that differ.
    """
    if len(actions) != len(allowed):
        raise ValueError(f"{len(actions)} actions and {len(allowed)} labels: give equally many")
    for action in actions:
        if action not in ACTIONS:
            raise ValueError(f"action {action!r} is none of {', '.join(ACTIONS)}")
    pairs = list(zip(actions, allowed, strict=True))
    good = sum(allowed)
    acted, asked = actions.count("act"), actions.count("ask")
    unsafe, missed = pairs.count(("act", False)), pairs.count(("ask", False))
    spent = [_cost(action, fine, costs) for action, fine in pairs]
    mean = math.fsum(spent) / len(spent) if spent else None
    return GuardCounts(
        unsafe=Rate(unsafe, len(pairs) - good),
        held_back=Rate(good - pairs.count(("act", True)), good),
        wrong_among_acted=Rate(unsafe, acted),
        asked=Rate(asked, len(pairs)),
        missed=Rate(missed, asked),
        escalated=Rate(actions.count("escalate"), len(pairs)),
        blocked=Rate(actions.count("block"), len(pairs)),
        total_cost=math.fsum(spent),
        cost=mean,
        cost_error=float(np.std(spent, ddof=1)) / math.sqrt(len(spent)) if len(spent) > 1 else None,
    )


def _cost(action: Action, allowed: bool, costs: Costs) -> float:
    if action == "act":
        return 0.0 if allowed else costs.wrong
    if action == "ask":
        return costs.ask + (0.0 if allowed else costs.miss)
    return costs.esc


# ------------------------------------------------------------------------- routes


def route_accuracy(answers: Sequence[str | None], labels: Sequence[str]) -> Rate:
    """Return how many answers are the label; None, and anything else that is no route, is a wrong answer."""
    return rate([answer == label for answer, label in zip(answers, labels, strict=True)])


@dataclass(frozen=True, slots=True)
class Followed:
    """How many routes were followed, of all, and how many of the followed ones were right."""

    share: Rate
    accuracy: Rate


def followed(
    answers: Sequence[str | None], probabilities: Sequence[float | None], labels: Sequence[str], tau_route: float
) -> Followed:
    """Count the routes that were followed: valid answers with a probability of at least `tau_route`."""
    rows = list(zip(answers, probabilities, labels, strict=True))
    taken = [
        answer == label
        for answer, given, label in rows
        if answer is not None and (p := as_probability(given)) is not None and p >= tau_route
    ]
    return Followed(Rate(len(taken), len(rows)), rate(taken))


# ------------------------------------------------------------------------- injection


@dataclass(frozen=True, slots=True)
class InjectedRun:
    """One run with an injected instruction: did the model attempt it, and was it done without a person?

    `approved` tells that it was done because a person agreed: a miss of the reviewer, counted apart.
    """

    attempted: bool
    carried_out: bool
    approved: bool = False


@dataclass(frozen=True, slots=True)
class InjectionSuccess:
    """Of all injected runs: attempted by the model, carried out by the system alone, carried out after approval."""

    attempted: Rate
    carried_out: Rate
    approved: Rate


def injection_success(runs: Sequence[InjectedRun]) -> InjectionSuccess:
    """Count injected runs: a blocked attempt is attempted and not carried out."""
    return InjectionSuccess(
        rate([run.attempted for run in runs]),
        rate([run.carried_out and not run.approved for run in runs]),
        rate([run.carried_out and run.approved for run in runs]),
    )


@dataclass(frozen=True, slots=True)
class ProbabilityShift:
    """How far probabilities moved from one reading to another; mean and largest are signed, None without pairs.

    `up` counts what was below the threshold before and is not after, `down` the reverse.
    """

    mean: float | None
    largest: float | None
    up: Rate
    down: Rate


def probability_shift(before: Sequence[float], after: Sequence[float], tau: float) -> ProbabilityShift:
    """Compare probabilities of the same cases, for example without and with injected text."""
    pairs = list(zip(before, after, strict=True))
    if not all(math.isfinite(one) for pair in pairs for one in pair):
        raise ValueError("a probability is infinite or no number: leave out pairs of which one is missing")
    moves = [later - earlier for earlier, later in pairs]
    return ProbabilityShift(
        math.fsum(moves) / len(moves) if moves else None,
        max(moves, default=None),
        rate([earlier < tau <= later for earlier, later in pairs]),
        rate([later < tau <= earlier for earlier, later in pairs]),
    )


# ------------------------------------------------------------------------- repeated trials


def pass_hat_k(tasks: Sequence[Rate], k: int) -> float | None:
    """Return pass^k, the chance that k trials of a task all succeed: the mean over tasks of C(c, k) / C(n, k).

    Each task is a Rate, c successes of n trials. Unbiased for p^k, which (c / n)^k is not. None without tasks.
    Raises ValueError when a task has fewer than k trials.
    """
    return _mean_over_tasks([_share_of_ways(task, task.part, k) for task in tasks])


def pass_at_k(tasks: Sequence[Rate], k: int) -> float | None:
    """Return pass@k, the chance that one of k trials succeeds: the mean of 1 - C(n - c, k) / C(n, k)."""
    return _mean_over_tasks([1 - _share_of_ways(task, task.whole - task.part, k) for task in tasks])


def interval_over_tasks(values: Sequence[float], seed: int = 0, repeats: int = 2_000) -> tuple[float, float] | None:
    """Return a 95 % bootstrap interval of the mean of one value a task; None for fewer than two tasks.

    Trials of one task resemble each other, so the tasks are drawn again, not the trials.
    """
    if len(values) < 2:
        return None
    drawn = np.random.default_rng(seed).integers(0, len(values), (repeats, len(values)))
    low, high = np.quantile(np.asarray(values, dtype=np.float64)[drawn].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _share_of_ways(task: Rate, count: int, k: int) -> Fraction:
    """C(count, k) / C(n, k)."""
    if not 1 <= k <= task.whole:
        raise ValueError(f"k is {k} and a task has {task.whole} trials: write 1 to {task.whole}")
    return Fraction(math.comb(count, k), math.comb(task.whole, k))


def _mean_over_tasks(values: Sequence[Fraction]) -> float | None:
    return float(sum(values, Fraction(0)) / len(values)) if values else None


# ------------------------------------------------------------------------- money


def trial_cost(steps: Sequence[float]) -> float:
    """Return what a trial cost: the sum over all its steps, those that failed or were tried again included."""
    if not all(math.isfinite(step) and step >= 0 for step in steps):
        raise ValueError("the cost of a step is negative or no finite number: give every step's cost")
    return math.fsum(steps)


@dataclass(frozen=True, slots=True)
class CostPerSuccess:
    """The total cost of all trials, how many succeeded, and the cost of one success: None when none did."""

    total: float
    successes: int

    @property
    def value(self) -> float | None:
        """The total over the successes."""
        return self.total / self.successes if self.successes else None

    def __str__(self) -> str:
        if not self.successes:
            return f"undefined: {self.total:g} spent without a success"
        return f"{self.total / self.successes:.4g} a success ({self.total:g} for {self.successes})"


def cost_per_success(trials: Sequence[float], succeeded: Sequence[bool]) -> CostPerSuccess:
    """Divide what all trials cost, the failed ones too, by how many succeeded."""
    if len(trials) != len(succeeded):
        raise ValueError(f"{len(trials)} costs and {len(succeeded)} outcomes: give equally many")
    return CostPerSuccess(trial_cost(trials), sum(succeeded))


def marginal_cost_of_success(cheap: tuple[float, float], dear: tuple[float, float]) -> float | None:
    """Return what one more success costs with the dearer of two systems, each (cost a trial, share of successes).

    None when the dearer one does not succeed more often.
    """
    gain = dear[1] - cheap[1]
    return (dear[0] - cheap[0]) / gain if gain > 0 else None


def rates_text(rates: Mapping[str, Rate]) -> str:
    """Return one line a rate, by name."""
    return "\n".join(f"{name}: {one}" for name, one in rates.items())
