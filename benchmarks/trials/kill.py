"""Kills processes at random moments of a run, lets others go on, and looks what was lost or done twice."""

from __future__ import annotations

import asyncio
import signal
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from minigraph import Command, CompiledGraph
from minigraph.checkpoint.sameness import same
from minigraph.errors import UnknownOutcomeError
from minigraph.records import Finished
from trials.journey import ANSWER, HITS, MAILS, Journey, Ledger, WatchedSaver, Whereabouts
from trials.processes import started
from trials.store import Store

WISH: Final = {"wish": "cancel my place", "log": [], "verdict": ""}
ENDED, UNKNOWN = 0, 3
"""Exit codes of a worker: it came to the end; the outcome of a call is unknown and a person has to decide."""


@dataclass(slots=True)
class KillTally:
    """What became of some runs whose processes were killed. Lost and repeated say what and where."""

    where: str
    runs: int = 0
    kills: int = 0
    resumed: int = 0
    """Workers that took a run up after a kill."""
    unknown: int = 0
    """Calls that were reported as unknown outcomes and left to a person."""
    hits: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def wrong(self) -> list[str]:
        """Everything that must not be."""
        return [*(f"lost: {what}" for what in self.lost), *(f"repeated: {what}" for what in self.repeated)]


@dataclass(frozen=True, slots=True)
class Left:
    """What is stored of a thread: its checkpoints, and the tasks whose end is stored."""

    checkpoints: frozenset[str]
    finished: frozenset[str]

    @classmethod
    def of(cls, store: Store, thread: str) -> Left:
        """What a store holds of a thread now."""
        checkpoints, finished = set(), set()
        with store.as_left() as saver:
            for namespace in saver.namespaces(thread):
                for stored in saver.history(thread, namespace):
                    checkpoints.add(stored.checkpoint.id)
                    finished |= {result.task_id for result in stored.results if isinstance(result, Finished)}
        return cls(frozenset(checkpoints), frozenset(finished))


# ------------------------------------------------------------------------ in a worker


def work(journey: Journey, store: Store, thread: str, ledger: Path, asynchronous: bool) -> int:
    """Takes a thread up wherever it is and brings it to its end. Returns an exit code."""
    config = {"configurable": {"thread_id": thread}}
    saver, journey.ledger = store.open(), Ledger(ledger)
    graph = journey.graph(WatchedSaver(saver, journey.whereabouts))
    try:
        while True:
            found = graph.get_state(config)
            given: Any = None
            if found.metadata is None:
                given = WISH
            elif found.interrupts:
                given = Command(resume={question.id: ANSWER for question in found.interrupts})
            elif not found.next:
                return ENDED
            one_call(graph, given, config, journey.ledger, asynchronous)
    except UnknownOutcomeError:
        return UNKNOWN
    finally:
        saver.close()


def one_call(graph: CompiledGraph, given: Any, config: dict[str, Any], notes: Ledger, asynchronous: bool) -> None:
    """One call; notes each checkpoint that it was told to be stored."""

    def note(chunk: Any) -> None:
        if chunk["metadata"]["source"] == "loop" and chunk["metadata"]["step"] > 0:
            notes.note("stored", chunk["config"]["configurable"]["checkpoint_id"])

    async def all_of_it() -> None:
        async for chunk in graph.astream(given, config, stream_mode="checkpoints"):
            note(chunk)

    if asynchronous:
        asyncio.run(all_of_it())
    else:
        for chunk in graph.stream(given, config, stream_mode="checkpoints"):
            note(chunk)


def decide(journey: Journey, store: Store, thread: str, ledger: Path) -> int:
    """A person looks whether the mail went out, sends it if it did not, and moves the thread on."""
    saver, journey.ledger = store.open(), Ledger(ledger)
    done = journey.look_up(MAILS[0])
    journey.graph(saver).update_state({"configurable": {"thread_id": thread}}, {"log": [done]}, as_node="send")
    saver.close()
    return ENDED


# ------------------------------------------------------------------------- the trial


