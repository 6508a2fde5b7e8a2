"""The driver that carries out what `run.py` asks for with threads. Like its twin in `aexecute.py` it decides nothing.

A single task runs in the caller's own thread; a step of several uses a thread pool. Each task runs in a copy of the
caller's context, so context variables never leak from node to node.
"""

from __future__ import annotations

import contextvars
import os
import queue
import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from minigraph.context import Event
from minigraph.effects import Effect, Found, History, Lineage, Load, Namespaces, Save, Settle, Start, Stop, Wait
from minigraph.errors import RunAbandoned
from minigraph.types import START
from minigraph.work import Invoke, Job, Outcome, Sleep, Work, work

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future, ThreadPoolExecutor

    from minigraph.checkpoint.base import Saver

Item = Outcome | Event


def perform(job: Job, emit: Any) -> Outcome:
    """Runs one job to its end in this thread."""
    run_task = job.scope.run_task
    steps = work(job, emit, inline=True) if run_task is None else run_task(job, emit)
    return contextvars.copy_context().run(_drive_work, steps)


def _drive_work(steps: Work) -> Outcome:
    try:
        effect = next(steps)
        while True:
            try:
                answer = _carry_out(effect)
            except BaseException as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(answer)
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome


def _carry_out(effect: Invoke | Sleep) -> Any:
    if isinstance(effect, Sleep):
        time.sleep(effect.seconds)
        return None
    if effect.callee.is_async:
        raise TypeError(
            f"node {effect.context.task.node!r} calls {effect.callee.function!r}, which is async;"
            " run the graph with ainvoke or astream"
        )
    return effect.callee.function(effect.argument, **effect.keywords())


def _pool_of(size: int, name: str) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # takes a third of the time that the engine takes to load

    return ThreadPoolExecutor(size, name)


class ThreadDriver:
    """Runs effects synchronously. Use as a context manager, so that no thread outlives the run."""

    def __init__(self, saver: Saver | None) -> None:
        self.saver = saver
        self._pool: ThreadPoolExecutor | None = None
        self._items: queue.SimpleQueue[Item | BaseException] = queue.SimpleQueue()
        self._futures: dict[Future[Any], Job] = {}
        self._running = 0
        """How many of the jobs given to a pool have not been heard of."""
        self._raised: BaseException | None = None
        self._saving: Future[int] | None = None
        self._save_pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> ThreadDriver:
        return self

    def __exit__(self, *exception: object) -> None:
        for pool in (self._pool, self._save_pool):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)

    def events(self, steps: Generator[Effect, Any, Any]) -> Generator[Event, None, None]:
        """Runs a generator of effects and yields what it emits."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                effect = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration:
                return
            answer = error = None
            if type(effect) is Event:
                try:
                    yield effect
                except GeneratorExit:
                    self._abandon(steps)
                    raise
                continue
            try:
                answer = self._carry_out(effect)
            except BaseException as caught:
                error = caught

    def _abandon(self, steps: Generator[Effect, Any, Any]) -> None:
        """Ends a run whose caller left: running tasks are waited for, and what has finished is stored."""
        try:
            effect = steps.throw(RunAbandoned())
            while True:
                effect = steps.send(None if isinstance(effect, Event) else self._carry_out(effect))
        except (StopIteration, RunAbandoned):
            return

    def result(self, steps: Generator[Effect, Any, Found]) -> Found:
        """Runs a generator of effects that emits nothing, and returns what it returns."""

        kept: list[Found] = []
        for _ in self.events(keeping(steps, kept)):
            pass
        return kept[0]

    def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case Start(jobs):
                return self._start(jobs)
            case Save(write, background):
                self._settle()
                saver = needed(self.saver)
                if not background:
                    return saver.put(write)
                self._save_pool = self._save_pool or _pool_of(1, "minigraph-save")
                self._saving = self._save_pool.submit(saver.put, write)
            case Wait():
                return self._wait()
            case Stop():
                return self._stop()
            case Settle():
                self._settle()
            case Load(thread_id, namespace, checkpoint_id):
                return needed(self.saver).get(thread_id, namespace, checkpoint_id)
            case History(thread_id, namespace, before, limit, wanted):
                found = needed(self.saver).history(thread_id, namespace, before=before, limit=limit, filter=wanted)
                return list(found)
            case Lineage(thread_id, namespace, checkpoint_id):
                return needed(self.saver).lineage(thread_id, namespace, checkpoint_id)
            case Namespaces(thread_id):
                return needed(self.saver).namespaces(thread_id)
        return None

    def _start(self, jobs: tuple[Job, ...]) -> list[Item]:
        first, scope = jobs[0], jobs[0].scope
        if first.task.node == START or (len(jobs) == 1 and not scope.live and scope.executor is None):
            items: list[Item] = []
            items.append(perform(first, items.append))
            return items
        if scope.executor is not None:
            self._start_elsewhere(jobs, scope.executor)
        else:
            for job in jobs:
                self._start_in_thread(job)
        return self._wait()

    def _start_in_thread(self, job: Job) -> None:
        future = self._threads(job).submit(contextvars.copy_context().run, perform, job, self._items.put)
        self._expect(future, job, lambda _, ended: [ended.result()])

    def _expect(self, future: Future[Any], job: Job, receive: Callable[[Job, Future[Any]], list[Item]]) -> None:
        """Queues what `receive` makes of a job's future: its events and one outcome, or one error."""

        def collect(future: Future[Any]) -> None:
            items: Sequence[Item | BaseException]
            try:
                items = receive(job, future)
            except BaseException as error:
                items = (error,)
            for item in items:
                self._items.put(item)

        self._futures[future] = job
        self._running += 1
        future.add_done_callback(collect)

    def _threads(self, job: Job) -> ThreadPoolExecutor:
        if self._pool is None:
            limit = job.scope.max_concurrency or min(32, (os.cpu_count() or 1) + 4)
            self._pool = _pool_of(limit, "minigraph-node")
        return self._pool

    def _start_elsewhere(self, jobs: tuple[Job, ...], executor: Executor) -> None:
        from minigraph.elsewhere import perform_elsewhere, portable, received

        for job in jobs:
            if job.scope.graph.nodes[job.task.node].child is not None:  # a child graph stores, so it stays here
                self._start_in_thread(job)
            else:
                self._expect(executor.submit(perform_elsewhere, portable(job)), job, received)

    def _wait(self) -> list[Item]:
        found: list[Item] = []
        while not found or not self._items.empty():
            item = self._raised or self._next()
            if isinstance(item, BaseException):
                if found:  # what came before it counts
                    self._raised = item
                    break
                self._raised = None
                raise item
            found.append(item)
        return found

    def _next(self) -> Item | BaseException:
        item = self._items.get()
        if not isinstance(item, Event):
            self._running -= 1
        return item

    def _stop(self) -> list[Item]:
        """Waits for siblings of a task that failed, so that timing decides nothing; drops a `max_concurrency` queue."""
        for future, job in self._futures.items():
            if job.scope.max_concurrency is not None:
                future.cancel()
        self._futures.clear()
        found: list[Item] = []
        while self._running or not self._items.empty():
            item = self._next()
            if not isinstance(item, BaseException):
                found.append(item)
        return found

    def _settle(self) -> None:
        if self._saving is not None:
            saving, self._saving = self._saving, None
            saving.result()


def keeping(steps: Generator[Effect, Any, Found], into: list[Found]) -> Generator[Effect, Any, None]:
    """The same effects; what the generator returns is put into a list."""
    into.append((yield from steps))


def needed(saver: Saver | None) -> Saver:
    assert saver is not None, "a run without a saver neither loads nor saves"
    return saver
