"""The GPU script, held against a stand-in: the CPU's provider takes CUDA's place, since no machine here has a GPU."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import decider_gpu
import numpy as np
import pytest
from decider_gpu import Machine, Report, Speed

from decider import Decider
from decider.passes import cells
from decider.rows import collate
from decider.session import CPU, CUDA, import_onnxruntime

TINY = Path(__file__).parent / "data" / "tiny_decider"
WAYS = ["text to answers", "plain run", "bound buffers", "CUDA graph"]


def stand_in() -> Machine:
    return Machine(import_onnxruntime(), CPU, {}, "cpu")


@pytest.fixture(scope="module")
def decider() -> Decider:
    return Decider.load(TINY, "cpu", threads=1)


@pytest.mark.skipif(CUDA in import_onnxruntime().get_available_providers(), reason="this build may have a GPU")
def test_without_a_gpu_it_says_so_and_measures_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert decider_gpu.main([str(tmp_path / "new"), "--model", str(TINY)]) == 2
    assert capsys.readouterr().out.startswith("No GPU was used and nothing was measured.")
    written = json.loads((tmp_path / "new" / "decider_gpu.json").read_text())
    assert written["gpu"] is False
    assert "onnxruntime-gpu" in written["reason"]
    assert (written["speed"], written["agreement"]) == ([], {})
    assert written["versions"]["build"]


def test_everything_is_measured_where_the_provider_works() -> None:
    pytest.importorskip("onnx")
    report = decider_gpu.measure(stand_in(), TINY, (1,), 1)
    assert report.agrees
    assert report.agreement["float32"] <= 1e-5 < report.agreement["float16"]
    found = [(speed.precision, speed.questions, speed.way) for speed in report.speed]
    assert found == [(precision, 1, way) for precision in ("float32", "float16") for way in WAYS]
    assert all(speed.milliseconds and speed.questions_per_second for speed in report.speed)
    for nodes in report.nodes.values():
        assert set(nodes) == {CPU}
        assert nodes[CPU]["MatMul"] > 0


class WithoutGraphs(Machine):
    """A machine that cannot record."""

    def session(self, path: Path, settings: Any = None, **options: str) -> Any:
        if options:
            raise RuntimeError("this graph has nodes on the CPU\nand more lines")
        return super().session(path, settings)


def test_a_way_that_fails_is_noted_and_the_others_are_measured(decider: Decider) -> None:
    machine = WithoutGraphs(import_onnxruntime(), CPU, {}, "cpu")
    found = list(decider_gpu.speeds(machine, "float32", TINY / "model.onnx", decider, 1, 1))
    assert [speed.milliseconds is None for speed in found] == [False, False, False, True]
    assert found[-1] == Speed("float32", 1, "CUDA graph", None, None, "this graph has nodes on the CPU")


def test_a_provider_that_did_not_start_is_an_error() -> None:
    with pytest.warns(UserWarning, match="not in available"), pytest.raises(RuntimeError, match="did not start"):
        Machine(import_onnxruntime(), "NoSuchExecutionProvider").session(TINY / "model.onnx")


@pytest.mark.parametrize(("agreement", "status"), [(1e-4, 0), (0.5, 1), (float("nan"), 1)])
def test_the_exit_status_tells_whether_it_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agreement: float, status: int
) -> None:
    monkeypatch.setattr(decider_gpu, "open_session", lambda *_, **__: None)
    monkeypatch.setattr(decider_gpu, "measure", lambda *_: Report(True, "", {}, {"float32": agreement}))
    assert decider_gpu.main([str(tmp_path)]) == status


def test_a_report_without_agreement_does_not_agree() -> None:
    assert not Report(True, "", {}).agrees


@pytest.mark.parametrize("count", [1, 7, 8, 9, 4096])
def test_there_are_as_many_questions_as_asked_for_and_eight_about_a_state(count: int) -> None:
    asked = decider_gpu.requests(count)
    assert sum(len(questions) for _, questions in asked) == count
    assert {len(questions) for _, questions in asked[:-1]} <= {8}
    assert len({state for state, _ in asked}) == len(asked)


def test_no_pass_is_too_big_and_no_row_is_lost(decider: Decider, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = decider_gpu.rows_of(decider, 200)
    limit = 3 * max(len(row) for row in rows) ** 2
    monkeypatch.setattr(decider_gpu, "CUDA_PASS", limit)
    shapes = [batch["input_ids"].shape for batch in decider_gpu.batches(decider, 200)]
    assert len(shapes) > 1
    assert max(cells(*shape) for shape in shapes) <= limit
    assert sum(count for count, _ in shapes) == len(rows)


def test_rounding_a_batch_up_changes_no_answer(decider: Decider) -> None:
    rows = decider_gpu.rows_of(decider, 12)
    batch = collate(rows, decider.layout.graph.padding)
    rounded = decider_gpu.padded(batch, decider.layout.graph.padding)
    count, tokens = batch["input_ids"].shape
    assert (count % 8, tokens % 64) != (0, 0)
    assert [size % by for size, by in zip(rounded["input_ids"].shape, (8, 64), strict=True)] == [0, 0]
    plain, wide = (np.asarray(decider._runner.run(["logits"], each)[0]) for each in (batch, rounded))
    for index, row in enumerate(rows):
        picked = row.pick(plain[index])
        for name, logits in row.pick(wide[index]).items():
            np.testing.assert_allclose(logits, picked[name], atol=1e-5)


def test_nodes_are_counted_by_who_computed_them() -> None:
    def node(provider: str, kind: str, name: str = "a_kernel_time") -> dict[str, object]:
        return {"cat": "Node", "name": name, "args": {"provider": provider, "op_name": kind}}

    events: list[dict[str, object]] = [
        {"cat": "Session", "name": "model_run", "args": {}},
        node("B", "Shape"),
        node("B", "MatMul"),
        node("B", "MatMul"),
        node("A", "Shape"),
        node("A", "Shape", "a_fence_before"),
    ]
    assert decider_gpu.nodes_by_provider(events) == {"A": {"Shape": 1}, "B": {"MatMul": 2, "Shape": 1}}


@pytest.mark.parametrize(
    ("output", "megabytes"), [("1234\n", 1234.0), ("1234\n5678\n", 1234.0), ("[N/A]\n", None), ("", None)]
)
def test_memory_is_what_nvidia_smi_says(monkeypatch: pytest.MonkeyPatch, output: str, megabytes: float | None) -> None:
    done = subprocess.CompletedProcess([], 0, output, "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert decider_gpu.memory() == megabytes


def test_without_nvidia_smi_there_is_no_figure_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert decider_gpu.memory() is None
