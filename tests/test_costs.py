"""Thresholds from costs, worked out by hand, and the regions they cut."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.costs import Costs, CostWarning, action_thresholds, as_probability, check_pair, read_costs, region
from decider.errors import CostError

ROOT = Path(__file__).parent.parent
Four = tuple[float, float, float, float]


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ((20, 0.5, 4, 3), (0.375, 0.96875)),
        ((200, 5, 40, 30), (0.375, 0.96875)),  # in another unit nothing changes
        ((20, 2.39, 4, 3), (0.8475, 0.850625)),  # just below ask = 2.4 = esc (1 - miss / wrong) asking pays
        ((20, 2.41, 4, 3), (0.85, 0.85)),  # just above it does not
        ((20, 2.5, 4, 3), (0.85, 0.85)),  # tau_esc 0.875 > tau_act 0.84375: 1 - 3/20
        ((4, 1, 2, 1.5), (0.625, 0.625)),  # tau_esc 0.75 > tau_act 0.5: 1 - 1.5/4
        ((20, 3, 0, 3), (0.85, 0.85)),  # a look catches everything and costs as much as handing over
        ((20, 0.5, 0, 3), (0.0, 0.975)),  # and less: ask instead
    ],
)
def test_thresholds(costs: Four, expected: tuple[float, float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert action_thresholds(costs) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("costs", "expected", "remark"),
    [
        ((3, 0.5, 4, 3), (0.0, 0.0), "wrong <= miss"),  # written out 1.5: never act
        ((5, 1, 5, 3), (0.4, 0.4), "wrong <= miss"),  # written out a division by zero
        ((4, 0.5, 9, 1), (0.75, 0.75), "wrong <= miss"),
        ((20, 0.5, 4, 0.2), (0.99, 0.99), "esc < ask"),  # written out tau_esc 1.075
        ((4, 2.5, 2, 1), (0.75, 0.75), "esc < ask"),  # asking at 0.75 costs 2.5 + 0.25 * 2 = 3, handing over 1
        ((20, 5, 0, 3), (0.85, 0.85), "esc < ask"),  # a look catches everything and costs more than handing over
        ((20, 0.5, 4, 0), (1.0, 1.0), "esc < ask"),
        ((2, 0.5, 1, 5), (0.0, 0.5), "esc >= wrong"),  # written out tau_esc -3.5
        ((2, 1.5, 1, 3), (0.0, 0.0), "esc >= wrong"),
        ((20, 0, 4, 3), (0.25, 1.0), "ask = 0"),
    ],
)
def test_odd_costs_are_remarked_upon_and_still_have_thresholds(
    costs: Four, expected: tuple[float, float], remark: str
) -> None:
    with pytest.warns(CostWarning) as caught:
        assert action_thresholds(costs) == pytest.approx(expected)
    assert any(str(one.message).startswith(remark) for one in caught)
    assert all(one.filename == __file__ for one in caught)
    assert tuple(str(one.message) for one in caught) == Costs(*costs).remarks()
    assert action_thresholds(costs, quiet=True) == pytest.approx(expected)


def test_the_example_is_exact() -> None:
    assert action_thresholds(Costs(wrong=20, ask=0.5, miss=4, esc=3)) == (0.375, 0.96875)


@pytest.mark.parametrize(
    ("caught", "expected"),
    [(1, (0.375, 0.96875)), (0.9, (0.5536, 0.96528)), (0.8, (0.6528, 0.96094)), (0.5, (0.7917, 0.9375))],
)
def test_a_reviewer_who_misses_some(caught: float, expected: tuple[float, float]) -> None:
    costs = Costs(20, 0.5, 4, 3).with_reviewer(caught)
    assert costs.miss == pytest.approx(caught * 4 + (1 - caught) * 20)
    assert action_thresholds(costs) == pytest.approx(expected, abs=5e-5)


def test_a_reviewer_who_catches_nothing_is_not_asked() -> None:
    assert action_thresholds(Costs(20, 0.5, 4, 3).with_reviewer(0), quiet=True) == (0.85, 0.85)
    for share in (-0.1, 1.1, math.nan, True, "1"):
        with pytest.raises(CostError, match="caught"):
            Costs(20, 0.5, 4, 3).with_reviewer(share)  # type: ignore[arg-type]


BAD = [math.nan, math.inf, -math.inf, -0.1, True, "1", None, [1]]


@pytest.mark.parametrize("name", ["wrong", "ask", "miss", "esc"])
@pytest.mark.parametrize("value", BAD, ids=repr)
def test_what_is_no_cost_is_refused(name: str, value: object) -> None:
    costs: dict[str, object] = {"wrong": 20, "ask": 0.5, "miss": 4, "esc": 3}
    with pytest.raises(CostError, match=name) as caught:
        read_costs({**costs, name: value})
    assert caught.value.field == f"cost '{name}'"
    del costs[name]
    with pytest.raises(CostError, match="missing"):
        read_costs(costs)


def test_costs_from_settings() -> None:
    assert read_costs({"esc": 3, "miss": 4, "ask": 0.5, "wrong": 20}) == Costs(20, 0.5, 4, 3)
    with pytest.raises(CostError, match="'regret': it is not known"):
        read_costs({"esc": 3, "miss": 4, "ask": 0.5, "wrong": 20, "regret": 1})
    with pytest.raises(CostError, match="it is 0"):
        Costs(0, 1, 1, 1)


def regret(costs: Four, p: float) -> float:
    """How much more the chosen action costs than the cheapest."""
    wrong, ask, miss, esc = costs
    expected = {"act": (1 - p) * wrong, "ask": ask + (1 - p) * miss, "escalate": esc}
    return expected[region(p, *action_thresholds(costs, quiet=True))] - min(expected.values())


COST = st.one_of(st.just(0.0), st.floats(0, 50, allow_nan=False))


@given(st.floats(0.01, 50), COST, COST, COST, st.floats(0, 1))
def test_the_region_is_a_cheapest_action(wrong: float, ask: float, miss: float, esc: float, p: float) -> None:
    tau_esc, tau_act = action_thresholds((wrong, ask, miss, esc), quiet=True)
    assert 0 <= tau_esc <= tau_act <= 1
    assert regret((wrong, ask, miss, esc), p) <= 1e-6


def largest_regret(count: int) -> float:
    """The largest regret over random costs, some of them zero, at seven probabilities each."""
    random = np.random.default_rng(7)
    costs = random.uniform(0, 20, (count, 4)) * (random.random((count, 4)) > 0.15)
    costs[:, 0] = np.maximum(costs[:, 0], 0.01)
    chances = np.concatenate([random.random((count, 5)), np.zeros((count, 1)), np.ones((count, 1))], axis=1)
    return max(
        regret((wrong, ask, miss, esc), p)
        for (wrong, ask, miss, esc), row in zip(costs.tolist(), chances.tolist(), strict=True)
        for p in row
    )


def test_no_regret_against_every_action_tried() -> None:
    assert largest_regret(3_000) < 1e-9


@pytest.mark.slow
def test_no_regret_for_two_hundred_thousand_sets_of_costs() -> None:
    assert largest_regret(200_000) < 1e-9


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.375, "ask"), (0.9687, "ask"), (0.96875, "act"), (0.99, "act"), (0.1, "escalate"), (0, "escalate"), (1, "act")],
)
def test_regions_and_ties(p: float, expected: str) -> None:
    assert region(p, 0.375, 0.96875) == expected


@pytest.mark.parametrize("p", [None, math.nan, -0.001, 1.001, math.inf, "0.99", True, [1.0]])
def test_what_is_no_probability_is_never_acted_on(p: object) -> None:
    assert region(p, 0.0, 0.0) == "escalate"
    assert as_probability(p) is None


@pytest.mark.parametrize("pair", [(0.6, 0.5), (math.nan, 0.5), (0.5, math.nan), (-0.1, 0.5), (0.5, 1.1)])
def test_bad_thresholds_are_refused(pair: tuple[float, float]) -> None:
    for check in (check_pair, lambda *given: region(0.5, *given)):
        with pytest.raises(CostError):
            check(*pair)


def test_costs_need_the_standard_library_alone() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import decider.costs; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert {"numpy", "tokenizers", "onnxruntime", "msgspec"} & set(done.stdout.split()) == set()
