"""StateGraph: describe nodes and edges, then compile them into a graph that runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Self,
    Unpack,
    cast,
    overload,
)

from minigraph.channels import Channel, copied
from minigraph.errors import GraphDefinitionError, nearest
from minigraph.signatures import (
    Breakpoints,
    ContextT,
    Function,
    InputT,
    NodeFunction,
    NodeInputT,
    NodeOptions,
    OutputT,
    Retry,
    RouterFunction,
    SequenceItem,
    StateT,
    Target,
    Timeout,
)
from minigraph.state import ROOT, Schema, View, first_parameter_schema, merge_channels, read_schema
from minigraph.structure import (
    Callee,
    Graph,
    Join,
    Node,
    Router,
    check_known,
    check_node_name,
    command_targets,
    function_name,
    router_targets,
)
from minigraph.types import END, START, CachePolicy, RetryPolicy, Send, TimeoutPolicy

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from minigraph.cache import Cache
    from minigraph.checkpoint.base import Saver
    from minigraph.compiled import CompiledGraph
    from minigraph.migration import Migration

    AnyGraph = CompiledGraph[Any, Any, Any, Any]


@dataclass(slots=True)
class _NodeSpec:
    """What add_node was told, until compile() makes a Node of it."""

    action: Any
    schema: Any
    options: dict[str, Any]


@dataclass(slots=True)
class _RouterSpec:
    path: Callable[..., Any]
    targets: dict[Any, str] | None
    schema: Any


@dataclass(slots=True)
class _Defaults:
    retry_policy: Retry = None
    cache_policy: CachePolicy | None = None
    error_handler: Callable[..., Any] | None = None
    timeout: Timeout = None


class StateGraph(Generic[StateT, ContextT, InputT, OutputT]):
    """A graph under construction. Nodes are functions from the state to an update of it.

    `state_schema` declares the keys; `input_schema` and `output_schema` (default: the state) narrow what `invoke`
    takes and returns; `context_schema` types what `invoke(context=...)` hands to every node.
    Raises GraphDefinitionError (a ValueError) for schemas that contradict each other.
    """

    def __init__(
        self,
        state_schema: type[StateT],
        context_schema: type[ContextT] | None = None,
        *,
        input_schema: type[InputT] | None = None,
        output_schema: type[OutputT] | None = None,
    ) -> None:
        self.state_schema, self.context_schema = state_schema, context_schema
        self.input_schema = input_schema if input_schema is not None else state_schema
        self.output_schema = output_schema if output_schema is not None else state_schema
        self._channels: dict[str, Channel] = {}
        self._schemas: dict[int, Schema] = {}
        self._nodes: dict[str, _NodeSpec] = {}
        self._edges: list[tuple[str, str]] = []
        self._joins: list[Join] = []
        self._routers: dict[str, dict[str, _RouterSpec]] = {}
        self._defaults = _Defaults()
        self._state = self._declare(state_schema, "the state")
        for schema, where in ((self.input_schema, "the input schema"), (self.output_schema, "the output schema")):
            read = self._declare(schema, where)
            if read.view.managed and schema is not state_schema:
                raise GraphDefinitionError(
                    f"{where}: managed key {next(iter(read.view.managed))!r} belongs in the state schema only"
                )

    # ------------------------------------------------------------------ nodes

    @overload
    def add_node(
        self,
        node: str | Function[NodeInputT, ContextT, object],
        action: Function[NodeInputT, ContextT, object] | None = None,
        *,
        input_schema: type[NodeInputT],
        **options: Unpack[NodeOptions],
    ) -> Self: ...

    @overload
    def add_node(
        self,
        node: NodeFunction[StateT, ContextT] | AnyGraph,
        *,
        input_schema: None = None,
        **options: Unpack[NodeOptions],
    ) -> Self: ...

    @overload
    def add_node(
        self,
        node: str,
        action: NodeFunction[StateT, ContextT] | AnyGraph,
        *,
        input_schema: None = None,
        **options: Unpack[NodeOptions],
    ) -> Self: ...

    def add_node(
        self,
        node: str | Callable[..., object] | AnyGraph,
        action: Callable[..., object] | AnyGraph | None = None,
        *,
        defer: bool = False,
        metadata: Mapping[str, Any] | None = None,
        input_schema: Any = None,
        retry_policy: Retry = None,
        cache_policy: CachePolicy | None = None,
        error_handler: Callable[..., object] | None = None,
        destinations: Mapping[str, str] | Sequence[str] | None = None,
        timeout: Timeout = None,
    ) -> Self:
        """Adds a node: a function (named by itself or by `node`), or a compiled graph.

        `defer` holds it back until nothing else is due. `input_schema` (or the annotation of the first parameter)
        says what it reads. `destinations` lists where its Commands may go. `timeout` is seconds, async nodes only.
        Raises GraphDefinitionError for a name that is taken or reserved and for a bad option.
        """
        if action is None:
            if isinstance(node, str):
                raise GraphDefinitionError(
                    f"add_node({node!r}) has no action; pass the function as the second argument"
                )
            action, node = node, function_name(node)
        name = str(getattr(node, "value", node)) if not isinstance(node, str) else str.__str__(node)
        check_node_name(name, self._nodes)
        if not callable(action) and not _is_compiled(action):
            raise GraphDefinitionError(f"node {name!r}: {action!r} is neither a function nor a compiled graph")
        schema = input_schema
        if schema is None and not _is_compiled(action):
            schema = first_parameter_schema(cast(Callable[..., Any], action))
        if schema is not None:
            self._declare(schema, f"the input of node {name!r}")
        options = {
            "defer": defer,
            "metadata": metadata,
            "retry_policy": retry_policy,
            "cache_policy": cache_policy,
            "error_handler": error_handler,
            "destinations": tuple(destinations) if destinations is not None else None,
            "timeout": timeout,
        }
        self._nodes[name] = _NodeSpec(action, schema, options)
        return self

    def set_node_defaults(
        self,
        *,
        retry_policy: Retry = None,
        cache_policy: CachePolicy | None = None,
        error_handler: Callable[..., object] | None = None,
        timeout: Timeout = None,
    ) -> Self:
        """Sets what nodes get that do not say otherwise. A default time-out applies to async nodes only."""
        self._defaults = _Defaults(retry_policy, cache_policy, error_handler, timeout)
        return self

    def add_sequence(self, nodes: Sequence[SequenceItem[StateT, ContextT]]) -> Self:
        """Adds nodes and an edge from each to the next. Raises GraphDefinitionError for an empty sequence."""
        if not nodes:
            raise GraphDefinitionError("add_sequence([]): a sequence needs at least one node")
        names: list[str] = []
        for item in nodes:
            name, action = item if isinstance(item, tuple) else (function_name(item), item)
            self.add_node(name, action)
            names.append(name)
        for source, target in itertools.pairwise(names):
            self.add_edge(source, target)
        return self

    # ------------------------------------------------------------------ edges

    def add_edge(self, start: str | Sequence[str], end: str) -> Self:
        """Runs `end` after `start`; with a list of starts, once after all of them have finished.

        Raises GraphDefinitionError for an edge out of END or into START, and for a list that names unknown nodes.
        """
        if end == START:
            raise GraphDefinitionError("an edge cannot lead to START; to loop, lead it to the first node")
        if isinstance(start, str):
            if start == END:
                raise GraphDefinitionError("an edge cannot leave END; END stops a path")
            if (start, end) not in self._edges:
                self._edges.append((start, end))
            return self
        sources = tuple(dict.fromkeys(start))
        if not sources:
            raise GraphDefinitionError(f"add_edge([], {end!r}): a list edge needs at least one source")
        for name in (*sources, end):
            if name not in self._nodes and name != END:
                raise GraphDefinitionError(
                    f"add_edge({list(start)!r}, {end!r}): there is no node {name!r} yet; a list edge needs its nodes"
                    f" added first{nearest(name, self._nodes)}"
                )
            if name == END and name in sources:
                raise GraphDefinitionError("an edge cannot leave END; END stops a path")
        join = Join("+".join(sources) + ":" + end, sources, end)
        if join not in self._joins and end != END:
            self._joins.append(join)
        return self

    @overload
    def add_conditional_edges(
        self, source: str, path: RouterFunction[ContextT, Target], path_map: Sequence[str] | None = None
    ) -> Self: ...

    @overload
    def add_conditional_edges(
        self, source: str, path: RouterFunction[ContextT, object], path_map: Mapping[Any, str]
    ) -> Self: ...

    def add_conditional_edges(
        self,
        source: str,
        path: Callable[..., Any],
        path_map: Mapping[Any, str] | Sequence[str] | None = None,
    ) -> Self:
        """Asks `path` after `source` where to go: a node name, END, a Send, or a list of them.

        `path_map` maps what `path` returns to node names (a list: the names themselves); a Literal return annotation
        does the same. Raises GraphDefinitionError if the source already has a router of this name.
        """
        if source == END:
            raise GraphDefinitionError("conditional edges cannot leave END")
        name = function_name(path)
        routers = self._routers.setdefault(source, {})
        if name in routers:
            raise GraphDefinitionError(
                f"node {source!r} already has a router named {name!r}; name this one differently"
            )
        schema = first_parameter_schema(path)
        if schema is not None:
            self._declare(schema, f"the input of router {name!r}")
        routers[name] = _RouterSpec(path, router_targets(path, path_map), schema)
        return self

    def set_entry_point(self, key: str) -> Self:
        """The same as add_edge(START, key)."""
        return self.add_edge(START, key)

    @overload
    def set_conditional_entry_point(
        self, path: RouterFunction[ContextT, Target], path_map: Sequence[str] | None = None
    ) -> Self: ...

    @overload
    def set_conditional_entry_point(
        self, path: RouterFunction[ContextT, object], path_map: Mapping[Any, str]
    ) -> Self: ...

    def set_conditional_entry_point(
        self, path: Callable[..., Any], path_map: Mapping[Any, str] | Sequence[str] | None = None
    ) -> Self:
        """The same as add_conditional_edges(START, path, path_map)."""
        return self.add_conditional_edges(START, path, path_map)

    def set_finish_point(self, key: str) -> Self:
        """The same as add_edge(key, END)."""
        return self.add_edge(key, END)

    # ---------------------------------------------------------------- compile

    def compile(
        self,
        checkpointer: Saver | bool | None = None,
        *,
        cache: Cache | None = None,
        interrupt_before: Breakpoints = None,
        interrupt_after: Breakpoints = None,
        executor: Executor | None = None,
        name: str = "graph",
        ignore: Sequence[str] = (),
        migrations: Sequence[Migration] = (),
        version: str = "",
    ) -> CompiledGraph[StateT, ContextT, InputT, OutputT]:
        """Checks the graph and freezes it. Later edits of the builder do not reach what was compiled.

        `checkpointer` stores every step; True (for a graph used inside another) keeps a memory of its own in the
        parent's, False stores nothing. `interrupt_before` and `interrupt_after` pause at those nodes ("*": at all).
        `executor` (a process pool, say) runs the tasks of sync nodes; what travels to it must be picklable.
        `migrations` say what stored nodes and keys are called now; `version` sets it apart from one of the same names.
        Each finding of check() is issued as a GraphWarning; `ignore` lists those to leave out, "name" or "name:place".
        Raises GraphDefinitionError for anything that names no node, and TypeError for something that is no saver.
        """
        from minigraph.check import checked_ignore, warn
        from minigraph.compiled import CompiledGraph

        ignored, graph = checked_ignore(ignore), self.frozen(name, version)
        types = tuple(kind for schema in self._schemas.values() for kind in (schema.view.schema, *schema.types))
        breaks = (interrupt_before, interrupt_after)
        compiled = CompiledGraph(self, graph, checkpointer, cache, *breaks, executor, types, migrations)
        warn(compiled, ignored, stacklevel=2)
        return compiled

    def frozen(self, name: str, version: str = "") -> Graph:
        """The graph as frozen data. Raises GraphDefinitionError where it is not well formed."""
        nodes = {START: self._start_node()} | {name: self._node(name, spec) for name, spec in self._nodes.items()}
        self._check_edges(nodes)
        edges: dict[str, tuple[str, ...]] = {}
        for source, target in self._edges:
            edges[source] = edges.get(source, ()) if target == END else (*edges.get(source, ()), target)
        routers = {
            source: tuple(self._router(n, spec) for n, spec in specs.items()) for source, specs in self._routers.items()
        }
        return Graph(
            name=name,
            nodes=nodes,
            channels=dict(self._channels),
            managed=frozenset(key for schema in self._schemas.values() for key in schema.view.managed),
            edges=edges,
            joins=tuple(self._joins),
            routers=routers,
            state_view=self._state.view,
            input_view=self._view(self.input_schema),
            output_view=self._view(self.output_schema),
            context_schema=self.context_schema,
            version=version,
        )

    def _start_node(self) -> Node:
        return Node(START, Callee.of(copied), self._view(self.input_schema))

    def _node(self, name: str, spec: _NodeSpec) -> Node:
        options, defaults = spec.options, self._defaults
        child = spec.action if _is_compiled(spec.action) else None
        callee = Callee.of(spec.action) if child is None else Callee(child.as_node, (), False, child.aas_node)
        timeout = options["timeout"]
        if timeout is None and callee.is_async:
            timeout = defaults.timeout
        if timeout is not None and not callee.is_async:
            raise GraphDefinitionError(
                f"node {name!r}: a time-out works for async nodes only; a thread cannot be stopped"
            )
        if timeout is not None and not isinstance(timeout, TimeoutPolicy):
            timeout = TimeoutPolicy(run_timeout=timeout)
        retry = options["retry_policy"] or defaults.retry_policy or ()
        handler = options["error_handler"] or defaults.error_handler
        schema = spec.schema if spec.schema is not None else self.state_schema
        return Node(
            name=name,
            callee=callee,
            view=self._view(schema) if child is None else View(None, child.graph.input_view.keys, {}, None),
            defer=options["defer"],
            retry=(retry,) if isinstance(retry, RetryPolicy) else tuple(retry),
            timeout=timeout,
            cache=options["cache_policy"] or defaults.cache_policy,
            handler=Callee.of(handler) if handler is not None else None,
            destinations=options["destinations"] or command_targets(spec.action),
            metadata=options["metadata"],
            child=child,
        )

    def _router(self, name: str, spec: _RouterSpec) -> Router:
        view = self._view(spec.schema) if spec.schema is not None else None
        return Router(name, Callee.of(spec.path), view, spec.targets)

    # ----------------------------------------------------------------- checks

    def _declare(self, schema: Any, where: str) -> Schema:
        read = self._schemas.get(id(schema))
        if read is None:
            read = self._schemas[id(schema)] = read_schema(schema)
            merge_channels(self._channels, read.channels, where)
            if ROOT in read.channels and len(self._channels) > 1:
                told = "give a class with annotated fields, or leave it out: what a Send carries needs no schema"
                raise GraphDefinitionError(f"{where}: {schema!r} has no fields, and the state has keys; {told}")
        for key in (*read.channels, *read.view.managed):
            if key.startswith("__") and key.endswith("__") and key != ROOT:
                raise GraphDefinitionError(f"{where}: key {key!r} is reserved, as all names in double underscores are")
        return read

    def _view(self, schema: Any) -> View:
        return self._schemas[id(schema)].view

    def _check_edges(self, nodes: Mapping[str, Node]) -> None:
        if START not in self._routers and all(source != START for source, _ in self._edges):
            raise GraphDefinitionError(
                "the graph has no entry point: add an edge from START, as in add_edge(START, 'first')"
            )
        named = [
            (name, f"edge {source!r} -> {target!r}") for source, target in self._edges for name in (source, target)
        ]
        for source, routers in self._routers.items():
            named.append((source, f"conditional edges of {source!r}"))
            for router, spec in routers.items():
                named += [(target, f"router {router!r} of {source!r}") for target in (spec.targets or {}).values()]
        for name, node in nodes.items():
            named += [(target, f"destinations of node {name!r}") for target in node.destinations or ()]
        check_known(named, self._nodes)


def _is_compiled(action: Any) -> bool:
    from minigraph.compiled import CompiledGraph

    return isinstance(action, CompiledGraph)


__all__ = ["END", "START", "Send", "StateGraph"]
