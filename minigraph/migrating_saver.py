"""A saver as a graph with migrations sees it: what was stored under older names is read under those of today."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec

from minigraph.checkpoint.base import Saver
from minigraph.checkpoint.passing import PassingSaver
from minigraph.migration import Migrated, migrated, migrated_ancestor, new_name, old_names
from minigraph.records import Ancestor, Checkpoint, NewCheckpoint, Paused, Recorded, Result, Stored, Write

if TYPE_CHECKING:
    from minigraph.compiled import CompiledGraph
    from minigraph.threads import Threads


class MigratingSaver(PassingSaver):
    """Passes everything on to a saver, in the names that a compiled graph and its child graphs have now.

    A child graph whose node was renamed keeps its place (`namespace`) in the thread: it is found there by its task. One
    object is for one call of a graph. Its async methods call the sync ones of the saver in worker threads.
    """

    def __init__(self, inner: Saver, root: Threads | None) -> None:
        super().__init__(inner)
        self._graphs: dict[str, Threads | None] = {"": root}
        self._places: dict[tuple[str, str], str] = {}

    def learn(self, namespace: str, graph: CompiledGraph) -> None:
        """Says which graph stores in a namespace, where only a node's code knows."""
        self._graphs.setdefault(namespace, graph)

    def _graph(self, namespace: str) -> Threads | None:
        """The graph that stores in a namespace; None where it is not known."""
        found = self._graphs.get(namespace)
        if found is None and namespace:
            above, _, part = namespace.rpartition("|")
            outer = self._graph(above)
            node = None if outer is None else outer.graph.nodes.get(part.partition(":")[0])
            found = None if node is None else node.child
        return found

    # ----------------------------------------------------------------- places

    def _place(self, thread_id: str, namespace: str) -> str:
        """Where a namespace is stored: under the name that its nodes had when it began."""
        known = self._places.get((thread_id, namespace))
        if known is not None:
            return known
        choices = self._choices(namespace)
        found = namespace
        if len(choices) > 1:
            stored = set(self.inner.namespaces(thread_id))
            found = next((place for place in choices if place in stored), namespace)
        self._places[thread_id, namespace] = found
        return found

    def _choices(self, namespace: str) -> list[str]:
        above, parts = "", []
        for part in namespace.split("|") if namespace else ():
            node, colon, rest = part.partition(":")
            outer = self._graph(above)
            older = [] if outer is None else old_names(outer.migrations, "nodes", node)
            parts.append([f"{name}{colon}{rest}" for name in (node, *older)])
            above = f"{above}|{part}" if above else part
        return ["|".join(chosen) for chosen in product(*parts)]

    def _task(self, thread_id: str, place: str, task_id: str) -> str:
        """The id under which a task has records: that of a child graph that stores nothing names nodes on the way."""
        owner, *way = task_id.split("|")
        if not way:
            return task_id
        graphs = [graph for graph in self._graphs.values() if graph is not None]
        choices = []
        for step in way:
            number, at, node = step.split(":", 2)
            older = [name for graph in _below(graphs) for name in old_names(graph.migrations, "nodes", node)]
            choices.append([f"{number}:{at}:{name}" for name in (node, *older)])
        for chosen in product([owner], *choices):
            if self.inner.recorded(thread_id, place, "|".join(chosen)):
                return "|".join(chosen)
        return task_id

    # ------------------------------------------------------------------ reads

    def _migrated(self, thread_id: str, namespace: str, stored: Stored) -> Stored:
        graph = self._graph(namespace)
        if graph is None or not graph.migrations:
            return stored
        found = migrated(graph.graph, graph.migrations, stored)
        if found is stored:
            return stored
        nodes = {task.id: task.node for task in stored.checkpoint.due}
        kept = [
            result
            for result in found.results
            if not self._asks_anew(thread_id, namespace, nodes.get(result.task_id), result)
        ]
        return msgspec.structs.replace(found, results=tuple(kept))

    def _asks_anew(self, thread_id: str, namespace: str, node: str | None, result: Result) -> bool:
        """Whether a task, whose node was called `node`, waits for a question of a child graph that stores nothing.

        Such a question has its id from the node's name, so no answer would find it: the task runs again and asks anew.
        """
        if not isinstance(result, Paused) or not result.inner or node in (None, result.node):
            return False
        child = f"{namespace}|{result.node}" if namespace else result.node
        places = [*self._choices(child), *self._choices(f"{child}:{result.task_id}")]
        stored = self.inner.namespaces(thread_id)
        return not any(name == place or name.startswith(f"{place}:#") for name in stored for place in places)

    def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """`get` of the other saver, under today's names."""
        found = self.inner.get(thread_id, self._place(thread_id, namespace), checkpoint_id)
        return None if found is None else self._migrated(thread_id, namespace, found)

    def history(self, thread_id: str, namespace: str, **options: Any) -> Iterator[Stored]:
        """`history` of the other saver, under today's names."""
        for found in self.inner.history(thread_id, self._place(thread_id, namespace), **options):
            yield self._migrated(thread_id, namespace, found)

    def lineage(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> builtins.list[Ancestor]:
        """`lineage` of the other saver, under today's names."""
        found = self.inner.lineage(thread_id, self._place(thread_id, namespace), checkpoint_id)
        graph = self._graph(namespace)
        if graph is None or not graph.migrations:
            return found
        return [migrated_ancestor(graph.graph, graph.migrations, ancestor) for ancestor in found]

    def namespaces(self, thread_id: str) -> builtins.list[str]:
        """`namespaces` of the other saver, under today's names."""
        return sorted({self._named(place) for place in self.inner.namespaces(thread_id)})

    def _named(self, place: str) -> str:
        above = ""
        for part in place.split("|") if place else ():
            node, colon, rest = part.partition(":")
            outer = self._graph(above)
            plan: Sequence[Any] = () if outer is None or node in outer.graph.nodes else outer.migrations
            name = f"{new_name(plan, 'nodes', node)}{colon}{rest}"
            above = f"{above}|{name}" if above else name
        return above

    # ----------------------------------------------------------------- writes

    def put(self, write: Write) -> int:
        """`put` of the other saver; what follows a checkpoint that was read under other names is stored whole."""
        place = self._place(write.thread_id, write.namespace)
        carried = tuple(
            msgspec.structs.replace(each, namespace=self._place(write.thread_id, each.namespace))
            for each in write.carried
        )
        under = None if write.under is None else self._place(write.thread_id, write.under)
        graph, note = self._graph(write.namespace), write.graph
        if graph is not None and any(isinstance(new.checkpoint, Migrated) for new in write.checkpoints):
            note = graph.graph.fingerprint
        new = tuple(_whole(each) for each in write.checkpoints)
        return self.inner.put(
            msgspec.structs.replace(write, namespace=place, checkpoints=new, carried=carried, graph=note, under=under)
        )

    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """`record_start` of the other saver."""
        place = self._place(thread_id, namespace)
        return self.inner.record_start(thread_id, place, self._task(thread_id, place, task_id), recorded)

    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """`record` of the other saver."""
        place = self._place(thread_id, namespace)
        self.inner.record(thread_id, place, self._task(thread_id, place, task_id), recorded)

    def remove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        """`remove_record` of the other saver."""
        place = self._place(thread_id, namespace)
        self.inner.remove_record(thread_id, place, self._task(thread_id, place, task_id), key)

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        """`recorded` of the other saver."""
        place = self._place(thread_id, namespace)
        return self.inner.recorded(thread_id, place, self._task(thread_id, place, task_id))


def _whole(new: NewCheckpoint) -> NewCheckpoint:
    """The same; without its parent's state where that has other names in the saver than here."""
    point, previous = new.checkpoint, new.previous
    if isinstance(point, Migrated):
        point = Checkpoint(**{name: getattr(point, name) for name in Checkpoint.__struct_fields__})
    if isinstance(previous, Migrated):
        return NewCheckpoint(point, None)
    return new if point is new.checkpoint else msgspec.structs.replace(new, checkpoint=point)


def _below(graphs: Sequence[Threads]) -> Iterator[Threads]:
    """Graphs, and the child graphs that are nodes of theirs."""
    for graph in graphs:
        yield graph
        yield from _below([node.child for node in graph.graph.nodes.values() if node.child is not None])


def learning(saver: Saver, namespace: str, graph: CompiledGraph) -> MigratingSaver:
    """The saver as a child graph with migrations sees it, which its parent may know nothing of."""
    found = saver if isinstance(saver, MigratingSaver) else MigratingSaver(saver, None)
    found.learn(namespace, graph)
    return found
