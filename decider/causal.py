"""The layout `causal`: a language model answers by the probabilities of the tokens that may come next.

A question is a prompt and its possible continuations: " yes" and " no" for a Noul, a letter or the option's own text
for the others. What is read is the log-probability of each continuation, never a text that the model writes. Every
question has a prompt of its own, so the other questions change nothing; options are listed in alphabetical order, so
neither does the order in which they were given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from decider.errors import QuestionError
from decider.passes import BYTES_PER_CELL, CELLS_PER_TOKEN
from decider.questions import Choice, Noul, Question
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
from decider.specs import Causal
from decider.templates import check_template, fill, split, token_ids

# A number of the output takes 4 bytes.
NUMBERS_PER_CELL: Final = BYTES_PER_CELL // 4


@dataclass(frozen=True, slots=True)
class Continuation:
    """Tokens that may follow a prompt: `answer` counts the answers of the question; one may have several wordings."""

    answer: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CausalRow:
    """A prompt with all but the last token of the continuations that are read from it; these differ in the last alone.

    `first` is the place whose output predicts the first token of the continuations.
    """

    question_id: str
    inputs: Mapping[str, IntArray]
    first: int
    read: tuple[Continuation, ...]
    per_token: bool

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])

    def pick(self, output: NDArray[np.float32]) -> dict[str, FloatArray]:
        """Return for each continuation its answer and its log-probability, shape (continuations, 2)."""
        logs = _log_softmax(output[self.first : len(self)].astype(np.float64))
        places = np.arange(len(logs))
        found = []
        for continuation in self.read:
            log = logs[places, list(continuation.tokens)].sum()
            found.append((continuation.answer, log / len(places) if self.per_token else log))
        return {self.question_id: np.array(found)}


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt's tokens, how many of them are the state's, and how many of the state's were left out."""

    tokens: list[int]
    of_state: int
    truncated: int


