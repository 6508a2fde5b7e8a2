"""What becomes of stored threads when a graph changes: whether they still fit it, and how names move on.

A thread is stored with the fingerprint of the graph that wrote it. A `Migration` says which of its keys and nodes have
other names now. It is applied as a thread is read, so that history, replay and answers go on as before; what is stored
already stays as it is, and the next checkpoint is stored whole under the new names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from minigraph.errors import GraphChangedError, GraphDefinitionError, UnknownNodeError, listing, nearest
from minigraph.records import Ancestor, Checkpoint, Failed, Finished, Result, Stored, Task
from minigraph.step import Stamp
from minigraph.structure import Graph
from minigraph.types import START, Command, Send

if TYPE_CHECKING:
    from minigraph.context import Scope


@dataclass(frozen=True, slots=True)
class Migration:
    """Names that changed between two versions of a graph: `Migration(keys={"old": "new"}, nodes={"old": "new"})`.

    A key or join that maps to None is forgotten. `joins` names list edges as errors do ("a+b:c"); one whose nodes were
    renamed needs no entry. `convert` gets the stored state, under its new names, and returns what it is now; it must
    change nothing in place. With `from_fingerprint` the migration is for what the graph with that fingerprint wrote
    ("": for what has none), and those after it in the list apply too. Without it, it is for whatever has the old names.
    Where both versions have the same names, `compile(version=...)` of the newer one tells them apart.
    """

    keys: Mapping[str, str | None] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    joins: Mapping[str, str | None] = field(default_factory=dict)
    convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    from_fingerprint: str | None = None


Plan = Sequence[Migration]
T = TypeVar("T")


class Migrated(Checkpoint, frozen=True):
    """A checkpoint that is stored under other names than it has here: what follows it must be stored whole."""


# ------------------------------------------------------------------------------ fit


def check_fits(scope: Scope, stored: Stored | None, *, goes_on: bool) -> None:
    """Raises GraphChangedError where a stored thread does not fit the graph, before anything is run or written.

    `goes_on`: its due tasks are to run; new input drops them, and takes over the state and the joins alone.
    """
    if stored is None:
        return
    graph, point = scope.graph, stored.checkpoint
    due = {task.node for task in point.due} if goes_on else ()
    rare = point.joins or stored.results or point.deferred
    if not rare and graph.channels.keys() >= point.values.keys() and graph.nodes.keys() >= set(due):
        return
    keys = [key for key in point.values if key not in graph.channels]
    known = {join.name for join in graph.joins} if any(point.joins.values()) else ()
    joins = [name for name, seen in point.joins.items() if seen and name not in known]
    nodes: list[str] = []
    if goes_on:
        nodes = [name for name in _pending(point, stored.results) if name not in graph.nodes]
        for result in _finished(stored.results):
            keys += [key for key, _ in result.writes if key not in graph.channels]
    if keys or joins or nodes:
        raise _changed(scope, stored, dict.fromkeys(nodes), dict.fromkeys(keys), joins)


def note_of(graph: Graph, point: Checkpoint) -> str:
    """The fingerprint to store with an edit of a thread; "" (as what is stored already) where it does not fit."""
    fits = point.values.keys() <= graph.channels.keys() and all(name in graph.nodes for name in _pending(point, ()))
    return graph.fingerprint if fits else ""


def _finished(results: Iterable[Result]) -> list[Finished]:
    """What nodes gave, those too whose router alone failed."""
    given = [result.kept if isinstance(result, Failed) else result for result in results]
    return [result for result in given if isinstance(result, Finished)]


def _pending(point: Checkpoint, results: Iterable[Result]) -> list[str]:
    targets = [target for result in _finished(results) for target in result.targets]
    named = [target.node if isinstance(target, Send) else target for target in targets]
    return [*(task.node for task in point.due), *point.deferred, *named]


def _changed(
    scope: Scope, stored: Stored, nodes: Collection[str], keys: Collection[str], joins: Collection[str]
) -> GraphChangedError:
    graph = scope.graph
    named = [name for name in graph.nodes if name != START]
    said = [f"it waits for node {name!r}{nearest(name, named)}" for name in nodes]
    said += [f"it holds the key {key!r}{nearest(key, graph.channels)}" for key in keys]
    said += [f"the list edge {name!r} has seen some of its sources" for name in joins]
    known = (f"nodes {listing(named)}" if nodes else "") + (" and " if nodes and keys else "")
    known += f"keys {listing(graph.channels)}" if keys else ""
    known = known or f"list edges {listing(join.name for join in graph.joins)}"
    groups = {"nodes": nodes, "keys": keys, "joins": joins}
    remedy = ", ".join(
        f"{what}={{{', '.join(f'{name!r}: ...' for name in names)}}}" for what, names in groups.items() if names
    )
    place = f"thread {scope.thread_id!r}" + (f", namespace {scope.namespace!r}" if scope.namespace else "")
    facts: dict[str, Any] = {
        "thread_id": scope.thread_id,
        "keys": tuple(keys),
        "joins": tuple(joins),
        "stored": stored.graph,
        "present": graph.fingerprint,
    }
    message = (
        f"{place} does not fit this graph: {'; '.join(said)}, which the graph does not have (it has {known}). The"
        f" thread was stored by the graph {stored.graph or '(unknown)'}, this is {graph.fingerprint}."
        f" Say what became of it: compile(..., migrations=[Migration({remedy})]), with the name it has now, or None to"
        " forget a key or a list edge; otherwise compile a graph that has it, or move the thread on with"
        " update_state(config, values, as_node=...). Nothing was written"
    )
    first = next(iter(nodes), None)
    if first is not None:
        return UnknownNodeError(message, node=first, **facts)
    return GraphChangedError(message, **facts)


# ----------------------------------------------------------------------------- plan


def checked_migrations(graph: Graph, migrations: Sequence[Migration]) -> tuple[Migration, ...]:
    """The migrations, which must lead to names that the graph has. GraphDefinitionError where they do not.

    TypeError for what is no list of migrations.
    """
    if isinstance(migrations, Migration) or not all(isinstance(each, Migration) for each in migrations):
        raise TypeError(f"migrations={migrations!r}: a list of Migration(...)")
    plan = tuple(migrations)
    for place, migration in enumerate(plan):
        where, later = f"migrations[{place}]", plan[place + 1 :]
        nodes = [name for name in graph.nodes if name != START]
        for what, names, known in (("nodes", migration.nodes, nodes), ("keys", migration.keys, [*graph.channels])):
            _check_names(where, what, names, known, later, sure=migration.from_fingerprint is not None)
        if migration.convert is not None and migration.from_fingerprint is None:
            raise GraphDefinitionError(
                f"{where}: convert needs from_fingerprint, since nothing else says which states are still to be"
                " converted; get_state(config).fingerprint and graph.fingerprint show fingerprints"
            )
        if migration.from_fingerprint == graph.fingerprint:
            raise GraphDefinitionError(
                f"{where}: from_fingerprint={graph.fingerprint!r} is this graph itself, so nothing of it is older;"
                " where the names are the same and what they hold is not, give the graph another version:"
                f" compile(..., version={graph.version + '2'!r})"
            )
    return plan


def _check_names(
    where: str, what: str, names: Mapping[str, str | None], known: Sequence[str], later: Plan, *, sure: bool
) -> None:
    renamed = [name for name in names.values() if name is not None]
    if len(set(renamed)) < len(renamed):
        raise GraphDefinitionError(f"{where}: {what}={dict(names)!r}: two names become one")
    for old, new in names.items():
        if new is None and what == "nodes":
            raise GraphDefinitionError(
                f"{where}: nodes={{{old!r}: None}}: a task cannot be forgotten; name a node that takes its place"
            )
        last = new
        for migration in later:
            last = None if last is None else getattr(migration, what).get(last, last)
        if last is not None and last not in known:
            raise GraphDefinitionError(
                f"{where}: {what}={{{old!r}: {new!r}}}: the graph has no {what[:-1]} {last!r}{nearest(last, known)}"
                f" (it has {listing(known)})"
            )
        if old in known and not sure:
            raise GraphDefinitionError(
                f"{where}: {what}={{{old!r}: {new!r}}}: the graph has {old!r} again, so only a fingerprint tells which"
                " of the two a thread means: add from_fingerprint="
            )


def plan_for(graph: Graph, migrations: Plan, stored_by: str) -> Plan:
    """The migrations that apply to what a graph with this fingerprint wrote ("": unknown)."""
    if stored_by == graph.fingerprint:
        return ()
    for place, migration in enumerate(migrations):
        if migration.from_fingerprint == stored_by:
            return migrations[place:]
    return [migration for migration in migrations if migration.from_fingerprint is None]


def old_names(migrations: Plan, what: str, name: str) -> list[str]:
    """What a node or key may have been called before, the latest name first."""
    found = [name]
    for migration in reversed(migrations):
        found += [old for old, new in getattr(migration, what).items() if new in found and old not in found]
    return found[1:]


def new_name(plan: Plan, what: str, name: str) -> str | None:
    """What a node or key is called now; None where it is forgotten."""
    found: str | None = name
    for migration in plan:
        found = None if found is None else getattr(migration, what).get(found, found)
    return found


# ---------------------------------------------------------------------------- apply


def migrated(graph: Graph, migrations: Plan, stored: Stored) -> Stored:
    """A stored checkpoint and its results under the names that a graph has now; the same object if they have them."""
    plan = plan_for(graph, migrations, stored.graph)
    if not plan:
        return stored
    point, names = stored.checkpoint, _Names(graph, plan)
    changed = {
        "values": names.values(point.values),
        "due": _each(names.task, point.due),
        "deferred": tuple(sorted({names.node(name) for name in point.deferred})),
        "joins": names.joins(point.joins),
        "ran": tuple(sorted({names.node(name) for name in point.ran})),
        "written": names.writes(point.written),
    }
    results = _each(names.result, stored.results)
    labels = ("deferred", "joins", "ran")
    fields: dict[str, Any] = {name: getattr(point, name) for name in Checkpoint.__struct_fields__}
    same = [
        changed[name] == part if name in labels else changed[name] is part
        for name, part in fields.items()
        if name in changed
    ]
    if results is stored.results and all(same):
        return stored
    return msgspec.structs.replace(stored, checkpoint=Migrated(**fields | changed), results=results)


def _each(change: Callable[[T], T], items: tuple[T, ...]) -> tuple[T, ...]:
    """The items changed; the same tuple where none is."""
    found = tuple([change(item) for item in items])
    return items if all(map(is_, found, items)) else found


def migrated_ancestor(graph: Graph, migrations: Plan, ancestor: Ancestor) -> Ancestor:
    """The same for a checkpoint without its state."""
    plan = plan_for(graph, migrations, ancestor.graph)
    ran = tuple(sorted({new_name(plan, "nodes", name) or name for name in ancestor.ran}))
    return ancestor if ran == ancestor.ran else msgspec.structs.replace(ancestor, ran=ran)


def settled(old: Checkpoint, stamp: Stamp) -> Checkpoint:
    """The same checkpoint as its own child, to be stored under its new names; its tasks stay what they are."""
    fields = {name: getattr(old, name) for name in Checkpoint.__struct_fields__}
    place = {"id": stamp.id, "parent_id": old.id, "step": old.step + 1, "source": "update", "created": stamp.created}
    return Checkpoint(**fields | place)


class _Names:
    """The names of a graph, from those that a plan begins with."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self.plan = plan
        self.of_joins: dict[str, str] = {}
        for join in graph.joins:
            names = [*join.sources, join.target]
            for migration in reversed(plan):
                before = {new: old for old, new in migration.nodes.items()}
                names = [before.get(name, name) for name in names]
                self.of_joins["+".join(names[:-1]) + ":" + names[-1]] = join.name

    def node(self, name: str) -> str:
        return new_name(self.plan, "nodes", name) or name

    def values(self, values: dict[str, Any]) -> dict[str, Any]:
        found = values
        for migration in self.plan:
            names = migration.keys
            if not names.keys().isdisjoint(found):
                # a key whose new name is taken stays, so that nothing is lost: the graph does not fit then
                taken = found.keys() - names.keys()
                named = [(key if names.get(key) in taken else names.get(key, key), part) for key, part in found.items()]
                found = {key: part for key, part in named if key is not None}
            if migration.convert is not None:
                found = _converted(migration.convert, found)
        return found

    def writes(self, writes: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
        named = [new_name(self.plan, "keys", key) for key, _ in writes]
        if named == [key for key, _ in writes]:
            return writes
        return tuple([(key, value) for key, (_, value) in zip(named, writes, strict=True) if key is not None])

    def joins(self, joins: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        found = {}
        for name, seen in joins.items():
            said = new_name(self.plan, "joins", name)
            if said is not None:
                found[self.of_joins.get(said, said)] = tuple([self.node(source) for source in seen])
        return found

    def task(self, task: Task) -> Task:
        payload = task.payload
        if task.node == START:
            payload = self.given(payload)
        if self.node(task.node) == task.node and payload is task.payload:
            return task
        return msgspec.structs.replace(task, node=self.node(task.node), payload=payload)

    def given(self, given: Any) -> Any:
        """Input that still waits to be applied."""
        if isinstance(given, Command):
            update = self.given(given.update)
            return given if update is given.update else dataclasses.replace(given, update=update)
        if type(given) is not dict:
            return given
        named = {new_name(self.plan, "keys", key) if type(key) is str else key: part for key, part in given.items()}
        return given if list(named) == list(given) else {key: part for key, part in named.items() if key is not None}

    def result(self, result: Result) -> Result:
        node = self.node(result.node)
        if isinstance(result, Finished):
            return self.finished(result, node)
        if isinstance(result, Failed) and result.kept is not None:
            kept = self.finished(result.kept, node)
            return result if kept is result.kept else msgspec.structs.replace(result, node=node, kept=kept)
        return result if node == result.node else msgspec.structs.replace(result, node=node)

    def finished(self, result: Finished, node: str) -> Finished:
        targets = tuple(
            [Send(self.node(t.node), t.arg) if isinstance(t, Send) else self.node(t) for t in result.targets]
        )
        writes, same = self.writes(result.writes), [t if isinstance(t, str) else t.node for t in targets]
        if (
            node == result.node
            and writes is result.writes
            and same == [t if isinstance(t, str) else t.node for t in result.targets]
        ):
            return result
        return msgspec.structs.replace(result, node=node, writes=writes, targets=targets)


def _converted(convert: Callable[[dict[str, Any]], dict[str, Any]], values: dict[str, Any]) -> dict[str, Any]:
    found = convert(dict(values))
    if type(found) is not dict:
        raise TypeError(
            f"Migration(convert=...) returned a {type(found).__name__}: a dict of the state's keys is needed"
        )
    return found
