"""Many workers on one store: processes, some of them killed and replaced, and threads of one process."""

from __future__ import annotations

import math
import operator
import signal
import threading
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from random import Random
from typing import Annotated, Any, TypedDict

from minigraph import END, START, CompiledGraph, StateGraph
from minigraph.checkpoint import Saver
from minigraph.errors import ThreadConflictError
from trials.processes import started
from trials.store import Store


class Count(TypedDict):
    """How far it has counted."""

    count: int
    log: Annotated[list[str], operator.add]


@dataclass(slots=True)
class CrowdTally:
    """What became of the runs of a crowd. `wrong` are errors, and runs that did not end as they must."""

    what: str
    where: str
    runs: int
    steps: int
    killed: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


def counting(steps: int, saver: Saver) -> CompiledGraph:
    """A graph that takes so many steps."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Count)
    builder.add_node("step", lambda state: {"count": state["count"] + 1, "log": [f"step {state['count']}"]})
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda state: "step" if state["count"] < steps else END, ["step", END])
    return builder.compile(saver)


def thread_of(worker: int, run: int) -> str:
    """The thread of one run of one worker."""
    return f"worker-{worker}-run-{run}"


def work(saver: Saver, worker: int, runs: int, steps: int) -> None:
    """Brings every run of a worker to its end, wherever it is now."""
    graph = counting(steps, saver)
    for run in range(runs):
        config = {"configurable": {"thread_id": thread_of(worker, run)}}
        found = graph.get_state(config)
        while found.metadata is None or found.next:
            try:
                graph.invoke({"count": 0, "log": []} if found.metadata is None else None, config)
            except ThreadConflictError:  # what the server did for a worker that was killed meanwhile
                if not found.next and found.metadata is not None:
                    raise
            found = graph.get_state(config)


def _process(store: Store, worker: int, runs: int, steps: int) -> int:
    saver = store.open()
    work(saver, worker, runs, steps)
    saver.close()
    return 0


def processes(
    store: Store,
    *,
    workers: int = 8,
    runs: int = 200,
    steps: int = 4,
    kill_every: float | None = None,
    most: float = math.inf,
    seed: int = 0,
) -> CrowdTally:
    """Workers in processes of their own, `runs` runs each.

    Every `kill_every` seconds one is killed and replaced, `most` times at the most.
    """
    what = f"{workers} processes" + (f", one killed every {kill_every:g} s" if kill_every else "")
    tally = CrowdTally(what, store.name, workers * runs, steps)
    began, chance, killed_at = time.monotonic(), Random(seed), time.monotonic()
    living = {worker: started(_process, store, worker, runs, steps) for worker in range(workers)}
    while living:
        for worker, process in list(living.items()):
            process.join(0.02)
            if process.exitcode is not None:
                del living[worker]
                if process.exitcode:
                    tally.wrong.append(f"worker {worker} ended with {process.exitcode}")
        if kill_every and tally.killed < most and living and time.monotonic() - killed_at > kill_every:
            killed_at = time.monotonic()
            worker = chance.choice(sorted(living))
            if _kill(living[worker]):
                tally.killed += 1
                living[worker] = started(_process, store, worker, runs, steps)
    tally.wrong += unfinished(store, workers, runs, steps)
    tally.seconds = time.monotonic() - began
    return tally


def _kill(process: BaseProcess) -> bool:
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def threads(store: Store, *, workers: int = 8, runs: int = 50, steps: int = 20) -> CrowdTally:
    """Workers in threads of this process, which share one saver."""
    tally = CrowdTally(f"{workers} threads", store.name, workers * runs, steps)
    began, saver = time.monotonic(), store.open()

    def one(worker: int) -> None:
        try:
            work(saver, worker, runs, steps)
        except BaseException:
            tally.wrong.append(f"worker {worker}: {traceback.format_exc()}")

    living = [threading.Thread(target=one, args=(worker,)) for worker in range(workers)]
    for thread in living:
        thread.start()
    for thread in living:
        thread.join()
    saver.close()
    tally.wrong += unfinished(store, workers, runs, steps)
    tally.seconds = time.monotonic() - began
    return tally


def unfinished(store: Store, workers: int, runs: int, steps: int) -> list[str]:
    """The runs that did not end in the right state by the right number of checkpoints, and damage of the store."""
    wrong = [damage] if (damage := store.damage()) else []
    end = {"count": steps, "log": [f"step {number}" for number in range(steps)]}
    saver = store.open()
    for thread in (thread_of(worker, run) for worker in range(workers) for run in range(runs)):
        stored = list(saver.history(thread, ""))
        states = [each.checkpoint.values["count"] for each in stored if "count" in each.checkpoint.values]
        if not stored or stored[0].checkpoint.values != end or stored[0].checkpoint.due:
            wrong.append(f"{thread} ended at {stored[0].checkpoint if stored else None}")
        elif len(stored) != steps + 2 or states[: steps + 1] != list(range(steps, -1, -1)):
            wrong.append(f"{thread}: {len(stored)} checkpoints, of {states}")
    saver.close()
    return wrong
