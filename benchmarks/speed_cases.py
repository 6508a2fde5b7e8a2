"""What `speed.py` measures: the same graphs on two engines, and by hand."""

from __future__ import annotations

import gc
import operator
import sqlite3
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Final, TypedDict

import msgspec

TEXT: Final = "so that it is about as long as a turn of a conversation; " * 5


class Count(TypedDict):
    """A small state."""

    n: int
    limit: int


class Talk(TypedDict):
    """A state that grows."""

    n: int
    limit: int
    messages: Annotated[list[dict[str, Any]], operator.add]


def message(number: int) -> dict[str, Any]:
    """A message of about 300 bytes."""
    return {"who": "user", "number": number, "text": TEXT}


# ---------------------------------------------------------------------------- engines


class Engine(ABC):
    """One of the two libraries; they have the same names."""

    name: str
    lib: SimpleNamespace

    @abstractmethod
    def saver(self, connection: sqlite3.Connection) -> Any:
        """A saver that keeps threads in a database."""

    @abstractmethod
    def memory(self) -> Any:
        """A saver that keeps threads in the process."""

    def growing(self) -> Any:
        """The schema of a state with a list that grows."""
        return Talk


class Minigraph(Engine):
    """This engine."""

    name = "minigraph"

    def __init__(self) -> None:
        from minigraph import END, START, Command, StateGraph, interrupt

        self.lib = SimpleNamespace(END=END, START=START, Command=Command, StateGraph=StateGraph, interrupt=interrupt)

    def saver(self, connection: sqlite3.Connection) -> Any:
        from minigraph.checkpoint import SqliteSaver

        return SqliteSaver(connection)

    def memory(self) -> Any:
        from minigraph.checkpoint import InMemorySaver

        return InMemorySaver()


class LangGraph(Engine):
    """LangGraph. With `delta` a growing list is one of its delta channels, with a snapshot every so many updates."""

    def __init__(self, delta: int | None = None) -> None:
        from langgraph.graph import END, START, StateGraph
        from langgraph.types import Command, interrupt

        self.lib = SimpleNamespace(END=END, START=START, Command=Command, StateGraph=StateGraph, interrupt=interrupt)
        self.delta = delta
        self.name = "LangGraph" if delta is None else f"LangGraph, delta channel ({delta})"

    def saver(self, connection: sqlite3.Connection) -> Any:
        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver(connection)

    def memory(self) -> Any:
        from langgraph.checkpoint.memory import InMemorySaver

        return InMemorySaver()

    def growing(self) -> Any:
        if self.delta is None:
            return Talk
        from langgraph.channels import DeltaChannel

        def joined(old: Any, writes: Sequence[Any]) -> Any:
            return [*old, *(item for write in writes for item in write)]

        channel: Any = DeltaChannel(joined, snapshot_frequency=self.delta)
        return TypedDict("Deltas", {"n": int, "limit": int, "messages": Annotated[list, channel]})  # type: ignore[operator]


# ------------------------------------------------------------------------------ graphs


def config(thread: str) -> dict[str, Any]:
    """The config of a thread, without a limit that matters here."""
    return {"configurable": {"thread_id": thread}, "recursion_limit": 100_000}


def loop(engine: Engine, saver: Any) -> Any:
    """Two nodes that count in turn."""
    lib = engine.lib
    builder = lib.StateGraph(Count)
    for name in ("ping", "pong"):
        builder.add_node(name, lambda state: {"n": state["n"] + 1})
    builder.add_edge(lib.START, "ping")
    builder.add_edge("ping", "pong")
    builder.add_conditional_edges(
        "pong", lambda state: "ping" if state["n"] < state["limit"] else lib.END, ["ping", lib.END]
    )
    return builder.compile(checkpointer=saver)


def talk(engine: Engine, saver: Any, *, asks: bool = False) -> Any:
    """A node that adds a message, until there are enough; with `asks` a second one that asks before each end."""
    lib = engine.lib
    builder = lib.StateGraph(engine.growing())
    builder.add_node("say", lambda state: {"n": state["n"] + 1, "messages": [message(state["n"])]})
    builder.add_edge(lib.START, "say")
    done = "ask" if asks else lib.END
    builder.add_conditional_edges("say", lambda state: "say" if state["n"] < state["limit"] else done, ["say", done])
    if asks:

        def ask(state: Mapping[str, Any]) -> dict[str, Any]:
            return {"limit": state["limit"] + lib.interrupt("how many more?")}

        builder.add_node("ask", ask)
        builder.add_edge("ask", "say")
    return builder.compile(checkpointer=saver)


