"""Lays a state and its questions out as one sequence, so that one pass answers all of them independently.

    [CLS] state [SEP]  |  [N] stem ...  |  stem [SEP] [O] option [O] option ...  |  ...

Every token carries its question (0: the state, 1, 2, ...: a question, -1: padding) and its option (0: the stem,
1, 2, ...: an option). The network derives from these integers alone who sees whom:

* a token of the state sees the state;
* a token of a stem sees the state and its own stem;
* a token of an option sees the state, its stem and its own option; option markers of one question see each other.

Positions start again after the state for each question, and after the stem for each option. So nothing that the
network reads depends on which other questions are asked, on their order, or on the order of the options: answers are
independent of them by construction. For the same reason the room for the state is fixed, whatever is asked about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from decider.passes import CELLS_PER_TOKEN
from decider.questions import Choice, Noul, Question, Score
from decider.rendering import render
from decider.rows import (
    EncodedRequest,
    EncodedState,
    FloatArray,
    GraphInterface,
    IntArray,
    Limits,
    Scores,
    Words,
    check_length,
    option_texts,
)
from decider.rows import collate as collate_rows

__all__ = ["INPUT_NAMES", "PADDING", "STATE", "Block", "IntArray", "Layout", "Limits", "Markers", "Row", "collate"]

INPUT_NAMES: Final = ("input_ids", "position_ids", "question_ids", "option_ids")
PADDING: Final = -1
STATE: Final = 0
ANSWERABLE: Final = 2  # the column that says whether the state answers a question


@dataclass(frozen=True, slots=True)
class Markers:
    """The ids of the tokens that only the layout writes; text of a user never becomes one of them."""

    pad: int
    start: int
    separator: int
    noul: int
    option: int


@dataclass(frozen=True, slots=True)
class Block:
    """One question as tokens. Positions count from the end of the state; `marker_offsets` point into `tokens`."""

    question_id: str
    tokens: list[int]
    positions: list[int]
    options: list[int]
    marker_offsets: list[int]


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of a batch: four integer arrays of shape (tokens,) and, by question id, where its markers stand."""

    input_ids: IntArray
    position_ids: IntArray
    question_ids: IntArray
    option_ids: IntArray
    markers: Mapping[str, list[int]]

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def inputs(self) -> Mapping[str, IntArray]:
        """The four arrays by the names of the graph's inputs."""
        return {name: getattr(self, name) for name in INPUT_NAMES}

    def pick(self, output: NDArray[np.float32]) -> dict[str, FloatArray]:
        """Return all columns at the markers of each question, shape (markers, 2 or 3)."""
        return {name: output[places].astype(np.float64) for name, places in self.markers.items()}


class Layout:
    """Writes requests as rows, with one tokenizer, its markers and the model's limits."""

    def __init__(self, tokenizer: Tokenizer, markers: Markers, limits: Limits) -> None:
        self._words = Words(tokenizer)
        self.markers = markers
        self.cells_per_token = CELLS_PER_TOKEN
        self.limits = limits
        self.graph = GraphInterface(_padding(markers.pad), "logits", True, ANSWERABLE, ANSWERABLE + 1)

    def encode(self, state: object, questions: Mapping[str, Question]) -> EncodedRequest[Row]:
        """Return the rows of one request.

        Raises StateError for a state that cannot be rendered, says nothing, or is longer than the limit; QuestionError
        for a question that is longer than its limit (questions and options are never cut).
        """
        encoded = self.encode_state(state)
        blocks = [self.encode_question(name, question) for name, question in questions.items()]
        rows = [_row(encoded.tokens, group) for group in self._groups(len(encoded.tokens), blocks)]
        return EncodedRequest(rows, encoded.truncated, self._words.unread(state, questions))

    def read(self, question: Question, parts: Sequence[FloatArray]) -> Scores:
        """Return column 0 at the marker of a Noul, column 1 at those of options; column 2 is averaged over them."""
        (logits,) = parts
        answerable = float(logits[:, ANSWERABLE].mean()) if logits.shape[1] > ANSWERABLE else None
        return Scores(logits[:, 0 if isinstance(question, Noul) else 1], answerable)

    def encode_state(self, state: object) -> EncodedState:
        """Return the state's tokens, cut at the end or where a CuttableState allows it."""
        encoded = self._words.state(state, self.limits, around=2)
        return EncodedState([self.markers.start, *encoded.tokens, self.markers.separator], encoded.truncated)

    def encode_question(self, question_id: str, question: Question) -> Block:
        """Return the question's tokens; raises QuestionError when they are more than the limits allow."""
        stem = self._noul_stem(question) if isinstance(question, Noul) else self._stem_of_options(question)
        tokens, positions, options = list(stem), list(range(len(stem))), [0] * len(stem)
        marker_offsets = [0] if isinstance(question, Noul) else []
        longest = 0
        for number, text in enumerate(option_texts(question), start=1):
            option = [self.markers.option, *self._words(text)]
            marker_offsets.append(len(tokens))
            tokens += option
            positions += range(len(stem), len(stem) + len(option))
            options += [number] * len(option)
            longest = max(longest, len(option))
        check_length(question_id, len(stem) + longest, self.limits.question, "with its longest option")
        check_length(question_id, len(tokens), self.limits.whole_question, "with all options")
        return Block(question_id, tokens, positions, options, marker_offsets)

    def _noul_stem(self, question: Noul) -> list[int]:
        stem = [self.markers.noul, *self._words(render(question.instructions or ""))]
        if question.criteria is not None:
            for word, outcome in (("yes", question.criteria.true), ("no", question.criteria.false)):
                if outcome is not None:
                    stem += [self.markers.separator, *self._words(f"{word}: {render(outcome)}")]
        return stem

    def _stem_of_options(self, question: Choice | Score) -> list[int]:
        return [*self._words(render(question.instructions or "")), self.markers.separator]

    def _groups(self, state_tokens: int, blocks: Iterable[Block]) -> list[list[Block]]:
        """Distribute questions over rows: a row is closed when the next question would make it too long."""
        groups: list[list[Block]] = []
        length = self.limits.row + 1
        for block in blocks:
            if length + len(block.tokens) > self.limits.row:
                groups.append([])
                length = state_tokens
            groups[-1].append(block)
            length += len(block.tokens)
        return groups


def collate(rows: Sequence[Row], pad_token: int) -> dict[str, IntArray]:
    """Return the network's four inputs, each of shape (rows, tokens of the longest row), int64."""
    return collate_rows(rows, _padding(pad_token))


def _padding(pad_token: int) -> dict[str, int]:
    return dict.fromkeys(INPUT_NAMES, 0) | {"input_ids": pad_token, "question_ids": PADDING}


def _row(state: list[int], blocks: Sequence[Block]) -> Row:
    tokens, positions = list(state), list(range(len(state)))
    questions, options = [STATE] * len(state), [0] * len(state)
    markers: dict[str, list[int]] = {}
    for number, block in enumerate(blocks, start=1):
        markers[block.question_id] = [len(tokens) + offset for offset in block.marker_offsets]
        tokens += block.tokens
        positions += [len(state) + position for position in block.positions]
        questions += [number] * len(block.tokens)
        options += block.options
    return Row(_array(tokens), _array(positions), _array(questions), _array(options), markers)


def _array(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
