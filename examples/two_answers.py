"""Two answers to one question are two branches: compare them, and find the step at which something turned.

Prints:

    yes: ['drafted', 'mail: yes', 'sent']
    no: ['drafted', 'mail: no', 'filed']
    the first difference is at step 2
    paths: 2 confirm, 3 send | 2 (fork), 3 confirm, 4 file
    log: ['drafted', 'mail: yes', 'sent'] | ['drafted', 'mail: no', 'filed']
    mailed: True | MISSING
    mailed from step 3 on
"""

from __future__ import annotations

import operator
from typing import Annotated, Literal, TypedDict

from minigraph import START, Command, StateGraph, interrupt
from minigraph.checkpoint.memory import InMemorySaver


class State(TypedDict, total=False):
    """What was done, and whether a mail went out."""

    log: Annotated[list[str], operator.add]
    mailed: bool


def confirm(state: State) -> Command[Literal["send", "file"]]:
    """Ask, and go where the answer leads."""
    answer = interrupt("Send it?")
    return Command(update={"log": [f"mail: {answer}"]}, goto="send" if answer == "yes" else "file")


def main() -> None:
    """Answer the one question twice, then look at what that changed."""
    builder = StateGraph(State).add_node("draft", lambda state: {"log": ["drafted"]}).add_node(confirm)
    builder.add_node("send", lambda state: {"log": ["sent"], "mailed": True})
    builder.add_node("file", lambda state: {"log": ["filed"]}).add_edge(START, "draft").add_edge("draft", "confirm")
    graph = builder.compile(InMemorySaver())
    thread = {"configurable": {"thread_id": "letter"}}
    graph.invoke({}, thread)
    asked, ends = graph.get_state(thread).config, []
    for answer in ("yes", "no"):
        print(f"{answer}: {graph.answer(asked, answer)['log']}")
        ends.append(graph.get_state(thread).config)
    difference = graph.diff(*ends)
    print("the first difference is at step", difference.step)
    print("paths:", " | ".join(", ".join(map(str, path)) for path in difference.paths))
    for key, (left, right) in difference.values.items():
        print(f"{key}: {left} | {right}")
    turned = graph.bisect(ends[0], lambda snapshot: snapshot.values.get("mailed", False))
    print(f"mailed from step {(turned.metadata or {})['step']} on")


if __name__ == "__main__":
    main()
