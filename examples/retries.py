"""A node that fails is tried again; when that does not help, an error handler's update takes the node's place.

Prints:

    lookup: answered at try 3
    payment: TimeoutError after try 2, a person takes over
    the run ended all the same: ['lookup ok', 'payment open', 'told a person']
"""

from __future__ import annotations

import operator
from typing import Annotated, Literal, TypedDict

from minigraph import START, Command, RetryPolicy, Runtime, StateGraph
from minigraph.errors import NodeError


class State(TypedDict):  # what happened, in order
    log: Annotated[list[str], operator.add]


def lookup(state: State, runtime: Runtime[None]) -> dict[str, list[str]]:
    """Fails twice with an error that is worth another try."""
    attempt = runtime.execution_info.node_attempt
    if attempt < 3:
        raise ConnectionError("the server closed the connection")
    print(f"lookup: answered at try {attempt}")
    return {"log": ["lookup ok"]}


def payment(state: State) -> dict[str, list[str]]:
    """Never gets through."""
    raise TimeoutError("no answer from the bank")


def give_up(state: State, error: NodeError) -> Command[Literal["hand_over"]]:
    """The error handler: its return value is the node's, and where the run goes is its decision alone."""
    print(f"{error.node}: {type(error.error).__name__} after try 2, a person takes over")
    return Command(update={"log": ["payment open"]}, goto="hand_over")


def hand_over(state: State) -> dict[str, list[str]]:
    """The way out."""
    return {"log": ["told a person"]}


if __name__ == "__main__":
    three, two = (RetryPolicy(max_attempts=n, initial_interval=0.01, jitter=False) for n in (3, 2))
    graph = (
        StateGraph(State)
        .add_node(lookup, retry_policy=three)
        .add_node(payment, retry_policy=two, error_handler=give_up)
        .add_node(hand_over)
        .add_edge(START, "lookup")
        .add_edge("lookup", "payment")
        .compile()
    )
    print("the run ended all the same:", graph.invoke({"log": []})["log"])
