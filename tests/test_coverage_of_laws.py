"""The drawn programs really exercise, when run, what the laws are meant to see."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from minigraph import Command, Send
from minigraph.checkpoint import InMemorySaver
from minigraph.context import Event
from minigraph.records import Failed, Finished, Stored
from minigraph.testing import Program, build, draw_program, minigraph_engine, run
from minigraph.testing.building import CrowdedError
from minigraph.testing.instrument import around_tasks
from minigraph.testing.programs import NodeSpec
from minigraph.work import Invoke, Job, Outcome, RunTask, Work

PROGRAMS = 300
LEAST = {
    "send": 70,
    "question": 50,
    "failure": 25,
    "child": 30,
    "question in a child": 6,
    "join": 45,
    "deferred": 60,
    "conditional edge": 110,
    "router with Sends": 50,
    "Command": 85,
    "loop": 80,
    "retry": 20,
    "child in a child": 18,
    "question in a child in a child": 3,
}
"""In how many of the programs each must be seen, at least."""


def exercised(program: Program) -> set[str]:
    """What the run of a program went through: what its functions returned, and what it stored."""
    found: set[str] = set()
    saver = InMemorySaver()
    graph = around_tasks(build(program, minigraph_engine(), saver), lambda run_task: noting(run_task, found))
    try:
        run(program, saver=saver, graph=graph)
    except CrowdedError:
        return found
    for namespace in saver.namespaces("t"):
        found.update(*(stored_features(stored, namespace) for stored in saver.history("t", namespace)))
    if has_loop(program, list(saver.history("t", ""))[::-1]):
        found.add("loop")
    return found


# ------------------------------------------------------------------- while it runs


def noting(run_task: RunTask, found: set[str]) -> RunTask:
    """Runs tasks, and notes what is called and what it returns."""

    def run(job: Job, emit: Callable[[Event], None]) -> Work:
        return noted(run_task(job, emit), job, found)

    return run


def noted(steps: Work, job: Job, found: set[str]) -> Work:
    answer: Any = None
    error: BaseException | None = None
    tries = 0
    while True:
        try:
            effect = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return outcome
        answer = error = None
        node = job.scope.graph.nodes[job.task.node]
        is_node = isinstance(effect, Invoke) and effect.callee is node.callee
        tries += is_node
        if tries > 1:
            found.add("retry")
        try:
            answer = yield effect
        except BaseException as raised:
            error = raised
        else:
            if isinstance(effect, Invoke):
                found |= {"child in a child"} if len(list(effect.context.chain())) > 2 else set()
                found |= set(returned(answer, is_node=is_node)) if node.child is None or not is_node else set()


def returned(answer: Any, *, is_node: bool) -> Iterator[str]:
    """What the answer of a node or router shows."""
    parts = answer if isinstance(answer, list) else [answer]
    if is_node and any(isinstance(part, Command) for part in parts):
        yield "Command"
    if not is_node and any(isinstance(part, str) for part in parts):
        yield "conditional edge"
    if not is_node and any(isinstance(part, Send) for part in parts):
        yield "router with Sends"


# ------------------------------------------------------------------ what it stored


def stored_features(stored: Stored, namespace: str) -> Iterator[str]:
    point = stored.checkpoint
    where = " in a child" * len(namespace.split("|") if namespace else ())
    if namespace:
        yield "child"
    if any(task.is_send and task.node != "__start__" for task in point.due):
        yield "send"
    if point.joins:
        yield "join"
    if point.deferred:
        yield "deferred"
    if any(isinstance(result, Failed) for result in stored.results):
        yield "failure"
    if any(result.asked for result in stored.results):
        yield f"question{where}"


def has_loop(program: Program, history: list[Stored]) -> bool:
    """Whether a node led to itself in one run; `history` has the oldest first."""
    pairs = [*program.edges, *((source, join.target) for join in program.joins for source in join.sources)]
    led_here: dict[str, dict[str, set[str]]] = {}
    by_id = {stored.checkpoint.id: stored for stored in history}
    for stored in history:
        point = stored.checkpoint
        here: dict[str, set[str]] = {name: set() for name in (*(task.node for task in point.due), *point.deferred)}
        led_here[point.id] = here
        parent = by_id.get(point.parent_id or "")
        if point.source == "loop" and parent is not None:
            before = led_here[parent.checkpoint.id]
            for name in set(parent.checkpoint.deferred) & set(here):
                here[name] |= before[name]
            for result in parent.results:
                targets = {target for source, target in pairs if source == result.node}
                targets |= {t.node if isinstance(t, Send) else t for t in getattr(result, "targets", ())}
                for name in targets & set(here):
                    here[name] |= {result.node, *before.get(result.node, ())}
        if any(isinstance(result, Finished) and result.node in here.get(result.node, ()) for result in stored.results):
            return True
    return False


# --------------------------------------------------------------------------- tests


def drawn(seed: int) -> Program:
    return draw_program(Random(seed), deep_children=True)


def test_the_runs_of_drawn_programs_meet_every_feature() -> None:
    counted = Counter(feature for seed in range(PROGRAMS) for feature in exercised(drawn(seed)))
    assert {feature: counted[feature] for feature, least in LEAST.items() if counted[feature] < least} == {}


def without_routers(program: Program) -> Program:
    return replace(program, routers=())


def without_kinds(*kinds: str) -> Callable[[Program], Program]:
    """The same program, its nodes of these kinds only writing; those of child graphs too."""

    def plain(node: NodeSpec) -> NodeSpec:
        if node.kind in kinds:
            return NodeSpec(node.name, "write", node.puts, defer=node.defer)
        return node if node.child is None else replace(node, child=change(node.child))

    def change(program: Program) -> Program:
        return replace(program, nodes=tuple(map(plain, program.nodes)))

    return change


def without_ways_back(program: Program) -> Program:
    """The same program with edges and list edges that lead forward alone, and no routers and gotos."""
    places = {name: place for place, name in enumerate(("__start__", *(n.name for n in program.nodes), "__end__"))}
    return replace(
        without_kinds("command", "several", "fan_out")(program),
        routers=(),
        edges=tuple(edge for edge in program.edges if places[edge[0]] < places[edge[1]]),
        joins=tuple(join for join in program.joins if max(places[name] for name in join.sources) < places[join.target]),
    )


def without_grandchildren(program: Program) -> Program:
    change = without_kinds("child", "call_child")
    return replace(
        program, nodes=tuple(n if n.child is None else replace(n, child=change(n.child)) for n in program.nodes)
    )


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        (without_routers, {"conditional edge", "router with Sends"}),
        (without_kinds("command", "several", "fan_out"), {"Command"}),
        (without_kinds("retry"), {"retry"}),
        (without_ways_back, {"loop", "Command", "conditional edge", "router with Sends"}),
        (without_grandchildren, {"child in a child", "question in a child in a child"}),
        (without_kinds("child", "call_child"), {"child", "question in a child", "child in a child"}),
    ],
    ids=["routers", "commands", "retries", "ways back", "grandchildren", "children"],
)
def test_a_drawing_without_a_feature_is_noticed(change: Callable[[Program], Program], gone: set[str]) -> None:
    found = set().union(*(exercised(replace(change(drawn(seed)), before=(), after=())) for seed in range(25)))
    assert found & gone == set()
    assert found >= {"question", "join", "deferred"}


def test_programs_without_deep_children_are_the_ones_they_were() -> None:
    shown = [repr(draw_program(Random(seed))) for seed in range(40)]
    assert hashlib.sha256("\n".join(shown).encode()).hexdigest() == FLAT
    assert repr(draw_program(Random(1), deep_children=False)) == shown[1]


FLAT = "6ea27f8ce282437989c7f2da21e1de6be305a3902e60559a17b8f2cc28644ae3"
