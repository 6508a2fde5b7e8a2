"""Compares programs on this engine with LangGraph, and says which programs LangGraph cannot speak for."""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

from minigraph.testing.building import CrowdedError
from minigraph.testing.drawing import draw_program
from minigraph.testing.engines import Engine, langgraph_engine, minigraph_engine
from minigraph.testing.programs import PLAIN, Fork, Program
from minigraph.testing.traces import Call, Trace, first_difference, run


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of one program: the same on both, outside of the contract (why), or different (where)."""

    outcome: Literal["same", "outside", "different"]
    detail: str = ""


@dataclass(slots=True)
class Table:
    """The outcomes of many programs."""

    compared: int = 0
    calls: int = 0
    checkpoints: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)
    different: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Table) -> None:
        """Adds the outcomes of another table."""
        self.compared += other.compared
        self.calls += other.calls
        self.checkpoints += other.checkpoints
        self.ended += other.ended
        self.outside += other.outside
        self.different += other.different

    @classmethod
    def read(cls, text: str) -> Table:
        """The table that `lines` wrote. Raises ValueError where there is none, or where it has differences."""
        rows = dict(re.findall(r"^\| (.+) \| (\d+) \|$", text, re.MULTILINE))
        counts = {name: int(count) for name, count in rows.items()}
        if counts.get("differences") != 0:
            raise ValueError(f"a table to add up has a row `differences`, and it is 0; here it is {rows}")

        def part(start: str) -> Counter[str]:
            return Counter({n.removeprefix(start): count for n, count in counts.items() if n.startswith(start)})

        return cls(
            counts["programs compared"],
            counts["calls compared"],
            counts["checkpoints compared"],
            part("calls that ended: "),
            part("outside the contract: "),
        )

    def lines(self) -> list[str]:
        """The table in Markdown."""
        rows = [
            ("programs compared", self.compared),
            ("calls compared", self.calls),
            ("checkpoints compared", self.checkpoints),
            *((f"calls that ended: {name}", count) for name, count in sorted(self.ended.items())),
            *((f"outside the contract: {why}", count) for why, count in sorted(self.outside.items())),
            ("differences", len(self.different)),
        ]
        return ["| what | count |", "|---|---:|", *(f"| {name} | {count} |" for name, count in rows)]


def static_reason(program: Program) -> str:
    """Why a program is outside of what LangGraph can speak for, as far as the program alone tells; "" if it is not."""
    if any(join.target in join.sources for join in program.joins):
        return "a join leads to one of its own sources"
    if any(isinstance(turn, Fork) for turn in program.turns) and (program.joins or any(n.defer for n in program.nodes)):
        return "a fork where deferred nodes or targets of joins may be due"
    if any(router.fails_once for router in program.routers):
        return "a router fails"
    return ""


def compare(program: Program) -> Comparison:
    """Runs a program on both engines. Raises ImportError where LangGraph is not installed."""
    return compare_traces(program)[0]


def compare_traces(program: Program) -> tuple[Comparison, Trace | None]:
    """The comparison, and this engine's trace where there is one to look at.

    When a node fails, LangGraph drops what its siblings have not finished, so a failing node waits for them. On a
    loaded machine that wait can be too short: a program that differs is run once more with a longer one.
    """
    if why := static_reason(program):
        return Comparison("outside", why), None
    ours = _trace(program, minigraph_engine())
    if isinstance(ours, str) and ours.startswith(CrowdedError.__name__):
        return Comparison("outside", "tasks multiply without end"), None
    found = _compared(_trace(program, langgraph_engine()), ours)
    if found.outcome == "different":
        found = _compared(_trace(program, replace(langgraph_engine(), patience=1.0)), ours)
    return found, ours if found.outcome != "outside" and isinstance(ours, Trace) else None


def _compared(theirs: Trace | str, ours: Trace | str) -> Comparison:
    if why := _conflict_in_unfinished_step(theirs, ours):
        return Comparison("outside", why)
    if isinstance(theirs, str) or isinstance(ours, str):
        detail = "" if theirs == ours else f"LangGraph: {_name(theirs)}; minigraph: {_name(ours)}"
        return Comparison("different" if detail else "same", detail)
    if "limit" in (theirs.calls[-1].ended, ours.calls[-1].ended):
        return Comparison("outside", "the recursion limit is reached")
    detail = first_difference(theirs, ours)
    return Comparison("different" if detail else "same", detail)


def _conflict_in_unfinished_step(theirs: Trace | str, ours: Trace | str) -> str:
    """Whether writes conflict in a step that waits or has failed: LangGraph cannot read that thread, and ends early."""
    if isinstance(ours, str) or (isinstance(theirs, str) and not theirs.startswith("InvalidUpdateError")):
        return ""
    last = len(ours.calls) if isinstance(theirs, str) else len(theirs.calls) - 1
    ended_early = isinstance(theirs, str) or (theirs.calls[-1].ended == "refused" and last < len(ours.calls) - 1)
    conflict = ours.calls[-1].ended == "refused" or (last < len(ours.calls) and _conflicting(ours.calls[last]))
    return "writes conflict in a step that waits or failed" if ended_early and conflict else ""


def _conflicting(call: Call) -> bool:
    """Whether the updates of a call's last step cannot be merged: two Overwrites, or two writes of a plain key."""
    shown = [updates for updates in call.chunks[::2] if updates]
    counts: Counter[str] = Counter()
    for _, *update in shown[-1] if shown else ():
        for key, value in _writes_in(update[0] if update else None):
            if key in PLAIN or (isinstance(value, tuple) and value[:2] == ("tuple", "Overwrite")):
                counts[key] += 1
    return any(count > 1 for count in counts.values())


