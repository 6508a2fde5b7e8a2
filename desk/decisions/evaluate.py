"""Measures routers and yes/no answers on labelled cases: ``python -m desk.decisions.evaluate [--model DIR] FILES...``.

Reads the public decision set (``.jsonl`` or ``.jsonl.gz`` with family, question, label and state) and the generator's
``*_cases.jsonl``. Prints figures in the aggregate and never a request. Nothing is fitted here.

Routes: ``composed`` (code applies the policy to what the model read) beside ``direct`` (the model picks the step).
Yes/no: ``direct`` (the model is asked the question as the file words it) beside ``composed`` (records in code, and for
P3 the model's reading whether the new person is named).
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from decider import Answers, Decider, Noul, NoulAnswer, Request
from desk.decisions.figures import Prediction, figure_of
from desk.decisions.label import POLICY_QUESTIONS, PolicyQuestion
from desk.policy import ROUTES, Case, Facts, facts, same_address
from desk.routing import (
    CASE_QUESTIONS,
    allow_probability,
    direct_distribution,
    policy_probability,
    requests,
    route_distribution,
    together,
)


@dataclass(frozen=True, slots=True)
class Item:
    """One labelled case: a route, or a yes/no question about one rule."""

    case: Case
    label: str
    rule: str
    group: str
    question: str | None


class EvaluationFileError(ValueError):
    """A line is no labelled case; ``line`` counts from 1."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"cannot measure with {path}, line {line}: {problem}")
        self.path, self.line, self.problem = path, line, problem


def read_items(path: Path, split: str) -> Iterator[Item]:
    """Read labelled cases; ``split`` chooses among those of the public set and is ignored for generated cases.

    Raises:
        EvaluationFileError: a line has neither form.
    """
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            data = json.loads(line)
            if "family" in data:
                if data["split"] == split:
                    yield _public_item(data)
            elif "case" in data:
                yield Item(Case.from_json(data["case"]), data["route"], data["rule"], data["core"], None)
            else:
                raise EvaluationFileError(path, number, "found neither 'family' nor 'case'; give a *_cases.jsonl file")


def _public_item(data: Mapping[str, object]) -> Item:
    state = cast("Mapping[str, object]", data["state"])
    question = str(data["question"]) if data["family"] == "policy" else None
    group = f"{data['rule']} {data['difficulty']}"
    return Item(Case.from_json(state), str(data["label"]), str(data["rule"]), group, question)


def ask(decider: Decider, items: Sequence[Item]) -> list[Answers]:
    """Ask everything about every item, in passes of bounded size."""
    asked: list[Request] = []
    for item in items:
        own = {} if item.question is None else {"asked": Noul(item.question)}
        asked += requests(item.case, {**CASE_QUESTIONS, **own})
    given = list(decider.decide_iter(asked))
    return [together(given[place : place + 2]) for place in range(0, len(given), 2)]


def route_predictions(items: Sequence[Item], answers: Sequence[Answers]) -> dict[str, list[Prediction]]:
    """Give both routers' predictions for the route items."""
    methods: dict[str, list[Prediction]] = {"route composed": [], "route direct": []}
    for item, given in zip(items, answers, strict=True):
        if item.question is None:
            composed, direct = route_distribution(item.case, given), direct_distribution(given)
            methods["route composed"].append(Prediction(item.label, item.group, cast("dict[str, float]", composed)))
            methods["route direct"].append(Prediction(item.label, item.group, cast("dict[str, float]", direct)))
    return methods


def policy_predictions(items: Sequence[Item], answers: Sequence[Answers]) -> dict[str, list[Prediction]]:
    """Give both ways of answering the yes/no items."""
    methods: dict[str, list[Prediction]] = {"yes/no composed": [], "yes/no direct": []}
    for item, given in zip(items, answers, strict=True):
        if item.question is None:
            continue
        if item.rule not in POLICY_QUESTIONS:
            raise ValueError(
                f"{item.rule!r} is no rule of a yes/no question; allowed are {', '.join(POLICY_QUESTIONS)}"
            )
        rule: PolicyQuestion = item.rule
        asked = given["asked"]
        assert isinstance(asked, NoulAnswer)
        for method, p in (("composed", policy_probability(rule, item.case, given)), ("direct", asked.noul)):
            methods[f"yes/no {method}"].append(Prediction(item.label, item.group, {"yes": p, "no": 1.0 - p}))
    return methods


