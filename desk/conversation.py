"""Replies, calls and results as the plain messages of a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from desk.providers.base import Reply
from desk.state import DeskState
from tools import ToolCall, ToolResult, admit


def open_calls(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the tool calls that have no result yet, in the order they were made."""
    messages: list[dict[str, Any]] = state.get("messages") or []
    answered = {message.get("tool_call_id") for message in messages if message["role"] == "tool"}
    calls = [call for message in messages for call in message.get("tool_calls") or []]
    return [call for call in calls if call["id"] not in answered]


def edited_message(state: DeskState, call_id: str, arguments: dict[str, Any], by: str) -> dict[str, Any]:
    """The assistant's message with the call as it will run, so that the conversation holds no other version of it."""
    for message in reversed(state["messages"]):
        calls = message.get("tool_calls") or []
        if any(call["id"] == call_id for call in calls):
            changed = [
                {**call, "arguments": arguments, "edited_by": by} if call["id"] == call_id else call for call in calls
            ]
            return {**message, "tool_calls": changed}
    raise ValueError(f"the conversation holds no call {call_id!r}")


def assistant_message(reply: Reply, state: DeskState, k: int) -> dict[str, Any]:
    """A reply as a message whose call ids are new in the conversation: models of some servers use theirs again."""
    made = [plain_call(call) for call in admit(reply.tool_calls, state["messages"])]
    return {"role": "assistant", "content": reply.text, "tool_calls": made, "id": f"turn-{state['turn']}-reply-{k}"}


def plain_call(call: ToolCall) -> dict[str, Any]:
    """Give a call as plain data."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "raw_arguments": call.raw_arguments}


def tool_call(plain: Mapping[str, Any]) -> ToolCall:
    """Give a call from its plain form."""
    return ToolCall(plain["id"], plain["name"], plain["arguments"], plain.get("raw_arguments", ""))


def result_message(result: ToolResult) -> dict[str, Any]:
    """Give the one message that answers a call."""
    return {**result.as_message(), "id": f"result-{result.call_id}"}
