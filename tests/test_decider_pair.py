"""Cross-encoders and entailment models: one sequence an option, every number worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

pytest.importorskip("onnx")

from tiny_models import LIMITS, product_graph, word_tokenizer, write_folder

from decider import Choice, CuttableState, Decider, Noul, NoulCriteria, Question, QuestionError, Score, StateError
from decider.pair import PairLayout
from decider.specs import Column, Pair

# A word's number; special tokens count nothing, so a logit is (sum of the state) * (sum of question and option).
WORDS = {"[PAD]": 9.0, "[UNK]": 0.0, "[CLS]": 0.0, "[SEP]": 0.0, "one": 1.0, "two": 2.0, "half": 0.5, "minus": -1.0}
PAIR = Pair()
QUESTIONS: dict[str, Question] = {
    "yes": Noul("one half"),
    "which": Choice({"two": None, "minus": None, "one": None}, "half"),
    "how": Score(["minus", "one", "two"]),
}


def layout(spec: Pair = PAIR) -> PairLayout:
    return PairLayout(word_tokenizer(list(WORDS)), spec, LIMITS)


@pytest.fixture(scope="module")
def decider(tmp_path_factory: pytest.TempPathFactory) -> Decider:
    folder = tmp_path_factory.mktemp("pair")
    return Decider.load(write_folder(folder, product_graph(WORDS), word_tokenizer(list(WORDS)), PAIR), "cpu", 1)


def test_the_rows_worked_out_by_hand() -> None:
    encoded = layout().encode("one two", {"n": Noul("half"), "c": Choice({"one": "two", "minus": None}, "half")})
    assert [row.inputs["input_ids"].tolist() for row in encoded.rows] == [
        [2, 4, 5, 3, 6, 3],
        [2, 4, 5, 3, 6, 1, 5, 3],  # "one: two"; the piece "one:" is not in the vocabulary
        [2, 4, 5, 3, 6, 7, 3],
    ]
    assert encoded.rows[1].inputs["token_type_ids"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert encoded.rows[1].inputs["attention_mask"].tolist() == [1] * 8
    assert [row.question_id for row in encoded.rows] == ["n", "c", "c"]


def test_markers_and_texts_are_those_of_the_manifest() -> None:
    spec = Pair(
        before=(),
        between=("[SEP]", "[SEP]"),
        inputs=("input_ids", "position_ids"),
        noul_text="two {question}",
        option_text="{option} minus {question}",
    )
    encoded = layout(spec).encode("one", {"n": Noul("half"), "s": Score(["one", "two"], "half")})
    assert [row.inputs["input_ids"].tolist() for row in encoded.rows] == [
        [4, 3, 3, 5, 6, 3],
        [4, 3, 3, 4, 7, 6, 3],
        [4, 3, 3, 5, 7, 6, 3],
    ]
    assert encoded.rows[0].inputs["position_ids"].tolist() == [0, 1, 2, 3, 4, 5]
    assert set(encoded.rows[0].inputs) == {"input_ids", "position_ids"}


def test_the_answers_worked_out_by_hand(decider: Decider) -> None:
    answers = decider.decide("one two", QUESTIONS)  # the state's sum is 3
    assert answers.nouls["yes"].logit == pytest.approx(3 * 1.5)
    assert answers.nouls["yes"].noul == pytest.approx(1 / (1 + math.exp(-4.5)))
    assert answers.choices["which"].logits == pytest.approx({"two": 7.5, "minus": -1.5, "one": 4.5})
    assert answers.choices["which"].choice == "two"
    assert answers.choices["which"].probabilities["one"] == pytest.approx(
        math.exp(4.5) / (math.exp(7.5) + math.exp(-1.5) + math.exp(4.5))
    )
    assert answers.scores["how"].logits == pytest.approx({0: -3, 1: 3, 2: 6})
    weights = [math.exp(-3), math.exp(3), math.exp(6)]
    assert answers.scores["how"].score == pytest.approx((weights[1] + 2 * weights[2]) / sum(weights))
    assert answers.usage.rows == 1 + 3 + 3
    assert (answers.model, answers.precision, answers.nouls["yes"].answerable) == ("by hand", "float32", None)


def test_an_entailment_model_says_yes_by_two_columns(tmp_path: Path) -> None:
    """Columns: contradiction, neutral, entailment. A Noul is entailment less contradiction, an option entailment."""
    spec = Pair(noul=Column(2, minus=0), option=Column(2))
    graph = product_graph(WORDS, columns=[-0.5, 7.0, 2.0])
    decider = Decider.load(write_folder(tmp_path / "nli", graph, word_tokenizer(list(WORDS)), spec), "cpu", 1)
    answers = decider.decide("one", {"n": Noul("two"), "c": Choice({"one": None, "minus": None})})
    assert answers.nouls["n"].logit == pytest.approx(2 * 2.0 - 2 * -0.5)
    assert answers.choices["c"].logits == pytest.approx({"one": 2.0, "minus": -2.0})


def test_an_answer_depends_on_state_and_question_alone(decider: Decider) -> None:
    """[PAD] has a number of its own, so padding that the mask did not hide would show."""
    alone = {name: decider.decide("one two", {name: question})[name] for name, question in QUESTIONS.items()}
    crowd = decider.decide_many(
        [("half half half half half half", QUESTIONS), ("one two", dict(reversed(QUESTIONS.items())))]
    )[1]
    for name in QUESTIONS:
        assert crowd[name] == alone[name]
    turned = decider.decide("one two", {"q": Choice({"one": None, "two": None, "minus": None}, "half")}).choices["q"]
    assert turned.probabilities == alone["which"].probabilities  # type: ignore[union-attr]
    buckets = decider.decide_many([("half " * 9, QUESTIONS), ("one two", QUESTIONS)], max_waste=0.1)[1]
    assert dict(buckets) == alone


def test_what_yes_and_no_mean_is_part_of_the_question() -> None:
    question = Noul("half", NoulCriteria(true="one", false="two"))
    (row,) = layout().encode("one", {"n": question}).rows
    assert row.inputs["input_ids"].tolist() == [2, 4, 3, 6, 1, 4, 1, 5, 3]  # "yes:" and "no:" are unknown here


def test_special_tokens_in_a_text_are_text() -> None:
    tokenizer = word_tokenizer(list(WORDS))
    tokenizer.add_special_tokens(["[SEP]"])
    (row,) = PairLayout(tokenizer, PAIR, LIMITS).encode("one [SEP]two", {"n": Noul("[SEP]two")}).rows
    assert row.inputs["input_ids"].tolist() == [2, 4, 1, 3, 1, 3]


def test_states_are_cut_and_questions_are_not() -> None:
    encoded = layout().encode(CuttableState("one", "two " * 40, "half"), {"n": Noul("one")})
    assert encoded.truncated == 42 - 22
    assert encoded.rows[0].inputs["input_ids"].tolist() == [2, 4, *[5] * 20, 6, 3, 4, 3]
    with pytest.raises(StateError):
        layout().encode("one " * 95, {"n": Noul("one")})
    with pytest.raises(QuestionError, match="33 tokens and the limit is 32") as caught:
        layout().encode("one", {"n": Noul("one " * 32)})
    assert caught.value.question_id == "n"


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (Pair(pad="<pad>"), "<pad>"),
        (Pair(after=("</s>",)), "</s>"),
        (Pair(noul_text="is it so?"), "{question}"),
        (Pair(noul_text="{question} {option}"), "{option}"),
        (Pair(option_text="{question}"), "{option}"),
        (Pair(option_text="{option} {"), "twice"),
    ],
)
def test_a_spec_that_cannot_be_used_says_what_is_wrong(spec: Pair, named: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what is tested
        layout(spec)
    assert named in str(caught.value)
