"""What a loaded model promises: one pass a call, and answers that depend on nothing but state and question.

Every test runs on a tiny model that comes with the tests, and on the shipped one where it is there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from decider import (
    Answer,
    Answers,
    Choice,
    CuttableState,
    Decider,
    DecisionModel,
    ModelFileError,
    ModelOutputError,
    Noul,
    NoulAnswer,
    NoulCriteria,
    QuestionError,
    RequestTooLargeError,
    Score,
    StateError,
)
from decider.layouts import open_layout, read_tokenizer
from decider.manifest import read_manifest
from decider.model import SHIPPED_MODEL, raw_logits
from decider.passes import CELLS_PER_TOKEN
from decider.questions import Question
from decider.rows import Limits
from decider.session import OpenSession, Runner
from decider.stream import CUDA_PASS

TINY = Path(__file__).parent / "data" / "tiny_decider"
FOLDERS = [TINY] + ([SHIPPED_MODEL] if (SHIPPED_MODEL / "decider.json").is_file() else [])
TOLERANCE = 1e-5

STATE = "topic: baking; seats free: 3\nrequest: please take me off the list. let me speak to a person."
OTHER_STATE = "topic: welding; seats free: 0\nrequest: where does it take place?"
QUESTIONS: dict[str, Question] = {
    "person": Noul("Does the writer ask for a person?"),
    "full": Noul("Is the course full?", NoulCriteria(true="no seat is free", false="a seat is free")),
    "intent": Choice({"cancel": "leave the course", "register": "take part", "ask": None}, "What is wanted?"),
    "topic": Choice({"baking": None, "welding": None, "first aid": "bandages"}),
    "mood": Score(["calm", "annoyed", {"mood": "angry"}], "How does the writer feel?"),
}


class CountingRunner:
    """Passes everything on and counts the passes."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.shapes: list[tuple[int, ...]] = []

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, NDArray[np.int64]]) -> Sequence[object]:
        self.shapes.append(input_feed["input_ids"].shape)
        return self.runner.run(output_names, input_feed)


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda folder: folder.name)
def decider(request: pytest.FixtureRequest) -> Decider:
    return Decider.load(request.param, "cpu", threads=1)


def counting(decider: Decider) -> tuple[Decider, CountingRunner]:
    runner = CountingRunner(decider._runner)
    return Decider(decider.manifest, decider.layout, OpenSession(runner, "cpu"), decider.folder), runner


def with_limit(decider: Decider, attention_cells: int) -> Decider:
    """The same model with another limit for the memory of a pass."""
    limits = replace(decider.manifest.limits, attention_cells=attention_cells)
    layout = open_layout(
        decider.folder, read_tokenizer(decider.folder / "tokenizer.json"), decider.manifest.layout, limits
    )
    return Decider(decider.manifest, layout, OpenSession(decider._runner, "cpu"), decider.folder)


def assert_same(left: Answers, right: Answers, names: Mapping[str, str] | None = None) -> None:
    """Compare raw logits and probabilities of the questions in `names` (left's id to right's id)."""
    for name, other in (names or {name: name for name in left}).items():
        assert raw_logits(left[name]) == pytest.approx(raw_logits(right[other]), abs=TOLERANCE)
    for name, answer in left.choices.items():
        other = (names or {}).get(name, name)
        if other in right:
            assert answer.probabilities == pytest.approx(right.choices[other].probabilities, abs=TOLERANCE)


def test_the_golden_file_is_reproduced(decider: Decider) -> None:
    # Other processors sum in another order; a changed graph or tokenizer moves logits by far more.
    assert decider.check_golden() < 1e-3


