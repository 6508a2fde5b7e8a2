"""Which tasks run when: edges, joins, deferred nodes, routers, Sends, Commands, limits; and well-formed graphs."""

from __future__ import annotations

import asyncio
import contextvars
import enum
import functools
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict

import pytest
from conftest import Log, Sync, build, chain, fan, odd, say, thread, words

from minigraph import END, START, Command, JoinNeverFiredWarning, RunnableConfig, Runtime, Send, StateGraph
from minigraph.checkpoint import InMemorySaver
from minigraph.errors import (
    GraphDefinitionError,
    GraphRecursionError,
    InvalidUpdateError,
    RoutingTypeError,
    UnknownTargetError,
)


def log(run: Sync, *arguments: Any, **options: Any) -> list[Any]:
    """The log that a graph writes for empty input."""
    found: list[Any] = run.invoke(build(*arguments, **options), {})["log"]
    return found


# ------------------------------------------------------------------ order


@pytest.mark.parametrize("slowest", ["a", "m", "z"])
def test_updates_of_a_step_are_merged_by_node_name_whoever_finishes_first(run: Sync, slowest: str) -> None:
    def node(name: str) -> Callable[[Any], Any]:
        def inner(s: Any) -> dict[str, Any]:
            time.sleep(0.03 if name == slowest else 0)
            return {"log": [name]}

        return inner

    assert log(run, {name: node(name) for name in "zam"}, fan(*"zam")) == ["a", "m", "z"]


def test_no_task_sees_a_sibling_of_its_step(run: Sync) -> None:
    look = lambda s: {"log": [len(s["log"])]}  # noqa: E731
    assert log(run, {"a": look, "b": look, "c": look}, [*fan("a", "b"), ("b", "c")]) == [0, 0, 2]


def test_an_edge_named_twice_runs_its_target_once(run: Sync) -> None:
    assert log(run, words("a b"), [(START, "a"), ("a", "b"), ("a", "b")]) == ["a", "b"]


@pytest.mark.parametrize(
    ("join", "options", "expected"),
    [
        ([("b", "d"), ("e", "d")], {}, "a b c d e d"),  # separate edges: once per arrival
        ([(["b", "e"], "d")], {}, "a b c e d"),  # a list edge: once after all
        ([(["e", "b", "e"], "d")], {}, "a b c e d"),
        ([("b", "d"), ("e", "d")], {"d": {"defer": True}}, "a b c e d"),
        ([(["b", "e"], "d")], {"d": {"defer": True}}, "a b c e d"),
    ],
)
def test_branches_of_unequal_length(run: Sync, join: list[Any], options: Any, expected: str) -> None:
    edges = [(START, "a"), ("a", "b"), ("a", "c"), ("c", "e"), *join]
    assert log(run, words("a b c d e"), edges, options=options) == expected.split()


