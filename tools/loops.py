"""Notices a model that goes round in circles: the same calls again and again, with nothing new to see.

The rule. A call is told from others by its fingerprint, taken after ``tools.prepare``: neither its id, nor the order
of its arguments, nor defaults spelled out make it a new one. A call closes a cycle of length 1, 2 or 3 for the n-th
time when the last n blocks of that many calls are all the same. The third time it is not run and the model is warned;
the fourth time the run ends. Whether the calls succeeded does not matter, for an empty list again is no progress.

Retries are another matter: a call that failed for the time being may be tried twice more. Such attempts are left out
of the cycles and counted by themselves: the fourth attempt is a warning, the fifth ends the run.

What was called before the data changed is forgotten, since the same question may have another answer then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from tools.call import ToolCall, ToolResult
from tools.plain import PlainRecord

WINDOW: Final = 24
"""Calls that are remembered; enough for four turns of the longest cycle with retries in between."""

LONGEST_CYCLE: Final = 3
"""Calls in the longest cycle that is looked for."""

WARNED_TIME: Final = 3
"""The time of a cycle that is answered with a warning; one more ends the run."""

RETRIES: Final = 2
"""Further attempts at a call that failed for the time being; one more is a warning, and then the run ends."""

Verdict: TypeAlias = Literal["go", "warn", "stop"]


class Seen(PlainRecord, frozen=True, forbid_unknown_fields=True):
    """One earlier call; ``temporary`` says that it is an attempt which failed for the time being."""

    fingerprint: str
    temporary: bool = False


class CallHistory(PlainRecord, frozen=True, forbid_unknown_fields=True):
    """The calls since the data last changed, oldest first, at most ``WINDOW``."""

    seen: tuple[Seen, ...] = ()
    data_version: str = ""


class Judgement(PlainRecord, frozen=True, forbid_unknown_fields=True):
    """What to do with a call, and why: the ``times``-th time of a cycle of ``length`` calls, or attempt."""

    verdict: Verdict
    times: int
    length: int
    is_retry: bool

    def text(self, name: str) -> str:
        """What the model is told."""
        end = "this run ends." if self.verdict == "stop" else "do something else or finish."
        if self.is_retry:
            return f"{name} has failed for the time being {self.times - 1} times; {end}"
        if self.length == 1:
            return f"{name} was called {self.times} times with the same arguments; {end}"
        return f"The same {self.length} calls were made {self.times} times over, {name} among them; {end}"


def judge(history: CallHistory, fingerprint: str, data_version: str = "") -> Judgement:
    """Say whether a call may run, given the calls before it."""
    seen = _since(history, data_version)
    attempt = _attempts(seen, fingerprint) + 1
    times, length = cycles([item.fingerprint for item in seen if not item.temporary] + [fingerprint])
    retried = _verdict(attempt, RETRIES + 2)
    repeated = _verdict(times, WARNED_TIME)
    order: Sequence[Verdict] = ("go", "warn", "stop")
    if order.index(retried) > order.index(repeated):
        return Judgement(retried, attempt, 1, True)
    return Judgement(repeated, times, length, False)


def note(history: CallHistory, fingerprint: str, *, temporary: bool = False, data_version: str = "") -> CallHistory:
    """The history with one more call, whatever became of it.

    ``temporary`` is for an attempt that failed for the time being, and for one refused after too many of those.
    """
    seen = (*_since(history, data_version), Seen(fingerprint, temporary))
    return CallHistory(seen[-WINDOW:], data_version)


def history_of(exchanges: Iterable[tuple[ToolCall, ToolResult]]) -> CallHistory:
    """The history that calls and their results amount to, for a run that keeps its conversation and nothing else."""
    history = CallHistory()
    for call, result in exchanges:
        is_retry = judge(history, call.fingerprint).is_retry
        history = note(history, call.fingerprint, temporary=is_retry or result.kind == "temporary")
    return history


def cycles(fingerprints: Sequence[str]) -> tuple[int, int]:
    """How often the last calls repeat, and in cycles of what length: the most times, the shortest cycle."""
    calls = list(fingerprints)
    best = (0, 1)
    for length in range(1, LONGEST_CYCLE + 1):
        block, start, times = calls[-length:], len(calls) - length, 0
        while start >= 0 and calls[start : start + length] == block:
            start, times = start - length, times + 1
        if times > best[0]:
            best = (times, length)
    return best


def _since(history: CallHistory, data_version: str) -> tuple[Seen, ...]:
    return history.seen if history.data_version == data_version else ()


def _attempts(seen: Sequence[Seen], fingerprint: str) -> int:
    """The attempts that failed for the time being since the call last got another result."""
    count = 0
    for item in reversed(seen):
        if item.fingerprint == fingerprint:
            if not item.temporary:
                break
            count += 1
    return count


def _verdict(times: int, warned: int) -> Verdict:
    if times < warned:
        return "go"
    return "warn" if times == warned else "stop"
