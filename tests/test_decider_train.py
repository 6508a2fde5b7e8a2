"""Examples are read strictly, models measured, and the whole recipe runs on a tiny network where PyTorch is there."""

from __future__ import annotations

import importlib.util
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from decider import Answers, ChoiceAnswer, Decider, NoulAnswer, ScoreAnswer, TrainingDataError
from decider.questions import Choice, Noul, Score
from decider.train import evaluate
from decider.train.examples import read_examples, target

TINY = Path(__file__).parent / "data" / "tiny_decider"
needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "safetensors", "onnx")),
    reason="training needs PyTorch, safetensors and onnx",
)

SCORE_LINE = '{"state": "a", "questions": {"q": {"type": "score", "criteria": ["a", "b"]}}, "answers": {"q": ANSWER}}'
QUESTIONS = {
    "open": {"type": "noul", "instructions": "Is the door open?"},
    "colour": {"type": "choice", "criteria": {"red": None, "blue": "like the sky"}},
}


def write(path: Path, answers: list[dict[str, object]]) -> Path:
    lines = [
        json.dumps(
            {"state": f"door {answer['open']}, paint {answer['colour']}", "questions": QUESTIONS, "answers": answer}
        )
        for answer in answers
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_examples_become_records_and_targets(tmp_path: Path) -> None:
    (example,) = read_examples(write(tmp_path / "a.jsonl", [{"open": True, "colour": None}]))
    assert example.answers == {"open": True, "colour": None}
    assert target(example.questions["open"], True) == [1.0]
    assert target(Noul("?"), None) == [0.5]
    assert target(Choice({"a": None, "b": None}), None) == [0.5, 0.5]
    assert target(Choice({"a": None, "b": None}), "b") == [0.0, 1.0]
    assert target(Score(["a", "b", "c"]), 2) == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        '{"state": "a", "questions": {"q": {"type": "noul"}}, "answers": {"q": true}}',
        '{"state": "a", "questions": {"q": {"type": "noul", "instructions": "?"}}, "answers": {}}',
        '{"state": "a", "questions": {"q": {"type": "noul", "instructions": "?"}}, "answers": {"q": 1}}',
        '{"state": "a", "questions": {"q": {"type": "choice", "criteria": {"a": null, "b": null}}},'
        ' "answers": {"q": "c"}}',
        SCORE_LINE.replace("ANSWER", "2"),
        SCORE_LINE.replace("ANSWER", "-1"),
        SCORE_LINE.replace("ANSWER", "true"),
        SCORE_LINE.replace("ANSWER", '"a"'),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "a.jsonl", [{"open": True, "colour": "red"}])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(TrainingDataError) as caught:
        read_examples(path)
    assert caught.value.line == 2


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(TrainingDataError):
        read_examples(tmp_path / "a.jsonl")


def test_nouls_are_scored_without_the_unanswerable() -> None:
    scores = evaluate.score(
        [
            evaluate.Judged(NoulAnswer(0.8), True),
            evaluate.Judged(NoulAnswer(0.6), False),
            evaluate.Judged(NoulAnswer(0.9), None),
        ]
    )
    assert (scores.type, scores.accuracy.correct, scores.accuracy.count) == ("noul", 1, 2)
    assert scores.brier == pytest.approx((0.04 + 0.36) / 2)
    assert scores.ece_width == pytest.approx((0.2 + 0.6) / 2)
    assert scores.unanswerable == 1
    assert scores.unanswerable_confidence == pytest.approx(0.8)


def test_choices_are_scored_by_their_best_option() -> None:
    answer = ChoiceAnswer("a", {"a": 0.75, "b": 0.25})
    scores = evaluate.score([evaluate.Judged(answer, "a"), evaluate.Judged(answer, "b")])
    assert scores.accuracy.share == 0.5
    assert scores.ece_width == pytest.approx(0.25)
    assert scores.brier == pytest.approx((2 * 0.25**2 + 2 * 0.75**2) / 2)
    assert scores.unanswerable_confidence is None