def _writes_in(update: Any) -> Iterator[tuple[str, Any]]:
    """The writes of one node's update as a trace has it: a dict, or a list of dicts."""
    kind, *parts = update if isinstance(update, tuple) else ("",)
    if kind == "dict":
        yield from parts
    elif kind == "list":
        for part in parts:
            yield from _writes_in(part)


def _trace(program: Program, engine: Engine) -> Trace | str:
    with _quiet():
        try:
            return run(program, engine)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def _name(trace: Trace | str) -> str:
    return trace if isinstance(trace, str) else "runs"


@contextmanager
def _quiet() -> Iterator[None]:
    """LangGraph logs and warns about what the programs do on purpose."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def sweep(seeds: Iterable[int], progress: Callable[[int, Comparison], None] | None = None) -> Table:
    """Compares one random program for each seed."""
    table = Table()
    for seed in seeds:
        found, trace = compare_traces(draw_program(Random(seed)))
        if found.outcome == "outside":
            table.outside[found.detail] += 1
        else:
            table.compared += 1
        if found.outcome == "different":
            table.different.append((seed, found.detail))
        if trace is not None:
            table.calls += len(trace.calls)
            table.checkpoints += len(trace.history)
            table.ended.update(call.ended for call in trace.calls)
        if progress is not None:
            progress(seed, found)
    return table


def smaller(program: Program, still: Callable[[Program], bool]) -> Program:
    """A smaller program of which `still` is true as well: parts are left out one at a time while that holds."""
    while True:
        for candidate in _parts_left_out(program):
            try:
                found = still(candidate)
            except Exception:
                continue  # not a program any more
            if found:
                program = candidate
                break
        else:
            return program


def _parts_left_out(program: Program) -> Iterator[Program]:
    for name in ("turns", "routers", "joins", "before", "after", "edges"):
        parts = getattr(program, name)
        for index in range(len(parts) - 1, -1, -1):
            yield replace(program, **{name: parts[:index] + parts[index + 1 :]})
    for index, node in enumerate(program.nodes):
        others = tuple(n for n in program.nodes if n is not node)
        edges = tuple(e for e in program.edges if node.name not in e)
        yield replace(program, nodes=others, edges=edges)
        options = [
            replace(node, kind="write", goto=(), child=None) if node.kind != "write" else node,
            replace(node, defer=False),
            *(replace(node, goto=node.goto[:i] + node.goto[i + 1 :]) for i in range(len(node.goto))),
            *(replace(node, puts=node.puts[:i] + node.puts[i + 1 :]) for i in range(len(node.puts))),
            *(replace(node, child=part) for part in (_parts_left_out(node.child) if node.child else ())),
        ]
        for changed in options:
            if changed != node:
                yield replace(program, nodes=(*program.nodes[:index], changed, *program.nodes[index + 1 :]))
    for index, router in enumerate(program.routers):
        for number in range(len(router.choices)):
            changed_router = replace(router, choices=router.choices[:number] + router.choices[number + 1 :])
            yield replace(program, routers=(*program.routers[:index], changed_router, *program.routers[index + 1 :]))
