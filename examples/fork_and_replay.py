"""Go back to a stored step: run it again as it was (replay), or with an edited state (fork). Nothing is lost.

Prints:

    0 input -> __start__
    1 loop -> quote
    2 loop -> answer
    3 loop -> nothing
    replayed: The place costs 240 EUR.
    forked with 5 seats: 5 places cost 1200 EUR.
    the first run still ends with: The place costs 240 EUR.
"""

from __future__ import annotations

from typing import TypedDict

from minigraph import START, StateGraph
from minigraph.checkpoint.memory import InMemorySaver


class State(TypedDict):
    """How many seats, what they cost, and the answer."""

    seats: int
    eur: int
    answer: str


def quote(state: State) -> dict[str, int]:
    """Multiply."""
    return {"eur": 240 * state["seats"]}


def answer(state: State) -> dict[str, str]:
    """Say it."""
    text = "The place costs" if state["seats"] == 1 else f"{state['seats']} places cost"
    return {"answer": f"{text} {state['eur']} EUR."}


def main() -> None:
    """Run once, list the history, then branch twice from the step before `quote`."""
    graph = StateGraph(State).add_sequence([quote, answer]).add_edge(START, "quote").compile(InMemorySaver())
    config = {"configurable": {"thread_id": "offer"}}
    graph.invoke({"seats": 1, "eur": 0, "answer": ""}, config)
    history = list(graph.get_state_history(config))[::-1]
    for place, moment in enumerate(history):
        assert moment.metadata is not None
        print(f"{place} {moment.metadata['source']} -> {', '.join(moment.next) or 'nothing'}")
    before_quote = history[1].config

    print("replayed:", graph.replay(before_quote)["answer"])
    branch = graph.fork(before_quote, {"seats": 5}, as_node=START)
    print("forked with 5 seats:", graph.resume(branch)["answer"])
    print("the first run still ends with:", graph.get_state(history[3].config).values["answer"])


if __name__ == "__main__":
    main()