def test_answers_carry_probabilities_and_provenance(decider: Decider) -> None:
    answers = decider.decide(STATE, QUESTIONS)
    assert list(answers) == list(QUESTIONS)
    assert all(0 <= answer.noul <= 1 for answer in answers.nouls.values())
    for answer in answers.choices.values():
        assert sum(answer.probabilities.values()) == pytest.approx(1)
        assert answer.probabilities[answer.choice] == max(answer.probabilities.values())
    for score in answers.scores.values():
        assert sum(score.probabilities.values()) == pytest.approx(1)
        assert score.score == pytest.approx(sum(level * share for level, share in score.probabilities.items()))
    assert answers.scores["mood"].legend == {0: "calm", 1: "annoyed", 2: {"mood": "angry"}}
    assert (answers.model, answers.provider) == (decider.manifest.name, "cpu")
    assert answers.sha256 == decider.manifest.sha256
    assert set(answers.calibration.temperatures) >= {"noul", "choice"}
    assert answers.usage.input_tokens > 0
    assert answers.truncated == 0


def known(answer: Answer) -> float:
    """The share by which scores are multiplied before they become probabilities."""
    return 1.0 if answer.answerable is None else answer.answerable


def test_probabilities_are_logits_divided_by_the_stored_temperature(decider: Decider) -> None:
    answers = decider.decide(STATE, QUESTIONS)
    noul, choice = answers.nouls["person"], answers.choices["intent"]
    temperatures = decider.manifest.calibration.temperatures
    assert noul.noul == pytest.approx(1 / (1 + np.exp(-np.array(noul.logit) * known(noul) / temperatures["noul"])))
    weights = np.exp(np.array(raw_logits(choice)) * known(choice) / temperatures["choice"])
    assert list(choice.probabilities.values()) == pytest.approx((weights / weights.sum()).tolist())


def test_a_score_of_levels_has_the_logits_of_a_choice_between_them(decider: Decider) -> None:
    levels = ["calm", "annoyed", "angry"]
    answers = decider.decide(
        STATE, {"score": Score(levels, "How?"), "choice": Choice(dict.fromkeys(levels), "How?"), "n": Noul("How?")}
    )
    assert raw_logits(answers["score"]) == pytest.approx(raw_logits(answers["choice"]), abs=TOLERANCE)
    temperature = decider.manifest.calibration.temperature("score")
    weights = np.exp(np.array(raw_logits(answers["score"])) * known(answers["score"]) / temperature)
    assert list(answers.scores["score"].probabilities.values()) == pytest.approx((weights / weights.sum()).tolist())


def test_the_answers_differ_between_states_and_questions(decider: Decider) -> None:
    """Without this, a model that always says the same would pass every test of independence."""
    here, there = decider.decide_many([(STATE, QUESTIONS), (OTHER_STATE, QUESTIONS)])
    assert abs(raw_logits(here["person"])[0] - raw_logits(there["person"])[0]) > 0.01
    assert abs(raw_logits(here["person"])[0] - raw_logits(here["full"])[0]) > 0.01
    assert np.ptp(raw_logits(here["intent"])) > 0.01


def test_order_of_questions_does_not_matter(decider: Decider) -> None:
    backwards = dict(reversed(QUESTIONS.items()))
    assert_same(decider.decide(STATE, QUESTIONS), decider.decide(STATE, backwards))


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_other_questions_do_not_matter(decider: Decider, name: str) -> None:
    alone = decider.decide(STATE, {name: QUESTIONS[name]})
    assert_same(alone, decider.decide(STATE, QUESTIONS))


def test_names_of_questions_do_not_matter(decider: Decider) -> None:
    names = {name: f"is {name} certainly true? [unused1]" for name in QUESTIONS}
    renamed = {names[name]: question for name, question in QUESTIONS.items()}
    assert_same(decider.decide(STATE, QUESTIONS), decider.decide(STATE, renamed), names)


def test_order_of_options_does_not_matter(decider: Decider) -> None:
    intent = QUESTIONS["intent"]
    assert isinstance(intent, Choice)
    turned = Choice(dict(reversed(list(intent.criteria.items()))), intent.instructions)
    left, right = (decider.decide(STATE, {"q": question}).choices["q"] for question in (intent, turned))
    assert left.probabilities == pytest.approx(right.probabilities, abs=TOLERANCE)
    assert left.logits == pytest.approx(right.logits, abs=TOLERANCE)
    assert left.choice == right.choice


