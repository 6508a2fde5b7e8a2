"""Findings about state keys: never written, not declared, written twice in one step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Any, is_typeddict

from minigraph.channels import EphemeralValue, LastValue, UntrackedValue
from minigraph.check import Finding
from minigraph.errors import listing, nearest
from minigraph.findings.flow import Flow, may_answer_anything
from minigraph.reading.function import Read, read
from minigraph.reading.values import Go, Many, Nothing, Unknown, Update, Value
from minigraph.state import ROOT, View, field_defaults
from minigraph.structure import Graph, Node
from minigraph.types import START, UNSET


def found(flow: Flow) -> Iterator[Finding]:
    """All findings about keys; none for a state that is a single value."""
    if ROOT not in flow.graph.channels:
        yield from _unwritten(flow)
        yield from _undeclared(flow)
        yield from _conflicting(flow)


@dataclass(frozen=True, slots=True)
class Writes:
    """What a function writes: keys that it may write (None: any), and those it surely writes whatever it returns."""

    may: frozenset[str] | None
    surely: frozenset[str] = frozenset()
    spelled: frozenset[str] = frozenset()
    """Keys written out in its text."""


def _writes(outcomes: Iterable[Value]) -> Writes:
    """The writes of a function to its own graph."""
    may: set[str] = set()
    spelled: set[str] = set()
    surely: list[frozenset[str]] = []
    known = True
    for value in outcomes:
        parts = [Writes(None)] if isinstance(value, Unknown) else list(map(_update, _updates(value)))
        for part in parts:
            known = known and part.may is not None
            may |= part.may or frozenset()
            spelled |= part.spelled
        surely.append(frozenset[str]().union(*(p.surely for p in parts)) if _single(value) else frozenset())
    common = frozenset.intersection(*surely) if surely else frozenset[str]()
    return Writes(frozenset(may) if known else None, common, frozenset(spelled))


def _updates(value: Value) -> Iterator[Value]:
    if isinstance(value, Go):
        if not value.parent:
            yield from value.update
    elif isinstance(value, Many):
        for item in value.items:
            for part in item:
                yield from _updates(part)
        if value.open:
            yield Unknown()
    else:
        yield value


def _single(value: Value) -> bool:
    """Whether all the updates of a returned value are applied, so that what each surely writes is written."""
    if isinstance(value, Go):
        return len(value.update) == 1 and not value.parent
    return isinstance(value, Update)


def _update(value: Value) -> Writes:
    if isinstance(value, Update):
        keys = value.keys
        return Writes(None if value.open else keys, value.certain - value.replaced, value.spelled)
    return Writes(frozenset()) if isinstance(value, Nothing) else Writes(None)


def _writes_of(graph: Graph, node: Node, flow: Flow) -> Writes:
    if may_answer_anything(node, flow.facts[node.name]):
        return Writes(None)
    if node.child is not None:
        child = node.child.graph
        shared = frozenset(child.output_view.keys) & graph.channels.keys()
        return Writes(shared, _surely_of_child(child) & shared)
    own = _writes(flow.facts[node.name].outcomes)
    if node.handler is None:
        return own
    instead = _writes(read(node.handler.function).outcomes)
    may = own.may | instead.may if own.may is not None and instead.may is not None else None
    return Writes(may, own.surely, own.spelled | instead.spelled)


def _surely_of_child(child: Graph) -> frozenset[str]:
    """What every run of a child graph writes: the nodes that single edges reach from its start."""
    surely: set[str] = set()
    todo, seen = list(child.edges.get(START, ())), set[str]()
    while todo:
        name = todo.pop()
        node = child.nodes[name]
        if name in seen or node.handler is not None or node.child is not None:
            continue
        seen.add(name)
        surely |= _writes(read(node.callee.function).outcomes).surely
        todo += child.edges.get(name, ())
    return frozenset(surely)


# ------------------------------------------------------------------ unwritten


def _unwritten(flow: Flow) -> Iterator[Finding]:
    graph = flow.graph
    given = {*graph.input_view.keys, *graph.managed}
    lacking = {key for key, channel in graph.channels.items() if key not in given and channel.initial() is UNSET}
    for key, readers in _readings(flow, lacking).items():
        who = ", ".join(f"{place} (line {reading.line})" for place, reading in readers)
        if key in graph.channels:
            yield Finding(
                "unwritten-key",
                key,
                f"nothing writes key {key!r}, which is read by {who}: no node does, the input does not have it and it"
                " has no default",
                "let a node that runs before write it, add it to the input schema, or give it a default",
            )
        else:
            yield Finding(
                "unwritten-key",
                key,
                f"there is no key {key!r}, which is read by {who}{nearest(key, graph.channels)}",
                f"declare it in the state and let a node write it; the keys are {listing(graph.channels)}",
            )


def _readings(flow: Flow, lacking: Set[str]) -> dict[str, list[tuple[str, Read]]]:
    """By key, who reads one that is not there."""
    graph = flow.graph
    written: set[str] | None = set()
    found: dict[str, list[tuple[str, Read]]] = {}
    for place, function, view in _readers(flow):
        if is_typeddict(view.schema):
            defaults: dict[str, Callable[[], Any]] = {}
        else:
            defaults = field_defaults(view.schema) if isinstance(view.schema, type) else {}
        for reading in read(function).reads:
            key = reading.key
            if reading.attribute == is_typeddict(view.schema):
                continue  # an attribute of a dict is a method, an item of an object is none of its keys
            if key in graph.managed or key in defaults or any(reading.key == r.key for p, r in found.get(key, [])):
                continue
            if key in lacking:
                if written is not None and not written:
                    written = _all_written(flow)
                if written is None or key in written:
                    continue
            elif key in graph.channels or not reading.firm or not is_typeddict(view.schema):
                continue
            found.setdefault(key, []).append((place, reading))
    return found


def _all_written(flow: Flow) -> set[str] | None:
    """Every key that some node may write; None where one may write any."""
    written: set[str] = set()
    for name, node in flow.graph.nodes.items():
        if name != START:
            may = _writes_of(flow.graph, node, flow).may
            if may is None:
                return None
            written |= may
    return written


def _readers(flow: Flow) -> Iterator[tuple[str, Any, View]]:
    """Functions that surely get the state, not what a Send carries: place, function and view."""
    graph = flow.graph
    choices = list(flow.all_choices())
    sent = set().union(*(choice.sends for choice in choices))
    if any(choice.unknown for choice in choices):
        return
    for name, node in graph.nodes.items():
        if name in sent:
            continue
        if name != START and node.child is None:
            yield f"node {name!r}", node.callee.function, node.view
        for router in graph.routers.get(name, ()):
            yield f"router {router.name!r} of {name!r}", router.callee.function, router.view or graph.state_view


# ----------------------------------------------------------------- undeclared


def _undeclared(flow: Flow) -> Iterator[Finding]:
    graph = flow.graph
    for name, node in graph.nodes.items():
        if name == START or node.child is not None:
            continue
        spelled = _writes_of(graph, node, flow).spelled
        for key in sorted(spelled - graph.channels.keys() - graph.managed):
            yield Finding(
                "undeclared-key",
                name,
                f"node {name!r} writes key {key!r}, which the state does not declare{nearest(key, graph.channels)}",
                f"declare it in the state, or write one of its keys: {listing(graph.channels)}",
            )


# ---------------------------------------------------------------- conflicting


def _conflicting(flow: Flow) -> Iterator[Finding]:
    graph = flow.graph
    plain = {key for key, channel in graph.channels.items() if _takes_one(channel)}
    surely: dict[str, frozenset[str]] = {}

    def keys_of(name: str) -> frozenset[str]:
        if name not in surely:
            surely[name] = _writes_of(graph, graph.nodes[name], flow).surely & plain
        return surely[name]

    reported: set[str] = set()
    for source, level in _together(flow):
        for one, other in itertools.combinations(sorted(level), 2):
            for key in sorted((keys_of(one) & keys_of(other)) - reported):
                reported.add(key)
                yield _conflict(key, f"nodes {one!r} and {other!r} run in one step, after {source!r}, and both write")
    for choice in flow.all_choices():
        for name in sorted(choice.repeated):
            for key in sorted(keys_of(name) - reported):
                reported.add(key)
                yield _conflict(key, f"{choice.place!r} sends several tasks to {name!r}, and each of them writes")


def _conflict(key: str, what: str) -> Finding:
    return Finding(
        "conflicting-writes",
        key,
        f"{what} key {key!r}, a plain key that takes one value a step",
        "give it a reducer, as in Annotated[list, operator.add], or let one of them write it",
    )


def _takes_one(channel: object) -> bool:
    return type(channel) is LastValue or (isinstance(channel, EphemeralValue | UntrackedValue) and channel.guard)


def _together(flow: Flow) -> Iterator[tuple[str, frozenset[str]]]:
    """Sets of nodes that surely run in one step, each with the place they come from.

    After each place: its single edges and what one answer chooses; then, as long as several run side by side, what
    their single edges lead to.
    """
    graph = flow.graph
    seen: set[frozenset[str]] = set()
    for source in graph.nodes:
        static = frozenset(graph.edges.get(source, ()))
        groups = [group for choice in flow.choices[source] for group in choice.groups]
        for group in dict.fromkeys([static, *(static | group for group in groups)]):
            level = _prompt(graph, group)
            while len(level) > 1 and level not in seen:
                seen.add(level)
                yield source, level
                level = _prompt(graph, {target for name in level for target in graph.edges.get(name, ())})


def _prompt(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if not graph.nodes[name].defer)
