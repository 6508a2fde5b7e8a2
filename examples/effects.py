"""An effect is done once, though its node runs again. Whether a call without an end happened, a person says here.

Prints:

    mail to ann
    asked: Shall I book?
    booking for ann
    the bank does not answer
    asked: Did the bank take the fee?
    charged once: ['mailed', 'booked', 'paid by hand']
"""

from __future__ import annotations

import operator
from contextlib import suppress
from typing import Annotated, TypedDict

from minigraph import START, Command, StateGraph, interrupt, once
from minigraph.checkpoint import InMemorySaver
from minigraph.errors import UnknownOutcomeError


class State(TypedDict):  # what became of each effect
    log: Annotated[list[str], operator.add]


def act(what: str, result: str) -> str:
    """A mail server or a booking system."""
    print(what)
    return result


def charge() -> str:
    """A bank that takes the money, perhaps."""
    print("the bank does not answer")
    raise TimeoutError


def book(state: State) -> dict[str, list[str]]:
    """Runs three times from its first line, and sends one mail."""
    mail = once("mail", act, "mail to ann", "mailed")
    interrupt("Shall I book?")
    seat = once("booking", act, "booking for ann", "booked")
    try:
        fee = once("fee", charge)
    except UnknownOutcomeError as unknown:
        fee = interrupt(f"Did the bank take the {unknown.key}?")
    return {"log": [mail, seat, fee]}


if __name__ == "__main__":
    config = {"configurable": {"thread_id": "1"}}
    graph = StateGraph(State).add_node(book).add_edge(START, "book").compile(InMemorySaver())
    print("asked:", graph.invoke({"log": []}, config)["__interrupt__"][0].value)
    with suppress(TimeoutError):
        graph.invoke(Command(resume="yes"), config)
    print("asked:", graph.invoke(None, config)["__interrupt__"][0].value)
    print("charged once:", graph.invoke(Command(resume="paid by hand"), config)["log"])
