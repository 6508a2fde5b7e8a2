"""Run one tool call and say how it went: every call gets exactly one result, whatever happens."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import msgspec
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from tools.errors import ERROR_KINDS, Kind, ToolError
from tools.tool import Tool, ToolContext, argument_field, tools_by_name

ERROR_LIMIT: Final = 600
"""Characters an error text may have."""

_SHOWN_PROBLEMS: Final = 5

# What the standard library's exceptions mean when a tool did not declare them otherwise.
_STANDARD_KINDS: Final[Mapping[type[BaseException], Kind]] = {
    TimeoutError: "temporary",
    ConnectionError: "temporary",
    PermissionError: "not_permitted",
}

_ADVICE: Final[Mapping[str, str]] = {
    "invalid_arguments": "Correct the arguments and call again.",
    "temporary": "Nothing was done; the same call may work later.",
    "not_permitted": "Do not try this call again.",
    "too_large": "Ask for less.",
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as a model made it. ``arguments`` is None where its text was not one JSON object."""

    id: str
    name: str
    arguments: dict[str, object] | None
    raw_arguments: str = ""

    @classmethod
    def parse(cls, id: str, name: str, raw_arguments: str) -> ToolCall:
        """Read the arguments from JSON text without repairing anything; what cannot be read becomes None."""
        try:
            arguments = read_arguments(raw_arguments)
        except ValueError:
            arguments = None
        return cls(id, name, arguments, raw_arguments)

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the name and the arguments; neither the id nor the order of keys counts."""
        content = self.raw_arguments if self.arguments is None else self.arguments
        try:
            text = json.dumps([self.name, content], sort_keys=True, default=repr)
        except (ValueError, TypeError, RecursionError):  # not JSON, so `execute` refuses it too
            text = json.dumps([self.name, self.raw_arguments])
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The one result of a call. An empty content is not an error, and an error is never empty."""

    call_id: str
    name: str
    content: str
    is_error: bool
    kind: Kind

    def as_message(self) -> dict[str, object]:
        """The result as an entry of a conversation."""
        return {
            "role": "tool",
            "tool_call_id": self.call_id,
            "name": self.name,
            "content": self.content,
            "is_error": self.is_error,
            "kind": self.kind,
        }


def error_result(call: ToolCall, kind: Kind, text: str) -> ToolResult:
    """A failed result for a call: the text, cut to ``ERROR_LIMIT``, and what the model may do next."""
    advice = _ADVICE.get(kind, "")
    shown = _cut(_storable(text), ERROR_LIMIT - len(advice) - 1) or "The tool failed without a message."
    return ToolResult(call.id, call.name, f"{shown} {advice}".strip(), True, kind)


def execute(
    call: ToolCall,
    tools: Iterable[Tool] | Mapping[str, Tool],
    context: ToolContext | None = None,
    *,
    dry_run: bool = False,
) -> ToolResult:
    """Run the call with one of the tools and return its one result.

    No ``Exception`` leaves this function; each becomes a result whose kind follows from its class. KeyboardInterrupt,
    SystemExit and other exceptions that are not an ``Exception`` pass through. ``context.call_id`` is set to the
    call's. A dangerous tool runs only when ``context.approved_by`` names who released it. With ``dry_run`` the
    arguments are checked and a dangerous tool is described instead of run.
    """
    try:
        return _execute(call, tools, context or ToolContext(), dry_run)
    except Exception as error:
        return error_result(call, "failed", f"The call could not be run: {_describe(error)}")


def read_arguments(text: str) -> dict[str, object]:
    """The one JSON object that ``text`` holds.

    Raises ValueError for anything else: a second object, a repeated key, NaN or Infinity, nesting too deep.
    """
    try:
        value: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (RecursionError, TypeError) as error:
        raise ValueError(f"not a readable JSON text: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _execute(
    call: ToolCall, tools: Iterable[Tool] | Mapping[str, Tool], context: ToolContext, dry_run: bool
) -> ToolResult:
    known = cast("Mapping[str, Tool]", tools) if isinstance(tools, Mapping) else tools_by_name(tools)
    found = known.get(call.name)
    if found is None:
        names = ", ".join(sorted(known)) or "none"
        return error_result(
            call, "unknown_tool", f"There is no tool {_cut(repr(call.name), 80)}. The tools are: {names}."
        )
    try:
        arguments = _arguments(call, found)
    except ValidationError as error:
        return error_result(call, "invalid_arguments", f"{found.name}: {_problems(error)}.")
    except (ValueError, TypeError, RecursionError) as error:
        return error_result(call, "invalid_arguments", f"{found.name}: the arguments are {_describe(error)}.")
    described = dry_run and found.tier == "dangerous"
    if found.tier == "dangerous" and not described and not context.approved_by:
        return error_result(call, "not_permitted", f"{found.name} needs an approval and this call has none.")
    if found.takes_context:
        arguments["context"] = dataclasses.replace(context, call_id=call.id)
    function = (found.dry_run or _describer(found)) if described else found.function
    try:
        content = _content(function(**arguments))
    except Exception as error:
        return error_result(call, _kind(error, found), f"{found.name}: {_describe(error)}")
    if len(content) > found.result_limit:
        text = f"{found.name}: the result has {len(content)} characters and {found.result_limit} are allowed."
        return error_result(call, "too_large", text)
    return ToolResult(call.id, call.name, content, False, "ok")


def _arguments(call: ToolCall, found: Tool) -> dict[str, object]:
    if call.arguments is None:
        read_arguments(call.raw_arguments)  # says what is wrong with the text
        raise ValueError("missing: pass the object that was read from the text")
    # Through JSON text, because that is where a model's arguments come from: a date is a string there and a
    # tuple a list, while "5" is still not a number.
    text = json.dumps(call.arguments, allow_nan=False)
    model = found.arguments_model.model_validate_json(text)
    return {name: getattr(model, argument_field(place)) for place, name in enumerate(found.parameters)}


def _describer(found: Tool) -> Callable[..., object]:
    def describe(**arguments: object) -> str:
        shown = {name: value for name, value in arguments.items() if name in found.parameters}
        return f"Dry run: {found.name} would be called with {_cut(_content(shown), found.result_limit // 2)}"

    return describe


def _content(value: object) -> str:
    if isinstance(value, str):
        return _storable(value)
    if isinstance(value, Iterator):
        raise TypeError(f"the tool returned {type(value).__name__}, which can be read only once; return a list")
    plain = to_jsonable_python(value, fallback=msgspec.to_builtins)
    return _storable(json.dumps(plain, allow_nan=False, ensure_ascii=False))


def _kind(error: Exception, found: Tool) -> Kind:
    classes = type(error).__mro__
    for item in classes:
        if item in found.errors:
            return found.errors[cast("type[Exception]", item)]
    if isinstance(error, ToolError):
        kind = type(error).kind
        return kind if kind in ERROR_KINDS else "failed"
    for item in classes:
        if item in _STANDARD_KINDS:
            return _STANDARD_KINDS[item]
    return "failed"


def _describe(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as second:  # an exception whose own text raises
        text = f"(its text could not be read: {type(second).__name__})"
    if isinstance(error, ToolError) or (type(error) is ValueError and text):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [
        f"{_cut('.'.join(str(part) for part in item['loc']) or 'arguments', 80)}: {_cut(item['msg'], 120)}"
        for item in found[:_SHOWN_PROBLEMS]
    ]
    more = len(found) - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more else "")


def _storable(text: str) -> str:
    """The text with lone surrogates written out, so that it can be encoded and stored."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: max(0, limit - 3)]}..."


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("not usable: a key appears twice")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"not usable: {name} is not a JSON number")
