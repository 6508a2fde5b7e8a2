"""From the examples of a profile to what the guard compares a call with: a threshold or a set rule, and a probability.

Costs need a probability; a guarantee needs a ranking alone. A call is done alone when its probability reaches tau_act
and its score the threshold. A higher threshold keeps a joint bound. A selective bound it does not keep: there the
threshold is the lowest certified one whose probability reaches tau_act.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from decider.calibration.binomial import Level, exact_level, upper_bound
from decider.calibration.certify import certified_threshold
from decider.calibration.temperature import fit_noul_temperature
from decider.calibration.venn_abers import fit_venn_abers
from decider.errors import CalibrationError
from decider.guard.errors import ProfileError
from decider.guard.levels import joint_threshold
from decider.guard.profile import Example
from decider.guard.sets import Method, SetRule, fit_set_rule

ProbabilityKind: TypeAlias = Literal["venn-abers", "temperature", "score"]
"""How a score becomes a probability: the lower Venn-Abers one (safe), by one fitted temperature, or as it is."""

# Logits of 0 and 1 would be infinite.
CLIP = 1e-12


@dataclass(frozen=True, slots=True)
class Joint:
    """At most `alpha` of all calls are approved and wrong: in the mean, or with `delta` for all but that share.

    `cap` is the most that the 95 % upper bound of wrong among approved may be; above it nothing is approved.
    """

    alpha: Level
    cap: Level
    delta: Level | None = None

    def __post_init__(self) -> None:
        exact_level(self.alpha, "alpha")
        exact_level(self.cap, "cap")
        if self.delta is not None:
            exact_level(self.delta, "delta")


@dataclass(frozen=True, slots=True)
class Selective:
    """At most `alpha` of the approved calls are wrong, with confidence 1 - `delta`."""

    alpha: Level
    delta: Level

    def __post_init__(self) -> None:
        exact_level(self.alpha, "alpha")
        exact_level(self.delta, "delta")


@dataclass(frozen=True, slots=True)
class Coverage:
    """The prediction set holds the right option in at least 1 - `alpha` of the calls."""

    alpha: Level
    method: Method = "LAC"

    def __post_init__(self) -> None:
        exact_level(self.alpha, "alpha")
        if self.method not in ("LAC", "APS"):
            raise ValueError(f"method is {self.method!r}: write 'LAC' or 'APS'")


Guarantee: TypeAlias = Joint | Selective | Coverage


@dataclass(frozen=True, slots=True)
class GateBound:
    """Fitted to calls that are right or wrong: the threshold (infinity: approve nothing) and the probability.

    `wrong` of `count` is what a drift monitor compares with: losses among the calls that it counts.
    """

    threshold: float
    probability: Callable[[float], float]
    text: str
    wrong: int
    count: int


@dataclass(frozen=True, slots=True)
class SetBound:
    """Fitted to calls with options: the set rule and the probability that the likeliest option is right."""

    rule: SetRule
    probability: Callable[[float], float]
    text: str
    wrong: int
    count: int


def fit_gate(
    examples: Sequence[Example],
    guarantee: Joint | Selective,
    kind: ProbabilityKind,
    tau_act: float,
    unlabelled: Sequence[float] = (),
) -> GateBound:
    """Fit to examples with one probability each; raises ProfileError where a probability cannot be fitted."""
    scores = [float(one.evidence) for one in examples if not isinstance(one.evidence, dict)]
    wrong = [0.0 if one.label is True else 1.0 for one in examples]
    probability = _fit_probability(scores, [1 - bad for bad in wrong], kind)
    match guarantee:
        case Joint(alpha, cap, delta):
            joint = joint_threshold(scores, wrong, alpha, cap=cap, delta=delta)
            return GateBound(joint.threshold, probability, str(joint), joint.wrong, joint.count)
        case Selective(alpha, delta):
            certificate = certified_threshold(scores, wrong, alpha, delta, list(unlabelled) or None)
            usable = [step for step in certificate.steps if step.certified and probability(step.threshold) >= tau_act]
            lowest = min((step.threshold for step in usable), default=math.inf)
            return GateBound(lowest, probability, str(certificate), certificate.wrong, certificate.approved)
        case never:
            assert_never(never)


def fit_sets(
    examples: Sequence[Example], options: Sequence[str], guarantee: Coverage, kind: ProbabilityKind
) -> SetBound:
    """Fit to examples with a probability for each option; raises ProfileError where no probability can be fitted."""
    rows = [[one.evidence[option] for option in options] for one in examples if isinstance(one.evidence, dict)]
    right = [options.index(str(one.label)) for one in examples]
    rule = fit_set_rule(rows, right, guarantee.alpha, guarantee.method)
    top = [max(row) for row in rows]
    hits = [float(row.index(best) == index) for row, best, index in zip(rows, top, right, strict=True)]
    outside = sum(index not in rule.options(row) for row, index in zip(rows, right, strict=True))
    return SetBound(rule, _fit_probability(top, hits, kind), str(rule), outside, len(rows))


def upper_rate(bounds: Sequence[GateBound | SetBound]) -> float:
    """Return the one-sided 95 % upper bound of the loss rate that was calibrated, over all groups together."""
    return upper_bound(sum(one.wrong for one in bounds), sum(one.count for one in bounds))


def _fit_probability(
    scores: Sequence[float], right: Sequence[float], kind: ProbabilityKind
) -> Callable[[float], float]:
    if kind == "score":
        return _same
    if kind == "venn-abers":
        fitted = fit_venn_abers(scores, right)
        return lambda score: fitted.interval(score).low
    try:
        temperature = fit_noul_temperature([_logit(score) for score in scores], right).accepted("noul")
    except CalibrationError as error:
        raise ProfileError("temperature", error.problem, error.remedy) from error
    return lambda score: 1 / (1 + math.exp(-_logit(score) / temperature))


def _same(score: float) -> float:
    return score


def _logit(score: float) -> float:
    clipped = min(1 - CLIP, max(CLIP, score))
    return math.log(clipped) - math.log1p(-clipped)
