"""The rules that differ from LangGraph on purpose, D1 to D30, each with a test named after it."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import enum
import inspect
import operator
import os
import re
import sqlite3
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from conftest import Sync, ask, build, chain, checkpoint_before, fan, odd, open_ids, say, sources, thread, words
from pydantic import BaseModel, Field

from minigraph import END, START, Command, JoinNeverFiredWarning, Overwrite, RetryPolicy, Send, StateGraph, interrupt
from minigraph.channels import RemainingSteps
from minigraph.checkpoint import InMemorySaver, Saver, SqliteSaver
from minigraph.checkpoint.codec import Codec
from minigraph.errors import (
    DecodeError,
    EmptyInputError,
    GraphInterrupt,
    GraphRecursionError,
    InvalidUpdateError,
    SwallowedInterruptError,
    ThreadConflictError,
    UnknownCheckpointError,
    UnknownInterruptError,
    UnknownNodeError,
    UnknownTargetError,
    UnstorableValueError,
)
from minigraph.records import Stored

T = thread()


# ------------------------------------------------------------------ D1 to D3: nothing is guessed


class Wide(TypedDict, total=False):
    amount: int
    address: str
    log: Annotated[list[Any], operator.add]


@pytest.mark.parametrize(
    "update",
    [
        {"amuont": 1},
        {"amount": 1, "amuont": 1},
        Command(update={"amuont": 1}),
        Command(update=[("amuont", 1)]),
        [Command(), {"amuont": 1}],
    ],
)
def test_d01_an_unknown_key_of_a_node_names_node_key_and_nearest(run: Sync, update: Any) -> None:
    graph = build({"pay": lambda s: update}, chain("pay"), InMemorySaver(), state=Wide)
    with pytest.raises(InvalidUpdateError, match=r"'pay'.*'amuont'.*did you mean 'amount'") as caught:
        run.invoke(graph, {}, T)
    assert (caught.value.node, caught.value.key) == ("pay", "amuont")


def test_d01_an_unknown_key_of_the_input_and_of_an_edit(run: Sync) -> None:
    graph = build({"pay": say("pay")}, chain("pay"), InMemorySaver(), state=Wide)
    for call in (
        lambda: run.invoke(graph, {"adress": ""}, T),
        lambda: run.update(graph, thread("new"), {"adress": ""}),
    ):
        with pytest.raises(InvalidUpdateError, match=r"'adress'.*did you mean 'address'"):
            call()


@odd("unknown-target", "unreachable-node")
def test_d02_an_unknown_target_is_a_value_error_with_its_choices(run: Sync) -> None:
    def hinted(s: Any) -> Literal["send"]:
        return "sent"  # type: ignore[return-value]

    made = [
        build(words("pay send"), chain("pay"), routers=[("pay", lambda s: "sned")]),
        build(words("pay send"), chain("pay"), routers=[("pay", lambda s: "sned", {"send": "send"})]),
        build(words("pay send"), chain("pay"), routers=[("pay", hinted)]),
        build(words("pay send"), chain("pay"), routers=[("pay", lambda s: [Send("sned")])]),
        build({"pay": lambda s: Command(goto="sned"), "send": say("send")}, chain("pay")),
        build({"pay": lambda s: Send("sned"), "send": say("send")}, chain("pay")),
        build(words("pay send"), [], routers=[(START, lambda s: "sned")]),
    ]
    for graph in made:
        with pytest.raises(ValueError, match="'send'") as caught:
            run.invoke(graph, {})
        assert isinstance(caught.value, UnknownTargetError)
        assert caught.value.node in ("pay", START)
        assert "send" in caught.value.choices


@odd("unreachable-node")
def test_d02_end_is_always_allowed(run: Sync) -> None:
    for router in ((lambda s: END, {"m": "m"}), (lambda s: END,), (lambda s: [END, "m"],)):
        assert run.invoke(build(words("a m"), chain("a"), routers=[("a", *router)]), {})["log"][:1] == ["a"]


@pytest.mark.parametrize("wrong", [{"m"}, True, Command(goto="m")])
def test_d02_a_router_that_returns_no_target_is_a_type_error(run: Sync, wrong: Any) -> None:
    with pytest.raises(TypeError, match="router"):
        run.invoke(build(words("a m"), chain("a"), routers=[("a", lambda s: wrong)]), {})


def test_d03_a_task_commits_only_together_with_its_routers(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    asked: list[Any] = []

    def router(s: Any) -> str:
        asked.append(s["log"][-1])
        if len(asked) == 1:
            raise RuntimeError("first")
        return "m"

    graph = build(words("a s m", runs), [*fan("a", "s"), ("a", "m")], saver, routers=[("a", router)])
    with pytest.raises(RuntimeError, match="first"):
        run.invoke(graph, {}, T)
    assert "a" not in run.state(graph, T).values["log"]
    assert run.state(graph, T).next[0] == "a"
    assert run.invoke(graph, None, T)["log"] == ["a", "s", "m"]
    assert (runs.count("a"), asked) == (1, ["a", "a"])


# ------------------------------------------------------------------ D4 to D8: answers


def test_d04_an_answer_belongs_to_its_question_and_is_accepted_once(run: Sync, saver: Saver) -> None:
    graph = build(
        {"n": lambda s: {"log": [interrupt("transfer 10?"), interrupt("transfer 10000?")]}}, chain("n"), saver
    )
    run.invoke(graph, {}, T)
    (first,) = open_ids(graph, T).values()
    run.invoke(graph, Command(resume={first: "yes"}), T)
    before = run.history(graph, T)
    for stale in (
        {first: "yes"},
        {"f" * 32: "yes"},
        {first: "yes", **dict.fromkeys(open_ids(graph, T).values(), "no")},
    ):
        with pytest.raises(UnknownInterruptError):
            run.invoke(graph, Command(resume=stale), T)
    assert run.history(graph, T) == before
    assert list(open_ids(graph, T)) == ["transfer 10000?"]


def test_d05_any_value_is_an_answer(run: Sync, saver: Saver) -> None:
    answers: tuple[Any, ...] = (None, {}, False, 0, "", [], {"0" * 31: 1}, {"A" * 32: 1}, {1: 2})
    for number, answer in enumerate(answers):
        config = thread(str(number))
        graph = build({"n": lambda s: {"value": interrupt("q")}}, chain("n"), saver)
        run.invoke(graph, {}, config)
        assert run.invoke(graph, Command(resume=answer), config)["value"] == answer


def test_d06_a_task_without_an_answer_is_not_run_again(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = build({"l": ask("L", runs), "r": ask("R", runs)}, fan("l", "r"), saver)
    run.invoke(graph, {}, T)
    ids = open_ids(graph, T)
    runs.clear()
    run.invoke(graph, Command(resume={ids["R"]: 1}), T)
    run.invoke(graph, None, T)
    assert runs == ["R"]
    assert open_ids(graph, T) == {"L": ids["L"]}


def test_d07_the_pause_passes_a_broad_except_and_a_swallowed_one_is_named(run: Sync) -> None:
    assert not issubclass(GraphInterrupt, Exception)

    def catching(kind: type[BaseException]) -> Any:
        def node(s: Any) -> dict[str, Any]:
            try:
                return {"log": [interrupt("q")]}
            except kind:
                return {"log": ["swallowed"]}

        return node

    assert "__interrupt__" in run.invoke(build({"n": catching(Exception)}, chain("n"), InMemorySaver()), {}, T)
    with pytest.raises(SwallowedInterruptError, match="'n'"):
        run.invoke(build({"n": catching(BaseException)}, chain("n"), InMemorySaver()), {}, T)


def test_d08_another_answer_at_an_answered_checkpoint_is_a_branch(run: Sync, saver: Saver) -> None:
    graph = build({"q": ask("q"), "z": say("z")}, chain("q", "z"), saver)
    run.invoke(graph, {}, T)
    at = run.state(graph, T).config
    run.invoke(graph, Command(resume="old"), T)
    old = run.history(graph, T)
    assert run.invoke(graph, Command(resume="new"), at)["log"] == [("q", "new"), "z"]
    new = run.history(graph, T)
    assert new[-len(old) :] == old
    assert run.state(graph, T).values["log"] == [("q", "new"), "z"]


# ------------------------------------------------------------------ D9 to D13: going on, limits, edits


def test_d09_the_heads_id_resumes_an_older_one_replays_and_a_finished_one_rests(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = build(words("a b c", runs), chain("a", "b", "c"), saver, interrupt_before=["c"])
    run.invoke(graph, {}, T)
    run.invoke(graph, None, run.state(graph, T).config)
    assert runs == ["a", "b", "c"]
    assert len(run.history(graph, T)) == 5
    assert run.invoke(graph, None, run.state(graph, T).config)["log"] == ["a", "b", "c"]
    assert len(run.history(graph, T)) == 5
    run.invoke(graph, None, checkpoint_before(graph, T, "b"))
    assert runs == ["a", "b", "c", "b"]
    assert "fork" in dict(sources(graph, T))


def test_d09_resume_replay_and_fork_say_it_in_words(saver: Saver) -> None:
    runs: list[Any] = []
    graph = build({"a": say("a", runs), "q": ask("q", runs), "z": say("z", runs)}, chain("a", "q", "z"), saver)
    graph.invoke({}, T)
    assert graph.resume(T, None)["log"] == ["a", ("q", None), "z"]
    at = checkpoint_before(graph, T, "q")
    runs.clear()
    assert graph.replay(at)["__interrupt__"][0].value == "q"
    assert runs == ["q"]
    assert graph.resume(T, 2)["log"] == ["a", ("q", 2), "z"]
    fork = graph.fork(at, {"log": ["edit"]})
    assert graph.get_state(T).config == fork
    assert "__interrupt__" in graph.resume(fork)
    assert asyncio.run(graph.aresume(T, 3))["log"] == ["a", "edit", ("q", 3), "z"]


def test_d09_resume_goes_on_at_the_head_and_nowhere_else(run: Sync, saver: Saver) -> None:
    def resume(config: Any, *answer: Any) -> Any:
        return asyncio.run(graph.aresume(config, *answer)) if run.is_async else graph.resume(config, *answer)

    graph = build({"a": ask("first?"), "b": ask("second?")}, chain("a", "b"), saver)
    run.invoke(graph, {}, T)
    first = run.state(graph, T).config
    assert resume(first, 1)["__interrupt__"][0].value == "second?"
    before = run.history(graph, T)
    for given in ((), ("for first",)):
        with pytest.raises(ValueError, match=r"older checkpoint.*answer\(config, answer\) or replay\(config\)"):
            resume(first, *given)
        with pytest.raises(UnknownCheckpointError):
            resume({"configurable": {"thread_id": "t", "checkpoint_id": "0" * 32}}, *given)
        with pytest.raises(ValueError, match="it is a str"):
            resume({"configurable": {"thread_id": "t", "checkpoint_id": 7}}, *given)
    assert run.history(graph, T) == before
    assert resume(run.state(graph, T).config, 2)["log"] == [("first?", 1), ("second?", 2)]


def test_d09_resume_at_a_child_graphs_config_takes_the_childs_head_alone() -> None:
    child = build({"a": say("a"), "q": ask("q")}, chain("a", "q"))
    graph = build({"c": child}, chain("c"), InMemorySaver())
    graph.invoke({}, T)
    inside: Any = graph.get_state(T).tasks[0].state
    head, *_, oldest = [shot.config for shot in graph.get_state_history(inside)]
    with pytest.raises(ValueError, match="older checkpoint"):
        graph.resume(oldest)
    assert graph.resume(head)["__interrupt__"][0].value == "q"
    assert graph.resume(T, 1)["log"] == ["a", ("q", 1)]


@pytest.mark.parametrize("config", ["t", 7, ["t"], {"configurable": "t"}])
def test_d10_what_is_no_config_is_a_type_error_that_says_what_one_is(run: Sync, config: Any) -> None:
    graph = build(words("a"), chain("a"), InMemorySaver())
    calls: list[Any] = [graph.resume, graph.replay, graph.fork, graph.get_state, lambda c: graph.answer(c, 1)]
    for call in (*calls, lambda c: run.invoke(graph, {}, c)):
        with pytest.raises(TypeError, match="a config is a dict that names the thread"):
            call(config)
    with pytest.raises(TypeError, match="a config is a dict that names the thread"):
        asyncio.run(graph.aresume(None))  # type: ignore[arg-type]


def test_d10_what_does_not_exist_is_an_error(run: Sync) -> None:
    graph = build(words("a"), chain("a"), InMemorySaver())
    unknown = {"configurable": {"thread_id": "t", "checkpoint_id": "0" * 32}}
    with pytest.raises(UnknownCheckpointError):
        run.invoke(graph, {}, unknown)
    with pytest.raises(UnknownInterruptError):
        run.invoke(graph, Command(resume=1), T)
    with pytest.raises(ValueError, match="'valeus'"):
        run.stream(graph, {}, T, stream_mode="valeus")
    with pytest.raises(ValueError, match="'sink'"):
        run.invoke(graph, {}, T, durability="sink")
    for where in ("interrupt_before", "interrupt_after"):
        with pytest.raises(ValueError, match="'b'"):
            run.invoke(graph, {}, T, **{where: ["b"]})
    with pytest.raises(EmptyInputError):
        run.invoke(graph, None, T)
    assert run.history(graph, T) == []


def test_d11_a_limit_of_n_allows_exactly_n_steps(run: Sync) -> None:
    class Counted(TypedDict, total=False):
        left: RemainingSteps
        log: Annotated[list[int], operator.add]

    look = lambda s: {"log": [s["left"]]}  # noqa: E731
    graph = build(dict.fromkeys("abc", look), chain("a", "b", "c"), InMemorySaver(), state=Counted)
    assert run.invoke(graph, {}, thread("x", recursion_limit=3))["log"] == [2, 1, 0]
    with pytest.raises(GraphRecursionError, match=r"recursion_limit=2.*'b'.*'c'"):
        run.invoke(graph, {}, thread("y", recursion_limit=2))
    assert run.invoke(graph, None, thread("y", recursion_limit=1))["log"] == [1, 0, 0]


def test_d12_an_edit_of_the_head_keeps_siblings_joins_and_what_else_is_due(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    edges = [*fan("a", "p", "q"), (["a", "q"], "z")]
    graph = build({"a": say("a", runs), "p": ask("P"), "q": ask("Q"), "z": say("z")}, edges, saver)
    run.invoke(graph, {}, T)
    ids = open_ids(graph, T)
    run.update(graph, T, {"log": ["by hand"]}, as_node="q")
    assert open_ids(graph, T) == {"P": ids["P"]}
    assert run.invoke(graph, Command(resume={ids["P"]: 1}), T)["log"] == ["by hand", "a", ("P", 1), "z"]
    assert runs == ["a"]


@odd("unreachable-node")
def test_d13_a_command_as_input_is_applied_once_and_never_edits_the_past(run: Sync, saver: Saver) -> None:
    graph = build(words("a b"), chain("a"), saver)
    assert run.invoke(graph, Command(update={"log": ["u"]}, goto="b"), T)["log"] == ["u", "a", "b"]
    old = run.history(graph, T)
    run.invoke(graph, Command(update={"log": ["v"]}), T)
    assert run.history(graph, T)[1:] == old
    assert sources(graph, T)[0][0] == "update"


# ------------------------------------------------------------------ D14 to D17: values in memory


class DefaultModel(BaseModel):
    n: Annotated[int, operator.add] = 10
    tags: Annotated[list[str], operator.add] = Field(default_factory=lambda: ["d"])
    plain: str = "p"


@dataclass
class DefaultData:
    n: Annotated[int, operator.add] = 10
    plain: str = "p"


class DefaultStruct(msgspec.Struct):
    n: Annotated[int, operator.add] = 10
    tags: Annotated[list[str], operator.add] = msgspec.field(default_factory=lambda: ["d"])


@pytest.mark.parametrize("schema", [DefaultModel, DefaultData, DefaultStruct])
def test_d14_declared_defaults_seed_reducer_keys_and_input_is_reduced_onto_them(run: Sync, schema: Any) -> None:
    graph = build({"a": lambda s: {"n": 5}}, chain("a"), state=schema)
    assert run.invoke(graph, {})["n"] == 15
    assert run.invoke(graph, {"n": 1})["n"] == 16
    if schema is not DefaultData:
        assert run.invoke(graph, {})["tags"] == ["d"]
        assert run.invoke(graph, {"tags": ["i"]})["tags"] == ["d", "i"]
        assert run.invoke(graph, {})["tags"] == ["d"]  # a fresh default each time


@pytest.mark.parametrize("schema", [DefaultModel, DefaultData])
def test_d14_nodes_see_the_default_of_a_plain_key_until_it_is_written(run: Sync, schema: Any) -> None:
    seen: list[str] = []
    graph = build({"a": lambda s: seen.append(s.plain)}, chain("a"), state=schema)
    assert "plain" not in run.invoke(graph, {})
    assert run.invoke(graph, {"plain": "given"})["plain"] == "given"
    assert seen == ["p", "given"]


class Sparse(TypedDict, total=False):
    amount: Annotated[Fraction | None, operator.add]
    plain: Any


def test_d15_an_overwrite_is_unwrapped_wherever_it_is_written(run: Sync, saver: Saver) -> None:
    graph = build(
        {"a": lambda s: {"amount": Overwrite(Fraction(7)), "plain": Overwrite(1)}}, chain("a"), saver, state=Sparse
    )
    assert run.invoke(graph, {"plain": Overwrite(0)}, T) == {"amount": Fraction(7), "plain": 1}
    run.update(graph, T, {"plain": Overwrite(2)})
    run.invoke(graph, Command(update={"amount": Overwrite(None)}), T)
    assert run.state(graph, T).values == {"amount": None, "plain": 2}


def test_d16_a_child_hands_back_what_it_wrote_and_nothing_else(run: Sync, saver: Saver) -> None:
    calls: list[Any] = []

    def note(old: list[Any], new: list[Any]) -> list[Any]:
        calls.append(list(new))
        return old + new

    keys: dict[str, Any] = {"log": Annotated[list[Any], note], "value": int}
    noted = TypedDict("noted", keys, total=False)  # type: ignore[misc]
    child = build({"c": say("c"), "d": say("d")}, chain("c", "d"), state=noted)
    graph = build({"a": say("a"), "child": child}, chain("a", "child"), saver, state=noted)
    assert run.invoke(graph, {"log": ["i"], "value": 5}, T) == {"log": ["i", "a", "c", "d"], "value": 5}
    assert ["i", "a", "c", "d"] not in calls[1:]
    assert run.history(graph, T)[1].tasks[0].result == {"log": {"$writes": [["c"], ["d"]]}}


def test_d17_every_task_and_the_caller_have_copies_of_their_own(run: Sync, saver: Saver) -> None:
    def edit(s: Any) -> None:
        s["value"].append("edited")
        s["log"].append("edited")
        s.clear()

    def look(s: Any) -> dict[str, Any]:
        time.sleep(0.01)
        return {"log": [list(s["value"])]}

    given = {"log": [], "value": ["v"]}
    graph = build({"a": edit, "b": look, "c": look}, [*fan("a", "b"), ("b", "c")], saver)
    out = run.invoke(graph, given, T)
    assert out == {"log": [["v"], ["v"]], "value": ["v"]}
    assert given == {"log": [], "value": ["v"]}
    out["value"].append("caller")
    assert run.state(graph, T).values["value"] == ["v"]


def test_d17_without_a_saver_the_callers_input_and_output_are_copies_too(run: Sync) -> None:
    def grow(s: Any) -> dict[str, Any]:
        s["value"].append("n")
        return {"value": s["value"]}

    given = {"value": ["v"]}
    assert run.invoke(build({"n": grow}, chain("n")), given)["value"] == ["v", "n"]
    assert given == {"value": ["v"]}
    same = run.invoke(build({"n": lambda s: None}, chain("n")), given)
    same["value"].append("caller")
    assert given == {"value": ["v"]}


def test_d17_the_callers_later_edits_do_not_reach_the_run() -> None:
    given = {"value": ["v"]}
    graph = build({"a": say("a"), "b": lambda s: {"log": [list(s["value"])]}}, chain("a", "b"))
    stream = graph.stream(given)
    next(stream)
    given["value"].append("late")
    assert list(stream) == [{"b": {"log": [["v"]]}}]


def test_d17_an_edit_deep_inside_is_found_in_tests() -> None:
    testing = pytest.importorskip("minigraph.testing")

    def edit(s: Any) -> None:
        s["value"]["deep"].append(1)

    graph = build({"editor": edit}, chain("editor"))
    with pytest.raises(Exception, match=r"editor.*value.*deep"):
        testing.detect_mutation(graph).invoke({"value": {"deep": []}})


# ------------------------------------------------------------------ D18 to D22: stored values, transactions, order


class Phase(enum.Enum):
    ASK = "ask"


class Level(enum.IntEnum):
    HIGH = 3


class Pair(NamedTuple):
    a: int
    b: str


@dataclass(frozen=True, slots=True)
class Money:
    amount: Decimal
    phase: Phase = Phase.ASK


class Form(msgspec.Struct, frozen=True):
    items: tuple[int, ...] = ()


class Card(BaseModel):
    name: str = "x"


class Typed(TypedDict, total=False):
    value: Phase | Level | Pair | Money | Form | Card | Any
    log: Annotated[list[Any], operator.add]


EXACT: list[Any] = [
    (1, ("a",)), [(1,), [2]], {1: "int", "1": "str"}, {(1, 2): {3}}, frozenset({1}), b"x", bytearray(b"x"),
    2**70, -(2**64), 1 + 2j, Fraction(1, 3), Decimal("1.10"), float("inf"), True, UUID(int=3), Path("a/b"), range(3),
    datetime(2026, 1, 1, tzinfo=UTC), deque([1, 2], maxlen=2), OrderedDict(b=1, a=2), Counter("aab"),
    defaultdict(list, {"a": [1]}), Phase.ASK, Level.HIGH, Pair(1, "b"),
    Money(Decimal(3)), Form((1, 2)), Card(name="y"), [Money(Decimal(1)), {"k": Pair(2, "c")}],
]  # fmt: skip


@pytest.mark.parametrize("value", EXACT, ids=lambda value: type(value).__name__)
def test_d18_a_value_keeps_its_type_whether_or_not_the_run_was_paused(saver: Saver, value: Any) -> None:
    nodes = {"put": lambda s: {"value": value}, "get": lambda s: {"log": [s["value"]]}}
    graph = build(nodes, chain("put", "get"), saver, state=Typed)
    (straight,) = graph.invoke({}, thread("straight"))["log"]
    graph.invoke({}, thread("paused"), interrupt_before=["get"])
    (paused,) = graph.invoke(None, thread("paused"))["log"]
    for back in (straight, paused):
        assert type(back) is type(value)
        assert back == value
        assert repr(back) == repr(value)
    if isinstance(value, deque):
        assert paused.maxlen == 2


@pytest.mark.parametrize(
    "value", [lambda: None, object(), threading.Lock(), (i for i in ""), os, collections.ChainMap()]
)
def test_d18_a_value_without_an_exact_form_fails_the_step_that_wrote_it(run: Sync, saver: Saver, value: Any) -> None:
    graph = build({"put": lambda s: {"value": [{"k": value}]}, "get": say("get")}, chain("put", "get"), saver)
    with pytest.raises(UnstorableValueError, match=r"'put'.*'value'") as caught:
        run.invoke(graph, {}, T)
    assert (caught.value.node, caught.value.key, caught.value.path) == ("put", "value", "$[0].k")
    assert caught.value.type_name
    assert run.state(graph, T).next == ("put",)


def test_d19_stored_bytes_never_import_or_call_anything(tmp_path: Path) -> None:
    """Bytes that ask for os.mkdir, in every shape that a codec might understand."""
    mark = tmp_path / "made"
    bodies: list[Any] = [
        ["os", "mkdir", str(mark)],
        ["os.mkdir", [str(mark)]],
        ["os:mkdir", {"path": str(mark)}],
        ["posix.mkdir", str(mark)],
    ]
    for code in range(40):
        for body in bodies:
            hostile = msgspec.msgpack.encode(msgspec.msgpack.Ext(code, msgspec.msgpack.encode(body)))
            with contextlib.suppress(DecodeError):
                assert not callable(Codec().decode(hostile))
    assert not mark.exists()


def test_d19_a_class_that_nobody_registered_is_not_looked_for(run: Sync, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with SqliteSaver(path) as saver:
        run.invoke(build({"a": lambda s: {"value": Money(Decimal(1))}}, chain("a"), saver, state=Typed), {}, T)
    with SqliteSaver(path) as saver:
        stranger = build({"a": say("a")}, chain("a"), saver)
        with pytest.raises(DecodeError, match=r"Money|Phase"):
            run.state(stranger, T)
        saver.register(Money, Phase)
        assert run.state(stranger, T).values["value"] == Money(Decimal(1))


def test_d20_a_failing_save_stops_the_run_at_that_step_and_leaves_no_half_step(run: Sync) -> None:
    class Full(InMemorySaver):
        puts = 0

        def put(self, write: Any) -> int:
            self.puts += 1
            if self.puts == 3:
                raise OSError("disk full")
            return super().put(write)

    runs: list[Any] = []
    graph = build(words("a b c", runs), chain("a", "b", "c"), Full())
    with pytest.raises(OSError, match="disk full"):
        run.invoke(graph, {}, T)
    assert runs == ["a", "b"]
    assert (run.state(graph, T).values["log"], run.state(graph, T).next) == (["a"], ("b",))
    assert run.invoke(graph, None, T)["log"] == ["a", "b", "c"]


def test_d20_one_step_is_one_transaction(tmp_path: Path) -> None:
    """What another connection sees between two steps is always a whole step."""
    path = tmp_path / "t.db"
    seen: list[Any] = []
    with SqliteSaver(path) as saver, SqliteSaver(path) as reader:

        def node(s: Any) -> dict[str, Any]:
            shot = reading.get_state(T)
            assert shot.metadata is not None
            seen.append((len(shot.values["log"]), shot.next, shot.metadata["step"]))
            return {"log": [1]}

        graph = build({"a": node, "b": node}, chain("a", "b"), saver)
        reading = build({"a": node, "b": node}, chain("a", "b"), reader)
        graph.invoke({}, T)
    assert seen == [(0, ("a",), 0), (1, ("b",), 1)]


def test_d21_of_two_threads_that_read_the_same_head_one_wins() -> None:
    meeting, all_read = threading.Barrier(4), threading.Event()

    class Meeting(InMemorySaver):
        """Lets no run go on from the head before all four have read it."""

        def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
            found = super().get(thread_id, namespace, checkpoint_id)
            if not all_read.is_set():
                meeting.wait(timeout=20)
                all_read.set()
            return found

    graph = build(words("n"), chain("n"), Meeting())

    def call(number: int) -> Any:
        try:
            return graph.invoke({"log": [number]}, T)
        except ThreadConflictError as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(call, range(4)))
    (winner,) = [r for r in results if isinstance(r, dict)]
    assert [type(r) for r in results].count(ThreadConflictError) == 3
    assert graph.get_state(T).values == winner
    assert len(sources(graph, T)) == 3


def test_d21_of_two_runs_on_one_thread_one_wins_and_the_other_leaves_nothing() -> None:
    async def node(s: Any) -> dict[str, Any]:
        await asyncio.sleep(0.005)
        return {"log": ["n"]}

    graph = build({"n": node}, chain("n"), InMemorySaver())

    async def main() -> list[Any]:
        ended: list[Any] = await asyncio.gather(
            *(graph.ainvoke({"log": [i]}, T) for i in range(4)), return_exceptions=True
        )
        return ended

    results = asyncio.run(main())
    (winner,) = [r for r in results if isinstance(r, dict)]
    assert [type(r) for r in results].count(ThreadConflictError) == 3
    assert graph.get_state(T).values == winner
    assert len(sources(graph, T)) == 3


def test_d22_order_does_not_come_from_the_clock(run: Sync, monkeypatch: pytest.MonkeyPatch, saver: Saver) -> None:
    graph = build(words("a"), chain("a"), saver)
    run.invoke(graph, {"log": ["1"]}, T)
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)  # the year 2001
    run.invoke(graph, {"log": ["2"]}, T)
    assert run.state(graph, T).values["log"] == ["1", "a", "2", "a"]
    assert [step for _, step in sources(graph, T)] == [4, 3, 2, 1, 0, -1]
    fork = run.update(graph, checkpoint_before(graph, T, "a"), {"log": ["F"]})
    assert run.state(graph, T).config == fork


# ------------------------------------------------------------------ D23 to D26: threads and errors


@pytest.mark.parametrize("wrong", [1, None, "", 1.0, ("t",), UUID(int=1)])
def test_d23_a_thread_id_is_a_non_empty_str(run: Sync, saver: Saver, wrong: Any) -> None:
    runs: list[Any] = []
    graph = build(words("a", runs), chain("a"), saver)
    for call in (run.invoke, run.update):
        with pytest.raises(ValueError, match="thread_id"):
            call(graph, *(({}, thread(wrong)) if call == run.invoke else (thread(wrong), {})))
    for look in (run.state, run.history):
        with pytest.raises(ValueError, match="thread_id"):
            look(graph, thread(wrong))
    assert runs == []


class Strict(BaseModel):
    n: int = 0
    log: Annotated[list[str], operator.add] = []


@pytest.mark.parametrize("how", ["conflict", "reducer", "validation", "input"])
def test_d24_a_wrong_value_never_locks_a_thread(run: Sync, saver: Saver, how: str) -> None:
    wrong = {"now": True}

    def refuse(old: list[Any], new: list[Any]) -> list[Any]:
        if wrong["now"] and new == ["a"]:
            raise ArithmeticError("reducer")
        return old + new

    keys: dict[str, Any] = {"log": Annotated[list[Any], refuse]}
    refusing = TypedDict("refusing", keys)  # type: ignore[misc]

    def model(s: Any) -> dict[str, Any]:
        return {"n": "no number" if wrong["now"] else 1, "log": ["a"]}

    graphs = {
        "conflict": lambda: build(
            {n: lambda s, n=n: {"value": n} if wrong["now"] else {"log": [n]} for n in "ab"}, fan("a", "b"), saver
        ),
        "reducer": lambda: build(words("a"), chain("a"), saver, state=refusing),
        "validation": lambda: build(
            {"a": model, "b": lambda s: {"log": [str(s.n)]}}, chain("a", "b"), saver, state=Strict
        ),
        "input": lambda: build({"a": lambda s: {"log": [str(s.n)]}}, chain("a"), saver, state=Strict),
    }
    graph = graphs[how]()
    given = {"n": "no number"} if how == "input" else {}
    with pytest.raises((InvalidUpdateError, ArithmeticError, ValueError)):
        run.invoke(graph, given, T)
    state = run.state(graph, T)
    assert state.next
    assert any(task.error for task in state.tasks)
    assert run.history(graph, T)
    with pytest.raises((InvalidUpdateError, ArithmeticError, ValueError)):
        run.invoke(graph, None, T)
    wrong["now"] = False
    if how in ("validation", "input"):
        run.update(graph, T, {"n": 1}, as_node="a" if how == "validation" else START)
    assert run.invoke(graph, None, T)["log"] in (["a", "b"], ["a"], ["a", "1"], ["1"])
    saver.delete_thread("t")
    assert run.state(graph, T).values == {}


def test_d25_history_grows_with_what_was_written(run: Sync, tmp_path: Path) -> None:
    def stored(steps: int) -> int:
        path = tmp_path / f"{steps}.db"
        with SqliteSaver(path) as saver:
            router = lambda s: END if len(s["log"]) >= steps else "n"  # noqa: E731
            graph = build({"n": lambda s: {"log": ["x" * 1000]}}, chain("n"), saver, routers=[("n", router)])
            run.invoke(graph, {}, thread(recursion_limit=500))
        with sqlite3.connect(path) as connection:
            pages, size = (connection.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "page_size"))
        connection.close()
        return int(pages * size)

    assert stored(80) / stored(40) < 2.6


def test_d26_only_connection_and_time_out_errors_are_retried_by_default(run: Sync) -> None:
    class NotFound(Exception):
        """As HTTP clients raise it for 404."""

    def tries_of(error: Exception) -> int:
        tries: list[int] = []

        def node(s: Any) -> None:
            tries.append(1)
            raise error

        options = {"n": {"retry_policy": RetryPolicy(initial_interval=0, jitter=False)}}
        with pytest.raises(type(error)):
            run.invoke(build({"n": node}, chain("n"), options=options), {})
        return len(tries)

    assert [tries_of(e) for e in (ConnectionError(), TimeoutError(), BrokenPipeError())] == [3, 3, 3]
    others = (
        NotFound(),
        ValueError(),
        OSError(),
        Exception(),
        InvalidUpdateError("x"),
        UnknownNodeError("x", node="n"),
    )
    assert [tries_of(e) for e in others] == [1] * 6


# ------------------------------------------------------------------ D27 to D30


def test_d27_a_pending_node_that_the_new_graph_lacks_is_named(run: Sync, saver: Saver) -> None:
    run.invoke(build({"a": say("a"), "old": ask("q")}, chain("a", "old"), saver), {}, T)
    new = build(words("a fresh"), chain("a", "fresh"), saver)
    inputs: tuple[Any, ...] = (None, Command(resume=1))
    for given in inputs:
        with pytest.raises(UnknownNodeError, match=r"'old'.*'a', 'fresh'"):
            run.invoke(new, given, T)
    assert run.state(new, T).next == ("old",)
    assert run.invoke(new, {}, T)["log"] == ["a", "a", "fresh"]


@odd("join-never-fires", "unreachable-node")
def test_d28_a_join_that_never_fired_is_reported(run: Sync, saver: Saver) -> None:
    graph = build(words("a b d"), [(START, "a"), (["a", "b"], "d")], saver)
    with pytest.warns(JoinNeverFiredWarning, match="'d' waits for 'b'"):
        run.invoke(graph, {}, T)
    assert run.state(graph, T).waiting == ("'d' waits for 'b' (seen: 'a')",)


def test_d29_threads_can_be_copied_pruned_and_deleted_and_reads_create_nothing(run: Sync, saver: Saver) -> None:
    graph = build({"a": say("a"), "q": ask("q")}, chain("a", "q"), saver)
    run.state(graph, T)
    run.history(graph, T)
    saver.delete_thread("t")
    assert list(saver.list(None)) == []
    run.invoke(graph, {}, T)
    saver.copy_thread("t", "u")
    saver.prune("t", keep=1)
    assert (len(run.history(graph, T)), len(run.history(graph, thread("u")))) == (1, 3)
    for name in ("t", "u"):
        assert run.invoke(graph, Command(resume=1), thread(name))["log"] == ["a", ("q", 1)]
        saver.delete_thread(name)
    assert list(saver.list(None)) == []


class PatchModel(BaseModel):
    a: int = 0
    b: int = 0
    tags: Annotated[list[str], operator.add] = Field(default_factory=list)


class PatchStruct(msgspec.Struct):
    a: int = 0
    b: int = 0


@pytest.mark.parametrize("kind", [PatchModel, PatchStruct])
def test_d30_an_update_object_writes_only_what_was_set(run: Sync, kind: Any) -> None:
    graph = build({"n": lambda s: kind(a=1), "m": lambda s: Command(update=kind(b=2))}, fan("n", "m"), state=PatchModel)
    assert run.invoke(graph, {"a": 5, "b": 6, "tags": ["t"]}) == {"a": 1, "b": 2, "tags": ["t"]}


def test_d30_a_field_that_was_set_to_its_default_is_written(run: Sync) -> None:
    graph = build({"n": lambda s: PatchModel(a=0)}, chain("n"), state=PatchModel)
    assert run.invoke(graph, {"a": 5})["a"] == 0


def test_every_rule_of_the_page_has_a_test_that_runs_it_both_ways() -> None:
    """By the parameter `run`, which is sync once and async once, or by a test of each kind."""
    page = (Path(__file__).parent.parent / "docs" / "coming-from-langgraph.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| D(\d+) \|", page, re.MULTILINE)
    assert rows == [str(number) for number in range(1, 31)]
    ways: dict[int, set[str]] = {int(row): set() for row in rows}
    for name, test in list(globals().items()):
        if match := re.match(r"test_d(\d\d)_", name):
            source = inspect.getsource(test)
            ways[int(match[1])] |= {"sync", "async"} if "run" in inspect.signature(test).parameters else set()
            ways[int(match[1])] |= {
                way for way, call in (("sync", ".invoke("), ("async", ".ainvoke(")) if call in source
            }
    assert {row: found for row, found in ways.items() if found != {"sync", "async"}} == {}


def test_a_graph_is_typed_by_its_builder() -> None:
    assert StateGraph(Wide).state_schema is Wide


def test_d23_a_thread_id_with_half_a_character_is_refused(saver: Saver) -> None:
    graph = build({"a": say("a")}, chain("a"), saver)
    with pytest.raises(ValueError, match="surrogate"):
        graph.invoke({}, {"configurable": {"thread_id": "x\ud800"}})
