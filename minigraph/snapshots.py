"""Reading and editing a stored thread: snapshots, history, updates. Generators of effects, like a run."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from minigraph import events
from minigraph.branching import branch, reopen_parents
from minigraph.channels import LastValue
from minigraph.context import Scope
from minigraph.effects import Effect, Found, History, Load, Save, Start, Wait
from minigraph.errors import InvalidUpdateError, UnknownCheckpointError, listing, nearest
from minigraph.identifiers import child_namespace
from minigraph.migration import note_of
from minigraph.opening import (
    edited,
    fill,
    input_position,
    load,
    metadata_from,
    move,
    position_of,
)
from minigraph.position import Position, stamp
from minigraph.records import (
    Checkpoint,
    Failed,
    Finished,
    NewCheckpoint,
    Paused,
    Result,
    Stored,
    Task,
    Write,
    without_untracked,
)
from minigraph.run import live_values
from minigraph.state import ROOT, View
from minigraph.structure import Graph
from minigraph.types import END, START, Interrupt, StateSnapshot, StateUpdate, TaskSnapshot
from minigraph.work import Job, Outcome

Read = Generator[Effect, Any, Found]


def snapshot(scope: Scope, checkpoint_id: str | None, *, subgraphs: bool = False) -> Read[StateSnapshot]:
    """The thread as it is now, or as it was at a checkpoint. A thread that never ran gives an empty snapshot."""
    stored = yield from load(scope, checkpoint_id)
    if stored is None:
        return StateSnapshot({}, (), events.config_of(scope.thread_id, scope.namespace, None))
    shot = describe(scope, stored, live=checkpoint_id is None)
    return (yield from _with_children(scope, shot, subgraphs))


def history(
    scope: Scope, checkpoint_id: str | None, before: str | None, limit: int | None, wanted: Mapping[str, Any]
) -> Read[list[StateSnapshot]]:
    """The thread's snapshots, newest first."""
    for given in (checkpoint_id, before):
        if given is not None:
            yield from load(scope, given)  # an unknown id is an error, not an empty history
    found: list[Stored] = yield History(scope.thread_id, scope.namespace, before, limit, wanted)
    if checkpoint_id is not None:
        found = [stored for stored in found if stored.checkpoint.id == checkpoint_id]
    return [describe(scope, fill(scope.graph, stored), live=False) for stored in found]


def describe(scope: Scope, stored: Stored, *, live: bool) -> StateSnapshot:
    """A stored checkpoint as a snapshot. `live` merges in what finished meanwhile and hides answered questions."""
    checkpoint = stored.checkpoint
    graph = scope.graph if scope.graph.nodes else unknown_graph(checkpoint.values)
    results: dict[str, Result] = {}
    for result in stored.results:
        results[result.task_id] = result
    own = checkpoint.values  # a saver gives new objects
    values = live_values(graph, checkpoint, results) if live and results else own
    if values is own and ROOT not in graph.channels:
        shown: Any = {key: own[key] for key in graph.channels if key in own}
    else:
        shown = events.values(graph, values)
    due: list[str] = []
    tasks: list[TaskSnapshot] = []
    interrupts: list[Interrupt] = []
    for task in checkpoint.due:
        given = results.get(task.id)
        shot = _task(scope, task, given, live)
        tasks.append(shot)
        interrupts += shot.interrupts
        if not (live and isinstance(given, Finished)):
            due.append(task.node)
    thread, namespace, parent = scope.thread_id, scope.namespace, checkpoint.parent_id
    return StateSnapshot(
        values=shown,
        next=tuple(due),
        config=events.config_of(thread, namespace, checkpoint.id),
        metadata=events.metadata_of(checkpoint),
        created_at=checkpoint.created_at,
        parent_config=None if parent is None else events.config_of(thread, namespace, parent),
        tasks=tuple(tasks),
        interrupts=tuple(interrupts),
        waiting=tuple(waiting(graph, checkpoint)) if checkpoint.joins else (),
        fingerprint=stored.graph,
    )


def waiting(graph: Graph, checkpoint: Checkpoint) -> list[str]:
    """List edges that have seen some of their sources and still wait for others, in words."""
    return [
        f"{join.target!r} waits for {', '.join(repr(s) for s in join.sources if s not in seen)}"
        f" (seen: {', '.join(map(repr, seen))})"
        for join in graph.joins
        if (seen := checkpoint.joins.get(join.name, ())) and len(seen) < len(join.sources)
    ]


