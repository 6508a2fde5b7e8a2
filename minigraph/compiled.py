"""CompiledGraph: run a graph, stream it, look at its threads and edit them. Every call is one generator of effects
handed to a driver; the sync and async methods differ in the driver alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack, cast, overload

from minigraph import lineage
from minigraph.aexecute import AsyncDriver
from minigraph.calls import (
    Call,
    Shape,
    at_checkpoint,
    breakpoints,
    check_version,
    checked_saver,
    named_thread,
    storable_types,
)
from minigraph.context import current
from minigraph.execute import ThreadDriver
from minigraph.migration import checked_migrations
from minigraph.opening import REPLAY, AtHead
from minigraph.signatures import (
    AnyContextT,
    AnyInputT,
    AnyOutputT,
    AnyStateT,
    Breakpoints,
    Config,
    FieldsT,
    OutputOptions,
    ResumeOptions,
    StreamOptions,
    Version,
)
from minigraph.structure import Graph
from minigraph.threads import Threads
from minigraph.types import (
    UNSET,
    Command,
    Durability,
    GraphOutput,
    Interrupt,
    RunControl,
    StreamMode,
    StreamPart,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from minigraph.cache import Cache
    from minigraph.checkpoint.base import Saver
    from minigraph.graph import StateGraph
    from minigraph.migration import Migration
    from minigraph.work import RunTask


class CompiledGraph(Threads, Generic[AnyStateT, AnyContextT, AnyInputT, AnyOutputT]):
    """A graph that runs. Made by `StateGraph.compile()`; safe to share between threads and event loops."""

    def __init__(
        self,
        builder: StateGraph[AnyStateT, AnyContextT, AnyInputT, AnyOutputT],
        graph: Graph,
        checkpointer: Saver | bool | None,
        cache: Cache | None,
        interrupt_before: Breakpoints,
        interrupt_after: Breakpoints,
        executor: Executor | None,
        types: tuple[Any, ...] = (),
        migrations: Sequence[Migration] = (),
    ) -> None:
        self.builder, self.graph, self.cache, self.executor = builder, graph, cache, executor
        self.name = graph.name
        self.checkpointer: Saver | bool | None = checked_saver(checkpointer)
        self.before = breakpoints(graph, interrupt_before, "interrupt_before")
        self.after = breakpoints(graph, interrupt_after, "interrupt_after")
        self.types, self.migrations = types, checked_migrations(graph, migrations)
        children = [node.child for node in graph.nodes.values() if node.child is not None]
        self.migrating = bool(migrations) or any(child.migrating for child in children)
        self.run_task: RunTask | None = None
        self.storable: tuple[type, ...] | None = None
        if self.checkpointer is not None and not isinstance(self.checkpointer, bool):
            self.checkpointer.register(*storable_types(self))

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of what a stored thread depends on: names of nodes, keys and their kinds, list edges.

        And `version`, if `compile` was given one. The same in every process, whatever the functions do. A snapshot has
        that of the graph which stored it.
        """
        return self.graph.fingerprint

    # --------------------------------------------------------------------- run

    @overload
    def invoke(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        version: Literal["v2"],
        **options: Unpack[OutputOptions[AnyContextT]],
    ) -> GraphOutput[AnyOutputT]: ...

    @overload
    def invoke(
        self: CompiledGraph[AnyStateT, AnyContextT, AnyInputT, FieldsT],
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        version: Literal["v1"] = "v1",
        **options: Unpack[OutputOptions[AnyContextT]],
    ) -> dict[str, Any]: ...

    @overload
    def invoke(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        **options: Unpack[ResumeOptions[AnyContextT]],
    ) -> Any: ...

    def invoke(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        context: AnyContextT | None = None,
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
        if stream_mode != "values":
            chunks = self.stream(
                input, config, context=context, stream_mode=stream_mode, interrupt_before=interrupt_before,
                interrupt_after=interrupt_after, durability=durability, control=control, version=version,
            )  # fmt: skip
            return list(chunks)
        call = Call(self, config, context, (), interrupt_before, interrupt_after, durability, control)
        _run(call, input)
        return call.output(output_keys, version)

    @overload
    def stream(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        version: Literal["v2"],
        **options: Unpack[StreamOptions[AnyContextT]],
    ) -> Iterator[StreamPart]: ...

    @overload
    def stream(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        version: Version = "v1",
        **options: Unpack[StreamOptions[AnyContextT]],
    ) -> Iterator[Any]: ...

    def stream(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        context: AnyContextT | None = None,
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
        breaks = (interrupt_before, interrupt_after)
        call = self._streamed(shape, config, context, breaks, durability, control)
        with ThreadDriver(call.scope.saver) as driver, closing(driver.events(call.steps(input))) as found:
            for event in found:
                call.pass_on(event)
                yield from shape.chunks(event)
        call.ended()

    @overload
    async def ainvoke(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        version: Literal["v2"],
        **options: Unpack[OutputOptions[AnyContextT]],
    ) -> GraphOutput[AnyOutputT]: ...

    @overload
    async def ainvoke(
        self: CompiledGraph[AnyStateT, AnyContextT, AnyInputT, FieldsT],
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        version: Literal["v1"] = "v1",
        **options: Unpack[OutputOptions[AnyContextT]],
    ) -> dict[str, Any]: ...

    @overload
    async def ainvoke(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        **options: Unpack[ResumeOptions[AnyContextT]],
    ) -> Any: ...

    async def ainvoke(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        context: AnyContextT | None = None,
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
        if stream_mode != "values":
            chunks = self.astream(
                input, config, context=context, stream_mode=stream_mode, interrupt_before=interrupt_before,
                interrupt_after=interrupt_after, durability=durability, control=control, version=version,
            )  # fmt: skip
            return [chunk async for chunk in chunks]
        call = Call(self, config, context, (), interrupt_before, interrupt_after, durability, control)
        await _arun(call, input)
        return call.output(output_keys, version)

    @overload
    def astream(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        version: Literal["v2"],
        **options: Unpack[StreamOptions[AnyContextT]],
    ) -> AsyncIterator[StreamPart]: ...

    @overload
    def astream(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        version: Version = "v1",
        **options: Unpack[StreamOptions[AnyContextT]],
    ) -> AsyncIterator[Any]: ...

    async def astream(
        self,
        input: AnyInputT | Command[Any] | None,
        config: Config = None,
        *,
        context: AnyContextT | None = None,
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
        breaks = (interrupt_before, interrupt_after)
        call = self._streamed(shape, config, context, breaks, durability, control)
        async with aclosing(AsyncDriver(call.scope.saver, call.scope).events(call.steps(input))) as found:
            async for event in found:
                call.pass_on(event)
                for chunk in shape.chunks(event):
                    yield chunk
        call.ended()

    def _streamed(
        self,
        shape: Shape,
        config: Config,
        context: object,
        breaks: tuple[Breakpoints, Breakpoints],
        durability: Durability | None,
        control: RunControl | None,
    ) -> Call:
        """The call behind a stream of this shape; `breaks` are interrupt_before and interrupt_after."""
        modes, subgraphs = shape.modes, shape.subgraphs
        call = Call(self, config, context, modes, *breaks, durability, control, subgraphs, live=True)
        shape.root = call.scope.path
        return call

    # ---------------------------------------------------------------- in words

    def resume(
        self, config: Mapping[str, Any], answer: object = UNSET, **options: Unpack[ResumeOptions[AnyContextT]]
    ) -> Any:
        """Goes on at the thread's head: after a pause with an answer, after a failure or a breakpoint without one.

        The options are those of `invoke`. Raises UnknownInterruptError for an answer that no open question waits for,
        ValueError where the config names a checkpoint that is not the head.
        """
        return cast(Any, self.invoke)(_at_head(answer), named_thread(config), **options)

    async def aresume(
        self, config: Mapping[str, Any], answer: object = UNSET, **options: Unpack[ResumeOptions[AnyContextT]]
    ) -> Any:
        """The same as `resume`."""
        return await cast(Any, self.ainvoke)(_at_head(answer), named_thread(config), **options)

    def replay(self, config: Mapping[str, Any], **options: Unpack[ResumeOptions[AnyContextT]]) -> Any:
        """Runs again from the checkpoint in the config, as a branch; what was there before stays.

        A checkpoint with nothing due is left as it is. The options are those of `invoke`.
        """
        return cast(Any, self.invoke)(REPLAY, at_checkpoint(config), **options)

    async def areplay(self, config: Mapping[str, Any], **options: Unpack[ResumeOptions[AnyContextT]]) -> Any:
        """The same as `replay`."""
        return await cast(Any, self.ainvoke)(REPLAY, at_checkpoint(config), **options)

    def answer(
        self,
        config: Mapping[str, Any],
        answer: Any,
        *,
        question: str | Interrupt | None = None,
        **options: Unpack[ResumeOptions[AnyContextT]],
    ) -> Any:
        """Answers a question of the checkpoint in the config: goes on at the head, makes a branch at an older one.

        So two answers to one question are two branches. `question` (an Interrupt or its id) says which one where
        there are several; without it a dict of answers by id is taken as such: at an older checkpoint, several for one
        task are those of questions that it asked one after another. The options are those of `invoke`. Raises
        UnknownInterruptError (an id that cannot be answered there, or not together with the others) or
        AmbiguousAnswerError.
        """
        command = self._drive(config, lambda scope, at: lineage.answering(scope, at, answer, question))
        return cast(Any, self.invoke)(command, config, **options)

    async def aanswer(
        self,
        config: Mapping[str, Any],
        answer: Any,
        *,
        question: str | Interrupt | None = None,
        **options: Unpack[ResumeOptions[AnyContextT]],
    ) -> Any:
        """The same as `answer`."""
        command = await self._adrive(config, lambda scope, at: lineage.answering(scope, at, answer, question))
        return await cast(Any, self.ainvoke)(command, config, **options)

    # ------------------------------------------------------------------- the rest

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


def _at_head(answer: object) -> AtHead:
    return AtHead(None if answer is UNSET else Command(resume=answer))


def _run(call: Call, input: Any) -> None:
    """Runs a call to its end in this thread."""
    with ThreadDriver(call.scope.saver) as driver:
        for event in driver.events(call.steps(input)):
            call.pass_on(event)


async def _arun(call: Call, input: Any) -> None:
    """Runs a call to its end on the running event loop."""
    async for event in AsyncDriver(call.scope.saver, call.scope).events(call.steps(input)):
        call.pass_on(event)
