"""Folders made of an ONNX file or a PyTorch module are whole and checked; `decider check` tells about them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from tiny_models import LIMITS, following_graph, product_graph, word_tokenizer

from decider import Choice, Decider, ModelFileError, Noul
from decider.cli import main as decider_main
from decider.export import export_model, main
from decider.rows import Limits
from decider.specs import Causal, Pair

TINY = Path(__file__).parent / "data" / "tiny_decider"
WORDS = {"[PAD]": 3.0, "[UNK]": 0.1, "[CLS]": 0.0, "[SEP]": 0.0, "a": 0.2, "yes": 0.3, "no": 0.4}
NO_MASK = Pair(inputs=("input_ids", "attention_mask"))


def files(folder: Path) -> tuple[Path, Path]:
    """An ONNX file and its tokenizer."""
    product_graph(WORDS).save(folder / "scorer.onnx")
    word_tokenizer(list(WORDS)).save(str(folder / "words.json"))
    return folder / "scorer.onnx", folder / "words.json"


def test_an_onnx_file_becomes_a_folder(tmp_path: Path) -> None:
    done = export_model(
        *files(tmp_path), tmp_path / "made", Pair(), name="words", limits=LIMITS, provenance={"source": "by hand"}
    )
    assert (done.parity, done.longest) == (None, LIMITS.state + LIMITS.question)
    assert done.together < 1e-5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "scorer.onnx", "words.json"]
    decider = Decider.load(tmp_path / "made", "cpu", 1, verify=True)
    answers = decider.decide("a", {"n": Noul("yes"), "c": Choice({"yes": None, "no": None})})
    assert answers.nouls["n"].logit == pytest.approx(0.2 * 0.3)
    assert answers.model == "words"


def test_a_state_may_be_refused_as_soon_as_it_is_too_long(tmp_path: Path) -> None:
    limits = Limits(state=24, state_refused=25, question=32)
    done = export_model(*files(tmp_path), tmp_path / "made", Pair(), name="words", limits=limits)
    assert done.longest == 24 + 32


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    source, tokenizer = files(tmp_path)
    with pytest.raises(ModelFileError, match="token_type_ids"):
        export_model(source, tokenizer, tmp_path / "made", NO_MASK, name="words", limits=LIMITS)
    with pytest.raises(ModelFileError, match="not there"):
        export_model(tmp_path / "nowhere.onnx", tokenizer, tmp_path / "made", Pair(), name="words")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scorer.onnx", "words.json"]
    export_model(source, tokenizer, tmp_path / "made", Pair(), name="words", limits=LIMITS)
    with pytest.raises(ModelFileError, match="there already"):
        export_model(source, tokenizer, tmp_path / "made", Pair(), name="words", limits=LIMITS)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, tokenizer = files(tmp_path)
    made = tmp_path / "made"
    limits = '{"state": 24, "question": 32}'
    command = [str(source), str(tokenizer), str(made), "--name", "words", "--limits", limits, "--source", "here, MIT"]
    assert main(command) == 0
    assert "Rows of up to 56 tokens run" in capsys.readouterr().out
    assert json.loads((made / "decider.json").read_text())["training"] == {"source": "here, MIT"}
    assert main(command) == 2
    assert "there already" in capsys.readouterr().err
    assert main([*command[:2], str(tmp_path / "other"), "--name", "n", "--layout", '{"kind": "packed"}']) == 2
    assert "packed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ('{"states": 24}', "'states' is no limit; allowed are state, state_refused, question"),
        ('{"state": 0}', "'state' is 0: it must be at least 1"),
        ('{"row": -5}', "'row' is -5"),
        ('{"state": "24"}', "Expected `int`"),
        ("[24]", "Expected `object`"),
        ("{", "truncated"),
    ],
)
def test_limits_that_mean_nothing_are_refused(
    tmp_path: Path, limits: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, tokenizer = files(tmp_path)
    assert main([str(source), str(tokenizer), str(tmp_path / "made"), "--name", "words", "--limits", limits]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_check_tells_what_a_folder_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    export_model(*files(tmp_path), made, Pair(), name="words", limits=LIMITS, provenance={"source": "by hand"})
    assert decider_main(["check", str(made), "--provider", "cpu", "--threads", "1"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    for line in (
        "name         words",
        "layout       pair, format 2, precision float32",
        "opset        ai.onnx 17; IR version 8; written by nobody named",
        "input        token_type_ids: tensor(int64) (rows, tokens)",
        "output       logits: tensor(float) (rows, 1)",
        "training     source: by hand",
        "licence      no file says",
        "longest row  56 tokens",
    ):
        assert line in said.out.splitlines()
    assert "golden       2 requests, largest difference of a logit 0 " in said.out


def test_check_finds_other_answers_than_the_golden_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    export_model(*files(tmp_path), made, Pair(), name="words", limits=LIMITS)
    golden = json.loads((made / "golden.json").read_text())
    golden[0]["logits"]["asks"][0] += 1
    (made / "golden.json").write_text(json.dumps(golden))
    assert decider_main(["check", str(made), "--provider", "cpu"]) == 1
    assert "not answered as they were" in capsys.readouterr().err
    assert decider_main(["check", str(tmp_path / "nowhere")]) == 2


def test_a_graph_that_does_not_heed_its_mask_is_refused_and_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask is taken and all of it counts: padding, which is 3 here, then changes answers."""
    graph = product_graph(WORDS)
    for node in graph.nodes:
        if node.op_type == "Mul" and node.output[0] == "seen":
            node.input[1] = node.input[0]  # numbers * numbers in place of numbers * mask
    graph.save(tmp_path / "scorer.onnx")
    word_tokenizer(list(WORDS)).save(str(tmp_path / "words.json"))
    made = tmp_path / "made"
    files = tmp_path / "scorer.onnx", tmp_path / "words.json"
    with pytest.raises(ModelFileError, match="what else is in the batch"):
        export_model(*files, made, Pair(), name="words", limits=LIMITS)
    assert not made.exists()
    monkeypatch.setattr("decider.export.TOGETHER", np.inf)
    export_model(*files, made, Pair(), name="words", limits=LIMITS)
    assert decider_main(["check", str(made), "--provider", "cpu"]) == 1
    assert "depends on what else is asked" in capsys.readouterr().err