def _task(scope: Scope, task: Task, result: Result | None, live: bool) -> TaskSnapshot:
    interrupts: tuple[Any, ...] = ()
    error = None
    written = None
    if isinstance(result, Paused):
        interrupts = result.open if live else (*result.asked, *result.inner)
    elif isinstance(result, Failed):
        error = f"{result.error_type}({result.message!r})"
    elif isinstance(result, Finished):
        written = events.result(result.writes)
        interrupts = () if live else result.asked
    path = ("send", task.index) if task.is_send and task.node != START else ("node", task.node)
    return TaskSnapshot(task.id, task.node, path, error, interrupts, _where_child_ran(scope, task, result), written)


def _where_child_ran(scope: Scope, task: Task, result: Result | None) -> dict[str, Any] | None:
    node = scope.graph.nodes.get(task.node)
    if result is None or node is None or node.child is None or node.child.checkpointer is False:
        return None
    stateful = node.child.checkpointer is True
    namespace = child_namespace(scope.namespace, task.node, "" if stateful else task.id)
    return events.config_of(scope.thread_id, namespace, None)


def _with_children(scope: Scope, shot: StateSnapshot, subgraphs: bool) -> Read[StateSnapshot]:
    """Fills in, for tasks that run a child graph, its state or where to find it."""
    tasks = []
    for task in shot.tasks:
        node = scope.graph.nodes.get(task.name)
        if node is None or task.name == START or task.result is not None:
            tasks.append(task)
            continue
        stateful = node.child is not None and node.child.checkpointer is True
        namespace = child_namespace(scope.namespace, task.name, "" if stateful else task.id)
        stored = yield Load(scope.thread_id, namespace, None)
        if stored is None:
            tasks.append(msgspec.structs.replace(task, state=None))
            continue
        state: Any = events.config_of(scope.thread_id, namespace, None)
        if subgraphs:
            inner = child_scope(scope, node.child, namespace)
            inner_shot = describe(inner, stored, live=True)
            state = yield from _with_children(inner, inner_shot, subgraphs)
        tasks.append(msgspec.structs.replace(task, state=state))
    return msgspec.structs.replace(shot, tasks=tuple(tasks)) if tasks else shot


def child_scope(scope: Scope, child: Any, namespace: str) -> Scope:
    """The scope of a child graph's namespace, for reading; a child that only code knows is read without its graph."""
    graph = child.graph if child is not None else unknown_graph()
    return msgspec.structs.replace(scope, graph=graph, namespace=namespace)


def unknown_graph(keys: Iterable[str] = ()) -> Graph:
    """A stand-in for a child graph that is called from inside a node: it has no nodes, and whatever keys are stored."""
    view = View(dict, tuple(keys), {}, None)
    channels = {key: LastValue() for key in view.keys}
    return Graph("?", {}, channels, frozenset(), {}, (), {}, view, view, view)


# ------------------------------------------------------------------------------ edits


def update(
    scope: Scope, checkpoint_id: str | None, supersteps: Sequence[Sequence[StateUpdate]]
) -> Read[dict[str, Any]]:
    """Edits a thread as if nodes had run, one checkpoint for each list of updates; gives the new configuration.

    On the head, finished siblings, joins and tasks that the updates do not stand for stay as they are. Raises
    InvalidUpdateError where it is not clear or not possible which node an update stands for.
    """
    if not supersteps or any(not step for step in supersteps):
        raise InvalidUpdateError("bulk_update_state needs at least one list with at least one StateUpdate in it")
    stored = yield from load(scope, checkpoint_id)
    if scope.namespace and (stored is None or not scope.graph.nodes):
        raise UnknownCheckpointError(
            f"thread {scope.thread_id!r}: no child graph stores in namespace {scope.namespace!r}, or it is"
            " one that only a node's code knows, which cannot be edited from here"
        )
    at_head = stored is not None and stored.checkpoint.id == stored.head_id
    position = _new_thread(scope) if stored is None else position_of(stored)
    for updates in supersteps:
        if not position.unsaved and len(updates) == 1 and updates[0].as_node == "__input__":
            position = input_position(scope, stored, updates[0].values)
            at_head = True
            continue
        yield from _superstep(scope, position, updates, at_head)
        at_head = True
    place = (scope.thread_id, scope.namespace, position.revision)
    note = note_of(scope.graph, position.checkpoint)
    write = Write(*place, tuple(position.unsaved), tuple(position.unsaved_results), graph=note)
    yield Save(without_untracked(write, scope.graph.untracked))
    if scope.namespace:
        yield from reopen_parents(scope, scope.namespace)
    return events.config_of(scope.thread_id, scope.namespace, position.checkpoint.id)


