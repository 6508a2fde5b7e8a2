"""A provider for tests that gives prepared replies in order and remembers what it was shown."""

from __future__ import annotations

from collections.abc import Sequence

from desk.providers.base import Message, ProviderError, Reply
from tools import Tool, ToolCall


def says(text: str) -> Reply:
    """A final answer."""
    return Reply(text)


def calls(*made: tuple[str, str, dict[str, object]]) -> Reply:
    """A reply with tool calls, each as (id, name, arguments)."""
    return Reply("", tuple(ToolCall(id, name, arguments) for id, name, arguments in made), "tool_calls")


class ScriptedProvider:
    """Gives the replies in order; with ``repeat`` the last one for ever. An exception in the list is raised."""

    def __init__(self, replies: Sequence[Reply | Exception], *, repeat: bool = False) -> None:
        self._replies = list(replies)
        self._repeat = repeat
        self.seen: list[list[Message]] = []
        self.systems: list[str] = []

    @property
    def name(self) -> str:
        return "scripted provider (test double)"

    def chat(self, messages: Sequence[Message], system: str, tools: Sequence[Tool], max_tokens: int) -> Reply:
        """Give the next prepared reply, or raise ``ProviderError`` when there is none left."""
        number = len(self.seen)
        self.seen.append(list(messages))
        self.systems.append(system)
        if number >= len(self._replies) and not (self._repeat and self._replies):
            raise ProviderError(f"the script has {len(self._replies)} replies and one more was asked for")
        reply = self._replies[min(number, len(self._replies) - 1)]
        if isinstance(reply, Exception):
            raise reply
        return reply
