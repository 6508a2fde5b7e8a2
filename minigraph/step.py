"""The pure heart: results of a step in, the next checkpoint out. No input or output, no clock, no threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from minigraph.channels import Reduced, fold, overwrite_of
from minigraph.identifiers import task_id
from minigraph.records import Checkpoint, Finished, Task
from minigraph.structure import Graph
from minigraph.types import UNSET, Overwrite, Send


class Stamp(NamedTuple):
    """What a new checkpoint cannot derive from its parent."""

    id: str
    created: int


def merge(
    graph: Graph,
    checkpoint: Checkpoint,
    finished: Sequence[tuple[Task, Finished]],
    stamp: Stamp,
    *,
    source: str = "loop",
    kept: Sequence[Task] = (),
    in_order: bool = False,
    own: dict[str, Any] | None = None,
) -> Checkpoint:
    """The checkpoint after a step: writes folded in task order, joins advanced, the next tasks listed.

    `kept` are tasks of the old checkpoint that stay due as they are; `in_order` takes the results as they come; `own`
    is the state with the writes of a step of one task, where its routers have seen it. In a child graph what was
    written is collected for its parent. Raises InvalidUpdateError for conflicting writes, and whatever a reducer
    raises.
    """
    ordered = finished
    if len(finished) > 1 and not in_order:
        ordered = sorted(finished, key=lambda pair: merge_order(pair[0]))
    values = own
    if values is None or graph.aging:
        values = apply_writes(graph, checkpoint.values, [(task.node, result.writes) for task, result in ordered])
    joins, names, deferred, sends = _arrivals(graph, checkpoint, ordered)
    if kept:
        names -= {task.node for task in kept if not task.is_send}
    if not names and not kept:  # no node is due by an edge (Sends do not count): the deferred ones run now
        names, deferred = deferred | _complete_joins(graph, joins), set()
    written = checkpoint.written
    if checkpoint.owner:
        written += tuple(
            (key, value) for task, result in ordered if task.node != "__start__" for key, value in result.writes
        )
    return Checkpoint(
        id=stamp.id,
        parent_id=checkpoint.id,
        step=checkpoint.step + 1,
        source=source,
        created=stamp.created,
        values=values,
        due=(*kept, *due_tasks(stamp.id, names, sends)),
        deferred=tuple(sorted(deferred)),
        joins=joins,
        ran=checkpoint.ran if source != "loop" else tuple(sorted({task.node for task, _ in ordered})),
        written=written,
        owner=checkpoint.owner,
        metadata=checkpoint.metadata,
    )


def merge_order(task: Task) -> tuple[bool, str, int]:
    """The sort key that fixes the order of a step's writes: nodes by name, then Sends by index."""
    return (True, "", task.index) if task.is_send else (False, task.node, 0)


def due_tasks(checkpoint_id: str, names: Iterable[str], sends: Sequence[Send]) -> tuple[Task, ...]:
    """The tasks of a step: Sends in the order they were made, then nodes by name."""
    tasks = [Task(task_id(checkpoint_id, i), send.node, i, send.arg) for i, send in enumerate(sends)] if sends else []
    for name in sorted(names):
        tasks.append(Task(task_id(checkpoint_id, len(tasks)), name))
    return tuple(tasks)


def apply_writes(
    graph: Graph,
    values: Mapping[str, Any],
    written: Iterable[tuple[str, Iterable[tuple[str, Any]]]],
    *,
    idle: bool = True,
) -> dict[str, Any]:
    """The state after writes, each key by its own rule; `idle` ages the keys nobody wrote.

    `written` holds nodes and what each wrote, in merge order.
    """
    by_key: dict[str, list[tuple[str, Any]]] = {}
    for node, writes in written:
        for key, value in writes:
            by_key.setdefault(key, []).append((node, value))
    merged = dict(values)
    for key in by_key if len(by_key) < 2 else [key for key in graph.channels if key in by_key]:
        merged[key] = fold(graph.channels[key], key, values.get(key, UNSET), by_key[key])
    for key in graph.aging if idle else ():
        if key in merged and key not in by_key:
            aged = graph.channels[key].idle(merged[key])
            if aged is UNSET:
                del merged[key]
            else:
                merged[key] = aged
    return merged


def handed_back(
    parent: Graph, child: Graph, written: Sequence[tuple[str, Any]], values: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """What a child graph hands to its parent: only what it wrote, write by write where both reduce the key.

    For a key that either side overwrites it is the last value; an Overwrite and what was added to it become one.
    `values` is the child's state at its end.
    """
    result: list[tuple[str, Any]] = []
    keys = list(dict.fromkeys(key for key, _ in written if key in parent.channels and key in child.output_view.keys))
    for key in keys:
        writes = [value for name, value in written if name == key]
        start = max((i for i, value in enumerate(writes) if overwrite_of(value) is not None), default=None)
        channel = child.channels[key]
        if not isinstance(channel, Reduced):
            last = overwrite_of(writes[-1])
            result.append((key, writes[-1] if last is None else last.value))
        elif start is not None:
            replaced = overwrite_of(writes[start])
            assert replaced is not None
            value = replaced.value
            for more in writes[start + 1 :]:
                value = channel.reducer(value, more)
            result.append((key, Overwrite(value)))
        elif isinstance(parent.channels[key], Reduced):
            result += [(key, value) for value in writes]
        else:
            result.append((key, values[key]))
    return result


def _complete_joins(graph: Graph, joins: dict[str, tuple[str, ...]]) -> set[str]:
    """The targets of list edges that have seen all their sources; each such edge begins to wait anew."""
    complete = [join for join in graph.joins if len(joins.get(join.name, ())) == len(join.sources)]
    for join in complete:
        del joins[join.name]
    return {join.target for join in complete}


def _arrivals(
    graph: Graph, checkpoint: Checkpoint, ordered: Sequence[tuple[Task, Finished]]
) -> tuple[dict[str, tuple[str, ...]], set[str], set[str], list[Send]]:
    """Follows edges, joins and targets of finished tasks: joins in progress, nodes due, nodes deferred, Sends.

    A complete list edge into a deferred node stays complete until that node is released.
    """
    joins = dict(checkpoint.joins)
    names: set[str] = set()
    deferred = set(checkpoint.deferred)
    sends: list[Send] = []
    for task, result in ordered:
        node = task.node
        if result.follow_edges:
            names.update(graph.edges.get(node, ()))
            for join in graph.joins_of.get(node, ()):
                seen = joins.get(join.name, ())
                if node not in seen:
                    joins[join.name] = seen = (*seen, node)
        for goto in result.targets:
            if isinstance(goto, Send):
                sends.append(goto)
            else:
                names.add(goto)
    if graph.deferring and not graph.deferring.isdisjoint(names):
        deferred |= names & graph.deferring
        names -= graph.deferring
    for join in graph.joins:
        if len(joins.get(join.name, ())) == len(join.sources) and join.target not in graph.deferring:
            del joins[join.name]
            names.add(join.target)
    return joins, names, deferred, sends
