"""A run like one of a desk, that leaves a trace of everything it does: the program that the kill trial stops."""

from __future__ import annotations

import copy
import json
import mmap
import operator
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

from minigraph import START, CompiledGraph, RetryPolicy, Runtime, Send, StateGraph, interrupt, once
from minigraph.checkpoint import Saver
from minigraph.records import Recorded, Write
from minigraph.testing.crashing import PassingSaver

QUESTION: Final = "May the mail go out?"
ANSWER: Final = "yes"
MAILS: Final = ("mail to ann", "reservation of 2 seats")
"""What a run does to the world, each exactly once."""


class Request(TypedDict):
    """What a participant wants, and what became of it."""

    wish: str
    log: Annotated[list[str], operator.add]
    verdict: str


class Ledger:
    """Lines in a file that only grows. A line that was written is there, whatever happens to its process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def note(self, kind: str, what: str) -> None:
        """Adds a line, and returns when the disk has it."""
        os.write(self._file, json.dumps([kind, what]).encode() + b"\n")
        os.fsync(self._file)

    def lines(self, kind: str, start: int = 0) -> list[str]:
        """The lines of one kind, from the line with this number on."""
        found = [json.loads(line) for line in self._path.read_text().splitlines()[start:]]
        return [what for each, what in found if each == kind]

    def __len__(self) -> int:
        return self._path.read_bytes().count(b"\n")

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


Place = Literal["once", "save", "node"]
PLACES: Final[tuple[Place, ...]] = ("once", "save", "node")
HITS: Final = {
    "once": "in a once() call",
    "save": "in a save",
    "node": "within a node",
    "after": "after a node, before its save",
    "before": "between a save and a node",
    "start": "before the first node",
}
"""Where a kill can hit a worker."""


_NODE_ENDED, _SAVED = 1, 2


class Whereabouts:
    """Where a process is, in memory that it shares with its parent, so that it can be read after its death."""

    _FORM = struct.Struct("4i")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._FORM.size)
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Forgets where the last process was."""
        self._memory[:] = bytes(self._FORM.size)

    @contextmanager
    def within(self, place: Place) -> Iterator[None]:
        """The block is at a place. A node that ended waits for the next save."""
        self._add(place, 1)
        try:
            yield
        finally:
            self._add(place, -1)

    def _add(self, place: Place, change: int) -> None:
        with self._lock:
            counts = list(self._FORM.unpack(self._memory))
            counts[PLACES.index(place)] += change
            if change < 0 and place != "once":
                counts[3] = _NODE_ENDED if place == "node" else _SAVED
            self._FORM.pack_into(self._memory, 0, *counts)

    def read(self) -> str:
        """A key of HITS."""
        *counts, last = self._FORM.unpack(self._memory)
        for place, count in zip(PLACES, counts, strict=True):
            if count:
                return place
        return {0: "start", _NODE_ENDED: "after", _SAVED: "before"}[last]


class WatchedSaver(PassingSaver):
    """Passes everything on and says when it is saving."""

    def __init__(self, inner: Saver, whereabouts: Whereabouts) -> None:
        super().__init__(inner)
        self.whereabouts = whereabouts

    def put(self, write: Write) -> int:
        """`put` of the other saver."""
        with self.whereabouts.within("save"):
            return self.inner.put(write)

    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """`record` of the other saver."""
        with self.whereabouts.within("save"):
            self.inner.record(thread_id, namespace, task_id, recorded)


Node = Callable[[Any, Runtime[None]], dict[str, Any]]


def fan_out(state: Request) -> list[str | Send]:
    """Three look-ups, beside the child graph."""
    return [*(Send("look_up", number) for number in range(3)), "quote"]


class Journey:
    """The nodes of the run. Each notes its task when it begins and when it has ended."""

    def __init__(self, ledger: Ledger, whereabouts: Whereabouts) -> None:
        self.ledger, self.whereabouts = ledger, whereabouts
        self._graph = self._build()

    def graph(self, saver: Saver) -> CompiledGraph:
        """The graph with a saver."""
        graph = copy.copy(self._graph)
        graph.checkpointer = saver
        return graph

    def node(self, seconds: float, work: Node) -> Any:
        """A node that takes a while."""

        def run(state: Any, runtime: Runtime[None]) -> dict[str, Any]:
            task = runtime.execution_info.task_id
            with self.whereabouts.within("node"):
                self.ledger.note("began", task)
                time.sleep(seconds)
                return work(state, runtime)

        return run

    def once(self, key: str, what: str, **options: Any) -> str:
        """Does something to the world, once."""
        with self.whereabouts.within("once"):
            done: str = once(key, self.act, what, **options)
            return done

    def act(self, what: str) -> str:
        """The world outside: it takes a moment to reach, acts, and takes a moment to say so."""
        time.sleep(0.0015)
        self.ledger.note("mail", what)
        time.sleep(0.0015)
        return f"did the {what}"

    def look_up(self, what: str) -> str:
        """Makes sure that something was done, for a call that perhaps did it."""
        return f"did the {what}" if what in self.ledger.lines("mail") else self.act(what)

    def decide(self, state: Request, runtime: Runtime[None]) -> dict[str, Any]:
        """Fails at its first attempt."""
        if runtime.execution_info.node_attempt == 1:
            raise ConnectionError("no answer from the model")
        return {"log": [f"decided after {len(state['log'])} entries"]}

    def _build(self) -> CompiledGraph:
        """Reads, looks three things up beside a child graph that reserves, decides, asks, sends and files."""
        child: StateGraph[Any, Any, Any, Any] = StateGraph(Request)
        reserve: Node = lambda state, _: {"log": [self.once("reserve", MAILS[1], on_unknown=self.look_up)]}  # noqa: E731
        child.add_node("reserve", self.node(0.001, reserve))
        child.add_node("price", self.node(0.001, lambda state, _: {"log": ["240 EUR"]}))
        child.add_edge(START, "reserve").add_edge("reserve", "price")
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(Request)
        builder.add_node("read", self.node(0.001, lambda state, _: {"log": [f"read {state['wish']!r}"]}))
        builder.add_node("look_up", self.node(0.002, lambda number, _: {"log": [f"page {number}"]}))
        builder.add_node("quote", child.compile())
        policy = RetryPolicy(initial_interval=0.002, jitter=False)
        builder.add_node("decide", self.node(0.001, self.decide), retry_policy=policy)
        builder.add_node("approve", self.node(0, lambda state, _: {"verdict": interrupt(QUESTION)}))
        builder.add_node("send", self.node(0.001, lambda state, _: {"log": [self.once("mail", MAILS[0])]}))
        builder.add_node("file", self.node(0.001, lambda state, _: {"log": ["filed"]}))
        builder.add_edge(START, "read")
        builder.add_conditional_edges("read", fan_out)
        builder.add_edge(["look_up", "quote"], "decide").add_edge("decide", "approve")
        builder.add_edge("approve", "send").add_edge("send", "file")
        return builder.compile()
