"""The drift monitor: wealth worked out by hand, a gate that stays closed, and how soon and how often it alarms."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from guard_rules import refund, refund_desk, with_rule

from decider.calibration import upper_bound
from decider.guard import Monitor, ProfileError, check_gate, observe, read_monitor, start_monitor
from decider.guard.monitor import BETS


def wealth(labels: list[bool], bound: float = 0.05) -> Iterator[float]:
    monitor = Monitor("v", bound, 0.05)
    for label in labels:
        monitor = monitor.after([label])
        yield monitor.e_value


def test_wealth_by_hand() -> None:
    # After one loss: the mean of 1 + c/0.05 * 0.95 over the bets, whose mean is 0.198125: 1 + 19 * 0.198125.
    assert next(wealth([True])) == pytest.approx(1 + 19 * 0.198125)
    found = list(wealth([True, False, True, False, False]))
    assert found == pytest.approx([4.764375, 2.540316, 16.367332, 8.314578, 5.451249], abs=5e-7)


def test_two_losses_in_a_row_alarm_and_the_alarm_stays() -> None:
    one = Monitor("v", 0.05, 0.05).after([True])
    assert not one.alarmed
    two = one.after([True])
    assert two.alarmed
    after = two.after([False] * 500)
    assert after.alarmed
    assert after.e_value < 1
    assert (after.observed, after.losses) == (502, 2)


def test_the_wealth_is_computed_without_overflow() -> None:
    monitor = Monitor("v", 0.01, 0.05).after([True] * 150)
    assert monitor.alarmed
    assert monitor.e_value > 1e250


@pytest.mark.parametrize("label", [1, 0.5, None, "no", math.nan])
def test_a_label_is_a_bool(label: object) -> None:
    with pytest.raises(ValueError, match="True or False"):
        Monitor("v", 0.05, 0.05).after([label])  # type: ignore[list-item]


@pytest.mark.parametrize(("bound", "risk"), [(0.0, 0.05), (1.0, 0.05), (math.nan, 0.05), (0.05, 0.0), (0.05, 1.0)])
def test_bounds_that_cannot_be(bound: float, risk: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Monitor("v", bound, risk)


def test_a_monitor_is_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "monitor.json"
    start_monitor(path, "v1", 0.0713)
    assert (
        observe(path, "v1", [False, True])
        == read_monitor(path, "v1")
        == Monitor("v1", 0.0713, 0.05).after([False, True])
    )
    check_gate(path, "v1")
    assert observe(path, "v1", [True, True]).alarmed
    with pytest.raises(ProfileError, match=r"3 of 4 audited calls were losses, more than 7\.1% explains") as caught:
        check_gate(path, "v1")
    assert caught.value.code == "drift"
    with pytest.raises(ProfileError, match="already watches this profile"):
        start_monitor(path, "v1", 0.0713)  # an alarm is not reset that way
    assert observe(path, "v1", [False] * 100).alarmed
    start_monitor(path, "v2", 0.0713)
    check_gate(path, "v2")
    with pytest.raises(ProfileError, match="watches another profile"):
        observe(path, "v1", [True])


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b"\xff", b'{"profile_version": "v1", "bound": 2, "risk": 0.05}']
)
def test_a_damaged_file_keeps_the_gate_closed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "monitor.json"
    with pytest.raises(ProfileError, match="there is no monitor"):
        check_gate(path, "v1")
    path.write_bytes(content)
    for use in (
        lambda: check_gate(path, "v1"),
        lambda: observe(path, "v1", []),
        lambda: start_monitor(path, "v1", 0.1),
    ):
        with pytest.raises(ProfileError) as caught:
            use()
        assert caught.value.code == "damaged"


def test_an_alarm_in_the_file_cannot_be_argued_away_by_odd_numbers() -> None:
    good = msgspec.to_builtins(Monitor("v", 0.05, 0.05))
    for odd in ({"wealth": [0.0] * 7}, {"losses": 2}, {"wealth": [math.inf] * 8}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({**good, **odd}, Monitor)


def test_labels_from_several_threads_are_all_counted(tmp_path: Path) -> None:
    path = tmp_path / "monitor.json"
    start_monitor(path, "v1", 0.5)
    threads = [threading.Thread(target=lambda: [observe(path, "v1", [False]) for _ in range(5)]) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert read_monitor(path, "v1").observed == 20


def test_an_alarm_closes_the_gate_until_a_new_calibration(tmp_path: Path) -> None:
    path = tmp_path / "monitor.json"
    desk = with_rule(refund_desk(tmp_path), monitor=path)
    guard = desk.guard()
    assert guard.check(refund()).codes == ("missing",)  # a rule with a monitor needs one
    version = desk.write().version
    bound = guard_bound = upper_bound(15, 320)
    plain = with_rule(desk, monitor=None).guard()
    assert plain.standing("refund").loss_bound() == guard_bound
    start_monitor(path, version, bound)
    assert guard.check(refund()).action == "act"
    observe(path, version, [True] * 3)
    assert guard.check(refund()).codes == ("drift",)
    assert guard.check(refund()).action == "escalate"
    newer = desk.write(max_age_days=91).version
    assert guard.check(refund()).codes == ("monitor",)
    start_monitor(path, newer, bound)
    assert guard.check(refund()).action == "act"


# ----------------------------------------------------------------- simulation


def alarms(rate: float, bound: float, steps: int, repeats: int, seed: int) -> np.ndarray:
    """When each of many runs alarms, counted from 1; infinity for never. The arithmetic is that of the monitor."""
    losses = np.random.default_rng(seed).random((repeats, steps)) < rate
    bets = np.array(BETS) / bound
    logs = np.cumsum(np.log1p(bets * (losses[..., None] - bound)), axis=1)
    highest = logs.max(axis=2)
    value = highest + np.log(np.exp(logs - highest[..., None]).mean(axis=2))
    over = value >= math.log(20)
    return np.where(over.any(axis=1), over.argmax(axis=1) + 1, math.inf)


def test_the_simulated_arithmetic_is_the_monitors() -> None:
    losses = np.random.default_rng(4).random(300) < 0.12
    monitor, steps = Monitor("v", 0.05, 0.05), 0
    while not monitor.alarmed and steps < 300:
        monitor, steps = monitor.after([bool(losses[steps])]), steps + 1
    assert alarms(0.12, 0.05, 300, 1, 4)[0] == (steps if monitor.alarmed else math.inf)


@pytest.mark.parametrize(("rate", "median"), [(0.10, 174), (0.15, 53), (0.20, 26)])
def test_the_delay_of_an_alarm(rate: float, median: float) -> None:
    assert np.median(alarms(rate, 0.05, 600, 150, 5)) == pytest.approx(median, rel=0.3)


def test_false_alarms_are_rare() -> None:
    assert np.isfinite(alarms(0.05, 0.05, 1_000, 100, 6)).mean() <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "median", "late"), [(0.07, 1031, 2197), (0.08, 486, 1143), (0.10, 174, 455)])
def test_delays_as_recorded(rate: float, median: float, late: float) -> None:
    found = np.concatenate([alarms(rate, 0.05, 5_000, 250, seed) for seed in range(6)])
    assert np.median(found) == pytest.approx(median, rel=0.12)
    assert np.quantile(found, 0.9) == pytest.approx(late, rel=0.12)


@pytest.mark.slow
def test_false_alarms_as_recorded() -> None:
    found = np.concatenate([alarms(0.05, 0.05, 5_000, 250, seed) for seed in range(8)])
    assert np.isfinite(found).mean() == pytest.approx(0.032, abs=0.012)


@pytest.mark.slow
def test_the_target_as_bound_alarms_without_drift_and_the_upper_bound_hardly_ever() -> None:
    from guard_population import draw, joint_risk

    from decider.guard import lowest_threshold, most_wrong

    random, most = np.random.default_rng(3), most_wrong(320, "0.05")
    risks = [joint_risk(lowest_threshold(*draw(random, 320), most)) for _ in range(300)]
    target = [alarms(risk, 0.05, 5_000, 1, seed)[0] for seed, risk in enumerate(risks)]
    upper = [alarms(risk, upper_bound(15, 320), 5_000, 1, seed)[0] for seed, risk in enumerate(risks)]
    assert np.isfinite(target).mean() == pytest.approx(0.22, abs=0.07)
    assert np.isfinite(upper).mean() <= 0.05


def test_another_implementation_agrees_on_the_wealth() -> None:
    anytime = pytest.importorskip("cli_sdk.stats.evalues.anytime")
    theirs, ours = anytime.BettingMartingale(null_rate=0.05), Monitor("v", 0.05, 0.05)
    assert theirs._lambdas == pytest.approx([share / 0.05 for share in BETS])
    for label in np.random.default_rng(1).random(200) < 0.1:
        theirs.update(float(label))
        ours = ours.after([bool(label)])
    assert ours.e_value == pytest.approx(theirs.e_value)
