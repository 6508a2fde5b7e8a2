"""The compiled shape of a graph as frozen data: nodes, edges, routers and joins, with no way to change them."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from minigraph.channels import Channel, Reduced
from minigraph.errors import (
    GraphDefinitionError,
    InvalidUpdateError,
    RoutingTypeError,
    UnknownTargetError,
    listing,
    nearest,
)
from minigraph.state import View
from minigraph.types import END, START, UNSET, CachePolicy, Command, RetryPolicy, Send, TimeoutPolicy

INJECTED = ("config", "runtime", "writer", "previous", "error")
"""The parameters, besides the state, that a node, router or error handler may ask for by name."""


@dataclass(frozen=True, slots=True)
class Callee:
    """A user's function and how to call it: with the state, and with the extra parameters that it names."""

    function: Callable[..., Any]
    injected: tuple[str, ...]
    is_async: bool
    async_function: Callable[..., Any] | None = None
    """A twin for the async driver, where the function has one (a child graph)."""

    @property
    def plain(self) -> bool:
        """Whether it is called with the state alone, and without an event loop."""
        return not (self.is_async or self.injected or self.async_function)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Callee:
        """Reads a callable's signature once, so that calling it costs nothing extra."""
        try:
            parameters = list(inspect.signature(function).parameters.values())[1:]
        except (TypeError, ValueError):
            parameters = []
        names = tuple(p.name for p in parameters if p.name in INJECTED and p.kind is not p.VAR_KEYWORD)
        return cls(function, names, is_coroutine_function(function))


@dataclass(frozen=True, slots=True)
class Router:
    """A conditional edge: asked after its node, it names the tasks that come next."""

    name: str
    callee: Callee
    view: View | None
    targets: Mapping[Any, str] | None
    """What the router may return, mapped to node names; None where it returns node names themselves."""

    def resolve(self, node: str, answer: Any, names: Mapping[str, Any]) -> tuple[str | Send, ...]:
        """The targets an answer stands for, END left out.

        Raises RoutingTypeError for a value that can be no target and UnknownTargetError for one that names no node.
        """
        mapped = self.targets
        single = not isinstance(answer, list | tuple)
        if single and (isinstance(answer, set | frozenset | Command) or (isinstance(answer, bool) and mapped is None)):
            raise RoutingTypeError(
                f"router {self.name!r} after node {node!r} returned {answer!r} ({type(answer).__name__});"
                " return a node name, END, a Send, or a list of them"
            )
        found: list[str | Send] = []
        for value in [answer] if single else answer:
            target = value
            if not isinstance(value, Send) and mapped is not None and value != END:
                target = self._mapped(node, value)
            if target != END:
                found.append(check_target(node, target, names, f"router {self.name!r} after node {node!r} returned"))
        return tuple(found)

    def _mapped(self, node: str, value: Any) -> str:
        assert self.targets is not None
        try:
            return self.targets[value]
        except (KeyError, TypeError):
            choices = tuple(str(key) for key in self.targets)
            raise UnknownTargetError(
                f"router {self.name!r} after node {node!r} returned {value!r}, which is not one of its targets"
                f" ({', '.join(choices)}){nearest(value, choices)}",
                node=node,
                value=value,
                choices=choices,
            ) from None


@dataclass(frozen=True, slots=True)
class Node:
    """A node: what it runs, what it reads, and what happens when it fails or takes too long."""

    name: str
    callee: Callee
    view: View
    defer: bool = False
    retry: tuple[RetryPolicy, ...] = ()
    timeout: TimeoutPolicy | None = None
    cache: CachePolicy | None = None
    handler: Callee | None = None
    destinations: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] | None = None
    child: Any = None
    """The CompiledGraph that this node is, if it is one."""


