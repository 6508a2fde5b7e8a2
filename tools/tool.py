"""A tool: a typed Python function with what a model and a guard need to know about it."""

from __future__ import annotations

import inspect
import json
import re
import time
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, overload

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from tools.call import UNREADABLE_NAME
from tools.errors import ERROR_KINDS, Kind, ToolDefinitionError
from tools.signature import CONTEXT, build_arguments_model, read_signature

Tier: TypeAlias = Literal["safe", "dangerous"]
"""Whether a tool only reads, or acts on the world and so needs an approval."""

RESULT_LIMIT: Final = 20_000
"""Characters a result may have unless a tool says otherwise."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z")


def _no_facts() -> Mapping[str, object]:
    return {}


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a call carries that the model neither sees nor sets.

    ``thread_id`` and ``call_id`` name the call for good; ``step`` is the step of the run; ``approved_by`` is who
    or what released the call (a person's name, or the guard that decided), None where nobody did; ``facts`` holds
    what the application looked up, such as the address on the record. The facts are copied and read-only.
    ``deadline`` is when the call must be over, in seconds of ``time.monotonic``; a tool that waits for something
    asks ``seconds_left`` for its time-out. It is None where nothing limits the time.
    """

    thread_id: str = ""
    call_id: str = ""
    step: int = 0
    approved_by: str | None = None
    facts: Mapping[str, object] = field(default_factory=_no_facts)
    deadline: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", types.MappingProxyType(dict(self.facts)))

    def __reduce__(self) -> tuple[type[ToolContext], tuple[object, ...]]:
        return ToolContext, (self.thread_id, self.call_id, self.step, self.approved_by, dict(self.facts), self.deadline)

    def seconds_left(self, clock: Callable[[], float] = time.monotonic) -> float | None:
        """The seconds until the deadline, 0.0 once it has passed, None where there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - clock())

    @property
    def idempotency_key(self) -> str:
        """One text for (thread, call), the same on every re-run and different for every other pair."""
        return json.dumps([self.thread_id, self.call_id])


@dataclass(frozen=True, slots=True)
class Tool:
    """A function offered to a model. Made by ``tool``; calling it calls the function.

    ``arguments_model`` validates arguments strictly and refuses unknown ones. ``result_limit`` bounds the whole
    result and ``field_limit`` each text within it, in characters. ``errors`` maps exception classes the function is
    known to raise to the kind the model is told. ``dry_run`` has the same parameters and says what the function would
    do, without doing it. ``idempotent`` says that the same call again, under the same idempotency key, changes
    nothing more: only then may a broken connection be called temporary.
    """

    name: str
    description: str
    function: Callable[..., object]
    arguments_model: type[BaseModel]
    parameters: tuple[str, ...]
    result_type: object
    tier: Tier
    result_limit: int
    field_limit: int | None
    errors: Mapping[type[Exception], Kind]
    dry_run: Callable[..., object] | None
    idempotent: bool
    takes_context: bool

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.function(*args, **kwargs)

    def json_schema(self) -> dict[str, object]:
        """The JSON schema of the arguments: an object that allows nothing beyond what it names."""
        return self.arguments_model.model_json_schema(by_alias=True, schema_generator=_SchemaWithoutTitles)

    def openai_schema(self) -> dict[str, object]:
        """The tool as an entry of ``tools`` in a chat completions request."""
        function = {"name": self.name, "description": self.description, "parameters": self.json_schema()}
        return {"type": "function", "function": function}

    def anthropic_schema(self) -> dict[str, object]:
        """The tool as an entry of ``tools`` in a messages request."""
        return {"name": self.name, "description": self.description, "input_schema": self.json_schema()}


class _SchemaWithoutTitles(GenerateJsonSchema):
    """Leaves out generated titles: they repeat the names and cost tokens."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


@overload
def tool(function: Callable[..., object], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    tier: Tier = "safe",
    result_limit: int = RESULT_LIMIT,
    field_limit: int | None = None,
    errors: Mapping[type[Exception], Kind] | None = None,
    dry_run: Callable[..., object] | None = None,
    idempotent: bool | None = None,
) -> Callable[[Callable[..., object]], Tool]: ...


