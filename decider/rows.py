"""What every layout has in common: rows for the network out of a request, and scores out of what the network gave.

A layout says how a state and its questions become sequences of tokens (`encode`), and how what the network gave for
those sequences becomes one raw score for each possible answer (`read`). The rest, batching, calibration, answers, is
the same for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from decider.errors import QuestionError, StateError
from decider.questions import Noul, Question, Score
from decider.rendering import CuttableState, render

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]

# WordPiece reads a word of more letters than this as one unknown token, however long it is: such words are broken up,
# so that no length of text passes for read.
LONGEST_WORD: Final = 100
_LONG_WORD: Final = re.compile(rf"\S{{{LONGEST_WORD}}}(?=\S)")


@dataclass(frozen=True, slots=True)
class Limits:
    """Lengths in tokens, markers and separators included.

    `state`: what is read of a state; longer ones are cut and the cut is reported. `state_refused`: from here on a
    state is an error. `question`: a stem and its longest option. `whole_question`: a stem and all its options.
    `row`: a row takes further questions up to this length. `attention_cells`: what one pass may cost, which bounds its
    memory (see decider.passes: the default keeps it under 1 GB); on a GPU at least decider.stream.CUDA_PASS.
    Where every question has a sequence of its own (the layouts `pair` and `causal`), `question` is all of that sequence
    but the state, and `whole_question` and `row` limit nothing.
    """

    state: int = 352
    state_refused: int = 2048
    question: int = 160
    whole_question: int = 3072
    row: int = 700
    attention_cells: int = 7_500_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"the limit {name!r} is {getattr(self, name)}: it must be at least 1")

    @property
    def positions(self) -> int:
        """How many positions the network must know."""
        return self.state + self.question


@dataclass(frozen=True, slots=True)
class GraphInterface:
    """What a layout needs of the graph of its network.

    `padding` maps each input, int64 of shape (rows, tokens), to the number that fills the end of shorter rows. The
    output is of shape (rows, tokens, columns) if `per_token`, else (rows, columns), with `least_columns` to
    `most_columns` columns (None: any more).
    """

    padding: Mapping[str, int]
    output: str
    per_token: bool
    least_columns: int
    most_columns: int | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """The raw scores of one question: one number for a Noul (the log-odds of yes), one an option or level for others.

    `answerable` is the log-odds that the state holds what is asked about; None where the network does not say.
    """

    values: FloatArray
    answerable: float | None = None


class AnyRow(Protocol):
    """One sequence of a batch."""

    @property
    def inputs(self) -> Mapping[str, IntArray]:
        """The graph's inputs for this sequence, each of shape (tokens,)."""
        ...

    def __len__(self) -> int:
        """How many tokens it has."""
        ...

    def pick(self, output: NDArray[np.float32]) -> dict[str, FloatArray]:
        """Return, by question id, the part of this sequence's output that the layout reads."""
        ...


RowT_co = TypeVar("RowT_co", bound=AnyRow, covariant=True)


@dataclass(frozen=True, slots=True)
class EncodedRequest(Generic[RowT_co]):
    """A state with its questions as one or more rows, and how many tokens of the state were left out.

    `unread` names the questions of which the tokenizer knows too little for an answer (see Words.unread).
    """

    rows: Sequence[RowT_co]
    truncated: int
    unread: frozenset[str] = frozenset()

    @property
    def tokens(self) -> int:
        """Tokens in all rows, without padding."""
        return sum(len(row) for row in self.rows)


class AnyLayout(Protocol):
    """How requests become rows, and what the network gave becomes scores."""

    @property
    def limits(self) -> Limits:
        """The lengths that are allowed."""
        ...

    @property
    def graph(self) -> GraphInterface:
        """What the network must take and give."""
        ...

    @property
    def cells_per_token(self) -> int:
        """What a token costs beyond its attention, in attention cells: more where the output is a whole vocabulary."""
        ...

    def encode(self, state: object, questions: Mapping[str, Question]) -> EncodedRequest[AnyRow]:
        """Return the rows of one request; raises StateError or QuestionError for what cannot be laid out."""
        ...

    def read(self, question: Question, parts: Sequence[FloatArray]) -> Scores:
        """Return the scores of a question from what its rows picked, in the order of the rows."""
        ...


@dataclass(frozen=True, slots=True)
class EncodedState:
    """The tokens of a state and how many had to be left out."""

    tokens: list[int]
    truncated: int


