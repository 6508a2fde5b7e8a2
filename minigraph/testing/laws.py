"""Laws that hold for every program and every reducer. Each raises LawError, naming the law and what broke it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minigraph.channels import fold
from minigraph.checkpoint.base import Saver
from minigraph.checkpoint.memory import InMemorySaver
from minigraph.checkpoint.sameness import same
from minigraph.compiled import CompiledGraph
from minigraph.records import Checkpoint, Finished, Result, Stored, Task
from minigraph.testing.building import build
from minigraph.testing.engines import minigraph_engine
from minigraph.testing.law_error import LawError, demand_same
from minigraph.testing.mutation import changed, snapshot
from minigraph.testing.programs import Fork, Input, Program, Replay
from minigraph.testing.scheduling import Schedule
from minigraph.testing.thread_laws import THREAD_LAWS
from minigraph.testing.traces import Entry, Trace, async_stream, plain_state, run
from minigraph.types import UNSET

# ------------------------------------------------------------------------- programs


def any_finishing_order(program: Program, schedule: Schedule) -> None:
    """Whatever task of a step finishes first: states, streams, questions, errors and history are the same."""

    def stream(graph: CompiledGraph, given: Any, config: Any) -> Any:
        return schedule.stream(graph, given, config, stream_mode=["updates", "values"])

    def in_turn(graph: CompiledGraph, given: Any, config: Any) -> Any:
        return Schedule().stream(graph, given, config, stream_mode=["updates", "values"])

    demand_same("any finishing order", run(program, stream=in_turn), run(program, stream=stream))


def sync_equals_async(program: Program) -> None:
    """Threads and asyncio give the same. Not compared: how a failing step looked before its siblings ran again.

    A failing step takes as many calls as there are failures and questions in it, and asyncio may ask later, so that a
    thread with a failure and without an end is cut elsewhere; it is not compared.
    """
    left, right = run(program), run(program, stream=async_stream)
    if any(call.ended == "failed" for call in left.calls):
        if any(trace.calls[-1].next for trace in (left, right)):
            return
        demand_same("sync equals async", (left.end, left.history), (right.end, right.history))
    else:
        demand_same("sync equals async", left, right)


def answers_known_before(program: Program) -> None:
    """A run that paused for its answers went the way of a run that knew them: the same checkpoints, the same end."""
    short = replace(program, turns=tuple(turn for turn in program.turns if isinstance(turn, Input)) or (Input(0),))
    asked, knew = run(short), run(short, knows_answers=True)
    if asked.calls[-1].ended == "refused" or knew.calls[-1].ended == "refused":
        demand_same("answers known before", asked.calls[-1].ended, knew.calls[-1].ended)
    elif _complete(asked) and _complete(knew):
        demand_same("answers known before", (asked.end, asked.history), (knew.end, knew.history))


def _complete(trace: Trace) -> bool:
    """Whether every turn came to its end, so that no limit on calls or steps plays a part."""
    return trace.calls[-1].ended == "ok" and not trace.calls[-1].next


def savers_agree(program: Program, *savers: Saver) -> None:
    """Every saver leads to the same trace; each is compared with the one in memory."""
    wanted = run(program)
    for saver in savers:
        demand_same(f"savers agree ({type(saver).__name__})", wanted, run(program, saver=saver))


def history_folds_to_state(program: Program) -> None:
    """Every state is its parent's with the stored results of the step folded in, key by key, in merge order."""
    saver = InMemorySaver()
    graph = build(program, minigraph_engine(), saver)
    run(program, saver=saver, graph=graph)
    check_history(graph, saver, "t")


def check_history(graph: CompiledGraph, saver: Saver, thread_id: str) -> None:
    """The same law for any thread of any graph: raises LawError where a stored state is not what its step wrote."""
    stored = {item.checkpoint.id: item for item in saver.history(thread_id, "")}
    for item in stored.values():
        checkpoint = item.checkpoint
        parent = stored.get(checkpoint.parent_id or "")
        if checkpoint.source != "loop" or parent is None:
            continue
        wanted, found = _folded(graph, parent), checkpoint.values
        law = f"history folds to the state (step {checkpoint.step})"
        demand_same(law, plain_state(wanted), plain_state(found))


def _folded(graph: CompiledGraph, parent: Stored) -> dict[str, Any]:
    def place(pair: tuple[Task, Result]) -> tuple[bool, str, int]:
        task, result = pair
        return (task.is_send, "" if task.is_send else result.node, task.index)

    results = {result.task_id: result for result in parent.results}
    pairs = sorted(((task, results[task.id]) for task in parent.checkpoint.due if task.id in results), key=place)
    writes: dict[str, list[tuple[str, Any]]] = {}
    for _, result in pairs:
        if not isinstance(result, Finished):
            raise LawError(
                "a step ends when its tasks have", f"task {result.task_id} of {result.node!r} had not finished"
            )
        for key, value in result.writes:
            writes.setdefault(key, []).append((result.node, value))
    values = dict(parent.checkpoint.values)
    for key, channel in graph.graph.channels.items():
        old = copy.deepcopy(values.pop(key, UNSET))
        new = fold(channel, key, old, writes[key]) if key in writes else channel.idle(old)
        if new is not UNSET:
            values[key] = new
    return values


