"""A graph as a node of another one. The child asks a question; the answer goes to the root graph.

Prints:

    paused: Which of ['vegan', 'vegetarian']?
    the parent waits for ('meals',), the child for ('choose',)
    {'log': ['menu read', 'vegan chosen', 'goodbye']}
"""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from minigraph import START, Command, StateGraph, StateSnapshot, interrupt
from minigraph.checkpoint.memory import InMemorySaver


class Log(TypedDict):  # shared by both graphs; the child hands back what it wrote, not its whole state
    log: Annotated[list[str], operator.add]


class Meals(Log):  # the child's state: the shared key, and one that the parent never sees
    menu: list[str]


def read_menu(state: Meals) -> dict[str, list[str]]:
    """The child's first node: finished and stored before the question, so it runs once."""
    return {"menu": ["vegan", "vegetarian"], "log": ["menu read"]}


def choose(state: Meals) -> dict[str, list[str]]:
    """The child's question pauses the child, and with it the parent."""
    chosen = interrupt(f"Which of {state['menu']}?")
    return {"log": [f"{chosen} chosen"]}


def goodbye(state: Log) -> dict[str, list[str]]:
    return {"log": ["goodbye"]}


if __name__ == "__main__":
    child = StateGraph(Meals).add_sequence([read_menu, choose]).add_edge(START, "read_menu").compile()
    graph = (
        StateGraph(Log)
        .add_node("meals", child)
        .add_node(goodbye)
        .add_edge(START, "meals")
        .add_edge("meals", "goodbye")
        .compile(checkpointer=InMemorySaver())
    )
    config = {"configurable": {"thread_id": "meals"}}
    paused = graph.invoke({"log": []}, config)
    print(f"paused: {paused['__interrupt__'][0].value}")
    state = graph.get_state(config, subgraphs=True)
    inside = state.tasks[0].state
    assert isinstance(inside, StateSnapshot)
    print(f"the parent waits for {state.next}, the child for {inside.next}")
    print(graph.invoke(Command(resume="vegan"), config))
