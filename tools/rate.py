"""How often a tool may be called, and when one that keeps failing is left alone: pure rules, and one holder of them.

A token bucket allows ``burst`` calls at once and ``per_second`` in the long run. A circuit opens after ``failures``
failures in a row; ``cool_down`` seconds later one call may try whether the tool works again, and the others wait. Both
belong to the process that calls the tool, not to a conversation, so they are not in the state of a run.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tools.call import ToolCall, ToolResult, error_result
from tools.tool import ToolContext


@dataclass(frozen=True, slots=True)
class Rate:
    """``burst`` calls at once, ``per_second`` in the long run."""

    burst: int
    per_second: float

    def __post_init__(self) -> None:
        if self.burst < 1 or not 0 < self.per_second < math.inf:
            raise ValueError(f"{self}: burst is at least 1, per_second more than 0")


@dataclass(frozen=True, slots=True)
class Bucket:
    """The calls left at a moment, in seconds of the clock."""

    left: float
    at: float


def take(rate: Rate, bucket: Bucket | None, now: float) -> tuple[Bucket, float]:
    """The bucket after one more call, and 0.0; or the bucket as it is, and the seconds to wait.

    None is a full bucket. A clock that goes back fills nothing and takes nothing away.
    """
    left, at = (float(rate.burst), now) if bucket is None else (bucket.left, bucket.at)
    if now > at:
        left, at = min(float(rate.burst), left + (now - at) * rate.per_second), now
    if left >= 1:
        return Bucket(left - 1, at), 0.0
    return Bucket(left, at), (1 - left) / rate.per_second


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a circuit opens: after how many failures in a row, and for how many seconds."""

    failures: int = 5
    cool_down: float = 30.0

    def __post_init__(self) -> None:
        if self.failures < 1 or not 0 < self.cool_down < math.inf:
            raise ValueError(f"{self}: failures is at least 1, cool_down more than 0")


@dataclass(frozen=True, slots=True)
class Circuit:
    """The failures in a row, and since when it is open; None while it is closed."""

    failures: int = 0
    opened_at: float | None = None


def try_circuit(breaker: Breaker, circuit: Circuit, now: float) -> tuple[Circuit, float]:
    """Before a call: the circuit and 0.0 if it may go on, else the seconds to wait.

    The call that tries an open circuit opens it anew at once, so that only one tries, and another may if it is lost.
    """
    if circuit.opened_at is None:
        return circuit, 0.0
    wait = min(circuit.opened_at + breaker.cool_down - now, breaker.cool_down)
    return (circuit, wait) if wait > 0 else (Circuit(circuit.failures, now), 0.0)


def after_call(breaker: Breaker, circuit: Circuit, result: ToolResult, now: float) -> Circuit:
    """After a call: a success closes the circuit, a failure of the tool counts, a bad request says nothing."""
    if not result.is_error:
        return Circuit()
    if result.kind not in ("temporary", "failed"):
        return circuit
    failures = circuit.failures + 1
    return Circuit(failures, now if failures >= breaker.failures else None)


class Paced:
    """A way to run calls that keeps to rates and leaves failing tools alone; to be given to ``run_turn`` as ``run``.

    ``rates`` and ``breakers`` are by the name of the tool; a tool without one is not held back. A call held back gets a
    result of kind ``temporary`` and is not run. Threads may share it.
    """

    def __init__(
        self,
        run: Callable[[ToolCall, ToolContext], ToolResult],
        *,
        rates: Mapping[str, Rate] | None = None,
        breakers: Mapping[str, Breaker] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._rates: Final = dict(rates or {})
        self._breakers: Final = dict(breakers or {})
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[str, Bucket] = {}
        self._circuits: dict[str, Circuit] = {}

    def __call__(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run the call, or say how long to wait."""
        with self._lock:
            held_back = self._held_back(call, self._clock())
        if held_back is not None:
            return held_back
        result = self._run(call, context)
        breaker = self._breakers.get(call.name)
        if breaker is not None:
            with self._lock:
                circuit = self._circuits.get(call.name, Circuit())
                self._circuits[call.name] = after_call(breaker, circuit, result, self._clock())
        return result

    def is_open(self, tool: str) -> bool:
        """Whether a tool is left alone because it keeps failing."""
        with self._lock:
            return self._circuits.get(tool, Circuit()).opened_at is not None

    def _held_back(self, call: ToolCall, now: float) -> ToolResult | None:
        breaker, rate = self._breakers.get(call.name), self._rates.get(call.name)
        circuit = self._circuits.get(call.name, Circuit())
        if breaker is not None:
            circuit, wait = try_circuit(breaker, circuit, now)
            if wait > 0:
                text = f"{call.name} keeps failing and is left alone for {math.ceil(wait)} seconds."
                return error_result(call, "temporary", text)
        if rate is not None:
            self._buckets[call.name], wait = take(rate, self._buckets.get(call.name), now)
            if wait > 0:
                text = f"{call.name} was called too often; wait {math.ceil(wait)} seconds."
                return error_result(call, "temporary", text)
        if breaker is not None:
            self._circuits[call.name] = circuit
        return None
