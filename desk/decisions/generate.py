"""Writes training and measuring examples.

    python -m desk.decisions.generate --out DIR --train N --calibration N --test N --seed 0

Each ``{split}.jsonl`` line is ``{"state": text, "questions": {...}, "answers": {...}}``. The state is a request or a
whole rendered case; one line in eight is a text from outside the desk, whose questions have no answer. The cases
behind the requests, with reading and route, stand in ``{split}_cases.jsonl``, for measuring routers. The same seed
writes the same bytes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from desk.decisions.ask import About, Asker
from desk.decisions.compose import Sample, Writer, compose
from desk.decisions.draw import draw_situation
from desk.decisions.foreign import Stranger, is_leftover, load_foreign
from desk.decisions.label import label
from desk.decisions.pools import POOLS, SPLITS, Pools, Split, load_pools
from desk.policy import render, same_address

CASE_SHARE = 0.2
"""So many of the cases are also asked about as a whole, records and all."""
FOREIGN_SHARE = 0.2
"""So many texts from outside come on one case."""
UNRELATED_SHARE = 0.08
"""So many of the requests are asked something that they do not tell."""


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


def write_split(folder: Path, split: Split, count: int, seed: int, pools: Pools, general: Path = POOLS) -> Counter[str]:
    """Write the two files of a split and give how often each route and each answer occurs."""
    asker = Asker(Random(f"questions-{split}-{seed}"), split)
    rng = Random(f"lines-{split}-{seed}")
    stranger = Stranger(rng, split, load_foreign(split, general), asker)
    seen: Counter[str] = Counter()
    with (
        (folder / f"{split}.jsonl").open("w", encoding="utf-8") as examples,
        (folder / f"{split}_cases.jsonl").open("w", encoding="utf-8") as cases,
    ):
        for sample in samples(split, count, seed, pools):
            lines = [desk_line(sample, asker, "request", stranger if rng.random() < UNRELATED_SHARE else None)]
            if rng.random() < CASE_SHARE:
                lines.append(desk_line(sample, asker, "case"))
            if rng.random() < FOREIGN_SHARE:
                situation = draw_situation(rng, split, "other")
                lines.append(stranger.example(Writer(rng, pools.parts[split], split, situation)))
            for line in lines:
                examples.write(json.dumps(line, ensure_ascii=False) + "\n")
                answers = line["answers"]
                assert isinstance(answers, dict)
                seen.update(f"{name} {answer}" for name, answer in answers.items() if not name.startswith("own_"))
            seen[f"route {label(sample.facts, sample.reading).route}"] += 1
            cases.write(json.dumps(case_line(sample), ensure_ascii=False) + "\n")
    return seen


def desk_line(sample: Sample, asker: Asker, about: About, stranger: Stranger | None = None) -> dict[str, object]:
    """Give one line of a training file about a case or its request; ``stranger`` adds a question it cannot answer."""
    questions, answers = asker.ask(sample, about)
    if stranger is not None:
        questions, answers = {**questions, "unrelated": stranger.unrelated()}, {**answers, "unrelated": None}
    state = sample.case.request if about == "request" else render(sample.case, sample.facts)
    argued = [name for name in questions if name != "unrelated"] if is_leftover(sample) else []
    return {"state": state, "questions": questions, "answers": answers, **({"open": argued} if argued else {})}


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
    parser.add_argument("--train", type=int, default=30_000, help="number of training cases")
    parser.add_argument("--calibration", type=int, default=1_500, help="number of calibration cases")
    parser.add_argument("--test", type=int, default=1_500, help="number of test cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pools", type=Path, default=POOLS, help="folder of wording pools")
    options = parser.parse_args(arguments)
    pools = load_pools(options.pools)
    options.out.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        seen = write_split(options.out, split, getattr(options, split), options.seed, pools, options.pools)
        print(f"{split}: " + ", ".join(f"{key} {number}" for key, number in sorted(seen.items())))


if __name__ == "__main__":
    main()
