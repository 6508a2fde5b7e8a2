"""The one copy of a run's control flow, as a generator of effects: open the thread, then step until nothing is due."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

import msgspec

from minigraph import events
from minigraph.context import Event, Scope
from minigraph.effects import Effect, Save, Settle, Start, Stop, Wait
from minigraph.errors import (
    GraphDrained,
    GraphRecursionError,
    RunAbandoned,
    StorageError,
    UnknownNodeError,
    UnstorableValueError,
    listing,
)
from minigraph.position import Position, kept_prefixes, only_last, stamp, with_writer, write_of
from minigraph.records import (
    Checkpoint,
    Finished,
    NewCheckpoint,
    Paused,
    Result,
    Task,
    Write,
    without_untracked,
)
from minigraph.step import apply_writes, merge, merge_order
from minigraph.types import START, Interrupt
from minigraph.work import Job, Outcome, failed

Steps = Generator[Effect, Any, None]


class Run:
    """One run of one graph from a position: `steps()` is the whole of it, `interrupts` then says why it paused."""

    def __init__(self, scope: Scope, position: Position, *, fresh: bool) -> None:
        self.scope, self.graph, self.position = scope, scope.graph, position
        self.fresh = fresh
        self.shown = events.kinds_of(scope.modes, stored=scope.saver is not None)
        self.done = 0
        self.interrupts: tuple[Interrupt, ...] = ()
        self.last_nodes: tuple[str, ...] = ()
        self.paused = False
        """Whether a question (its own or a child graph's) holds the run."""
        self.stopped = False
        """Whether a static breakpoint held the run."""
        self.under_way: Write | None = None
        """What is being stored in the background."""
        self.lost = False
        """Whether a save in the background has failed."""

    # ------------------------------------------------------------------ steps

    def steps(self) -> Steps:
        """Steps until nothing is due, or the run pauses. Raises what a node, a merge or a saver raised."""
        try:
            yield from self._steps()
        except RunAbandoned:
            yield from self.flush(last=True)
            raise
        yield from self.flush(last=True)

    def _steps(self) -> Steps:
        checkpoint = self.position.checkpoint
        if "checkpoint" in self.shown:
            yield self._event("checkpoint", events.checkpoint(self.scope, checkpoint))
        if "values" in self.shown and not self.fresh:
            yield self._event("values", events.values(self.graph, checkpoint.values))
        check_before, position = self.fresh, self.position
        while due := position.checkpoint.due:
            self._check_nodes(due)
            starting = due[0].node == START
            todo = self._todo(due) if position.results else due
            if not todo and any(isinstance(position.results.get(task.id), Paused) for task in due):
                yield from self._pause(due)
                return
            if not starting and self._held(due, check_before):
                yield from self._gate(due, check_before)
                return
            yield from self._step(due, todo)
            if self.paused:
                return
            check_before = True
            if not starting:
                self.done += 1
                self.last_nodes = position.checkpoint.ran
                if self.scope.after and not self.scope.after.isdisjoint(task.node for task in due):
                    yield from self._breakpoint()
                    return

    def _held(self, due: Sequence[Task], check_before: bool) -> bool:
        """Whether anything holds a step back: the step limit, a breakpoint, a request to drain."""
        scope = self.scope
        return (
            self.done >= scope.recursion_limit
            or scope.control.reason is not None
            or (check_before and bool(scope.before) and not scope.before.isdisjoint(task.node for task in due))
        )

    def _gate(self, due: Sequence[Task], check_before: bool) -> Steps:
        """Ends a run that is held back: pauses at a breakpoint, raises otherwise."""
        if self.done >= self.scope.recursion_limit:
            yield from self.flush(last=True)
            raise GraphRecursionError(
                f"the run needed more than recursion_limit={self.scope.recursion_limit} steps; the last step ran"
                f" {listing(self.last_nodes)}, due next {listing({t.node for t in due})}. Everything is saved:"
                " raise the limit in the config and go on with invoke(None, config), or give the loop an exit",
                limit=self.scope.recursion_limit,
                last_nodes=self.last_nodes,
            )
        if check_before and not self.scope.before.isdisjoint(task.node for task in due):
            yield from self._breakpoint()
        else:
            yield from self.flush(last=True)
            raise GraphDrained(self.scope.control.reason or "")

    def _breakpoint(self) -> Steps:
        self.stopped = True
        if "updates" in self.shown:
            yield self._event("updates", {"__interrupt__": ()})

    def _todo(self, due: Sequence[Task]) -> Sequence[Task]:
        """The due tasks that must run: not those that finished, nor those whose question has no answer yet."""
        results = self.position.results
        return [
            task
            for task in due
            if not isinstance(result := results.get(task.id), Finished)
            and not (isinstance(result, Paused) and _waits(result))
        ]

    def _check_nodes(self, due: Sequence[Task]) -> None:
        for task in due:
            if task.node not in self.graph.nodes:
                raise UnknownNodeError(
                    f"the thread waits for node {task.node!r}, which this graph does not have (it has"
                    f" {listing(n for n in self.graph.nodes if n != START)}); compile a graph that has it, or move the"
                    f" thread on with update_state(config, values, as_node=...)",
                    node=task.node,
                )

    # --------------------------------------------------------------- one step

    def _step(self, due: Sequence[Task], todo: Sequence[Task]) -> Steps:
        position, checkpoint = self.position, self.position.checkpoint
        if due[0].node != START and position.has_unsaved:
            yield from self.flush()
        remaining, earlier = self.scope.recursion_limit - self.done - 1, position.results.get
        jobs = tuple([
            Job(self.scope, task, checkpoint.values, checkpoint.id, checkpoint.step + 1, remaining, earlier(task.id))
            for task in todo
        ])  # fmt: skip
        if self.shown:
            yield from self._show_start(due, todo, jobs)
        if jobs:
            yield from self._execute(due, jobs)
        pairs = [(task, result) for task in due if isinstance(result := position.results[task.id], Finished)]
        if len(pairs) == len(due):
            yield from self._complete(pairs, jobs)
        else:
            yield from self._end_paused(due)

    def _show_start(self, due: Sequence[Task], todo: Sequence[Task], jobs: Sequence[Job]) -> Steps:
        """Shows the tasks that start, and what an earlier call left of this step."""
        if "task" in self.shown:
            for job in jobs:
                if job.task.node != START:
                    yield self._event("task", events.task(job))
        if len(todo) < len(due):
            yield from self._show_earlier(due, todo)

    def _show_earlier(self, due: Sequence[Task], todo: Sequence[Task]) -> Steps:
        """Shows again what an earlier call left of this step: finished siblings and open questions."""
        for task in due:
            result = None if task in todo else self.position.results.get(task.id)
            if isinstance(result, Paused):
                yield from self._show_pause(result)
            elif isinstance(result, Finished) and "updates" in self.shown:
                yield self._event("updates", events.update(msgspec.structs.replace(result, cached=True)))

    def _execute(self, due: Sequence[Task], jobs: tuple[Job, ...]) -> Steps:
        """Runs the jobs and records each result; results of siblings are stored while others still run."""
        running = len(jobs)
        failures: list[tuple[tuple[bool, str, int], BaseException]] = []
        try:
            batch = yield Start(jobs)
            while True:
                ended = self._take(batch, failures)
                if self.shown or ended < len(batch):
                    yield from self._show_all(batch)
                if failures:
                    raise failures[0][1]
                running -= ended
                if not running:
                    break
                yield from self.flush()
                batch = yield Wait()
        except BaseException as error:
            rest = yield Stop()
            self._take(rest, failures)
            yield from self._show_all(rest)
            if not isinstance(error, StorageError):
                results = self.position.results
                pairs = [(task, result) for task in due if isinstance(result := results.get(task.id), Finished)]
                if len(pairs) == len(due):
                    yield from self._complete(pairs, jobs)  # left after the last task: the step has ended all the same
                yield from self.flush(last=True)
            if not failures or error is not failures[0][1]:
                raise
        if failures:  # the first in merge order is the caller's; raised out here, it keeps the cause that it came with
            raise min(failures, key=lambda failure: failure[0])[1]

    def _take(
        self, items: Sequence[Outcome | Event], failures: list[tuple[tuple[bool, str, int], BaseException]]
    ) -> int:
        """Records what came; returns how many jobs ended."""
        ended, position = 0, self.position
        for item in items:
            if isinstance(item, Event):
                continue
            ended += 1
            if item.error is not None:
                failures.append((merge_order(item.job.task), item.error))
            if (result := item.result) is not None:
                position.results[result.task_id] = result
                position.unsaved_results.append((position.checkpoint.id, result))
        return ended

    def _show_all(self, items: Sequence[Outcome | Event]) -> Steps:
        """Shows what came."""
        for item in items:
            if isinstance(item, Event):
                yield item
            elif item.result is not None:
                yield from self._show(item, item.result)

    def _show(self, outcome: Outcome, result: Result) -> Steps:
        if isinstance(result, Paused):
            yield from self._show_pause(result)
        if result.node == START:
            return
        if isinstance(result, Finished) and "updates" in self.shown:
            yield self._event("updates", events.update(result))
        if "task_result" in self.shown and not (isinstance(result, Finished) and result.cached):
            yield self._event("task_result", events.task_result(outcome))

    def _complete(self, pairs: Sequence[tuple[Task, Finished]], jobs: Sequence[Job]) -> Steps:
        """Merges a finished step into the next checkpoint. A merge that fails leaves the step to be run again."""
        position, old = self.position, self.position.checkpoint
        try:
            own = jobs[0].own if len(jobs) == len(pairs) == 1 else None
            new = merge(self.graph, old, pairs, stamp(self.scope, position.next_revision(self.scope)), own=own)
        except Exception as error:
            yield from self._refuse_step(jobs, error)
            raise
        before = (position.unsaved, position.results)
        position.unsaved = [*position.unsaved, NewCheckpoint(new, old, kept_prefixes(self.graph, pairs))]
        position.checkpoint, position.results = new, {}
        if self.scope.durability == "exit":
            position.unsaved_results = []
        elif pairs[0][0].node != START or not new.due:
            try:
                yield from self.flush()
            except Exception as error:
                position.checkpoint, (position.unsaved, position.results) = old, before
                if isinstance(error, UnstorableValueError):
                    yield from self._refuse_step(jobs, error)
                raise
        if "values" in self.shown and any(result.writes for _, result in pairs):
            yield self._event("values", events.values(self.graph, new.values))
        if "checkpoint" in self.shown:
            yield self._event("checkpoint", events.checkpoint(self.scope, new))

    def _refuse_step(self, jobs: Iterable[Job], error: Exception) -> Steps:
        """A merge that failed is an error of this step: its tasks stay due and run again."""
        for job in jobs:
            result = failed(job, error)
            self.position.results[result.task_id] = result
            self.position.unsaved_results.append((self.position.checkpoint.id, result))
        yield from self.flush(last=True)

    # ------------------------------------------------------------------ pause

    def _show_pause(self, paused: Paused) -> Steps:
        open_now = paused.open
        if "updates" in self.shown:
            yield self._event("updates", {"__interrupt__": open_now})
        if "values" in self.shown:
            yield self._event("values", events.paused_values(self.graph, self.position.checkpoint.values, open_now))

    def _pause(self, due: Sequence[Task]) -> Steps:
        """Every task that could run has run before: the open questions are shown again."""
        for task in due:
            if isinstance(result := self.position.results.get(task.id), Paused):
                yield from self._show_pause(result)
        yield from self._end_paused(due)

    def _end_paused(self, due: Sequence[Task]) -> Steps:
        results = self.position.results
        self.paused = True
        self.interrupts = open_questions(due, results)
        yield from self.flush(last=True)
        if "values" in self.shown and any(isinstance(r, Finished) and r.writes for r in results.values()):
            yield self._event("values", events.values(self.graph, self.live_values()))

    def live_values(self) -> dict[str, Any]:
        """The state with the writes of finished tasks of the unfinished step merged in."""
        return live_values(self.scope.graph, self.position.checkpoint, self.position.results)

    # ------------------------------------------------------------------- save

    def flush(self, *, last: bool = False) -> Steps:
        """Stores what is not stored yet; with durability "exit" only at the end."""
        position, saver = self.position, self.scope.saver
        if saver is None:
            position.revision += len(position.unsaved)
            position.unsaved, position.unsaved_results = [], []
            return
        if self.lost or (self.scope.durability == "exit" and not last):
            return
        if self.under_way is not None:
            yield from self._settle(self.under_way)
        new, results = position.unsaved, position.unsaved_results
        if new or results:
            if self.scope.durability == "exit" and new:
                new, results = only_last(new, results, position.stored)
            write = write_of(self.scope, position, new, results)
            write = without_untracked(write, self.graph.untracked)
            position.unsaved, position.unsaved_results, position.carried = [], [], []
            background = self.scope.durability == "async" and not last
            try:
                yield Save(write, background=background)
            except UnstorableValueError as error:
                raise with_writer(error, write) from error
            self.under_way = write if background else None
            position.revision = write.end
            position.stored = position.checkpoint

    def _settle(self, write: Write) -> Steps:
        """Waits for a save in the background. Where it failed nothing more is stored: all that follows builds on it."""
        self.under_way = None
        try:
            yield Settle()
        except UnstorableValueError as error:
            self.lost = True
            raise with_writer(error, write) from error
        except BaseException:
            self.lost = True
            raise

    def _event(self, kind: str, payload: Any) -> Event:
        step = self.position.checkpoint.step + (1 if kind in ("task", "task_result") else 0)
        return Event(self.scope.path, kind, step, payload)


def _waits(paused: Paused) -> bool:
    """Whether a paused task has nothing new to go on with: no answer arrived since it paused."""
    own_open = len(paused.asked) > len(paused.answers)
    given = {key for key, _ in paused.given}
    return own_open or (bool(paused.inner) and not any(question.id in given for question in paused.inner))


def open_questions(due: Sequence[Task], results: dict[str, Result]) -> tuple[Interrupt, ...]:
    """The open questions of a step, in the order of its tasks."""
    return tuple(q for task in due if isinstance(r := results.get(task.id), Paused) for q in r.open)


def live_values(graph: Any, checkpoint: Checkpoint, results: dict[str, Result]) -> dict[str, Any]:
    """The state with the writes of finished tasks of an unfinished step merged in.

    Where those writes conflict, the step cannot end: the state as it was before it is what there is.
    """
    finished = [
        (task, r) for task in sorted(checkpoint.due, key=merge_order) if isinstance(r := results.get(task.id), Finished)
    ]
    if not finished:
        return checkpoint.values
    try:
        return apply_writes(graph, checkpoint.values, [(task.node, result.writes) for task, result in finished])
    except Exception:
        return checkpoint.values
