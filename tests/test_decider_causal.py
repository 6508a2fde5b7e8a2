"""Language models read by the probabilities of what may follow, every number worked out by hand.

The models are tables: the logits of the next word are a row of one table, chosen by the last word, plus the sum of rows
of a second table, one for each word so far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace as with_fields
from numpy.typing import NDArray

pytest.importorskip("onnx")

from tiny_models import LIMITS, following_graph, word_tokenizer, write_folder
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from decider import (
    Choice,
    CuttableState,
    Decider,
    Noul,
    NoulCriteria,
    Question,
    QuestionError,
    RequestTooLargeError,
    Score,
)
from decider.causal import CausalLayout
from decider.passes import BYTES_PER_CELL, CELLS_PER_TOKEN
from decider.session import OpenSession
from decider.specs import Causal

WORDS = ["[PAD]", "[UNK]", "<s>", "Q:", "A:", "yes", "Yes", "no", "A.", "B.", "A", "B", "one", "two", "three", "-"]
ID = {word: number for number, word in enumerate(WORDS)}
SPEC = Causal(
    pad="[PAD]",
    start=("<s>",),
    yes=(" yes", " Yes"),
    no=(" no",),
    letters=(" A", " B"),
    noul_prompt="{state} Q: {question} A:",
    letters_prompt="{state} Q: {question} {options} A:",
    text_prompt="{state} Q: {question} {options} A:",
)
TEXT = with_fields(SPEC, options="text")


def table(rows: Mapping[str, Mapping[str, float]]) -> NDArray[np.float32]:
    """Logits of the next word by the word before; what is not named is -20."""
    numbers = np.full((len(WORDS), len(WORDS)), -20, np.float32)
    for before, following in rows.items():
        for word, logit in following.items():
            numbers[ID[before], ID[word]] = logit
    return numbers


FOLLOWING = table(
    {
        "A:": {"yes": 2, "Yes": 1, "no": 0.5, "A": 1, "B": 3, "one": 0, "two": 1, "-": 2},
        "two": {"three": 1.5, "one": 0.5},
        "three": {"three": 1, "-": 4},
    }
)
# Each "one" of the state makes "yes" likelier by half a logit.
EARLIER = np.zeros((len(WORDS), len(WORDS)), np.float32)
EARLIER[ID["one"], ID["yes"]] = 0.5
# Padding would change everything if it were read.
EARLIER[0, :] = -9

NOUL_LOGIT = math.log(math.exp(2.5) + math.exp(1)) - 0.5
QUESTIONS: dict[str, Question] = {
    "yes": Noul("three"),
    "letter": Choice({"two": None, "three": None}, "three"),
    "level": Score(["two", "three"], "three"),
    "more": Choice({"two": None, "two three": None, "-": None}, "three"),
}


def layout(spec: Causal = SPEC, tokenizer: Tokenizer | None = None) -> CausalLayout:
    return CausalLayout(tokenizer or word_tokenizer(WORDS), spec, LIMITS)


def load(folder: Path, spec: Causal = SPEC) -> Decider:
    return Decider.load(write_folder(folder, following_graph(FOLLOWING, EARLIER), word_tokenizer(WORDS), spec), "cpu")


def words(tokens: Sequence[int]) -> str:
    return " ".join(WORDS[token] for token in tokens)


def log_softmax(after: str, word: str, *, ones: int) -> float:
    """The log-probability of a word after another, with so many "one" so far."""
    logits = FOLLOWING[ID[after]].astype(float) + ones * EARLIER[ID["one"]]
    return float(logits[ID[word]] - np.logaddexp.reduce(logits))


@pytest.fixture(scope="module")
def decider(tmp_path_factory: pytest.TempPathFactory) -> Decider:
    return load(tmp_path_factory.mktemp("causal"))


def test_the_prompts_are_those_of_the_manifest() -> None:
    encoded = layout().encode("one one", QUESTIONS)
    texts = [words(row.inputs["input_ids"].tolist()) for row in encoded.rows]
    # Options are in alphabetical order, so "three" has the letter A; levels keep their order.
    assert texts == [
        "<s> one one Q: three A:",
        "<s> one one Q: three A. three B. two A:",
        "<s> one one Q: three A. two B. three A:",
        "<s> one one Q: three - - - two - two three A:",  # three options and two letters: read by their text
        "<s> one one Q: three - - - two - two three A: two",
    ]
    assert [row.first for row in encoded.rows] == [5, 9, 9, 12, 12]
    assert [len(row.read) for row in encoded.rows] == [3, 2, 2, 2, 1]
    assert encoded.rows[0].inputs["attention_mask"].tolist() == [1] * 6


def test_the_answers_worked_out_by_hand(decider: Decider) -> None:
    answers = decider.decide("one", QUESTIONS)
    noul = answers.nouls["yes"]
    assert noul.logit == pytest.approx(NOUL_LOGIT, abs=1e-5)
    assert noul.noul == pytest.approx(
        (math.exp(2.5) + math.exp(1)) / (math.exp(2.5) + math.exp(1) + math.exp(0.5)), abs=1e-6
    )
    # "three" is A with logit 1, "two" is B with logit 3.
    assert answers.choices["letter"].probabilities == pytest.approx(
        {"two": 1 / (1 + math.exp(-2)), "three": 1 / (1 + math.exp(2))}, abs=1e-6
    )
    assert answers.scores["level"].score == pytest.approx(1 / (1 + math.exp(-2)), abs=1e-6)
    assert answers.choices["letter"].logits == pytest.approx(
        {"two": log_softmax("A:", "B", ones=1), "three": log_softmax("A:", "A", ones=1)}, abs=1e-5
    )
    two = log_softmax("A:", "two", ones=1)
    assert answers.choices["more"].logits == pytest.approx(
        {"two": two, "two three": two + log_softmax("two", "three", ones=1), "-": log_softmax("A:", "-", ones=1)},
        abs=1e-5,
    )
    assert (answers.model, answers.provider, answers.usage.rows) == ("by hand", "cpu", 5)


def test_with_per_token_the_mean_counts(tmp_path: Path) -> None:
    answers = load(tmp_path / "mean", with_fields(TEXT, per_token=True)).decide("one", {"c": QUESTIONS["more"]})
    two = log_softmax("A:", "two", ones=1)
    logits = answers.choices["c"].logits
    assert logits is not None
    assert logits["two three"] == pytest.approx((two + log_softmax("two", "three", ones=1)) / 2, abs=1e-5)
    assert logits["two"] == pytest.approx(two, abs=1e-5)


def test_an_answer_depends_on_state_and_question_alone(decider: Decider) -> None:
    alone = {name: decider.decide("one", {name: question})[name] for name, question in QUESTIONS.items()}
    crowd = decider.decide_many([("one " * 20, QUESTIONS), ("one", dict(reversed(QUESTIONS.items())))])[1]
    assert dict(crowd) == alone
    for name in ("letter", "more"):
        question = QUESTIONS[name]
        assert isinstance(question, Choice)
        turned = Choice(dict(reversed(list(question.criteria.items()))), question.instructions)
        answer = decider.decide("one", {"q": turned}).choices["q"]
        assert answer.probabilities == pytest.approx(alone[name].probabilities, abs=1e-9)  # type: ignore[union-attr]
    other = decider.decide("two", {"yes": QUESTIONS["yes"]}).nouls["yes"]
    assert other.logit == pytest.approx(math.log(math.exp(2) + math.exp(1)) - 0.5, abs=1e-5)


def test_more_options_than_letters_are_refused_where_the_manifest_wants_letters() -> None:
    strict = layout(with_fields(SPEC, options="letters"))
    strict.encode("one", {"c": QUESTIONS["letter"]})
    with pytest.raises(QuestionError, match=r"3 options .* 2 letters") as caught:
        strict.encode("one", {"c": QUESTIONS["more"]})
    assert caught.value.question_id == "c"


def test_the_prompt_counts_with_the_question_and_the_state_is_cut() -> None:
    encoded = layout().encode(CuttableState("two", "one " * 40), {"n": Noul("three")})
    assert encoded.truncated == 41 - 24
    assert len(encoded.rows[0]) == 24 + 4
    with pytest.raises(QuestionError, match="33 tokens and the limit is 32"):
        layout().encode("one", {"n": Noul("three " * 30)})


def test_what_yes_and_no_mean_is_part_of_the_question() -> None:
    (row,) = layout().encode("one", {"n": Noul("three", NoulCriteria(true="two"))}).rows
    assert words(row.inputs["input_ids"].tolist()) == "<s> one Q: three [UNK] two A:"  # "yes:" is unknown here


def test_the_output_counts_as_memory(tmp_path: Path) -> None:
    """A pass of a large vocabulary is refused before it runs, not when the memory is gone."""
    vocabulary = [*WORDS, *(f"w{number}" for number in range(50_000 - len(WORDS)))]
    large = CausalLayout(word_tokenizer(vocabulary), SPEC, replace(LIMITS, attention_cells=20_000))
    assert large.cells_per_token == CELLS_PER_TOKEN + 50_000 * 4 // BYTES_PER_CELL == 1762
    small = load(tmp_path / "small")
    decider = Decider(small.manifest, large, OpenSession(small._runner, "cpu"), small.folder)
    assert large.encode("one", {"n": Noul("three")}).tokens == 5
    decider.encode("one", {"n": Noul("three")})
    with pytest.raises(RequestTooLargeError, match="35,640 attention cells") as caught:
        decider.encode("one " * 16, {"n": Noul("three")})
    assert caught.value.cells == 20 * (20 + 1762)


def byte_tokenizer(merges: Sequence[tuple[str, str]] = (), special: Sequence[str] = ()) -> Tokenizer:
    """A byte-level tokenizer as language models have it: a piece a byte, and those that the merges make."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: number for number, piece in enumerate([*alphabet, *("".join(merge) for merge in merges)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<pad>", *special])
    return tokenizer


