"""The part `layout` of decider.json: how a model reads a state and its questions, and how its output is to be read.

`shared` is the layout of the models trained here; `pair` is that of cross-encoders and entailment models, one sequence
an option; `causal` is that of language models, whose next token is the answer.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from decider.layout import Markers

InputName: TypeAlias = Literal["input_ids", "attention_mask", "token_type_ids", "position_ids"]

ColumnIndex: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

LETTERS: Final = tuple(f" {letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


class Shared(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="shared", tag_field="kind"):
    """All questions about a state in one sequence; see decider.layout. `markers` are token ids."""

    markers: Markers


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of a sequence's output: column `index`, less column `minus` where there is one.

    An entailment model says yes by "entailment" less "contradiction".
    """

    index: ColumnIndex = 0
    minus: ColumnIndex | None = None


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="pair", tag_field="kind"):
    """One sequence an option: `before`, the state, `between`, the text asked about, `after`.

    The second text is `noul_text` with the question in place of {question}, or `option_text` with {question} and
    {option}. `pad` and the markers are pieces of the tokenizer. Output: (rows, columns), one row a sequence, of which
    `noul` and `option` are read.
    """

    pad: str = "[PAD]"
    before: tuple[str, ...] = ("[CLS]",)
    between: tuple[str, ...] = ("[SEP]",)
    after: tuple[str, ...] = ("[SEP]",)
    inputs: tuple[InputName, ...] = ("input_ids", "attention_mask", "token_type_ids")
    output: str = "logits"
    noul: Column = Column()
    option: Column = Column()
    noul_text: str = "{question}"
    option_text: str = "{question} {option}"


class Causal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="causal", tag_field="kind"):
    """A language model whose next token is the answer: logits over the vocabulary, (rows, tokens, vocabulary).

    A Noul follows `noul_prompt`; its answers are the texts `yes` and `no`, the probabilities of each side added up. A
    Choice or a Score is answered by one of `letters` after `letters_prompt` or, with `options` = "text", by the text of
    each option after `text_prompt`, with `before_option` in front of it; with `per_token` the mean log-probability of
    its tokens counts, not the sum. "letters, then text" takes the text where there are more options than letters, where
    "letters" refuses. Options are listed, a `letter_line` or an `option_line` each, in alphabetical order, and levels
    in their own, so the order in which options are given changes nothing.

    Prompts name {state}, {question} and {options}; the rest of them may hold the tokenizer's special tokens. `start`
    and `pad` are pieces of the tokenizer.
    """

    pad: str
    start: tuple[str, ...] = ()
    inputs: tuple[InputName, ...] = ("input_ids", "attention_mask")
    output: str = "logits"
    yes: tuple[str, ...] = (" yes", " Yes")
    no: tuple[str, ...] = (" no", " No")
    options: Literal["letters", "text", "letters, then text"] = "letters, then text"
    letters: tuple[str, ...] = LETTERS
    per_token: bool = False
    before_option: str = " "
    letter_line: str = "{letter}. {option}"
    option_line: str = "- {option}"
    noul_prompt: str = "{state}\n\nQuestion: {question}\nAnswer yes or no.\nAnswer:"
    letters_prompt: str = "{state}\n\nQuestion: {question}\n{options}\nAnswer with one letter.\nAnswer:"
    text_prompt: str = "{state}\n\nQuestion: {question}\n{options}\nAnswer:"


Spec: TypeAlias = Shared | Pair | Causal
"""How a model is asked and read."""
