"""What a language model is to the desk: messages, a system text and tools in, one reply out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from desk.errors import DeskError
from tools import Tool, ToolCall

Stop: TypeAlias = Literal["end", "tool_calls", "truncated", "refused"]
"""Why a reply ended: a final answer, tool calls, the token limit, or a refusal."""

Message: TypeAlias = Mapping[str, object]
"""One entry of a conversation: ``role`` (user, assistant, tool), ``content``, and what belongs to the role."""


class ProviderError(DeskError):
    """A language model gave no usable reply."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a language model said: text, tool calls, or both."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    stop: Stop = "end"
    input_tokens: int = 0
    output_tokens: int = 0


class Provider(Protocol):
    """Anything that continues a conversation."""

    @property
    def name(self) -> str:
        """Who speaks, as every output of the desk shows it."""
        ...

    def chat(self, messages: Sequence[Message], system: str, tools: Sequence[Tool], max_tokens: int) -> Reply:
        """Give the next reply. Whatever this raises ends the turn as a failure."""
        ...


def this_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """Give the messages from the newest request on."""
    starts = [place for place, message in enumerate(messages) if message.get("role") == "user"]
    return messages[starts[-1] :] if starts else messages


def next_call_id(messages: Sequence[Message]) -> str:
    """Give an id that no call of the conversation has: the same conversation gives the same id."""
    made = sum(len(_calls_of(message)) for message in messages)
    return f"call-{made + 1}"


def _calls_of(message: Message) -> Sequence[object]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else ()