def test_check_opens_the_models_trained_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert decider_main(["check", str(TINY), "--provider", "cpu", "--threads", "1"]) == 0
    assert "layout       shared, format 2, precision int8-weights" in capsys.readouterr().out


def test_limits_that_the_network_cannot_read_are_found(tmp_path: Path) -> None:
    """The network knows 40 places; the limits allow 24 + 32."""
    torch = pytest.importorskip("torch")
    source = tiny_scorer(torch, places=40)
    word_tokenizer(list(WORDS)).save(str(tmp_path / "words.json"))
    with pytest.raises(ModelFileError, match="cannot read 56 tokens"):
        export_model(source, tmp_path / "words.json", tmp_path / "made", Pair(), name="n", limits=LIMITS)
    fits = Limits(state=24, state_refused=96, question=16)
    done = export_model(source, tmp_path / "words.json", tmp_path / "made", Pair(), name="n", limits=fits)
    assert done.longest == 40


def test_a_torch_encoder_and_its_file_agree(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    word_tokenizer(list(WORDS)).save(str(tmp_path / "words.json"))
    made = tmp_path / "made"
    done = export_model(
        tiny_scorer(torch), tmp_path / "words.json", made, Pair(), name="random", limits=LIMITS, released="2026-11-30"
    )
    assert done.parity is not None
    assert done.parity < 1e-4
    assert done.together < 1e-5
    answers = Decider.load(made, "cpu", 1).decide("a yes", {"n": Noul("no"), "m": Noul("yes a")})
    assert abs((answers.nouls["n"].logit or 0) - (answers.nouls["m"].logit or 0)) > 1e-3


def test_a_module_that_gives_other_numbers_than_its_file_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    source = tiny_scorer(torch)
    source.register_forward_hook(lambda module, inputs, output: output + (0 if torch.jit.is_tracing() else 1e-3))
    word_tokenizer(list(WORDS)).save(str(tmp_path / "words.json"))
    with pytest.raises(ModelFileError, match=r"differ by 0\.001"):
        export_model(source, tmp_path / "words.json", tmp_path / "made", Pair(), name="n", limits=LIMITS)
    assert not (tmp_path / "made").exists()


def test_a_language_model_becomes_a_folder(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    tables = random.normal(size=(2, len(WORDS), len(WORDS))).astype(np.float32)
    following_graph(*tables).save(tmp_path / "model.onnx")
    word_tokenizer(list(WORDS)).save(str(tmp_path / "words.json"))
    spec = Causal(pad="[PAD]", yes=(" yes",), no=(" no",), options="text")
    limits = Limits(state=24, state_refused=96, question=48)
    done = export_model(
        tmp_path / "model.onnx", tmp_path / "words.json", tmp_path / "made", spec, name="tables", limits=limits
    )
    assert done.together < 1e-5
    assert Decider.load(tmp_path / "made", "cpu", 1, verify=True).decide("a", {"n": Noul("a")}).model == "tables"


def tiny_scorer(torch, places: int = 64):  # type: ignore[no-untyped-def]
    """A random encoder of one layer, with attention, that takes what BERT takes and returns one logit."""

    class Scorer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.words = torch.nn.Embedding(len(WORDS), 8)
            self.places = torch.nn.Embedding(places, 8)
            self.texts = torch.nn.Embedding(2, 8)
            self.mixed = torch.nn.Linear(8, 24)
            self.out = torch.nn.Linear(8, 1)

        def forward(self, input_ids, attention_mask, token_type_ids):  # type: ignore[no-untyped-def]
            place = torch.arange(input_ids.shape[1])
            hidden = self.words(input_ids) + self.places(place) + self.texts(token_type_ids)
            query, key, value = self.mixed(hidden).chunk(3, -1)
            scores = query @ key.transpose(1, 2) + (1 - attention_mask.unsqueeze(1)) * -1e9
            return self.out(hidden[:, 0] + (scores.softmax(-1) @ value)[:, 0])

    return Scorer().eval()