@dataclass(frozen=True, slots=True)
class Join:
    """A list edge: its target runs once all sources have finished, and then waits for all of them again."""

    name: str
    sources: tuple[str, ...]
    target: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Everything that a step needs to know, fixed at compile time."""

    name: str
    nodes: Mapping[str, Node]
    channels: Mapping[str, Channel]
    managed: frozenset[str]
    edges: Mapping[str, tuple[str, ...]]
    joins: tuple[Join, ...]
    routers: Mapping[str, tuple[Router, ...]]
    state_view: View
    input_view: View
    output_view: View
    context_schema: Any = None
    version: str = ""
    """What the program calls this version of it, where its names alone do not tell."""
    joins_of: Mapping[str, tuple[Join, ...]] = field(init=False)
    untracked: frozenset[str] = field(init=False)
    """The keys that are never stored."""
    aging: tuple[str, ...] = field(init=False)
    """The keys that change in a step which does not write them."""
    appended: frozenset[str] = field(init=False)
    """The keys that `operator.add` grows at their end."""
    deferring: frozenset[str] = field(init=False)
    """The nodes that wait until nothing else is due."""
    fingerprint: str = field(init=False)
    """16 hexadecimal digits of what a stored thread depends on: names of nodes, keys and their kinds, list edges,
    and the version."""

    def __post_init__(self) -> None:
        of = {name: tuple(j for j in self.joins if name in j.sources) for name in (*self.nodes, START)}
        object.__setattr__(self, "joins_of", {name: joins for name, joins in of.items() if joins})
        object.__setattr__(self, "untracked", frozenset(k for k, c in self.channels.items() if not c.tracked))
        aging = tuple(k for k, c in self.channels.items() if type(c).idle is not Channel.idle)
        object.__setattr__(self, "aging", aging)
        added = (k for k, c in self.channels.items() if isinstance(c, Reduced) and c.reducer is operator.add)
        object.__setattr__(self, "appended", frozenset(added))
        object.__setattr__(self, "deferring", frozenset(name for name, node in self.nodes.items() if node.defer))
        object.__setattr__(self, "fingerprint", _fingerprint(self))

    def initial_values(self) -> dict[str, Any]:
        """The state of a thread that nothing has been written to."""
        return {key: value for key, channel in self.channels.items() if (value := channel.initial()) is not UNSET}


def _fingerprint(graph: Graph) -> str:
    nodes = sorted([name for name in graph.nodes if name != START])
    keys = sorted([(key, type(channel).__name__, channel.tracked) for key, channel in graph.channels.items()])
    joins = sorted([join.name for join in graph.joins])
    if not isinstance(graph.version, str):
        raise TypeError(f'compile(version={graph.version!r}): a str, such as "2"')
    named = (nodes, keys, joins, graph.version) if graph.version else (nodes, keys, joins)
    return blake2b(ascii(named).encode(), digest_size=8).hexdigest()


def check_target(node: str, target: Any, names: Mapping[str, Any], did: str) -> str | Send:
    """The target itself if it is a node's name or a Send to one.

    Raises InvalidUpdateError for a Send to END and UnknownTargetError for anything that names no node.
    """
    name = target.node if isinstance(target, Send) else target
    if isinstance(target, Send) and name == END:
        raise InvalidUpdateError(f"{did} Send({END!r}, ...): END takes no input; send to a node", node=node)
    if not isinstance(name, str) or name not in names or name == START:
        choices = tuple(n for n in names if n != START)
        raise UnknownTargetError(
            f"{did} {target!r}, which names no node; the nodes are {', '.join(map(repr, choices))}, and END is always"
            f" allowed{nearest(name, choices)}",
            node=node,
            value=target,
            choices=choices,
        )
    checked: str | Send = target
    return checked


def check_node_name(name: str, known: Mapping[str, Any]) -> None:
    """Raises GraphDefinitionError for a name that is taken, or that no node can have."""
    if name in known:
        raise GraphDefinitionError(f"there is already a node {name!r}; node names are unique")
    if name.startswith("__") and name.endswith("__"):
        raise GraphDefinitionError(f"node name {name!r} is reserved; names in double underscores are the engine's")
    if not name or "|" in name or ":" in name:
        raise GraphDefinitionError(
            f"node name {name!r} is empty or contains '|' or ':', which separate names in stored paths"
        )


def check_known(named: Iterable[tuple[str, str]], nodes: Mapping[str, Any]) -> None:
    """Raises GraphDefinitionError for a name that is no node's; `named` holds names and where each was named."""
    for name, where in named:
        if name not in nodes and name not in (START, END):
            raise GraphDefinitionError(
                f"{where}: there is no node {name!r}{nearest(name, nodes)}; there are {listing(nodes)}"
            )


def function_name(function: Any) -> str:
    """The name a node gets from its function: `__name__`, or the class name of a callable object."""
    name = getattr(function, "__name__", None) or type(function).__name__
    if not isinstance(name, str):
        raise GraphDefinitionError(f"{function!r} has no usable name: pass one, as in add_node('name', function)")
    return name


def is_coroutine_function(function: Any) -> bool:
    """Whether calling it gives a coroutine: async functions, partials of them, objects with an async __call__."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004  # the method itself is wanted, not whether there is one
    )


def router_targets(
    path: Callable[..., Any], path_map: Mapping[Any, str] | Sequence[str] | None
) -> dict[Any, str] | None:
    """What a router may answer, mapped to node names: by its path_map or a `-> Literal["a", "b"]` annotation."""
    if isinstance(path_map, Mapping):
        return dict(path_map)
    if path_map is not None:
        return {name: name for name in path_map}
    hint = _return_hint(path)
    if get_origin(hint) is Literal:
        return {name: name for name in get_args(hint)}
    return None


def command_targets(action: Any) -> tuple[str, ...] | None:
    """The node names in a `-> Command[Literal["a", "b"]]` annotation, which may be one side of a union."""
    hint = _return_hint(action)
    found = [
        name
        for part in (get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,))
        if get_origin(part) is Command and (args := get_args(part)) and get_origin(args[0]) is Literal
        for name in get_args(args[0])
    ]
    return tuple(found) or None


def _return_hint(function: Any) -> Any:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(target).get("return")
    except (NameError, TypeError, AttributeError):
        return None