def test_branches_of_equal_length_meet_once(run: Sync) -> None:
    edges = [(START, "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    assert log(run, words("a b c d"), edges) == list("abcd")


def test_a_join_in_a_loop_waits_for_all_of_them_again(run: Sync) -> None:
    again = lambda s: "a" if s["log"].count("d") < 2 else END  # noqa: E731
    edges = [(START, "a"), ("a", "b"), ("a", "c"), (["b", "c"], "d")]
    assert log(run, words("a b c d"), edges, routers=[("d", again)]) == list("abcdabcd")


def test_a_join_counts_a_source_that_ran_twice_once() -> None:
    """b runs in steps 2 and 3, c in step 3 alone: d runs once."""
    edges = [(START, "a"), ("a", "b"), ("a", "e"), ("e", "b"), ("e", "c"), (["b", "c"], "d")]
    assert build(words("a b c d e"), edges).invoke({})["log"] == ["a", "b", "e", "b", "c", "d"]


def test_a_join_of_one_source_is_an_edge(run: Sync) -> None:
    assert log(run, words("a b"), [(START, "a"), (["a"], "b")]) == ["a", "b"]


@odd("join-never-fires", "unreachable-node")
def test_a_join_whose_source_never_runs_never_fires(run: Sync) -> None:
    with pytest.warns(JoinNeverFiredWarning, match=r"'d' waits for 'b' \(seen: 'a'\)"):
        assert log(run, words("a b d"), [(START, "a"), (["a", "b"], "d")]) == ["a"]


@odd("join-never-fires", "unreachable-node")
def test_a_join_that_no_source_reached_is_no_reason_to_warn(run: Sync) -> None:
    edges = [(START, "a"), (["b", "c"], "d")]
    assert log(run, words("a b c d"), edges) == ["a"]


def test_two_joins_into_one_node_run_it_once_each(run: Sync) -> None:
    edges = [*fan("a", "b"), ("a", "c"), (["a", "b"], "d"), (["b", "c"], "d")]
    # step 1: a b; step 2: c, d (first join); step 3: d (second join)
    assert log(run, words("a b c d"), edges) == ["a", "b", "c", "d", "d"]


def test_deferred_nodes_wait_for_everything_and_run_together(run: Sync) -> None:
    edges = [(START, "a"), ("a", "b1"), ("a", "c"), ("b1", "b2"), ("b2", "d"), ("c", "d"), ("a", "e")]
    options = {"d": {"defer": True}, "e": {"defer": True}}
    assert log(run, words("a b1 b2 c d e"), edges, options=options) == ["a", "b1", "c", "b2", "d", "e"]


def test_a_deferred_node_behind_a_deferred_node_runs_again(run: Sync) -> None:
    edges = [(START, "a"), ("a", "b"), ("a", "d"), ("b", "e"), ("d", "e")]
    options = {"d": {"defer": True}, "e": {"defer": True}}
    assert log(run, words("a b d e"), edges, options=options) == ["a", "b", "d", "e", "e"]


def test_a_send_to_a_deferred_node_does_not_wait(run: Sync) -> None:
    nodes = {"a": lambda s: Send("d", None), "b": say("b"), "c": say("c"), "d": say("d")}
    edges = [*fan("a", "b"), ("b", "c")]
    assert log(run, nodes, edges, options={"d": {"defer": True}}) == ["b", "c", "d"]


def test_a_slow_sibling_holds_the_step(run: Sync) -> None:
    began: list[str] = []

    def slow(s: Any) -> None:
        time.sleep(0.05)
        began.append("slow ends")

    nodes = {"fast": lambda s: None, "next": lambda s: began.append("next"), "slow": slow}
    log(run, nodes, [*fan("fast", "slow"), ("fast", "next")])
    assert began == ["slow ends", "next"]


# ------------------------------------------------------------------ routers


@odd("unreachable-node")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("b", "a b"),
        (["b", "c"], "a b c"),
        (("c", "b", "c"), "a b c"),
        (["b", END], "a b"),
        (END, "a"),
        ([END], "a"),
        ([], "a"),
        ((), "a"),
    ],
)
def test_what_a_router_may_return(run: Sync, answer: Any, expected: str) -> None:
    assert log(run, words("a b c"), [(START, "a")], routers=[("a", lambda s: answer)]) == expected.split()


@odd("unreachable-node")
@pytest.mark.parametrize(
    ("answer", "targets", "expected"),
    [
        (True, {True: "b", False: "c"}, "a b"),
        (False, {True: "b", False: "c"}, "a c"),
        (0, {0: "b"}, "a b"),
        (None, {None: "b"}, "a b"),
        ("x", {"x": "b", "y": END}, "a b"),
        ("y", {"x": "b", "y": END}, "a"),
        (END, {"x": "b"}, "a"),
        (["x", "y"], {"x": "b", "y": "c"}, "a b c"),
        ("b", ["b", "c"], "a b"),
    ],
)
def test_path_maps(run: Sync, answer: Any, targets: Any, expected: str) -> None:
    assert log(run, words("a b c"), [(START, "a")], routers=[("a", lambda s: answer, targets)]) == expected.split()


@odd("unreachable-node")
def test_a_literal_hint_is_a_path_map(run: Sync) -> None:
    def router(s: Any) -> Literal["b"]:
        target: Literal["b"] = s["value"]
        return target

    graph = build(words("a b c"), [(START, "a")], routers=[("a", router)])
    assert run.invoke(graph, {"value": "b"})["log"] == ["a", "b"]
    assert run.invoke(graph, {"value": END})["log"] == ["a"]
    with pytest.raises(UnknownTargetError, match="'c'"):
        run.invoke(graph, {"value": "c"})


