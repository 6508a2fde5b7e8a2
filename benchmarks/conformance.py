"""Serves a decision model on this machine and lets other people's tools judge it.

    python benchmarks/conformance.py [MODEL_FOLDER] [--mini] [--threads N] [--json FILE]

* jevcompat: the conformance suite of the wire format, once with a key and once without;
* typesafe-sdk: the official client must parse every answer and give the numbers the model gives in this process;
* jev-eval: runs and reports on labelled_requests.jsonl beside this file;
* jevbench: how coherent the probabilities are on its `examples` (one text), with --mini on `jevbench-mini` (240 texts,
  some minutes). It has no right answers: one who always says 0.5 scores 89.4, so the score is printed and not judged.

The exit code is 0 when the first three pass.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import jev_eval.cli
import jevbench
import jevcompat.runner
import typesafe_sdk
from loopback import LoopbackServer

from decider import Answers, Choice, Decider, Noul, Question, Score
from decider.model import SHIPPED_MODEL
from decider.serve import ModelCard, create_app
from decider.wire import write_question

LABELLED: Final = Path(__file__).with_name("labelled_requests.jsonl")
KEY: Final = "conformance-key"
# For one request: 255 options take seconds where the processor is free, minutes where others use it.
SECONDS: Final = 600.0
STATE: Final = "Request: I cannot come on Friday, so please take me off the list and send the fee back."
LEAVES: Final = "Does the writer give up the place?"
WISH: Final = "What is wanted?"
WISHES: Final = {
    "cancel": "to give up the place",
    "register": "to get a place",
    "transfer": "to hand the place to another person",
    "ask": "to learn something",
}
UPSET: Final = "How does the writer feel?"
MOODS: Final = ("calm", "displeased", "angry")
QUESTIONS: Final[Mapping[str, Question]] = {
    "leaves": Noul(LEAVES),
    "wish": Choice(WISHES, WISH),
    "upset": Score(MOODS, UPSET),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one tool said; `passed` is None where it only measures."""

    tool: str
    passed: bool | None
    summary: str
    problems: Sequence[str] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; prints one line a tool, and the problems that it found."""
    parser = argparse.ArgumentParser(description="Let other people's tools judge a served decision model.")
    parser.add_argument("model", type=Path, nargs="?", default=SHIPPED_MODEL)
    parser.add_argument("--mini", action="store_true", help="jevbench-mini instead of the examples")
    parser.add_argument("--threads", type=int, help="CPU threads of the model")
    parser.add_argument("--json", type=Path, help="also write the verdicts to this file")
    options = parser.parse_args(arguments)
    verdicts = []
    for verdict in judge(Decider.load(options.model, "cpu", options.threads), options.mini):
        mark = {True: "pass", False: "FAIL", None: "    "}[verdict.passed]
        sys.stdout.write(
            f"{mark}  {verdict.tool:<24}{verdict.summary}\n" + "".join(f"      {p}\n" for p in verdict.problems)
        )
        sys.stdout.flush()
        verdicts.append(verdict)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=2) + "\n")
    return 0 if all(verdict.passed is not False for verdict in verdicts) else 1


def judge(decider: Decider, mini: bool) -> Iterator[Verdict]:
    """Yield what each tool says about the model, served on loopback."""
    card = ModelCard(decider.manifest.name, "The decision model under test.", decider.manifest.released or "2026-11-30")
    with LoopbackServer(create_app(decider, card, KEY)) as server:
        yield wire_format(server.url, KEY)
        yield official_client(server.url, KEY, decider.decide(STATE, QUESTIONS))
        yield labelled(server.url, KEY)
    with LoopbackServer(create_app(decider, card)) as server:
        yield wire_format(server.url, None)
        yield coherence(server.url, "jevbench-mini" if mini else "examples")


def wire_format(url: str, key: str | None) -> Verdict:
    """Run jevcompat; conformant means that every requirement that applies passes, SHOULD as well as MUST."""
    report = jevcompat.runner.run(url, key=key, timeout=SECONDS)
    counts = report.summary()
    summary = ", ".join(f"{level} {counts[level]['passed']}/{counts[level]['tested']}" for level in ("MUST", "SHOULD"))
    problems = [
        f"{result.level} {result.id}: {finding.message}" for result in report.results for finding in result.findings
    ]
    problems += [f"not settled: {why}" for why in (report.aborted, *report.inconclusive) if why]
    problems += [f"not settled: {case} failed with {why}" for case, why in report.case_errors]
    name = f"jevcompat {'without' if key is None else 'with'} key"
    return Verdict(name, report.conformant and not problems, summary, problems[:10])


def official_client(url: str, key: str, expected: Answers) -> Verdict:
    """Ask with the official SDK, pointed here, and compare every number with the model's own."""
    asked: dict[str, typesafe_sdk.Question] = {
        "leaves": typesafe_sdk.Noul(instructions=LEAVES),
        "wish": typesafe_sdk.Choice(criteria=WISHES, instructions=WISH),
        "upset": typesafe_sdk.Score(criteria=MOODS, instructions=UPSET),
    }
    with typesafe_sdk.TypeSafeClient(api_key=key, base_url=url) as client:
        models = [model.name for model in client.models.list().models]
        response = client.system_one(state=STATE, questions=asked)
    pairs = [("leaves", response.nouls["leaves"].noul, expected.nouls["leaves"].noul)]
    for name, share in expected.choices["wish"].probabilities.items():
        pairs.append((f"wish {name}", response.choices["wish"].probabilities[name], share))
    for level, share in expected.scores["upset"].probabilities.items():
        pairs.append((f"upset {level}", response.scores["upset"].probabilities[level], share))
    pairs.append(("confidence", response.choices["wish"].confidence, expected.choices["wish"].confidence))
    problems = [f"{name}: {given} and not {own}" for name, given, own in pairs if abs(given - own) > 1e-5]
    if "jev-latest" not in models:
        problems.append(f"the models listed are {models}")
    summary = f"{typesafe_sdk.__version__}, {len(pairs)} numbers compared"
    return Verdict("typesafe-sdk", not problems, summary, problems)