class KillTrial:
    """Runs one after the other, each in workers that are killed, until there were enough kills."""

    def __init__(self, store: Store, folder: Path, seed: int) -> None:
        self.store, self.folder, self.chance = store, folder, Random(seed)
        self.tally = KillTally(store.name)
        self.journey = Journey(Ledger(folder / "nobody's.ledger"), Whereabouts())
        self.path: list[tuple[int, dict[str, Any]]] = []
        """Step and state of every checkpoint of the run that nobody disturbs, newest first."""
        self.duration = 0.0

    def measure(self) -> None:
        """Runs undisturbed, to know how it ends and how long a worker takes."""
        times = []
        for number in range(-6, 0):
            store, thread, ledger = self.place(number)
            began = time.monotonic()
            worker = started(work, self.journey, store, thread, ledger, number % 2 == 0)
            worker.join()
            times.append(time.monotonic() - began)
            path = self._path(store, thread)
            if worker.exitcode != ENDED or (self.path and not same(path, self.path)):
                raise RuntimeError(f"a run that nobody disturbs ended with {worker.exitcode} at {path[:1]}")
            self.path = path
        self.duration = statistics.median(times)

    def run(self, kills: int) -> KillTally:
        """So many kills."""
        began = time.monotonic()
        self.measure()
        while self.tally.kills < kills:
            self.run_one(self.tally.runs, kills)
            self.tally.runs += 1
        self.tally.seconds = time.monotonic() - began
        return self.tally

    def run_one(self, number: int, kills: int) -> None:
        store, thread, ledger = self.place(number)
        notes, tally = Ledger(ledger), self.tally
        left, killed = Left(frozenset(), frozenset()), False
        for _ in range(200):
            start, tally.resumed = len(notes), tally.resumed + killed
            self.journey.whereabouts.reset()
            began = time.monotonic()
            worker = started(work, self.journey, store, thread, ledger, number % 2 == 0)
            worker.join(self.chance.random() * self.duration if tally.kills < kills else None)
            worker.kill()
            worker.join()
            killed = worker.exitcode == -signal.SIGKILL
            if not (killed or start):  # how long a whole run takes changes with what else the machine does
                self.duration += (time.monotonic() - began - self.duration) / 5
            if killed:
                tally.kills += 1
                tally.hits[self.journey.whereabouts.read()] += 1
            left = self.look(number, left, store, notes, start)
            if worker.exitcode == UNKNOWN:
                tally.unknown += 1
                person = started(decide, self.journey, store, thread, ledger)
                person.join()
                assert person.exitcode == ENDED
            elif worker.exitcode == ENDED:
                break
            elif not killed:
                tally.lost.append(f"run {number}: a worker ended with {worker.exitcode}")
                break
        self.judge(number, store, notes)
        notes.close()

    def place(self, number: int) -> tuple[Store, str, Path]:
        return self.store.fresh(number), f"journey-{number}", self.folder / f"{number}.ledger"

    def look(self, number: int, before: Left, store: Store, notes: Ledger, start: int) -> Left:
        """What is stored now; notes what vanished, and what the last worker did again although its end was stored."""
        now = Left.of(store, f"journey-{number}")
        vanished = (before.checkpoints - now.checkpoints) | (before.finished - now.finished)
        vanished |= set(notes.lines("stored")) - now.checkpoints
        again = before.finished & set(notes.lines("began", start))
        self.tally.lost += [f"run {number}: {what} was stored and is not there" for what in sorted(vanished)]
        self.tally.repeated += [f"run {number}: task {task} ran again" for task in sorted(again)]
        return now

    def judge(self, number: int, store: Store, notes: Ledger) -> None:
        """Notes where a run that came to its end did not go the way of the undisturbed one."""
        path, sent = self._path(store, f"journey-{number}"), Counter(notes.lines("mail"))
        if not same(path, self.path):
            self.tally.lost.append(f"run {number}: it went by {path}, undisturbed by {self.path}")
        self.tally.lost += [f"run {number}: no {mail}" for mail in MAILS if not sent[mail]]
        self.tally.repeated += [f"run {number}: {count} times {mail}" for mail, count in sent.items() if count > 1]
        if damage := store.damage():
            self.tally.lost.append(f"run {number}: {damage}")

    def _path(self, store: Store, thread: str) -> list[tuple[int, dict[str, Any]]]:
        with store.as_left() as saver:
            history = saver.history(thread, "")
            return [(stored.checkpoint.step, stored.checkpoint.values) for stored in history]


def hits(tally: KillTally) -> list[str]:
    """The table of where the kills hit."""
    counts = [tally.hits[place] for place in HITS]
    return [
        f"| Killed | {' | '.join(HITS.values())} |",
        f"|---|{'---:|' * len(HITS)}",
        f"| {tally.where} | {' | '.join(map(str, counts))} |",
    ]
