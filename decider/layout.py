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

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from decider.errors import QuestionError, StateError
from decider.questions import Choice, Noul, Question, Score
from decider.rendering import CuttableState, render

IntArray = NDArray[np.int64]

INPUT_NAMES: Final = ("input_ids", "position_ids", "question_ids", "option_ids")
PADDING: Final = -1
STATE: Final = 0
# WordPiece reads a word of more letters than this as one unknown token, however long it is: such words are broken up,
# so that no length of text passes for read.
LONGEST_WORD: Final = 100
_LONG_WORD: Final = re.compile(rf"\S{{{LONGEST_WORD}}}(?=\S)")


@dataclass(frozen=True, slots=True)
class Limits:
    """Lengths in tokens, markers and separators included.

    `state`: what is read of a state; longer ones are cut and the cut is reported. `state_refused`: from here on a
    state is an error. `question`: a stem and its longest option. `whole_question`: a stem and all its options.
    `row`: a row takes further questions up to this length. `attention_cells`: rows * tokens^2 of one pass.
    """

    state: int = 352
    state_refused: int = 2048
    question: int = 160
    whole_question: int = 3072
    row: int = 700
    attention_cells: int = 60_000_000

    @property
    def positions(self) -> int:
        """How many positions the network must know."""
        return self.state + self.question


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


@dataclass(frozen=True, slots=True)
class EncodedState:
    """The tokens of a state and how many had to be left out."""

    tokens: list[int]
    truncated: int


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A state with its questions as one or more rows."""

    rows: list[Row]
    truncated: int

    @property
    def tokens(self) -> int:
        """Tokens in all rows, without padding."""
        return sum(len(row) for row in self.rows)


class Layout:
    """Writes requests as rows, with one tokenizer, its markers and the model's limits."""

    def __init__(self, tokenizer: Tokenizer, markers: Markers, limits: Limits) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # "[SEP]" in a user's text is five letters, not a separator
        self._tokenizer = tokenizer
        self.markers = markers
        self.limits = limits

    def encode(self, state: object, questions: Mapping[str, Question]) -> EncodedRequest:
        """Return the rows of one request.

        Raises StateError for a state that cannot be rendered, says nothing, or is longer than the limit; QuestionError
        for a question that is longer than its limit (questions and options are never cut).
        """
        encoded = self.encode_state(state)
        blocks = [self.encode_question(name, question) for name, question in questions.items()]
        rows = [_row(encoded.tokens, group) for group in self._groups(len(encoded.tokens), blocks)]
        return EncodedRequest(rows, encoded.truncated)

    def encode_state(self, state: object) -> EncodedState:
        """Return the state's tokens, cut at the end or where a CuttableState allows it."""
        parts = state if isinstance(state, CuttableState) else CuttableState("", _render_state(state))
        head, cuttable, tail = (self._words(_render_state(part)) for part in (parts.head, parts.cuttable, parts.tail))
        total = len(head) + len(cuttable) + len(tail) + 2
        if total == 2:
            raise StateError("it says nothing", "Give the text or data that the questions are about.")
        if total > self.limits.state_refused:
            raise StateError(
                f"it has {total} tokens and the limit is {self.limits.state_refused}",
                "Shorten it to what the questions need.",
                total,
                self.limits.state_refused,
            )
        too_many = max(0, total - self.limits.state)
        if too_many > len(cuttable):
            raise StateError(
                f"the parts that must not be cut have {total - len(cuttable)} tokens and the limit is "
                f"{self.limits.state}",
                "Shorten head and tail, or move text into the cuttable part.",
                total - len(cuttable),
                self.limits.state,
            )
        kept = cuttable[: len(cuttable) - too_many]
        return EncodedState(
            [self.markers.start, *head, *kept, *tail, self.markers.separator],
            too_many,
        )

    def encode_question(self, question_id: str, question: Question) -> Block:
        """Return the question's tokens; raises QuestionError when they are more than the limits allow."""
        stem = self._noul_stem(question) if isinstance(question, Noul) else self._stem_of_options(question)
        tokens, positions, options = list(stem), list(range(len(stem))), [0] * len(stem)
        marker_offsets = [0] if isinstance(question, Noul) else []
        longest = 0
        for number, text in enumerate(_option_texts(question), start=1):
            option = [self.markers.option, *self._words(text)]
            marker_offsets.append(len(tokens))
            tokens += option
            positions += range(len(stem), len(stem) + len(option))
            options += [number] * len(option)
            longest = max(longest, len(option))
        self._check_length(question_id, len(stem) + longest, self.limits.question, "with its longest option")
        self._check_length(question_id, len(tokens), self.limits.whole_question, "with all options")
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

    def _check_length(self, question_id: str, tokens: int, limit: int, which: str) -> None:
        if tokens > limit:
            raise QuestionError(
                "instructions",
                f"the question {which} has {tokens} tokens and the limit is {limit}",
                "Questions and options are never cut: shorten the wording.",
                question_id,
            )

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

    def _words(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(_LONG_WORD.sub(r"\g<0> ", text), add_special_tokens=False).ids)


def collate(rows: Sequence[Row], pad_token: int) -> dict[str, IntArray]:
    """Return the network's four inputs, each of shape (rows, tokens of the longest row), int64."""
    width = max((len(row) for row in rows), default=0)
    batch = {name: np.zeros((len(rows), width), dtype=np.int64) for name in INPUT_NAMES}
    batch["input_ids"].fill(pad_token)
    batch["question_ids"].fill(PADDING)
    for index, row in enumerate(rows):
        for name in INPUT_NAMES:
            batch[name][index, : len(row)] = getattr(row, name)
    return batch


def _option_texts(question: Question) -> list[str]:
    """What stands behind each option marker: none for a Noul, the options of a Choice, the levels of a Score."""
    if isinstance(question, Noul):
        return []
    if isinstance(question, Score):
        return [render(level) for level in question.criteria]
    return [
        name if description is None else f"{name}: {render(description)}"
        for name, description in question.criteria.items()
    ]


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


def _render_state(state: object) -> str:
    if state is None:
        raise StateError("it is None", "Give text, or data that JSON can hold.")
    try:
        return render(state)
    except ValueError as error:
        raise StateError(str(error), "Give text, or data that JSON can hold.") from None
