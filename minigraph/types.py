"""The public value types of a graph program: markers, routing records, policies and snapshots."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, NotRequired, TypeAlias, TypedDict, TypeVar, final

import msgspec

TargetT = TypeVar("TargetT")
ValueT = TypeVar("ValueT", covariant=True)

START: Final = "__start__"
"""The virtual node where every run begins."""
END: Final = "__end__"
"""The virtual node that means: go no further on this path."""


@final
class Unset:
    """The type of UNSET, which stands for "no value was given" where None is a value."""

    __slots__ = ()
    _instance: ClassVar[Unset | None] = None

    def __new__(cls) -> Unset:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> tuple[type[Unset], tuple[()]]:
        return (Unset, ())


UNSET: Final = Unset()


@dataclass(frozen=True, slots=True)
class Send:
    """Runs `node` in the next step with `arg` as its whole input, whatever the state is."""

    node: str
    arg: Any = None


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replaces the value of a key instead of passing `value` to the key's reducer.

    It beats every other write of its step; two of them for one key are an error.
    """

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[TargetT]):
    """Updates the state and says where to go; as the input of a run it also answers questions.

    From a node: `update` is applied like a returned dict, `goto` (a node name, a Send or a list of them) adds to the
    static edges. `graph=Command.PARENT` applies both in the parent graph. As input: `resume` answers an open
    question; a non-empty dict whose keys all look like interrupt ids answers several. `-> Command[Literal["a", "b"]]`
    on a node tells where its Commands may go.
    """

    PARENT: ClassVar[Literal["__parent__"]] = "__parent__"

    graph: str | None = None
    update: Any = None
    resume: Any = UNSET
    goto: str | Send | Sequence[str | Send] = ()


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A question that a node asked: `value` is what it shows, `id` (32 hexadecimal digits) is what an answer names."""

    value: Any
    id: str


ErrorRule: TypeAlias = type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool]
"""Which exceptions are meant: a class, a tuple or list of them, or a predicate."""


def error_rule(where: str, rule: ErrorRule | str) -> ErrorRule:
    """A rule for exceptions, checked; a list becomes a tuple. Raises TypeError, beginning with `where`, for no rule."""
    if isinstance(rule, Sequence) and not isinstance(rule, str):
        if all(isinstance(kind, type) and issubclass(kind, Exception) for kind in rule):
            return tuple(rule)
    elif isinstance(rule, type):
        if issubclass(rule, Exception):
            return rule
    elif not isinstance(rule, str) and callable(rule) and not inspect.iscoroutinefunction(rule):
        return rule
    raise TypeError(
        f"{where}: retry_on is {rule!r}; it is a subclass of Exception, a tuple or list of them, or a function, not"
        " async, that takes the exception and says whether it is meant"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how fast a failing node is tried again.

    Intervals are seconds; `max_attempts` counts the first try. `jitter` adds up to one second at random. `retry_on`
    is an exception class, a tuple or list of them, or a predicate; by default connection and time-out errors only.
    """

    initial_interval: float = 0.5
    backoff_factor: float = 2.0
    max_interval: float = 128.0
    max_attempts: int = 3
    jitter: bool = True
    retry_on: ErrorRule | None = None

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"RetryPolicy(max_attempts={self.max_attempts}): at least 1, the first try counts")
        if self.initial_interval < 0 or self.max_interval < 0 or self.backoff_factor < 0:
            raise ValueError("RetryPolicy: intervals and backoff_factor must not be negative")
        if self.retry_on is not None:
            object.__setattr__(self, "retry_on", error_rule("RetryPolicy", self.retry_on))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutPolicy:
    """Limits one try of an async node, in seconds: `run_timeout` in all, `idle_timeout` without a sign of life.

    A sign of life is a call of `runtime.heartbeat()` or, with refresh_on="auto", a custom stream write as well.
    """

    run_timeout: float | timedelta | None = None
    idle_timeout: float | timedelta | None = None
    refresh_on: Literal["auto", "heartbeat"] = "auto"

    def __post_init__(self) -> None:
        for name in ("run_timeout", "idle_timeout"):
            value = getattr(self, name)
            if value is not None and seconds(value) <= 0:
                raise ValueError(f"TimeoutPolicy({name}={value!r}): a time-out must be greater than 0 seconds")


def seconds(value: float | timedelta) -> float:
    """A duration in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePolicy:
    """Reuses a node's result for the same input; `key_func` maps the input to a storable key, `ttl` is in seconds."""

    key_func: Callable[[Any], Any] | None = None
    ttl: float | None = None


class StateUpdate(NamedTuple):
    """One edit for `bulk_update_state`: what to write, and as which node."""

    values: Any
    as_node: str | None = None
    task_id: str | None = None


class TaskSnapshot(msgspec.Struct, frozen=True):
    """A task of a checkpoint: its questions, error or result, and for a child graph its state (or where to find it)."""

    id: str
    name: str
    path: tuple[Any, ...] = ()
    error: str | None = None
    interrupts: tuple[Interrupt, ...] = ()
    state: StateSnapshot | dict[str, Any] | None = None
    result: dict[str, Any] | None = None


class StateSnapshot(msgspec.Struct, frozen=True):
    """What a thread looked like at one checkpoint.

    Read without a checkpoint id it is live: finished tasks of an unfinished step are merged in and `next` lists the
    unfinished ones. `waiting` are list edges that have seen some of their sources but not all. `fingerprint` is that
    of the graph which stored it ("": unknown); `graph.fingerprint` is that of a graph at hand.
    """

    values: Any
    next: tuple[str, ...]
    config: dict[str, Any]
    metadata: dict[str, Any] | None = None
    created_at: str | None = None
    parent_config: dict[str, Any] | None = None
    tasks: tuple[TaskSnapshot, ...] = ()
    interrupts: tuple[Interrupt, ...] = ()
    waiting: tuple[str, ...] = ()
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class GraphOutput(Generic[ValueT]):
    """What `invoke(version="v2")` returns: the output value and the open questions."""

    value: ValueT
    interrupts: tuple[Interrupt, ...] = ()


class RunnableConfig(TypedDict, total=False):
    """The settings of one call: where its thread is stored, and its limits."""

    configurable: dict[str, Any]
    recursion_limit: int
    max_concurrency: int | None
    metadata: dict[str, Any]
    tags: list[str]
    run_name: str
    run_id: object
    callbacks: object


class StreamPart(TypedDict):
    """What `stream(version="v2")` yields: the mode, the namespace (() for the root graph) and the chunk."""

    type: StreamMode
    ns: tuple[str, ...]
    data: Any
    interrupts: NotRequired[tuple[Interrupt, ...]]
    """In mode "values" only: the open questions."""


StreamMode = Literal["values", "updates", "custom", "tasks", "checkpoints", "debug"]
Durability = Literal["sync", "async", "exit"]


class ExecutionInfo(NamedTuple):
    """Where a node runs: thread, checkpoint, task and which try this is (from 1)."""

    thread_id: str | None = None
    checkpoint_id: str | None = None
    checkpoint_ns: str = ""
    task_id: str = ""
    node_attempt: int = 1


@dataclass(slots=True)
class RunControl:
    """Lets another thread end a run at the next step boundary, with everything saved."""

    reason: str | None = field(default=None, init=False)

    def request_drain(self, reason: str = "drain requested") -> None:
        """Stops the run after the step that is running now; it goes on with `invoke(None, config)`."""
        self.reason = reason