class Words:
    """Turns a user's text into tokens; nothing in it becomes a special token: "[SEP]" is five characters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        # Models of the kind Unigram do not say which token it is; by custom it is this one.
        self._unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "<unk>")
        self._breaks_up_words = isinstance(tokenizer.model, WordPiece)

    def __call__(self, text: str) -> list[int]:
        """Return the tokens of the text."""
        if self._breaks_up_words:
            text = _LONG_WORD.sub(r"\g<0> ", text)
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def unread(self, state: object, questions: Mapping[str, Question]) -> frozenset[str]:
        """Return the ids of the questions that cannot be read: the tokenizer knows nothing of them but marks.

        That is a question whose wording holds no word or number that the tokenizer knows, or one of whose options or
        levels holds nothing that it knows; and all of them where the state holds no such word or number.
        """
        parts = (state.head, state.cuttable, state.tail) if isinstance(state, CuttableState) else (state,)
        if not any(self._has_words(_render_state(part)) for part in parts):
            return frozenset(questions)
        return frozenset(name for name, question in questions.items() if not self._reads(question))

    def _reads(self, question: Question) -> bool:
        if not all(map(self._known, option_texts(question))):
            return False
        criteria = question.criteria if isinstance(question, Noul) else None
        said = (question.instructions, *(() if criteria is None else (criteria.true, criteria.false)))
        texts = [render(text) for text in said if text is not None]
        return not texts or any(map(self._has_words, texts))

    def _has_words(self, text: str) -> bool:
        pieces = map(self._tokenizer.id_to_token, self._known(text))
        return any(character.isalnum() for piece in pieces for character in piece or "")

    def _known(self, text: str) -> list[int]:
        return [token for token in self(text) if token != self._unknown]

    def state(self, state: object, limits: Limits, around: int, lead: str = "") -> EncodedState:
        """Return the state's tokens, cut at the end or where a CuttableState allows it.

        `around` counts the tokens that the layout puts around the state, which are part of its limits; `lead` is a
        space that belongs before the text.
        """
        parts = state if isinstance(state, CuttableState) else CuttableState("", _render_state(state))
        texts = [_render_state(part) for part in (parts.head, parts.cuttable, parts.tail)]
        if not any(text.strip() for text in texts):
            raise StateError("it says nothing", "Give the text or data that the questions are about.")
        between = lead
        for place, text in enumerate(texts):
            if text:
                texts[place], between = f"{between}{text}", "\n"
        head, cuttable, tail = (self(text) for text in texts)
        total = len(head) + len(cuttable) + len(tail) + around
        if total == around:
            raise StateError("it says nothing", "Give the text or data that the questions are about.")
        if total > limits.state_refused:
            raise StateError(
                f"it has {total} tokens and the limit is {limits.state_refused}",
                "Shorten it to what the questions need.",
                total,
                limits.state_refused,
            )
        too_many = max(0, total - limits.state)
        if too_many > len(cuttable):
            raise StateError(
                f"the parts that must not be cut have {total - len(cuttable)} tokens and the limit is {limits.state}",
                "Shorten head and tail, or move text into the cuttable part.",
                total - len(cuttable),
                limits.state,
            )
        return EncodedState([*head, *cuttable[: len(cuttable) - too_many], *tail], too_many)


def collate(rows: Sequence[AnyRow], padding: Mapping[str, int]) -> dict[str, IntArray]:
    """Return the graph's inputs, each of shape (rows, tokens of the longest row), int64."""
    width = max((len(row) for row in rows), default=0)
    batch = {name: np.full((len(rows), width), filler, dtype=np.int64) for name, filler in padding.items()}
    for index, row in enumerate(rows):
        for name, values in row.inputs.items():
            batch[name][index, : len(row)] = values
    return batch


def option_texts(question: Question) -> list[str]:
    """What the options of a Choice and the levels of a Score say, in their order; nothing for a Noul."""
    if isinstance(question, Noul):
        return []
    if isinstance(question, Score):
        return [render(level) for level in question.criteria]
    return [
        name if description is None else f"{name}: {render(description)}"
        for name, description in question.criteria.items()
    ]


def question_text(question: Question) -> str:
    """What is asked, without options: the instructions and, for a Noul, what yes and no mean, a line each."""
    lines = [] if question.instructions is None else [render(question.instructions)]
    if isinstance(question, Noul) and question.criteria is not None:
        for word, outcome in (("yes", question.criteria.true), ("no", question.criteria.false)):
            if outcome is not None:
                lines.append(f"{word}: {render(outcome)}")
    return "\n".join(lines)


def check_length(question_id: str, tokens: int, limit: int, which: str) -> None:
    """Raise QuestionError where a question has more tokens than its limit."""
    if tokens > limit:
        raise QuestionError(
            "instructions",
            f"the question {which} has {tokens} tokens and the limit is {limit}",
            "Questions and options are never cut: shorten the wording.",
            question_id,
        )


def _render_state(state: object) -> str:
    if state is None:
        raise StateError("it is None", "Give text, or data that JSON can hold.")
    try:
        return render(state)
    except ValueError as error:
        raise StateError(str(error), "Give text, or data that JSON can hold.") from None
