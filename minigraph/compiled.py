"""CompiledGraph: run a graph, stream it, look at its threads and edit them. Every call is one generator of effects
handed to a driver; the sync and async methods differ in the driver alone."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from minigraph import events, snapshots
from minigraph.context import Event, Scope, TaskContext, current, current_or_none
from minigraph.effects import Effect
from minigraph.errors import GraphDefinitionError, GraphInterrupt, nearest
from minigraph.execute import AsyncDriver, ThreadDriver
from minigraph.opening import open_run
from minigraph.run import Run
from minigraph.state import ROOT, is_pydantic, storable_classes
from minigraph.step import handed_back
from minigraph.structure import Graph
from minigraph.types import (
    START,
    Command,
    Durability,
    GraphOutput,
    RunControl,
    RunnableConfig,
    StateSnapshot,
    StateUpdate,
    StreamMode,
)

if TYPE_CHECKING:
    from minigraph.cache import Cache
    from minigraph.checkpoint.base import Saver
    from minigraph.graph import StateGraph

Breakpoints = Sequence[str] | Literal["*"] | None
Version = Literal["v1", "v2"]


class JoinNeverFiredWarning(UserWarning):
    """A run ended while a list edge still waited for some of its sources."""


class CompiledGraph:
    """A graph that runs. Made by `StateGraph.compile()`; safe to share between threads and event loops."""

    def __init__(
        self,
        builder: StateGraph[Any, Any, Any, Any],
        graph: Graph,
        checkpointer: Saver | bool | None,
        cache: Cache | None,
        interrupt_before: Breakpoints,
        interrupt_after: Breakpoints,
        types: tuple[Any, ...] = (),
    ) -> None:
        self.builder, self.graph, self.cache = builder, graph, cache
        self.name = graph.name
        self.checkpointer: Saver | bool | None = _checked_saver(checkpointer)
        self._before = _breakpoints(graph, interrupt_before, "interrupt_before")
        self._after = _breakpoints(graph, interrupt_after, "interrupt_after")
        self._types = types
        self._storable: tuple[type, ...] | None = None
        if self.checkpointer is not None and not isinstance(self.checkpointer, bool):
            self.checkpointer.register(*storable_types(self))

    # --------------------------------------------------------------------- run

    def invoke(
        self,
        input: Any,
        config: RunnableConfig | Mapping[str, Any] | None = None,
        *,
        context: Any = None,
        stream_mode: StreamMode | Sequence[StreamMode] = "values",
        output_keys: str | Sequence[str] | None = None,
        interrupt_before: Breakpoints = None,
        interrupt_after: Breakpoints = None,
        durability: Durability | None = None,
        control: RunControl | None = None,
        version: Version = "v1",
    ) -> Any:
        """Runs the graph and returns its output: a dict of the output keys.

        `input` is a dict of state keys; None goes on with what is stored; a Command answers a question, updates or
        goes somewhere. If the run paused, the dict has "__interrupt__": the open questions (version="v2" returns a
        GraphOutput instead). A stream mode other than "values" returns the list of chunks. Raises what a node, a
        merge or a saver raised; what was done before is stored.
        """
        call = _Call(self, config, context, ("values",), interrupt_before, interrupt_after, durability, control)
        if stream_mode != "values":
            chunks = self.stream(
                input, config, context=context, stream_mode=stream_mode, interrupt_before=interrupt_before,
                interrupt_after=interrupt_after, durability=durability, control=control, version=version,
            )  # fmt: skip
            return list(chunks)
        with ThreadDriver(call.scope.saver) as driver:
            for event in driver.events(call.steps(input)):
                call.pass_on(event)
        return call.output(output_keys, version)

    def stream(
        self,
        input: Any,
        config: RunnableConfig | Mapping[str, Any] | None = None,
        *,
        context: Any = None,
        stream_mode: StreamMode | Sequence[StreamMode] = "updates",
        interrupt_before: Breakpoints = None,
        interrupt_after: Breakpoints = None,
        durability: Durability | None = None,
        subgraphs: bool = False,
        control: RunControl | None = None,
        version: Version = "v1",
    ) -> Iterator[Any]:
        """Runs the graph and yields chunks as they come.

        Modes: values, updates, custom, tasks, checkpoints, debug. A list of modes yields (mode, chunk); with
        `subgraphs` the namespace comes first; version="v2" always yields {"type", "ns", "data"}.
        """
        shape = _Shape(stream_mode, subgraphs, version)
        call = _Call(self, config, context, shape.modes, interrupt_before, interrupt_after, durability, control, subgraphs, live=True)
        with ThreadDriver(call.scope.saver) as driver:
            for event in driver.events(call.steps(input)):
                call.pass_on(event)
                yield from shape.chunks(event)

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | Mapping[str, Any] | None = None,
        *,
        context: Any = None,
        stream_mode: StreamMode | Sequence[StreamMode] = "values",
        output_keys: str | Sequence[str] | None = None,
        interrupt_before: Breakpoints = None,
        interrupt_after: Breakpoints = None,
        durability: Durability | None = None,
        control: RunControl | None = None,
        version: Version = "v1",
    ) -> Any:
        """The same as `invoke`, on the running event loop; async nodes run as tasks, sync nodes in threads."""
        call = _Call(self, config, context, ("values",), interrupt_before, interrupt_after, durability, control)
        if stream_mode != "values":
            chunks = self.astream(
                input, config, context=context, stream_mode=stream_mode, interrupt_before=interrupt_before,
                interrupt_after=interrupt_after, durability=durability, control=control, version=version,
            )  # fmt: skip
            return [chunk async for chunk in chunks]
        driver = AsyncDriver(call.scope.saver, call.scope)
        async for event in driver.events(call.steps(input)):
            call.pass_on(event)
        return call.output(output_keys, version)

    async def astream(
        self,
        input: Any,
        config: RunnableConfig | Mapping[str, Any] | None = None,
        *,
        context: Any = None,
        stream_mode: StreamMode | Sequence[StreamMode] = "updates",
        interrupt_before: Breakpoints = None,
        interrupt_after: Breakpoints = None,
        durability: Durability | None = None,
        subgraphs: bool = False,
        control: RunControl | None = None,
        version: Version = "v1",
    ) -> AsyncIterator[Any]:
        """The same as `stream`, on the running event loop."""
        shape = _Shape(stream_mode, subgraphs, version)
        call = _Call(self, config, context, shape.modes, interrupt_before, interrupt_after, durability, control, subgraphs, live=True)
        driver = AsyncDriver(call.scope.saver, call.scope)
        async for event in driver.events(call.steps(input)):
            call.pass_on(event)
            for chunk in shape.chunks(event):
                yield chunk

    # ------------------------------------------------------------------- threads

    def get_state(self, config: Mapping[str, Any], *, subgraphs: bool = False) -> StateSnapshot:
        """The thread as it is now; with a checkpoint_id in the config, as it was then.

        Raises ValueError without a checkpointer, UnknownCheckpointError for an id that is not stored.
        """
        return cast(StateSnapshot, self._drive(config, lambda scope, at: snapshots.snapshot(scope, at, subgraphs=subgraphs)))

    async def aget_state(self, config: Mapping[str, Any], *, subgraphs: bool = False) -> StateSnapshot:
        """The same as `get_state`."""
        result = await self._adrive(config, lambda scope, at: snapshots.snapshot(scope, at, subgraphs=subgraphs))
        return cast(StateSnapshot, result)

    def get_state_history(
        self,
        config: Mapping[str, Any],
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Iterator[StateSnapshot]:
        """The thread's checkpoints, newest first; `filter` compares metadata, `before` is the config of one of them."""
        wanted, older = dict(filter or {}), _checkpoint_id(before)
        yield from self._drive(config, lambda scope, at: snapshots.history(scope, at, older, limit, wanted))

    async def aget_state_history(
        self,
        config: Mapping[str, Any],
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[StateSnapshot]:
        """The same as `get_state_history`."""
        wanted, older = dict(filter or {}), _checkpoint_id(before)
        for shot in await self._adrive(config, lambda scope, at: snapshots.history(scope, at, older, limit, wanted)):
            yield shot

    def update_state(
        self, config: Mapping[str, Any], values: Any, as_node: str | None = None, task_id: str | None = None
    ) -> dict[str, Any]:
        """Edits the thread as if `as_node` (default: the node that ran last) had returned `values`.

        Writes a checkpoint and returns its config. At an older checkpoint it makes a branch, which becomes the head.
        Raises InvalidUpdateError for unknown keys or nodes and where the node is ambiguous.
        """
        return self.bulk_update_state(config, [[StateUpdate(values, as_node, task_id)]])

    async def aupdate_state(
        self, config: Mapping[str, Any], values: Any, as_node: str | None = None, task_id: str | None = None
    ) -> dict[str, Any]:
        """The same as `update_state`."""
        return await self.abulk_update_state(config, [[StateUpdate(values, as_node, task_id)]])

    def bulk_update_state(self, config: Mapping[str, Any], supersteps: Sequence[Sequence[StateUpdate]]) -> dict[str, Any]:
        """Several edits in one transaction: each inner list is one step and makes one checkpoint."""
        return cast(dict[str, Any], self._drive(config, lambda scope, at: snapshots.update(scope, at, supersteps)))

    async def abulk_update_state(
        self, config: Mapping[str, Any], supersteps: Sequence[Sequence[StateUpdate]]
    ) -> dict[str, Any]:
        """The same as `bulk_update_state`."""
        result = await self._adrive(config, lambda scope, at: snapshots.update(scope, at, supersteps))
        return cast(dict[str, Any], result)

    def clear_cache(self, nodes: Sequence[str] | None = None) -> None:
        """Forgets cached results, of some nodes or of all."""
        from minigraph.work import cache_namespace

        if self.cache is not None:
            for name in nodes if nodes is not None else self.graph.nodes:
                self.cache.clear(cache_namespace(self.graph.nodes[name]))

    def draw_mermaid(self) -> str:
        """The graph as Mermaid text: solid edges always run, dashed ones are chosen."""
        from minigraph.draw import mermaid

        return mermaid(self.graph)

    # ------------------------------------------------------------------ as a node

    def as_node(self, input: Any) -> Command[Any]:
        """Runs as a node of the graph whose task is running, and hands back what was written, write by write."""
        parent = current("a graph used as a node")
        call = _Call(self, None, None, ())
        with ThreadDriver(call.scope.saver) as driver:
            for event in driver.events(call.steps(input)):
                call.pass_on(event)
        return call.handed_back(parent)

    async def aas_node(self, input: Any) -> Command[Any]:
        """The same as `as_node`, on the running event loop."""
        parent = current("a graph used as a node")
        call = _Call(self, None, None, ())
        async for event in AsyncDriver(call.scope.saver, call.scope).events(call.steps(input)):
            call.pass_on(event)
        return call.handed_back(parent)

    def _drive(self, config: Mapping[str, Any], make: Any) -> Any:
        scope = self._thread(config)
        with ThreadDriver(scope.saver) as driver:
            return driver.result(make(scope, _checkpoint_id(config)))

    async def _adrive(self, config: Mapping[str, Any], make: Any) -> Any:
        scope = self._thread(config)
        return await AsyncDriver(scope.saver, scope).result(make(scope, _checkpoint_id(config)))

    def _thread(self, config: Mapping[str, Any]) -> Scope:
        """The scope for looking at a thread, or at a child graph's namespace in it."""
        if self.checkpointer is None or isinstance(self.checkpointer, bool):
            raise ValueError("no checkpointer is set: compile(checkpointer=...) to keep threads that can be looked at")
        scope = _root_scope(self, config, None)
        namespace = (config.get("configurable") or {}).get("checkpoint_ns") or ""
        child: CompiledGraph | None = self
        for part in namespace.split("|") if namespace else ():
            node = child.graph.nodes.get(part.split(":")[0]) if child is not None else None
            child = node.child if node is not None else None
        return snapshots.child_scope(scope, child, namespace)


class _Call:
    """One call of invoke or stream: its scope, its run, and what becomes of its events and its end."""

    def __init__(
        self,
        compiled: CompiledGraph,
        config: Mapping[str, Any] | None,
        context: Any,
        modes: Sequence[str],
        before: Breakpoints = None,
        after: Breakpoints = None,
        durability: str | None = None,
        control: RunControl | None = None,
        subgraphs: bool = False,
        live: bool = False,
    ) -> None:
        self.compiled, self.graph = compiled, compiled.graph
        self.parent = _parent_of(config)
        self.at: str | None = None
        if self.parent is None:
            scope = _root_scope(compiled, config, durability)
            self.at = _checkpoint_id(config)
            scope.subgraphs, scope.live = subgraphs, live
        else:
            scope = _child_scope(compiled, self.parent)
        scope.modes = scope.modes | frozenset(modes)
        scope.before = _breakpoints(self.graph, before, "interrupt_before") or compiled._before
        scope.after = _breakpoints(self.graph, after, "interrupt_after") or compiled._after
        scope.control = control or scope.control
        if context is not None or self.parent is None:
            scope.context = _coerced_context(self.graph, context)
        self.scope = scope
        self.run: Run | None = None

    def steps(self, given: Any) -> Generator[Effect, Any, None]:
        """The whole call as effects."""
        position, fresh = yield from open_run(self.scope, given, self.at)
        self.run = Run(self.scope, position, fresh=fresh)
        if fresh:
            yield from self.run.announce()
        yield from self.run.steps()

    def pass_on(self, event: Event) -> None:
        """Hands an event of a child run to its parent's stream."""
        if self.parent is not None and (self.parent.scope.subgraphs or event.kind == "custom"):
            self.parent.emit(event)

    def output(self, output_keys: str | Sequence[str] | None, version: Version) -> Any:
        """What the call returns. A child run that paused pauses its parent."""
        run = self._ended()
        value = self._value(run, output_keys)
        if version == "v2":
            return GraphOutput(self._typed(value), run.interrupts)
        if run.interrupts:
            shown: dict[str, Any] = {"__interrupt__": list(run.interrupts)}
            return {**value, **shown} if isinstance(value, dict) and ROOT not in self.graph.channels else shown
        return value

    def handed_back(self, parent: TaskContext) -> Command[Any]:
        """What the run wrote, as an update of the parent's state."""
        run = self._ended()
        checkpoint = run.position.checkpoint
        return Command(update=handed_back(parent.scope.graph, self.graph, checkpoint.written, checkpoint.values))

    def _ended(self) -> Run:
        run = self.run
        assert run is not None
        if (run.paused or run.stopped) and self.parent is not None:
            self.parent.pausing = True
            raise GraphInterrupt(run.interrupts)
        checkpoint = run.position.checkpoint
        if not checkpoint.due and (lost := snapshots.waiting(self.graph, checkpoint)):
            warnings.warn(
                f"the run of graph {self.graph.name!r} ended, but a join never fired: {'; '.join(lost)}",
                JoinNeverFiredWarning,
                stacklevel=4,
            )
        return run

    def _value(self, run: Run, output_keys: str | Sequence[str] | None) -> Any:
        values = run.live_values()
        keys = self.graph.output_view.keys
        if output_keys is not None:
            names = (output_keys,) if isinstance(output_keys, str) else tuple(output_keys)
            for name in names:
                if name not in self.graph.channels:
                    raise ValueError(f"output_keys: the state has no key {name!r}{nearest(name, self.graph.channels)}")
            if isinstance(output_keys, str):
                return values.get(output_keys)
            keys = names
        if keys == (ROOT,):
            return values.get(ROOT)
        return {key: values[key] for key in keys if key in values}

    def _typed(self, value: Any) -> Any:
        build = self.graph.output_view.build
        schema = self.graph.output_view.schema
        typed = build is not None and isinstance(schema, type) and (is_pydantic(schema) or hasattr(schema, "__dataclass_fields__"))
        return build(value) if typed and build is not None and isinstance(value, dict) else value


class _Shape:
    """How a stream's chunks look: bare, with their mode, with their namespace, or as version 2 envelopes."""

    def __init__(self, mode: StreamMode | Sequence[StreamMode], subgraphs: bool, version: Version) -> None:
        self.modes: tuple[str, ...] = (mode,) if isinstance(mode, str) else tuple(mode)
        self.many, self.subgraphs, self.version = not isinstance(mode, str), subgraphs, version
        for name in self.modes:
            if name not in events.MODES:
                raise ValueError(f"unknown stream mode {name!r}{nearest(name, events.MODES)}; the modes are {', '.join(events.MODES)}")
        if version not in ("v1", "v2"):
            raise ValueError(f"unknown version {version!r}; it is 'v1' or 'v2'")

    def chunks(self, event: Event) -> Iterator[Any]:
        """An event as the caller wants it."""
        if event.namespace and not self.subgraphs and event.kind != "custom":
            return
        namespace = event.namespace if self.subgraphs else ()
        for mode, chunk in events.chunks(event.kind, event.step, event.payload, self.modes):
            if self.version == "v2":
                yield {"type": mode, "ns": namespace, "data": chunk}
            elif self.many:
                yield (namespace, mode, chunk) if self.subgraphs else (mode, chunk)
            else:
                yield (namespace, chunk) if self.subgraphs else chunk


def _parent_of(config: Mapping[str, Any] | None) -> TaskContext | None:
    """The task this call is made from, unless the config names a thread of its own."""
    context = current_or_none()
    if context is None:
        return None
    own = ((config or {}).get("configurable") or {}).get("thread_id")
    return None if own is not None and own != context.scope.thread_id else context


def _child_scope(compiled: CompiledGraph, parent: TaskContext) -> Scope:
    outer = parent.scope
    number, parent.child_calls = parent.child_calls, parent.child_calls + 1
    stateful = compiled.checkpointer is True
    part = parent.task.node if stateful else f"{parent.task.node}:{parent.task.id}"
    part = part if number == 0 else f"{part}:#{number}"
    saver = None if compiled.checkpointer is False else outer.saver
    if saver is not None:
        saver.register(*storable_types(compiled))
    return Scope(
        graph=compiled.graph,
        saver=saver,
        thread_id=outer.thread_id,
        namespace=f"{outer.namespace}|{part}" if outer.namespace else part,
        config=outer.config,
        modes=outer.modes if outer.subgraphs else outer.modes & {"custom"},
        context=outer.context,
        control=outer.control,
        cache=compiled.cache or outer.cache,
        recursion_limit=outer.recursion_limit,
        max_concurrency=outer.max_concurrency,
        durability=outer.durability,
        owner=f"{parent.task.id}#{number}",
        given=parent.given,
        forward=parent.emit,
        subgraphs=outer.subgraphs,
        live=outer.live,
    )


def _root_scope(compiled: CompiledGraph, config: Mapping[str, Any] | None, durability: str | None) -> Scope:
    config = cast(RunnableConfig, dict(config or {}))
    configurable = config.get("configurable") or {}
    if compiled.checkpointer is True:
        raise RuntimeError("checkpointer=True is for a graph used inside another; give a root graph a saver")
    saver = compiled.checkpointer if not isinstance(compiled.checkpointer, bool) else None
    thread_id = configurable.get("thread_id")
    if saver is not None and not (isinstance(thread_id, str) and thread_id):
        raise ValueError(
            f"a graph with a checkpointer needs a thread: config={{'configurable': {{'thread_id': 'a non-empty str'}}}};"
            f" got {thread_id!r}"
        )
    if durability not in (None, "sync", "async", "exit"):
        raise ValueError(f"unknown durability {durability!r}; it is 'sync', 'async' or 'exit'")
    limit = config.get("recursion_limit", 100)
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"recursion_limit={limit!r}: a whole number of steps, at least 1")
    concurrency = config.get("max_concurrency")
    if concurrency is not None and (not isinstance(concurrency, int) or concurrency < 1):
        raise ValueError(f"max_concurrency={concurrency!r}: a whole number of tasks, at least 1, or None")
    return Scope(
        graph=compiled.graph,
        saver=saver,
        thread_id=thread_id if saver is not None else "",
        namespace="",
        config=config,
        modes=frozenset(),
        cache=compiled.cache,
        recursion_limit=limit,
        max_concurrency=concurrency,
        durability=durability or "sync",
    )


