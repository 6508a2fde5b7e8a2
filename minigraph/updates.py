"""Reads what a node returned, or a caller passed, into writes and targets; refuses what the graph does not know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from minigraph.errors import InvalidUpdateError, listing, nearest
from minigraph.state import ROOT, object_writes
from minigraph.structure import Graph, check_target
from minigraph.types import END, START, Command, Send


@dataclass(slots=True)
class Update:
    """What one return value asks for: writes in order, targets besides the static edges, a Command for the parent."""

    writes: list[tuple[str, Any]] = field(default_factory=list)
    targets: list[str | Send] = field(default_factory=list)
    parent: Command[Any] | None = None


def read_update(graph: Graph, node: str, value: Any) -> Update:
    """Reads a node's return value: None, a dict, an annotated object, a Command, a Send, or a list with Commands.

    Raises InvalidUpdateError for anything else and for a key the state does not have, UnknownTargetError for a goto
    that names no node.
    """
    if type(value) is dict and ROOT not in graph.channels and value.keys() <= graph.channels.keys():
        return Update([*value.items()])  # the usual answer
    update = Update()
    for part in _parts(value):
        if isinstance(part, Command):
            if part.graph == Command.PARENT:
                update.parent = part
            else:
                _read_command(graph, node, part, update)
        elif isinstance(part, Send):
            update.targets.append(check_target(node, part, graph.nodes, f"node {node!r} returned"))
        else:
            update.writes += _writes(graph, node, part)
    return update


def _parts(value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple) and any(isinstance(part, Command) for part in value):
        return value
    return (value,)


def _read_command(graph: Graph, node: str, command: Command[Any], update: Update) -> None:
    if command.graph is not None:
        raise InvalidUpdateError(
            f"node {node!r} returned Command(graph={command.graph!r}); graph is None (this graph) or Command.PARENT",
            node=node,
        )
    if isinstance(command.update, list | tuple) and all(isinstance(p, tuple) and len(p) == 2 for p in command.update):
        update.writes += _checked(graph, node, command.update)
    else:
        update.writes += _writes(graph, node, command.update)
    gotos = [command.goto] if isinstance(command.goto, str | Send) else command.goto
    if not isinstance(gotos, Iterable):
        raise InvalidUpdateError(
            f"node {node!r} returned Command(goto={command.goto!r}); goto is a node name, a Send or a list of them",
            node=node,
        )
    for goto in gotos:
        if goto != END:
            update.targets.append(check_target(node, goto, graph.nodes, f"node {node!r} returned goto"))


def _writes(graph: Graph, node: str, value: Any) -> list[tuple[str, Any]]:
    if ROOT in graph.channels:
        return [] if value is None else [(ROOT, value)]
    if value is None:
        return []
    if isinstance(value, dict):
        return _checked(graph, node, value.items())
    writes = object_writes(value, graph.channels)
    if writes is not None:
        return _checked(graph, node, writes)
    who = "the input is" if node == START else f"node {node!r} returned"
    raise InvalidUpdateError(
        f"{who} {_shown(value)} ({type(value).__name__}); expected a dict of state keys"
        f" ({listing(graph.channels)}), an object with such fields, a Command or None",
        node=node,
    )


def _checked(graph: Graph, node: str, writes: Iterable[tuple[Any, Any]]) -> list[tuple[str, Any]]:
    allowed = graph.channels
    checked: list[tuple[str, Any]] = []
    for key, value in writes:
        if key in allowed:
            checked.append((key, value))
        elif key not in graph.managed:  # a managed value is computed; returning the one received writes nothing
            who = "the input has" if node == START else f"node {node!r} wrote"
            raise InvalidUpdateError(
                f"{who} key {key!r}, which the state does not declare{nearest(key, allowed)};"
                f" the keys are {listing(allowed)}",
                node=node,
                key=str(key),
            )
    return checked


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
