"""Puts something around the tasks of a compiled graph: the same graph, with every call of a node seen.

It reaches child graphs too, also those that are called inside of a function. Tasks run in this process, whatever
executor the graph was given.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from minigraph.channels import Channel
from minigraph.compiled import CompiledGraph
from minigraph.context import Event
from minigraph.errors import GraphInterrupt
from minigraph.records import Task
from minigraph.state import ROOT
from minigraph.structure import Callee, Node
from minigraph.types import START
from minigraph.work import Invoke, Job, Outcome, RunTask, Work, failed, work


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A call that is about to be made: of what ("node 'a'"), for which task of which thread, with which argument.

    `own` says how many levels of the argument belong to the callee alone: none of a Send's, one of a state that is
    one value, two of a state with keys.
    """

    what: str
    task: Task
    thread_id: str
    argument: Any
    own: int


CompiledT = TypeVar("CompiledT", bound=CompiledGraph)
Watch = Callable[[Seen], Callable[[], None]]
"""Called before a node, router or error handler; what it returns is called when that has returned."""


class Found(AssertionError):
    """What a watcher raises. It reaches the caller: nothing is tried again for it and no error handler sees it."""


def around_tasks(graph: CompiledT, wrap: Callable[[RunTask], RunTask]) -> CompiledT:
    """A copy of a graph whose tasks, and those of its child graphs, are run by what `wrap` makes of running a task."""
    made = _copied(graph)
    made.run_task = wrap(graph.run_task or work)
    return made


def with_channels(graph: CompiledT, change: Callable[[str, Channel], Channel]) -> CompiledT:
    """A copy of a graph with other rules for its keys, and for those of child graphs that are its nodes."""
    made = _copied(graph)
    made.graph = dataclasses.replace(
        graph.graph,
        nodes={name: _with_channels(node, change) for name, node in graph.graph.nodes.items()},
        channels={key: change(key, channel) for key, channel in graph.graph.channels.items()},
    )
    return made


def _copied(graph: CompiledT) -> CompiledT:
    given: object = graph
    if not isinstance(given, CompiledGraph):
        raise TypeError(f"a compiled graph is needed, and this is a {type(given).__name__}: give builder.compile(...)")
    return copy.copy(graph)


def _with_channels(node: Node, change: Callable[[str, Channel], Channel]) -> Node:
    if node.child is None:
        return node
    child = with_channels(node.child, change)
    return dataclasses.replace(node, child=child, callee=Callee(child.as_node, (), False, child.aas_node))


def watched(graph: CompiledT, watch: Watch, *, also_raised: bool = False) -> CompiledT:
    """A copy of a graph whose nodes, routers and error handlers are watched; those of child graphs too.

    `also_raised`: what `watch` returns is called as well when the function has raised or asked a question.
    """

    def wrap(run_task: RunTask) -> RunTask:
        def run(job: Job, emit: Callable[[Event], None]) -> Work:
            return _watched(run_task(job, emit), job, watch, also_raised)

        return run

    return around_tasks(graph, wrap)


def _watched(steps: Work, job: Job, watch: Watch, also_raised: bool) -> Work:
    """The same work, with a watcher called before each call of a function of the user and after it."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            effect = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return outcome
        answer = error = None
        seen = _seen(job, effect) if isinstance(effect, Invoke) else None
        try:
            after = None if seen is None else watch(seen)
            try:
                answer = yield effect
            except Found:
                raise
            except (Exception, GraphInterrupt) as ended:
                if after is not None and also_raised:
                    _after_raising(after, ended)
                raise
            if after is not None:
                after()
        except Found as found:
            steps.close()
            return Outcome(job, failed(job, found), found)
        except BaseException as raised:
            error = raised


def _after_raising(after: Callable[[], None], ended: BaseException) -> None:
    try:
        after()
    except Found as found:
        found.add_note(f"The call then ended with {type(ended).__name__}: {ended}")
        raise found from ended


def _seen(job: Job, effect: Invoke) -> Seen | None:
    """What is called, or None for what is not the user's: the input's task, and a child graph, whose tasks are seen."""
    graph, task = job.scope.graph, job.task
    node = graph.nodes[task.node]
    is_router = False
    if effect.error is not None:
        what = f"the error handler of node {node.name!r}"
    elif effect.callee is node.callee:
        what = f"node {node.name!r}"
        if node.name == START or node.child is not None:
            return None
    else:
        is_router = True
        name = next((r.name for r in graph.routers.get(node.name, ()) if r.callee is effect.callee), "?")
        what = f"router {name!r} after node {node.name!r}"
    own = 0 if task.is_send and not is_router else 1 if ROOT in graph.channels else 2
    return Seen(what, task, job.scope.thread_id, effect.argument, own)
