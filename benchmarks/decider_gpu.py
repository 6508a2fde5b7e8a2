"""Checks and measures the decider on an NVIDIA GPU; without one it says so and measures nothing.

    python benchmarks/decider_gpu.py FOLDER [--model MODEL_FOLDER] [--repeats 20]

Writes FOLDER/decider_gpu.json and prints the same. Needs `onnxruntime-gpu[cuda,cudnn]` in place of `onnxruntime`, and
`onnx` for float16. Exit status 0: measured, and in agreement with the golden logits that a CPU computed; 1: measured,
and they differ; 2: there is no GPU that ONNX Runtime can use.

Agreement: logits within 0.001 in float32 (TF32 is off) and within 0.05 in float16. Speed: milliseconds a call for 1 to
4,096 questions, eight about each state, in four ways: from text to answers as a program would ask; the tensors through
a plain `run`; through buffers bound to the device; and as a recorded CUDA graph, padded to a fixed shape.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
import numpy as np

from decider import Choice, Decider, Noul, ProviderError, Question, Request
from decider.binding import BoundRunner
from decider.layouts import open_layout, read_tokenizer
from decider.manifest import MODEL_FILE, TOKENIZER_FILE, read_manifest
from decider.model import SHIPPED_MODEL
from decider.passes import plan_passes
from decider.precision import write_float16
from decider.rows import AnyRow, IntArray, collate
from decider.session import (
    CPU,
    CUDA,
    CUDA_OPTIONS,
    OpenSession,
    Runner,
    import_onnxruntime,
    open_session,
    session_options,
)
from decider.stream import CUDA_PASS

RESULT_FILE: Final = "decider_gpu.json"
SIZES: Final = (1, 32, 256, 4096)
PER_STATE: Final = 8
# Rows and tokens of a recorded graph are rounded up to multiples of these, so that few shapes are recorded.
ROUND_ROWS: Final = 8
ROUND_TOKENS: Final = 64
TOLERANCES: Final = {"float32": 1e-3, "float16": 0.05}
STATE: Final = (
    "Event: bookbinding, Leeds, fee 120 EUR, 20 days left. Registration open, 4 seats free. Record: confirmed.\n"
    "Request: I am away in that week, so may my sister have my place? Tell me what you need from the two of us."
)
KINDS: Final[tuple[Question, ...]] = (
    Choice({"cancel": "give up the place", "transfer": "hand it on", "ask": None, "other": None}, "What is wanted?"),
    Noul("Does the writer ask for an exception to the rules?"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What computes: a provider of ONNX Runtime with its options, and the name of its memory."""

    ort: ModuleType
    provider: str = CUDA
    options: Mapping[str, str] = field(default_factory=lambda: dict(CUDA_OPTIONS))
    device: str = "cuda"

    def session(self, path: Path, settings: Any = None, **options: str) -> Any:
        """Open a model on the provider, with the CPU for what it cannot do; RuntimeError when it did not start."""
        providers = [(self.provider, {**self.options, **options})]
        providers += [(CPU, {})] if self.provider != CPU else []
        settings = session_options(self.ort) if settings is None else settings
        opened = self.ort.InferenceSession(str(path), settings, providers=providers)
        if opened.get_providers()[0] != self.provider:
            raise RuntimeError(f"{self.provider} did not start: {opened.get_providers()} compute")
        return opened


@dataclass(frozen=True, slots=True)
class Speed:
    """One measurement; `milliseconds` is None where it could not be made, and `note` says why."""

    precision: str
    questions: int
    way: str
    milliseconds: float | None
    questions_per_second: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What is written: whether there was a GPU and, where there was, agreement, node placement, speed and memory."""

    gpu: bool
    reason: str
    versions: Mapping[str, str]
    agreement: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    speed: list[Speed] = field(default_factory=list)
    memory_mb: dict[str, float | None] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether every precision was measured and is within its tolerance."""
        return bool(self.agreement) and all(
            difference <= TOLERANCES[precision] for precision, difference in self.agreement.items()
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help=f"where {RESULT_FILE} is written")
    parser.add_argument("--model", type=Path, default=SHIPPED_MODEL, help="a model folder (default: the shipped one)")
    parser.add_argument("--repeats", type=int, default=20, help="how often to measure each (default 20)")
    options = parser.parse_args(arguments)
    ort = import_onnxruntime()
    try:
        open_session(options.model / MODEL_FILE, "cuda", ort=ort)
    except ProviderError as error:
        report = Report(False, str(error), versions(ort))
        print(f"No GPU was used and nothing was measured. {error}")
    else:
        report = measure(Machine(ort), options.model, SIZES, options.repeats)
    options.folder.mkdir(parents=True, exist_ok=True)
    written = msgspec.json.format(msgspec.json.encode(report), indent=1)
    (options.folder / RESULT_FILE).write_bytes(written + b"\n")
    print(written.decode())
    return 2 if not report.gpu else 0 if report.agrees else 1