def expect(found: object, wanted: object) -> None:
    """Ends the command where an engine is wrong: a quick wrong answer is worth nothing."""
    if found != wanted:
        raise SystemExit(f"wrong result: {found!r} instead of {wanted!r}")


@contextmanager
def database() -> Iterator[tuple[sqlite3.Connection, Path]]:
    """A fresh SQLite file, and a connection to it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "threads.db"
        connection = sqlite3.connect(path, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        try:
            yield connection, path
        finally:
            connection.close()


def bytes_of(connection: sqlite3.Connection, path: Path) -> int:
    """The size of the file once its log is written back."""
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def timed(work: Callable[[], object]) -> float:
    """The CPU seconds that something takes."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


# ------------------------------------------------------------------------------- cases


class Case(ABC):
    """Something to measure: `engine` gives CPU seconds and, where there is a file, its bytes; so does `floor`."""

    name: str
    unit: str
    size: int
    peers: tuple[int | None, ...] = (None,)
    """LangGraph's settings: None for plain lists, a number for delta channels."""

    @abstractmethod
    def engine(self, engine: Engine, size: int) -> tuple[float, int]:
        """One run of an engine."""

    @abstractmethod
    def floor(self, size: int) -> tuple[float, int]:
        """The same by hand."""


def inserted(rows: int, body: bytes) -> tuple[float, int]:
    """One INSERT a step, each a transaction of its own."""
    with database() as (connection, path):
        connection.isolation_level = None
        connection.execute("CREATE TABLE steps (id INTEGER PRIMARY KEY, body BLOB)")

        def work() -> None:
            for number in range(rows):
                connection.execute("INSERT INTO steps VALUES (?, ?)", (number, body))

        return timed(work), bytes_of(connection, path)


class Step(Case):
    """A step of a loop, stored in SQLite."""

    name, unit, size = "a step, SQLite", "step", 1000

    def engine(self, engine: Engine, size: int) -> tuple[float, int]:
        """Counts up to `size`."""
        with database() as (connection, path):
            graph = loop(engine, engine.saver(connection))
            options: dict[str, Any] = {"durability": "sync"}
            spent = timed(lambda: graph.invoke({"n": 0, "limit": size}, config("t"), **options))
            expect(graph.get_state(config("t")).values["n"], size)
            return spent, bytes_of(connection, path)

    def floor(self, size: int) -> tuple[float, int]:
        """A small row a step."""
        return inserted(size, b"x" * 20)


class StepAlone(Case):
    """A step of a loop without a saver; the floor is a dict made anew by a function call."""

    name, unit, size = "a step, no saver", "step", 2000

    def engine(self, engine: Engine, size: int) -> tuple[float, int]:
        """Counts up to `size`."""
        graph = loop(engine, None)
        found: list[Any] = []
        spent = timed(lambda: found.append(graph.invoke({"n": 0, "limit": size}, config("t"))))
        expect(found[0]["n"], size)
        return spent, 0

    def floor(self, size: int) -> tuple[float, int]:
        """Calls a node and merges what it returns."""
        node: Callable[[dict[str, int]], dict[str, int]] = lambda state: {"n": state["n"] + 1}  # noqa: E731

        def work() -> None:
            state = {"n": 0, "limit": size}
            while state["n"] < size:
                state = {**state, **node(dict(state))}

        return timed(work), 0


class Append(Case):
    """A message of 300 bytes more with each step."""

    name, unit, size, peers = "append a message", "step", 800, (None, 100)

    def engine(self, engine: Engine, size: int) -> tuple[float, int]:
        """Adds `size` messages."""
        with database() as (connection, path):
            graph = talk(engine, engine.saver(connection))
            given = {"n": 0, "limit": size, "messages": []}
            options: dict[str, Any] = {"durability": "sync"}
            spent = timed(lambda: graph.invoke(given, config("t"), **options))
            expect(len(graph.get_state(config("t")).values["messages"]), size)
            return spent, bytes_of(connection, path)

    def floor(self, size: int) -> tuple[float, int]:
        """A row with the message a step."""
        return inserted(size, msgspec.msgpack.encode(message(0)))