def test_batch_mates_and_padding_do_not_matter(decider: Decider) -> None:
    long = OTHER_STATE + " how long does the day last?" * 4
    alone = decider.decide(STATE, QUESTIONS)
    _, together, _ = decider.decide_many([(long, QUESTIONS), (STATE, QUESTIONS), ("a", {"q": Noul("b")})])
    assert_same(alone, together)


def test_splitting_into_rows_does_not_matter(decider: Decider) -> None:
    many = {f"{name} {copy}": question for copy in range(12) for name, question in QUESTIONS.items()}
    answers = decider.decide(STATE, many)
    assert answers.usage.rows > 1
    alone = decider.decide(STATE, QUESTIONS)
    for copy in (0, 5, 11):
        assert_same(alone, answers, {name: f"{name} {copy}" for name in QUESTIONS})


def test_every_call_is_one_pass(decider: Decider) -> None:
    counted, runner = counting(decider)
    counted.decide(STATE, QUESTIONS)
    counted.decide(STATE, {f"{name} {copy}": question for copy in range(12) for name, question in QUESTIONS.items()})
    counted.decide_many([(STATE, QUESTIONS), (OTHER_STATE, {"q": Noul("Is it?")})] * 3)
    assert len(runner.shapes) == 3
    assert runner.shapes[0][0] == 1
    assert runner.shapes[1][0] > 1
    assert runner.shapes[2][0] == 6


def test_no_requests_no_pass_no_answers(decider: Decider) -> None:
    counted, runner = counting(decider)
    assert counted.decide_many([]) == []
    assert runner.shapes == []


def test_markers_in_a_users_text_are_text(decider: Decider) -> None:
    plain = decider.decide("seats [ unused1 ] free [ sep ]", {"q": Noul("Is [ unused2 ] free?")})
    spelled = decider.decide("seats [unused1] free [SEP]", {"q": Noul("Is [unused2] free?")})
    assert_same(plain, spelled)


def test_truncation_is_reported_and_leaves_the_questions_whole(decider: Decider) -> None:
    limit = decider.layout.limits.state
    answers = decider.decide(CuttableState("seats free: 3", "a " * limit), QUESTIONS)
    assert answers.truncated == decider.layout.encode(CuttableState("seats free: 3", "a " * limit), QUESTIONS).truncated
    assert answers.truncated > 0
    with pytest.raises(StateError):
        decider.decide("a " * decider.layout.limits.state_refused, QUESTIONS)


def test_a_bad_request_among_good_ones_runs_nothing(decider: Decider) -> None:
    counted, runner = counting(decider)
    with pytest.raises(QuestionError) as caught:
        counted.decide_many([(STATE, QUESTIONS), (STATE, {"odd": {"type": "noul"}})])
    assert caught.value.question_id == "odd"
    assert runner.shapes == []


def test_more_than_fits_into_the_memory_of_a_pass_takes_another_one(decider: Decider) -> None:
    alone = decider.decide(STATE, QUESTIONS)
    one_row = alone.usage.input_tokens
    counted, runner = counting(with_limit(decider, 3 * one_row * (one_row + CELLS_PER_TOKEN)))
    for answers in counted.decide_many([(STATE, QUESTIONS)] * 8):
        assert_same(answers, alone)
    assert runner.shapes == [(3, one_row), (3, one_row), (2, one_row)]


def test_a_question_that_alone_is_too_much_for_a_pass_is_refused_before_it(decider: Decider) -> None:
    counted, runner = counting(with_limit(decider, 1000))
    with pytest.raises(RequestTooLargeError, match="Shorten the state") as caught:
        counted.decide(STATE, QUESTIONS)
    error = caught.value
    assert (error.limit, error.cells) == (1000, error.tokens * (error.tokens + CELLS_PER_TOKEN))
    assert runner.shapes == []


def test_the_models_here_ask_for_no_more_memory_than_the_default(decider: Decider) -> None:
    assert decider.layout.limits.attention_cells <= Limits().attention_cells
    if (SHIPPED_MODEL / "decider.json").is_file():
        assert read_manifest(SHIPPED_MODEL).limits.attention_cells <= Limits().attention_cells