def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    tier: Tier = "safe",
    result_limit: int = RESULT_LIMIT,
    field_limit: int | None = None,
    errors: Mapping[type[Exception], Kind] | None = None,
    dry_run: Callable[..., object] | None = None,
    idempotent: bool | None = None,
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Turn a typed function with a docstring into a ``Tool``; use as ``@tool`` or ``@tool(tier="dangerous")``.

    The docstring is what the model reads. Every parameter needs a type; ``Annotated[..., Field(description=...)]``
    describes it. A parameter named ``context`` of type ``ToolContext`` is filled in by ``execute`` and hidden from
    the model. A safe tool is idempotent; a dangerous one only if it says so. Raises ``ToolDefinitionError`` for
    anything a model or a guard could not work with.
    """

    def build(target: Callable[..., object]) -> Tool:
        return _build(target, name, tier, (result_limit, field_limit), dict(errors or {}), dry_run, idempotent)

    return build if function is None else build(function)


def tools_by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """The tools by their names. Raises ``ToolDefinitionError`` when two names are the same or hardly differ."""
    found: dict[str, Tool] = {}
    alike: dict[str, str] = {}
    for item in tools:
        if item.name in found:
            raise ToolDefinitionError(item.name, "two tools have this name; give one of them another `name`")
        spelling = item.name.lower().replace("-", "_")
        if spelling in alike:
            raise ToolDefinitionError(
                item.name, f"its name differs from {alike[spelling]!r} only in case, '-' or '_'; a model mixes them up"
            )
        found[item.name] = item
        alike[spelling] = item.name
    return found


def _build(
    function: Callable[..., object],
    name: str | None,
    tier: Tier,
    limits: tuple[int, int | None],
    errors: dict[type[Exception], Kind],
    dry_run: Callable[..., object] | None,
    idempotent: bool | None,
) -> Tool:
    label = name if name is not None else getattr(function, "__name__", type(function).__name__)
    if not _NAME.match(label):
        raise ToolDefinitionError(label, "a name is a letter and then up to 63 letters, digits, '_' or '-'")
    if label == UNREADABLE_NAME:
        raise ToolDefinitionError(label, "this name stands for a name that cannot be written; choose another")
    description = inspect.getdoc(function) if getattr(function, "__doc__", None) else None
    if not description or not description.strip():
        raise ToolDefinitionError(label, "it has no docstring; write what it does, for the model that chooses it")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ToolDefinitionError(label, "it is a coroutine or a generator; write a plain function that returns")
    if tier not in ("safe", "dangerous"):
        raise ToolDefinitionError(label, f"tier {tier!r} is not one of 'safe', 'dangerous'")
    if tier == "safe" and idempotent is False:
        raise ToolDefinitionError(label, "a safe tool only reads, so it is idempotent; its tier must be 'dangerous'")
    for option, limit in zip(("result_limit", "field_limit"), limits, strict=True):
        if limit is not None and limit < 1:
            raise ToolDefinitionError(label, f"{option} is {limit}; at least 1 character is needed")
    _check_errors(label, errors)
    signature, hints = read_signature(label, function, ToolContext)
    if dry_run is not None and list(inspect.signature(dry_run).parameters) != list(signature.parameters):
        raise ToolDefinitionError(label, "dry_run must have the same parameters as the function")
    parameters = tuple(item for item in signature.parameters if item != CONTEXT)
    return Tool(
        name=label,
        description=description.strip(),
        function=function,
        arguments_model=build_arguments_model(label, signature, hints),
        parameters=parameters,
        result_type=hints["return"],
        tier=tier,
        result_limit=limits[0],
        field_limit=limits[1],
        errors=types.MappingProxyType(errors),
        dry_run=dry_run,
        idempotent=tier == "safe" if idempotent is None else idempotent,
        takes_context=CONTEXT in signature.parameters,
    )


def _check_errors(label: str, errors: Mapping[type[Exception], Kind]) -> None:
    for error, kind in errors.items():
        if not (isinstance(error, type) and issubclass(error, Exception)):
            raise ToolDefinitionError(label, f"errors: {error!r} is not an exception class")
        if kind not in ERROR_KINDS:
            raise ToolDefinitionError(label, f"errors: {kind!r} is not one of {sorted(ERROR_KINDS)}")
