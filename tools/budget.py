"""How many calls a run may make, and when a model that repeats itself is stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tools.execute import ToolCall, ToolResult, error_result

StopReason: TypeAlias = Literal["repeated_tool_calls", "budget"]

REPEATS_WARNED: Final = 3
"""The same call for the third time is not run; the model is told so. One more stops the run."""


@dataclass(frozen=True, slots=True)
class Round:
    """The calls of one turn, answered: one result each, in order.

    ``seen`` holds the fingerprints of all calls of the run so far, to be passed to the next round; ``executed`` is
    the number of calls that ran, in all rounds together; ``stop`` says why the run must end, or is None.
    """

    results: tuple[ToolResult, ...]
    seen: tuple[str, ...]
    executed: int
    stop: StopReason | None


def run_calls(
    calls: Sequence[ToolCall],
    run: Callable[[ToolCall], ToolResult],
    *,
    limit: int,
    seen: Sequence[str] = (),
    executed: int = 0,
) -> Round:
    """Answer every call of a turn within a budget of ``limit`` executed calls for the whole run.

    ``run`` executes one call. A call past the limit, and one made for the third time with the same name and
    arguments, is answered with an error of kind ``budget`` and not run; whether it succeeded before does not matter.
    """
    known = list(seen)
    results: list[ToolResult] = []
    stop: StopReason | None = None
    for call in calls:
        times = known.count(call.fingerprint) + 1
        known.append(call.fingerprint)
        if times > REPEATS_WARNED:
            results.append(error_result(call, "budget", f"{call.name} was called {times} times alike; this run ends."))
            stop = "repeated_tool_calls"
        elif times == REPEATS_WARNED:
            text = f"{call.name} was called {times} times with the same arguments; do something else or finish."
            results.append(error_result(call, "budget", text))
        elif executed >= limit:
            results.append(error_result(call, "budget", f"The budget of {limit} tool calls is used up."))
            stop = stop or "budget"
        else:
            results.append(run(call))
            executed += 1
    return Round(tuple(results), tuple(known), executed, stop)
