"""Writes copies of a model folder that store or compute other numbers; the shipped model stays what it is.

The shipped weights are stored in eight bits and computed with in float32: exact, and small on disk. A copy in float16
is for a GPU. A copy in dynamic int8 is for one question at a time on a CPU, and gives up what the answers otherwise
promise. Requires `onnx`.
"""

from __future__ import annotations

import importlib
import logging
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from decider.errors import MissingPackageError, ModelFileError
from decider.golden import write_golden
from decider.manifest import (
    GOLDEN_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    Precision,
    read_manifest,
    sha256,
    write_manifest,
)
from decider.model import Decider, read_golden

KEPT_FILES: Final = (TOKENIZER_FILE, "LICENSE", "NOTICE")


def write_dynamic_int8(source: Path, target: Path) -> None:
    """Write a copy of a model folder in dynamic int8: about twice as quick on a CPU, and no longer exact.

    WARNING: each matrix product then rounds its input to eight bits with one scale for the whole pass. So the questions
    of a pass, and the states of a batch, change each other's answers: by up to 0.4 in probability where it was
    measured, and 3 % of decisions flip. Take it only for one question at a time where speed matters more than that, and
    never where a threshold was certified with the exact model. Answers from it say precision "dynamic-int8".

    Temperatures are those of the exact model; metrics and calibration.json are not copied. Raises ModelFileError where
    `target` exists or `source` is no model, MissingPackageError without `onnx`.
    """
    _copy(source, target, "dynamic-int8", _quantise)


def write_float16(source: Path, target: Path) -> None:
    """Write a copy of a model folder stored and computed in float16, for a GPU: logits move by about 0.01.

    The answers to one question stay independent of the others. Raises as write_dynamic_int8 does.
    """
    _copy(source, target, "float16", _halve)


def _copy(source: Path, target: Path, precision: Precision, convert: Callable[[Any, Path], None]) -> None:
    manifest = read_manifest(source)
    golden = read_golden(source / GOLDEN_FILE)
    if target.exists():
        raise ModelFileError(target, "it is there already", "Give a path that is free.")
    model = _package("onnx").load(str(source / MODEL_FILE))
    target.mkdir(parents=True)
    for name in KEPT_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    _unpack(model)
    convert(model, target / MODEL_FILE)
    written = replace(manifest, sha256=sha256(target / MODEL_FILE), metrics={}, precision=precision)
    write_manifest(target, replace(written, name=f"{manifest.name}-{precision}"))
    requests = [(case.state, case.questions) for case in golden]
    write_golden(Decider.load(target, "cpu"), requests, target / GOLDEN_FILE)


def _unpack(model: Any) -> None:
    """Replace every DequantizeLinear of stored numbers by the float32 numbers that it stands for."""
    onnx = _package("onnx")
    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    kept = []
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and all(name in stored for name in node.input):
            numbers = [onnx.numpy_helper.to_array(stored[name]) for name in node.input]
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
            graph.initializer.append(onnx.numpy_helper.from_array(_dequantised(axis, *numbers), node.output[0]))
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    used = {name for node in kept for name in node.input}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)


def _dequantised(
    axis: int, numbers: NDArray[np.int8], scale: NDArray[np.float32], zero: NDArray[np.int8] | None = None
) -> NDArray[np.float32]:
    """Return (numbers - zero) * scale, with one scale for all or one for each place of the axis."""
    shape = [1] * numbers.ndim
    if scale.ndim:
        shape[axis] = -1
    shift = np.float32(0) if zero is None else zero.astype(np.float32).reshape(shape)
    return (numbers.astype(np.float32) - shift) * scale.reshape(shape)


def _quantise(model: Any, path: Path) -> None:
    quantization = importlib.import_module("onnxruntime.quantization")
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # it advises on the root logger to do what does not help here
    try:
        quantization.quantize_dynamic(
            model, path, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=quantization.QuantType.QInt8
        )
    finally:
        root.setLevel(level)


def _halve(model: Any, path: Path) -> None:
    float16 = importlib.import_module("onnxruntime.transformers.float16")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it names each weight that becomes the nearest float16
        halved = float16.convert_float_to_float16(model, keep_io_types=True)
    _package("onnx").save(halved, str(path))


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError("onnx", f"it cannot be imported ({error})", "Install it: pip install onnx") from error
