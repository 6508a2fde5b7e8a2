"""Random programs whose nodes are called otherwise at every other call end as they would have ended without that."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import pytest

from minigraph import END, START, Command, Migration, Send, StateGraph
from minigraph.checkpoint import InMemorySaver, Saver, SqliteSaver
from minigraph.testing.building import Ledger, build
from minigraph.testing.drawing import draw_program
from minigraph.testing.engines import minigraph_engine
from minigraph.testing.programs import Input, Program
from minigraph.testing.traces import async_stream, run, sync_stream


def new(name: str) -> str:
    """Today's name of a node; the order of names stays."""
    return name if name in (START, END) else f"x{name}"


class Older(StateGraph[Any, Any, Any, Any]):
    """A graph that also knows the names its nodes have in `Newer`."""

    def compile(self, *arguments: Any, **options: Any) -> Any:
        """Compiles with a migration back."""
        names = {new(name): name for name in self._nodes}
        return super().compile(*arguments, **options, migrations=[Migration(nodes=names)])


class Newer(StateGraph[Any, Any, Any, Any]):
    """The same graph with other names for its nodes."""

    def add_node(self, node: Any, action: Any = None, **options: Any) -> Any:
        """Adds a node under its new name."""
        return super().add_node(new(node), self.renamed(action) if callable(action) else action, **options)

    def add_edge(self, start: Any, end: str) -> Any:
        """Adds an edge between new names."""
        return super().add_edge([*map(new, start)] if isinstance(start, list) else new(start), new(end))

    def add_conditional_edges(self, source: str, path: Any, path_map: Any = None) -> Any:
        """Adds a router that gives new names."""
        targets = path_map
        if isinstance(path_map, Mapping):
            targets = {key: new(name) for key, name in path_map.items()}
        elif path_map is not None:
            targets = [*map(new, path_map)]

        def route(state: Any) -> Any:
            return moved(path(state), isinstance(path_map, Mapping))

        route.__name__ = path.__name__
        return super().add_conditional_edges(new(source), route, targets)

    def compile(self, *arguments: Any, **options: Any) -> Any:
        """Compiles with a migration from the old names."""
        names = {name.removeprefix("x"): name for name in self._nodes}
        for breaks in ("interrupt_before", "interrupt_after"):
            options[breaks] = [*map(new, options.get(breaks) or ())] or None
        return super().compile(*arguments, **options, migrations=[Migration(nodes=names)])

    @staticmethod
    def renamed(action: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A node whose Commands go to new names."""

        def act(state: Any) -> Any:
            found = action(state)
            return [*map(commanded, found)] if isinstance(found, list) else commanded(found)

        return act


def commanded(found: Any) -> Any:
    """A Command to new names."""
    if not isinstance(found, Command):
        return found
    goto = found.goto if isinstance(found.goto, Sequence) and not isinstance(found.goto, str) else [found.goto]
    return dataclasses.replace(found, goto=[moved(target, False) for target in goto])


def moved(target: Any, mapped: bool) -> Any:
    """A target under its new name; `mapped` ones are keys of a map."""
    if isinstance(target, list):
        return [moved(each, mapped) for each in target]
    if isinstance(target, Send):
        return Send(new(target.node), target.arg)
    return target if mapped else new(target)


def ends(program: Program, saver: Saver, stream: Any, *, renaming: bool) -> Any:
    """How a program ends, where every other call is made by the graph with the new names."""
    engine, ledger = minigraph_engine(), Ledger()
    older = build(program, dataclasses.replace(engine, state_graph=Older), saver, ledger=ledger)
    newer = build(program, dataclasses.replace(engine, state_graph=Newer), saver, ledger=ledger)
    turns = itertools.cycle((older, newer) if renaming else (older,))

    def alternating(graph: Any, given: Any, config: Any) -> Any:
        return stream(next(turns), given, config)

    trace = run(program, engine, saver, stream=alternating, graph=older)
    questions = [call.questions for call in trace.calls]
    return trace.end, [call.ended for call in trace.calls], questions, newer.get_state(older_config()).values


def older_config() -> dict[str, Any]:
    """The config of the thread that programs run on."""
    return {"configurable": {"thread_id": "t"}}


def programs(count: int, first: int = 0) -> list[Program]:
    """Random programs whose turns are inputs, so that no checkpoint is named by its number."""
    found = []
    for seed in range(first, first + count):
        program = draw_program(Random(seed), deep_children=seed % 3 == 0)
        turns = tuple(turn for turn in program.turns if isinstance(turn, Input)) or (Input(0),)
        found.append(dataclasses.replace(program, turns=turns))
    return found


@pytest.mark.parametrize(("stream", "count"), [(sync_stream, 30), (async_stream, 12)], ids=["sync", "async"])
def test_a_program_whose_nodes_are_renamed_at_every_other_call_ends_the_same(stream: Any, count: int) -> None:
    paused = 0
    for program in programs(count):
        plain = ends(program, InMemorySaver(), stream, renaming=False)
        assert ends(program, InMemorySaver(), stream, renaming=True) == plain, program
        paused += len(plain[1]) > len(program.turns)
    assert paused > count // 4


@pytest.mark.slow
def test_many_programs_on_disk(request: pytest.FixtureRequest) -> None:
    if "slow" not in str(request.config.getoption("markexpr")):
        pytest.skip("a long sweep: -m slow runs it")
    for program in programs(1500, 150):
        plain = ends(program, InMemorySaver(), sync_stream, renaming=False)
        with SqliteSaver(":memory:") as saver:
            assert ends(program, saver, sync_stream, renaming=True) == plain, program