def forks_leave_their_parent(program: Program) -> None:
    """Going on from an older checkpoint adds to the history; nothing that was there changes."""
    turns = tuple(turn for turn in program.turns if isinstance(turn, Input)) or (Input(0),)
    branches = (Replay(1), Fork(2, program.nodes[0].name, program.nodes[0].puts), Input(8))
    for branch in branches:
        saver = InMemorySaver()
        graph = build(program, minigraph_engine(), saver)
        before = run(replace(program, turns=turns), saver=saver, graph=graph)
        if not _complete(before):
            return
        older = _stored(saver)
        run(replace(program, turns=(branch,)), saver=saver, graph=graph)
        demand_same("a fork leaves its parent", older, _stored(saver)[: len(older)])


def _stored(saver: Saver) -> tuple[tuple[Checkpoint, tuple[Result, ...]], ...]:
    """Everything stored for the thread, oldest first."""
    return tuple((s.checkpoint, s.results) for s in reversed(list(saver.history("t", ""))))


def replay_equals_original(program: Program) -> None:
    """Going on from any older checkpoint, unchanged, leads through the same states to the same end.

    For programs whose nodes depend on nothing but their state: those that fail once only are left out.
    """
    if any(router.fails_once for router in program.routers):
        return
    first = replace(program, turns=(Input(0),), before=(), after=())
    original = run(first)
    if not _complete(original):
        return
    for back in range(len(original.history)):
        again = run(replace(first, turns=(Input(0), Replay(back))))
        branch = [entry for entry in again.history if _newer(again, entry, len(original.history))]
        if not branch:
            continue
        forked = branch[-1]
        assert forked.parent is not None, "a branch has a parent"
        rest = [e for e in original.history if _newer(original, e, forked.parent)]
        law = f"a replay equals the original (from checkpoint {forked.parent})"
        demand_same(law, tuple(_state(e) for e in rest), tuple(_state(e) for e in branch[:-1]))
        demand_same(law, original.end, again.end)


def _newer(trace: Trace, entry: Entry, place: int) -> bool:
    return len(trace.history) - trace.history.index(entry) > place


def _state(entry: Entry) -> tuple[Any, ...]:
    return (entry.source, entry.values, entry.next, entry.results)


PROGRAM_LAWS: tuple[Callable[[Program], None], ...] = (
    sync_equals_async,
    answers_known_before,
    history_folds_to_state,
    forks_leave_their_parent,
    replay_equals_original,
    *THREAD_LAWS,
)
"""The laws that need nothing but a program."""


# ------------------------------------------------------------------------- reducers


@dataclass(frozen=True, slots=True)
class ReducerReport:
    """What a reducer is like, with a counterexample (the values) where it is not.

    A reducer that is not commutative depends on the merge order (nodes by name, then Sends), which is fixed; one that
    is not associative depends on which writes share a step. Both are allowed.
    """

    not_commutative: tuple[Any, ...] | None
    not_associative: tuple[Any, ...] | None
    not_idempotent: tuple[Any, ...] | None


def reducer_laws(reducer: Callable[[Any, Any], Any], values: Iterable[Any], *, start: Any = UNSET) -> ReducerReport:
    """Checks a reducer on every pair and triple of example values (writes); `start` is the key's first value.

    What must hold: it gives the same result for the same arguments, it edits neither the value it was given (below
    the surface) nor the write, and it takes its own results. Raises LawError where that fails, and whatever the
    reducer raises. Give it the values that matter: empty ones, equal ones, several types if several are written.
    """
    examples = [copy.deepcopy(value) for value in values]
    if not examples:
        raise ValueError("reducer_laws(reducer, values=[]): give it at least one example of a write")
    olds = examples if start is UNSET else [start, *examples]
    results = [_checked_reduce(reducer, old, write) for old in olds for write in examples]
    for result in results[:20]:
        for write in examples:
            _checked_reduce(reducer, result, write)
    return ReducerReport(*_algebra(reducer, examples))


def _checked_reduce(reducer: Callable[[Any, Any], Any], old: Any, write: Any) -> Any:
    first_old, first_write = copy.deepcopy(old), copy.deepcopy(write)
    kept = [("the value so far", snapshot(first_old, own=1)), ("the write", snapshot(first_write))]
    first = reducer(first_old, first_write)
    call = f"reducer({old!r}, {write!r})"
    for name, before in kept:
        if (path := changed(before)) is not None:
            raise LawError("a reducer edits nothing in place", f"{call} edited {path} of {name}")
    second = reducer(copy.deepcopy(old), copy.deepcopy(write))
    if not same(first, second):
        raise LawError("a reducer is deterministic", f"{call} gave {first!r}, then {second!r}")
    return first


def _algebra(reducer: Callable[[Any, Any], Any], examples: Sequence[Any]) -> list[tuple[Any, ...] | None]:
    def reduce(a: Any, b: Any) -> Any:
        return reducer(copy.deepcopy(a), copy.deepcopy(b))

    pairs = [(a, b) for a in examples for b in examples]
    triples = [(a, b, c) for a, b in pairs for c in examples][:5_000]
    return [
        next(((a, b) for a, b in pairs if not same(reduce(a, b), reduce(b, a))), None),
        next(
            (t for t in triples if not same(reduce(reduce(t[0], t[1]), t[2]), reduce(t[0], reduce(t[1], t[2])))),
            None,
        ),
        next(((a,) for a in examples if not same(reduce(a, a), a)), None),
    ]


__all__ = [
    "PROGRAM_LAWS",
    "LawError",
    "ReducerReport",
    "answers_known_before",
    "any_finishing_order",
    "check_history",
    "forks_leave_their_parent",
    "history_folds_to_state",
    "reducer_laws",
    "replay_equals_original",
    "savers_agree",
    "sync_equals_async",
]
