"""Model folders small enough to be worked out by hand: their graphs are written node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

from decider.answers import Calibration
from decider.manifest import FORMAT, Manifest, sha256, write_manifest
from decider.rows import Limits
from decider.specs import Spec

LIMITS = Limits(state=24, state_refused=96, question=32, attention_cells=10**6)
TOKENS = ["rows", "tokens"]


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes from int64 inputs to the output "logits", whose shape is given by names."""

    nodes: Sequence[NodeProto]
    weights: Mapping[str, NDArray[np.generic]]
    output: Sequence[str | int]
    inputs: Sequence[str] = ("input_ids", "attention_mask")
    opset: int = 17
    input_type: int = field(default=TensorProto.INT64)

    def save(self, path: Path) -> None:
        graph = helper.make_graph(
            list(self.nodes),
            "tiny",
            [helper.make_tensor_value_info(name, self.input_type, TOKENS) for name in self.inputs],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, list(self.output))],
            [numpy_helper.from_array(values, name) for name, values in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))


def word_tokenizer(words: Sequence[str]) -> Tokenizer:
    """One token a word; words that are not in the list become [UNK]."""
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def write_folder(folder: Path, graph: Graph, tokenizer: Tokenizer, spec: Spec, limits: Limits = LIMITS) -> Path:
    """Write model.onnx, tokenizer.json and decider.json."""
    folder.mkdir(exist_ok=True)
    graph.save(folder / "model.onnx")
    tokenizer.save(str(folder / "tokenizer.json"))
    model, words = (sha256(folder / name) for name in ("model.onnx", "tokenizer.json"))
    write_manifest(folder, Manifest(FORMAT, "by hand", model, words, spec, limits, Calibration(), precision="float32"))
    return folder


def product_graph(words: Mapping[str, float], columns: Sequence[float] = (1.0,), **kept: int) -> Graph:
    """The logit of a pair: (sum over the first text) * (sum over the second), times each of `columns`.

    A word's number is what `words` says; the second text is where token_type_ids is 1.
    """
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["numbers"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["token_type_ids"], ["second"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["numbers", "mask"], ["seen"]),
        helper.make_node("Mul", ["seen", "second"], ["seen_second"]),
        helper.make_node("ReduceSum", ["seen", "axis"], ["all"], keepdims=1),
        helper.make_node("ReduceSum", ["seen_second", "axis"], ["of_second"], keepdims=1),
        helper.make_node("Sub", ["all", "of_second"], ["of_first"]),
        helper.make_node("Mul", ["of_first", "of_second"], ["product"]),
        helper.make_node("Mul", ["product", "columns"], ["logits"]),
    ]
    weights: dict[str, NDArray[np.generic]] = {
        "words": np.array(list(words.values()), np.float32),
        "axis": np.array([1], np.int64),
        "columns": np.array([columns], np.float32),
    }
    names = ("input_ids", "attention_mask", "token_type_ids")
    return Graph(nodes, weights, ["rows", len(columns)], names, **kept)


def following_graph(following: NDArray[np.float32], earlier: NDArray[np.float32]) -> Graph:
    """Logits of what follows: the row of `following` for the last token plus those of `earlier` for all up to it."""
    nodes = [
        helper.make_node("Gather", ["following", "input_ids"], ["of_last"]),
        helper.make_node("Gather", ["earlier", "input_ids"], ["of_each"]),
        helper.make_node("CumSum", ["of_each", "axis"], ["of_all"]),
        helper.make_node("Add", ["of_last", "of_all"], ["logits"]),
    ]
    weights: dict[str, NDArray[np.generic]] = {
        "following": following,
        "earlier": earlier,
        "axis": np.array(1, np.int64),
    }
    return Graph(nodes, weights, ["rows", "tokens", following.shape[1]])
