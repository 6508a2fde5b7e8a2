"""One call of a compiled graph: where it runs (its scope), what it yields, and what it returns at the end."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from minigraph import events, snapshots
from minigraph.branching import reopen_child
from minigraph.channels import shallow_copy
from minigraph.context import Event, Scope, TaskContext, current_or_none
from minigraph.effects import Effect
from minigraph.errors import GraphDefinitionError, GraphInterrupt, nearest
from minigraph.identifiers import child_call, has_lone_surrogate
from minigraph.opening import AtHead, check_head, open_run
from minigraph.run import Run
from minigraph.signatures import Breakpoints, Version
from minigraph.state import ROOT, View, storable_classes
from minigraph.step import handed_back
from minigraph.structure import Graph
from minigraph.types import START, Command, GraphOutput, RunControl, RunnableConfig, StreamMode

if TYPE_CHECKING:
    from minigraph.compiled import CompiledGraph
    from minigraph.threads import Threads


_A_CONFIG: Final = (
    "a config is a dict that names the thread, {'configurable': {'thread_id': 'a non-empty str'}}, as a snapshot's"
    " config does"
)


class JoinNeverFiredWarning(UserWarning):
    """A run ended while a list edge still waited for some of its sources."""


class Call:
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
        self.inside = ""
        if self.parent is None:
            scope = root_scope(compiled, config, durability)
            self.at = checkpoint_id_of(config)
            self.inside = str(configurable_of(config).get("checkpoint_ns") or "")
            scope.subgraphs, scope.live = subgraphs, live
        else:
            scope = _child_scope(compiled, self.parent)
        scope.modes = scope.modes | frozenset(modes)
        scope.before = breakpoints(self.graph, before, "interrupt_before") or compiled.before
        scope.after = breakpoints(self.graph, after, "interrupt_after") or compiled.after
        scope.control = control or scope.control
        if context is not None or self.parent is None:
            scope.context = _coerced_context(self.graph, context)
        self.scope = scope
        self.run: Run | None = None

    def steps(self, given: Any) -> Generator[Effect, Any, None]:
        """The whole call as effects."""
        at_head = isinstance(given, AtHead)
        if self.inside and (given.command if at_head else given) is None:
            if at_head:
                yield from check_head(msgspec.structs.replace(self.scope, namespace=self.inside), self.at)
                self.at = None
            yield from reopen_child(self.scope, self.inside, self.at)
            self.at = None
        elif self.inside:
            raise ValueError(
                f"checkpoint_ns={self.inside!r} names a child graph: invoke(None, config) goes on from one of its"
                " checkpoints; give input and answers to the root graph, without checkpoint_ns"
            )
        position, fresh = yield from open_run(self.scope, given, self.at)
        self.run = Run(self.scope, position, fresh=fresh)
        yield from self.run.steps()

    def pass_on(self, event: Event) -> None:
        """Hands an event of a child run to its parent's stream."""
        parent = self.parent
        if parent is None or not events.wanted(event.kind, parent.scope.modes):
            return
        if parent.scope.subgraphs or event.kind == "custom":
            parent.emit(event)

    def output(self, output_keys: str | Sequence[str] | None, version: Version) -> Any:
        """What the call returns. A child run that paused pauses its parent."""
        run = self.ended()
        value = self._value(run, output_keys)
        if version == "v2":
            return GraphOutput(typed(self.graph.output_view, value), run.interrupts)
        if run.interrupts:
            shown: dict[str, Any] = {"__interrupt__": list(run.interrupts)}
            return {**value, **shown} if isinstance(value, dict) and ROOT not in self.graph.channels else shown
        return value

    def handed_back(self, parent: TaskContext) -> Command[Any]:
        """What the run wrote, as an update of the parent's state."""
        run = self.ended()
        checkpoint = run.position.checkpoint
        return Command(update=handed_back(parent.scope.graph, self.graph, checkpoint.written, checkpoint.values))

    def ended(self) -> Run:
        """The run at its end. A child run that paused pauses its parent; a join that never fired is reported."""
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
                return shallow_copy(values.get(output_keys))
            keys = names
        if keys == (ROOT,):
            return shallow_copy(values.get(ROOT))
        return {key: shallow_copy(values[key]) for key in keys if key in values}