class CausalLayout:
    """Writes requests as prompts; one row for each beginning of an answer."""

    def __init__(self, tokenizer: Tokenizer, spec: Causal, limits: Limits) -> None:
        """Raise ValueError where the tokenizer cannot tell the answers apart, or the spec contradicts itself."""
        _check_templates(spec)
        (pad,) = token_ids(tokenizer, (spec.pad,))
        self._start = token_ids(tokenizer, spec.start)
        # The prompts' own text may hold special tokens, so it is read before Words takes all text as text.
        tokenizer.encode_special_tokens = False
        self._literals = {
            text: list(tokenizer.encode(text, add_special_tokens=False).ids)
            for prompt in (spec.noul_prompt, spec.letters_prompt, spec.text_prompt)
            for text in (part.literal.removesuffix(" ") for part in split(prompt))
        }
        self._words = Words(tokenizer)
        self._spec = spec
        unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "")
        if not spec.yes or not spec.no:
            raise ValueError("yes and no: each needs at least one wording")
        yes_or_no = [
            (answer, text, self._answer_tokens(text))
            for answer, texts in enumerate((spec.yes, spec.no))
            for text in texts
        ]
        _check_told_apart("yes and no", yes_or_no, unknown)
        letters = [(answer, text, self._answer_tokens(text)) for answer, text in enumerate(spec.letters)]
        if spec.options != "text":
            _check_told_apart("letters", letters, unknown)
        self._yes_or_no = list(dict.fromkeys(Continuation(answer, tokens) for answer, _, tokens in yes_or_no))
        self._letters = [tokens for _, _, tokens in letters]
        self.limits = limits
        vocabulary = tokenizer.get_vocab_size(with_added_tokens=True)
        self.cells_per_token = CELLS_PER_TOKEN + vocabulary // NUMBERS_PER_CELL
        self.graph = GraphInterface(
            {name: pad if name == "input_ids" else 0 for name in spec.inputs},
            spec.output,
            per_token=True,
            least_columns=1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0),
        )

    def encode(self, state: object, questions: Mapping[str, Question]) -> EncodedRequest[CausalRow]:
        """Return the rows.

        Raises StateError and QuestionError as the shared layout does, and QuestionError for more options than letters
        where the model's manifest wants letters.
        """
        rows: list[CausalRow] = []
        truncated = 0
        for name, question in questions.items():
            template, texts, continuations = self._asked(name, question)
            prompt = self._prompt(template, state, texts)
            truncated = prompt.truncated
            mean = self._spec.per_token and template == self._spec.text_prompt
            in_order = sorted(continuations, key=lambda continuation: continuation.tokens[:-1])
            for beginning, group in groupby(in_order, key=lambda continuation: continuation.tokens[:-1]):
                tokens = [*prompt.tokens, *beginning]
                check_length(name, len(tokens) - prompt.of_state, self.limits.question, "with its prompt and answer")
                rows.append(CausalRow(name, self._inputs(tokens), len(prompt.tokens) - 1, tuple(group), mean))
        return EncodedRequest(rows, truncated, self._words.unread(state, questions))

    def read(self, question: Question, parts: Sequence[FloatArray]) -> Scores:
        """Return the log-probability of each answer, its wordings added up; of a Noul, that of yes less that of no."""
        found = np.concatenate(parts)
        answers = 1 + int(found[:, 0].max())
        logs = np.array([np.logaddexp.reduce(found[found[:, 0] == answer, 1]) for answer in range(answers)])
        return Scores(logs[:1] - logs[1:] if isinstance(question, Noul) else logs)

    def _asked(self, name: str, question: Question) -> tuple[str, dict[str, str], list[Continuation]]:
        """Return the prompt's template, the texts for its places, and what may follow it."""
        asked = {"question": question_text(question)}
        if isinstance(question, Noul):
            return self._spec.noul_prompt, asked, self._yes_or_no
        listed = _in_listed_order(question)
        if self._spec.options != "text" and len(listed) <= len(self._letters):
            by_letter = [Continuation(place, tokens) for (place, _), tokens in zip(listed, self._letters, strict=False)]
            lines = [
                fill(self._spec.letter_line, letter=letter.strip(), option=text)
                for letter, (_, text) in zip(self._spec.letters, listed, strict=False)
            ]
            return self._spec.letters_prompt, {**asked, "options": "\n".join(lines)}, by_letter
        if self._spec.options == "letters":
            raise QuestionError(
                "criteria",
                f"it has {len(listed)} options and the model answers with one of {len(self._letters)} letters",
                'Give fewer, or write options = "letters, then text" in decider.json.',
                name,
                "too_long",
            )
        texts = question.options if isinstance(question, Choice) else option_texts(question)
        try:
            by_text = [
                Continuation(place, self._answer_tokens(f"{self._spec.before_option}{text}"))
                for place, text in enumerate(texts)
            ]
        except ValueError as error:
            raise QuestionError("criteria", str(error), "Name the option in letters.", name) from None
        lines = [fill(self._spec.option_line, option=text) for _, text in listed]
        return self._spec.text_prompt, {**asked, "options": "\n".join(lines)}, by_text

    def _prompt(self, template: str, state: object, texts: Mapping[str, str]) -> _Prompt:
        """Return the prompt's tokens; a space before a place belongs to the text in it, as tokenizers want it."""
        tokens = [*self._start]
        of_state = truncated = 0
        for part in split(template):
            literal = part.literal.removesuffix(" ")
            lead = part.literal[len(literal) :]
            tokens += self._literals[literal]
            if part.place == "state":
                encoded = self._words.state(state, self.limits, 0, lead)
                of_state, truncated = len(encoded.tokens), encoded.truncated
                tokens += encoded.tokens
            elif part.place is not None and texts[part.place]:
                tokens += self._words(f"{lead}{texts[part.place]}")
        return _Prompt(tokens, of_state, truncated)

    def _answer_tokens(self, text: str) -> tuple[int, ...]:
        tokens = tuple(self._words(text))
        if not tokens:
            raise ValueError(f"the tokenizer makes no token of the answer {text!r}")
        return tokens

    def _inputs(self, tokens: list[int]) -> dict[str, IntArray]:
        values = {
            "input_ids": tokens,
            "attention_mask": [1] * len(tokens),
            "token_type_ids": [0] * len(tokens),
            "position_ids": range(len(tokens)),
        }
        return {name: np.array(values[name], dtype=np.int64) for name in self._spec.inputs}


def _in_listed_order(question: Question) -> list[tuple[int, str]]:
    """Return the options' texts with their places in the question: options by the alphabet, levels as they are."""
    texts = list(enumerate(option_texts(question)))
    if isinstance(question, Choice):
        texts.sort(key=lambda option: (option[1], question.options[option[0]]))
    return texts


def _log_softmax(logits: FloatArray) -> FloatArray:
    """Return the logarithms of the probabilities along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs


def _check_templates(spec: Causal) -> None:
    check_template("noul_prompt", spec.noul_prompt, {"state", "question"})
    check_template("letters_prompt", spec.letters_prompt, {"state", "question", "options"})
    check_template("text_prompt", spec.text_prompt, {"state", "question"}, {"options"})
    check_template("letter_line", spec.letter_line, {"letter", "option"})
    check_template("option_line", spec.option_line, {"option"})


def _check_told_apart(what: str, answers: Sequence[tuple[int, str, tuple[int, ...]]], unknown: int | None) -> None:
    """Raise ValueError where the tokens of one text begin those of another: their probabilities would overlap.

    Texts of one answer may be the same tokens, as "yes" and "Yes" are for a tokenizer that writes small letters alone.
    """
    for answer, text, tokens in answers:
        if unknown in tokens:
            raise ValueError(f"{what}: the tokenizer does not know {text!r}; write it as the tokenizer does")
        for other, other_text, other_tokens in answers:
            same = answer == other and tokens == other_tokens
            if not same and other_tokens[: len(tokens)] == tokens:
                raise ValueError(
                    f"{what}: the tokenizer splits {other_text!r} into {list(other_tokens)}, which begins with all of "
                    f"{text!r}, {list(tokens)}; leave one of them out, or write it as the tokenizer does"
                )