def versions(ort: ModuleType) -> dict[str, str]:
    """What is installed and what ONNX Runtime sees: the providers of the build, and the devices that are there."""
    found = {
        "onnxruntime": str(getattr(ort, "__version__", "?")),
        "build": ", ".join(ort.get_available_providers()),
        "python": platform.python_version(),
        "gpu": smi("name,driver_version") or "nvidia-smi finds none",
    }
    if hasattr(ort, "get_ep_devices"):
        found["devices"] = ", ".join(sorted({device.ep_name for device in ort.get_ep_devices()}))
    return found


def measure(machine: Machine, folder: Path, sizes: Sequence[int], repeats: int) -> Report:
    """Measure a model folder as it is, and its copy in float16; what cannot be made is noted and the rest measured."""
    report = Report(True, "", versions(machine.ort))
    with tempfile.TemporaryDirectory() as directory:
        half = Path(directory) / "half"
        measure_precision(machine, "float32", folder, folder, sizes, repeats, report)
        try:
            write_float16(folder, half)
        except Exception as error:  # the conversion lies in other packages' hands
            report.speed.append(Speed("float16", 0, "all", None, None, first_line(error)))
        else:
            measure_precision(machine, "float16", folder, half, sizes, repeats, report)
    return report


def measure_precision(
    machine: Machine, precision: str, folder: Path, place: Path, sizes: Sequence[int], repeats: int, report: Report
) -> None:
    """Add the figures of the model in `place`; `folder` has the golden logits that a CPU computed in float32."""
    model = place / MODEL_FILE
    decider = loaded(machine, folder, machine.session(model))
    report.agreement[precision] = decider.check_golden()
    report.nodes[precision] = placement(machine, model, rows_of(decider, PER_STATE), decider)
    report.memory_mb[f"{precision}, loaded"] = memory()
    for size in sizes:
        report.speed.extend(speeds(machine, precision, model, decider, size, repeats))
        report.memory_mb[f"{precision}, {size} questions"] = memory()


