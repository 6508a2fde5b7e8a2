"""A decision model from a folder: typed questions in, calibrated answers out, one pass for any number of them.

What a call costs is one pass of the network over all its rows, padded to the longest, or several where one would need
more memory than the model's limit allows. With `max_waste`, rows of similar length run together; `decide_iter` answers
a stream of any length in bounded memory. The answers are the same whichever way they are asked for.

The folder holds model.onnx, tokenizer.json, decider.json, golden.json and, for the intervals of yes/no answers,
calibration.json. decider.json says how the model is asked and read (see decider.specs).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
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
from decider.passes import cells, check_waste, next_pass, plan_passes
from decider.protocol import Encoded, Picked, Request
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
        """Answer all questions about one state, in one pass if they fit into one.

        `state` is text, data that JSON can hold, or a CuttableState; `questions` maps ids to Noul, Choice, Score or
        plain dictionaries. Ids never reach the model. Raises QuestionError, StateError or RequestTooLargeError.
        """
        return self.decide_many([(state, questions)])[0]

    def decide_many(self, requests: Sequence[Request], max_waste: float = 1.0) -> list[Answers]:
        """Answer many states, each with its own questions; none at all gives no answers and no pass.

        All in one pass, or in as few as the limit of its memory allows. `max_waste` is the share of a pass that may be
        padding, 0 to 1: with less than 1, rows of similar length run together in as many passes as that takes, which is
        worth it on a CPU when lengths differ. The error of a bad request says in a note which one it was.
        """
        check_waste(max_waste)
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
        requests are answered. A bad request raises, with its place in a note, after the answers to all before it; so
        does an error that `requests` itself raises, which comes through as it is.
        """
        check_waste(max_waste)
        pass_cells = CUDA_PASS if self.provider == "cuda" else CPU_PASS
        return answer_stream(self, requests, max_waste, pass_cells, progress)

    def encode(self, state: object, questions: Mapping[str, QuestionLike]) -> Encoded:
        """Check a request and lay it out, without asking it.

        Raises QuestionError, StateError, or RequestTooLargeError when one question alone is too big for a pass.
        """
        records = read_questions(questions)
        encoded = self.layout.encode(state, records)
        self._refuse_too_large(max(len(row) for row in encoded.rows))
        return Encoded(records, encoded)

    def decide_encoded(
        self, encoded: Sequence[Encoded], max_waste: float = 1.0, max_cells: int | None = None
    ) -> list[Answers]:
        """Answer requests that `encode` laid out, as decide_many does.

        `max_cells` keeps the cost of each pass (see decider.passes) below that, unless one row alone costs more; the
        model's own limit holds for every pass.
        """
        rows = [row for each in encoded for row in each.request.rows]
        picked: dict[int, Picked] = {}
        lengths = [len(row) for row in rows]
        for places in plan_passes(lengths, max_waste, self._most_cells(max_cells), self.layout.cells_per_token):
            picked |= zip(places, self._run([rows[place] for place in places]), strict=True)
        in_order = iter([picked[place] for place in range(len(rows))])
        return [self.answer(each, list(islice(in_order, len(each.request.rows)))) for each in encoded]

    def run_pass(
        self, rows: Sequence[AnyRow], max_waste: float = 1.0, max_cells: int | None = None
    ) -> dict[int, Picked]:
        """Run one pass over the first row and those of the others that fit in beside it; return by place what it gave.

        For who shares the network between several callers: `encode` gives the rows, `answer` takes what was picked.
        """
        if not rows:
            return {}
        lengths = [len(row) for row in rows]
        places = next_pass(lengths, max_waste, self._most_cells(max_cells), self.layout.cells_per_token)
        return dict(zip(places, self._run([rows[place] for place in places]), strict=True))

    def answer(self, encoded: Encoded, picked: Sequence[Picked]) -> Answers:
        """Make the answers to a request of what its rows gave, in their order; raises ModelOutputError."""
        parts: dict[str, list[FloatArray]] = {name: [] for name in encoded.questions}
        for each in picked:
            for name, part in each.items():
                parts[name].append(part)
        scores = {name: self.layout.read(question, parts[name]) for name, question in encoded.questions.items()}
        return self._answers(encoded.questions, encoded.request, scores)

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

    def _run(self, rows: Sequence[AnyRow]) -> list[Picked]:
        """Run the network once over these rows and return what each of them picks."""
        output = self.run(collate(rows, self.layout.graph.padding))
        return [row.pick(output[index]) for index, row in enumerate(rows)]

    def _most_cells(self, wanted: int | None = None) -> int:
        """Return what a pass may cost: what is wanted, if the limit allows it."""
        limit = self.layout.limits.attention_cells
        if self.provider == "cuda":
            limit = max(limit, CUDA_PASS)
        if wanted is None:
            return limit
        if wanted < 1:
            raise ValueError(f"max_cells is {wanted}: give what a pass may cost in attention cells, at least 1")
        return min(wanted, limit)

    def _refuse_too_large(self, tokens: int) -> None:
        needed, limit = cells(1, tokens, self.layout.cells_per_token), self._most_cells()
        if needed > limit:
            raise RequestTooLargeError(tokens, needed, limit)

    def _answers(
        self, questions: Mapping[str, Question], request: EncodedRequest[AnyRow], scores: Mapping[str, Scores]
    ) -> Answers:
        calibration = self.manifest.calibration
        return Answers(
            {
                name: _answer(name, question, scores[name], calibration, self.intervals, name in request.unread)
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
    name: str,
    question: Question,
    scores: Scores,
    calibration: Calibration,
    intervals: VennAbers | None,
    unread: bool,
) -> Answer:
    values = scores.values
    if not np.isfinite(values).all() or not math.isfinite(scores.answerable or 0.0):
        raise ModelOutputError(name)
    answerable = 0.0 if unread else None
    if scores.answerable is not None and not unread:
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
