"""Laws of what a thread keeps: finished tasks, answers, edits, the state itself, and who may write.

Each holds for every program and raises LawError, naming the law and what broke it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from minigraph.calls import JoinNeverFiredWarning
from minigraph.checkpoint.base import Saver
from minigraph.checkpoint.memory import InMemorySaver
from minigraph.compiled import CompiledGraph
from minigraph.errors import GraphRecursionError, InvalidUpdateError, ThreadConflictError, UnknownInterruptError
from minigraph.records import Finished, Stored, Write
from minigraph.testing.building import build
from minigraph.testing.crashing import CrashingSaver
from minigraph.testing.engines import minigraph_engine
from minigraph.testing.instrument import Seen, watched
from minigraph.testing.law_error import LawError, demand_same
from minigraph.testing.programs import Input, Program, answer_to, input_of
from minigraph.testing.reference import Reference, shown
from minigraph.testing.scheduling import Schedule
from minigraph.testing.traces import ROUNDS, Trace, plain, plain_state, run
from minigraph.types import Command

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t"}, "recursion_limit": 25}


def steps_follow_the_rules(program: Program) -> None:
    """Every stored step is what `reference` works out for it: state, tasks, joins, nodes held back, parent."""
    saver = InMemorySaver()
    _in_turn(program, saver)
    reference = Reference(program)
    stored = {item.checkpoint.id: item for item in saver.history("t", "")}
    for item in stored.values():
        parent = stored.get(item.checkpoint.parent_id or "")
        if item.checkpoint.source != "loop":
            continue
        law = f"steps follow the rules (step {item.checkpoint.step})"
        if parent is None:
            raise LawError(law, f"its parent {item.checkpoint.parent_id} is not stored")
        if unfinished := _unfinished(parent):
            raise LawError(law, f"the step was ended although {unfinished} had not finished")
        grandparent = stored.get(parent.checkpoint.parent_id or "")
        older = () if grandparent is None else tuple(task.id for task in grandparent.checkpoint.due)
        demand_same(law, reference.after(parent, older), shown(item.checkpoint))


def _unfinished(stored: Stored) -> list[str]:
    finished = {result.task_id for result in stored.results if isinstance(result, Finished)}
    return [task.node for task in stored.checkpoint.due if task.id not in finished]


def no_task_runs_twice(program: Program) -> None:
    """A node that has returned is not called again for the same task, whatever its siblings or routers did."""
    returned: set[tuple[str, str]] = set()

    def watch(seen: Seen) -> Callable[[], None]:
        call = (seen.what, seen.task.id)
        if seen.what.startswith("node") and call in returned:
            raise LawError("no task runs twice", f"{seen.what} had returned for task {seen.task.id} and ran again")
        return lambda: returned.add(call)

    saver = InMemorySaver()
    _in_turn(program, saver, watched(build(program, minigraph_engine(), saver), watch))


def copies_belong_to_the_task(program: Program) -> None:
    """A node or router may do what it likes to the lists, dicts and sets of its state: nobody else sees it."""
    saver = InMemorySaver()
    spoilt = watched(build(program, minigraph_engine(), saver), lambda seen: lambda: _spoil(seen))
    demand_same("copies belong to the task", _in_turn(program), _in_turn(program, saver, spoilt))


def _spoil(seen: Seen) -> None:
    for value in seen.argument.values() if seen.own == 2 else ():
        if isinstance(value, list | dict | set):
            value.clear()


def an_answer_counts_once(program: Program) -> None:
    """Several open questions take their own answers, in any order; a second answer to one is refused."""
    law = "an answer counts once"
    plain_program = _first_turn(program)
    ends = [_in_turn(replace(plain_program, one_by_one=choice)) for choice in (True, False)]
    if all(trace.calls[-1].ended == "ok" and not trace.calls[-1].next for trace in ends):
        demand_same(law, *(trace.end for trace in ends))
    saver = InMemorySaver()
    graph = _graph(plain_program, saver)
    ended = _call(graph, input_of(_input(plain_program)))
    for _ in range(6):
        if ended != "ok" or not (questions := graph.get_state(CONFIG).interrupts):
            return
        answer: Command[Any] = Command(resume={questions[-1].id: answer_to(program, questions[-1].value)})
        ended, before = _call(graph, answer), _all(saver)
        still = {question.id for question in graph.get_state(CONFIG).interrupts}
        if ended == "ok" and not still >= {question.id for question in questions[:-1]}:
            raise LawError(law, f"an answer to {questions[-1].value!r} closed other questions as well")
        if (second := _call(graph, answer)) != "unknown":
            raise LawError(
                law, f"question {questions[-1].value!r} was answered twice; the second call ended {second!r}"
            )
        demand_same(law, before, _all(saver))


def another_run_stops_this_one(program: Program) -> None:
    """Where another run moves the head first, a run stores nothing more and its caller is told."""
    law = "another run stops this one"
    first = _first_turn(program)
    alone = Contended(InMemorySaver())
    _call(_graph(first, alone), input_of(_input(first)))
    for number in range(2, min(alone.writes, 6) + 1):
        saver = Contended(InMemorySaver(), number)
        ended = _call(_graph(first, saver), input_of(_input(first)))
        if saver.moved and ended != "conflict":
            raise LawError(law, f"another run had moved the head before write {number}, and this one ended {ended!r}")
        demand_same(law, saver.moved, _all(saver.inner) if saver.moved else ())


class Contended(CrashingSaver):
    """A saver in which another run moves the head just before write number `at` to the root's namespace."""

    moved: tuple[Stored, ...] = ()
    """What was stored right after that."""

    def put(self, write: Write) -> int:
        """`put` of the other saver; that of the other run follows at once where this run's next write is `at`."""
        revision = self.inner.put(write)
        if write.namespace:  # a child graph stores for itself
            return revision
        self.writes += 1
        if self.writes + 1 == self.at:
            self.inner.put(Write(write.thread_id, write.namespace, revision))
            self.moved = _all(self.inner)
        return revision


