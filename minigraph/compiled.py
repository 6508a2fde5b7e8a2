"""CompiledGraph: run a graph, stream it, look at its threads and edit them. Every call is one generator of effects
handed to a driver; the sync and async methods differ in the driver alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, cast

from minigraph import snapshots
from minigraph.calls import (
    Breakpoints,
    Call,
    Shape,
    Version,
    at_checkpoint,
    at_head,
    breakpoints,
    check_version,
    checked_saver,
    checkpoint_id_of,
    root_scope,
    storable_types,
)
from minigraph.context import Scope, current
from minigraph.execute import AsyncDriver, ThreadDriver
from minigraph.opening import REPLAY
from minigraph.structure import Graph
from minigraph.types import (
    UNSET,
    Command,
    Durability,
    RunControl,
    RunnableConfig,
    StateSnapshot,
    StateUpdate,
    StreamMode,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from minigraph.cache import Cache
    from minigraph.checkpoint.base import Saver
    from minigraph.graph import StateGraph


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
        executor: Executor | None,
        types: tuple[Any, ...] = (),
    ) -> None:
        self.builder, self.graph, self.cache, self.executor = builder, graph, cache, executor
        self.name = graph.name
        self.checkpointer: Saver | bool | None = checked_saver(checkpointer)
        self.before = breakpoints(graph, interrupt_before, "interrupt_before")
        self.after = breakpoints(graph, interrupt_after, "interrupt_after")
        self.types = types
        self.storable: tuple[type, ...] | None = None
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
        check_version(version)
        call = Call(self, config, context, (), interrupt_before, interrupt_after, durability, control)
        if stream_mode != "values":
            chunks = self.stream(
                input, config, context=context, stream_mode=stream_mode, interrupt_before=interrupt_before,
                interrupt_after=interrupt_after, durability=durability, control=control, version=version,
            )  # fmt: skip
            return list(chunks)
        _run(call, input)
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
        shape = Shape(self.graph, stream_mode, subgraphs, version)
        call = Call(
            self,
            config,
            context,
            shape.modes,
            interrupt_before,
            interrupt_after,
            durability,
            control,
            subgraphs,
            live=True,
        )
        shape.root = call.scope.path
        with ThreadDriver(call.scope.saver) as driver, closing(driver.events(call.steps(input))) as found:
            for event in found:
                call.pass_on(event)
                yield from shape.chunks(event)
        call.ended()

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
        check_version(version)
        call = Call(self, config, context, (), interrupt_before, interrupt_after, durability, control)
        if stream_mode != "values":
            chunks = self.astream(
                input, config, context=context, stream_mode=stream_mode, interrupt_before=interrupt_before,
                interrupt_after=interrupt_after, durability=durability, control=control, version=version,
            )  # fmt: skip
            return [chunk async for chunk in chunks]
        await _arun(call, input)
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
        shape = Shape(self.graph, stream_mode, subgraphs, version)
        call = Call(
            self,
            config,
            context,
            shape.modes,
            interrupt_before,
            interrupt_after,
            durability,
            control,
            subgraphs,
            live=True,
        )
        shape.root = call.scope.path
        async with aclosing(AsyncDriver(call.scope.saver, call.scope).events(call.steps(input))) as found:
            async for event in found:
                call.pass_on(event)
                for chunk in shape.chunks(event):
                    yield chunk
        call.ended()

    # ---------------------------------------------------------------- in words

    def resume(self, config: Mapping[str, Any], answer: Any = UNSET, **options: Any) -> Any:
        """Goes on at the thread's head: after a pause with an answer, after a failure or a breakpoint without one.

        The options are those of `invoke`. Raises UnknownInterruptError for an answer that no open question waits for.
        """
        return self.invoke(None if answer is UNSET else Command(resume=answer), at_head(config), **options)

    async def aresume(self, config: Mapping[str, Any], answer: Any = UNSET, **options: Any) -> Any:
        """The same as `resume`."""
        return await self.ainvoke(None if answer is UNSET else Command(resume=answer), at_head(config), **options)

    def replay(self, config: Mapping[str, Any], **options: Any) -> Any:
        """Runs again from the checkpoint in the config, as a branch; what was there before stays.

        A checkpoint with nothing due is left as it is. The options are those of `invoke`.
        """
        return self.invoke(REPLAY, at_checkpoint(config), **options)

    async def areplay(self, config: Mapping[str, Any], **options: Any) -> Any:
        """The same as `replay`."""
        return await self.ainvoke(REPLAY, at_checkpoint(config), **options)

    def fork(self, config: Mapping[str, Any], values: Any = None, as_node: str | None = None) -> dict[str, Any]:
        """Makes a branch at the checkpoint in the config, edited where `values` are given; returns the branch's config.

        The branch is the thread's head from now on; go on with `resume(config)`.
        """
        as_node = "__copy__" if values is None and as_node is None else as_node
        return self.update_state(at_checkpoint(config), values, as_node)

    async def afork(self, config: Mapping[str, Any], values: Any = None, as_node: str | None = None) -> dict[str, Any]:
        """The same as `fork`."""
        as_node = "__copy__" if values is None and as_node is None else as_node
        return await self.aupdate_state(at_checkpoint(config), values, as_node)

    # ------------------------------------------------------------------- threads

    def get_state(self, config: Mapping[str, Any], *, subgraphs: bool = False) -> StateSnapshot:
        """The thread as it is now; with a checkpoint_id in the config, as it was then.

        Raises ValueError without a checkpointer, UnknownCheckpointError for an id that is not stored.
        """
        return cast(
            StateSnapshot, self._drive(config, lambda scope, at: snapshots.snapshot(scope, at, subgraphs=subgraphs))
        )

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
        wanted, older = dict(filter or {}), checkpoint_id_of(before)
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
        wanted, older = dict(filter or {}), checkpoint_id_of(before)
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

    def bulk_update_state(
        self, config: Mapping[str, Any], supersteps: Sequence[Sequence[StateUpdate]]
    ) -> dict[str, Any]:
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
        call = Call(self, None, None, ())
        _run(call, input)
        return call.handed_back(parent)

    async def aas_node(self, input: Any) -> Command[Any]:
        """The same as `as_node`, on the running event loop."""
        parent = current("a graph used as a node")
        call = Call(self, None, None, ())
        await _arun(call, input)
        return call.handed_back(parent)

    def _drive(self, config: Mapping[str, Any], make: Any) -> Any:
        scope = self._thread(config)
        with ThreadDriver(scope.saver) as driver:
            return driver.result(make(scope, checkpoint_id_of(config)))

    async def _adrive(self, config: Mapping[str, Any], make: Any) -> Any:
        scope = self._thread(config)
        return await AsyncDriver(scope.saver, scope).result(make(scope, checkpoint_id_of(config)))

    def _thread(self, config: Mapping[str, Any]) -> Scope:
        """The scope for looking at a thread, or at a child graph's namespace in it."""
        if self.checkpointer is None or isinstance(self.checkpointer, bool):
            raise ValueError("no checkpointer is set: compile(checkpointer=...) to keep threads that can be looked at")
        scope = root_scope(self, config, None)
        namespace = (config.get("configurable") or {}).get("checkpoint_ns") or ""
        child: CompiledGraph | None = self
        for part in namespace.split("|") if namespace else ():
            node = child.graph.nodes.get(part.split(":")[0]) if child is not None else None
            child = node.child if node is not None else None
        return snapshots.child_scope(scope, child, namespace)


def _run(call: Call, input: Any) -> None:
    """Runs a call to its end in this thread."""
    with ThreadDriver(call.scope.saver) as driver:
        for event in driver.events(call.steps(input)):
            call.pass_on(event)


async def _arun(call: Call, input: Any) -> None:
    """Runs a call to its end on the running event loop."""
    async for event in AsyncDriver(call.scope.saver, call.scope).events(call.steps(input)):
        call.pass_on(event)
