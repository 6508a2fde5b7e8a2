"""Copies in other numbers say what they are; the quick one couples the questions of a pass, the others do not."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from decider import Choice, Decider, MissingPackageError, ModelFileError, Noul, Question, Request
from decider.manifest import read_manifest
from decider.model import raw_logits, read_golden
from decider.precision import write_dynamic_int8, write_float16

pytest.importorskip("onnx")

TINY = Path(__file__).parent / "data" / "tiny_decider"
STATE = "topic: baking; seats free: 3\nrequest: please take me off the list. let me speak to a person."
CROWD: dict[str, Question] = {
    "person": Noul("Does the writer ask for a person?"),
    "wish": Choice({"cancel": "leave the course", "register": "take part", "ask": None}, "What is wanted?"),
    "full": Noul("Is the course full?"),
}
WRITERS = [write_dynamic_int8, write_float16]


def moved_by_company(decider: Decider) -> float:
    """How far the logits of the golden requests move at most when they are asked together instead of one by one."""
    requests: list[Request] = [(case.state, case.questions) for case in read_golden(TINY / "golden.json")]
    together = decider.decide_many(requests)
    return max(
        abs(left - right)
        for (state, questions), answers in zip(requests, together, strict=True)
        for name, alone in decider.decide(state, questions).items()
        for left, right in zip(raw_logits(answers[name]), raw_logits(alone), strict=True)
    )


def test_dynamic_int8_couples_what_is_asked_in_one_pass_and_the_others_do_not(tmp_path: Path) -> None:
    write_dynamic_int8(TINY, tmp_path / "quick")
    write_float16(TINY, tmp_path / "half")
    assert moved_by_company(Decider.load(TINY, "cpu")) < 1e-5
    assert moved_by_company(Decider.load(tmp_path / "half", "cpu")) < 1e-5
    assert moved_by_company(Decider.load(tmp_path / "quick", "cpu")) > 1e-3


@pytest.mark.parametrize(("write", "precision"), [*zip(WRITERS, ["dynamic-int8", "float16"], strict=True)])
def test_a_copy_is_a_model_that_says_what_it_is(
    tmp_path: Path, write: Callable[[Path, Path], None], precision: str
) -> None:
    write(TINY, tmp_path / "copy")
    copy, original = Decider.load(tmp_path / "copy", "cpu", verify=True), Decider.load(TINY, "cpu")
    given, wanted = copy.decide(STATE, CROWD), original.decide(STATE, CROWD)
    assert (given.precision, wanted.precision) == (precision, "int8-weights")
    assert given.model == f"{wanted.model}-{precision}"
    assert given.sha256 == read_manifest(tmp_path / "copy").sha256 != wanted.sha256
    assert copy.manifest.metrics == {}
    assert given.nouls["person"].noul == pytest.approx(wanted.nouls["person"].noul, abs=0.05)


def test_float16_is_close_to_the_original(tmp_path: Path) -> None:
    write_float16(TINY, tmp_path / "half")
    half, original = Decider.load(tmp_path / "half", "cpu"), Decider.load(TINY, "cpu")
    given, wanted = half.decide(STATE, CROWD), original.decide(STATE, CROWD)
    assert given.choices["wish"].probabilities == pytest.approx(wanted.choices["wish"].probabilities, abs=2e-3)


@pytest.mark.parametrize("write", WRITERS)
def test_nothing_is_overwritten_and_no_model_is_an_error(tmp_path: Path, write: Callable[[Path, Path], None]) -> None:
    there = shutil.copytree(TINY, tmp_path / "there")
    with pytest.raises(ModelFileError) as caught:
        write(TINY, there)
    assert caught.value.path == there
    with pytest.raises(ModelFileError):
        write(tmp_path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_the_log_is_as_loud_as_before(tmp_path: Path) -> None:
    level = logging.getLogger().level
    write_dynamic_int8(TINY, tmp_path / "quick")
    assert logging.getLogger().level == level


def test_without_onnx_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match="pip install onnx"):
        write_float16(TINY, tmp_path / "half")
    assert not (tmp_path / "half").exists()
