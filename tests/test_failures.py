"""What goes wrong and what is kept: errors, retries, time-outs, handlers, caches, drains, cancelling, savers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from conftest import Log, Sync, ask, build, chain, fan, later, odd, say, sources, thread, words

from minigraph import (
    END,
    START,
    CachePolicy,
    Command,
    CompiledGraph,
    RetryPolicy,
    RunControl,
    Runtime,
    Send,
    StateGraph,
    TimeoutPolicy,
    interrupt,
)
from minigraph.cache import InMemoryCache
from minigraph.checkpoint import InMemorySaver, Saver, SqliteSaver
from minigraph.errors import (
    GraphDefinitionError,
    GraphDrained,
    InvalidUpdateError,
    NodeCancelledError,
    NodeError,
    NodeTimeoutError,
    ThreadConflictError,
    UnknownTargetError,
    UnstorableValueError,
)
from minigraph.types import Durability

T = thread()


def failing(times: int, error: BaseException, runs: list[Any] | None = None, delay: float = 0) -> Callable[[Any], Any]:
    """A node that raises `times` times and then logs which try it was."""
    tries: list[Any] = []

    def node(s: Any) -> dict[str, Any]:
        tries.append(1)
        if runs is not None:
            runs.append("f")
        time.sleep(delay)
        if len(tries) <= times:
            raise error
        return {"log": [len(tries)]}

    return node


def quick(**settings: Any) -> dict[str, Any]:
    """Options of the node "f": retried without waiting."""
    return {"f": {"retry_policy": RetryPolicy(initial_interval=0, jitter=False, **settings)}}


# ------------------------------------------------------------------ errors


def test_an_error_reaches_the_caller_as_it_is_and_names_its_node(run: Sync) -> None:
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        run.invoke(build({"f": failing(9, error)}, chain("f")), {})
    assert caught.value is error
    assert any("node 'f'" in note for note in error.__notes__)


def test_an_error_keeps_its_cause_and_gets_no_siblings(run: Sync) -> None:
    cause, both = KeyError("cause"), threading.Barrier(2)

    def node(name: str) -> Callable[[Any], None]:
        def fail(s: Any) -> None:
            both.wait(10)
            raise ValueError(name) from cause

        return fail

    with pytest.raises(ValueError, match="a") as caught:
        run.invoke(build({"b": node("b"), "a": node("a")}, fan("b", "a"), InMemorySaver()), {}, T)
    assert caught.value.__cause__ is cause
    assert caught.value.__context__ is None


def test_a_failed_task_is_due_again_and_its_finished_sibling_is_kept(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = build({"a": say("a", runs), "f": failing(1, ValueError("x"), runs, 0.03), "z": say("z")},
                  [*fan("a", "f"), ("a", "z")], saver)  # fmt: skip
    with pytest.raises(ValueError, match="x"):
        run.invoke(graph, {}, T)
    state = run.state(graph, T)
    assert (state.next, state.values["log"]) == (("f",), ["a"])
    assert [(t.name, t.error, t.result) for t in state.tasks] == [
        ("a", None, {"log": ["a"]}),
        ("f", "ValueError('x')", None),
    ]
    assert run.invoke(graph, None, T)["log"] == ["a", 2, "z"]
    assert sorted(runs) == ["a", "f", "f"]
    assert all(task.error is None for task in run.state(graph, T).tasks)


def test_new_input_after_a_failure_starts_over(run: Sync) -> None:
    runs: list[Any] = []
    graph = build({"a": say("a", runs), "f": failing(1, ValueError(), runs, 0.03)}, fan("a", "f"), InMemorySaver())
    with pytest.raises(ValueError):  # noqa: PT011
        run.invoke(graph, {"log": ["1"]}, T)
    assert run.invoke(graph, {"log": ["2"]}, T)["log"] == ["1", "2", "a", 2]
    assert runs.count("a") == 2


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_running_sibling_of_a_failed_task_is_kept_in_threads_and_repeated_in_asyncio(run: Sync, first: str) -> None:
    """A thread cannot be stopped, so its result counts; an asyncio sibling is cancelled and runs again."""
    runs: list[Any] = []
    healthy = {"now": False}

    def fail(s: Any) -> dict[str, Any]:
        if not healthy["now"]:
            raise ValueError("x")
        return {"log": [first]}

    async def slow_async(s: Any) -> dict[str, Any]:
        runs.append("slow")
        await asyncio.sleep(0.03)
        return {"log": ["slow"]}

    def slow_sync(s: Any) -> dict[str, Any]:
        runs.append("slow")
        time.sleep(0.03)
        return {"log": ["slow"]}

    graph = build({first: fail, "slow": slow_async if run.is_async else slow_sync}, fan(first, "slow"), InMemorySaver())
    with pytest.raises(ValueError, match="x"):
        run.invoke(graph, {}, T)
    healthy["now"] = True
    assert run.invoke(graph, None, T)["log"] == [first, "slow"]
    assert len(runs) == (2 if run.is_async else 1)


def test_of_two_failures_one_is_raised_and_both_are_recorded() -> None:
    graph = build(
        {n: failing(1, ValueError(n), delay=d) for n, d in (("f", 0), ("g", 0.02))}, fan("f", "g"), InMemorySaver()
    )
    with pytest.raises(ValueError, match="f"):
        graph.invoke({}, T)
    assert [(t.name, t.error) for t in graph.get_state(T).tasks] == [("f", "ValueError('f')"), ("g", "ValueError('g')")]
    assert graph.invoke(None, T)["log"] == [2, 2]


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_an_exit_signal_in_a_node_ends_the_run_and_keeps_what_was_done(
    saver: Saver, signal: type[BaseException]
) -> None:
    raised: list[Any] = []

    def node(s: Any) -> dict[str, Any]:
        if not raised:
            raised.append(1)
            raise signal
        return {"log": ["n"]}

    graph = build({"a": say("a"), "n": node}, chain("a", "n"), saver)
    with pytest.raises(signal):
        graph.invoke({}, T)
    assert graph.get_state(T).next == ("n",)
    assert graph.invoke(None, T)["log"] == ["a", "n"]


def test_an_exit_signal_in_one_of_several_tasks_keeps_the_finished_ones() -> None:
    runs: list[Any] = []
    raised: list[Any] = []

    def node(s: Any) -> dict[str, Any]:
        time.sleep(0.02)
        if not raised:
            raised.append(1)
            raise KeyboardInterrupt
        return {"log": ["n"]}

    graph = build({"a": say("a", runs), "n": node}, fan("a", "n"), InMemorySaver())
    with pytest.raises(KeyboardInterrupt):
        graph.invoke({}, T)
    assert graph.invoke(None, T)["log"] == ["a", "n"]
    assert runs == ["a"]


def test_a_failing_router_is_asked_again_with_its_nodes_result_kept(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    tries: list[Any] = []

    def router(s: Any) -> str:
        tries.append(list(s["log"]))
        if len(tries) == 1:
            raise ValueError("router")
        return "m"

    graph = build(words("a m", runs), [(START, "a")], saver, routers=[("a", router, ["m"])])
    with pytest.raises(ValueError, match="router"):
        run.invoke(graph, {}, T)
    state = run.state(graph, T)
    assert (state.next, state.values["log"]) == (("a",), [])  # nothing is committed yet
    assert run.invoke(graph, None, T)["log"] == ["a", "m"]
    assert runs == ["a", "m"]
    assert tries == [["a"], ["a"]]


@odd("unknown-target", "unreachable-node")
def test_a_router_that_names_nobody_can_be_mended_and_resumed(run: Sync) -> None:
    saver, runs = InMemorySaver(), []  # type: ignore[var-annotated]
    wrong = build(words("a m", runs), [(START, "a")], saver, routers=[("a", lambda s: "mm")])
    with pytest.raises(UnknownTargetError):
        run.invoke(wrong, {}, T)
    right = build(words("a m", runs), [(START, "a")], saver, routers=[("a", lambda s: "m")])
    assert run.invoke(right, None, T)["log"] == ["a", "m"]
    assert runs == ["a", "m"]


def test_a_step_that_cannot_be_merged_can_be_looked_at_edited_and_repeated(run: Sync, saver: Saver) -> None:
    values = {"a": 1, "b": 2}
    nodes = {name: lambda s, name=name: {"value": values[name]} if values[name] else None for name in "ab"}
    graph = build(nodes, fan("a", "b"), saver)
    inputs: tuple[Any, ...] = ({}, None)
    for given in inputs:
        with pytest.raises(InvalidUpdateError, match="'value'"):
            run.invoke(graph, given, T)
        assert run.state(graph, T).next == ("a", "b")
    values["b"] = 0
    assert run.invoke(graph, None, T)["value"] == 1
    saver.delete_thread("t")
    assert run.history(graph, T) == []


def test_a_value_without_a_stored_form_names_node_and_key_and_can_be_mended(run: Sync, saver: Saver) -> None:
    values: list[Any] = [lambda: None]
    graph = build({"a": say("a"), "n": lambda s: {"value": values[0]}}, chain("a", "n"), saver)
    with pytest.raises(UnstorableValueError, match=r"'n'.*'value'") as caught:
        run.invoke(graph, {}, T)
    assert (caught.value.node, caught.value.key) == ("n", "value")
    assert run.state(graph, T).next == ("n",)
    values[0] = (1, 2)
    assert run.invoke(graph, None, T)["value"] == (1, 2)


def test_input_without_a_stored_form_names_the_key(run: Sync, saver: Saver) -> None:
    graph = build({"a": say("a")}, chain("a"), saver)
    with pytest.raises(UnstorableValueError, match=r"^the input's key 'value' at \$\[0\]: a value") as caught:
        run.invoke(graph, {"value": [lambda: None]}, T)
    assert (caught.value.node, caught.value.key, caught.value.path) == (START, "value", "$[0]")
    assert "__start__" not in str(caught.value)
    assert run.invoke(graph, {"value": 1}, T) == {"log": ["a"], "value": 1}


# ------------------------------------------------------------------ retries


def test_max_attempts_counts_the_first_try(run: Sync) -> None:
    assert run.invoke(build({"f": failing(2, ConnectionError())}, chain("f"), options=quick()), {})["log"] == [3]
    with pytest.raises(ConnectionError):
        run.invoke(build({"f": failing(3, ConnectionError())}, chain("f"), options=quick()), {})
    assert run.invoke(build({"f": failing(4, ConnectionError())}, chain("f"), options=quick(max_attempts=5)), {})[
        "log"
    ] == [5]


class Refused(ConnectionError):
    pass


def test_by_default_connection_and_time_out_errors_are_retried_and_nothing_else() -> None:
    error: Exception
    for error in (ConnectionError(), Refused(), ConnectionResetError(), TimeoutError()):
        assert build({"f": failing(1, error)}, chain("f"), options=quick()).invoke({})["log"] == [2]
    for error in (
        ValueError(),
        RuntimeError(),
        Exception(),
        OSError(),
        PermissionError(),
        AssertionError(),
        KeyError("x"),
    ):
        with pytest.raises(type(error)):
            build({"f": failing(1, error)}, chain("f"), options=quick()).invoke({})


@pytest.mark.parametrize(
    "rule",
    [ValueError, (KeyError, ValueError), [KeyError, ValueError], lambda error: "x" in str(error), Exception],
    ids=["class", "tuple", "list", "predicate", "base"],
)
def test_what_to_retry_can_be_named(run: Sync, rule: Any) -> None:
    graph = build({"f": failing(1, ValueError("x"))}, chain("f"), options=quick(retry_on=rule))
    assert run.invoke(graph, {})["log"] == [2]


async def not_awaited(error: Exception) -> bool:
    raise AssertionError("never called")


@pytest.mark.parametrize(
    "rule", ["ValueError", "", ValueError(), int, BaseException, [ValueError, "x"], {ValueError}, 5, not_awaited]
)
def test_what_to_retry_is_refused_before_anything_runs(rule: Any) -> None:
    with pytest.raises(TypeError, match=r"RetryPolicy: retry_on is .* it is a subclass of Exception"):
        RetryPolicy(retry_on=rule)


def test_a_list_of_what_to_retry_becomes_a_tuple() -> None:
    assert RetryPolicy(retry_on=[ValueError, KeyError]).retry_on == (ValueError, KeyError)


def test_a_predicate_that_fails_does_not_hide_the_error(run: Sync) -> None:
    error = ValueError("x")

    def rule(error: Exception) -> bool:
        raise KeyError("in the rule")

    graph = build({"f": failing(9, error)}, chain("f"), InMemorySaver(), options=quick(retry_on=rule))
    with pytest.raises(KeyError, match="in the rule") as caught:
        run.invoke(graph, {}, T)
    assert caught.value.__cause__ is error
    assert any("node 'f'" in note for note in caught.value.__notes__)
    assert run.state(graph, T).tasks[0].error == "ValueError('x')"


def test_the_first_policy_that_fits_decides(run: Sync) -> None:
    policies = [
        RetryPolicy(initial_interval=0, jitter=False, max_attempts=2, retry_on=KeyError),
        RetryPolicy(initial_interval=0, jitter=False, max_attempts=4, retry_on=ValueError),
    ]
    options = {"f": {"retry_policy": policies}}
    assert run.invoke(build({"f": failing(3, ValueError())}, chain("f"), options=options), {})["log"] == [4]
    with pytest.raises(KeyError):
        run.invoke(build({"f": failing(3, KeyError())}, chain("f"), options=options), {})


@odd("undeclared-key")
def test_engine_errors_are_never_retried() -> None:
    runs: list[Any] = []

    def node(s: Any) -> dict[str, Any]:
        runs.append(1)
        return {"unknown": 1}

    with pytest.raises(InvalidUpdateError):
        build({"f": node}, chain("f"), options=quick(retry_on=Exception)).invoke({})
    assert runs == [1]


def test_each_try_starts_from_a_clean_state(run: Sync) -> None:
    tries: list[Any] = []

    def node(s: Any) -> dict[str, Any]:
        tries.append(1)
        s["log"].append("dirty")
        if len(tries) < 3:
            raise ConnectionError
        return {"log": [len(s["log"])]}

    assert run.invoke(build({"f": node}, chain("f"), options=quick()), {})["log"] == [1]


def test_each_try_of_a_send_starts_from_a_clean_argument(run: Sync) -> None:
    tries: list[Any] = []

    def node(x: list[Any]) -> dict[str, Any]:
        tries.append(1)
        x.append("dirty")
        if len(tries) < 3:
            raise ConnectionError
        return {"log": [len(x)]}

    graph = build({"f": node}, [], options=quick(), routers=[(START, lambda s: Send("f", []))])
    assert run.invoke(graph, {})["log"] == [1]


def test_a_router_is_retried_without_its_node() -> None:
    runs: list[Any] = []
    tries: list[Any] = []

    def router(s: Any) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return END

    graph = build({"f": say("f", runs)}, chain("f"), options=quick(), routers=[("f", router)])
    assert graph.invoke({})["log"] == ["f"]
    assert (runs, len(tries)) == (["f"], 3)


def test_the_attempt_counts_from_one() -> None:
    seen: list[int] = []

    def node(s: Any, runtime: Runtime[Any]) -> None:
        seen.append(runtime.execution_info.node_attempt)
        if len(seen) < 3:
            raise ConnectionError

    build({"f": node}, chain("f"), options=quick()).invoke({})
    assert seen == [1, 2, 3]


def test_waits_grow_to_their_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    policy = RetryPolicy(initial_interval=1, backoff_factor=3, max_interval=5, max_attempts=5, jitter=False)
    build({"f": failing(4, ConnectionError())}, chain("f"), options={"f": {"retry_policy": policy}}).invoke({})
    assert [wait for wait in waits if wait] == [1, 3, 5, 5]


@pytest.mark.parametrize(
    "wrong", [{"max_attempts": 0}, {"initial_interval": -1}, {"backoff_factor": -1}, {"max_interval": -1}]
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="RetryPolicy"):
        RetryPolicy(**wrong)


# ------------------------------------------------------------------ time-outs


async def sleepy(s: Any) -> dict[str, Any]:
    await asyncio.sleep(5)
    return {"log": ["late"]}


@pytest.mark.parametrize(
    "limit", [0.02, timedelta(milliseconds=20), TimeoutPolicy(run_timeout=0.02), TimeoutPolicy(idle_timeout=0.02)]
)
def test_a_node_that_takes_too_long_is_stopped(limit: Any) -> None:
    graph = build({"n": sleepy}, chain("n"), options={"n": {"timeout": limit}})
    with pytest.raises(NodeTimeoutError, match="'n'") as caught:
        asyncio.run(graph.ainvoke({}))
    assert (caught.value.node, caught.value.seconds) == ("n", 0.02)
    assert not isinstance(caught.value, TimeoutError)


def test_a_time_out_is_for_each_try_and_is_retried() -> None:
    tries: list[Any] = []

    async def node(s: Any) -> dict[str, Any]:
        tries.append(1)
        await asyncio.sleep(5 if len(tries) < 3 else 0)
        return {"log": [len(tries)]}

    options = {"f": {"timeout": 0.02, **quick()["f"]}}
    assert asyncio.run(build({"f": node}, chain("f"), options=options).ainvoke({}))["log"] == [3]


@pytest.mark.parametrize(("refresh", "kept"), [("auto", True), ("heartbeat", False)])
def test_signs_of_life(refresh: Any, kept: bool) -> None:
    async def writing(s: Any, writer: Any) -> dict[str, Any]:
        for _ in range(6):
            await later(40)
            writer("alive")
        return {"log": ["done"]}

    async def beating(s: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        for _ in range(6):
            await later(40)
            runtime.heartbeat()
        return {"log": ["done"]}

    options = {"n": {"timeout": TimeoutPolicy(idle_timeout=100, refresh_on=refresh)}}
    assert asyncio.run(build({"n": beating}, chain("n"), options=options).ainvoke({}))["log"] == ["done"]
    graph = build({"n": writing}, chain("n"), options=options)
    if kept:
        assert asyncio.run(graph.ainvoke({}))["log"] == ["done"]
    else:
        with pytest.raises(NodeTimeoutError):
            asyncio.run(graph.ainvoke({}))


@pytest.mark.parametrize("thread", [False, True])
def test_a_last_sign_of_life_arrives_after_the_end(thread: bool) -> None:
    """The sign is handed to the loop, which takes it up when the node has returned."""
    complaints: list[dict[str, Any]] = []

    async def node(s: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, complaint: complaints.append(complaint))
        if thread:
            beating = threading.Thread(target=runtime.heartbeat)
            beating.start()
            beating.join()
        else:
            runtime.heartbeat()
        return {"log": ["done"]}

    graph = build({"n": node}, chain("n"), options={"n": {"timeout": TimeoutPolicy(idle_timeout=100)}})

    async def main() -> Any:
        found = await graph.ainvoke({})
        await asyncio.sleep(0)
        return found

    assert asyncio.run(main())["log"] == ["done"]
    assert complaints == []


def test_a_sign_of_life_after_the_time_out_changes_nothing() -> None:
    complaints: list[dict[str, Any]] = []

    async def node(s: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, complaint: complaints.append(complaint))
        try:
            await later(101)
        finally:
            runtime.heartbeat()
            await asyncio.sleep(0)
        raise AssertionError("timed out before")

    graph = build({"n": node}, chain("n"), options={"n": {"timeout": TimeoutPolicy(idle_timeout=100)}})
    with pytest.raises(NodeTimeoutError):
        asyncio.run(graph.ainvoke({}))
    assert complaints == []


def test_a_nodes_own_time_out_error_is_its_own() -> None:
    async def node(s: Any) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(5)

    with pytest.raises(TimeoutError):
        asyncio.run(build({"n": node}, chain("n"), options={"n": {"timeout": 3}}).ainvoke({}))


def test_time_outs_are_for_async_nodes_and_positive() -> None:
    with pytest.raises(GraphDefinitionError, match="async"):
        build(words("a"), chain("a"), options={"a": {"timeout": 1}})
    for wrong in (0, -1, timedelta(0)):
        with pytest.raises(ValueError, match="greater than 0"):
            TimeoutPolicy(run_timeout=wrong)
    with pytest.raises(ValueError, match="greater than 0"):
        build({"n": sleepy}, chain("n"), options={"n": {"timeout": 0}})


# ------------------------------------------------------------------ error handlers


def test_a_handler_stands_for_its_node_and_may_route(run: Sync) -> None:
    seen: list[Any] = []

    def handler(s: Any, error: NodeError) -> Command[Any]:
        seen.append((dict(s), error.node, str(error.error)))
        return Command(update={"log": ["H"]}, goto="z")

    graph = build({"f": failing(9, ValueError("x")), "z": say("z"), "next": say("next")}, [(START, "f"), ("f", "next")],
                  options={"f": {"error_handler": handler}})  # fmt: skip
    assert run.invoke(graph, {"value": 1})["log"] == ["H", "z"]
    assert seen == [({"log": [], "value": 1}, "f", "x")]


def test_a_handler_runs_after_the_last_try_only() -> None:
    runs: list[Any] = []
    options = {"f": {**quick()["f"], "error_handler": lambda s: {"log": ["H"]}}}
    assert build({"f": failing(9, ConnectionError(), runs)}, chain("f"), options=options).invoke({})["log"] == ["H"]
    assert len(runs) == 3


def test_a_handler_that_fails_fails_the_run() -> None:
    def handler(s: Any) -> None:
        raise KeyError("handler")

    graph = build(
        {"f": failing(9, ValueError())}, chain("f"), InMemorySaver(), options={"f": {"error_handler": handler}}
    )
    with pytest.raises(KeyError, match="handler"):
        graph.invoke({}, T)
    assert graph.get_state(T).next == ("f",)


@odd("undeclared-key")
def test_a_handler_does_not_see_pauses_and_engine_errors() -> None:
    options = {"n": {"error_handler": lambda s: {"log": ["H"]}}}
    assert "__interrupt__" in build({"n": ask("q")}, chain("n"), InMemorySaver(), options=options).invoke({}, T)
    with pytest.raises(InvalidUpdateError):
        build({"n": lambda s: {"nope": 1}}, chain("n"), options=options).invoke({})


def test_a_handler_gets_time_outs_and_may_be_async() -> None:
    async def handler(s: Any, error: NodeError) -> dict[str, Any]:
        return {"log": [type(error.error).__name__]}

    options = {"n": {"timeout": 0.02, "error_handler": handler}}
    assert asyncio.run(build({"n": sleepy}, chain("n"), options=options).ainvoke({}))["log"] == ["NodeTimeoutError"]


def test_defaults_apply_to_nodes_that_do_not_say_otherwise() -> None:
    builder = StateGraph(Log).set_node_defaults(error_handler=lambda s: {"log": ["default"]})
    builder.add_node("f", failing(9, ValueError())).add_node(
        "g", failing(9, ValueError()), error_handler=lambda s: {"log": ["own"]}
    )
    builder.add_edge(START, "f").add_edge(START, "g")
    assert builder.compile().invoke({})["log"] == ["default", "own"]


# ------------------------------------------------------------------ cache


def test_a_cached_result_is_used_and_marked(run: Sync) -> None:
    runs: list[Any] = []
    graph = build(
        {"a": say("a", runs)}, chain("a"), options={"a": {"cache_policy": CachePolicy()}}, cache=InMemoryCache()
    )
    run.invoke(graph, {"log": [1]})
    assert run.stream(graph, {"log": [1]}) == [{"a": {"log": ["a"]}, "__metadata__": {"cached": True}}]
    assert run.invoke(graph, {"log": [2]})["log"] == [2, "a"]
    assert runs == ["a", "a"]
    graph.clear_cache(["a"])
    run.invoke(graph, {"log": [1]})
    assert runs == ["a"] * 3


def test_a_key_function_and_a_time_to_live() -> None:
    runs: list[Any] = []
    policy = CachePolicy(key_func=lambda s: s["value"] % 2, ttl=0.05)
    graph = build({"a": say("a", runs)}, chain("a"), options={"a": {"cache_policy": policy}}, cache=InMemoryCache())
    for value in (1, 3, 2):
        graph.invoke({"value": value})
    assert len(runs) == 2
    time.sleep(0.06)
    graph.invoke({"value": 1})
    assert len(runs) == 3


@pytest.mark.parametrize(("one", "two"), [(1, True), (1, 1.0), (1, "1"), ([1], (1,)), (0, None), ({}, [])])
def test_inputs_that_only_look_alike_are_cached_apart(one: Any, two: Any) -> None:
    graph = build(
        {"a": lambda s: {"log": [s["value"]]}},
        chain("a"),
        options={"a": {"cache_policy": CachePolicy()}},
        cache=InMemoryCache(),
    )
    found = [graph.invoke({"value": value})["log"][0] for value in (one, two)]
    assert [type(value) for value in found] == [type(one), type(two)]


def test_a_key_function_tells_types_apart() -> None:
    policy = CachePolicy(key_func=lambda s: s["value"])
    graph = build(
        {"a": lambda s: {"log": [s["value"]]}},
        chain("a"),
        options={"a": {"cache_policy": policy}},
        cache=InMemoryCache(),
    )
    found = [graph.invoke({"value": value})["log"][0] for value in (1, True)]
    assert [type(value) for value in found] == [int, bool]


class Adds:
    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self, s: Any) -> dict[str, Any]:
        return {"log": [self.word]}


def test_two_objects_of_one_class_do_not_share_results() -> None:
    """H111: two graphs share a cache, and their nodes are objects of one class under one name."""
    cache = InMemoryCache()
    options = {"n": {"cache_policy": CachePolicy()}}
    found = [
        build({"n": Adds(word)}, chain("n"), options=options, cache=cache).invoke({})["log"] for word in ("one", "two")
    ]
    assert found == [["one"], ["two"]]


def test_two_closures_of_one_function_do_not_share_results() -> None:
    cache = InMemoryCache()
    options = {"n": {"cache_policy": CachePolicy()}}
    found = [
        build({"n": say(word)}, chain("n"), options=options, cache=cache).invoke({})["log"] for word in ("one", "two")
    ]
    assert found == [["one"], ["two"]]


def test_a_cached_list_is_safe_from_later_edits() -> None:
    def node(s: Any) -> dict[str, Any]:
        return {"value": [0]}

    def edit(s: Any) -> dict[str, Any]:
        s["value"].append(1)
        return {"value": s["value"]}

    graph = build(
        {"n": node, "e": edit},
        chain("n", "e"),
        options={"n": {"cache_policy": CachePolicy(key_func=lambda s: "k")}},
        cache=InMemoryCache(),
    )
    first = graph.invoke({})
    first["value"].append(9)
    assert graph.invoke({})["value"] == [0, 1]


def test_errors_and_answers_are_not_cached() -> None:
    options = {"f": {"cache_policy": CachePolicy()}}
    graph = build({"f": failing(1, ValueError())}, chain("f"), options=options, cache=InMemoryCache())
    with pytest.raises(ValueError):  # noqa: PT011
        graph.invoke({})
    assert graph.invoke({})["log"] == [2]
    asking = build({"f": ask("q")}, chain("f"), InMemorySaver(), options=options, cache=InMemoryCache())
    for number in range(2):
        asking.invoke({}, thread(str(number)))
        assert asking.invoke(Command(resume=number), thread(str(number)))["log"] == [("q", number)]


def test_a_cached_command_still_routes(run: Sync) -> None:
    runs: list[Any] = []

    def node(s: Any) -> Command[Any]:
        runs.append(1)
        return Command(update={"log": ["n"]}, goto=["z", Send("w", 1)])

    nodes = {"n": node, "z": say("z"), "w": lambda x: {"log": [x]}}
    graph = build(nodes, [(START, "n")], options={"n": {"cache_policy": CachePolicy()}}, cache=InMemoryCache())
    assert [run.invoke(graph, {})["log"] for _ in range(2)] == [["n", "z", 1]] * 2
    assert runs == [1]


# ------------------------------------------------------------------ drain


def test_a_run_can_be_drained_from_inside_and_goes_on_later(run: Sync, saver: Saver) -> None:
    def a(s: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        runtime.control.request_drain("bye")
        return {"log": ["a"]}

    graph = build({"a": a, "b": say("b")}, chain("a", "b"), saver)
    with pytest.raises(GraphDrained, match="bye") as caught:
        run.invoke(graph, {}, T)
    assert caught.value.reason == "bye"
    assert run.state(graph, T).next == ("b",)
    assert run.invoke(graph, None, T)["log"] == ["a", "b"]


def test_a_run_can_be_drained_from_outside(run: Sync) -> None:
    control = RunControl()
    graph = build({"a": lambda s: control.request_drain(), "b": say("b")}, chain("a", "b"), InMemorySaver())
    with pytest.raises(GraphDrained):
        run.invoke(graph, {}, T, control=control)
    with pytest.raises(GraphDrained):  # a drained control stays drained
        run.invoke(graph, None, T, control=control)
    assert run.invoke(graph, None, T)["log"] == ["b"]


def test_a_drain_in_the_last_step_changes_nothing(run: Sync) -> None:
    control = RunControl()
    graph = build({"a": lambda s: control.request_drain()}, chain("a"), InMemorySaver())
    assert run.invoke(graph, {}, T, control=control) == {"log": []}


# ------------------------------------------------------------------ cancellation


def cancelled(saver: Saver | None, durability: Durability = "sync") -> tuple[Any, Counter[str]]:
    """A graph whose run was cancelled while "slow" was running and "fast" had finished."""
    runs: Counter[str] = Counter()

    async def fast(s: Any) -> dict[str, Any]:
        runs["fast"] += 1
        return {"log": ["fast"]}

    async def slow(s: Any) -> dict[str, Any]:
        runs["slow"] += 1
        await asyncio.sleep(5 if runs["slow"] == 1 else 0)
        return {"log": ["slow"]}

    graph = build({"fast": fast, "slow": slow}, fan("fast", "slow"), saver)

    async def main() -> None:
        task = asyncio.create_task(graph.ainvoke({}, T, durability=durability))
        while not runs["slow"]:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    return graph, runs


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_cancelling_keeps_the_finished_sibling_and_says_which_was_cancelled(
    saver: Saver, durability: Durability
) -> None:
    graph, runs = cancelled(saver, durability)
    state = graph.get_state(T)
    assert state.next == ("slow",)
    assert {t.name: bool(t.error) for t in state.tasks} == {"fast": False, "slow": True}
    assert asyncio.run(graph.ainvoke(None, T))["log"] == ["fast", "slow"]
    assert runs == {"fast": 1, "slow": 2}


def test_cancelling_without_a_saver_just_cancels() -> None:
    _, runs = cancelled(None)
    assert runs == {"fast": 1, "slow": 1}


def test_cancelling_while_saving_leaves_a_whole_step_or_none() -> None:
    started = threading.Event()

    class SlowSaver(InMemorySaver):
        async def aput(self, write: Any) -> int:
            started.set()
            await asyncio.sleep(0.03)
            return self.put(write)

    graph = build(words("a b"), chain("a", "b"), SlowSaver())

    async def main() -> None:
        task = asyncio.create_task(graph.ainvoke({}, T))
        while not started.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert graph.get_state(T).next in (("__start__",), ("a",))
    assert asyncio.run(graph.ainvoke(None, T))["log"] == ["a", "b"]


def test_a_node_that_cancels_itself_fails_the_run() -> None:
    async def node(s: Any) -> None:
        raise asyncio.CancelledError

    with pytest.raises(NodeCancelledError, match="'n'"):
        asyncio.run(build({"n": node}, chain("n")).ainvoke({}))


def test_an_outer_time_out_stops_the_run_and_its_nodes() -> None:
    ended: list[str] = []

    async def node(s: Any) -> None:
        try:
            await asyncio.sleep(5)
        finally:
            ended.append("n")

    graph = build({"n": node, "m": node}, fan("n", "m"), InMemorySaver())

    async def main() -> None:
        async with asyncio.timeout(0.03):
            await graph.ainvoke({}, T)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert ended == ["n", "n"]
    assert graph.get_state(T).next == ("m", "n")


# ------------------------------------------------------------------ savers that fail, and races


class FullDisk(InMemorySaver):
    """Fails from the put number `limit` on."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit, self.puts = limit, 0

    def put(self, write: Any) -> int:
        self.puts += 1
        if self.puts >= self.limit:
            raise OSError("disk full")
        return super().put(write)


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_a_failing_save_stops_the_run_at_that_step(run: Sync, limit: int) -> None:
    """Put 1 stores the input, put n the step of the n-1st node."""
    runs: list[Any] = []
    saver = FullDisk(limit)
    graph = build(words("a b c d", runs), chain(*"abcd"), saver)
    with pytest.raises(OSError, match="disk full"):
        run.invoke(graph, {}, T)
    assert runs == list("abcd")[: limit - 1]
    saver.limit = 99
    if limit > 1:
        assert run.state(graph, T).next == ("abcd"[limit - 2],)
        assert run.invoke(graph, None, T)["log"] == list("abcd")


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_a_failing_save_is_raised_at_the_end_at_the_latest(run: Sync, durability: str) -> None:
    saver = FullDisk(1)
    graph = build(words("a b"), chain("a", "b"), saver)
    with pytest.raises(OSError, match="disk full"):
        run.invoke(graph, {}, T, durability=durability)
    assert run.history(graph, T) == []


