"""A provider without a language model: fixed rules turn the route, the facts and the tool results into replies.

It makes the same typed tool calls a language model would, so everything after it (parking, guard, approval, sending)
is the same with either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final, cast

from desk.prompt import read_facts
from desk.providers.base import Message, Reply, next_call_id, this_turn
from tools import Tool, ToolCall

PLANNER_NAME: Final = "rule-based planner (no language model)"
_QUERY_LIMIT: Final = 400
_PASSAGES: Final = 2


class Planner:
    """The default provider: needs no key and no network, gives the same reply to the same conversation."""

    @property
    def name(self) -> str:
        return PLANNER_NAME

    def chat(self, messages: Sequence[Message], system: str, tools: Sequence[Tool], max_tokens: int) -> Reply:
        """Give the next reply: a tool call while something is to be done, then an answer from its result."""
        known = read_facts(system)
        turn = this_turn(messages)
        results = [message for message in turn if message.get("role") == "tool"]
        if results:
            return self._after(results, known, messages)
        call = self._first_call(known, str(turn[0].get("content", "")))
        if isinstance(call, str):
            return Reply(call)
        name, arguments = call
        return Reply("", (ToolCall(next_call_id(messages), name, arguments),), "tool_calls")

    def _first_call(self, known: Mapping[str, object], request: str) -> tuple[str, dict[str, object]] | str:
        match known.get("route"):
            case "calculate":
                expression = calculation(known)
                if expression is None:
                    return "I find no registration for this, so there is no amount or date I can work out."
                return "calculate", {"expression": expression}
            case "send_email":
                mail = confirmation(known)
                return mail if isinstance(mail, str) else ("send_email", mail)
            case _:
                return "retrieve", {"query": request[:_QUERY_LIMIT], "limit": 3}

    def _after(self, results: Sequence[Message], known: Mapping[str, object], messages: Sequence[Message]) -> Reply:
        last = results[-1]
        content, name = str(last.get("content", "")), last.get("name")
        if last.get("is_error"):
            if last.get("kind") == "temporary" and len(results) == 1:
                again = _last_call(messages)
                return Reply("", (ToolCall(next_call_id(messages), *again),), "tool_calls")
            if name == "send_email":
                return Reply(f"I did not send a confirmation. {content}")
            return Reply(f"I could not look this up just now. {content}")
        if name == "send_email":
            return Reply(f"It is done, and a confirmation is on its way to {known.get('record_address')}.")
        if name == "calculate":
            return Reply(_calculated(known, content))
        return Reply(_from_pages(content))


def calculation(known: Mapping[str, object]) -> str | None:
    """Give the expression that answers a question about an amount or a number of days, None where nothing is known."""
    event, person = known.get("event"), known.get("registration")
    match known.get("intent"):
        case "refund_amount":
            if not isinstance(person, dict):
                return None
            return f"{person['paid_eur']} * {known.get('refund_percent') or 0} // 100"
        case intent:
            if not isinstance(event, dict):
                return None
            start = date.fromisoformat(str(event["start_date"])).toordinal()
            days = f"{start} - {date.fromisoformat(str(known['today'])).toordinal()}"
            return f"{days} - 7" if intent == "days_to_close" else days


def confirmation(known: Mapping[str, object]) -> dict[str, object] | str:
    """Give the arguments of the mail that confirms the permitted action, or the answer where there is none."""
    event, person, to = known.get("event"), known.get("registration"), known.get("record_address")
    if not isinstance(event, dict) or not isinstance(to, str):
        return "I cannot confirm anything without knowing the workshop and the registration."
    workshop = f"{event['topic']} ({event['id']}), {event['start_date']}"
    subject, text = _action(known, event, workshop)
    greeting = f"Hello {person['name']}," if isinstance(person, dict) else "Hello,"
    return {"to": to, "subject": subject, "body": f"{greeting}\n\n{text}\n\nKind regards\nThe workshop desk\n"}


def _action(known: Mapping[str, object], event: Mapping[str, object], workshop: str) -> tuple[str, str]:
    topic = event["topic"]
    match known.get("intent"):
        case "cancel":
            due, percent = known.get("refund_due") or 0, known.get("refund_percent") or 0
            money = f"You get back {due} EUR, {percent}% of what you paid." if due else "Nothing is refunded."
            days = known.get("days_before")
            return f"Cancelled: {topic}", f"we have cancelled your place in {workshop}, {days} days ahead. {money}"
        case "transfer":
            return f"Place passed on: {topic}", (
                f"we have noted that your place in {workshop} goes to the person you named. What you paid stays with "
                "the place."
            )
        case "register" if known.get("seats_free"):
            return f"Registered: {topic}", (
                f"you have a place in {workshop}. The fee is {event['fee_eur']} EUR. This address is now the one on "
                "your registration."
            )
        case "register":
            return f"On the waitlist: {topic}", (
                f"{workshop} is full, so you are on the waitlist. We write to this address as soon as a seat is free."
            )
        case "catering":
            return f"Your wish is noted: {topic}", f"we have noted what you need on site at {workshop}."
        case _:
            return f"About {topic}", f"we have taken care of your request about {workshop}."


def _calculated(known: Mapping[str, object], value: str) -> str:
    match known.get("intent"):
        case "refund_amount":
            percent = known.get("refund_percent")
            if percent is None:
                return f"The refund would be {value} EUR: only a confirmed place is refunded."
            return f"Cancelling today, {known.get('days_before')} days ahead, returns {percent}%: {value} EUR."
        case "days_to_close":
            left = int(value)
            return f"Registration closes in {left} days." if left >= 0 else f"Registration closed {-left} days ago."
        case _:
            left = int(value)
            return f"The workshop starts in {left} days." if left >= 0 else f"It started {-left} days ago."


def _from_pages(content: str) -> str:
    pages = cast("list[dict[str, str]]", json.loads(content))
    if not pages:
        return "I find nothing about this in our pages. Please ask again in other words."
    return "\n".join(f"{page['title']} [{page['id']}]: {page['text']}" for page in pages[:_PASSAGES])


def _last_call(messages: Sequence[Message]) -> tuple[str, dict[str, object]]:
    for message in reversed(messages):
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            return str(calls[-1]["name"]), dict(calls[-1]["arguments"])
    raise ValueError("the conversation holds no tool call")
