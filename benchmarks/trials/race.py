"""Several contenders for one thread, in processes and in threads: one wins, and the others leave nothing behind."""

from __future__ import annotations

import operator
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypedDict

from minigraph import START, Command, CompiledGraph, StateGraph, interrupt
from minigraph.checkpoint import Saver
from minigraph.errors import ThreadConflictError, UnknownInterruptError
from minigraph.records import Stored
from minigraph.testing.crashing import PassingSaver
from trials.processes import FORK, started
from trials.store import Store

PATIENCE = 120.0
"""How many seconds a contender waits for the others."""
What = Literal["answer", "input"]
Where = Literal["processes", "threads"]


class Barrier(Protocol):
    """A barrier of threads or of processes."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the others."""
        ...


class Outcome(NamedTuple):
    """How a round ended for one contender: the log it was given, or the error; and how many of its nodes ran."""

    round: int
    name: str
    log: list[str]
    error: str
    nodes: int


@dataclass(slots=True)
class RaceTally:
    """What became of some rounds. `wrong` says where not exactly one won, or a loser left something behind."""

    what: str
    where: str
    contenders: int
    rounds: int = 0
    won: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Said(TypedDict):
    """What was said, and by whom."""

    log: Annotated[list[str], operator.add]


class Contender:
    """A graph that counts the nodes which it runs, and says whose they are."""

    def __init__(self, name: str) -> None:
        self.name, self.nodes = name, 0

    def ask(self, state: Said) -> dict[str, Any]:
        """Waits for an answer."""
        given = interrupt("Who are you?")
        self.nodes += 1
        return {"log": [f"ask answered by {given}, run by {self.name}"]}

    def tell(self, state: Said) -> dict[str, Any]:
        """Says who runs it."""
        self.nodes += 1
        return {"log": [f"tell run by {self.name}"]}

    def graph(self, saver: Saver, what: What) -> CompiledGraph:
        """A graph that asks first, or one that only tells."""
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(Said)
        first = "ask" if what == "answer" else "before"
        builder.add_node(first, self.ask if what == "answer" else self.tell).add_node("tell", self.tell)
        return builder.add_edge(START, first).add_edge(first, "tell").compile(saver)


class TogetherSaver(PassingSaver):
    """The first read of a round ends when every contender has read, so that all of them saw the same head.

    Without `reads_first` it begins when every contender is about to read: what they see is left to chance.
    """

    def __init__(self, inner: Saver, barrier: Barrier, reads_first: bool) -> None:
        super().__init__(inner)
        self.barrier, self.reads_first, self.waits = barrier, reads_first, True

    def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """`get` of the other saver, and a wait for the others."""
        waits, self.waits = self.waits, False
        if waits and not self.reads_first:
            self.barrier.wait(PATIENCE)
        found = self.inner.get(thread_id, namespace, checkpoint_id)
        if waits and self.reads_first:
            self.barrier.wait(PATIENCE)
        return found


def contend(
    store: Store, what: What, questions: list[str], name: str, barrier: Barrier, put: Callable[[Outcome], None]
) -> int:
    """Takes part in every round; `questions` has an entry for each: the id of the open question.

    Answers are given in every other round without waiting for all to have read: then one may come after another.
    """
    saver = TogetherSaver(store.open(), barrier, True)
    for number, question in enumerate(questions):
        saver.reads_first = what == "input" or number % 2 == 0
        contender = Contender(name)
        saver.waits = True
        given: Any = Command(resume={question: name}) if what == "answer" else {"log": [f"input of {name}"]}
        config = {"configurable": {"thread_id": thread_of(what, number)}}
        try:
            ended = contender.graph(saver, what).invoke(given, config)
            put(Outcome(number, name, ended["log"], "", contender.nodes))
        except Exception as error:
            put(Outcome(number, name, [], f"{type(error).__name__}: {error}", contender.nodes))
    saver.inner.close()
    return 0


def thread_of(what: What, number: int) -> str:
    """The thread of one round."""
    return f"race-{what}-{number}"


def race(store: Store, what: What, *, contenders: int = 8, rounds: int = 50, where: Where) -> RaceTally:
    """So many rounds in which all contenders read a thread, then all try to move it."""
    tally = RaceTally(f"{contenders} {what}s at once, in {where}", store.name, contenders, rounds)
    began, questions = time.monotonic(), _questions(store, what, rounds)
    outcomes: Any
    living: list[Any]
    barrier: Barrier
    names = [f"contender {number}" for number in range(contenders)]
    if where == "processes":
        outcomes, barrier = FORK.Queue(), FORK.Barrier(contenders)
        living = [started(contend, store, what, questions, name, barrier, outcomes.put) for name in names]
    else:
        outcomes, barrier = queue.Queue(), threading.Barrier(contenders)
        living = [
            threading.Thread(target=contend, args=(store, what, questions, name, barrier, outcomes.put))
            for name in names
        ]
        for thread in living:
            thread.start()
    found: list[Outcome] = [outcomes.get(timeout=PATIENCE) for _ in range(rounds * contenders)]
    for each in living:
        each.join()
    with store.as_left() as saver:
        for number in range(rounds):
            judge(tally, saver, what, number, [each for each in found if each.round == number])
    tally.seconds = time.monotonic() - began
    return tally


def _questions(store: Store, what: What, rounds: int) -> list[str]:
    """Brings the thread of each round to where the contenders begin; the ids of the questions that are open there."""
    if what == "input":
        return [""] * rounds
    saver, found = store.open(), []
    graph = Contender("nobody").graph(saver, what)
    for number in range(rounds):
        asked = graph.invoke({"log": []}, {"configurable": {"thread_id": thread_of(what, number)}})
        found.append(asked["__interrupt__"][0].id)
    saver.close()
    return found


def judge(tally: RaceTally, saver: Saver, what: What, number: int, outcomes: list[Outcome]) -> None:
    """Notes where not exactly one contender of a round won, and what the others left."""
    winners = [each for each in outcomes if not each.error]
    losers = [each for each in outcomes if each.error]
    tally.won += len(winners)
    tally.refused.update(each.error.partition(":")[0] for each in losers)
    history = list(saver.history(thread_of(what, number), ""))
    allowed = {ThreadConflictError.__name__} | ({UnknownInterruptError.__name__} if what == "answer" else set())
    wrong = [each.error for each in losers if each.error.partition(":")[0] not in allowed]
    wrong += [f"{each.name} lost and ran {each.nodes} nodes" for each in losers if each.nodes]
    wrong += [f"{each.name} lost and is stored" for each in losers if each.name in repr(history)]
    if len(winners) != 1:
        wrong.append(f"{len(winners)} won")
    elif (
        not history
        or history[0].checkpoint.values["log"] != winners[0].log
        or len(winners[0].log) != 2 + (what == "input")
    ):
        wrong.append(f"the winner was given {winners[0].log}, stored is {history[:1]}")
    tally.wrong += [f"round {number}: {each}" for each in wrong]