def _new_thread(scope: Scope) -> Position:
    empty = Checkpoint("", None, -1, "update", 0, scope.graph.initial_values(), metadata=metadata_from(scope))
    return Position(empty)


def _superstep(scope: Scope, position: Position, updates: Sequence[StateUpdate], at_head: bool) -> Read[None]:
    graph, old = scope.graph, position.checkpoint
    if len(updates) == 1 and updates[0].as_node in (END, "__copy__"):
        new = _closed(scope, position, updates[0])
        move_from(position, new)
        return
    finished: list[tuple[Task, Finished]] = []
    consumed: set[str] = set()
    for number, item in enumerate(updates):
        node = item.as_node or _inferred(old, len(updates))
        if node not in graph.nodes:
            raise InvalidUpdateError(
                f"update_state(as_node={node!r}): there is no such node{nearest(node, graph.nodes)};"
                f" the nodes are {listing(n for n in graph.nodes)}",
                node=node,
            )
        task = _due_task(old, node, item.task_id) if at_head else None
        if task is not None:
            consumed.add(task.id)
        result = yield from _as_if_run(scope, old, node, item.values)
        finished.append((task or Task(f"update-{number}", node), result))
    kept = [task for task in old.due if task.id not in consumed] if at_head else []
    in_order = True
    if not any(not isinstance(position.results.get(task.id), Finished) for task in kept) and consumed:
        finished += [(task, r) for task in kept if isinstance(r := position.results.get(task.id), Finished)]
        kept, in_order = [], False  # every other task of the step has finished: the step is complete with this update
    new = edited(
        graph,
        old,
        finished,
        kept,
        stamp(scope, position.next_revision(scope)),
        drop_deferred=not at_head,
        in_order=in_order,
    )
    if old.id == "":
        new = msgspec.structs.replace(new, parent_id=None)
    move_from(position, new)


def move_from(position: Position, new: Checkpoint) -> None:
    """Makes an edited checkpoint the newest one; the first of a thread has no parent."""
    if position.checkpoint.id:
        move(position, new)
    else:
        position.unsaved.append(NewCheckpoint(new, None))
        position.checkpoint = new


def _closed(scope: Scope, position: Position, item: StateUpdate) -> Checkpoint:
    """as_node=END ends the step with what has finished; "__copy__" makes a sibling copy."""
    old = position.checkpoint
    revision = position.next_revision(scope)
    if item.values is not None:
        raise InvalidUpdateError(
            f"update_state(as_node={item.as_node!r}) takes no values; pass None", node=item.as_node
        )
    if item.as_node == "__copy__":
        return branch(scope, old, revision)
    finished = [(t, r) for t in old.due if isinstance(r := position.results.get(t.id), Finished)]
    return edited(scope.graph, old, finished, (), stamp(scope, revision), drop_deferred=True)


def _due_task(checkpoint: Checkpoint, node: str, task_id: str | None) -> Task | None:
    for task in checkpoint.due:
        if task.node == node and (task_id is None or task.id == task_id):
            return task
    if task_id is not None:
        raise InvalidUpdateError(f"update_state(task_id={task_id!r}): node {node!r} has no such task due", node=node)
    return None


def _inferred(checkpoint: Checkpoint, count: int) -> str:
    """The node an update stands for when nobody says: the one that ran last, or START where none ran."""
    if count > 1:
        raise InvalidUpdateError("several updates in one step need as_node each")
    if not checkpoint.ran:
        return START
    if len(checkpoint.ran) > 1:
        raise InvalidUpdateError(
            f"ambiguous update: {listing(checkpoint.ran)} ran last, all in one step; say with as_node="
            " which one the update stands for"
        )
    return next(iter(checkpoint.ran))


def _as_if_run(scope: Scope, checkpoint: Checkpoint, node: str, values: Any) -> Read[Any]:
    """What a node's writes, edges and routers make of values, without running the node."""
    task = Task(f"update:{node}", node)
    job = Job(
        scope, task, checkpoint.values, checkpoint.id, checkpoint.step + 1, scope.recursion_limit, returned=values
    )
    batch = yield Start((job,))
    while True:
        for item in batch:
            if isinstance(item, Outcome):
                if item.error is not None:
                    raise item.error
                assert isinstance(item.result, Finished)
                return item.result
            yield item
        batch = yield Wait()
