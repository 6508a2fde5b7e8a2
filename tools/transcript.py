"""A conversation as plain messages: which calls are open, how they are closed, and where it may be cut.

Providers refuse a conversation for ever in which a call has no result, or a result no call. So every open call gets one
result before anything else is added, whatever became of it.

    {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "add", "arguments": {"a": 1}}]}
    {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "1", "is_error": false, "kind": "ok"}
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, cast, get_args

from tools.call import UNREADABLE_NAME, ToolCall, ToolResult, error_result
from tools.errors import ERROR_KINDS, Kind

Message: TypeAlias = Mapping[str, object]
"""One entry of a conversation."""

LOST: Final = "The run was stopped before this call had a result; it is not known what was done."

_KINDS: Final[Mapping[str, Kind]] = {kind: kind for kind in get_args(Kind)}

# What every provider takes back as the id of a call and as the name of a tool.
_WRITABLE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def admit(calls: Iterable[ToolCall], messages: Sequence[Message] = ()) -> tuple[ToolCall, ...]:
    """The calls of a new reply with ids that are new in the conversation and names that a provider takes back.

    An id that is missing, used before or not writable is replaced; a name that is not writable becomes
    ``UNREADABLE_NAME``, which no tool has. To be called before the reply is stored, with the whole conversation and not
    a trimmed one: an id used again would take an earlier effect for its own.
    """
    used = {str(call["id"]) for message in messages for call in _plain_calls(message)}
    admitted: list[ToolCall] = []
    for call in calls:
        id = _new_id(call.id, used)
        used.add(id)
        name = call.name if isinstance(call.name, str) and _WRITABLE.match(call.name) else UNREADABLE_NAME
        admitted.append(dataclasses.replace(call, id=id, name=name))
    return tuple(admitted)


def call_message(text: str, calls: Iterable[ToolCall]) -> dict[str, object]:
    """A reply with its calls as one message."""
    plain = [
        {"id": call.id, "name": call.name, "arguments": call.arguments, "raw_arguments": call.raw_arguments}
        for call in calls
    ]
    return {"role": "assistant", "content": text, "tool_calls": plain}


def calls_of(message: Message) -> tuple[ToolCall, ...]:
    """The calls that a message makes."""
    return tuple(
        ToolCall(
            str(plain["id"]),
            str(plain["name"]),
            cast("dict[str, object] | None", plain.get("arguments")),
            str(plain.get("raw_arguments", "")),
        )
        for plain in _plain_calls(message)
    )


def exchanges(messages: Sequence[Message]) -> list[tuple[ToolCall, ToolResult]]:
    """Every call that has a result, with it, in the order of the calls."""
    results = {result.call_id: result for message in messages if (result := _result(message)) is not None}
    made = [call for message in messages for call in calls_of(message)]
    return [(call, results[call.id]) for call in made if call.id in results]


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls without a result, in the order they were made."""
    answered = {str(message.get("tool_call_id")) for message in messages if message.get("role") == "tool"}
    return [call for message in messages for call in calls_of(message) if call.id not in answered]


def closing(messages: Sequence[Message], text: str = LOST, kind: Kind = "failed") -> list[dict[str, object]]:
    """One error result for each open call: what to add before anything else after a cancel or a crash.

    They are marked as errors, so that no model takes them for what a tool said, and the calls stay in the history of
    calls, so that a model which makes them again and again is stopped.
    """
    return [error_result(call, kind, text).as_message() for call in open_calls(messages)]


def with_message(messages: Sequence[Message], message: Message) -> list[Message]:
    """The conversation with one more message that is no result, after the results that were still missing."""
    return [*messages, *closing(messages), message]


def with_edited(messages: Sequence[Message], call: ToolCall, by: str) -> list[Message]:
    """The conversation with a call as a person changed it; no other version of it is left.

    Raises ValueError if no message makes a call with this id.
    """
    for place, message in enumerate(messages):
        plain = [dict(item) for item in _plain_calls(message)]
        for item in plain:
            if item["id"] == call.id:
                item |= {"arguments": call.arguments, "raw_arguments": call.raw_arguments, "edited_by": by}
                return [*messages[:place], {**message, "tool_calls": plain}, *messages[place + 1 :]]
    raise ValueError(f"the conversation holds no call {call.id!r}")


def trimmed(messages: Sequence[Message], most: int) -> list[Message]:
    """The newest messages, about ``most``, cut where a request of the user begins: what a model is shown.

    Calls and results stay together, since a turn is kept or left out as a whole; the newest turn is kept even if it is
    longer than ``most``. Raises ValueError where ``most`` is less than 1.
    """
    if most < 1:
        raise ValueError(f"most is {most}; at least the newest turn is kept, so write 1 or more")
    starts = [place for place, message in enumerate(messages) if message.get("role") == "user"]
    if len(messages) <= most or not starts:
        return list(messages)
    fitting = [place for place in starts if len(messages) - place <= most]
    return list(messages[fitting[0] if fitting else starts[-1] :])


def faults(messages: Sequence[Message]) -> list[str]:
    """What a provider would refuse: ids used twice, results without a call before them, calls without a result.

    A call must have its result before the next message that is none.
    """
    found: list[str] = []
    made: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            id = str(message.get("tool_call_id"))
            if id in waiting:
                waiting.remove(id)
            else:
                found.append(f"message {place}: the result for {id!r} answers no open call")
            continue
        found += [f"message {place}: call {id!r} has no result before it" for id in waiting]
        waiting = [str(plain["id"]) for plain in _plain_calls(message)]
        for id in waiting:
            if id in made:
                found.append(f"message {place}: the id {id!r} was used before")
            made.add(id)
    return found + [f"the end: call {id!r} has no result" for id in waiting]


def _new_id(given: object, used: set[str]) -> str:
    readable = isinstance(given, str) and _WRITABLE.match(given) is not None
    if readable and given not in used:
        return str(given)
    stem = str(given)[:50] if readable else "call"
    return next(id for copy in itertools.count(2 if readable else 1) if (id := f"{stem}-{copy}") not in used)


def _plain_calls(message: Message) -> Sequence[Mapping[str, object]]:
    calls = message.get("tool_calls")
    return cast("Sequence[Mapping[str, object]]", calls) if isinstance(calls, list | tuple) else ()


def _result(message: Message) -> ToolResult | None:
    if message.get("role") != "tool":
        return None
    is_error = message.get("is_error") is True
    given, known = message.get("kind"), _KINDS["failed"] if is_error else _KINDS["ok"]
    if isinstance(given, str) and given in ERROR_KINDS:
        known = _KINDS[given]
    content = message.get("content")
    return ToolResult(str(message.get("tool_call_id")), str(message.get("name", "")), str(content), is_error, known)
