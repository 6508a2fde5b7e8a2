"""No injected fault ever makes the guard act: every fault alone, and many together."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from guard_rules import NOW, TODAY, Clock, Desk, examples, refund, refund_desk, with_rule
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decider.guard import Call, Decision, Fingerprints, Guard, GuardError, HardRule, observe, start_monitor, versioned

NEW = 1_000


@dataclass
class World:
    """A guard that has just acted on a call, and everything that can go wrong afterwards."""

    desk: Desk
    guard: Guard
    acted: Decision
    fingerprints: Fingerprints
    scores: list[Any]
    context: list[Any]
    groups: list[Any]
    models: list[Any]
    broken: list[Any]


@contextmanager
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts: dict[str, list[Any]] = {
            "scores": [0.999],
            "context": [],
            "groups": ["eu"],
            "models": ["model 1"],
            "broken": [None],
        }

        def given(part: str) -> Any:
            found = parts[part][-1]
            if isinstance(found, Exception):
                raise found
            return found

        @versioned("1")
        def context(call: Call) -> object:
            return given("context") if parts["context"] else {"amount": call.arguments["amount"]}

        @versioned("1")
        def scorer(seen: object) -> object:
            return given("scores")

        @versioned("1")
        def group(call: Call) -> Any:
            return given("groups")

        desk = with_rule(
            refund_desk(folder),
            context=context,
            scorer=scorer,
            group=group,
            model=lambda: given("models"),
            hard_rules=(HardRule("rule", lambda call: given("broken")),),
            monitor=folder / "monitor.json",
        )
        version = desk.write(examples(group="eu")).version
        assert desk.rule.monitor is not None
        start_monitor(desk.rule.monitor, version, 0.07)
        guard = desk.guard()
        acted = guard.check(refund())
        assert acted.action == "act"
        yield World(desk, guard, acted, desk.rule.fingerprints(), **parts)


def put(part: str, value: object) -> Callable[[World], None]:
    """A fault: one part gives, or raises, something else."""
    return lambda world: getattr(world, part).append(value)


def clock(time: object) -> Callable[[World], None]:
    def fault(world: World) -> None:
        world.desk.clock.time = time

    return fault


def written(content: bytes) -> Callable[[World], None]:
    """A fault: the profile holds something else."""

    def fault(world: World) -> None:
        world.desk.rule.profile.write_bytes(content)

    return fault


def deleted(world: World) -> None:
    world.desk.rule.profile.unlink()


def folder_instead(world: World) -> None:
    world.desk.rule.profile.unlink()
    world.desk.rule.profile.mkdir()


def damaged(world: World) -> None:
    path = world.desk.rule.profile
    path.write_bytes(path.read_bytes().replace(b"0.6", b"0.7", 1))


def monitor(world: World) -> Path:
    assert world.desk.rule.monitor is not None
    return world.desk.rule.monitor


def monitor_deleted(world: World) -> None:
    monitor(world).unlink()


def monitor_damaged(world: World) -> None:
    monitor(world).write_text("{}")


def other_tool(world: World) -> None:
    world.desk.write(examples(group="eu"), tool="wire", fingerprints=world.fingerprints)


def drift(world: World) -> None:
    assert world.acted.profile_version is not None
    assert observe(monitor(world), world.acted.profile_version, [True] * 5).alarmed


def stale(world: World) -> None:
    world.desk.write(examples(group="eu"), max_age_days=5, fingerprints=world.fingerprints)


def other_fingerprint(world: World) -> None:
    right = world.fingerprints
    world.desk.write(examples(group="eu"), fingerprints=type(right)(**{**fields(right), "policy": "x"}))


def fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


# After these no call may run, not even one that was decided on before.
STANDING: dict[str, Callable[[World], None]] = {
    "deleted profile": deleted,
    "damaged profile": damaged,
    "empty profile": written(b""),
    "profile of bytes": written(b"\xff\xfe{"),
    "profile of another kind": written(b"[1, 2]"),
    "profile of nests": written(b"[" * 100_000),
    "profile is a folder": folder_instead,
    "stale profile": stale,
    "wrong fingerprint": other_fingerprint,
    "profile of another tool": other_tool,
    "other model": put("models", "model 2"),
    "model unknown": put("models", RuntimeError("no model")),
    "model not text": put("models", object()),
    "drift alarm": drift,
    "monitor deleted": monitor_deleted,
    "monitor damaged": monitor_damaged,
    "clock went back": clock(NOW - timedelta(seconds=1)),
    "clock far ahead": clock(NOW + timedelta(days=4_000)),
    "clock without a zone": clock(datetime(2026, 6, 1, 12)),
    "clock of text": clock("2026-06-01"),
    "clock of nothing": clock(None),
    "clock raises": clock(OSError("no clock")),
    "hard rule raises": put("broken", ValueError("cannot tell")),
    "hard rule refuses": put("broken", "against the rule"),
    "hard rule gives a bool": put("broken", False),
    "hard rule gives empty text": put("broken", ""),
}
# After these no new call may be acted on.
ODD_SCORES: list[object] = [math.nan, math.inf, -0.1, 1.1, True, None, "1", {}, []]
JUDGING: dict[str, Callable[[World], None]] = {
    **{f"score {value!r}": put("scores", value) for value in ODD_SCORES},
    "scorer raises": put("scores", TimeoutError("no answer")),
    "low score": put("scores", 0.1),
    "context raises": put("context", KeyError("order")),
    "context of an object": put("context", object()),
    "context of NaN": put("context", {"a": math.nan}),
    "context of odd keys": put("context", {1: "a"}),
    "unseen group": put("groups", "us"),
    "group of nothing": put("groups", None),
    "group not text": put("groups", ["eu"]),
    "group raises": put("groups", LookupError("no record")),
}
ALL = {**STANDING, **JUDGING}


def nothing_runs(world: World, names: list[str], new: Call) -> None:
    for name in names:
        with suppress(OSError, GuardError):  # an earlier fault may have taken away what this one would break
            ALL[name](world)
    for thresholds in (None, (0.0, 0.0)):
        try:
            decision = world.guard.check(new, thresholds=thresholds)
        except Exception as error:  # the guard answers, whatever happens
            pytest.fail(f"{names}: {error!r}")
        if names == ["low score"] and thresholds:
            continue
        assert decision.action != "act", (names, decision.reasons)
        with pytest.raises((GuardError, OSError)):
            world.guard.release(new, decision)
    if any(name in STANDING for name in names):
        assert world.guard.check(refund(), earlier=[world.acted]).action != "act", names
        with pytest.raises((GuardError, OSError, RuntimeError)):
            world.guard.release(refund(), world.acted)


@pytest.mark.parametrize("name", ALL)
def test_one_fault_never_yields_an_act(name: str) -> None:
    with world() as found:
        nothing_runs(found, [name], refund(amount=NEW))


def test_without_a_fault_the_same_calls_run() -> None:
    with world() as found:
        new = refund(amount=NEW)
        assert found.guard.release(new, found.guard.check(new)).released_by == "guard"
        assert found.guard.check(refund(), earlier=[found.acted]).repeat
        assert found.guard.release(refund(), found.acted).released_by == "guard"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(sorted(ALL)), min_size=2, max_size=5, unique=True))
def test_many_faults_never_yield_an_act(names: list[str]) -> None:
    with world() as found:
        nothing_runs(found, names, refund(amount=NEW))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


def test_no_odd_score_is_acted_on() -> None:
    with world() as found:
        amounts = iter(range(1_000_000))

        @settings(max_examples=60, deadline=None)
        @given(ANYTHING)
        def check(value: object) -> None:
            found.scores.append(value)
            good = type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator]
            decision = found.guard.check(refund(amount=-next(amounts)))
            assert good or decision.action != "act"

        check()


def test_arguments_changed_after_scoring_never_run() -> None:
    with world() as found:

        @settings(max_examples=60, deadline=None)
        @given(ANYTHING)
        def check(arguments: object) -> None:
            changed = Call("c1", "refund", arguments, "t")  # type: ignore[arg-type]
            with pytest.raises((GuardError, TypeError, ValueError)):
                found.guard.release(changed, found.acted)

        check()


def test_odd_calls_are_answered_and_never_acted_on() -> None:
    with world() as found:

        @settings(max_examples=60, deadline=None)
        @given(ANYTHING, ANYTHING, ANYTHING)
        def check(name: object, tool: object, arguments: object) -> None:
            assert found.guard.check(Call(name, tool, arguments)).action != "act"  # type: ignore[arg-type]

        check()


def test_the_clock_may_stand_still() -> None:
    with world() as found:
        assert isinstance(found.desk.clock, Clock)
        assert found.guard.check(refund(amount=NEW)).decided == found.acted.decided == NOW
        assert NOW.date() == TODAY