@odd("unknown-target", "unreachable-node")
@pytest.mark.parametrize("unknown", ["bb", None, 3, START, ["b", "zz"], 1.5, {"b": 1}])
def test_a_router_that_names_no_node_stops_the_run(run: Sync, unknown: Any) -> None:
    with pytest.raises(UnknownTargetError) as caught:
        log(run, words("a b"), [(START, "a")], routers=[("a", lambda s: unknown)])
    assert caught.value.node == "a"
    assert caught.value.choices == ("a", "b")


@pytest.mark.parametrize("wrong", [True, False, {"b"}, frozenset({"b"}), Command(goto="b")])
def test_a_router_that_returns_no_target_is_a_type_error(run: Sync, wrong: Any) -> None:
    with pytest.raises(RoutingTypeError, match="router"):
        log(run, words("a b"), [(START, "a")], routers=[("a", lambda s: wrong)])


def test_a_router_in_a_list_of_odd_things() -> None:
    with pytest.raises((UnknownTargetError, RoutingTypeError)):
        build(words("a b"), [(START, "a")], routers=[("a", lambda s: [Command(goto="b")])]).invoke({})


def test_a_router_sees_its_own_nodes_writes_only(run: Sync) -> None:
    seen: list[Any] = []

    def router(s: Any) -> str:
        seen.append(dict(s))
        return END

    log(run, words("a b"), fan("a", "b"), routers=[("a", router)])
    assert seen == [{"log": ["a"]}]


def test_a_router_cannot_change_what_its_node_wrote() -> None:
    def router(s: Any) -> str:
        s["log"].append("router")
        return "b"

    assert build(words("a b"), [(START, "a")], routers=[("a", router)]).invoke({})["log"] == ["a", "b"]


def test_several_routers_and_static_edges_all_fire(run: Sync) -> None:
    def one(s: Any) -> str:
        return "b"

    def two(s: Any) -> str:
        return "c"

    graph = (words("a b c d"), [(START, "a"), ("a", "d")])
    assert log(run, *graph, routers=[("a", one), ("a", two)]) == list("abcd")
    with pytest.raises(GraphDefinitionError, match="'one'"):
        build(*graph, routers=[("a", one), ("a", one)])


def test_a_router_from_start_sees_the_input(run: Sync) -> None:
    graph = build(words("a b"), [], routers=[(START, lambda s: s["value"])])
    assert run.invoke(graph, {"value": "b"})["log"] == ["b"]
    assert run.invoke(graph, {"value": END})["log"] == []


def test_a_router_may_ask_for_the_config_and_the_runtime() -> None:
    def router(s: Any, config: RunnableConfig, runtime: Runtime[str]) -> str:
        where: str = config.get("configurable", {})["where"]
        return where + runtime.context

    graph = build(words("a bc"), [(START, "a")], routers=[("a", router)])
    assert graph.invoke({}, {"configurable": {"where": "b"}}, context="c")["log"] == ["a", "bc"]


def test_async_routers_need_asyncio() -> None:
    async def router(s: Any) -> str:
        return "b"

    graph = build(words("a b"), [(START, "a")], routers=[("a", router)])
    assert asyncio.run(graph.ainvoke({}))["log"] == ["a", "b"]
    with pytest.raises(TypeError, match="async"):
        graph.invoke({})


# ------------------------------------------------------------------ Sends


def test_results_of_sends_come_in_their_order_after_those_of_nodes(run: Sync) -> None:
    def worker(x: int) -> dict[str, Any]:
        time.sleep(0.02 if x == 0 else 0)
        return {"log": [x]}

    sends = [Send("w", 2), "p", *[Send("w", x) for x in (0, 10, 1, 3, 4, 5, 6, 7, 8, 9)]]
    nodes = {"a": say("a"), "w": worker, "p": say("p")}
    assert log(run, nodes, [(START, "a")], routers=[("a", lambda s: sends)]) == [
        "a",
        "p",
        2,
        0,
        10,
        1,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
    ]


def test_sends_of_several_tasks_are_ordered_by_their_senders(run: Sync) -> None:
    def slow(s: Any) -> Command[str]:
        time.sleep(0.02)
        return Command(goto=Send("w", "a1"))

    nodes = {
        "z": lambda s: [Command(goto=[Send("w", "z1"), Send("w", "z2")])],
        "a": slow,
        "w": lambda x: {"log": [x]},
    }
    assert log(run, nodes, fan("z", "a")) == ["a1", "z1", "z2"]


