"""The drawn programs really exercise, when run, what the laws are meant to see."""

from __future__ import annotations

from collections import Counter
from random import Random

from minigraph.checkpoint import InMemorySaver
from minigraph.records import Failed
from minigraph.testing import build, draw_program, minigraph_engine, run

LEAST = {"send": 20, "question": 10, "failure": 5, "child": 4, "question in a child": 1, "join": 3, "deferred": 3}
"""In how many of 60 programs each must be seen, at least."""


def exercised(seed: int) -> set[str]:
    """What the run of a program went through, read from what it stored."""
    program, saver = draw_program(Random(seed)), InMemorySaver()
    run(program, saver=saver, graph=build(program, minigraph_engine(), saver))
    found: set[str] = set()
    for namespace in saver.namespaces("t"):
        found |= {"child"} if namespace else set()
        for stored in saver.history("t", namespace):
            point = stored.checkpoint
            found |= {"send"} if any(t.is_send and t.node != "__start__" for t in point.due) else set()
            found |= {"join"} if point.joins else set()
            found |= {"deferred"} if point.deferred else set()
            for result in stored.results:
                found |= {"failure"} if isinstance(result, Failed) else set()
                found |= {"question in a child" if namespace else "question"} if result.asked else set()
    return found


def test_the_runs_of_drawn_programs_meet_every_feature() -> None:
    counted = Counter(feature for seed in range(60) for feature in exercised(seed))
    assert {feature: counted[feature] for feature, least in LEAST.items() if counted[feature] < least} == {}
