"""A decision model from a folder: typed questions in, calibrated answers out, one pass for any number of them.

The folder holds model.onnx (inputs: four int64 arrays of shape (rows, tokens), output: logits of shape
(rows, tokens, 2); column 0 is read at the marker of a Noul, column 1 at the markers of a Choice's options and of a
Score's levels), tokenizer.json, decider.json and golden.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from decider.answers import Answer, Answers, Calibration, ChoiceAnswer, NoulAnswer, ScoreAnswer, Usage
from decider.errors import ModelFileError, ProviderError, RequestTooLargeError
from decider.layout import EncodedRequest, Layout, collate
from decider.manifest import GOLDEN_FILE, MODEL_FILE, TOKENIZER_FILE, Manifest, read_manifest
from decider.questions import Noul, Question, QuestionLike, Score, read_questions
from decider.session import OpenSession, open_session

SHIPPED_MODEL: Final = Path(__file__).parent / "models" / "desk"
# How far logits on CUDA may be from the golden ones, which the CPU computed.
CUDA_TOLERANCE: Final = 0.02

Request = tuple[object, Mapping[str, QuestionLike]]


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """A fixed request and the raw logits that the model gave for it: one number for a Noul, one an option."""

    state: object
    questions: dict[str, dict[str, object]]
    logits: dict[str, list[float]]


class Decider:
    """A loaded model. Safe to use from several threads."""

    def __init__(self, manifest: Manifest, layout: Layout, session: OpenSession, folder: Path) -> None:
        self.manifest = manifest
        self.layout = layout
        self.provider = session.provider
        self.folder = folder
        self._runner = session.runner

    @classmethod
    def load(cls, path: str | Path | None = None, provider: str = "auto", threads: int | None = None) -> Decider:
        """Load a model folder; None is the model that comes with the package.

        `provider` is "auto", "cpu" or "cuda" (see decider.session.open_session), `threads` the number of CPU threads.
        Raises ModelFileError, ProviderError or MissingPackageError; on CUDA also when golden.json is not reproduced.
        """
        folder = SHIPPED_MODEL if path is None else Path(path)
        manifest = read_manifest(folder)
        layout = Layout(Tokenizer.from_file(str(folder / TOKENIZER_FILE)), manifest.markers, manifest.limits)
        decider = cls(manifest, layout, open_session(folder / MODEL_FILE, provider, threads), folder)
        if decider.provider == "cuda" and (difference := decider.check_golden()) > CUDA_TOLERANCE:
            raise ProviderError(
                "cuda", f"its logits differ by {difference:.3g} from golden.json", "Use provider='cpu' and report it."
            )
        return decider

    def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        """Answer all questions about one state in one pass.

        `state` is text, data that JSON can hold, or a CuttableState; `questions` maps ids to Noul, Choice, Score or
        plain dictionaries. Ids never reach the model. Raises QuestionError, StateError or RequestTooLargeError.
        """
        return self.decide_many([(state, questions)])[0]

    def decide_many(self, requests: Sequence[Request]) -> list[Answers]:
        """Answer many states, each with its own questions, in one pass; none at all gives no answers and no pass."""
        asked = [(state, read_questions(questions)) for state, questions in requests]
        encoded = [self.layout.encode(state, questions) for state, questions in asked]
        logits = self._logits(encoded)
        answers: list[Answers] = []
        for (_, questions), request in zip(asked, encoded, strict=True):
            read = _read_logits(request, logits[: len(request.rows)])
            logits = logits[len(request.rows) :]
            answers.append(self._answers(questions, request, read))
        return answers

    def check_golden(self) -> float:
        """Ask the fixed requests of golden.json and return the largest difference of a logit to the stored one."""
        golden = read_golden(self.folder / GOLDEN_FILE)
        answers = self.decide_many([(case.state, case.questions) for case in golden])
        return max(
            abs(logit - expected)
            for case, given in zip(golden, answers, strict=True)
            for name, stored in case.logits.items()
            for logit, expected in zip(raw_logits(given[name]), stored, strict=True)
        )

    def _logits(self, encoded: Sequence[EncodedRequest]) -> NDArray[np.float32]:
        rows = [row for request in encoded for row in request.rows]
        if not rows:
            return np.zeros((0, 0, 2), dtype=np.float32)
        batch = collate(rows, self.layout.markers.pad)
        count, width = batch["input_ids"].shape
        if count * width * width > self.layout.limits.attention_cells:
            raise RequestTooLargeError(count, width, self.layout.limits.attention_cells)
        return np.asarray(self._runner.run(["logits"], batch)[0], dtype=np.float32)

    def _answers(
        self, questions: Mapping[str, Question], request: EncodedRequest, logits: Mapping[str, NDArray[np.float64]]
    ) -> Answers:
        calibration = self.manifest.calibration
        return Answers(
            {name: _answer(question, logits[name], calibration) for name, question in questions.items()},
            model=self.manifest.name,
            provider=self.provider,
            sha256=self.manifest.sha256,
            calibration=calibration,
            usage=Usage(request.tokens, 0, len(request.rows)),
            truncated=request.truncated,
        )


def read_golden(path: Path) -> list[GoldenCase]:
    """Read golden.json; raises ModelFileError when it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[GoldenCase])
    except (FileNotFoundError, msgspec.DecodeError) as error:
        raise ModelFileError(path, f"it cannot be read ({error})", "Restore it from the repository.") from error


def raw_logits(answer: Answer) -> list[float]:
    """Return the raw scores of an answer: one for a Noul, one an option or level, in their order, for the others."""
    if isinstance(answer, NoulAnswer):
        return [] if answer.logit is None else [answer.logit]
    return [] if answer.logits is None else list(answer.logits.values())


def _read_logits(request: EncodedRequest, logits: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
    """Return both columns at the markers of each question: shape (markers, 2)."""
    return {
        name: logits[index, places].astype(np.float64)
        for index, row in enumerate(request.rows)
        for name, places in row.markers.items()
    }


def _answer(question: Question, logits: NDArray[np.float64], calibration: Calibration) -> Answer:
    if isinstance(question, Noul):
        logit = float(logits[0, 0])
        return NoulAnswer(_sigmoid(logit / calibration.temperature("noul")), logit)
    raw: list[float] = logits[:, 1].tolist()
    if isinstance(question, Score):
        shares = _softmax(logits[:, 1] / calibration.temperature("score"))
        expected = sum(level * share for level, share in enumerate(shares))
        legend = dict(enumerate(question.criteria))
        return ScoreAnswer(expected, legend, dict(enumerate(shares)), dict(enumerate(raw)))
    shares = _softmax(logits[:, 1] / calibration.temperature("choice"))
    probabilities = dict(zip(question.options, shares, strict=True))
    best = max(question.options, key=lambda option: probabilities[option])
    return ChoiceAnswer(best, probabilities, dict(zip(question.options, raw, strict=True)))


def _softmax(scores: NDArray[np.float64]) -> list[float]:
    weights = np.exp(scores - scores.max())
    shares: list[float] = (weights / weights.sum()).tolist()
    return shares


def _sigmoid(value: float) -> float:
    """1 / (1 + e^-x), written so that neither side overflows."""
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
