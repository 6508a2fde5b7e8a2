"""A question's answer depends on the state and the question alone, whatever is asked in the same call and however.

Asked alone, against: other names, another order, further questions, options in another order, other states in the
batch and so other padding and other batch sizes, one pass or buckets, a call or a stream.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decider import Answer, Answers, Choice, ChoiceAnswer, Decider, Noul, NoulAnswer, NoulCriteria, Question, Score
from decider.model import SHIPPED_MODEL

TINY = Path(__file__).parent / "data" / "tiny_decider"
TOLERANCE = 1e-5
WORDS = ("seats", "free", "full", "3", "course", "baking", "asks", "person", "cancel", "not", "no", "yes")
ODD = ["[SEP]", "[unused1]", "Caf\u00e9", "\u4e2d", "\U0001f600", "!", "12,5"]

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
states = st.lists(st.sampled_from([*WORDS, *ODD]), min_size=1, max_size=40).map(" ".join)
maybe = st.none() | texts
nouls = st.builds(Noul, texts, st.none() | st.builds(NoulCriteria, texts, maybe))
choices = st.builds(Choice, st.dictionaries(texts, maybe, min_size=2, max_size=7), maybe)
scores = st.builds(Score, st.lists(texts, min_size=2, max_size=5), maybe)
requests = st.lists(
    st.tuples(states, st.lists(nouls | choices | scores, min_size=1, max_size=6)), min_size=1, max_size=5
)
wastes = st.sampled_from([0.0, 0.25, 1.0])

Asked = list[tuple[str, list[Question]]]


@functools.cache
def loaded(folder: Path) -> Decider:
    return Decider.load(folder, "cpu", threads=1)


def probabilities(answer: Answer) -> Mapping[str, float] | Mapping[int, float]:
    return {"yes": answer.noul} if isinstance(answer, NoulAnswer) else answer.probabilities


def with_options_permuted(question: Question, chance: random.Random) -> Question:
    """The levels of a Score keep their order: it is part of the question."""
    if not isinstance(question, Choice):
        return question
    return Choice(dict(chance.sample(list(question.criteria.items()), len(question.criteria))), question.instructions)


def disguised(asked: Asked, chance: random.Random) -> list[tuple[str, dict[str, Question]]]:
    """The same questions under random names, in random order, with their options in random order."""
    requests = []
    for state, questions in asked:
        order = chance.sample(range(len(questions)), len(questions))
        names = {place: f"{chance.random()} {place}" for place in order}
        requests.append((state, {names[place]: with_options_permuted(questions[place], chance) for place in order}))
    return requests


def each_alone(decider: Decider, asked: Asked) -> list[list[Answer]]:
    return [[decider.decide(state, {"q": question})["q"] for question in questions] for state, questions in asked]


def assert_same(expected: list[list[Answer]], answers: list[Answers]) -> None:
    for expected_answers, together in zip(expected, answers, strict=True):
        for name, answer in together.items():
            alone = expected_answers[int(name.split()[1])]
            assert probabilities(answer) == pytest.approx(probabilities(alone), abs=TOLERANCE)
            assert answer.answerable == pytest.approx(alone.answerable, abs=TOLERANCE)
            if isinstance(alone, ChoiceAnswer):
                assert isinstance(answer, ChoiceAnswer)
                assert answer.confidence == pytest.approx(alone.confidence, abs=2 * TOLERANCE)


@settings(max_examples=15, deadline=None)
@given(requests, wastes, st.randoms(use_true_random=False))
def test_company_names_orders_and_padding_move_no_probability(
    asked: Asked, max_waste: float, chance: random.Random
) -> None:
    decider = loaded(TINY)
    assert_same(each_alone(decider, asked), decider.decide_many(disguised(asked, chance), max_waste))


@settings(max_examples=10, deadline=None)
@given(requests, st.randoms(use_true_random=False))
def test_a_stream_moves_no_probability(asked: Asked, chance: random.Random) -> None:
    decider = loaded(TINY)
    assert_same(each_alone(decider, asked), list(decider.decide_iter(disguised(asked, chance))))


def test_threads_that_ask_at_once_move_no_probability() -> None:
    decider = loaded(TINY)
    asked = [(f"seats {number} free " * (1 + number % 5), {"q": Noul("full?")}) for number in range(60)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda request: decider.decide(*request).nouls["q"].noul, asked))
    assert answers == pytest.approx([decider.decide(*request).nouls["q"].noul for request in asked], abs=TOLERANCE)


@pytest.mark.skipif(not (SHIPPED_MODEL / "decider.json").is_file(), reason="there is no shipped model")
def test_the_shipped_model_keeps_the_same_promise() -> None:
    wish = Choice({"cancel": "give up the place", "transfer": "let another person have it", "other": None}, "The wish?")
    rule = Noul("Does the writer ask for an exception?", NoulCriteria(true="a rule would be bent"))
    mood = Score(["calm", "annoyed", "angry"], "How does the writer feel?")
    asked: Asked = [
        ("Request: please let my sister have my place, I am away that week.", [wish, rule, mood]),
        ("Request: " + "and another thing, the room was cold. " * 15, [mood, wish, rule]),
        ("Request: hi", [rule]),
    ]
    decider = loaded(SHIPPED_MODEL)
    alone = each_alone(decider, asked)
    for max_waste in (1.0, 0.25):
        assert_same(alone, decider.decide_many(disguised(asked, random.Random(1)), max_waste))
