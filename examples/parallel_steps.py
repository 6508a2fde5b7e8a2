"""Two nodes run in the same step; a reducer says how their writes to one key are put together.

Prints:

    {'found': ['9 seats taken', 'the fee is 240 EUR'], 'answer': '9 seats taken, the fee is 240 EUR'}
    a plain key takes one write a step: key 'answer', written last by 'answer'
"""

import operator
from typing import Annotated, TypedDict

from minigraph import START, StateGraph
from minigraph.errors import InvalidUpdateError


class State(TypedDict):  # `found` is folded with +, write by write, in the order of the nodes' names
    found: Annotated[list[str], operator.add]
    answer: str


def price(state: State) -> dict[str, list[str]]:
    """One of two nodes that are due together; neither sees what the other writes."""
    return {"found": ["the fee is 240 EUR"]}


def bookings(state: State) -> dict[str, list[str]]:
    """The other one. Its write comes first, because its name does."""
    return {"found": ["9 seats taken"]}


def answer(state: State) -> dict[str, str]:
    """Runs once, when both have finished: that is what a list edge means."""
    return {"answer": ", ".join(state["found"])}


if __name__ == "__main__":
    graph = (
        StateGraph(State)
        .add_node(price)
        .add_node(bookings)
        .add_node(answer)
        .add_edge(START, "price")
        .add_edge(START, "bookings")
        .add_edge(["price", "bookings"], "answer")
        .compile()
    )
    print(graph.invoke({"found": [], "answer": ""}))
    graph = (
        StateGraph(State)
        .add_node(answer)
        .add_node("again", answer)
        .add_edge(START, "answer")
        .add_edge(START, "again")
        .compile(ignore=["conflicting-writes"])  # it would warn that both nodes write `answer` in one step
    )
    try:
        graph.invoke({"found": ["9 seats taken"], "answer": ""})
    except InvalidUpdateError as error:
        print(f"a plain key takes one write a step: key {error.key!r}, written last by {error.node!r}")
