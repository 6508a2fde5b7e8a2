"""Forces the order in which the tasks of a step finish: by number, in one thread, the same every time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from minigraph.calls import Call, Shape
from minigraph.compiled import CompiledGraph
from minigraph.execute import Item, ThreadDriver, perform
from minigraph.work import Job


@dataclass(frozen=True, slots=True)
class Schedule:
    """Numbers that decide, one after the other, which of a step's running tasks finishes next.

    A number is used where there is a choice: of three tasks, 0 is the first and 2 the last. They are used again from
    the start when they run out. `together` delivers several results at once where the number is odd, as it happens
    when tasks finish at the same time.
    """

    numbers: tuple[int, ...] = (0,)
    together: bool = False

    def __post_init__(self) -> None:
        if not self.numbers or min(self.numbers) < 0:
            raise ValueError(f"Schedule({self.numbers!r}): at least one number, none below 0")

    def stream(
        self, graph: CompiledGraph, given: Any, config: Mapping[str, Any] | None = None, **options: Any
    ) -> Iterator[Any]:
        """`graph.stream(given, config, **options)` in which tasks finish in this schedule's order.

        Nodes run in the calling thread, one after the other; what they see does not depend on it. Child graphs run
        with the ordinary driver.
        """
        shape = Shape(graph.graph, options.pop("stream_mode", "updates"), False, options.pop("version", "v1"))
        call = Call(graph, config, options.pop("context", None), shape.modes, live=True, **options)
        with _ScheduledDriver(self, call) as driver:
            for event in driver.events(call.steps(given)):
                call.pass_on(event)
                yield from shape.chunks(event)

    def invoke(self, graph: CompiledGraph, given: Any, config: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """`graph.invoke(given, config, **options)` in which tasks finish in this schedule's order."""
        call = Call(graph, config, options.pop("context", None), ("values",), **options)
        with _ScheduledDriver(self, call) as driver:
            for event in driver.events(call.steps(given)):
                call.pass_on(event)
        return call.output(None, "v1")


class _ScheduledDriver(ThreadDriver):
    """Runs a step's jobs one at a time, when and in the order in which the schedule lets them finish."""

    def __init__(self, schedule: Schedule, call: Call) -> None:
        super().__init__(call.scope.saver)
        self._schedule, self._used = schedule, 0
        self._jobs: list[Job] = []

    def _start(self, jobs: tuple[Job, ...]) -> list[Item]:
        self._jobs.extend(jobs)
        return self._wait()

    def _wait(self) -> list[Item]:
        number = self._next_number()
        found = self._finish(number)
        while self._schedule.together and number % 2 and self._jobs:
            number = self._next_number()
            found += self._finish(number)
        return found

    def _stop(self) -> list[Item]:
        found: list[Item] = []
        while self._jobs:
            found += self._finish(self._next_number())
        return found

    def _finish(self, number: int) -> list[Item]:
        job = self._jobs.pop(number % len(self._jobs))
        items: list[Item] = []
        outcome = perform(job, items.append)
        return [*items, outcome]

    def _next_number(self) -> int:
        if len(self._jobs) == 1:
            return 0
        number = self._schedule.numbers[self._used % len(self._schedule.numbers)]
        self._used += 1
        return number
