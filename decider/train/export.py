"""Writes the trained network as ONNX and stores its weights in eight bits.

Only weights are rounded, never activations: every output channel of a matrix has its own scale, every row of an
embedding too. So the answer to one question does not depend on what else is in the batch.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from decider.layout import INPUT_NAMES
from decider.train.network import Network

OPSET: Final = 17
SMALLEST_MATRIX: Final = 1024  # numbers; smaller ones are not worth a scale


def export(network: Network, path: Path) -> None:
    """Write the network with float32 weights; rows and tokens are free dimensions."""
    network.eval()
    example = tuple(torch.zeros((2, 8), dtype=torch.int64) for _ in INPUT_NAMES)
    axes = {0: "rows", 1: "tokens"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter announces its own successor on every call
        torch.onnx.export(
            network,
            example,
            str(path),
            input_names=list(INPUT_NAMES),
            output_names=["logits"],
            dynamic_axes=dict.fromkeys((*INPUT_NAMES, "logits"), axes),
            opset_version=OPSET,
            dynamo=False,
        )


def store_weights_as_int8(source: Path, target: Path) -> None:
    """Write a copy of the model in which matrices and embeddings are int8 with float32 scales."""
    model = onnx.load(str(source))
    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[NodeProto] = []
    for node in graph.node:
        name = node.input[1] if node.op_type == "MatMul" else node.input[0] if node.op_type == "Gather" else None
        if name is not None and name in tensors and _is_large(tensors[name]):
            values = numpy_helper.to_array(tensors.pop(name))
            nodes += _matrix(node, values) if node.op_type == "MatMul" else _embedding(node, values)
            _store(graph, name, values, axis=1 if node.op_type == "MatMul" else 0)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(model)
    onnx.save(model, str(target))


def _is_large(tensor: TensorProto) -> bool:
    return len(tensor.dims) == 2 and tensor.data_type == TensorProto.FLOAT and np.prod(tensor.dims) >= SMALLEST_MATRIX


def _matrix(node: NodeProto, values: NDArray[np.float32]) -> list[NodeProto]:
    """MatMul with a matrix (in, out), one scale an output channel."""
    name = node.input[1]
    restored = helper.make_node("DequantizeLinear", [f"{name}_int8", f"{name}_scale"], [f"{name}_float"], axis=1)
    node.input[1] = f"{name}_float"
    return [restored, node]


def _embedding(node: NodeProto, values: NDArray[np.float32]) -> list[NodeProto]:
    """Gather rows as int8 and scale the gathered rows alone: the table is never unpacked as a whole."""
    name, indices, output = node.input[0], node.input[1], node.output[0]
    return [
        helper.make_node("Gather", [f"{name}_int8", indices], [f"{output}_int8"]),
        helper.make_node("Cast", [f"{output}_int8"], [f"{output}_float"], to=TensorProto.FLOAT),
        helper.make_node("Gather", [f"{name}_scale", indices], [f"{output}_scale"]),
        helper.make_node("Mul", [f"{output}_float", f"{output}_scale"], [output]),
    ]


def _store(graph: GraphProto, name: str, values: NDArray[np.float32], axis: int) -> None:
    """Replace a float tensor by int8 and scales: one a column for axis 1, one a row, shape (rows, 1), for axis 0."""
    scale = np.maximum(np.abs(values).max(axis=1 - axis, keepdims=True), 1e-12) / 127
    rounded = np.clip(np.rint(values / scale), -127, 127).astype(np.int8)
    kept_scale = (scale if axis == 0 else scale[0]).astype(np.float32)
    index = next(place for place, tensor in enumerate(graph.initializer) if tensor.name == name)
    del graph.initializer[index]
    graph.initializer.append(numpy_helper.from_array(rounded, f"{name}_int8"))
    graph.initializer.append(numpy_helper.from_array(kept_scale, f"{name}_scale"))
