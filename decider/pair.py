"""The layout `pair`: one sequence for each option, as cross-encoders and entailment models read it.

    [CLS] state [SEP] question option [SEP]

Each sequence holds the state, one question and one of its options, and the network reads it by itself. So nothing about
an answer depends on the other questions, and an option's score depends on no other option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from decider.passes import CELLS_PER_TOKEN
from decider.questions import Noul, Question
from decider.rows import (
    EncodedRequest,
    FloatArray,
    GraphInterface,
    IntArray,
    Limits,
    Scores,
    Words,
    check_length,
    option_texts,
    question_text,
)
from decider.specs import Column, Pair
from decider.templates import check_template, fill, token_ids


@dataclass(frozen=True, slots=True)
class PairRow:
    """One sequence: the state with one option of one question."""

    question_id: str
    inputs: Mapping[str, IntArray]

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])

    def pick(self, output: NDArray[np.float32]) -> dict[str, FloatArray]:
        """Return the sequence's columns, shape (columns,)."""
        return {self.question_id: output.astype(np.float64)}


class PairLayout:
    """Writes requests as one row an option."""

    def __init__(self, tokenizer: Tokenizer, spec: Pair, limits: Limits) -> None:
        """Raise ValueError where the tokenizer lacks a marker, or a text of the spec is no template."""
        check_template("noul_text", spec.noul_text, {"question"})
        check_template("option_text", spec.option_text, {"option"}, {"question"})
        self._before, self._between, self._after = (
            token_ids(tokenizer, pieces) for pieces in (spec.before, spec.between, spec.after)
        )
        (pad,) = token_ids(tokenizer, (spec.pad,))
        self._words = Words(tokenizer)
        self._spec = spec
        self.limits = limits
        self.cells_per_token = CELLS_PER_TOKEN
        read = (spec.noul.index, spec.noul.minus, spec.option.index, spec.option.minus)
        self.graph = GraphInterface(
            {name: pad if name == "input_ids" else 0 for name in spec.inputs},
            spec.output,
            per_token=False,
            least_columns=1 + max(index for index in read if index is not None),
        )

    def encode(self, state: object, questions: Mapping[str, Question]) -> EncodedRequest[PairRow]:
        """Return the rows: one for a Noul, one for each option or level of the others.

        Raises StateError and QuestionError as the shared layout does.
        """
        around = len(self._before) + len(self._between)
        encoded = self._words.state(state, self.limits, around)
        first = [*self._before, *encoded.tokens, *self._between]
        rows = []
        for name, question in questions.items():
            for text in self._second_texts(question):
                second = [*self._words(text), *self._after]
                check_length(name, len(second), self.limits.question, "with its longest option")
                rows.append(PairRow(name, self._inputs(first, second)))
        return EncodedRequest(rows, encoded.truncated, self._words.unread(state, questions))

    def read(self, question: Question, parts: Sequence[FloatArray]) -> Scores:
        """Return the column read of each sequence."""
        column = self._spec.noul if isinstance(question, Noul) else self._spec.option
        return Scores(np.array([_at(column, part) for part in parts]))

    def _second_texts(self, question: Question) -> list[str]:
        asked = question_text(question)
        if isinstance(question, Noul):
            return [fill(self._spec.noul_text, question=asked).strip()]
        return [fill(self._spec.option_text, question=asked, option=text).strip() for text in option_texts(question)]

    def _inputs(self, first: list[int], second: list[int]) -> dict[str, IntArray]:
        count = len(first) + len(second)
        values = {
            "input_ids": [*first, *second],
            "attention_mask": [1] * count,
            "token_type_ids": [0] * len(first) + [1] * len(second),
            "position_ids": range(count),
        }
        return {name: np.array(values[name], dtype=np.int64) for name in self._spec.inputs}


def _at(column: Column, columns: FloatArray) -> float:
    less = 0.0 if column.minus is None else float(columns[column.minus])
    return float(columns[column.index]) - less
