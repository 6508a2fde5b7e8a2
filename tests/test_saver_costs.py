"""What storing and reading may cost, without a clock: bytes of the file, statements, calls and decodings."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from minigraph import START, StateGraph
from minigraph.checkpoint import Saver, SqliteSaver
from minigraph.types import END

PAGE = 4096
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t"}, "recursion_limit": 10_000}
MESSAGE = 230
"""Letters of a message's text."""


class Count(TypedDict):
    n: int
    limit: int


class Talk(TypedDict):
    n: int
    limit: int
    messages: Annotated[list[dict[str, Any]], operator.add]


def message(number: int) -> dict[str, Any]:
    return {"id": f"msg-{number:08d}", "who": "guest", "content": f"{number:08d}" * (MESSAGE // 8), "tokens": 40}


def talk(state: Talk) -> dict[str, Any]:
    return {"n": state["n"] + 1, "messages": [message(state["n"])]}


def count(state: Count) -> dict[str, Any]:
    return {"n": state["n"] + 1}


def counting(saver: Saver, steps: int) -> Any:
    """A thread of a loop over a tiny state."""
    return _loop(Count, count, saver, {"n": 0, "limit": steps})


def talking(saver: Saver, steps: int) -> Any:
    """A thread whose state gains a message of about 300 bytes with each step."""
    return _loop(Talk, talk, saver, {"n": 0, "limit": steps, "messages": []})


def _loop(state: Any, node: Callable[[Any], Any], saver: Saver, given: dict[str, Any]) -> Any:
    builder = StateGraph(state).add_node("a", node).add_node("b", node).add_edge(START, "a").add_edge("a", "b")
    builder.add_conditional_edges("b", lambda s: END if s["n"] >= s["limit"] else "a", ["a", END])
    graph = builder.compile(checkpointer=saver)
    graph.invoke(given, CONFIG)
    return graph


def size_of(path: Path, run: Callable[[Saver, int], Any], steps: int) -> int:
    """The bytes of a file after a run of so many steps."""
    with SqliteSaver(path) as saver:
        run(saver, steps)
    return path.stat().st_size


def encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def bare(path: Path, bodies: list[str]) -> int:
    """The bytes of a file with one row of a bare table for each body."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(
        "CREATE TABLE log (thread TEXT NOT NULL, step INTEGER NOT NULL, parent INTEGER, node TEXT NOT NULL, "
        "delta TEXT NOT NULL, PRIMARY KEY (thread, step)) WITHOUT ROWID"
    )
    rows = [("t", step, step - 1, "node", body) for step, body in enumerate(bodies)]
    connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?)", rows)
    connection.close()
    return path.stat().st_size


def test_a_new_file_has_a_page_for_each_table(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "new.db"):
        pass
    assert (tmp_path / "new.db").stat().st_size == 4 * PAGE


def test_a_step_of_a_tiny_state_takes_at_most_100_bytes(tmp_path: Path) -> None:
    assert size_of(tmp_path / "count.db", counting, 1000) <= 100 * 1000


@pytest.mark.parametrize("steps", [100, 400, 1600])
def test_a_growing_list_takes_at_most_twice_what_was_written(tmp_path: Path, steps: int) -> None:
    bodies = [encoded({"n": number + 1, "messages": [message(number)]}) for number in range(steps)]
    assert size_of(tmp_path / "talk.db", talking, steps) <= 2 * bare(tmp_path / "bare.db", bodies)