def test_a_failing_read_is_raised(run: Sync) -> None:
    class Broken(InMemorySaver):
        def get(self, *arguments: Any, **options: Any) -> Any:
            raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        run.invoke(build(words("a"), chain("a"), Broken()), {}, T)


def test_a_failing_save_of_results_does_not_hide_behind_a_node_error(run: Sync) -> None:
    """The node's error is what happened first; the saver's error must not vanish without a trace."""
    graph = build({"f": failing(9, ValueError("node"))}, chain("f"), FullDisk(2))
    with pytest.raises((ValueError, OSError)) as caught:
        run.invoke(graph, {}, T)
    shown = [caught.value, caught.value.__context__, caught.value.__cause__]
    assert {"node", "disk full"} <= {str(error) for error in shown}


def test_of_two_runs_from_one_head_one_wins(run: Sync, saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build(words("n m"), chain("n", "m"), saver)
    graph.invoke({}, T)
    both_have_read, read, outcomes = threading.Barrier(2), saver.get, []

    def get(*arguments: Any) -> Any:
        found = read(*arguments)
        both_have_read.wait(5)
        return found

    def go(name: str) -> None:
        try:
            outcomes.append(run.invoke(graph, {"log": [name]}, T)["log"])
        except ThreadConflictError as error:
            outcomes.append(error)

    monkeypatch.setattr(saver, "get", get)
    workers = [threading.Thread(target=go, args=(name,)) for name in ("x", "y")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    monkeypatch.undo()
    assert sum(isinstance(outcome, ThreadConflictError) for outcome in outcomes) == 1
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, list)]
    assert winner in (["n", "m", "x", "n", "m"], ["n", "m", "y", "n", "m"])
    assert run.state(graph, T).values["log"] == winner
    assert len(run.history(graph, T)) == 8


