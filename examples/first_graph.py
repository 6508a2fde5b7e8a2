"""A first graph: a state, two nodes, and a router that sends the run round again until the text is short enough.

Prints:

    shortened 3 times: The workshop in Ghent
    __start__ --> shorten;
    sign --> __end__;
    shorten -.-> shorten;
    shorten -.-> sign;
"""

from __future__ import annotations

from typing import Literal, TypedDict

from minigraph import END, START, StateGraph


class State(TypedDict):
    """What every node reads; a node returns the keys it changes."""

    text: str
    rounds: int


def shorten(state: State) -> dict[str, object]:
    """Leave out the last word. The dict is the update: `text` and `rounds` are plain keys, so they are replaced."""
    return {"text": state["text"].rpartition(" ")[0], "rounds": state["rounds"] + 1}


def sign(state: State) -> dict[str, str]:
    """Write the last line."""
    return {"text": f"shortened {state['rounds']} times: {state['text']}"}


def short_enough(state: State) -> Literal["shorten", "sign"]:
    """The router: asked after `shorten`, it names the node that comes next."""
    return "sign" if len(state["text"]) <= 21 else "shorten"


if __name__ == "__main__":
    graph = (
        StateGraph(State)
        .add_node(shorten)
        .add_node(sign)
        .add_edge(START, "shorten")
        .add_conditional_edges("shorten", short_enough)
        .add_edge("sign", END)
        .compile()
    )
    print(graph.invoke({"text": "The workshop in Ghent begins at ten", "rounds": 0})["text"])
    print("\n".join(line.strip() for line in graph.draw_mermaid().splitlines() if "->" in line))
