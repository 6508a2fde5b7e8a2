"""Checks and measures the decider on an NVIDIA GPU. Without one it says so and measures nothing.

    python benchmarks/decider_gpu.py [MODEL_FOLDER] [--json FILE]

Needs `onnxruntime-gpu[cuda,cudnn]` in place of `onnxruntime`. Exit status 0: measured and in agreement with the CPU's
golden logits; 1: they differ; 2: there is no GPU that ONNX Runtime can use.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from decider import Choice, Decider, Noul, ProviderError, Question
from decider.layout import IntArray, collate
from decider.manifest import MODEL_FILE
from decider.model import SHIPPED_MODEL
from decider.session import CUDA, import_onnxruntime

REPEATS = 20
TOLERANCE = 1e-3  # logits, float32 without TF32
STATE = "Event: bookbinding, Leeds, 20 days left. Request: may my sister have my place? I am away in that week."
QUESTIONS: dict[str, Question] = {
    "wants": Choice({"cancel": "give up the place", "transfer": "hand it on", "other": None}, "What is wanted?"),
    "person": Noul("Is a human wanted?"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Measure the decider on an NVIDIA GPU.")
    parser.add_argument("model", type=Path, nargs="?", default=SHIPPED_MODEL)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    try:
        decider = Decider.load(options.model, "cuda")
    except ProviderError as error:
        sys.stdout.write(f"No GPU was used and nothing was measured. {error}\n")
        return 2
    figures = measure(decider)
    for name, value in figures.items():
        sys.stdout.write(f"{name:<36}{value}\n")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if float(figures["golden difference"]) <= TOLERANCE else 1


def measure(decider: Decider) -> dict[str, float | str]:
    """Return the figures by name: agreement with the golden file, nodes on the CPU, milliseconds a pass."""
    figures: dict[str, float | str] = {
        "provider": decider.provider,
        "golden difference": decider.check_golden(),
        "all nodes on the GPU": _all_on_gpu(decider),
    }
    for states in (1, 8, 32, 128):
        requests = [(f"{STATE} ({number})", QUESTIONS) for number in range(states)]
        figures[f"{states} states ms (text to answers)"] = _median(partial(decider.decide_many, requests))
        rows = [row for state, questions in requests for row in decider.layout.encode(state, questions).rows]
        figures[f"{states} states ms (bound inputs)"] = _bound(decider, collate(rows, decider.layout.markers.pad))
    return figures


def _all_on_gpu(decider: Decider) -> str:
    """Ask ONNX Runtime to refuse any node on the CPU; shape arithmetic is usually there and costs nothing."""
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        ort.InferenceSession(str(decider.folder / MODEL_FILE), options, providers=[CUDA])
    except Exception as error:  # ONNX Runtime's own error classes differ between versions
        return f"no ({str(error).splitlines()[0][:80]})"
    return "yes"


def _bound(decider: Decider, batch: dict[str, IntArray]) -> float:
    """Return milliseconds a pass with inputs and output kept on the device."""
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = ort.InferenceSession(
        str(decider.folder / MODEL_FILE), options, providers=[(CUDA, {"use_tf32": "0"}), "CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name, array in batch.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), "cuda", 0))
    binding.bind_output("logits", "cuda")

    def call() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return _median(call)


def _median(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return milliseconds of wall-clock time."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return round(statistics.median(times), 3)


if __name__ == "__main__":
    sys.exit(main())
