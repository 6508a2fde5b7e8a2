"""What a node can reach while it runs: interrupt(), get_stream_writer(), get_runtime(), get_config().

`once()` is in `recording.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from minigraph.errors import GraphInterrupt, OnceError
from minigraph.identifiers import interrupt_id
from minigraph.records import Finished, Recorded, Task
from minigraph.types import ExecutionInfo, Interrupt, RunControl, RunnableConfig

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from minigraph.cache import Cache
    from minigraph.checkpoint.base import Saver
    from minigraph.structure import Graph
    from minigraph.work import Job, RunTask

ContextT = TypeVar("ContextT")
StreamWriter = Callable[[Any], None]


class Event(msgspec.Struct, frozen=True):
    """Something to show to whoever streams the run; `namespace` is () for the root graph."""

    namespace: tuple[str, ...]
    kind: str
    """values, updates, custom, task, task_result or checkpoint"""
    step: int
    payload: Any


class Scope(msgspec.Struct):
    """The surroundings of one run of one graph: where it stores, what its caller asked for, who its parent is."""

    graph: Graph
    saver: Saver | None
    thread_id: str
    namespace: str
    config: RunnableConfig
    modes: frozenset[str]
    context: Any = None
    control: RunControl = msgspec.field(default_factory=RunControl)
    cache: Cache | None = None
    recursion_limit: int = 100
    max_concurrency: int | None = None
    durability: str = "sync"
    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    owner: str = ""
    """The parent's task that this run belongs to; "" for a root run."""
    given: Mapping[str, Any] = {}
    """Answers by interrupt id that the parent passes down."""
    caller: TaskContext | None = None
    """The task that called this run as a child graph; None for a root run."""
    elsewhere: bool = False
    """Whether the tasks run in an executor of the user's, out of reach of the saver."""
    forward: Callable[[Event], None] | None = None
    """Where a child run's events go; None for a root run."""
    subgraphs: bool = False
    executor: Executor | None = None
    """Where the tasks of sync nodes run; None: in this process."""
    live: bool = False
    """Whether somebody watches while nodes run, so that a single task must not block the caller."""
    run_task: RunTask | None = None
    """What runs a task in place of `work.work`, here and in child graphs; for `minigraph.testing`."""

    @property
    def path(self) -> tuple[str, ...]:
        """The namespace as a tuple of "node:task" parts."""
        return tuple(self.namespace.split("|")) if self.namespace else ()


class TaskContext(msgspec.Struct):
    """One try of one job: its answers, the questions it asked and the child graphs it called."""

    job: Job
    attempt: int
    emit: Callable[[Event], None]
    asked: list[Interrupt] = []
    answers: tuple[Any, ...] = ()
    given: Mapping[str, Any] = {}
    kept: Finished | None = None
    """The node's own result, from the moment its routers are asked."""
    ledger: dict[tuple[str, str], Recorded] = {}
    """What once() recorded in this try and the earlier ones of a run without a saver, by way and key."""
    keys: dict[str, object] = {}
    """The keys of the once() calls of this try."""
    questions: int = 0
    child_calls: int = 0
    pausing: bool = False
    beat: Callable[[], None] | None = None

    @property
    def scope(self) -> Scope:
        """The surroundings of the run."""
        return self.job.scope

    @property
    def task(self) -> Task:
        """The task that is tried."""
        return self.job.task

    def chain(self) -> Iterator[TaskContext]:
        """This task, the one that called its graph, and so on up to the root graph's."""
        context: TaskContext | None = self
        while context is not None:
            yield context
            context = context.scope.caller

    def write(self, chunk: Any) -> None:
        """Streams a chunk in mode "custom"; counts as a sign of life."""
        if self.beat is not None and self.beats_on_write:
            self.beat()
        if "custom" in self.scope.modes:
            self.emit(Event(self.scope.path, "custom", self.job.step, chunk))

    @property
    def beats_on_write(self) -> bool:
        """Whether custom writes count as signs of life for the idle time-out."""
        policy = self.scope.graph.nodes[self.task.node].timeout
        return policy is None or policy.refresh_on == "auto"

    def heartbeat(self) -> None:
        """A sign of life for the idle time-out."""
        if self.beat is not None:
            self.beat()

    def runtime(self) -> Runtime[Any]:
        """The Runtime object handed to nodes that ask for one."""
        scope = self.scope
        place = (scope.thread_id or None, self.job.checkpoint_id, scope.namespace, self.task.id)
        info = ExecutionInfo(*place, self.attempt)
        return Runtime(scope.context, self.write, info, scope.control, self.heartbeat)


@dataclass(frozen=True, slots=True)
class Runtime(Generic[ContextT]):
    """What a node gets for a parameter named `runtime`: the caller's context and the run's controls."""

    context: ContextT
    stream_writer: StreamWriter
    execution_info: ExecutionInfo
    control: RunControl
    heartbeat: Callable[[], None]
    previous: Any = None
    store: Any = None


_current: ContextVar[TaskContext | None] = ContextVar("minigraph_task", default=None)
_recording: ContextVar[tuple[TaskContext, str] | None] = ContextVar("minigraph_once", default=None)


def enter(context: TaskContext) -> None:
    """Makes a task the current one of this (copied) context."""
    _current.set(context)


@contextmanager
def calling(context: TaskContext, key: str) -> Iterator[None]:
    """The time in which a once() call runs its function: nobody can be asked in it."""
    token = _recording.set((context, key))
    try:
        yield
    finally:
        _recording.reset(token)


def current_or_none() -> TaskContext | None:
    """The task whose node is running here, or None outside of a run."""
    return _current.get()


def current(what: str) -> TaskContext:
    """The task whose node is running here. Raises RuntimeError outside of a run."""
    context = _current.get()
    if context is None:
        raise RuntimeError(
            f"{what} was called outside of a running node; in a thread of your own, start it with"
            " contextvars.copy_context().run(...)"
        )
    return context


def interrupt(value: object) -> Any:
    """Pauses the run to ask `value` of whoever called it; returns the answer once there is one.

    The node runs again from its first line when the answer comes, and its questions are matched by call order.
    Answer with `invoke(Command(resume=answer), config)`. Raises RuntimeError outside of a node.
    """
    context = current("interrupt()")
    calls = _recording.get()
    if calls is not None and any(task is calls[0] for task in context.chain()):
        node, key = calls[0].task.node, calls[1]
        raise OnceError(
            f"node {node!r} called interrupt() inside of once({key!r}, ...): a call that pauses has no result to"
            " record; ask before it, and pass the answer as an argument",
            node=node,
            key=key,
        )
    index = context.questions
    context.questions += 1
    if index < len(context.answers):
        return context.answers[index]
    question = Interrupt(value, interrupt_id(context.scope.namespace, context.task.id, index))
    if question.id in context.scope.given and context.scope.saver is None:
        return context.scope.given[question.id]  # a child run that stores nothing has started over
    context.asked = [*context.asked[:index], question]
    context.pausing = True
    raise GraphInterrupt((question,))


def get_stream_writer() -> StreamWriter:
    """A function that streams its argument in mode "custom". Raises RuntimeError outside of a node."""
    return current("get_stream_writer()").write


def get_runtime() -> Runtime[Any]:
    """The Runtime of the node that is running. Raises RuntimeError outside of a node."""
    return current("get_runtime()").runtime()


def get_config() -> RunnableConfig:
    """The configuration of the run. Raises RuntimeError outside of a node."""
    return current("get_config()").scope.config
