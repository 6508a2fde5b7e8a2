"""A call as a model made it, and its one result: plain records, and how their texts are read and bounded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tools.errors import Kind

ERROR_LIMIT: Final = 600
"""Characters an error text may have."""

ARGUMENTS_LIMIT: Final = 100_000
"""Characters the arguments of one call may have as JSON text."""

UNREADABLE_NAME: Final = "unreadable_name"
"""The name that a call gets whose own name no provider would take back; no tool can have it."""

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
    shown = cut(storable(text), ERROR_LIMIT - len(advice) - 1) or "The tool failed without a message."
    return ToolResult(call.id, call.name, f"{shown} {advice}".strip(), True, kind)


def read_arguments(text: str) -> dict[str, object]:
    """The one JSON object that ``text`` holds.

    Raises ValueError for anything else: a second object, a repeated key, NaN or Infinity, nesting too deep, or more
    than ``ARGUMENTS_LIMIT`` characters.
    """
    if len(text) > ARGUMENTS_LIMIT:
        raise ValueError(f"{len(text)} characters long; {ARGUMENTS_LIMIT} are allowed")
    try:
        value: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (RecursionError, TypeError) as error:
        raise ValueError(f"not a readable JSON text: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def storable(text: str) -> str:
    """The text with lone surrogates written out, so that it can be encoded and stored."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and dots where it has more than ``limit`` characters."""
    return text if len(text) <= limit else f"{text[: max(0, limit - 3)]}..."


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("not usable: a key appears twice")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"not usable: {name} is not a JSON number")


def is_name(by: object) -> bool:
    """Tell whether something can name who released a call: a text with a letter or a digit in it."""
    return isinstance(by, str) and any(character.isalnum() for character in by)
