"""A decision model from a folder: typed questions in, calibrated answers out, one pass for any number of them.

What a call costs is one pass of the network over all its rows, padded to the longest: `decide` and `decide_many` run
one, and refuse a call that is too big for one. Who would rather have several passes says so: with `max_waste`, rows of
similar length run together and no pass is too big; `decide_iter` answers a stream of any length in bounded memory.
The answers are the same whichever way they are asked for.

The folder holds model.onnx, tokenizer.json, decider.json, golden.json and, for the intervals of yes/no answers,
calibration.json. decider.json says how the model is asked and read (see decider.specs).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from decider.answers import Answer, Answers, Calibration, ChoiceAnswer, NoulAnswer, ScoreAnswer, Usage
from decider.calibration.stored import read_stored
from decider.calibration.venn_abers import VennAbers
from decider.errors import (
    ModelFileError,
    ModelOutputError,
    ProviderError,
    RequestTooLargeError,
    about_request,
)
from decider.graph import check_graph
from decider.layouts import open_layout, read_tokenizer
from decider.manifest import GOLDEN_FILE, MODEL_FILE, TOKENIZER_FILE, Manifest, read_manifest
from decider.passes import cells, plan_passes
from decider.protocol import Encoded, Request
from decider.questions import Noul, Question, QuestionLike, Score, read_questions
from decider.rows import AnyLayout, AnyRow, EncodedRequest, FloatArray, IntArray, Scores, collate
from decider.session import OpenSession, Provider, open_session
from decider.specs import Shared
from decider.stream import CPU_PASS, CUDA_PASS, answer_stream

SHIPPED_MODEL: Final = Path(__file__).parent / "models" / "desk"
# How far logits may be from the golden ones, which a CPU computed, perhaps of another make.
TOLERANCE: Final[Mapping[Provider, float]] = {"cpu": 0.002, "cuda": 0.02}


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """A fixed request and the raw logits that the model gave for it: one number for a Noul, one an option."""

    state: object
    questions: dict[str, dict[str, object]]
    logits: dict[str, list[float]]


class Decider:
    """A loaded model. Safe to use from several threads.

    `provider` is what computes it, "cpu" or "cuda"; `provider_reason` says why not CUDA when that was tried in vain.
    """

    def __init__(
        self,
        manifest: Manifest,
        layout: AnyLayout,
        session: OpenSession,
        folder: Path,
        intervals: VennAbers | None = None,
    ) -> None:
        self.manifest = manifest
        self.layout = layout
        self.provider: Final[Provider] = session.provider
        self.provider_reason = session.reason
        self.folder = folder
        self.intervals = intervals
        self._runner = session.runner

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        provider: str = "auto",
        threads: int | None = None,
        spinning: bool = False,
        verify: bool = False,
    ) -> Decider:
        """Load a model folder; None is the model that comes with the package.

        `provider` is "auto", "cpu" or "cuda", `threads` the number of CPU threads, `spinning` whether they stay awake
        between passes (see decider.session.open_session). With `verify`, and always on CUDA, the requests of
        golden.json are asked first. Raises ModelFileError, ProviderError (also when golden.json is not reproduced) or
        MissingPackageError.
        """
        folder = SHIPPED_MODEL if path is None else Path(path)
        manifest = read_manifest(folder)
        tokenizer = read_tokenizer(folder / TOKENIZER_FILE)
        layout = open_layout(folder, tokenizer, manifest.layout, manifest.limits)
        stored = read_stored(folder, manifest.sha256)
        bound = isinstance(manifest.layout, Shared)
        session = open_session(folder / MODEL_FILE, provider, threads, spinning=spinning, bound=bound)
        if session.session is not None:
            check_graph(folder / MODEL_FILE, session.session, layout, tokenizer)
        decider = cls(manifest, layout, session, folder, None if stored is None else stored.noul)
        if verify or decider.provider == "cuda":
            decider._verify()
        return decider

    def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        """Answer all questions about one state in one pass.

        `state` is text, data that JSON can hold, or a CuttableState; `questions` maps ids to Noul, Choice, Score or
        plain dictionaries. Ids never reach the model. Raises QuestionError, StateError or RequestTooLargeError.
        """
        return self.decide_many([(state, questions)])[0]

    def decide_many(self, requests: Sequence[Request], max_waste: float | None = None) -> list[Answers]:
        """Answer many states, each with its own questions; none at all gives no answers and no pass.

        All in one pass, and RequestTooLargeError when that needs too much memory. With `max_waste`, the share of a
        pass that may be padding (0 to 1), in as many passes as that takes, each within the limit: worth it on a CPU
        when lengths differ. The error of a bad request says in a note which one it was.
        """
        encoded = []
        for place, (state, questions) in enumerate(requests):
            with about_request(place):
                encoded.append(self.encode(state, questions))
        return self.decide_encoded(encoded, max_waste)

    def decide_iter(
        self, requests: Iterable[Request], max_waste: float = 0.25, progress: bool = False
    ) -> Iterator[Answers]:
        """Answer a stream of any length, in its order and in bounded memory, in many small passes.

        Reads a few hundred rows ahead. `max_waste` is as for decide_many; `progress` shows on standard error how many
        questions are answered. A bad request raises, with its place in a note, after the answers to all before it.
        """
        pass_cells = CUDA_PASS if self.provider == "cuda" else CPU_PASS
        return answer_stream(self, requests, max_waste, pass_cells, progress)

    def encode(self, state: object, questions: Mapping[str, QuestionLike]) -> Encoded:
        """Check a request and lay it out, without asking it.

        Raises QuestionError, StateError, or RequestTooLargeError when one question alone is too big for a pass.
        """
        records = read_questions(questions)
        encoded = self.layout.encode(state, records)
        self._refuse_too_large(1, max(len(row) for row in encoded.rows))
        return Encoded(records, encoded)

    def decide_encoded(
        self, encoded: Sequence[Encoded], max_waste: float | None = None, max_cells: int | None = None
    ) -> list[Answers]:
        """Answer requests that `encode` laid out, as decide_many does.

        Where several passes are allowed, `max_cells` keeps each below so many attention cells, unless one row alone has
        more; the model's own limit holds for every pass.
        """
        rows = [row for each in encoded for row in each.request.rows]
        read = iter(self._read(rows, max_waste, max_cells))
        answers = []
        for each in encoded:
            parts: dict[str, list[FloatArray]] = {name: [] for name in each.questions}
            for _ in each.request.rows:
                for name, part in next(read).items():
                    parts[name].append(part)
            scores = {name: self.layout.read(question, parts[name]) for name, question in each.questions.items()}
            answers.append(self._answers(each.questions, each.request, scores))
        return answers

    def run(self, batch: Mapping[str, IntArray]) -> NDArray[np.float32]:
        """Run the network once and return its output as it is; see decider.rows.GraphInterface for its shape."""
        return np.asarray(self._runner.run([self.layout.graph.output], batch)[0], dtype=np.float32)

    def check_golden(self) -> float:
        """Ask the fixed requests of golden.json and return the largest difference of a logit to the stored one."""
        golden = read_golden(self.folder / GOLDEN_FILE)
        answers = self.decide_many([(case.state, case.questions) for case in golden])
        differences = [
            abs(logit - expected)
            for case, given in zip(golden, answers, strict=True)
            for name, stored in case.logits.items()
            for logit, expected in zip(raw_logits(given[name]), stored, strict=True)
        ]
        return float(np.max(differences))  # NaN when one of them is

    def _verify(self) -> None:
        try:
            difference = self.check_golden()
        except ModelOutputError:
            difference = math.nan
        if not difference <= TOLERANCE[self.provider]:  # NaN is no agreement either
            other = "Use provider='cpu' and report it." if self.provider == "cuda" else "Restore the model's folder."
            raise ProviderError(self.provider, f"its logits differ by {difference:.3g} from golden.json", other)

    def _read(
        self, rows: Sequence[AnyRow], max_waste: float | None, max_cells: int | None
    ) -> list[dict[str, FloatArray]]:
        """Return what each row picks for its questions; the rows of a pass are held to the limit before it runs."""
        limit, per_token = self.layout.limits.attention_cells, self.layout.cells_per_token
        read: list[dict[str, FloatArray]] = [{} for _ in rows]
        if max_waste is None:
            plan = [list(range(len(rows)))] if rows else []
        else:
            plan = plan_passes([len(row) for row in rows], max_waste, min(max_cells or limit, limit), per_token)
        for places in plan:
            self._refuse_too_large(len(places), max(len(rows[place]) for place in places))
            batch = collate([rows[place] for place in places], self.layout.graph.padding)
            output = self.run(batch)
            for index, place in enumerate(places):
                read[place] = rows[place].pick(output[index])
        return read

    def _refuse_too_large(self, rows: int, tokens: int) -> None:
        limit = self.layout.limits.attention_cells
        needed = cells(rows, tokens, self.layout.cells_per_token)
        if needed > limit:
            raise RequestTooLargeError(rows, tokens, limit, needed)

    def _answers(
        self, questions: Mapping[str, Question], request: EncodedRequest[AnyRow], scores: Mapping[str, Scores]
    ) -> Answers:
        calibration = self.manifest.calibration
        return Answers(
            {
                name: _answer(name, question, scores[name], calibration, self.intervals)
                for name, question in questions.items()
            },
            model=self.manifest.name,
            provider=self.provider,
            precision=self.manifest.precision,
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


def _answer(
    name: str, question: Question, scores: Scores, calibration: Calibration, intervals: VennAbers | None
) -> Answer:
    values = scores.values
    if not np.isfinite(values).all() or not math.isfinite(scores.answerable or 0.0):
        raise ModelOutputError(name)
    answerable = None
    if scores.answerable is not None:
        answerable = _sigmoid(scores.answerable / calibration.temperature("answerable"))
    known = 1.0 if answerable is None else answerable  # what cannot be answered is left even
    if isinstance(question, Noul):
        logit = float(values[0])
        interval = None if intervals is None else intervals.interval(logit * known)
        return NoulAnswer(_sigmoid(logit * known / calibration.temperature("noul")), logit, answerable, interval)
    raw: list[float] = values.tolist()
    if isinstance(question, Score):
        shares = _softmax(values * known / calibration.temperature("score"))
        expected = sum(level * share for level, share in enumerate(shares))
        legend = dict(enumerate(question.criteria))
        return ScoreAnswer(expected, legend, dict(enumerate(shares)), dict(enumerate(raw)), answerable)
    shares = _softmax(values * known / calibration.temperature("choice"))
    probabilities = dict(zip(question.options, shares, strict=True))
    best = max(question.options, key=lambda option: probabilities[option])
    return ChoiceAnswer(best, probabilities, dict(zip(question.options, raw, strict=True)), answerable)


def _softmax(scores: FloatArray) -> list[float]:
    weights = np.exp(scores - scores.max())
    shares: list[float] = (weights / weights.sum()).tolist()
    return shares


def _sigmoid(value: float) -> float:
    """1 / (1 + e^-x), written so that neither side overflows."""
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
