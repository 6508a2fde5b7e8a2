"""Watch a run while it goes on: what each node wrote, what nodes tell on the way, and the state after each step.

Prints:

    custom {'searching': 'refund'}
    updates {'search': {'pages': ['P2']}}
    values {'pages': ['P2']}
    updates {'answer': {'pages': ['P2', 'see page P2']}}
    values {'pages': ['P2', 'see page P2']}
    names only: ['search', 'answer']
"""

from __future__ import annotations

from typing import TypedDict

from minigraph import START, StateGraph, get_stream_writer


class State(TypedDict, total=False):
    """The pages found so far; a plain key, so each write replaces it."""

    pages: list[str]


def search(state: State) -> State:
    """Tell the caller something before the step has ended."""
    get_stream_writer()({"searching": "refund"})
    return {"pages": ["P2"]}


def answer(state: State) -> State:
    """Use what was found."""
    pages = state.get("pages", [])
    return {"pages": [*pages, f"see page {pages[0]}"]}


if __name__ == "__main__":
    graph = StateGraph(State).add_sequence([search, answer]).add_edge(START, "search").compile()

    for mode, chunk in graph.stream({}, stream_mode=["custom", "updates", "values"]):
        print(mode, chunk)

    print("names only:", [name for chunk in graph.stream({}) for name in chunk])
