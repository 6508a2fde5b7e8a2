"""Turns examples into batches of rows of similar length, with what the model should say at each marker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from decider.layout import STATE, IntArray, Layout, Row, collate
from decider.questions import Noul
from decider.train.examples import Example, target

# So many batches' worth of rows are sorted by length together: little padding, and still a new mix each epoch.
BATCHES_SORTED_TOGETHER: Final = 40


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """A row with its targets: (marker, P(yes)) for each Noul, (markers, distribution) for each Choice or Score.

    `answerable` holds (markers, 1 or 0) for each question of which it is known whether the state answers it.
    """

    row: Row
    nouls: list[tuple[int, float]]
    choices: list[tuple[list[int], list[float]]]
    answerable: list[tuple[list[int], float]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs of shape (rows, tokens) and targets.

    `noul_places` (n, 2) and `option_places` (m, options, 2) hold (row, token); `option_exists` (m, options) is False
    where a Choice has fewer options than the largest in the batch. `marker_places` (k, 2) are all markers of the
    questions of which it is known whether they can be answered, `marker_questions` (k,) the number of each one's
    question, `answerable` (questions,) 1 or 0.
    """

    inputs: dict[str, IntArray]
    noul_places: IntArray
    noul_targets: NDArray[np.float32]
    option_places: IntArray
    option_exists: NDArray[np.bool_]
    option_targets: NDArray[np.float32]
    marker_places: IntArray
    marker_questions: IntArray
    answerable: NDArray[np.float32]


def label_rows(layout: Layout, examples: Sequence[Example]) -> list[LabelledRow]:
    """Encode all examples."""
    return [
        _label(row, example) for example in examples for row in layout.encode(example.state, example.questions).rows
    ]


def make_batches(rows: Sequence[LabelledRow], cells: int, random: np.random.Generator | None) -> Iterator[list[int]]:
    """Yield lists of indices into `rows`; a batch padded to its longest row has at most `cells` tokens (or one row).

    With `random`, rows and batches are shuffled; without, everything comes in order of length.
    """
    order = np.arange(len(rows)) if random is None else random.permutation(len(rows))
    mean_length = sum(len(row.row) for row in rows) / len(rows)
    pool = len(rows) if random is None else max(1, int(BATCHES_SORTED_TOGETHER * cells / mean_length))
    for start in range(0, len(order), pool):
        batches: list[list[int]] = [[]]
        for index in sorted(order[start : start + pool].tolist(), key=lambda index: len(rows[index].row)):
            if batches[-1] and (len(batches[-1]) + 1) * len(rows[index].row) > cells:
                batches.append([])
            batches[-1].append(index)
        if random is not None:
            random.shuffle(batches)
        yield from batches


def build_batch(rows: Sequence[LabelledRow], pad_token: int) -> Batch:
    """Put rows and their targets into arrays."""
    nouls = [(index, place, value) for index, row in enumerate(rows) for place, value in row.nouls]
    choices = [(index, places, spread) for index, row in enumerate(rows) for places, spread in row.choices]
    known = [(index, places, value) for index, row in enumerate(rows) for places, value in row.answerable]
    markers = [(index, place) for index, places, _ in known for place in places]
    most = max((len(places) for _, places, _ in choices), default=0)
    option_places = np.zeros((len(choices), most, 2), dtype=np.int64)
    option_exists = np.zeros((len(choices), most), dtype=np.bool_)
    option_targets = np.zeros((len(choices), most), dtype=np.float32)
    for number, (index, places, spread) in enumerate(choices):
        option_places[number, :, 0] = index
        option_places[number, : len(places), 1] = places
        option_exists[number, : len(places)] = True
        option_targets[number, : len(places)] = spread
    return Batch(
        collate([row.row for row in rows], pad_token),
        np.array([place[:2] for place in nouls], dtype=np.int64).reshape(-1, 2),
        np.array([place[2] for place in nouls], dtype=np.float32),
        option_places,
        option_exists,
        option_targets,
        np.array(markers, dtype=np.int64).reshape(-1, 2),
        np.repeat(np.arange(len(known)), [len(places) for _, places, _ in known]).astype(np.int64),
        np.array([value for _, _, value in known], dtype=np.float32),
    )


def drop_words(
    inputs: dict[str, IntArray],
    share: float,
    mask_token: int,
    is_continuation: NDArray[np.bool_],
    random: np.random.Generator,
) -> dict[str, IntArray]:
    """Replace a share of the state's words, whole words, by the mask token; the first and last token stay."""
    tokens = inputs["input_ids"]
    starts = ~is_continuation[tokens]
    word = np.cumsum(starts, axis=1)
    chosen = random.random((len(tokens), int(word.max()) + 1)) < share
    dropped = chosen[np.arange(len(tokens))[:, None], word]
    in_state = inputs["question_ids"] == STATE
    last = in_state & ~np.pad(in_state[:, 1:], ((0, 0), (0, 1)))
    dropped &= in_state & ~last
    dropped[:, 0] = False
    return {**inputs, "input_ids": np.where(dropped, mask_token, tokens)}


def _label(row: Row, example: Example) -> LabelledRow:
    nouls: list[tuple[int, float]] = []
    choices: list[tuple[list[int], list[float]]] = []
    answerable: list[tuple[list[int], float]] = []
    for name, places in row.markers.items():
        question = example.questions[name]
        wanted = target(question, example.answers[name])
        if isinstance(question, Noul):
            nouls.append((places[0], wanted[0]))
        else:
            choices.append((places, wanted))
        known = example.answerable(name)
        if known is not None:
            answerable.append((places, float(known)))
    return LabelledRow(row, nouls, choices, answerable)