BYTES = Causal(pad="<pad>", noul_prompt="{state}\nQ: {question}\nA:")


def test_answers_of_several_tokens_are_read_token_by_token() -> None:
    """Here " yes" is four tokens and " no" two, once " n" and "o" are merged."""
    tokenizer = byte_tokenizer([("\u0120", "n"), ("\u0120n", "o")])
    encoded = layout(BYTES, tokenizer).encode("s", {"n": Noul("q")})
    ends = [tokenizer.decode(row.inputs["input_ids"].tolist()) for row in encoded.rows]
    assert sorted(ends) == sorted(["s\nQ: q\nA:", "s\nQ: q\nA: N", "s\nQ: q\nA: ye", "s\nQ: q\nA: Ye"])
    assert sorted(len(row.read) for row in encoded.rows) == [1, 1, 1, 1]


def test_a_space_before_a_place_goes_into_the_text() -> None:
    """As in running text: " q" is one token of such tokenizers, and " " and "q" would be two."""
    tokenizer = byte_tokenizer([("\u0120", "q")])
    first = layout(BYTES, tokenizer).encode("s", {"n": Noul("q")}).rows[0]
    whole = tokenizer.encode("s\nQ: q\nA:", add_special_tokens=False).ids
    assert first.inputs["input_ids"].tolist()[: len(whole)] == whole


