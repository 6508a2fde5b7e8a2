"""Runs a graph as if it were stored and read again between any two steps, with a checkpointer or without one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from minigraph.calls import storable_types
from minigraph.channels import Channel, KeyWrite
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.results import read_results, write_result
from minigraph.checkpoint.walk import pack
from minigraph.compiled import CompiledGraph
from minigraph.context import Event
from minigraph.errors import UnstorableValueError
from minigraph.records import Finished, Result
from minigraph.state import storable_classes
from minigraph.structure import Graph
from minigraph.testing.instrument import around_tasks, with_channels
from minigraph.types import START, UNSET
from minigraph.work import Job, Outcome, RunTask, Work, failed


def round_trip(graph: CompiledGraph, *types: type) -> CompiledGraph:
    """A copy of a graph in which every value goes through the stored form between steps, even without a checkpointer.

    That is: what a node reads and writes, Send payloads, questions, answers, and what a reducer makes. So a program
    that depends on an object's identity, or on a type that is not kept, behaves here as it does after a pause, or
    fails at once with UnstorableValueError, which names the node, the key, the path and the type. Known are the
    classes in the schemas of the graph and its child graphs, and `types`: what you pass to `saver.register`. Keys
    that are never stored (`UntrackedValue`) are left alone. The copy keeps the checkpointer.
    """
    codec = Codec()
    codec.register(*storable_types(graph), *types)
    trip = _RoundTrip(codec)
    return around_tasks(with_channels(graph, trip.channel), trip.around)


class _RoundTrip:
    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.known: dict[int, Graph] = {}

    # ----------------------------------------------------------------- tasks

    def around(self, run_task: RunTask) -> RunTask:
        """What runs a task on values that were stored and read, and gives back a result that was."""

        def run(job: Job, emit: Callable[[Event], None]) -> Work:
            self.learn(job.scope.graph)
            try:
                stored = self.job(job)
            except UnstorableValueError as error:
                return Outcome(job, failed(job, error), error)
            outcome = yield from run_task(stored, emit)
            if outcome.result is None:
                return Outcome(job, None, outcome.error)
            try:
                return Outcome(job, self.result(job, outcome.result), outcome.error)
            except UnstorableValueError as error:
                return Outcome(job, failed(job, error), error)

        return run

    def learn(self, graph: Graph) -> None:
        """Knows the classes in the schemas of a child graph that only a node's code knows."""
        if id(graph) not in self.known:
            views = [graph.state_view, graph.input_view, graph.output_view, *(n.view for n in graph.nodes.values())]
            self.codec.register(*storable_classes([view.schema for view in views]))
            self.known[id(graph)] = graph

    def job(self, job: Job) -> Job:
        """The job as one that was read: its state, its Send's payload, the answers so far."""
        name, tracked = job.task.node, job.scope.graph.untracked
        values = {
            key: value if key in tracked else self.value(value, f"the state that {_who(name)} reads", name, key)
            for key, value in job.values.items()
        }
        task = job.task
        if task.is_send and name != START:
            what = f"the Send to node {name!r}"
            task = msgspec.structs.replace(task, payload=self.value(task.payload, what, name, None, at="$.arg"))
        earlier = None if job.earlier is None else self.result(job, job.earlier)
        return msgspec.structs.replace(job, task=task, values=values, earlier=earlier)

    def result(self, job: Job, result: Result) -> Result:
        """The result as one that was stored and read."""
        kept = result
        if isinstance(result, Finished) and (untracked := job.scope.graph.untracked):
            kept = msgspec.structs.replace(result, writes=tuple(w for w in result.writes if w[0] not in untracked))
        try:
            body = Raw(pack(write_result(self.codec, kept, None)))
        except UnstorableValueError as error:
            raise _placed(error, _who(result.node), result.node) from error
        found: dict[str, Result] = {}
        read_results(self.codec, found, [body], ())
        read = found[result.task_id]
        if not isinstance(read, Finished) or kept is result:
            return read
        assert isinstance(result, Finished)
        stored = iter(read.writes)
        writes = tuple(w if w[0] in job.scope.graph.untracked else next(stored) for w in result.writes)
        return msgspec.structs.replace(read, writes=writes)

    def value(self, value: Any, what: str, node: str | None, key: str | None, at: str = "$") -> Any:
        """A value as one that was stored and read."""
        try:
            return self.codec.decode(self.codec.encode(value, key=key, at=at))
        except UnstorableValueError as error:
            raise _placed(error, what, node) from error

    # --------------------------------------------------------------- reducers

    def channel(self, key: str, channel: Channel) -> Channel:
        """The same rule for a key, but what it makes of the writes was stored and read."""
        if not channel.tracked:
            return channel
        update = channel.update

        def updated(key: str, old: Any, writes: Sequence[KeyWrite]) -> Any:
            value = update(key, old, writes)
            nodes = ", ".join(dict.fromkeys(repr(node) for node, _ in writes))
            what = f"what the rule of the key made of the write by {nodes}"
            return value if value is UNSET else self.value(value, what, writes[-1][0], key)

        made = copy.copy(channel)
        vars(made)["update"] = updated
        return made


def _who(node: str) -> str:
    return "the input" if node == START else f"node {node!r}"


def _placed(error: UnstorableValueError, what: str, node: str | None) -> UnstorableValueError:
    """The same error, saying whose value it is."""
    return UnstorableValueError(
        f"{what}: {error}", node=node, key=error.key, path=error.path, type_name=error.type_name
    )
