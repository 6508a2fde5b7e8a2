"""Send starts one task for each item, each with an input of its own; a reducer collects what they give.

Prints:

    tasks of the step: ['count', 'count', 'count']
    {'Ghent': 5, 'Bergen': 6, 'Porto': 5} -> 16 letters
"""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from minigraph import START, Send, StateGraph
from minigraph.checkpoint.memory import InMemorySaver


class Trip(TypedDict):  # what the caller gives
    cities: list[str]


class State(Trip):  # `lengths` merges dicts with |, so each task may add its own entry
    lengths: Annotated[dict[str, int], operator.or_]
    total: int


class Item(TypedDict):  # what one task is given: a Send's argument takes the place of the state
    city: str


def hand_out(state: State) -> list[Send]:
    """A router may return any number of Sends; how many is decided at run time."""
    return [Send("count", Item(city=city)) for city in state["cities"]]


def count(item: Item) -> dict[str, dict[str, int]]:
    """The mapped node; its tasks run in one step, in parallel."""
    return {"lengths": {item["city"]: len(item["city"])}}


def add_up(state: State) -> dict[str, int]:
    """Due once, however many tasks of `count` have an edge to it."""
    return {"total": sum(state["lengths"].values())}


if __name__ == "__main__":
    graph = (
        StateGraph(State, input_schema=Trip)
        .add_node(count, input_schema=Item)
        .add_node(add_up)
        .add_conditional_edges(START, hand_out, ["count"])
        .add_edge("count", "add_up")
        .compile(checkpointer=InMemorySaver())
    )
    config = {"configurable": {"thread_id": "cities"}}
    end = graph.invoke({"cities": ["Ghent", "Bergen", "Porto"]}, config)
    middle = next(s for s in graph.get_state_history(config) if "count" in s.next)
    print(f"tasks of the step: {list(middle.next)}")
    print(f"{end['lengths']} -> {end['total']} letters")