def test_a_prompt_may_hold_special_tokens_and_a_text_may_not() -> None:
    tokenizer = byte_tokenizer(special=["<|user|>"])
    user = tokenizer.token_to_id("<|user|>")
    spec = with_fields(BYTES, noul_prompt="<|user|>{state} {question}")
    rows = layout(spec, tokenizer).encode("<|user|>", {"n": Noul("<|user|>")}).rows
    assert {row.inputs["input_ids"].tolist().count(user) for row in rows} == {1}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (with_fields(SPEC, pad="<pad>"), "'<pad>'"),
        (with_fields(SPEC, start=("<bos>",)), "'<bos>'"),
        (with_fields(SPEC, yes=(" yup",)), "yes and no: the tokenizer does not know ' yup'"),
        (with_fields(SPEC, yes=(" yes", " no")), "' no'"),
        (with_fields(SPEC, yes=(" yes", " yes one")), "' yes one'"),
        (with_fields(SPEC, no=(" yes one",)), "which begins with all of ' yes'"),
        (with_fields(SPEC, no=()), "at least one wording"),
        (with_fields(SPEC, yes=("",)), "no token of the answer ''"),
        (with_fields(SPEC, letters=(" A", " D")), "letters: the tokenizer does not know ' D'"),
        (with_fields(SPEC, noul_prompt="{question}"), "{state}"),
        (with_fields(SPEC, letters_prompt="{state} {question}"), "{options}"),
        (with_fields(SPEC, noul_prompt='{"state": {state}, {question}'), "twice"),
    ],
)
def test_a_spec_that_cannot_be_used_says_what_is_wrong(spec: Causal, named: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what is tested
        layout(spec)
    assert named in str(caught.value)


def test_wordings_that_are_the_same_tokens_count_once() -> None:
    (row,) = layout(with_fields(SPEC, yes=(" yes", "yes"))).encode("one", {"n": Noul("three")}).rows
    assert [(each.answer, words(each.tokens)) for each in row.read] == [(0, "yes"), (1, "no")]


def test_letters_that_are_never_used_need_not_be_known() -> None:
    layout(with_fields(TEXT, letters=(" D",)))