@pytest.mark.parametrize("payload", [None, 0, "", False, [], {}, {"q": 1}, ("t",)])
def test_a_sends_argument_is_the_whole_input(run: Sync, payload: Any) -> None:
    seen: list[Any] = []
    nodes = {"a": lambda s: Send("w", payload), "w": lambda x: seen.append(x)}
    run.invoke(build(nodes, [(START, "a")]), {"value": 7, "log": [1]})
    assert seen == [payload]
    assert type(seen[0]) is type(payload)


def test_the_successor_of_many_sends_runs_once(run: Sync) -> None:
    nodes = {"a": say("a"), "w": say("w"), "z": say("z")}
    edges = [(START, "a"), ("w", "z")]
    assert log(run, nodes, edges, routers=[("a", lambda s: [Send("w")] * 3)]) == ["a", "w", "w", "w", "z"]


def test_a_send_task_asks_the_routers_of_its_node(run: Sync) -> None:
    nodes = {"a": say("a"), "w": lambda x: {"log": [x]}, "z": say("z")}
    routers = [("a", lambda s: [Send("w", 0), Send("w", 1)]), ("w", lambda s: "z" if 1 in s["log"] else END)]
    assert log(run, nodes, [(START, "a")], routers=routers) == ["a", 0, 1, "z"]


def test_sends_and_joins_meet(run: Sync) -> None:
    nodes = {"a": say("a"), "w": lambda x: {"log": [x]}, "b": say("b"), "z": say("z")}
    edges = [*fan("a", "b"), (["w", "b"], "z")]
    assert log(run, nodes, edges, routers=[("a", lambda s: [Send("w", 1), Send("w", 2)])]) == ["a", "b", 1, 2, "z"]


def test_a_node_can_be_due_by_an_edge_and_by_sends_at_once(run: Sync) -> None:
    node = lambda s: {"log": ["state" if isinstance(s, dict) else s]}  # noqa: E731
    assert log(run, {"a": lambda s: Command(goto=["b", Send("b", "sent")]), "b": node}, [(START, "a")]) == [
        "state",
        "sent",
    ]


def test_sends_from_the_entry_router(run: Sync) -> None:
    nodes = {"w": lambda x: {"log": [x * 2]}}
    assert log(run, nodes, [], routers=[(START, lambda s: [Send("w", 1), Send("w", 2)])]) == [2, 4]


@odd("conflicting-writes")
def test_two_sends_into_a_plain_key_conflict() -> None:
    nodes = {"w": lambda x: {"value": x}}
    with pytest.raises(InvalidUpdateError, match="'value'"):
        build(nodes, [], routers=[(START, lambda s: [Send("w", 1), Send("w", 1)])]).invoke({})


@odd("unknown-target", "unreachable-node")
def test_a_send_to_end_or_to_nobody_is_refused(run: Sync) -> None:
    with pytest.raises(InvalidUpdateError, match="END takes no input"):
        log(run, words("a"), [(START, "a")], routers=[("a", lambda s: Send(END, 1))])
    with pytest.raises(UnknownTargetError, match="did you mean 'work'"):
        log(run, words("a work"), [(START, "a")], routers=[("a", lambda s: [Send("wrok", 1)])])


def test_an_argument_of_a_send_is_safe_from_its_receivers() -> None:
    """Two tasks with one list as their argument: what one edits is not what the other reads."""
    shared = [0]

    def worker(x: list[int]) -> dict[str, Any]:
        x.append(1)
        return {"log": [len(x)]}

    out = build({"w": worker}, [], routers=[(START, lambda s: [Send("w", shared), Send("w", shared)])]).invoke({})
    assert out["log"] == [2, 2]
    assert shared == [0]


# ------------------------------------------------------------------ Commands


@odd("edges-and-goto", "unreachable-node")
@pytest.mark.parametrize(
    ("goto", "expected"),
    [
        ("b", "a b c"),
        ("c", "a c"),
        (END, "a c"),
        ((), "a c"),
        ([], "a c"),
        (["b", END, "b"], "a b c"),
        ({"b"}, "a b c"),
    ],
)
def test_goto_adds_to_static_edges_and_runs_a_target_once(run: Sync, goto: Any, expected: str) -> None:
    nodes = {"a": lambda s: Command(update={"log": ["a"]}, goto=goto), "b": say("b"), "c": say("c")}
    assert log(run, nodes, [(START, "a"), ("a", "c")]) == expected.split()


