"""What the public methods accept, for type checkers: the four parameters of a graph, its nodes, routers and options.

The checks are those that can be made without running anything. A node reads the state, a part of it or a plain dict;
one that reads keys of its own (private state) says so with `add_node(..., input_schema=...)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypedDict, TypeVar

from minigraph.context import Runtime, StreamWriter
from minigraph.types import (
    CachePolicy,
    Durability,
    RetryPolicy,
    RunControl,
    RunnableConfig,
    Send,
    StreamMode,
    TimeoutPolicy,
)

if TYPE_CHECKING:  # defaults of type variables are Python 3.13's; the checkers know them before
    from typing_extensions import TypeVar as TypeVarWithDefault

    StateT = TypeVarWithDefault("StateT")
    ContextT = TypeVarWithDefault("ContextT", default=None)
    InputT = TypeVarWithDefault("InputT", default=StateT)
    OutputT = TypeVarWithDefault("OutputT", default=StateT)
    AnyStateT = TypeVarWithDefault("AnyStateT", default=Any)
    AnyContextT = TypeVarWithDefault("AnyContextT", default=Any)
    AnyInputT = TypeVarWithDefault("AnyInputT", default=AnyStateT)
    AnyOutputT = TypeVarWithDefault("AnyOutputT", default=AnyStateT)
else:
    StateT, ContextT, InputT, OutputT = map(TypeVar, ("StateT", "ContextT", "InputT", "OutputT"))
    AnyStateT, AnyContextT, AnyInputT, AnyOutputT = map(
        TypeVar, ("AnyStateT", "AnyContextT", "AnyInputT", "AnyOutputT")
    )


class DataclassLike(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class StructLike(Protocol):
    __struct_fields__: ClassVar[tuple[str, ...]]


class ModelLike(Protocol):
    model_fields_set: Any


FieldsT = TypeVar("FieldsT", bound=Mapping[str, Any] | DataclassLike | StructLike | ModelLike)
"""A schema with fields, whose output is a dict; the output of a schema of one value is that value."""
NodeInputT = TypeVar("NodeInputT")
Read = TypeVar("Read", contravariant=True)
Given = TypeVar("Given", covariant=True)
Context = TypeVar("Context")

Version = Literal["v1", "v2"]
Config = RunnableConfig | Mapping[str, Any] | None
Breakpoints = Sequence[str] | Literal["*"] | None
Retry = RetryPolicy | Sequence[RetryPolicy] | None
Timeout = float | timedelta | TimeoutPolicy | None


class Plain(Protocol[Read, Given]):
    def __call__(self, state: Read, /) -> Given: ...


class WithConfig(Protocol[Read, Given]):
    def __call__(self, state: Read, /, *, config: Any) -> Given: ...


class WithWriter(Protocol[Read, Given]):
    def __call__(self, state: Read, /, *, writer: StreamWriter) -> Given: ...


class WithConfigWriter(Protocol[Read, Given]):
    def __call__(self, state: Read, /, *, config: Any, writer: StreamWriter) -> Given: ...


class WithRuntime(Protocol[Read, Context, Given]):
    def __call__(self, state: Read, /, *, runtime: Runtime[Context]) -> Given: ...


class WithRuntimeConfig(Protocol[Read, Context, Given]):
    def __call__(self, state: Read, /, *, runtime: Runtime[Context], config: Any) -> Given: ...


class WithRuntimeWriter(Protocol[Read, Context, Given]):
    def __call__(self, state: Read, /, *, runtime: Runtime[Context], writer: StreamWriter) -> Given: ...


class WithRuntimeConfigWriter(Protocol[Read, Context, Given]):
    def __call__(self, state: Read, /, *, runtime: Runtime[Context], config: Any, writer: StreamWriter) -> Given: ...


Function = (
    WithRuntime[Read, Context, Given]
    | WithRuntimeConfig[Read, Context, Given]
    | WithRuntimeWriter[Read, Context, Given]
    | WithRuntimeConfigWriter[Read, Context, Given]
    | Plain[Read, Given]
    | WithConfig[Read, Given]
    | WithWriter[Read, Given]
    | WithConfigWriter[Read, Given]
)
"""A function of the state that may ask for `config`, `writer` and `runtime` by name."""
NodeFunction = Function[NodeInputT, Context, object] | Function[dict[str, Any], Context, object]
"""A node without an input schema: it reads the state, fewer keys of it or a dict."""
SequenceItem = NodeFunction[NodeInputT, Context] | tuple[str, NodeFunction[NodeInputT, Context]]
Targets = str | Send | Sequence[str | Send]
Target = Targets | Awaitable[Targets]
RouterFunction = Function[Any, Context, Given]
"""A router: it may read what the node before it read, so its state can be any."""


class RunOptions(TypedDict, Generic[AnyContextT], total=False):
    """The keywords that all ways to run a graph share."""

    context: AnyContextT | None
    interrupt_before: Breakpoints
    interrupt_after: Breakpoints
    durability: Durability | None
    control: RunControl | None


class StreamOptions(RunOptions[AnyContextT], Generic[AnyContextT], total=False):
    """The keywords of `stream`, but for `version`."""

    stream_mode: StreamMode | Sequence[StreamMode]
    subgraphs: bool


class OutputOptions(RunOptions[AnyContextT], Generic[AnyContextT], total=False):
    """The keywords of an `invoke` that returns the whole output."""

    stream_mode: Literal["values"]
    output_keys: None


class ResumeOptions(RunOptions[AnyContextT], Generic[AnyContextT], total=False):
    """The keywords of `resume` and `replay`: those of any `invoke`."""

    stream_mode: StreamMode | Sequence[StreamMode]
    output_keys: str | Sequence[str] | None
    version: Version


class NodeOptions(TypedDict, total=False):
    """The keywords of `add_node`, but for `input_schema`."""

    defer: bool
    metadata: Mapping[str, Any] | None
    retry_policy: Retry
    cache_policy: CachePolicy | None
    error_handler: Callable[..., object] | None
    destinations: Mapping[str, str] | Sequence[str] | None
    timeout: Timeout