class Listing(Case):
    """Every checkpoint of a thread with messages, as `get_state_history` lists them; the floor decodes the messages."""

    name, unit, size, peers = "list the history", "checkpoint", 400, (None,)

    def engine(self, engine: Engine, size: int) -> tuple[float, int]:
        """Lists `size` steps."""
        with database() as (connection, _):
            graph = talk(engine, engine.saver(connection))
            graph.invoke({"n": 0, "limit": size, "messages": []}, config("t"))
            found: list[Any] = []
            spent = timed(lambda: found.extend(graph.get_state_history(config("t"))))
            expect(sorted({len(shot.values.get("messages", ())) for shot in found}), [*range(size + 1)])
            return spent, 0

    def floor(self, size: int) -> tuple[float, int]:
        """One query, and a list that grows by what it gives."""
        return listed(size)


def listed(size: int) -> tuple[float, int]:
    """Reads `size` rows with a message each into one list, and copies it for each row."""
    with database() as (connection, _):
        connection.execute("CREATE TABLE steps (id INTEGER PRIMARY KEY, body BLOB)")
        body = msgspec.msgpack.encode(message(0))
        connection.executemany("INSERT INTO steps VALUES (?, ?)", [(number, body) for number in range(size)])
        connection.commit()

        def work() -> None:
            messages: list[Any] = []
            states = []
            for (stored,) in connection.execute("SELECT body FROM steps ORDER BY id"):
                messages = [*messages, msgspec.msgpack.decode(stored)]
                states.append(messages)

        return timed(work), 0


class Look(Case):
    """The state of a thread with 1,000 messages, read by a saver that has not seen it; the floor decodes it."""

    name, unit, size = "get_state of messages", "message", 1000

    def engine(self, engine: Engine, size: int) -> tuple[float, int]:
        """Looks once."""
        with database() as (connection, _):
            talk(engine, engine.saver(connection)).invoke({"n": 0, "limit": size, "messages": []}, config("t"))
            graph = talk(engine, engine.saver(connection))
            found: list[Any] = []
            spent = timed(lambda: found.append(graph.get_state(config("t"))))
            expect(len(found[0].values["messages"]), size)
            return spent, 0

    def floor(self, size: int) -> tuple[float, int]:
        """Reads and decodes one row."""
        with database() as (connection, _):
            body = msgspec.msgpack.encode([message(number) for number in range(size)])
            connection.execute("CREATE TABLE states (body BLOB)")
            connection.execute("INSERT INTO states VALUES (?)", (body,))
            connection.commit()

            def work() -> None:
                msgspec.msgpack.decode(connection.execute("SELECT body FROM states").fetchone()[0])

            return timed(work), 0


class Pause(Case):
    """An answer, a step and the next question, after a thread of so many steps; the floor is three rows."""

    name, unit, size = "answer a question", "answer", 20
    history = 10

    def engine(self, engine: Engine, size: int) -> tuple[float, int]:
        """Answers `size` questions, a step each."""
        with database() as (connection, _):
            graph = talk(engine, engine.saver(connection), asks=True)
            graph.invoke({"n": 0, "limit": self.history, "messages": []}, config("t"))

            def work() -> None:
                for _ in range(size):
                    graph.invoke(engine.lib.Command(resume=1), config("t"))

            spent = timed(work)
            expect(graph.get_state(config("t")).values["n"], self.history + size)
            return spent, 0

    def floor(self, size: int) -> tuple[float, int]:
        """The answer, the step, the question."""
        return inserted(3 * size, msgspec.msgpack.encode(message(0)))


class LatePause(Pause):
    """The same after 1,000 steps: it should not cost more."""

    name, history = "answer a question, after 1,000 steps", 1000


CASES: Final[tuple[Case, ...]] = (Step(), StepAlone(), Append(), Listing(), Look(), Pause(), LatePause())