def test_of_two_runs_in_one_loop_one_wins_and_the_other_leaves_no_trace() -> None:
    async def node(s: Any) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return {"log": ["n"]}

    graph = build({"n": node}, chain("n"), InMemorySaver())

    async def main() -> list[Any]:
        ended: list[Any] = await asyncio.gather(
            *(graph.ainvoke({"log": [i]}, T) for i in range(3)), return_exceptions=True
        )
        return ended

    results = asyncio.run(main())
    winners = [r["log"] for r in results if isinstance(r, dict)]
    assert [type(r) for r in results if not isinstance(r, dict)] == [ThreadConflictError] * 2
    assert graph.get_state(T).values["log"] == winners[0]
    assert sources(graph, T) == [("loop", 1), ("loop", 0), ("input", -1)]


def test_a_run_that_was_overtaken_stops_at_its_next_step() -> None:
    saver = InMemorySaver()
    graph: CompiledGraph = build(
        {"n": lambda s: graph.update_state(T, {"log": ["other"]}, as_node="m") and None, "m": say("m")},
        chain("n", "m"),
        saver,
    )
    with pytest.raises(ThreadConflictError):
        graph.invoke({}, T)
    assert graph.get_state(T).values["log"] == ["other"]


# ------------------------------------------------------------------ durability


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_every_step_is_stored(run: Sync, saver: Saver, durability: str) -> None:
    graph = build(words("a b"), chain("a", "b"), saver)
    run.invoke(graph, {}, T, durability=durability)
    assert sources(graph, T) == [("loop", 2), ("loop", 1), ("loop", 0), ("input", -1)]


