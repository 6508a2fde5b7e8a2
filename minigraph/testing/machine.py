"""A Hypothesis state machine that does to a graph's threads whatever a program could. It needs Hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from minigraph.checkpoint.base import Saver
from minigraph.checkpoint.memory import InMemorySaver
from minigraph.testing.crash import GraphBuilder
from minigraph.testing.rules import Answers, Inputs, Settings, ThreadMachine
from minigraph.testing.strategies import inputs_for, values_of
from minigraph.types import StateSnapshot

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import SearchStrategy
except ImportError as error:
    raise ImportError(
        "the strategies of minigraph.testing need Hypothesis: pip install 'minigraph[testing]'", name="hypothesis"
    ) from error


def thread_machine(
    make_graph: GraphBuilder | SearchStrategy[GraphBuilder],
    *,
    inputs: Inputs = inputs_for,
    updates: Inputs | None = None,
    edit_as: Sequence[str | None] | None = None,
    answers: Answers | None = None,
    make_saver: Callable[[], Saver] = InMemorySaver,
    reopen: Callable[[Saver], Saver] | None = None,
    invariants: Sequence[Callable[[StateSnapshot], None]] = (),
    failures: type[Exception] | tuple[type[Exception], ...] = (),
    mode: Literal["sync", "async"] = "sync",
    recursion_limit: int = 25,
) -> type[ThreadMachine]:
    """A state machine for a graph: `TestThreads = thread_machine(make_graph).TestCase` is a test of pytest.

    It runs the graph on two threads, answers questions (one, several, and old ones again), goes on, replays and forks
    any checkpoint, edits the state, copies, prunes and deletes threads, and stops the process before or after any
    write of a call; then it goes on with a new graph on the same storage. After each of these it demands what always
    holds (`minigraph.testing.past`): stored checkpoints never change, results change at the head alone, finished
    tasks never run twice, answers are accepted once, states are what their steps wrote. It raises LawError where one
    fails, and Hypothesis shows the shortest way there.

    `make_graph` compiles the graph with the saver it is given, anew after each crash; a strategy of such functions
    draws one for each example. `inputs` and `updates` (the values of edits; default: `inputs`) are strategies or
    functions that make one for a graph; `edit_as` are the nodes that edits stand for (default: any node, END, which
    ends a step, and None, the one that ran last, also before there was any input; empty: there are no edits).
    `answers` is a strategy, or a function that makes one for a question. `reopen` opens the storage of a saver again,
    as a new process would (default: the saver itself goes on). `invariants` are called with the state of each thread
    that was worked on. `failures` are exceptions that nodes may raise. Of the engine's own errors, InvalidUpdateError
    and GraphRecursionError may end a call. Raises ValueError for another mode.
    """
    if mode not in ("sync", "async"):
        raise ValueError(f'thread_machine(mode={mode!r}): the modes are "sync" and "async"')
    settings = Settings(
        graphs=make_graph if isinstance(make_graph, SearchStrategy) else st.just(make_graph),
        inputs=inputs,
        updates=inputs if updates is None else updates,
        edit_as=edit_as,
        answers=values_of(Any) if answers is None else answers,
        make_saver=make_saver,
        reopen=reopen or (lambda saver: saver),
        invariants=tuple(invariants),
        failures=failures if isinstance(failures, tuple) else (failures,),
        mode=mode,
        recursion_limit=recursion_limit,
    )
    return type("ThreadMachine", (ThreadMachine,), {"given": settings})