def _checkpoint_id(config: Mapping[str, Any] | None) -> str | None:
    found = ((config or {}).get("configurable") or {}).get("checkpoint_id")
    if found is not None and not isinstance(found, str):
        raise ValueError(f"checkpoint_id={found!r}: it is a str, as in a snapshot's config")
    return found or None


def _checked_saver(checkpointer: Any) -> Any:
    from minigraph.checkpoint.base import Saver

    if checkpointer is None or isinstance(checkpointer, bool | Saver):
        return checkpointer
    raise TypeError(f"checkpointer={checkpointer!r}: a saver (InMemorySaver(), SqliteSaver(path)), True, False or None")


def _breakpoints(graph: Graph, names: Breakpoints, what: str) -> frozenset[str]:
    known = [name for name in graph.nodes if name != START]
    if names == "*":
        return frozenset(known)
    if isinstance(names, str):
        names = [names]
    for name in names or ():
        if name not in known:
            raise GraphDefinitionError(f"{what}: there is no node {name!r}{nearest(name, known)}")
    return frozenset(names or ())


def _coerced_context(graph: Graph, context: Any) -> Any:
    schema = graph.context_schema
    if isinstance(context, dict) and isinstance(schema, type) and not issubclass(schema, dict):
        return schema(**context)
    return context


def storable_types(compiled: CompiledGraph) -> tuple[type, ...]:
    """The classes that the schemas of a graph and of its child graphs mention, for the saver's codec."""
    if compiled._storable is None:
        found = dict.fromkeys(storable_classes(compiled._types))
        for node in compiled.graph.nodes.values():
            if node.child is not None:
                found |= dict.fromkeys(storable_types(node.child))
        compiled._storable = tuple(found)
    return compiled._storable


__all__ = ["CompiledGraph", "JoinNeverFiredWarning"]
