"""One process asks and ends; another one answers. Only the SQLite file passes between them.

Prints:

    process 1: the run waits with 'Send the invoice over 240 EUR?'
    process 2: next is ('approve',), the step before is not run again
    process 2: {'amount': 240, 'sent': True}
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypedDict

from minigraph import START, Command, StateGraph, interrupt
from minigraph.checkpoint.sqlite import SqliteSaver


class State(TypedDict):
    """An amount, and whether the invoice went out."""

    amount: int
    sent: bool


def calculate(state: State) -> dict[str, int]:
    """Finished and stored before the question is asked."""
    return {"amount": 2 * 120}


def approve(state: State) -> dict[str, bool]:
    """Runs twice: to ask, and once more from its first line when the answer is there. So: no effects before it."""
    answer = interrupt(f"Send the invoice over {state['amount']} EUR?")
    return {"sent": answer == "yes"}


def run(file: str, process: str) -> None:
    """What each process does with the same thread of the same file."""
    config = {"configurable": {"thread_id": "invoice-7"}}
    with SqliteSaver(file) as saver:
        graph = StateGraph(State).add_sequence([calculate, approve]).add_edge(START, "calculate").compile(saver)
        if process == "1":
            paused = graph.invoke({"amount": 0, "sent": False}, config)
            print(f"process 1: the run waits with {paused['__interrupt__'][0].value!r}")
        else:
            print(f"process 2: next is {graph.get_state(config).next}, the step before is not run again")
            print(f"process 2: {graph.invoke(Command(resume='yes'), config)}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run(sys.argv[1], sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as folder:
            for process in ("1", "2"):
                subprocess.run([sys.executable, __file__, str(Path(folder) / "threads.db"), process], check=True)
