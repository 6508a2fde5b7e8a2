"""A model that does not fit its folder is refused when it is loaded, with what is wrong and where."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace as with_fields

pytest.importorskip("onnx")

from onnx import TensorProto, helper
from tiny_models import LIMITS, Graph, following_graph, product_graph, word_tokenizer, write_folder

from decider import Decider, ModelFileError
from decider.manifest import FORMAT, read_manifest, sha256, write_manifest
from decider.onnx_header import read_header
from decider.specs import Causal, Column, Pair, Shared, Spec

TINY = Path(__file__).parent / "data" / "tiny_decider"
WORDS = {"[PAD]": 0.0, "[UNK]": 0.0, "[CLS]": 0.0, "[SEP]": 0.0, "a": 1.0, "yes": 1.0, "no": 1.0, "A": 1.0, "B": 1.0}
CAUSAL = Causal(pad="[PAD]", yes=(" yes",), no=(" no",), letters=(" A", " B"))


def refused(folder: Path, graph: Graph, spec: Spec, words: Mapping[str, float] = WORDS) -> str:
    """What the error says, which names the model file."""
    write_folder(folder, graph, word_tokenizer(list(words)), spec)
    with pytest.raises(ModelFileError) as caught:
        Decider.load(folder, "cpu", 1)
    assert caught.value.path == folder / "model.onnx"
    return str(caught.value)


def causal_graph(columns: int = len(WORDS)) -> Graph:
    zeros = np.zeros((len(WORDS), columns), np.float32)
    return following_graph(zeros, zeros)


def test_folders_that_fit_are_opened(tmp_path: Path) -> None:
    """Without this, what follows could pass for another reason."""
    for name, graph, spec in (("pair", product_graph(WORDS), Pair()), ("causal", causal_graph(), CAUSAL)):
        Decider.load(write_folder(tmp_path / name, graph, word_tokenizer(list(WORDS)), spec), "cpu", 1)


def test_an_opset_that_is_too_new(tmp_path: Path) -> None:
    said = refused(tmp_path / "m", replace(product_graph(WORDS), opset=99), Pair())
    assert "too old for its opset (ai.onnx 99" in said
    assert "opset 17" in said


def test_what_is_no_onnx_file(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", product_graph(WORDS), word_tokenizer(list(WORDS)), Pair())
    whole = (folder / "model.onnx").read_bytes()
    for damaged in (b"", b"hello world", whole[:40], json.dumps({"a": 1}).encode()):
        (folder / "model.onnx").write_bytes(damaged)
        set_fields(folder, sha256=sha256(folder / "model.onnx"))
        with pytest.raises(ModelFileError, match="not an ONNX file"):
            Decider.load(folder, "cpu", 1)


def test_an_operator_that_does_not_exist(tmp_path: Path) -> None:
    graph = product_graph(WORDS)
    odd = [*graph.nodes[:-1], helper.make_node("Multiply", ["product", "columns"], ["logits"])]
    said = refused(tmp_path / "m", replace(graph, nodes=odd), Pair())
    assert "Multiply" in said
    assert "ai.onnx 17" in said


def test_inputs_that_are_missing_unknown_or_of_another_kind(tmp_path: Path) -> None:
    fewer = Pair(inputs=("input_ids", "attention_mask"))
    assert "wants an input 'token_type_ids'" in refused(tmp_path / "a", product_graph(WORDS), fewer)
    more = Pair(inputs=("input_ids", "attention_mask", "token_type_ids", "position_ids"))
    assert "has no input 'position_ids'" in refused(tmp_path / "b", product_graph(WORDS), more)
    cached = replace(causal_graph(), inputs=("input_ids", "attention_mask", "past_key_values.0.key"))
    assert "without a cache" in refused(tmp_path / "c", cached, CAUSAL)
    narrow = replace(product_graph(WORDS), input_type=TensorProto.INT32)
    assert "tensor(int32)" in refused(tmp_path / "d", narrow, Pair())


def test_outputs_of_another_name_rank_or_width(tmp_path: Path) -> None:
    assert "no output 'scores'; it gives logits" in refused(tmp_path / "a", product_graph(WORDS), Pair(output="scores"))
    assert "reads (rows, columns)" in refused(tmp_path / "b", causal_graph(), Pair(inputs=CAUSAL.inputs))
    three = Pair(noul=Column(2, minus=0))
    said = refused(tmp_path / "c", product_graph(WORDS, columns=[1, 2]), three)
    assert "has 2 columns and the layout reads 3 or more" in said
    assert f"reads {len(WORDS)} or more" in refused(tmp_path / "d", causal_graph(len(WORDS) - 1), CAUSAL)


def test_a_tokenizer_of_more_tokens_than_the_network_knows(tmp_path: Path) -> None:
    more = {**WORDS, **{f"w{number}": 0.0 for number in range(5)}}
    said = refused(tmp_path / "m", product_graph(WORDS), Pair(), more)
    assert f"token {len(more) - 1}, the tokenizer's highest" in said


def set_fields(folder: Path, **fields: object) -> None:
    path = folder / "decider.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda fields: fields["limits"].update(stat=3), "limits.stat"),
        (lambda fields: fields.update(precison="float32"), "precison"),
        (lambda fields: fields["layout"].update(kind="packed"), "packed"),
        (lambda fields: fields["layout"].update(inputs=["ids"]), "ids"),
        (lambda fields: fields["layout"].update(noul={"index": -1}), ">= 0"),
        (lambda fields: fields["layout"].update(noul_txt="{question}"), "noul_txt"),
        (lambda fields: fields["layout"].update(between=["</s>"]), "'</s>'"),
        (lambda fields: fields.pop("layout"), "layout"),
    ],
)
def test_a_manifest_with_a_mistake_says_where(
    tmp_path: Path, change: Callable[[dict[str, dict[str, object]]], object], named: str
) -> None:
    folder = write_folder(tmp_path / "m", product_graph(WORDS), word_tokenizer(list(WORDS)), Pair())
    fields = json.loads((folder / "decider.json").read_text())
    change(fields)
    (folder / "decider.json").write_text(json.dumps(fields))
    with pytest.raises(ModelFileError) as caught:
        Decider.load(folder, "cpu", 1)
    assert caught.value.path == folder / "decider.json"
    assert named in str(caught.value)


def test_other_files_than_those_of_the_manifest(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", product_graph(WORDS), word_tokenizer(list(WORDS)), Pair())
    for name in ("model.onnx", "tokenizer.json"):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(kept + b" ")
        with pytest.raises(ModelFileError, match="sha256") as caught:
            Decider.load(folder, "cpu", 1)
        assert caught.value.path == folder / name
        (folder / name).write_bytes(kept)


def test_what_is_no_tokenizer(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", product_graph(WORDS), word_tokenizer(list(WORDS)), Pair())
    (folder / "tokenizer.json").write_text("{}")
    set_fields(folder, tokenizer_sha256=sha256(folder / "tokenizer.json"))
    with pytest.raises(ModelFileError, match="not a tokenizer"):
        Decider.load(folder, "cpu", 1)


def folder_of_the_first_format(path: Path, **changed: int) -> tuple[Path, dict[str, int]]:
    """A copy of the tiny model as the first format wrote it, with its markers at the top; and these."""
    folder = shutil.copytree(TINY, path)
    fields = json.loads((folder / "decider.json").read_text())
    markers = {**(fields.pop("layout")["markers"] if "layout" in fields else fields.pop("markers")), **changed}
    (folder / "decider.json").write_text(json.dumps({**fields, "format": 1, "markers": markers}))
    return folder, markers


def test_a_folder_of_the_first_format_is_read_as_shared(tmp_path: Path) -> None:
    folder, markers = folder_of_the_first_format(tmp_path / "m")
    manifest = read_manifest(folder)
    assert isinstance(manifest.layout, Shared)
    assert manifest.format == FORMAT
    assert manifest.layout.markers.noul == markers["noul"]
    assert Decider.load(folder, "cpu", 1).check_golden() < 1e-3
    write_manifest(folder, manifest)
    assert "markers" not in json.loads((folder / "decider.json").read_text())
    assert read_manifest(folder) == manifest


def test_markers_that_the_tokenizer_does_not_have(tmp_path: Path) -> None:
    folder, _ = folder_of_the_first_format(tmp_path / "m", option=99_999)
    with pytest.raises(ModelFileError, match="99999, which is the marker 'option'"):
        Decider.load(folder, "cpu", 1)


def test_the_header_of_a_file(tmp_path: Path) -> None:
    product_graph(WORDS).save(tmp_path / "m.onnx")
    header = read_header(tmp_path / "m.onnx")
    assert header is not None
    assert (header.ir_version, header.opsets) == (8, {"": 17})
    shipped = read_header(TINY / "model.onnx")
    assert shipped is not None
    assert shipped.producer.startswith("pytorch")


def test_limits_that_leave_no_room_for_a_question(tmp_path: Path) -> None:
    spec = with_fields(CAUSAL, noul_prompt="a " * 40 + "{state} {question}")
    folder = write_folder(tmp_path / "m", causal_graph(), word_tokenizer(list(WORDS)), spec, LIMITS)
    with pytest.raises(ModelFileError, match="41 tokens and the limit is 32") as caught:
        Decider.load(folder, "cpu", 1)
    assert caught.value.path == folder / "decider.json"
