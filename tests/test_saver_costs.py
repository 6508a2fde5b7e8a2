"""What storing and reading may cost, without a clock: bytes of the file, statements, calls and decodings."""

from __future__ import annotations

import operator
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from minigraph import START, StateGraph
from minigraph.checkpoint import Saver, SqliteSaver
from minigraph.identifiers import new_checkpoint_id
from minigraph.records import NewCheckpoint, Write
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


class Profile:
    """How often Python functions and functions written in C are called inside a `with` block, by name."""

    def __init__(self) -> None:
        self.python: Counter[str] = Counter()
        self.native: Counter[str] = Counter()

    def __enter__(self) -> Profile:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.python[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            self.native[argument.__qualname__] += 1


class Counted(SqliteSaver):
    """Counts what its writes call, once there are so many rows."""

    def __init__(self, path: Path, after: int) -> None:
        super().__init__(path)
        self.after, self.profile, self.writes = after, Profile(), 0

    def put(self, write: Write) -> int:
        if write.revision < self.after:
            return super().put(write)
        self.writes += 1
        with self.profile:
            return super().put(write)

    def calls(self) -> float:
        """Calls of any kind for each write."""
        return (self.profile.python.total() + self.profile.native.total()) / self.writes


def test_a_step_is_stored_with_few_calls(tmp_path: Path) -> None:
    with closing(Counted(tmp_path / "count.db", 10)) as saver:
        counting(saver, 100)
        assert saver.profile.python["SqliteSaver._append"] == saver.writes
        assert saver.profile.native["Encoder.encode"] == saver.writes, "a row is encoded in one piece"
        assert saver.calls() <= 57


def test_a_step_takes_no_more_calls_in_a_long_thread(tmp_path: Path) -> None:
    found = []
    for number, steps in enumerate((96, 1600)):
        with closing(Counted(tmp_path / f"talk{number}.db", steps - 64)) as saver:
            talking(saver, steps)
            found.append(saver.calls())
            assert saver.profile.python["read_body"] <= 1.2 * saver.writes, "two rows in 64 sum others up"
    assert found[1] <= 1.05 * found[0] <= 118


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    found = sqlite3.connect(tmp_path / "given.db", isolation_level=None)
    yield found
    found.close()


def statements(connection: sqlite3.Connection, action: Callable[[], object]) -> int:
    """How many SQL statements something carries out."""
    found: list[str] = []
    connection.set_trace_callback(found.append)
    action()
    connection.set_trace_callback(None)
    return len(found)


def test_a_step_and_a_look_at_a_thread_are_one_statement_each(connection: sqlite3.Connection) -> None:
    saver = SqliteSaver(connection)
    counting(saver, 1)
    graph = counting(saver, 50)
    assert statements(connection, lambda: saver.get("t", "")) == 1
    stored = saver.get("t", "")
    assert stored is not None
    point = stored.checkpoint
    new = msgspec.structs.replace(point, id=new_checkpoint_id(stored.revision + 1), parent_id=point.id)
    write = Write("t", "", stored.revision, (NewCheckpoint(new, point),))
    assert statements(connection, lambda: saver.put(write)) == 1
    assert statements(connection, lambda: graph.get_state(CONFIG)) == 1


def test_a_history_takes_few_statements_and_decodes_a_row_once(connection: sqlite3.Connection) -> None:
    saver = SqliteSaver(connection)
    for run, steps in ((counting, 1000), (talking, 1000)):
        saver.delete_thread("t")
        graph = run(saver, steps)
        history: Callable[[], object] = partial(list, graph.get_state_history(CONFIG))
        assert statements(connection, history) <= 18
        with Profile() as profile:
            found = [*graph.get_state_history(CONFIG)]
        assert len(found) == steps + 2
        assert profile.native["Decoder.decode"] <= 2.2 * len(found), "a row, and the results in it"
        assert profile.python["joined_checkpoint_id"] <= 1.1 * len(found)
        assert (profile.python.total() + profile.native.total()) / len(found) <= 87


def test_what_a_history_shows_belongs_to_each_checkpoint_alone(connection: sqlite3.Connection) -> None:
    graph = talking(SqliteSaver(connection), 40)
    shots = [*graph.get_state_history(CONFIG)]
    expected = [[item["id"] for item in shot.values["messages"]] for shot in shots]
    for number, shot in enumerate(shots):
        shot.values["messages"].append({"id": number})
    assert [[item["id"] for item in shot.values["messages"][:-1]] for shot in shots] == expected