def test_scores_are_scored_by_their_likeliest_level() -> None:
    answer = ScoreAnswer(1.25, {0: "a", 1: "b", 2: "c"}, {0: 0.0, 1: 0.75, 2: 0.25}, {0: -9.0, 1: 1.0, 2: 0.0})
    scores = evaluate.score([evaluate.Judged(answer, 1), evaluate.Judged(answer, 2)])
    assert (scores.type, scores.accuracy.share) == ("score", 0.5)
    assert scores.ece_width == pytest.approx(0.25)
    assert scores.brier == pytest.approx((2 * 0.25**2 + 2 * 0.75**2) / 2)


def test_evaluation_by_question_and_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.jsonl", [{"open": True, "colour": "red"}, {"open": False, "colour": None}])
    decider = Decider.load(TINY, "cpu", threads=1)
    result = evaluate.evaluate(decider, read_examples(path))
    assert {name: scores.accuracy.count for name, scores in result.questions.items()} == {"open": 2, "colour": 1}
    assert evaluate.main([str(TINY), str(path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["types"]["noul"]["nll"] == pytest.approx(result.types["noul"].nll)
    assert evaluate.main([str(TINY), str(path)]) == 0
    assert "colour" in capsys.readouterr().out


def test_calibration_is_fitted_to_raw_logits(tmp_path: Path) -> None:
    """Three of four "yes" at one logit: T must turn that logit into 3/4, whatever T the model had before."""

    class Fixed(Decider):
        def __init__(self) -> None:
            pass

        def decide(self, state: object, questions: object) -> Answers:
            pick = ChoiceAnswer("red", {"red": 0.9, "blue": 0.1}, {"red": 2.0, "blue": 0.0})
            return Answers({"open": NoulAnswer(0.99, 2.0), "colour": pick}, model="fixed", provider="cpu")

    answers: list[dict[str, object]] = [{"open": True, "colour": "red"}] * 3 + [{"open": False, "colour": "blue"}]
    fitted = evaluate.fit_calibration(
        evaluate.judge(Fixed(), read_examples(write(tmp_path / "a.jsonl", answers))), "test"
    )
    assert fitted.temperatures == pytest.approx({"noul": 1.8205, "choice": 1.8205}, abs=1e-3)  # 2 / ln 3


@needs_torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_recipe_runs_from_files_to_a_model_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from decider.train.__main__ import main

    answers: list[dict[str, object]] = [
        {"open": bool(number % 2), "colour": ("red", "blue", None)[number % 3]} for number in range(24)
    ]
    file = str(write(tmp_path / "a.jsonl", answers))
    doubted = tmp_path / "b.jsonl"  # some labels are wrong: a model that is always right has no temperature
    text = (tmp_path / "a.jsonl").read_text()
    doubted.write_text(
        text.replace('"answers": {"open": true', '"answers": {"open": false', 3).replace('"red"}}', '"blue"}}', 3)
    )
    out = tmp_path / "model"
    arguments = [
        "--train",
        file,
        "--calibration",
        str(doubted),
        "--test",
        file,
        "--out",
        str(out),
        "--quick",
        "--processes",
        "2",
    ]
    assert main([*arguments, "--name", "trial"]) == 0
    assert {path.name for path in out.iterdir()} == {
        "model.onnx",
        "tokenizer.json",
        "decider.json",
        "calibration.json",
        "golden.json",
    }
    described = json.loads((out / "decider.json").read_text())
    assert described["metrics"]["files"]["onnx_difference"] < 1e-4
    assert described["metrics"]["test"]["types"]["noul"]["accuracy"]["count"] == 24
    first, second = described["training"]["processes"]
    assert first["steps"] > 0
    assert first["best_loss"] == second["best_loss"]  # measured at the same weights
    decider = Decider.load(out, "cpu", threads=1)
    assert decider.check_golden() < 1e-5
    assert "CPU s" in capsys.readouterr().err


@needs_torch
def test_the_mask_worked_out_by_hand() -> None:
    torch = pytest.importorskip("torch")

    from decider.train.network import who_sees_whom

    # state, stem of question 1, marker and word of option 1, marker of option 2, question 2, padding
    question = torch.tensor([[0, 1, 1, 1, 1, 2, -1]])
    option = torch.tensor([[0, 0, 1, 1, 2, 0, 0]])
    marker = torch.tensor([[False, False, True, False, True, False, False]])
    seen = who_sees_whom(question, option, marker)[0, 0].int().tolist()
    assert seen == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 1, 0, 0],
        [1, 0, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, 0, 1],
    ]


@needs_torch
def test_dropped_words_are_whole_words_of_the_state() -> None:
    import numpy as np

    from decider.train.batches import drop_words

    inputs = {
        "input_ids": np.array([[2, 10, 11, 12, 3, 10, 0]]),  # start, word, its continuation, word, separator, question
        "question_ids": np.array([[0, 0, 0, 0, 0, 1, -1]]),
    }
    continuation = np.zeros(20, dtype=np.bool_)
    continuation[11] = True
    dropped = drop_words(inputs, 1.0, 4, continuation, np.random.default_rng(0))
    assert dropped["input_ids"].tolist() == [[2, 4, 4, 4, 3, 10, 0]]
    assert drop_words(inputs, 0.0, 4, continuation, np.random.default_rng(0))["input_ids"].tolist() == [
        [2, 10, 11, 12, 3, 10, 0]
    ]


@needs_torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_masking_the_scores_is_one_addition_in_the_exported_graph(tmp_path: Path) -> None:
    import onnx

    torch = pytest.importorskip("torch")
    from decider.train.base import tiny_base
    from decider.train.export import export
    from decider.train.network import Network, _as_bias

    sees = torch.tensor([[[[True, False]]]])
    assert torch.softmax(torch.zeros(1, 1, 1, 2) + _as_bias(sees, torch.float32), -1).tolist() == [[[[1.0, 0.0]]]]
    export(Network(tiny_base(["a b c"])), tmp_path / "model.onnx")
    kinds = [node.op_type for node in onnx.load(str(tmp_path / "model.onnx")).graph.node]
    assert "IsNaN" not in kinds  # a boolean mask brings one a layer, and two choices over all scores


@needs_torch
def test_members_that_meet_all_have_the_mean_of_their_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    from decider.train.together import Meeting

    networks = [torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)]
    for network, value in zip(networks, (1.0, 3.0), strict=True):
        torch.nn.init.constant_(network.weight, value)
        torch.nn.init.constant_(network.bias, value)
        network.bias.requires_grad_(False)
    file = tmp_path / "meeting.f32"
    file.write_bytes(bytes(4 * 2 * 2))
    meeting = Meeting(threading.Barrier(2), file, 2)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(meeting.average, networks, (0, 1)))
    assert [network.weight.tolist() for network in networks] == [[[2.0, 2.0]]] * 2
    assert [network.bias.tolist() for network in networks] == [[1.0], [3.0]]  # what is frozen is nobody's to change


@needs_torch
def test_a_member_that_waits_in_vain_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    from decider.train import together

    monkeypatch.setattr(together, "PATIENCE_SECONDS", 0.05)
    file = tmp_path / "meeting.f32"
    file.write_bytes(bytes(4 * 2 * 3))
    with pytest.raises(threading.BrokenBarrierError):
        together.Meeting(threading.Barrier(2), file, 2).average(torch.nn.Linear(2, 1), 0)


@needs_torch
def test_checks_that_fall_between_meetings_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    from decider.train.fit import Settings
    from decider.train.together import Plan, train_together

    file = write(tmp_path / "a.jsonl", [{"open": True, "colour": "red"}])
    with pytest.raises(ValueError, match="7 meetings are no multiple of 2 checks"):
        train_together(Plan(file, file, (), Settings(meetings=7, checks=2)), 1, print)
