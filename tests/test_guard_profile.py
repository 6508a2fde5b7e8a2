"""Profiles: what may stand in one, what a file has to be to count, and fingerprints of what it depends on."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from guard_rules import (
    LEVELS,
    TODAY,
    examples,
    refund,
    refund_context,
    refund_desk,
    triage_desk,
    triage_examples,
    with_rule,
)

from decider.guard import (
    Call,
    Example,
    Fingerprints,
    GuardSettingError,
    Profile,
    ProfileError,
    fingerprint,
    hash_call,
    make_profile,
    one_of_each_run,
    read_profile,
    versioned,
    write_profile,
)

NAMES = Fingerprints.__struct_fields__
HASHES = Fingerprints(*NAMES)


def profile(given: list[Example] | None = None, **changed: Any) -> Profile:
    settings: dict[str, Any] = {"calibrated": TODAY, "max_age_days": 90, **changed}
    return make_profile("refund", HASHES, examples() if given is None else given, **settings)


def test_a_profile_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "refund.json"
    for made in (
        profile(unlabelled=[0.5, 1]),
        profile([Example("a", "a", 1, True, TODAY, TODAY)]),  # 1 is written as 1.0
        profile(triage_examples(), options=LEVELS),
    ):
        write_profile(path, made)
        assert read_profile(path) == made
        assert made.version == made.computed_version()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["refund.json"]


def test_the_version_is_the_contents() -> None:
    assert profile().version == profile().version
    others = [profile(max_age_days=91), profile(examples(wrong=19)), profile(unlabelled=[0.5])]
    assert len({profile().version, *(one.version for one in others)}) == 4


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "refund.json"
    write_profile(path, profile())

    def broken(source: str, target: Path) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk"):
        write_profile(path, profile(max_age_days=1))
    assert read_profile(path) == profile()
    assert [one.name for one in tmp_path.iterdir()] == ["refund.json"]


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def apply(content: bytes) -> bytes:
        data = json.loads(content)
        change(data)
        return json.dumps(data).encode()

    return apply


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda content: content[:-20], "damaged"),
        (lambda content: b"", "damaged"),
        (lambda content: b"\xff\xfe", "damaged"),
        (lambda content: b"[]", "damaged"),
        (lambda content: content.replace(b"0.6", b"0.7", 1), "damaged"),
        (changed(lambda data: data.update(version="")), "damaged"),
        (changed(lambda data: data.update(format=2)), "format"),
        (changed(lambda data: data.pop("format")), "format"),
        (changed(lambda data: data.update(extra=1)), "damaged"),
        (changed(lambda data: data["fingerprints"].pop("scorer")), "damaged"),
        (changed(lambda data: data["examples"][0].pop("run_id")), "damaged"),
        (changed(lambda data: data["examples"][0].update(label=False)), "damaged"),
    ],
)
def test_a_file_that_was_changed_does_not_count(tmp_path: Path, change: Callable[[bytes], bytes], code: str) -> None:
    path = tmp_path / "refund.json"
    write_profile(path, profile())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    assert caught.value.code == code


def test_a_file_that_was_spaced_otherwise_still_counts(tmp_path: Path) -> None:
    path = tmp_path / "refund.json"
    write_profile(path, profile())
    path.write_bytes(json.dumps(json.loads(path.read_bytes())).encode())
    assert read_profile(path) == profile()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        read_profile(tmp_path / "refund.json")
    assert caught.value.code == "missing"


def one(**fields: Any) -> Example:
    return Example(
        **{"id": "a", "run_id": "a", "evidence": 0.5, "label": True, "created": TODAY, "labelled": TODAY, **fields}
    )


@pytest.mark.parametrize(
    ("given", "settings", "says"),
    [
        ([], {}, "no examples"),
        ([one(), one(run_id="b")], {}, "the same id"),
        ([one(), one(id="b")], {}, "the same run_id"),
        ([one(evidence=math.nan)], {}, "example 'a': the score is nan"),
        ([one(evidence=2)], {}, "the score is 2"),
        ([one(evidence={"yes": 1.0})], {}, "a dict, no number"),
        ([one(label="yes")], {}, "Write true or false"),
        ([one(label=1)], {}, "Write true or false"),
        ([one(group="g"), one(id="b", run_id="b")], {}, "some examples have a group"),
        ([one(created=TODAY + timedelta(days=1))], {}, "labelled before its call"),
        ([one()], {"unlabelled": [math.inf]}, "an unlabelled score"),
        ([one()], {"max_age_days": -1}, "max_age_days is -1"),
        ([one()], {"options": ["a"]}, "Write none, or two or more"),
        ([one()], {"options": ["a", "a"]}, "Write none, or two or more"),
        ([one()], {"options": ["a", "b"]}, "no mapping of options"),
        ([one(evidence={"a": 1.0, "b": 0.0})], {"options": ["a", "b"]}, "Write one of a, b"),
        ([one(evidence={"a": 1.0}, label="a")], {"options": ["a", "b"]}, "no probability for 'b'"),
    ],
)
def test_examples_that_no_bound_can_rest_on_are_refused(
    given: list[Example], settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ProfileError, match=says):
        profile(given, **settings)


def test_one_call_of_each_conversation() -> None:
    calls = [one(id=str(n), run_id=f"run {n // 3}") for n in range(9)]
    chosen = one_of_each_run(calls, seed=1)
    assert [example.run_id for example in chosen] == ["run 0", "run 1", "run 2"]
    assert {seed: one_of_each_run(calls, seed) for seed in range(20)} != {}
    assert len({one_of_each_run(calls, seed)[0].id for seed in range(30)}) == 3
    assert profile(list(chosen)).examples == chosen


# ------------------------------------------------------------------------ age


@pytest.mark.parametrize(
    ("today", "code"),
    [
        (TODAY, None),
        (TODAY + timedelta(days=80), None),  # the oldest example is 10 days older
        (TODAY + timedelta(days=81), "stale"),
        (TODAY - timedelta(days=1), "clock"),
    ],
)
def test_the_age_is_that_of_the_oldest_example(today: date, code: str | None) -> None:
    if code is None:
        profile().check_age(today)
        return
    with pytest.raises(ProfileError) as caught:
        profile().check_age(today)
    assert caught.value.code == code


# --------------------------------------------------------------- fingerprints


def scored(limit: int) -> Callable[[object], float]:
    def score(context: object, scale: int = 2) -> float:
        return limit / scale

    return score


def other_context(call: Call) -> object:
    return refund_context(call)


def any_group(call: Call) -> str:
    return "x"


def itself() -> Callable[[], object]:
    def call() -> object:
        return call

    return call


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("model", {"model": "by hand 2"}),
        ("question", {"question": "Is it fine?"}),
        ("policy", {"policy": "All refunds."}),
        ("tool_schema", {"tool_schema": {"amount": "number"}}),
        ("label_protocol", {"label_protocol": "one person"}),
        ("scorer", {"scorer": scored(1)}),
        ("context_builder", {"context": other_context}),
        ("context_builder", {"group": any_group}),
    ],
)
def test_whatever_changed_since_calibration_is_named(tmp_path: Path, name: str, changed: dict[str, Any]) -> None:
    found = with_rule(refund_desk(tmp_path), **changed).guard().check(refund())
    assert (found.action, found.codes) == ("escalate", ("fingerprint",))
    assert f"changed since calibration: {name}" in found.reasons[0].text


def test_other_options_are_another_tool(tmp_path: Path) -> None:
    scores = {"self_care": 0.0, "routine": 1.0, "emergency": 0.0, "none": 0.0}
    desk = with_rule(triage_desk(tmp_path, scores), options=(*LEVELS, "none"))
    from guard_rules import reply

    assert desk.guard().check(reply()).codes == ("other_tool",)


def test_every_difference_is_found() -> None:
    for name in NAMES:
        other = msgspec.structs.replace(HASHES, **{name: "other"})
        assert HASHES.differences(other) == (name,)
    assert HASHES.differences(HASHES) == ()
    assert len(NAMES) == 8


def test_a_function_counts_with_what_it_encloses() -> None:
    assert fingerprint(scored(1)) == fingerprint(scored(1)) != fingerprint(scored(2))

    @versioned("1")
    def first() -> None: ...

    @versioned("1")
    def second() -> None: ...

    assert fingerprint(first) == fingerprint(second)


def test_data_counts_with_its_contents() -> None:
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": (2,), "a": 1}) != fingerprint({"a": 1, "b": [3]})
    assert fingerprint("1") != fingerprint(1) != fingerprint(True)


@pytest.mark.parametrize("value", [object(), math.nan, {1: "a"}, b"x", {"a": {1}}, len, itself(), lambda: 1], ids=repr)
def test_what_has_no_fingerprint_is_refused(value: object) -> None:
    with pytest.raises(GuardSettingError, match="fingerprint"):
        fingerprint(value)


def test_arguments_are_compared_exactly() -> None:
    same = hash_call("refund", {"amount": 1, "to": {"a": 1, "b": None}})
    assert hash_call("refund", {"to": {"b": None, "a": 1}, "amount": 1}) == same
    others = [
        ("Refund", {"amount": 1, "to": {"a": 1, "b": None}}),
        ("refund", {"amount": 1.0, "to": {"a": 1, "b": None}}),
        ("refund", {"amount": True, "to": {"a": 1, "b": None}}),
        ("refund", {"amount": "1", "to": {"a": 1, "b": None}}),
        ("refund", {"amount": 1, "to": {"a": 1}}),
        ("refund", {"amount": 1, "to": [{"a": 1, "b": None}]}),
    ]
    assert len({same, *(hash_call(*other) for other in others)}) == 7
    for odd in (math.nan, math.inf, object(), b"x", {1: 2}, {"a"}):
        with pytest.raises((TypeError, ValueError)):
            hash_call("refund", {"amount": odd})