def a_limit_of_n_allows_n_steps(program: Program) -> None:
    """A run of n steps passes with recursion_limit=n; with one less it stops, and goes on to the same end."""
    law = "a limit of n allows n steps"
    first = _first_turn(program)
    if any(node.kind in ("child", "call_child") for node in first.nodes):
        return  # the limit counts for children as well
    alone = InMemorySaver()
    ended = _call(_graph(first, alone, knows_answers=True), input_of(_input(first)))
    steps = sum(stored.checkpoint.source == "loop" for stored in _all(alone)) - 1  # the first applies the input
    if ended != "ok" or steps < 2:
        return
    for limit, wanted in ((steps, "ok"), (steps - 1, "limit")):
        saver = InMemorySaver()
        graph = _graph(first, saver, knows_answers=True)
        ended = _call(graph, input_of(_input(first)), {**CONFIG, "recursion_limit": limit})
        if ended != wanted:
            raise LawError(law, f"{steps} steps with recursion_limit={limit} ended {ended!r} instead of {wanted!r}")
        if ended == "limit":
            _call(graph, None)
        demand_same(law, plain(_all(alone)[0].checkpoint.values), plain(_all(saver)[0].checkpoint.values))


def breakpoints_change_nothing(program: Program) -> None:
    """A run that is held before every node and after one, and goes on each time, is the run that was not held."""
    first = _first_turn(program)
    names = tuple(node.name for node in first.nodes)
    straight = _in_turn(first)
    short = len(straight.history) + len(straight.calls) < ROUNDS
    if straight.calls[-1].ended == "ok" and not straight.calls[-1].next and short:
        held = _in_turn(replace(first, before=names, after=names[:1]))
        demand_same("breakpoints change nothing", *((trace.end, trace.history) for trace in (straight, held)))


def an_edit_stands_for_its_node(program: Program) -> None:
    """`update_state` as the one node that waits, with what it would return, leads to where its answer leads."""
    first = _first_turn(program)
    saver = InMemorySaver()
    graph = _graph(first, saver)
    ended = _call(graph, input_of(_input(first)))
    knowing = Reference(first).graph
    for _ in range(6):
        waiting = [task for task in graph.get_state(CONFIG).tasks if task.result is None]
        if ended != "ok" or not waiting:
            return
        task = waiting[0]
        if len(waiting) == 1 and task.path[0] == "node" and program.node(task.name).kind == "ask":
            saver.copy_thread("t", "edited")
            elsewhere = {**CONFIG, "configurable": {"thread_id": "edited"}}
            values = knowing.nodes[task.name].callee.function(dict(_all(saver)[0].checkpoint.values))
            edited = _edit(graph, elsewhere, values, task.name)
            ends = (_call(graph, _answers(program, graph)), _call(graph, None, elsewhere) if edited == "ok" else edited)
            if edited == "refused":
                demand_same("an edit stands for its node", *ends)
            elif "limit" not in ends:
                left, right = ([_state(stored) for stored in _all(saver, thread)] for thread in ("t", "edited"))
                demand_same("an edit stands for its node", tuple(left), tuple(right))
            return
        ended = _call(graph, _answers(program, graph))


