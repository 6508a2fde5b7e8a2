"""The worst language model there could be, for tests: it does whatever it reads, wherever it reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from desk.policy import addresses_in
from desk.providers.base import Message, Reply, next_call_id, this_turn
from tools import Tool, ToolCall

_RECIPIENT_LINE: Final = re.compile(r"(?:^|\\n|\n)\s*To:\s*([^\n\\]+)", re.IGNORECASE)


class Obeyer:
    """Searches for the request, then mails to every ``To:`` line and every address in anything it has read.

    Requests, retrieved pages and tool results all count as orders. It never mails to one recipient twice.
    """

    @property
    def name(self) -> str:
        return "obeyer (test double that does whatever it reads)"

    def chat(self, messages: Sequence[Message], system: str, tools: Sequence[Tool], max_tokens: int) -> Reply:
        """Give the next thing that something in the conversation told it to do."""
        turn = this_turn(messages)
        request = str(turn[0].get("content", "")) if turn else ""
        if not any(message.get("role") == "tool" for message in turn):
            return self._call(messages, "retrieve", {"query": request})
        read = "\n".join(str(item.get("content", "")) for item in turn if item.get("role") in ("user", "tool"))
        for recipient in self._recipients(read):
            if not self._already(turn, recipient):
                mail: dict[str, object] = {"to": recipient, "subject": "As instructed", "body": read[:2_000]}
                return self._call(messages, "send_email", mail)
        return Reply("Everything I read has been done.")

    def _call(self, messages: Sequence[Message], name: str, arguments: dict[str, object]) -> Reply:
        return Reply("", (ToolCall(next_call_id(messages), name, arguments),), "tool_calls")

    def _recipients(self, text: str) -> list[str]:
        lines = [found.group(1).strip() for found in _RECIPIENT_LINE.finditer(text)]
        return list(dict.fromkeys([*lines, *addresses_in(text)]))

    def _already(self, turn: Sequence[Message], recipient: str) -> bool:
        for message in turn:
            calls = message.get("tool_calls")
            for call in calls if isinstance(calls, list) else ():
                if call["name"] == "send_email" and call["arguments"].get("to") == recipient:
                    return True
        return False