def first_line(error: Exception) -> str:
    """What an error says, short enough for a table."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def loaded(machine: Machine, folder: Path, session: Any) -> Decider:
    """The decider of a folder on a session that may be another precision's: so golden.json stays the CPU's."""
    manifest = read_manifest(folder)
    layout = open_layout(folder, read_tokenizer(folder / TOKENIZER_FILE), manifest.layout, manifest.limits)
    return Decider(manifest, layout, OpenSession(BoundRunner(session, machine.ort, machine.device), "cuda"), folder)


def requests(questions: int) -> list[Request]:
    """So many questions, eight about each state, of two kinds in turn."""
    states = range(0, questions, PER_STATE)
    return [
        (f"{STATE} ({start})", {str(n): KINDS[n % len(KINDS)] for n in range(start, min(start + PER_STATE, questions))})
        for start in states
    ]


def rows_of(decider: Decider, questions: int) -> list[AnyRow]:
    """The rows of so many questions."""
    return [row for state, asked in requests(questions) for row in decider.encode(state, asked).request.rows]


def batches(decider: Decider, questions: int) -> list[dict[str, IntArray]]:
    """The tensors of the passes that so many questions take."""
    rows = rows_of(decider, questions)
    plan = plan_passes([len(row) for row in rows], 1.0, CUDA_PASS, decider.layout.cells_per_token)
    return [collate([rows[place] for place in places], decider.layout.graph.padding) for places in plan]


def padded(batch: Mapping[str, IntArray], padding: Mapping[str, int]) -> dict[str, IntArray]:
    """The same batch with rows and tokens rounded up; the added rows hold padding alone."""
    rows, tokens = batch["input_ids"].shape
    more = ((0, -rows % ROUND_ROWS), (0, -tokens % ROUND_TOKENS))
    return {name: np.pad(array, more, constant_values=padding[name]) for name, array in batch.items()}


def speeds(
    machine: Machine, precision: str, model: Path, decider: Decider, questions: int, repeats: int
) -> Iterator[Speed]:
    """Measure a number of questions in all four ways."""
    asked, tensors = requests(questions), batches(decider, questions)

    def text_to_answers() -> None:
        encoded = [decider.encode(state, each) for state, each in asked]
        decider.decide_encoded(encoded, 1.0, CUDA_PASS)

    def all_passes(runner: Runner, inputs: Sequence[dict[str, IntArray]]) -> None:
        for batch in inputs:
            runner.run(["logits"], batch)

    fixed = [padded(batch, decider.layout.graph.padding) for batch in tensors]
    ways: dict[str, Callable[[], Callable[[], None]]] = {
        "text to answers": lambda: text_to_answers,
        "plain run": lambda: partial(all_passes, machine.session(model), tensors),
        "bound buffers": lambda: partial(all_passes, bound(machine, machine.session(model)), tensors),
        "CUDA graph": lambda: partial(all_passes, recorded(machine, model, fixed), fixed),
    }
    for way, prepare in ways.items():
        try:
            taken = median_ms(prepare(), repeats)
        except Exception as error:  # ONNX Runtime's own error classes differ between versions; the others go on
            yield Speed(precision, questions, way, None, None, first_line(error))
        else:
            yield Speed(precision, questions, way, round(taken, 3), round(questions / taken * 1e3, 1))


def bound(machine: Machine, session: Any) -> BoundRunner:
    """Run a session through buffers on its device."""
    return BoundRunner(session, machine.ort, machine.device)


def recorded(machine: Machine, model: Path, inputs: Sequence[Mapping[str, IntArray]]) -> Runner:
    """Run each shape on a session of its own, which records its kernels at the first pass and replays them after."""
    shapes = {batch["input_ids"].shape for batch in inputs}
    runners = {shape: bound(machine, machine.session(model, enable_cuda_graph="1")) for shape in shapes}
    return ByShape(runners)


@dataclass(frozen=True, slots=True)
class ByShape:
    """Gives each pass to the runner of its shape."""

    runners: Mapping[tuple[int, ...], Runner]

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, IntArray]) -> Sequence[object]:
        """Compute one pass."""
        return self.runners[input_feed["input_ids"].shape].run(output_names, input_feed)


def placement(machine: Machine, model: Path, rows: Sequence[AnyRow], decider: Decider) -> dict[str, dict[str, int]]:
    """Which kinds of nodes ran where, from a profile of one pass: counts by provider and kind."""
    with tempfile.TemporaryDirectory() as directory:
        options = session_options(machine.ort)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(directory) / "profile")
        session = machine.session(model, options)
        session.run(["logits"], collate(rows, decider.layout.graph.padding))
        return nodes_by_provider(json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")))


def nodes_by_provider(events: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Count the nodes of a profile by provider and kind, the most frequent kinds first."""
    counts: dict[str, Counter[str]] = {}
    for event in events:
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time"):
            details = event["args"]
            counts.setdefault(details["provider"], Counter())[details["op_name"]] += 1
    return {provider: dict(found.most_common()) for provider, found in sorted(counts.items())}


def memory() -> float | None:
    """The memory in use on the first GPU in MB, of all programs; None where nvidia-smi cannot say."""
    said = smi("memory.used")
    with contextlib.suppress(ValueError):
        return float(said)
    return None


def smi(fields: str) -> str:
    """What nvidia-smi says about the first GPU; "" where it is missing or fails."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.splitlines()[0].strip() if done.stdout.strip() else ""


def median_ms(call: Callable[[], object], repeats: int) -> float:
    """Milliseconds of wall-clock time; two rounds to warm up are not counted."""
    for _ in range(2):
        call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
