"""The round trip shows at once what a pause would change: identities, aliases, and types that are not kept."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, TypedDict, cast

import pytest
from conftest import Sync, build, chain, fan, thread
from hypothesis import HealthCheck, given, settings

from minigraph import START, Command, CompiledGraph, Overwrite, Send, StateGraph, interrupt
from minigraph.channels import UntrackedValue
from minigraph.checkpoint import InMemorySaver, SqliteSaver
from minigraph.errors import UnstorableValueError
from minigraph.testing import Program, draw_program, graphs, minigraph_engine, round_trip
from minigraph.testing import build as build_program
from minigraph.testing import run as run_program
from minigraph.testing.traces import async_stream, first_difference


@dataclass
class Seat:
    row: int


class Words(list[str]):
    """A list of its own type, which storage does not keep."""


def joined(old: Any, new: Any) -> Any:
    return Words([*(old or ()), *new])


class Reduced(TypedDict):
    words: Annotated[Any, joined]


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    value: Any
    seat: Seat
    link: Annotated[Any, UntrackedValue]


def graph_of(nodes: dict[str, Any], saver: Any = None, *, parallel: bool = False, **options: Any) -> CompiledGraph:
    return build(nodes, fan(*nodes) if parallel else chain(*nodes), saver, state=State, **options)


def refused(graph: CompiledGraph, given: Any, run: Sync, *types: type) -> UnstorableValueError:
    with pytest.raises(UnstorableValueError) as caught:
        run.invoke(round_trip(graph, *types), given)
    return caught.value


# ------------------------------------------------------------------- identities


def test_a_node_does_not_meet_the_object_that_another_wrote(run: Sync) -> None:
    kept = [1]
    met: list[bool] = []

    def write(state: Any) -> dict[str, Any]:
        return {"value": {"kept": kept}}

    def read(state: Any) -> dict[str, Any]:
        met.append(state["value"]["kept"] is kept)
        return {}

    graph = graph_of({"write": write, "read": read})
    run.invoke(graph, {"log": []})
    run.invoke(round_trip(graph), {"log": []})
    assert met == [True, False]


def test_each_reader_of_a_step_and_each_step_gets_an_object_of_its_own(run: Sync) -> None:
    met: list[int] = []
    alive: list[Any] = []

    def read(state: Any) -> dict[str, Any]:
        alive.append(state["value"])
        met.append(id(state["value"]["inner"]))
        return {}

    graph = build({"a": read, "b": read, "c": read}, [*fan("a", "b"), ("a", "c"), ("b", "c")], state=State)
    run.invoke(round_trip(graph), {"value": {"inner": [1]}})
    assert len(set(met)) == 3


def test_two_keys_with_one_object_become_two(run: Sync) -> None:
    def write(state: Any) -> dict[str, Any]:
        shared = [1]
        return {"value": [shared, shared], "log": [shared]}

    def read(state: Any) -> dict[str, Any]:
        first, second = state["value"]
        return {"log": [first is second, state["log"][0] is first]}

    assert run.invoke(round_trip(graph_of({"write": write, "read": read})), {"log": []})["log"] == [[1], False, False]


# ------------------------------------------------------------------------ types


def test_a_type_that_is_kept_stays(run: Sync) -> None:
    graph = graph_of({"write": lambda state: {"seat": Seat(3), "value": (1, {2}, 2**70)}, "read": lambda state: {}})
    assert run.invoke(round_trip(graph), {"log": []}) == {"log": [], "seat": Seat(3), "value": (1, {2}, 2**70)}


def test_a_write_that_cannot_be_stored_names_node_key_path_and_type(run: Sync) -> None:
    error = refused(graph_of({"write": lambda state: {"value": {"words": [Words()]}}}), {"log": []}, run)
    assert (error.node, error.key, error.path, error.type_name) == (
        "write", "value", "$.words[0]", f"{__name__}.Words",
    )  # fmt: skip
    assert "node 'write': key 'value' at $.words[0]: a value of type" in str(error)


@dataclass
class Unknown:
    row: int


class Inner(TypedDict):
    unknown: Unknown


def test_a_class_that_no_schema_names_must_be_passed(run: Sync) -> None:
    graph = graph_of({"write": lambda state: {"value": Unknown(1)}})
    assert refused(graph, {"log": []}, run).type_name == f"{__name__}.Unknown"
    assert run.invoke(round_trip(graph, Unknown), {"log": []})["value"] == Unknown(1)


def test_input_that_cannot_be_stored_is_named(run: Sync) -> None:
    error = refused(graph_of({"a": lambda state: {}}), {"value": object()}, run)
    assert (error.node, error.key, error.path) == (START, "value", "$")
    assert str(error).startswith("the input: key 'value'")


def test_what_a_reducer_makes_is_held_to_it_too(run: Sync) -> None:
    graph = build({"write": lambda state: {"words": ["b"]}}, chain("write"), state=Reduced)
    error = refused(graph, {"words": ["a"]}, run)  # the first write is stored as it is, the second is reduced
    assert (error.node, error.key, error.type_name) == ("write", "words", f"{__name__}.Words")


def test_sends_questions_and_overwrites_are_held_to_it(run: Sync) -> None:
    def sends(state: Any) -> Command[Any]:
        return Command(goto=Send("read", {"deep": [object()]}))

    graph = build({"send": sends, "read": lambda item: {}}, [(START, "send")], state=State)
    error = refused(graph, {"log": []}, run)
    assert (error.node, error.path) == ("send", "$.goto.arg.deep[0]")
    error = refused(graph_of({"ask": lambda state: {"value": interrupt(object())}}), {"log": []}, run)
    assert (error.node, error.key) == ("ask", "interrupt")
    error = refused(graph_of({"over": lambda state: {"log": Overwrite([object()])}}), {"log": []}, run)
    assert (error.node, error.key) == ("over", "log")


def test_a_send_payload_an_answer_and_a_question_are_copies(run: Sync) -> None:
    given, asked = {"items": [1]}, {"what": ["?"]}
    met: list[bool] = []

    def sends(state: Any) -> Command[Any]:
        return Command(goto=Send("read", {"given": given}))

    def read(item: Any) -> dict[str, Any]:
        answer = interrupt(asked)
        met.extend([item["given"] is given, answer is given])
        return {"value": answer}

    graph = build({"send": sends, "read": read}, [(START, "send")], InMemorySaver(), state=State)
    tripped = round_trip(graph)
    paused = run.invoke(tripped, {"log": []}, thread())
    assert paused["__interrupt__"][0].value == asked
    assert paused["__interrupt__"][0].value is not asked
    assert run.invoke(tripped, Command(resume=given), thread())["value"] == given
    assert met == [False, False]


def test_an_untracked_key_is_left_alone(run: Sync) -> None:
    link = object()
    met: list[bool] = []

    def read(state: Any) -> dict[str, Any]:
        met.append(state["link"] is link)
        return {"log": ["read"]}

    graph = graph_of({"open": lambda state: {"link": link, "log": ["open"]}, "read": read})
    assert run.invoke(round_trip(graph), {"log": []})["log"] == ["open", "read"]
    assert met == [True]


# --------------------------------------------------------------------- children


def test_child_graphs_are_held_to_it_at_any_depth_and_inside_of_functions(run: Sync) -> None:
    inner = graph_of({"deep": lambda state: {"value": Words()}})
    nested = graph_of({"outer": graph_of({"middle": inner})})
    assert refused(nested, {"log": []}, run).node == "deep"

    def call(state: Any) -> dict[str, Any]:
        return {"value": inner.invoke({"log": []})["value"]}

    assert refused(graph_of({"call": call}), {"log": []}, run).node == "deep"


def test_a_child_that_only_code_knows_brings_its_own_classes(run: Sync) -> None:
    inner = build({"write": lambda state: {"unknown": Unknown(2)}}, chain("write"), state=Inner)

    def call(state: Any) -> dict[str, Any]:
        return {"log": [inner.invoke({"unknown": Unknown(1)})["unknown"].row]}

    assert run.invoke(round_trip(graph_of({"call": call})), {"log": []})["log"] == [2]


# -------------------------------------------------------------------------- laws


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))  # pyright: ignore[reportArgumentType]  # hypothesis leaves its metaclass untyped
@given(graphs(size=5, failing_routers=True))
def test_on_random_programs_the_round_trip_changes_nothing(program: Program) -> None:
    wanted = run_program(program)
    saver = InMemorySaver()
    found = run_program(program, saver=saver, graph=round_trip(build_program(program, minigraph_engine(), saver)))
    assert first_difference(wanted, found) == ""


def test_it_changes_nothing_with_asyncio_and_a_file_either() -> None:
    for seed in range(12):
        program = draw_program(Random(seed))
        with SqliteSaver(":memory:") as saver:
            graph = round_trip(build_program(program, minigraph_engine(), saver))
            found = run_program(program, saver=saver, graph=graph, stream=async_stream)
        assert first_difference(run_program(program, stream=async_stream), found) == ""


def test_the_original_graph_stays_as_it_was() -> None:
    graph = graph_of({"write": lambda state: {"value": Words(["a"])}})
    round_trip(graph)
    assert type(graph.invoke({"log": []})["value"]) is Words


def test_the_state_may_be_one_value() -> None:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(cast(Any, Annotated[list[Any], operator.add]))
    graph: CompiledGraph = round_trip(builder.add_node("a", lambda items: [len(items)]).add_edge(START, "a").compile())
    found: Any = graph.invoke([5])
    assert found == [5, 1]