def labelled(url: str, key: str) -> Verdict:
    """Run jev-eval over the labelled file and read its report; every row must be answered."""
    rows = sum(1 for line in LABELLED.read_text(encoding="utf-8").splitlines() if line.strip())
    with tempfile.TemporaryDirectory() as folder:
        config, cache = Path(folder, "questions.json"), Path(folder, "run.jsonl")
        config.write_text(json.dumps({"questions": {name: write_question(q) for name, q in QUESTIONS.items()}}))
        with (
            _environment(TYPESAFE_AI_BASE_URL=f"{url}/v1", JEV_API_KEY=key),
            contextlib.redirect_stdout(io.StringIO()) as said,
            contextlib.redirect_stderr(io.StringIO()),
        ):
            codes = [
                jev_eval.cli.main(["run", "--data", str(LABELLED), "--config", str(config), "--cache", str(cache)]),
                jev_eval.cli.main(["report", "--cache", str(cache)]),
            ]
        answered = [json.loads(line) for line in cache.read_text(encoding="utf-8").splitlines()]
    problems = [f"exit codes {codes}"] if any(codes) else []
    problems += [f"row without an answer: {line['error']}" for line in answered if line.get("error")]
    if len(answered) != rows * len(QUESTIONS):
        problems.append(f"{len(answered)} answers to {rows * len(QUESTIONS)} questions")
    shares = re.findall(r"^== (\w+) .*\naccuracy +([\d.]+%)", said.getvalue(), re.MULTILINE)
    told = ", ".join(f"{name} {share}" for name, share in shares if name in QUESTIONS)
    return Verdict("jev-eval", not problems, f"{rows} rows; accuracy {told}", problems)


def coherence(url: str, suite: str) -> Verdict:
    """Run jevbench over HTTP and give its overall score and the five dimensions."""
    model = jevbench.systemone(f"{url}/v1/systemone", "jev-latest", api_key_env=None)
    with warnings.catch_warnings(), contextlib.closing(model.client):
        warnings.simplefilter("ignore")
        scores = jevbench.evaluate(model, suite=suite, cache=":memory:", bootstrap=0).scores
    dimensions = ", ".join(
        f"{name} {100 * value:.0f}" for name, value in scores["pillars"].items() if value is not None
    )
    overall = scores["overall"]
    told = "no overall score" if overall is None else f"overall {100 * overall:.1f}"
    return Verdict(f"jevbench {suite.removeprefix('jevbench-')}", None, f"{told} ({dimensions})")


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables for as long as a block lasts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


if __name__ == "__main__":
    raise SystemExit(main())
