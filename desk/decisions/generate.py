"""Writes training and measuring examples.

    python -m desk.decisions.generate --out DIR --train N --calibration N --test N --seed 0

Each ``{split}.jsonl`` line is ``{"state": text, "questions": {...}, "answers": {...}}``; the line of the same number in
``{split}_cases.jsonl`` holds the case behind it with its reading and route, for measuring routers. The same seed writes
the same bytes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from desk.decisions.ask import Asker
from desk.decisions.compose import Sample, compose
from desk.decisions.label import label
from desk.decisions.pools import POOLS, SPLITS, Pools, Split, load_pools
from desk.policy import render, same_address


class GenerationError(RuntimeError):
    """A composed request says something else to the code than its plan; ``request`` is its text."""

    def __init__(self, problem: str, request: str) -> None:
        super().__init__(
            f"cannot use a composed request: {problem}. Mend the wording behind it. The request: {request!r}"
        )
        self.problem = problem
        self.request = request


def samples(split: Split, count: int, seed: int, pools: Pools) -> Iterator[Sample]:
    """Compose ``count`` cases of a split; the same arguments give the same cases.

    Raises:
        GenerationError: the addresses found in a request are not those that were put in.
    """
    rng = Random(f"{split}-{seed}")
    for _ in range(count):
        sample = compose(rng, pools, split)
        check_sample(sample)
        yield sample


def thinned(questions: dict[str, dict[str, object]], random: Random) -> dict[str, dict[str, object]]:
    """Leave some questions out, those most often that cost many tokens or that the desk does not ask; not all."""
    return {name: one for name, one in questions.items() if random.random() < kept_share(name)} or questions


def kept_share(name: str) -> float:
    """Give the share of a question's occurrences that training keeps."""
    if name.startswith("wants_"):
        return 0.25
    if name.startswith("P"):
        return 0.6
    return {"intent": 0.95, "route": 0.4, "guard": 0.8, "two_requests": 0.2}.get(name, 1.0)


def check_sample(sample: Sample) -> None:
    """Hold the computed facts of a sample against its plan; raises GenerationError where they differ."""
    found, plan, request = sample.facts, sample.plan, sample.case.request
    if plan.reading.other_email and not found.other_address:
        raise GenerationError("an address off the record was put in and is not found", request)
    if (plan.contact or "email_own" in plan.harmless) and not found.address_given:
        raise GenerationError("the writer's address was put in and is not found", request)
    registration = sample.case.registration
    expected = registration.email if registration is not None and "email_own" in plan.harmless else None
    if expected is not None and not any(same_address(each, expected) for each in found.addresses):
        raise GenerationError("the record's address was put in and reads as another", request)
    silent = not plan.reading.other_email and plan.core != "transfer_named"
    if silent and not plan.contact and "email_own" not in plan.harmless and found.address_given:
        raise GenerationError("an address is found where none was put in", request)


def write_split(folder: Path, split: Split, count: int, seed: int, pools: Pools) -> Counter[str]:
    """Write the two files of a split and give how often each route and each answer occurs."""
    asker = Asker(Random(f"questions-{split}-{seed}"), split)
    chooser = Random(f"thinned-{split}-{seed}")
    seen: Counter[str] = Counter()
    with (
        (folder / f"{split}.jsonl").open("w", encoding="utf-8") as examples,
        (folder / f"{split}_cases.jsonl").open("w", encoding="utf-8") as cases,
    ):
        for sample in samples(split, count, seed, pools):
            questions, answers = asker.ask(sample)
            if split == "train":
                questions = thinned(questions, chooser)
                answers = {name: answers[name] for name in questions}
            line = {"state": render(sample.case, sample.facts), "questions": questions, "answers": answers}
            examples.write(json.dumps(line, ensure_ascii=False) + "\n")
            verdict = label(sample.facts, sample.reading)
            seen[f"route {verdict.route}"] += 1
            for name, answer in answers.items():
                seen[f"{name} {answer}"] += 1
            cases.write(json.dumps(case_line(sample), ensure_ascii=False) + "\n")
    return seen


def case_line(sample: Sample) -> dict[str, object]:
    """Give a sample as plain values: case, reading, route, rule, and the part that carries the wish."""
    verdict = label(sample.facts, sample.reading)
    return {
        "case": sample.case.to_json(),
        "reading": dataclasses.asdict(sample.reading),
        "route": verdict.route,
        "rule": verdict.rule,
        "core": sample.plan.core,
        "beside": [*sample.plan.flags, *sample.plan.harmless, *([sample.plan.second] if sample.plan.second else [])],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m desk.decisions.generate", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; made where it is missing")
    parser.add_argument("--train", type=int, default=14_000, help="number of training cases")
    parser.add_argument("--calibration", type=int, default=1_500, help="number of calibration cases")
    parser.add_argument("--test", type=int, default=1_500, help="number of test cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pools", type=Path, default=POOLS, help="folder of wording pools")
    options = parser.parse_args(arguments)
    pools = load_pools(options.pools)
    options.out.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        seen = write_split(options.out, split, getattr(options, split), options.seed, pools)
        print(f"{split}: " + ", ".join(f"{key} {number}" for key, number in sorted(seen.items())))


if __name__ == "__main__":
    main()