@odd("unknown-target", "unreachable-node")
@pytest.mark.parametrize("unknown", ["bb", START, 3, ["b", "x"], [None]])
def test_goto_to_no_node_stops_the_run(run: Sync, unknown: Any) -> None:
    nodes = {"a": lambda s: Command(goto=unknown), "b": say("b")}
    with pytest.raises((UnknownTargetError, InvalidUpdateError), match="'a' returned"):
        log(run, nodes, [(START, "a")])


def test_resume_and_graph_of_a_nodes_command() -> None:
    assert build({"a": lambda s: Command(resume=1, update={"value": 2})}, chain("a")).invoke({})["value"] == 2
    with pytest.raises(InvalidUpdateError, match="'elsewhere'"):
        build({"a": lambda s: Command(graph="elsewhere")}, chain("a")).invoke({})
    with pytest.raises(InvalidUpdateError, match="no parent"):
        build({"a": lambda s: Command(graph=Command.PARENT, goto="a")}, chain("a")).invoke({})


def test_a_command_hint_names_targets_that_must_exist() -> None:
    def node(s: Any) -> Command[Literal["b", "nowhere"]]:
        return Command(goto="b")

    with pytest.raises(GraphDefinitionError, match="nowhere"):
        build({"a": node, "b": say("b")}, chain("a"))


# ------------------------------------------------------------------ nodes of every kind


class Shout:
    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self, s: Any) -> dict[str, Any]:
        return {"log": [self.word]}

    def method(self, s: Any) -> dict[str, Any]:
        return {"log": [self.word + "!"]}


def plain(s: Any, word: str = "plain") -> dict[str, Any]:
    return {"log": [word]}


class Name(enum.StrEnum):
    FIRST = "first"


def test_functions_methods_partials_and_objects_are_nodes_named_after_themselves(run: Sync) -> None:
    builder = StateGraph(Log)
    for node in (plain, Shout("obj"), Shout("met").method, functools.partial(plain, word="part")):
        builder.add_node(node)
    builder.add_node(Name.FIRST, say("enum")).add_edge(START, "plain").add_edge("plain", "Shout")
    builder.add_edge("Shout", "method").add_edge("method", "partial").add_edge("partial", "first")
    assert run.invoke(builder.compile(), {})["log"] == ["plain", "obj", "met!", "part", "enum"]