class Shape:
    """How a stream's chunks look: bare, with their mode, with their namespace, or as version 2 envelopes."""

    def __init__(
        self, graph: Graph, mode: StreamMode | Sequence[StreamMode], subgraphs: bool, version: Version
    ) -> None:
        self.graph = graph
        self.root: tuple[str, ...] = ()
        """The namespace of the graph that is streamed, where it is a child graph."""
        self.modes: tuple[str, ...] = (mode,) if isinstance(mode, str) else tuple(mode)
        self.many, self.subgraphs, self.version = not isinstance(mode, str), subgraphs, version
        for name in self.modes:
            if name not in events.MODES:
                raise ValueError(
                    f"unknown stream mode {name!r}{nearest(name, events.MODES)}; there are {', '.join(events.MODES)}"
                )
        check_version(version)

    def chunks(self, event: Event) -> Iterator[Any]:
        """An event as the caller wants it; the namespace counts from the graph that is streamed."""
        inner = event.namespace[len(self.root) :]
        if inner and not self.subgraphs and event.kind != "custom":
            return
        namespace = inner if self.subgraphs else ()
        for mode, chunk in events.chunks(event.kind, event.step, event.payload, self.modes):
            if self.version == "v2":
                yield self._envelope(mode, namespace, chunk, event)
            elif self.many:
                yield (namespace, mode, chunk) if self.subgraphs else (mode, chunk)
            else:
                yield (namespace, chunk) if self.subgraphs else chunk

    def _envelope(self, mode: str, namespace: tuple[str, ...], chunk: Any, event: Event) -> dict[str, Any]:
        if mode != "values":
            return {"type": mode, "ns": namespace, "data": chunk}
        interrupts: tuple[Any, ...] = ()
        if isinstance(chunk, dict) and "__interrupt__" in chunk:
            interrupts = chunk["__interrupt__"]
            chunk = {key: value for key, value in chunk.items() if key != "__interrupt__"}
        data = chunk if event.namespace != self.root else typed(self.graph.state_view, chunk)
        return {"type": mode, "ns": namespace, "data": data, "interrupts": interrupts}


def check_version(version: Version) -> None:
    """Raises ValueError for a version of the output that there is not."""
    if version not in ("v1", "v2"):
        raise ValueError(f"unknown version {version!r}; it is 'v1' or 'v2'")


def typed(view: View, value: Any) -> Any:
    """A state as an instance of its schema where that is a dataclass, Struct or model; else as it is."""
    return view.build(value) if view.build is not None and isinstance(value, dict) else value


def _parent_of(config: Mapping[str, Any] | None) -> TaskContext | None:
    """The task this call is made from, unless the config names a thread of its own."""
    context = current_or_none()
    if context is None:
        return None
    own = configurable_of(config).get("thread_id")
    return None if own is not None and own != context.scope.thread_id else context