def test_at_exit_only_the_end_is_stored(run: Sync, saver: Saver) -> None:
    graph = build(words("a b"), chain("a", "b"), saver)
    run.invoke(graph, {}, T, durability="exit")
    assert sources(graph, T) == [("loop", 2)]
    run.invoke(graph, {}, T, durability="exit")
    first, second = run.history(graph, T)
    assert first.parent_config == second.config
    assert first.values["log"] == ["a", "b", "a", "b"]


def test_at_exit_a_failure_stores_where_to_go_on(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = build(
        {"a": say("a", runs), "b": say("b", runs), "f": failing(1, ValueError("x"), delay=0.02)},
        [(START, "a"), ("a", "b"), ("a", "f")],
        saver,
    )
    with pytest.raises(ValueError, match="x"):
        run.invoke(graph, {}, T, durability="exit")
    assert run.state(graph, T).next == ("f",)
    assert run.invoke(graph, None, T, durability="exit")["log"] == ["a", "b", 2]
    assert runs == ["a", "b"]


@pytest.mark.parametrize("then", ["ends", "asks", "fails", "takes its time"])
def test_a_save_in_the_background_that_fails_names_the_node_that_wrote_and_not_the_next(
    run: Sync, saver: Saver, then: str
) -> None:
    def after(state: Any) -> dict[str, Any]:
        if then == "asks":
            interrupt("q")
        if then == "fails":
            raise KeyError("after")
        time.sleep(0.05 if then == "takes its time" else 0)
        return {"log": ["after"]}

    nodes = {"first": say("first"), "bad": lambda s: {"log": [object()]}, "after": after, "last": say("last")}
    graph = build(nodes, chain(*nodes), saver)
    with pytest.raises(UnstorableValueError, match=r"node 'bad': key 'log' at \$\[1\]") as refused:
        run.invoke(graph, {}, T, durability="async")
    assert refused.value.node == "bad"
    found = run.state(graph, T)
    assert (found.values, found.next) == ({"log": ["first"]}, ("bad",))  # nothing that follows was stored
    run.update(graph, T, {"log": ["mended"]}, "bad")
    if then not in ("asks", "fails"):
        assert run.invoke(graph, None, T, durability="async")["log"] == ["first", "mended", "after", "last"]


def test_an_unknown_durability_is_refused(run: Sync) -> None:
    with pytest.raises(ValueError, match="'sink'"):
        run.invoke(build(words("a"), chain("a"), InMemorySaver()), {}, T, durability="sink")


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_durability_without_a_saver_means_nothing(run: Sync, durability: str) -> None:
    assert run.invoke(build(words("a"), chain("a")), {}, durability=durability)["log"] == ["a"]


def test_a_new_process_goes_on_from_the_file(tmp_path: Any) -> None:
    path = tmp_path / "threads.db"
    with SqliteSaver(path) as first:
        build({"a": say("a"), "q": ask("q")}, chain("a", "q"), first).invoke({}, T)
    with SqliteSaver(path) as second:
        graph = build({"a": say("a"), "q": lambda s: {"log": [interrupt("q")]}}, chain("a", "q"), second)
        assert graph.get_state(T).interrupts[0].value == "q"
        assert graph.invoke(Command(resume="R"), T)["log"] == ["a", "R"]
