"""Run one tool call and say how it went: every call gets exactly one result, whatever happens."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, cast

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from tools.call import ARGUMENTS_LIMIT, cut, is_name, read_arguments, storable
from tools.call import ERROR_LIMIT as ERROR_LIMIT
from tools.call import ToolCall as ToolCall
from tools.call import ToolResult as ToolResult
from tools.call import error_result as error_result
from tools.errors import ERROR_KINDS, Kind, ToolError
from tools.signature import argument_field
from tools.tool import Tool, ToolContext, tools_by_name

_SHOWN_PROBLEMS: Final = 5

# What the standard library's exceptions mean when a tool did not declare them otherwise.
_STANDARD_KINDS: Final[Mapping[type[BaseException], Kind]] = {
    TimeoutError: "temporary",
    ConnectionError: "temporary",
    PermissionError: "not_permitted",
}


def prepare(call: ToolCall, tools: Iterable[Tool] | Mapping[str, Tool]) -> ToolCall | ToolResult:
    """The call with the arguments that will run: validated, rewritten by the tool's types, defaults filled in.

    This is the form to show to whoever approves it, and to compare calls by. A call that cannot run gives its error
    result instead. No ``Exception`` leaves this function.
    """
    try:
        found = _find(call, tools)
        if isinstance(found, ToolResult):
            return found
        final = _final(_validated(call, found))
        again = _final(_validated(dataclasses.replace(call, arguments=final), found))
    except _UnusableArgumentsError as error:
        return error_result(call, "invalid_arguments", str(error))
    except Exception as error:
        return error_result(call, "failed", f"The call could not be read: {_describe(error)}")
    if again != final:
        text = f"{found.name} rewrites its arguments differently each time, so nobody can approve them."
        return error_result(call, "failed", text)
    return dataclasses.replace(call, arguments=final, raw_arguments=json.dumps(final))


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


class _UnusableArgumentsError(Exception):
    """The text for the model about arguments that do not fit the tool."""


def _execute(
    call: ToolCall, tools: Iterable[Tool] | Mapping[str, Tool], context: ToolContext, dry_run: bool
) -> ToolResult:
    found = _find(call, tools)
    if isinstance(found, ToolResult):
        return found
    try:
        arguments = _passed(_validated(call, found), found)
    except _UnusableArgumentsError as error:
        return error_result(call, "invalid_arguments", str(error))
    described = dry_run and found.tier == "dangerous"
    if found.tier == "dangerous" and not described and not is_name(context.approved_by):
        return error_result(call, "not_permitted", f"{found.name} needs an approval and this call has none.")
    if context.seconds_left() == 0.0:
        return error_result(call, "budget", f"{found.name} was not run: no time is left.")
    if found.takes_context:
        arguments["context"] = dataclasses.replace(context, call_id=call.id)
    if described:
        return _run(call, found, found.dry_run or _describer(found), arguments, acts=False)
    return _run(call, found, found.function, arguments, acts=found.tier == "dangerous")


def _find(call: ToolCall, tools: Iterable[Tool] | Mapping[str, Tool]) -> Tool | ToolResult:
    known = cast("Mapping[str, Tool]", tools) if isinstance(tools, Mapping) else tools_by_name(tools)
    found = known.get(call.name)
    if found is None:
        names = ", ".join(sorted(known)) or "none"
        text = f"There is no tool {cut(repr(call.name), 80)}. The tools are: {names}."
        return error_result(call, "unknown_tool", text)
    return found


def _validated(call: ToolCall, found: Tool) -> BaseModel:
    """The arguments as their types, or ``_UnusableArgumentsError``."""
    try:
        if call.arguments is None:
            read_arguments(call.raw_arguments)  # says what is wrong with the text
            raise ValueError("missing: pass the object that was read from the text")
        # Through JSON text, because that is where a model's arguments come from: a date is a string there and a
        # tuple a list, while "5" is still not a number.
        text = json.dumps(call.arguments, allow_nan=False)
        if len(text) > ARGUMENTS_LIMIT:
            raise ValueError(f"{len(text)} characters long; {ARGUMENTS_LIMIT} are allowed")
        return found.arguments_model.model_validate_json(text)
    except ValidationError as error:
        raise _UnusableArgumentsError(f"{found.name}: {_problems(error)}.") from error
    except (ValueError, TypeError, RecursionError, AttributeError) as error:
        raise _UnusableArgumentsError(f"{found.name}: the arguments are {_describe(error)}.") from error


def _passed(model: BaseModel, found: Tool) -> dict[str, object]:
    return {name: getattr(model, argument_field(place)) for place, name in enumerate(found.parameters)}


def _final(model: BaseModel) -> dict[str, object]:
    return model.model_dump(mode="json", by_alias=True, warnings=False)


def _run(
    call: ToolCall, found: Tool, function: Callable[..., object], arguments: dict[str, object], *, acts: bool
) -> ToolResult:
    """Enter the tool. Where it ``acts``, no result may sound as if nothing had been done."""
    try:
        value = function(**arguments)
    except Exception as error:
        kind, text = _kind(error, found), f"{found.name}: {_describe(error)}"
        if acts and kind is None:
            return error_result(call, "failed", f"{text}. It is not known what was done; do not call it again.")
        return error_result(call, kind or "failed", text)
    try:
        content = _content(value, found.field_limit)
    except Exception as error:
        text = f"{found.name}: {_describe(error)}"
        text = f"{text}. It was done, only its result cannot be shown; do not call it again." if acts else text
        return error_result(call, "failed", text)
    if len(content) > found.result_limit and acts:
        content = cut(content, found.result_limit)
    if len(content) > found.result_limit:
        text = f"{found.name}: the result has {len(content)} characters and {found.result_limit} are allowed."
        return error_result(call, "too_large", text)
    return ToolResult(call.id, call.name, content, False, "ok")


def _describer(found: Tool) -> Callable[..., object]:
    def describe(**arguments: object) -> str:
        shown = {name: value for name, value in arguments.items() if name in found.parameters}
        return f"Dry run: {found.name} would be called with {cut(_content(shown, None), found.result_limit // 2)}"

    return describe


def _content(value: object, field_limit: int | None) -> str:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Iterator):
        raise TypeError(f"the tool returned {type(value).__name__}, which can be read only once; return a list")
    plain = to_jsonable_python(value, fallback=msgspec.to_builtins)
    if field_limit is not None:
        plain = _trimmed(plain, field_limit)
    return storable(json.dumps(plain, allow_nan=False, ensure_ascii=False))


def _trimmed(value: object, limit: int) -> object:
    """The value with every text in it, keys aside, cut to ``limit`` characters and its true length said."""
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[:limit]}... ({len(value)} characters)"
    if isinstance(value, dict):
        return {key: _trimmed(item, limit) for key, item in value.items()}
    return [_trimmed(item, limit) for item in value] if isinstance(value, list) else value


def _kind(error: Exception, found: Tool) -> Kind | None:
    """What the class of an error says, None where it says nothing of what was done."""
    classes = type(error).__mro__
    for item in classes:
        if item in found.errors:
            return found.errors[cast("type[Exception]", item)]
    if isinstance(error, ToolError):
        kind = type(error).kind
        return kind if kind in ERROR_KINDS else "failed"
    for item in classes:
        if item in _STANDARD_KINDS and (found.idempotent or item is PermissionError):
            return _STANDARD_KINDS[item]
    return None


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
        f"{cut('.'.join(str(part) for part in item['loc']) or 'arguments', 80)}: {cut(item['msg'], 120)}"
        for item in found[:_SHOWN_PROBLEMS]
    ]
    more = len(found) - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more else "")
