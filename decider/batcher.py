"""Lets many coroutines ask one model at once: what they ask within a few milliseconds is answered in one pass.

One pass runs at a time, on a thread of its own, so the event loop stays free. While it runs, further callers queue up;
the next pass takes them together. Who asks more than fits into a pass goes to the end of the queue after each, so a
large request takes turns with the others and holds nobody up for longer than a pass. Each caller gets its own answers
or its own error: a question that cannot be asked is found before the pass and concerns its caller alone, and who stops
waiting changes nothing for the others.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, TypeAlias

from decider.answers import Answers
from decider.errors import BatcherClosedError, OverloadedError
from decider.passes import check_waste
from decider.protocol import BatchModel, Encoded, Picked
from decider.questions import QuestionLike
from decider.rows import AnyRow

Outcome: TypeAlias = "Answers | Exception | None"
"""What a pass led to for a caller; None: some of its rows are still to be run."""


@dataclass(slots=True, eq=False)
class _Caller:
    """Someone who waits: what was asked, when a pass must start at the latest (loop time), where the answers go.

    `encoded` and `picked`, what its rows gave so far, belong to the thread while a pass runs.
    """

    state: object
    questions: Mapping[str, QuestionLike]
    latest_start: float
    outcome: asyncio.Future[Answers]
    encoded: Encoded | None = None
    picked: dict[int, Picked] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """About how many questions are left; what is no mapping counts as one, and fails when it is read."""
        asked = max(1, len(self.questions)) if isinstance(self.questions, Mapping) else 1
        if self.encoded is None:
            return asked
        rows = len(self.encoded.request.rows)
        return math.ceil(asked * (rows - len(self.picked)) / rows)


class MicroBatcher:
    """Answers the requests of many coroutines of one event loop together.

    A pass starts when `max_questions` questions wait or the first caller has waited `max_delay_ms` milliseconds,
    whichever is first, and takes callers with no more than `max_questions`, or one caller who alone has more. What of
    it does not fit into the pass goes to the end of the queue. No more than `max_waiting` callers wait for their first
    pass; for the next one `when_full` says what happens: "wait" until there is room, or "refuse" with OverloadedError.
    `max_waste` is the share of a pass that may be padding: with 1, callers of all lengths share a pass; on a CPU, 0.25
    is quicker where lengths differ much. `max_cells` bounds what a pass costs, and so how long others wait for it (see
    Decider.decide_encoded); None leaves the model's own limit.

    Use it as `async with MicroBatcher(decider) as batcher`, or close it: closing answers whoever still waits.
    """

    def __init__(
        self,
        model: BatchModel,
        *,
        max_questions: int = 64,
        max_delay_ms: float = 2.0,
        max_waiting: int = 1024,
        when_full: Literal["wait", "refuse"] = "wait",
        max_waste: float = 1.0,
        max_cells: int | None = None,
    ) -> None:
        if max_questions < 1 or max_waiting < 1 or not 0 <= max_delay_ms < float("inf"):
            raise ValueError("max_questions and max_waiting must be at least 1, max_delay_ms finite and not negative")
        if max_cells is not None and max_cells < 1:
            raise ValueError(f"max_cells is {max_cells}: give what a pass may cost in attention cells, at least 1")
        check_waste(max_waste)
        if when_full not in ("wait", "refuse"):
            raise ValueError(f"when_full is {when_full!r}: write 'wait' or 'refuse'")
        self._model = model
        self._max_questions = max_questions
        self._delay = max_delay_ms / 1000
        self._max_waiting = max_waiting
        self._refuses = when_full == "refuse"
        self._max_waste = max_waste
        self._max_cells = max_cells
        self._queue: deque[_Caller] = deque()
        self._taken: list[_Caller] = []
        self._without_room = 0
        self._room = asyncio.Semaphore(max_waiting)
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._inside = 0
        self._closed = False
        self._ended: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "decider-batch")

    @property
    def waiting(self) -> int:
        """How many callers wait for a pass, their first or a further one; those whose pass runs are not among them."""
        return len(self._queue)

    async def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        """Answer all questions about one state, together with what others ask meanwhile.

        Raises what Decider.decide raises, OverloadedError when the queue is full and refuses, and BatcherClosedError
        after close(), or when the batcher's task was ended by others, as by cancelling all tasks of the loop.
        Cancelling the call takes it out of the queue; a pass that already runs with it runs on.
        """
        loop = self._running_loop()
        if self._closed:
            raise BatcherClosedError()
        self._check_ended()
        if self._refuses and self._room.locked():
            raise OverloadedError(self.waiting, self._max_waiting)
        self._inside += 1
        self._idle.clear()
        try:
            await self._room.acquire()
            self._check_ended()
            caller = _Caller(state, questions, loop.time() + self._delay, loop.create_future())
            self._queue.append(caller)
            self._changed.set()
            if self._worker is None or self._worker.done():
                # Not in the context of the caller who happened to be first.
                self._worker = loop.create_task(self._work(loop), context=contextvars.Context())
                self._worker.add_done_callback(self._worker_ended)
            try:
                return await caller.outcome
            except asyncio.CancelledError:
                if caller in self._queue:
                    self._leave(caller)
                raise
        finally:
            self._inside -= 1
            if not self._inside:
                self._idle.set()

    async def close(self) -> None:
        """Refuse new calls, answer those that wait, and end the thread; calling it again does nothing more."""
        self._closed = True
        self._changed.set()
        await self._idle.wait()
        if self._worker is not None:
            await asyncio.wait([self._worker])
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> MicroBatcher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise RuntimeError("a MicroBatcher belongs to the event loop that used it first: make one for each loop")
        return loop

    async def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run pass after pass until nobody waits."""
        while self._queue:
            await self._gather(loop)
            if not self._queue:
                continue
            callers = self._taken = self._take()
            try:
                outcomes = await loop.run_in_executor(self._thread, self._run, callers)
            except Exception as error:  # the pass itself failed: whoever was in it is told
                outcomes = [error] * len(callers)
            for caller, outcome in zip(callers, outcomes, strict=True):
                if caller.outcome.done():
                    continue
                if outcome is None:
                    caller.latest_start = loop.time()
                    self._queue.append(caller)
                    self._without_room += 1
                elif isinstance(outcome, Exception):
                    caller.outcome.set_exception(outcome)
                else:
                    caller.outcome.set_result(outcome)
            self._taken = []

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        """Tell whoever waits when the task was cancelled, or ended by an error: nothing would ever answer them."""
        if not worker.cancelled() and worker.exception() is None:
            return
        self._ended = "its task was cancelled" if worker.cancelled() else f"its task ended with {worker.exception()!r}"
        for caller in (*self._taken, *self._queue):
            if not caller.outcome.done():
                caller.outcome.set_exception(BatcherClosedError(self._ended))
        self._queue.clear()
        self._taken = []
        for _ in range(self._inside):  # those who wait for room
            self._room.release()

    def _check_ended(self) -> None:
        if self._ended is not None:
            raise BatcherClosedError(self._ended)

    async def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until a pass is due: enough questions, the first caller's time is up, or nothing more can come."""
        while self._queue and not self._closed and sum(caller.size for caller in self._queue) < self._max_questions:
            self._changed.clear()
            try:
                async with asyncio.timeout_at(min(caller.latest_start for caller in self._queue)):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _take(self) -> list[_Caller]:
        """Take the callers of the next pass out of the queue."""
        taken: list[_Caller] = []
        questions = 0
        while self._queue and (not taken or questions + self._queue[0].size <= self._max_questions):
            caller = self._queue[0]
            self._leave(caller)
            taken.append(caller)
            questions += caller.size
        return taken

    def _leave(self, caller: _Caller) -> None:
        self._queue.remove(caller)
        if self._without_room:
            self._without_room -= 1
        else:
            self._room.release()
        self._changed.set()

    def _run(self, callers: Sequence[_Caller]) -> list[Outcome]:
        """Lay out each request on its own, then run one pass over what is left of all of them. Runs on the thread."""
        errors: dict[_Caller, Exception] = {}
        left: list[tuple[_Caller, int, AnyRow]] = []
        for caller in callers:
            try:
                caller.encoded = caller.encoded or self._model.encode(caller.state, caller.questions)
            except Exception as error:  # it is handed to the one who asked
                errors[caller] = error
            else:
                rows = enumerate(caller.encoded.request.rows)
                left += [(caller, place, row) for place, row in rows if place not in caller.picked]
        if left:
            given = self._model.run_pass([row for _, _, row in left], self._max_waste, self._max_cells)
            for index, picked in given.items():
                caller, place, _ = left[index]
                caller.picked[place] = picked
        return [errors[caller] if caller in errors else self._outcome(caller) for caller in callers]

    def _outcome(self, caller: _Caller) -> Outcome:
        encoded = caller.encoded
        if encoded is None or len(caller.picked) < len(encoded.request.rows):
            return None
        try:
            return self._model.answer(encoded, [caller.picked[place] for place in range(len(caller.picked))])
        except Exception as error:  # scores that are no numbers concern the one who asked
            return error