def test_nodes_get_what_they_name() -> None:
    def node(s: Any, config: RunnableConfig, writer: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        writer("chunk")
        info = runtime.execution_info
        return {
            "value": (config.get("configurable", {})["thread_id"], runtime.context, info.thread_id, info.node_attempt)
        }

    graph = build({"n": node}, chain("n"), InMemorySaver())
    chunks = list(graph.stream({}, thread("x"), context="c", stream_mode=["custom", "values"]))
    assert ("custom", "chunk") in chunks
    assert chunks[-1] == ("values", {"log": [], "value": ("x", "c", "x", 1)})


def test_async_nodes_need_asyncio_and_say_so() -> None:
    async def node(s: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"log": ["async"]}

    graph = build({"n": node, "m": say("sync")}, chain("n", "m"))
    assert asyncio.run(graph.ainvoke({}))["log"] == ["async", "sync"]
    with pytest.raises(TypeError, match=r"'n'.*async"):
        graph.invoke({})


def test_context_variables_do_not_leak_between_nodes_or_to_the_caller(run: Sync) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    def node(s: Any) -> dict[str, Any]:
        before = variable.get()
        variable.set("leaked")
        return {"log": [before]}

    variable.set("caller's")
    assert log(run, {"a": node, "b": node, "c": node}, [*fan("a", "b"), ("b", "c")]) == ["caller's"] * 3
    assert variable.get() == "caller's"


def test_a_single_task_runs_in_the_callers_thread() -> None:
    seen: list[int] = []
    build({"n": lambda s: seen.append(threading.get_ident())}, chain("n")).invoke({})
    assert seen == [threading.get_ident()]


def test_max_concurrency_holds(run: Sync) -> None:
    lock, active, most = threading.Lock(), [0], [0]

    def worker(x: int) -> dict[str, Any]:
        with lock:
            active[0] += 1
            most[0] = max(most[0], active[0])
        time.sleep(0.005)
        with lock:
            active[0] -= 1
        return {"log": [x]}

    graph = build({"w": worker}, [], routers=[(START, lambda s: [Send("w", i) for i in range(7)])])
    assert run.invoke(graph, {}, {"max_concurrency": 2})["log"] == list(range(7))
    assert most == [2]


def test_context_is_coerced_to_its_schema() -> None:
    from dataclasses import dataclass

    @dataclass
    class Context:
        who: str
        many: int = 3

    def node(s: Any, runtime: Runtime[Context]) -> dict[str, Any]:
        return {"log": [runtime.context.who, runtime.context.many]}

    graph = StateGraph(Log, context_schema=Context).add_node("n", node).add_edge(START, "n").compile()
    given: Any = {"who": "x"}  # a dict will do at run time; a type checker wants a Context
    assert graph.invoke({}, context=given)["log"] == ["x", 3]
    wrong: Any = {"whom": "x"}
    with pytest.raises(TypeError, match="whom"):
        graph.invoke({}, context=wrong)


def test_one_compiled_graph_serves_many_threads_at_once(run: Sync) -> None:
    def node(s: Any) -> dict[str, Any]:
        time.sleep(0.005)
        return {"log": [s["value"]]}

    graph = build({"n": node}, chain("n"), InMemorySaver())
    found: dict[int, Any] = {}
    workers = [
        threading.Thread(target=lambda i=i: found.update({i: run.invoke(graph, {"value": i}, thread(str(i)))["log"]}))
        for i in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == {i: [i] for i in range(8)}


# ------------------------------------------------------------------ limits


def test_a_limit_of_n_allows_n_steps_and_counts_a_step_of_many_tasks_once(run: Sync) -> None:
    graph = build(words("a b c d"), [*fan("a", "b"), ("b", "c"), ("c", "d")])
    with pytest.raises(GraphRecursionError, match=r"'c'.*'d'") as caught:
        run.invoke(graph, {}, {"recursion_limit": 2})
    assert caught.value.limit == 2
    assert caught.value.last_nodes == ("c",)
    assert run.invoke(graph, {}, {"recursion_limit": 3})["log"] == ["a", "b", "c", "d"]


@odd("endless-loop")
@pytest.mark.parametrize("resume", [None, Command(update={"log": ["u"]})])
def test_each_call_has_the_whole_limit_and_keeps_its_progress(run: Sync, resume: Any) -> None:
    graph = build(words("a"), [(START, "a"), ("a", "a")], InMemorySaver())
    config = thread(recursion_limit=4)
    for given, steps in (({}, 4), (resume, 8)):
        with pytest.raises(GraphRecursionError):
            run.invoke(graph, given, config)
        state = run.state(graph, thread())
        assert state.values["log"].count("a") == steps
        assert state.next == ("a",)


@odd("endless-loop")
def test_the_default_limit_is_100(run: Sync) -> None:
    with pytest.raises(GraphRecursionError, match="recursion_limit=100"):
        run.invoke(build(words("a"), [(START, "a"), ("a", "a")]), {})


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3"])
def test_a_limit_is_a_positive_whole_number(wrong: Any) -> None:
    with pytest.raises(ValueError, match="recursion_limit"):
        build(words("a"), chain("a")).invoke({}, {"recursion_limit": wrong})


@pytest.mark.parametrize("wrong", [0, -1, "2"])
def test_max_concurrency_is_a_positive_whole_number(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_concurrency"):
        build(words("a"), chain("a")).invoke({}, {"max_concurrency": wrong})


# ------------------------------------------------------------------ what a graph may look like


def with_node() -> StateGraph[Any, Any, Any, Any]:
    return StateGraph(Log).add_node("a", say("a")).add_edge(START, "a")


@pytest.mark.parametrize(
    ("break_it", "named"),
    [
        (lambda g: StateGraph(Log).add_node("a", say("a")).compile(), "entry point"),
        (lambda g: g.add_node("a", say("a")), "'a'"),
        (lambda g: g.add_node("a|b", say("a")), "a|b"),
        (lambda g: g.add_node("a:b", say("a")), "a:b"),
        (lambda g: g.add_node("", say("a")), "''"),
        (lambda g: g.add_node(START, say("a")), START),
        (lambda g: g.add_node(END, say("a")), END),
        (lambda g: g.add_node("b"), "'b'"),
        (lambda g: g.add_node("b", 3), "'b'"),
        (lambda g: g.add_edge(END, "a"), "END"),
        (lambda g: g.add_edge("a", START), "START"),
        (lambda g: g.add_edge([], "a"), "at least one"),
        (lambda g: g.add_edge(["zz"], "a"), "'zz'"),
        (lambda g: g.add_edge(["a"], "zz"), "'zz'"),
        (lambda g: g.add_edge([START], "a"), START),
        (lambda g: g.add_edge(["a", END], "a"), "END"),
        (lambda g: g.add_edge("a", "zz").compile(), "'zz'"),
        (lambda g: g.add_edge("zz", "a").compile(), "'zz'"),
        (lambda g: g.add_conditional_edges("zz", lambda s: "a").compile(), "'zz'"),
        (lambda g: g.add_conditional_edges("a", lambda s: "x", {"x": "zz"}).compile(), "'zz'"),
        (lambda g: g.add_conditional_edges(END, lambda s: "a"), "END"),
        (lambda g: g.add_node("b", say("b"), destinations=["zz"]).compile(), "'zz'"),
        (lambda g: g.add_sequence([]), "at least one"),
        (lambda g: g.add_sequence([("a", say("a"))]), "'a'"),
        (lambda g: g.compile(interrupt_before=["zz"]), "'zz'"),
        (lambda g: g.compile(interrupt_after=["zz"]), "'zz'"),
        (lambda g: g.add_node("b", say("b"), timeout=1).compile(), "'b'"),
    ],
)
def test_a_graph_that_is_not_well_formed_is_refused_with_its_place(break_it: Any, named: str) -> None:
    with pytest.raises(GraphDefinitionError) as caught:
        break_it(with_node())
    assert named in str(caught.value)


def test_editing_the_builder_after_compile_changes_the_next_graph_only() -> None:
    builder = with_node()
    graph = builder.compile()
    builder.add_node("b", say("b")).add_edge("a", "b")
    assert graph.invoke({})["log"] == ["a"]
    assert builder.compile().invoke({})["log"] == ["a", "b"]


def test_sequences_entry_and_finish_points(run: Sync) -> None:
    builder = StateGraph(Log).add_sequence([("a", say("a")), ("b", say("b")), plain])
    builder.set_entry_point("a").set_finish_point("plain")
    assert run.invoke(builder.compile(), {})["log"] == ["a", "b", "plain"]
    chosen = StateGraph(Log).add_node("a", say("a")).set_conditional_entry_point(lambda s: "x", {"x": "a"})
    assert run.invoke(chosen.compile(), {})["log"] == ["a"]


@pytest.mark.parametrize("wrong", ["saver", object(), 3])
def test_a_checkpointer_that_is_no_saver_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="checkpointer"):
        with_node().compile(wrong)


def test_a_root_graph_cannot_use_its_parents_memory() -> None:
    with pytest.raises(RuntimeError, match="checkpointer=True"):
        with_node().compile(True).invoke({}, thread())


@odd("unknown-target", "unreachable-node")
def test_drawing_shows_fixed_and_chosen_edges() -> None:
    graph = build(words("a b c"), [(START, "a"), ("b", "c")], routers=[("a", lambda s: "b", {"go": "b", "stop": END})])
    text = graph.draw_mermaid()
    for line in ("__start__ --> a;", "b --> c;", "a -. go .-> b;", "a -. stop .-> __end__;"):
        assert line in text


added: list[int] = []


def noted_add(old: int, new: int) -> int:
    added.append(new)
    return old + new


class Sums(TypedDict):
    total: Annotated[int, noted_add]


def test_a_reducer_is_called_once_for_a_write_that_only_routers_and_the_step_see(run: Sync) -> None:
    added.clear()
    seen: list[int] = []

    def router(state: Any) -> str:
        seen.append(state["total"])
        return END

    graph = build({"n": lambda s: {"total": 2}}, chain("n"), routers=[("n", router)], state=Sums)
    assert run.invoke(graph, {"total": 1}) == {"total": 3}
    assert (added, seen) == ([1, 2], [3])


def test_a_router_that_edits_what_it_is_given_changes_nothing(run: Sync) -> None:
    def router(state: Any) -> str:
        state["log"].append("edited")
        return END

    graph = build({"n": lambda s: {"log": ["n"]}}, chain("n"), routers=[("n", router)])
    assert run.invoke(graph, {}) == {"log": ["n"]}