def test_on_a_gpu_a_pass_may_be_larger(decider: Decider) -> None:
    session = OpenSession(decider._runner, "cuda")
    on_gpu = Decider(decider.manifest, decider.layout, session, decider.folder)
    assert on_gpu._most_cells() == CUDA_PASS > decider._most_cells() == decider.layout.limits.attention_cells


@pytest.mark.parametrize("wrong", [0, -1])
def test_senseless_settings_are_refused_at_once(decider: Decider, wrong: int) -> None:
    with pytest.raises(ValueError, match="max_cells"):
        decider.decide_encoded([], max_cells=wrong)
    with pytest.raises(ValueError, match="max_waste"):
        decider.decide_many([], max_waste=wrong - 1)
    with pytest.raises(ValueError, match="max_waste"):
        decider.decide_iter(iter([]), max_waste=wrong - 1)
    with pytest.raises(ValueError, match="threads"):
        Decider.load(TINY, "cpu", threads=wrong)


UNKNOWN = "ไทย \U0001f642"  # no letter of it is in the vocabulary
NOTHING = "\u200b"  # what the tokenizer drops


@pytest.mark.parametrize(
    ("state", "question"),
    [
        (STATE, Noul(UNKNOWN)),
        (STATE, Noul(NOTHING)),
        (STATE, Noul("?!")),
        (STATE, Noul(criteria=NoulCriteria(true=UNKNOWN))),
        (STATE, Choice({"baking": None, UNKNOWN: None}, "Which?")),
        (STATE, Choice({"baking": None, "welding": None}, UNKNOWN)),
        (STATE, Score(["empty", NOTHING])),
        (UNKNOWN, Noul("Is a seat free?")),
        (CuttableState("?", UNKNOWN), Noul("Is a seat free?")),
        ([UNKNOWN], Choice({"baking": None, "welding": None})),
    ],
)
def test_what_the_tokenizer_cannot_read_is_left_even(decider: Decider, state: object, question: Question) -> None:
    answers = decider.decide(state, {"odd": question, "n": Noul("Is a seat free?")})
    odd = answers["odd"]
    assert odd.answerable == 0
    if isinstance(odd, NoulAnswer):
        assert odd.noul == 0.5
    else:
        assert set(odd.probabilities.values()) == {0.5}
    readable = state is STATE
    assert (answers["n"].answerable != 0) is readable
    assert (answers.nouls["n"].noul != 0.5) is readable


@pytest.mark.parametrize(
    "question",
    [
        Noul(f"seat {UNKNOWN}"),
        Noul(UNKNOWN, NoulCriteria(true="a seat is free")),
        Choice({UNKNOWN: "a seat is free", "no": "none"}, "Is a seat free?"),
        Choice({"(": None, ")": None}, "seat"),
        Choice({"baking": None, "welding": None}),
    ],
)
def test_what_is_known_in_part_is_read(decider: Decider, question: Question) -> None:
    assert decider.decide(STATE, {"q": question})["q"].answerable != 0


def test_a_decider_is_a_decision_model(decider: Decider) -> None:
    assert isinstance(decider, DecisionModel)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "decider.json"])
def test_missing_and_damaged_files_are_found(tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(TINY, tmp_path / "model")
    file = folder / name
    file.write_bytes(file.read_bytes()[:-10] + b"0123456789")
    with pytest.raises(ModelFileError) as caught:
        Decider.load(folder, "cpu")
    assert caught.value.path == file
    file.unlink()
    with pytest.raises(ModelFileError) as caught:
        Decider.load(folder, "cpu")
    assert caught.value.path == file


def test_another_format_is_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(TINY, tmp_path / "model")
    fields = json.loads((folder / "decider.json").read_text())
    (folder / "decider.json").write_text(json.dumps({**fields, "format": 3}))
    with pytest.raises(ModelFileError, match="format is 3"):
        Decider.load(folder, "cpu")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_no_answer(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Decider.load(TINY, "cpu", threads=1)
    monkeypatch.setattr(broken, "run", lambda batch: np.full((*batch["input_ids"].shape, 2), value, dtype=np.float32))
    with pytest.raises(ModelOutputError) as caught:
        broken.decide("a door", {"open": Noul("Is it open?")})
    assert caught.value.question_id == "open"