def pending_address(found: Facts) -> str | None:
    """Give where the pending mail of a labelled case goes: the first address in the request, else the one on record."""
    return found.addresses[0] if found.addresses else found.record_address


def guard_predictions(items: Sequence[Item], answers: Sequence[Answers]) -> dict[str, list[Prediction]]:
    """Give predictions for the guard on the route items that say send_email (may be sent) or escalate (may not).

    The pending mail goes to the first address in the request, else to the one on record.
    """
    methods: dict[str, list[Prediction]] = {"guard": [], "guard, model alone": [], "guard, composed alone": []}
    for item, given in zip(items, answers, strict=True):
        if item.question is not None or item.label not in ("send_email", "escalate"):
            continue
        found = facts(item.case)
        to = pending_address(found)
        asked = given["guard"]
        assert isinstance(asked, NoulAnswer)
        in_code = 1.0 if same_address(to, found.record_address) else 0.0
        composed = in_code * route_distribution(item.case, given)["send_email"]
        truth = "send" if item.label == "send_email" else "hold"
        for method, p in (
            ("guard", allow_probability(item.case, {"to": to}, given)),
            ("guard, model alone", asked.noul),
            ("guard, composed alone", composed),
        ):
            methods[method].append(Prediction(truth, item.group, {"send": p, "hold": 1.0 - p}))
    return methods


def report(method: str, predictions: Sequence[Prediction], *, groups: bool) -> Iterator[str]:
    """Write the lines about one method: accuracy with its 95% Wilson interval, ECE of the best label, confusion."""
    if not predictions:
        return
    figure = figure_of(predictions)
    yield (
        f"{method}: {figure.right} of {figure.count} right, {figure.share:.3f} [{figure.low:.3f}, {figure.high:.3f}], "
        f"mean p {figure.mean_probability:.3f}, ECE {figure.calibration_error:.3f}"
    )
    confusion = Counter((each.label, each.best) for each in predictions)
    options = predictions[0].probabilities
    labels: list[str] = [route for route in ROUTES if route in options] or sorted(options)
    yield "  " + " ".join(f"{label:>10}" for label in ["true\\said", *labels])
    for label in labels:
        yield "  " + " ".join([f"{label:>10}", *(f"{confusion[label, said]:>10}" for said in labels)])
    if groups:
        by_group: defaultdict[str, list[bool]] = defaultdict(list)
        for each in predictions:
            by_group[each.group].append(each.correct)
        yield "  " + ", ".join(f"{group} {sum(hits)}/{len(hits)}" for group, hits in sorted(by_group.items()))


def measure(decider: Decider, items: Sequence[Item]) -> dict[str, list[Prediction]]:
    """Ask everything about all items and give the predictions of every method by its name."""
    answers = ask(decider, items)
    return {
        **route_predictions(items, answers),
        **policy_predictions(items, answers),
        **guard_predictions(items, answers),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m desk.decisions.evaluate", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--model", type=Path, default=None, help="model folder; the one shipped where left out")
    parser.add_argument("--split", default="dev", help="split of the public set")
    parser.add_argument("--provider", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--limit", type=int, default=None, help="measure the first so many items of each file")
    parser.add_argument("--groups", action="store_true", help="also count by rule, difficulty or core")
    options = parser.parse_args(arguments)
    decider = Decider.load(options.model, provider=options.provider)
    for path in options.files:
        items = list(read_items(path, options.split))[: options.limit]
        print(f"{path.name}, {len(items)} items, model {options.model or 'shipped'}, provider {decider.provider}")
        methods = measure(decider, items)
        for method, predictions in methods.items():
            for line in report(method, predictions, groups=options.groups):
                print(line)


if __name__ == "__main__":
    main()