def _child_scope(compiled: CompiledGraph, parent: TaskContext) -> Scope:
    outer = parent.scope
    number, parent.child_calls = parent.child_calls, parent.child_calls + 1
    stateful = compiled.checkpointer is True
    part = parent.task.node if stateful else f"{parent.task.node}:{parent.task.id}"
    part = part if number == 0 else f"{part}:#{number}"
    saver = None if compiled.checkpointer is False else outer.saver
    namespace = f"{outer.namespace}|{part}" if outer.namespace else part
    if saver is not None:
        saver.register(*storable_types(compiled))
        if compiled.migrating:
            from minigraph.migrating_saver import learning

            saver = learning(saver, namespace, compiled)
    return Scope(
        graph=compiled.graph,
        saver=saver,
        thread_id=outer.thread_id,
        namespace=namespace,
        config=outer.config,
        modes=outer.modes if outer.subgraphs else outer.modes & {"custom"},
        context=outer.context,
        control=outer.control,
        cache=compiled.cache or outer.cache,
        recursion_limit=outer.recursion_limit,
        max_concurrency=outer.max_concurrency,
        durability=outer.durability,
        executor=None if outer.run_task is not None else compiled.executor or outer.executor,
        owner=child_call(parent.task.id, number, parent.questions),
        given=parent.given if saver is not None else {**outer.given, **parent.given},
        caller=parent,
        forward=parent.emit,
        subgraphs=outer.subgraphs,
        live=outer.live,
        run_task=outer.run_task,
    )


def root_scope(compiled: Threads, config: Mapping[str, Any] | None, durability: str | None) -> Scope:
    configurable = configurable_of(config)
    config = cast(RunnableConfig, dict(config or {}))
    if compiled.checkpointer is True:
        raise RuntimeError("checkpointer=True is for a graph used inside another; give a root graph a saver")
    saver = compiled.checkpointer if not isinstance(compiled.checkpointer, bool) else None
    if saver is not None and compiled.migrating:
        from minigraph.migrating_saver import MigratingSaver

        saver = MigratingSaver(saver, compiled)
    thread_id = configurable.get("thread_id")
    if saver is not None and not (isinstance(thread_id, str) and thread_id):
        raise ValueError(
            f"a graph with a checkpointer needs a thread: {{'configurable': {{'thread_id': 'a non-empty str'}}}};"
            f" got {thread_id!r}"
        )
    if saver is not None and has_lone_surrogate(str(thread_id)):
        raise ValueError(f"thread_id={thread_id!r} holds half a character (a lone surrogate), which no saver can store")
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
        thread_id=str(thread_id) if saver is not None else "",
        namespace="",
        config=config,
        modes=frozenset(),
        cache=compiled.cache,
        recursion_limit=limit,
        max_concurrency=concurrency,
        durability=durability or "sync",
        executor=None if compiled.run_task is not None else compiled.executor,
        run_task=compiled.run_task,
    )


def configurable_of(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What a config says under "configurable": the thread, perhaps a checkpoint. Raises TypeError for no config."""
    found = config.get("configurable") if isinstance(config, Mapping) else config
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise TypeError(f"config={config!r}: {_A_CONFIG}")
    return found


def named_thread(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config, which must be one. Raises TypeError where it is not."""
    if not isinstance(config, Mapping):
        raise TypeError(f"config={config!r}: {_A_CONFIG}")
    return config


def checkpoint_id_of(config: Mapping[str, Any] | None) -> str | None:
    found = configurable_of(config).get("checkpoint_id")
    if found is not None and not isinstance(found, str):
        raise ValueError(f"checkpoint_id={found!r}: it is a str, as in a snapshot's config")
    return found or None


def at_checkpoint(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config, which must name a checkpoint. Raises ValueError where it does not."""
    if checkpoint_id_of(config) is None:
        raise ValueError(
            "the config names no checkpoint: take the config of a snapshot, as in get_state_history(config)"
        )
    return config


def checked_saver(checkpointer: Any) -> Any:
    from minigraph.checkpoint.base import Saver

    if checkpointer is None or isinstance(checkpointer, bool | Saver):
        return checkpointer
    raise TypeError(f"checkpointer={checkpointer!r}: a saver (InMemorySaver(), SqliteSaver(path)), True, False or None")


def breakpoints(graph: Graph, names: Breakpoints, what: str) -> frozenset[str]:
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
    if compiled.storable is None:
        found = dict.fromkeys(storable_classes(compiled.types))
        for node in compiled.graph.nodes.values():
            if node.child is not None:
                found |= dict.fromkeys(storable_types(node.child))
        compiled.storable = tuple(found)
    return compiled.storable
