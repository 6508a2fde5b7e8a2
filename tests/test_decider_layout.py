"""Rows: positions, who sees whom by the integers, cutting, splitting, and text that looks like a marker."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from decider import Choice, CuttableState, Noul, NoulCriteria, QuestionError, Score, StateError
from decider.layout import Layout, Limits, Markers, collate

PIECES = [*["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "[unused2]"], *"abcdefghij[]:", *"0123456789"]
MARKERS = Markers(pad=0, start=2, separator=3, noul=5, option=6)
LIMITS = Limits(state=10, state_refused=40, question=8, whole_question=20, row=24, attention_cells=10**6)
A, B, C, D = (PIECES.index(letter) for letter in "abcd")
COLON = PIECES.index(":")


def layout(limits: Limits = LIMITS) -> Layout:
    text = Tokenizer.from_file(str(Path(__file__).parent / "data" / "tiny_decider" / "tokenizer.json"))
    described = json.loads(text.to_str())
    described["model"]["vocab"] = {piece: index for index, piece in enumerate(PIECES)}
    return Layout(Tokenizer.from_str(json.dumps(described)), MARKERS, limits)


def test_one_row_worked_out_by_hand() -> None:
    questions: dict[str, Noul | Choice] = {"n": Noul("c"), "c": Choice({"a": None, "b": "d d"}, "c d")}
    (row,) = layout().encode("a b", questions).rows
    expected = [
        # token, position, question, option
        (2, 0, 0, 0), (A, 1, 0, 0), (B, 2, 0, 0), (3, 3, 0, 0),  # state
        (5, 4, 1, 0), (C, 5, 1, 0),  # the Noul
        (C, 4, 2, 0), (D, 5, 2, 0), (3, 6, 2, 0),  # the stem of the Choice
        (6, 7, 2, 1), (A, 8, 2, 1),  # first option
        (6, 7, 2, 2), (B, 8, 2, 2), (COLON, 9, 2, 2), (D, 10, 2, 2), (D, 11, 2, 2),  # second option
    ]  # fmt: skip
    columns = np.stack([row.input_ids, row.position_ids, row.question_ids, row.option_ids], axis=1)
    assert columns.tolist() == [list(entry) for entry in expected]
    assert row.markers == {"n": [4], "c": [9, 11]}


def test_a_score_is_laid_out_as_a_choice_between_its_levels() -> None:
    levels = layout(Limits()).encode_question("q", Score(["a", "b c", ["d"]], "c d"))
    options = layout(Limits()).encode_question("q", Choice({"a": None, "b c": None, '["d"]': None}, "c d"))
    assert levels == options


def test_described_outcomes_follow_the_noul() -> None:
    block = layout(Limits()).encode_question("n", Noul("a", NoulCriteria(true="b", false="c")))
    unknown = PIECES.index("[UNK]")  # "yes" and "no" are not in this vocabulary
    assert block.tokens == [5, A, 3, unknown, COLON, B, 3, unknown, COLON, C]
    assert block.marker_offsets == [0]


def test_a_word_of_any_length_counts_as_what_it_is() -> None:
    read = layout(Limits()).encode_state("ab " + "c" * 250)
    unknown = PIECES.index("[UNK]")  # this vocabulary continues no word
    assert read.tokens == [2, unknown, unknown, unknown, unknown, 3]
    with pytest.raises(StateError, match="tokens"):
        layout(Limits(state_refused=50)).encode_state("c" * 5000)


@pytest.mark.parametrize("text", ["[unused1] [unused2]", "[SEP][CLS]", "[PAD] [MASK]", "[UNUSED1]"])
def test_markers_in_text_are_only_letters(text: str) -> None:
    (row,) = layout(Limits()).encode(text, {text: Noul(text), "c": Choice({text: text, "b": None}, text)}).rows
    written_by_layout = {2: 1, 3: 2, 5: 1, 6: 2, 0: 0, 4: 0}
    for token, count in written_by_layout.items():
        assert (row.input_ids == token).sum() == count


def test_a_long_state_loses_its_end_and_says_so() -> None:
    encoded = layout().encode_state("a b c d a b c d a b")
    assert encoded.tokens == [2, A, B, C, D, A, B, C, D, 3]
    assert encoded.truncated == 2


def test_a_state_is_cut_where_its_writer_allows_it() -> None:
    encoded = layout().encode_state(CuttableState(head="a a", cuttable="b b b b b b b", tail="c c"))
    assert encoded.tokens == [2, A, A, B, B, B, B, C, C, 3]
    assert encoded.truncated == 3


def test_room_for_the_state_does_not_depend_on_the_questions() -> None:
    short = layout().encode("a b c d a b c d a b", {"n": Noul("a")})
    long = layout().encode("a b c d a b c d a b", {"n": Noul("a"), "m": Noul("a b c d a b c")})
    assert short.truncated == long.truncated == 2


@pytest.mark.parametrize(
    ("state", "tokens"),
    [("a " * 39, 41), (CuttableState("a " * 9, "b b"), 11), ("  \n ", None), (None, None), (float("nan"), None)],
)
def test_states_that_cannot_be_used(state: object, tokens: int | None) -> None:
    with pytest.raises(StateError) as caught:
        layout().encode_state(state)
    assert caught.value.tokens == tokens


@pytest.mark.parametrize(
    "question",
    [Noul("a b c d a b c d"), Choice({"a": None, "b": "c c c c c"}, "d"), Choice(dict.fromkeys("abcdefghij"), "a")],
)
def test_questions_are_never_cut(question: Noul | Choice) -> None:
    with pytest.raises(QuestionError, match="never cut") as caught:
        layout().encode("a", {"q": question})
    assert caught.value.question_id == "q"


def test_many_questions_take_several_rows_with_the_same_state() -> None:
    questions = {str(number): Noul("a b c d") for number in range(7)}  # 5 tokens each; 24 - 4 leaves room for 4
    encoded = layout().encode("a b", questions)
    assert [list(row.markers) for row in encoded.rows] == [["0", "1", "2", "3"], ["4", "5", "6"]]
    assert [row.input_ids[:4].tolist() for row in encoded.rows] == [[2, A, B, 3]] * 2
    assert encoded.tokens == 24 + 19


def test_padding_belongs_to_no_question() -> None:
    rows = [*layout().encode("a", {"n": Noul("b")}).rows, *layout().encode("a b c", {"n": Noul("b c")}).rows]
    batch = collate(rows, pad_token=0)
    assert {name: (array.shape, str(array.dtype)) for name, array in batch.items()} == dict.fromkeys(
        ("input_ids", "position_ids", "question_ids", "option_ids"), ((2, 8), "int64")
    )
    assert batch["question_ids"][0].tolist() == [0, 0, 0, 1, 1, -1, -1, -1]
    assert batch["input_ids"][0, 5:].tolist() == [0, 0, 0]