def answers_outlive_failures(program: Program) -> None:
    """A node that fails after it was answered is not asked for its answer again, and ends as if it had not failed."""
    asking = [node for node in program.nodes if node.kind in ("ask", "ask_twice")]
    if not asking:
        return
    failing = replace(
        program, nodes=tuple(replace(n, kind="ask_and_fail") if n in asking else n for n in program.nodes)
    )
    asked = replace(program, nodes=tuple(replace(n, kind="ask") if n in asking else n for n in program.nodes))
    traces = [_in_turn(_first_turn(each)) for each in (asked, failing)]
    if all(trace.calls[-1].ended == "ok" and not trace.calls[-1].next for trace in traces):
        left, right = ((sum(c.given == "answer" for c in t.calls), t.end, t.history) for t in traces)
        demand_same("answers outlive failures", left, right)


THREAD_LAWS: tuple[Callable[[Program], None], ...] = (
    steps_follow_the_rules,
    no_task_runs_twice,
    copies_belong_to_the_task,
    an_answer_counts_once,
    another_run_stops_this_one,
    a_limit_of_n_allows_n_steps,
    breakpoints_change_nothing,
    an_edit_stands_for_its_node,
    answers_outlive_failures,
)
"""The laws of this module."""


# ---------------------------------------------------------------------------- parts


def _first_turn(program: Program) -> Program:
    """The program without breakpoints and failures of its own, asked for one input."""
    nodes = tuple(replace(node, kind="write") if node.kind == "fail_once" else node for node in program.nodes)
    routers = tuple(replace(router, fails_once=False) for router in program.routers)
    return replace(program, nodes=nodes, routers=routers, before=(), after=(), turns=(_input(program),))


def _input(program: Program) -> Input:
    return next((turn for turn in program.turns if isinstance(turn, Input)), Input(0))


def _graph(program: Program, saver: Saver, *, knows_answers: bool = False) -> CompiledGraph:
    graph: CompiledGraph = build(program, minigraph_engine(), saver, knows_answers=knows_answers)
    return graph


def _in_turn(program: Program, saver: Saver | None = None, graph: CompiledGraph | None = None) -> Trace:
    """A trace in which the tasks of a step finish one after the other."""

    def stream(graph: CompiledGraph, given: Any, config: Any) -> Iterator[Any]:
        return Schedule().stream(graph, given, config, stream_mode=["updates", "values"])

    return run(program, saver=saver, graph=graph, stream=stream)


def _call(graph: CompiledGraph, given: Any, config: Mapping[str, Any] = CONFIG) -> str:
    """How a call ended, in a word."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JoinNeverFiredWarning)
            Schedule().invoke(graph, given, config)
    except InvalidUpdateError:
        return "refused"
    except GraphRecursionError:
        return "limit"
    except UnknownInterruptError:
        return "unknown"
    except ThreadConflictError:
        return "conflict"
    return "ok"


def _edit(graph: CompiledGraph, config: Mapping[str, Any], values: Any, node: str) -> str:
    """How an edit ended: "refused" where what it completes cannot be merged."""
    try:
        graph.update_state(config, values, as_node=node)
    except InvalidUpdateError:
        return "refused"
    return "ok"


def _answers(program: Program, graph: CompiledGraph) -> Command[Any]:
    return Command(resume={q.id: answer_to(program, q.value) for q in graph.get_state(CONFIG).interrupts})


def _all(saver: Saver, thread: str = "t") -> tuple[Stored, ...]:
    """Everything stored for a thread, newest first."""
    return tuple(saver.history(thread, ""))


def _state(stored: Stored) -> tuple[Any, tuple[str, ...]]:
    return plain_state(stored.checkpoint.values), tuple(task.node for task in stored.checkpoint.due)
