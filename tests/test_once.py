"""once() and aonce(): what is called, what is recorded, and what a re-run, a branch or a killed process finds."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Sync, build, chain, checkpoint_before, fan, later, odd, open_ids, thread

from minigraph import (
    START,
    Command,
    CompiledGraph,
    RetryPolicy,
    Send,
    TimeoutPolicy,
    aonce,
    interrupt,
    once,
)
from minigraph.checkpoint import InMemorySaver, Saver
from minigraph.errors import OnceError, StorageError, UnknownOutcomeError, UnstorableValueError
from minigraph.records import Recorded

CONFIG = thread()
AGAIN = RetryPolicy(max_attempts=3, initial_interval=0, jitter=False, retry_on=Exception)


class World:
    """What was done to it, call by call; some calls fail."""

    def __init__(self, *failures: BaseException) -> None:
        self.calls: list[Any] = []
        self.failures = list(failures)

    def do(self, what: Any, result: Any = None) -> Any:
        self.calls.append(what)
        if self.failures:
            raise self.failures.pop(0)
        return what if result is None else result

    async def ado(self, what: Any, result: Any = None) -> Any:
        await asyncio.sleep(0)
        return self.do(what, result)

    def look(self, what: Any, result: Any = None) -> Any:
        self.calls.append(("look", what))
        return "found"

    async def alook(self, what: Any, result: Any = None) -> Any:
        return self.look(what, result)


def node_of(run: Sync, world: World, after: Callable[[], Any], **options: Any) -> Any:
    """A node that does something once, under the key "mail", and then whatever `after` does."""

    def node(state: Any) -> dict[str, Any]:
        return {"log": [once("mail", world.do, "ann", **options), after()]}

    async def anode(state: Any) -> dict[str, Any]:
        if "on_unknown" in options:
            options["on_unknown"] = world.alook
        return {"log": [await aonce("mail", world.ado, "ann", **options), after()]}

    return anode if run.is_async else node


def nothing() -> None:
    """A node that does no more."""


def records(saver: Saver, graph: CompiledGraph, *namespace: str) -> list[tuple[str, bool, Any, str]]:
    """What is recorded for the first due task of the head."""
    stored = saver.get("t", "".join(namespace))
    assert stored is not None
    found = saver.recorded("t", "".join(namespace), stored.checkpoint.due[0].id)
    return [(recorded.key, recorded.done, recorded.value, recorded.error) for recorded in found]


# ------------------------------------------------------------------- the record


def test_a_node_that_asks_afterwards_does_it_once(run: Sync, saver: Saver) -> None:
    world = World()
    graph = build({"n": node_of(run, world, lambda: interrupt("q"))}, chain("n"), saver)
    run.invoke(graph, {}, CONFIG)
    assert records(saver, graph) == [("mail", True, "ann", "")]
    assert run.invoke(graph, Command(resume="yes"), CONFIG) == {"log": ["ann", "yes"]}
    assert world.calls == ["ann"]


@pytest.mark.parametrize("stored", [True, False])
def test_what_a_node_does_to_the_value_leaves_the_record_alone(run: Sync, saver: Saver, stored: bool) -> None:
    """The value is [[1]] in each try, and the try adds 2 to it."""
    tries: list[Any] = []

    def change(value: list[list[int]]) -> dict[str, Any]:
        value[0].append(2)
        tries.append(value)
        if len(tries) < 3:
            raise KeyError("again")
        return {"log": value}

    async def made() -> list[list[int]]:
        return [[1]]

    async def anode(state: Any) -> dict[str, Any]:
        return change(await aonce("k", made))

    nodes = {"n": anode if run.is_async else lambda state: change(once("k", lambda: [[1]]))}
    graph = build(nodes, chain("n"), saver if stored else None, options={"n": {"retry_policy": AGAIN}})
    assert run.invoke(graph, {}, CONFIG)["log"] == [[1, 2]]
    assert tries == [[[1, 2]]] * 3


def test_a_node_that_fails_afterwards_does_it_once(run: Sync, saver: Saver) -> None:
    world, fate = World(), World(KeyError("later"), KeyError("later"))
    graph = build({"n": node_of(run, world, lambda: fate.do("after"))}, chain("n"), saver)
    with pytest.raises(KeyError):
        run.invoke(graph, {}, CONFIG)
    with pytest.raises(KeyError):
        run.invoke(graph, None, CONFIG)
    assert run.invoke(graph, None, CONFIG) == {"log": ["ann", "after"]}
    assert world.calls == ["ann"]


@pytest.mark.parametrize("value", [None, False, 0, "", (), {}, {"n": (1, {2})}, 2**80], ids=repr)
def test_any_value_comes_back_as_it_was(saver: Saver, value: Any) -> None:
    world, seen = World(), list[Any]()

    def node(state: Any) -> dict[str, Any]:
        seen.append(once("k", lambda: world.calls.append(1) or value))  # type: ignore[func-returns-value]
        return {"log": [interrupt("q")]}

    graph = build({"n": node}, chain("n"), saver)
    graph.invoke({}, CONFIG)
    graph.invoke(Command(resume=1), CONFIG)
    assert seen == [value, value]
    assert type(seen[1]) is type(value)
    assert world.calls == [1]


def test_a_retry_finds_the_record(run: Sync, saver: Saver) -> None:
    world, fate = World(), World(KeyError("later"))
    options = {"n": {"retry_policy": AGAIN}}
    for keeper in (saver, None):
        graph = build({"n": node_of(run, world, lambda: fate.do("after"))}, chain("n"), keeper, options=options)
        assert run.invoke(graph, {}, CONFIG) == {"log": ["ann", "after"]}
        assert world.calls == ["ann"]
        world.calls.clear()
        fate.failures.append(KeyError("again"))


def test_without_a_saver_another_run_calls_again(run: Sync) -> None:
    world = World()
    graph = build({"n": node_of(run, world, nothing)}, chain("n"))
    assert [run.invoke(graph, {}) for _ in range(2)] == [{"log": ["ann", None]}] * 2
    assert world.calls == ["ann", "ann"]


def test_without_a_saver_an_edited_result_is_not_the_record() -> None:
    fate = World(KeyError("later"))

    def node(state: Any) -> dict[str, Any]:
        found = once("k", lambda: [1])
        found.append(2)
        fate.do("after")
        return {"log": found}

    graph = build({"n": node}, chain("n"), options={"n": {"retry_policy": AGAIN}})
    assert graph.invoke({}) == {"log": [1, 2]}


def test_several_keys_keep_their_order_and_their_results(saver: Saver) -> None:
    world = World()

    def node(state: Any) -> dict[str, Any]:
        done = [once(f"mail-{name}", world.do, name) for name in ("bob", "ann", "cid")]
        return {"log": [*done, interrupt("q")]}

    graph = build({"n": node}, chain("n"), saver)
    graph.invoke({}, CONFIG)
    assert [key for key, *_ in records(saver, graph)] == ["mail-bob", "mail-ann", "mail-cid"]
    assert graph.invoke(Command(resume=1), CONFIG) == {"log": ["bob", "ann", "cid", 1]}
    assert world.calls == ["bob", "ann", "cid"]


def test_tasks_and_threads_have_records_of_their_own(run: Sync, saver: Saver) -> None:
    world = World()

    def node(state: int) -> dict[str, Any]:
        return {"log": [once("mail", world.do, state)]}

    graph = build({"n": node}, [], saver, routers=[(START, lambda state: [Send("n", n) for n in (1, 2, 3)])])
    for name in ("t", "u"):
        assert run.invoke(graph, {}, thread(name)) == {"log": [1, 2, 3]}
    assert sorted(world.calls) == [1, 1, 2, 2, 3, 3]


def test_a_replay_does_its_effects_again(run: Sync, saver: Saver) -> None:
    world = World()
    graph = build({"n": node_of(run, world, nothing)}, chain("n"), saver)
    run.invoke(graph, {}, CONFIG)
    run.invoke(graph, None, checkpoint_before(graph, CONFIG, "n"))
    assert world.calls == ["ann", "ann"]


def test_an_edit_of_a_paused_thread_keeps_the_records(run: Sync, saver: Saver) -> None:
    world = World()
    nodes = {"n": node_of(run, world, lambda: interrupt("q")), "other": lambda state: {"value": interrupt("other")}}
    graph = build(nodes, fan("n", "other"), saver)
    run.invoke(graph, {}, CONFIG)
    run.update(graph, CONFIG, {"value": 5}, "other")
    saver.prune("t", keep=1)
    assert run.invoke(graph, Command(resume="yes"), CONFIG) == {"log": ["ann", "yes"], "value": 5}
    assert world.calls == ["ann"]


def test_an_error_handler_and_a_router_may_call_too(saver: Saver) -> None:
    world, fate = World(), World(KeyError("router"))

    def fail(state: Any) -> None:
        raise KeyError("no")

    def handler(state: Any) -> dict[str, Any]:
        return {"log": [once("refund", world.do, "refund"), interrupt("q")]}

    def router(state: Any) -> str:
        once("route", world.do, "route")
        fate.do("after")
        return "__end__"

    nodes = {"a": fail, "b": lambda state: {"log": [once("b", world.do, "b")]}}
    options = {"a": {"error_handler": handler}}
    graph = build(nodes, [(START, "a"), (START, "b")], saver, options=options, routers=[("b", router)])
    with pytest.raises(KeyError, match="router"):
        graph.invoke({}, CONFIG)
    graph.invoke(None, CONFIG)
    assert graph.invoke(Command(resume=1), CONFIG) == {"log": ["refund", 1, "b"]}
    assert sorted(world.calls) == ["b", "refund", "route"]


def test_it_may_be_called_in_a_thread_of_the_node(saver: Saver) -> None:
    world = World()

    def node(state: Any) -> dict[str, Any]:
        def call(number: int) -> Any:
            return once(f"k{number}", world.do, number)

        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(contextvars.copy_context().run, call, n) for n in range(40)]
            done = [job.result() for job in jobs]
        return {"log": [*done, interrupt("q")]}

    graph = build({"n": node}, chain("n"), saver)
    graph.invoke({}, CONFIG)
    assert graph.invoke(Command(resume="yes"), CONFIG) == {"log": [*range(40), "yes"]}
    assert sorted(world.calls) == list(range(40))


def test_many_at_once_in_an_async_node(saver: Saver) -> None:
    world = World()

    async def node(state: Any) -> dict[str, Any]:
        done = await asyncio.gather(*(aonce(f"k{n}", world.ado, n) for n in range(20)))
        return {"log": [*done, once("sync", world.do, "sync"), interrupt("q")]}

    graph = build({"n": node}, chain("n"), saver)
    asyncio.run(graph.ainvoke({}, CONFIG))
    assert asyncio.run(graph.ainvoke(Command(resume="yes"), CONFIG)) == {"log": [*range(20), "sync", "yes"]}
    assert len(world.calls) == 21


def test_of_two_runs_of_one_thread_one_calls(saver: Saver) -> None:
    world, both = World(), threading.Barrier(2)
    first = build({"n": lambda state: {"log": [interrupt("q")]}}, chain("n"), saver)
    first.invoke({}, CONFIG)
    first.update_state(CONFIG, None, as_node="__copy__")
    ended: list[str] = []

    def node(state: Any) -> dict[str, Any]:
        both.wait(10)
        try:
            return {"log": [once("mail", lambda: world.do("ann"))]}
        except UnknownOutcomeError:
            ended.append("unknown")
            raise
        finally:
            both.wait(10)

    graph = build({"n": node}, chain("n"), saver)

    def go() -> None:
        try:
            graph.invoke(None, CONFIG)
            ended.append("done")
        except Exception as error:
            ended.append(type(error).__name__)

    runs = [threading.Thread(target=go) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert world.calls == ["ann"]


def test_a_run_with_new_input_makes_a_call_of_its_own(saver: Saver) -> None:
    world, errors = World(), list[str]()
    inside, overtaken = threading.Event(), threading.Event()

    def call(name: str) -> str:
        world.do(name)
        if name == "first":
            inside.set()
            assert overtaken.wait(10)
        return name

    graph = build({"n": lambda state: {"log": [once("mail", call, state["value"])]}}, chain("n"), saver)

    def go() -> None:
        try:
            graph.invoke({"value": "first"}, CONFIG)
        except Exception as error:
            errors.append(type(error).__name__)

    first = threading.Thread(target=go)
    first.start()
    assert inside.wait(10)
    assert graph.invoke({"value": "second"}, CONFIG) == {"log": ["second"], "value": "second"}
    overtaken.set()
    first.join()
    assert world.calls == ["first", "second"]
    assert errors == ["ThreadConflictError"]


# ------------------------------------------------------------------- unknown outcomes


def test_an_exception_passes_and_leaves_the_outcome_unknown(run: Sync, saver: Saver) -> None:
    error = TimeoutError("no answer")
    world = World(error)
    graph = build({"pay": node_of(run, world, nothing)}, chain("pay"), saver)
    with pytest.raises(TimeoutError) as first:
        run.invoke(graph, {}, CONFIG)
    assert first.value is error
    assert records(saver, graph) == [("mail", False, None, "TimeoutError: no answer")]
    with pytest.raises(UnknownOutcomeError):
        run.invoke(graph, None, CONFIG)
    with pytest.raises(UnknownOutcomeError) as caught:
        run.invoke(graph, None, CONFIG)
    found = caught.value
    (task,) = graph.get_state(CONFIG).tasks
    assert (found.node, found.key, found.task_id, found.error) == ("pay", "mail", task.id, "TimeoutError: no answer")
    for part in ("'pay'", "'mail'", task.id, "TimeoutError: no answer", "on_unknown=", "interrupt()", "as_node='pay'"):
        assert part in str(found)
    assert world.calls == ["ann"]


@pytest.mark.parametrize("stored", [True, False])
def test_a_retry_of_the_node_does_not_repeat_it(run: Sync, saver: Saver, stored: bool) -> None:
    world = World(ConnectionError("lost"))
    options = {"n": {"retry_policy": AGAIN}}
    graph = build({"n": node_of(run, world, nothing)}, chain("n"), saver if stored else None, options=options)
    with pytest.raises(UnknownOutcomeError, match="ConnectionError: lost"):
        run.invoke(graph, {}, CONFIG)
    assert world.calls == ["ann"]


@pytest.mark.parametrize(
    "rule",
    [ConnectionError, (ValueError, OSError), [ValueError, OSError], lambda error: str(error) == "lost"],
    ids=["class", "tuple", "list", "rule"],
)
@pytest.mark.parametrize("stored", [True, False])
def test_what_certainly_did_nothing_is_called_again(run: Sync, saver: Saver, stored: bool, rule: Any) -> None:
    world = World(ConnectionError("lost"), ConnectionError("lost"))
    options = {"n": {"retry_policy": AGAIN}}
    node = node_of(run, world, nothing, retry_on=rule)
    graph = build({"n": node}, chain("n"), saver if stored else None, options=options)
    assert run.invoke(graph, {}, CONFIG) == {"log": ["ann", None]}
    assert world.calls == ["ann"] * 3


def test_a_node_may_try_again_by_itself(saver: Saver) -> None:
    world = World(ConnectionError("lost"), TimeoutError("late"))

    def node(state: Any) -> dict[str, Any]:
        errors = []
        for _ in range(4):
            try:
                once("mail", world.do, "ann", retry_on=ConnectionError)
            except Exception as error:
                errors.append(type(error).__name__)
        return {"log": errors}

    wanted = ["ConnectionError", "TimeoutError", "UnknownOutcomeError", "UnknownOutcomeError"]
    assert build({"n": node}, chain("n"), saver).invoke({}, CONFIG) == {"log": wanted}
    assert world.calls == ["ann", "ann"]


@pytest.mark.parametrize("stored", [True, False])
def test_on_unknown_looks_it_up_and_its_result_is_recorded(run: Sync, saver: Saver, stored: bool) -> None:
    world, fate = World(TimeoutError()), World(KeyError("later"))
    options = {"n": {"retry_policy": AGAIN}}
    node = node_of(run, world, lambda: fate.do("after"), on_unknown=world.look)
    graph = build({"n": node}, chain("n"), saver if stored else None, options=options)
    assert run.invoke(graph, {}, CONFIG) == {"log": ["found", "after"]}
    assert world.calls == ["ann", ("look", "ann")]


def test_on_unknown_that_fails_is_asked_again(saver: Saver) -> None:
    world, looks = World(ValueError("odd")), World(OSError("no network"))

    def node(state: Any) -> dict[str, Any]:
        return {"log": [once("mail", world.do, "ann", retry_on=OSError, on_unknown=looks.do)]}

    graph = build({"n": node}, chain("n"), saver)
    for given, error in (({}, ValueError), (None, OSError)):
        with pytest.raises(error):
            graph.invoke(given, CONFIG)
    assert records(saver, graph) == [("mail", False, None, "ValueError: odd")]
    assert graph.invoke(None, CONFIG) == {"log": ["ann"]}
    assert (world.calls, looks.calls) == (["ann"], ["ann", "ann"])


def test_a_person_can_be_asked(saver: Saver) -> None:
    world = World(TimeoutError("late"))

    def node(state: Any) -> dict[str, Any]:
        try:
            return {"log": [once("mail", world.do, "ann")]}
        except UnknownOutcomeError as unknown:
            if interrupt(f"Did {unknown.key} arrive?") == "no":
                return {"log": [once("mail", world.do, "ann", on_unknown=world.do)]}
            return {"log": ["arrived"]}

    graph = build({"n": node}, chain("n"), saver)
    with pytest.raises(TimeoutError):
        graph.invoke({}, CONFIG)
    assert graph.invoke(None, CONFIG)["__interrupt__"][0].value == "Did mail arrive?"
    assert graph.invoke(Command(resume="no"), CONFIG) == {"log": ["ann"]}
    assert world.calls == ["ann", "ann"]


def test_an_edit_moves_the_thread_on(saver: Saver) -> None:
    world = World(TimeoutError("late"))
    graph = build({"n": node_of(Sync(), world, nothing)}, chain("n"), saver)
    with pytest.raises(TimeoutError):
        graph.invoke({}, CONFIG)
    graph.update_state(CONFIG, {"log": ["by hand"]}, as_node="n")
    assert graph.invoke(None, CONFIG) == {"log": ["by hand"]}
    assert world.calls == ["ann"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=["ctrl-c", "exit"])
def test_an_end_in_the_middle_leaves_the_outcome_unknown(saver: Saver, error: BaseException) -> None:
    world = World(error)
    graph = build({"n": node_of(Sync(), world, nothing, retry_on=Exception)}, chain("n"), saver)
    with pytest.raises(type(error)):
        graph.invoke({}, CONFIG)
    assert records(saver, graph) == [("mail", False, None, "")]
    with pytest.raises(UnknownOutcomeError, match="its end was never recorded") as caught:
        graph.invoke(None, CONFIG)
    assert caught.value.error == ""


def test_a_time_out_leaves_the_outcome_unknown(saver: Saver) -> None:
    calls: list[str] = []

    async def slow() -> None:
        calls.append("slow")
        await later(61)

    async def node(state: Any) -> None:
        await aonce("slow", slow)

    options = {"n": {"timeout": TimeoutPolicy(run_timeout=60), "retry_policy": AGAIN}}
    graph = build({"n": node}, chain("n"), saver, options=options)
    with pytest.raises(UnknownOutcomeError):
        asyncio.run(graph.ainvoke({}, CONFIG))
    assert calls == ["slow"]


def test_without_a_saver_the_same_results_are_refused() -> None:
    world = World()
    graph = build({"n": lambda state: once("k", world.do, "ann", [object()])}, chain("n"))
    with pytest.raises(UnstorableValueError, match="the call was made") as caught:
        graph.invoke({})
    assert (caught.value.node, caught.value.key, caught.value.path) == ("n", "k", "$[0]")
    assert world.calls == ["ann"]


def test_a_result_that_cannot_be_stored_is_an_unknown_outcome(run: Sync, saver: Saver) -> None:
    world = World()

    def node(state: Any) -> None:
        once("mail", world.do, "ann", [object()])

    async def anode(state: Any) -> None:
        await aonce("mail", world.ado, "ann", [object()])

    graph = build({"pay": anode if run.is_async else node}, chain("pay"), saver)
    with pytest.raises(UnstorableValueError, match=r"node 'pay', once\('mail', ...\): the call was made") as caught:
        run.invoke(graph, {}, CONFIG)
    found = caught.value
    assert (found.node, found.key, found.path, found.type_name) == ("pay", "mail", "$[0]", "object")
    with pytest.raises(UnknownOutcomeError, match="UnstorableValueError"):
        run.invoke(graph, None, CONFIG)
    assert world.calls == ["ann"]


class Full(InMemorySaver):
    """Cannot store what is called in `refuse`."""

    refuse = ""

    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        if self.refuse == "start":
            raise StorageError("the disk is full")
        return super().record_start(thread_id, namespace, task_id, recorded)

    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        if self.refuse == "end":
            raise StorageError("the disk is full")
        super().record(thread_id, namespace, task_id, recorded)


def test_nothing_is_called_where_its_start_cannot_be_stored(run: Sync) -> None:
    world, saver = World(), Full()
    graph = build({"n": node_of(run, world, nothing)}, chain("n"), saver)
    saver.refuse = "start"
    with pytest.raises(StorageError):
        run.invoke(graph, {}, CONFIG)
    assert world.calls == []
    saver.refuse = ""
    assert run.invoke(graph, None, CONFIG) == {"log": ["ann", None]}


def test_an_end_that_cannot_be_stored_is_an_unknown_outcome(run: Sync) -> None:
    world, saver = World(), Full()
    graph = build({"n": node_of(run, world, nothing)}, chain("n"), saver)
    saver.refuse = "end"
    with pytest.raises(StorageError):
        run.invoke(graph, {}, CONFIG)
    saver.refuse = ""
    with pytest.raises(UnknownOutcomeError):
        run.invoke(graph, None, CONFIG)
    assert world.calls == ["ann"]


# ------------------------------------------------------------------- wrong use


def test_a_key_is_used_once_in_a_run_of_a_node(run: Sync, saver: Saver) -> None:
    world = World()

    def node(state: Any) -> None:
        for name in ("ann", "bob"):
            once("mail", world.do, name)

    async def anode(state: Any) -> None:
        for name in ("ann", "bob"):
            await aonce("mail", world.ado, name)

    graph = build({"n": anode if run.is_async else node}, chain("n"), saver)
    with pytest.raises(OnceError, match=r'give each call a key of its own, in a loop for example f"mail-\{') as caught:
        run.invoke(graph, {}, CONFIG)
    assert (caught.value.node, caught.value.key) == ("n", "mail")
    assert world.calls == ["ann"]


@pytest.mark.parametrize(("key", "kind"), [("", ValueError), ("\ud800", ValueError), (7, TypeError), (None, TypeError)])
def test_a_key_is_a_name(key: Any, kind: type[Exception]) -> None:
    graph = build({"n": lambda state: once(key, print)}, chain("n"))
    with pytest.raises(kind, match="the key is"):
        graph.invoke({})


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (5, {}, r"once\('k', 5\): give it the function to call"),
        (None, {}, r"once\('k', None\): give it the function to call"),
        ("do", {"on_unknown": 5}, r"on_unknown=5\): on_unknown is a function"),
        ("do", {"on_unknown": False}, r"on_unknown=False\): on_unknown is a function"),
        ("do", {"retry_on": [ConnectionError, "OSError"]}, r"once\(\): retry_on is \["),
        ("do", {"retry_on": ConnectionError()}, r"once\(\): retry_on is ConnectionError\("),
        ("do", {"retry_on": int}, r"once\(\): retry_on is <class 'int'>"),
        ("do", {"retry_on": None}, r"once\(\): retry_on is None"),
    ],
)
def test_what_makes_no_sense_is_refused_before_it_begins(
    run: Sync, saver: Saver, function: Any, options: Any, message: str
) -> None:
    world = World(ConnectionError("lost"))

    def node(state: Any) -> dict[str, Any]:
        return {"log": [once("k", world.do if function == "do" else function, 1, **options)]}

    async def anode(state: Any) -> dict[str, Any]:
        return {"log": [await aonce("k", world.ado if function == "do" else function, 1, **options)]}

    graph = build({"n": anode if run.is_async else node}, chain("n"), saver)
    with pytest.raises(TypeError, match=message):
        run.invoke(graph, {}, CONFIG)
    assert world.calls == records(saver, graph) == []


@pytest.mark.parametrize("stored", [True, False])
def test_a_rule_that_fails_does_not_hide_the_error(run: Sync, saver: Saver, stored: bool) -> None:
    error = ConnectionError("lost")
    world = World(error)

    def rule(error: Exception) -> bool:
        raise KeyError("in the rule")

    node = node_of(run, world, nothing, retry_on=rule)
    graph = build({"n": node}, chain("n"), saver if stored else None)
    with pytest.raises(KeyError, match="in the rule") as caught:
        run.invoke(graph, {}, CONFIG)
    assert caught.value.__cause__ is error
    assert world.calls == ["ann"]
    if stored:
        assert records(saver, graph) == [("mail", False, None, "ConnectionError: lost")]


def test_outside_of_a_node_it_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"once\(\) was called outside of a running node"):
        once("k", print)
    with pytest.raises(RuntimeError, match=r"aonce\(\) was called outside"):
        asyncio.run(aonce("k", asyncio.sleep, 0))


class Callable_:
    async def __call__(self) -> None:
        raise AssertionError("never called")


def test_an_async_function_belongs_to_aonce() -> None:
    async def send() -> None:
        raise AssertionError("never called")

    functions: list[Any] = [send, functools.partial(send), Callable_(), lambda: send()]
    for function in functions:
        graph = build({"n": lambda state, function=function: once("k", function)}, chain("n"), InMemorySaver())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(TypeError, match="aonce"):
                graph.invoke({}, CONFIG)
    graph = build({"n": lambda state: once("k", print, on_unknown=send)}, chain("n"))
    with pytest.raises(TypeError, match="aonce"):
        graph.invoke({})


def test_a_plain_function_belongs_to_once(saver: Saver) -> None:
    async def node(state: Any) -> None:
        await aonce("k", lambda: 5)  # type: ignore[arg-type, return-value]

    graph = build({"n": node}, chain("n"), saver)
    with pytest.raises(TypeError, match="use once"):
        asyncio.run(graph.ainvoke({}, CONFIG))
    assert records(saver, graph)[0][:2] == ("k", False)


def test_nobody_is_asked_inside_of_a_call(run: Sync, saver: Saver) -> None:
    def node(state: Any) -> None:
        once("k", interrupt, "q")

    async def asking() -> None:
        interrupt("q")

    async def anode(state: Any) -> None:
        await aonce("k", asking)

    graph = build({"n": anode if run.is_async else node}, chain("n"), saver)
    with pytest.raises(OnceError, match="ask before it") as caught:
        run.invoke(graph, {}, CONFIG)
    assert (caught.value.node, caught.value.key) == ("n", "k")


def test_a_child_graph_asks_nobody_inside_of_a_call(saver: Saver) -> None:
    child = build({"c": lambda state: {"log": [interrupt("q")]}}, chain("c"))
    graph = build({"n": lambda state: {"log": [once("k", child.invoke, {})]}}, chain("n"), saver)
    with pytest.raises(OnceError, match="node 'n'"):
        graph.invoke({}, CONFIG)


def test_a_graph_of_its_own_may_ask_inside_of_a_call(saver: Saver) -> None:
    other = build({"c": lambda state: {"log": [interrupt("q")]}}, chain("c"), InMemorySaver())

    def call() -> bool:
        return "__interrupt__" in other.invoke({}, thread("another"))

    graph = build({"n": lambda state: {"value": once("k", call)}}, chain("n"), saver)
    assert graph.invoke({}, CONFIG) == {"log": [], "value": True}


@pytest.mark.parametrize("durability", ["exit", "async"])
def test_only_what_is_stored_at_once_can_be_done_once(run: Sync, saver: Saver, durability: str) -> None:
    world = World()
    graph = build({"n": node_of(run, world, nothing)}, chain("n"), saver)
    with pytest.raises(OnceError, match='durability="sync"'):
        run.invoke(graph, {}, CONFIG, durability=durability)
    assert world.calls == []
    assert run.invoke(build({"n": node_of(run, world, nothing)}, chain("n")), {}, durability=durability) == {
        "log": ["ann", None]
    }


def in_the_pool(state: Any) -> dict[str, Any]:
    return {"log": [once("k", os.getpid)]}


def test_in_an_executor_nothing_is_called(run: Sync) -> None:
    for pool in (ThreadPoolExecutor(1), ProcessPoolExecutor(1)):
        with pool:
            for saver in (InMemorySaver(), None):
                graph = build({"n": in_the_pool}, chain("n"), saver, executor=pool)
                with pytest.raises(OnceError, match="without executor="):
                    run.invoke(graph, {}, CONFIG)


@odd("unreachable-node")
def test_a_router_without_a_stored_task_calls_nothing(saver: Saver) -> None:
    world = World()

    def router(state: Any) -> str:
        once("k", world.do, 1)
        return "__end__"

    graph = build({"n": lambda state: None}, [], saver, routers=[(START, router)])
    with pytest.raises(OnceError, match="make the call in a node"):
        graph.invoke({}, CONFIG)
    graph = build({"n": lambda state: None}, chain("n"), saver, routers=[("n", router)])
    with pytest.raises(OnceError, match="make the call in a node"):
        graph.update_state(thread("other"), None, as_node="n")
    assert world.calls == []


# ------------------------------------------------------------------- branches


def three_calls(world: World) -> Any:
    """Does a, asks, does b, asks, does c."""

    def node(state: Any) -> dict[str, Any]:
        first = (once("a", world.do, "a"), interrupt("one"))
        second = (once("b", world.do, ("b", first[1])), interrupt("two"))
        return {"log": [*first, *second, once("c", world.do, ("c", second[1]))]}

    return node


@pytest.mark.parametrize(
    ("question", "log", "calls"),
    [
        ("one", ["a", "new", ("b", "new"), "asked again", ("c", "asked again")], [("b", "new"), ("c", "asked again")]),
        ("two", ["a", 1, ("b", 1), "new", ("c", "new")], [("c", "new")]),
    ],
)
def test_a_new_answer_keeps_what_was_done_before_the_question(
    run: Sync, saver: Saver, question: str, log: list[Any], calls: list[Any]
) -> None:
    world = World()
    graph = build({"n": three_calls(world)}, chain("n"), saver)
    ids: dict[Any, str] = {}
    run.invoke(graph, {}, CONFIG)
    for answer in (1, 2):
        ids |= open_ids(graph, CONFIG)
        run.invoke(graph, Command(resume=answer), CONFIG)
    assert world.calls == ["a", ("b", 1), ("c", 2)]
    world.calls.clear()
    result = run.invoke(graph, Command(resume={ids[question]: "new"}), checkpoint_before(graph, CONFIG, "n"))
    if question == "one":
        result = run.invoke(graph, Command(resume="asked again"), CONFIG)
    assert result == {"log": log}
    assert world.calls == calls


def test_on_a_branch_an_unknown_outcome_stays_unknown(saver: Saver) -> None:
    world = World(TimeoutError("late"))

    def node(state: Any) -> dict[str, Any]:
        try:
            once("mail", world.do, "ann")
        except (TimeoutError, UnknownOutcomeError) as error:
            return {"log": [type(error).__name__, interrupt("q")]}
        raise AssertionError

    graph = build({"n": node}, chain("n"), saver)
    graph.invoke({}, CONFIG)
    ids = open_ids(graph, CONFIG)
    graph.invoke(Command(resume=1), CONFIG)
    found = graph.invoke(Command(resume={ids["q"]: 2}), checkpoint_before(graph, CONFIG, "n"))
    assert found == {"log": ["UnknownOutcomeError", 2]}
    assert world.calls == ["ann"]


def test_a_new_answer_leaves_the_siblings_records_alone(run: Sync, saver: Saver) -> None:
    world = World()

    def node(name: str) -> Any:
        return lambda state: {"log": [once("k", world.do, name), interrupt(name), once("l", world.do, name * 2)]}

    def late(state: Any) -> dict[str, Any]:
        once("late", world.do, "late")
        deadline = time.monotonic() + 10
        while not siblings_are_done() and time.monotonic() < deadline:  # failing earlier, it would cancel them
            time.sleep(0.001)
        raise KeyError("late")

    graph = build({"a": node("a"), "b": node("b"), "late": late}, fan("a", "b", "late"), saver)
    siblings_are_done: Callable[[], bool] = lambda: set(open_ids(graph, CONFIG)) == {"a", "b"}  # noqa: E731
    with pytest.raises(KeyError, match="late"):
        run.invoke(graph, {}, CONFIG)
    ids = open_ids(graph, CONFIG)
    wanted = ["a", "aa", "b", "late"]
    siblings_are_done = lambda: sorted(world.calls) == wanted  # noqa: E731
    with pytest.raises(KeyError, match="late"):
        run.invoke(graph, Command(resume={ids["a"]: 1}), CONFIG)
    assert sorted(world.calls) == wanted
    run.update(graph, CONFIG, {}, "late")  # moves on, so that the checkpoint of the questions is an older one
    old = checkpoint_before(graph, CONFIG, "a", "b", "late")
    wanted = ["a", "aa", "aa", "b", "late"]
    with pytest.raises(KeyError, match="late"):
        run.invoke(graph, Command(resume={ids["a"]: 2}), old)
    assert sorted(world.calls) == wanted
    run.update(graph, CONFIG, {}, "late")
    assert run.invoke(graph, Command(resume=3), CONFIG) == {"log": ["a", 2, "aa", "b", 3, "bb"]}
    assert sorted(world.calls) == ["a", "aa", "aa", "b", "bb", "late"]


def family(world: World, child_saver: bool | None, saver: Saver | None, deep: bool = False) -> CompiledGraph:
    """A node that calls before and after it runs a child graph, whose node calls before and after it asks."""

    def inner(state: Any) -> dict[str, Any]:
        once("k", world.do, "before q")
        answer = interrupt("q")
        return {"log": [once("l", world.do, ("after q", answer))]}

    child = build({"inner": inner}, chain("inner"), child_saver)
    if deep:
        below = child

        def middle(state: Any) -> dict[str, Any]:
            once("k", world.do, "before inner")
            return {"log": [*below.invoke({})["log"], once("l", world.do, "after inner")]}

        child = build({"middle": middle}, chain("middle"), child_saver)

    def outer(state: Any) -> dict[str, Any]:
        once("k", world.do, "before child")
        found = child.invoke({})["log"]
        return {"log": [*found, once("l", world.do, "after child")]}

    return build({"outer": outer}, chain("outer"), saver)


BEFORE = ["before child", "before inner", "before q"]
AFTER = [("after q", 1), "after inner", "after child"]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("child_saver", [None, False], ids=["the child stores", "the child stores nothing"])
def test_a_child_graph_does_it_once(saver: Saver, child_saver: bool | None, deep: bool) -> None:
    world = World()
    graph = family(world, child_saver, saver, deep)
    names = [*BEFORE, *AFTER] if deep else [BEFORE[0], BEFORE[2], AFTER[0], AFTER[2]]
    graph.invoke({}, CONFIG)
    assert graph.invoke(Command(resume=1), CONFIG) == {"log": [name for name in names if "before" not in name]}
    assert world.calls == names


@pytest.mark.parametrize("deep", [False, True])
def test_a_new_answer_in_a_child_graph_keeps_what_was_done_before(saver: Saver, deep: bool) -> None:
    world = World()
    graph = family(world, None, saver, deep)
    graph.invoke({}, CONFIG)
    ids = open_ids(graph, CONFIG)
    graph.invoke(Command(resume=1), CONFIG)
    world.calls.clear()
    graph.invoke(Command(resume={ids["q"]: 2}), checkpoint_before(graph, CONFIG, "outer"))
    assert world.calls == [("after q", 2), *(["after inner"] if deep else []), "after child"]


@pytest.mark.parametrize("child_saver", [None, False], ids=["the child stores", "the child stores nothing"])
def test_a_new_answer_keeps_the_child_graphs_that_were_called_before(saver: Saver, child_saver: bool | None) -> None:
    world = World()
    child = build(
        {"c": lambda state: {"log": [once("k", world.do, ("child", state["value"]))]}}, chain("c"), child_saver
    )

    def node(state: Any) -> dict[str, Any]:
        found = [child.invoke({"value": n})["log"][0] for n in (1, 2)]
        answer = interrupt("q")
        return {"log": [*found, *child.invoke({"value": answer})["log"]]}

    graph = build({"n": node}, chain("n"), saver)
    graph.invoke({}, CONFIG)
    ids = open_ids(graph, CONFIG)
    graph.invoke(Command(resume=3), CONFIG)
    assert world.calls == [("child", 1), ("child", 2), ("child", 3)]
    found = graph.invoke(Command(resume={ids["q"]: 4}), checkpoint_before(graph, CONFIG, "n"))
    assert found == {"log": [("child", 1), ("child", 2), ("child", 4)]}
    assert world.calls == [("child", 1), ("child", 2), ("child", 3), ("child", 4)]


def test_a_new_answer_in_a_child_graph_keeps_the_answers_that_its_caller_had(run: Sync, saver: Saver) -> None:
    world = World()
    child = build({"c": lambda state: {"log": [once("k", world.do, "c"), interrupt("inner")]}}, chain("c"))

    def node(state: Any) -> dict[str, Any]:
        first = [once("a", world.do, "a"), interrupt("own"), once("b", world.do, "b")]
        found = child.invoke({})["log"]
        return {"log": [*first, *found, once("d", world.do, "d"), interrupt("last")]}

    graph = build({"n": node}, chain("n"), saver)
    run.invoke(graph, {}, CONFIG)
    run.invoke(graph, Command(resume="one"), CONFIG)
    ids = open_ids(graph, CONFIG)
    run.invoke(graph, Command(resume="two"), CONFIG)
    run.invoke(graph, Command(resume="three"), CONFIG)
    assert world.calls == ["a", "b", "c", "d"]
    old = checkpoint_before(graph, CONFIG, "n")
    found = run.invoke(graph, Command(resume={ids["inner"]: "new"}), old)
    assert [question.value for question in found["__interrupt__"]] == ["last"]
    assert world.calls == ["a", "b", "c", "d", "d"]
    assert run.invoke(graph, Command(resume="end"), CONFIG)["log"] == ["a", "one", "b", "c", "new", "d", "end"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_new_answer_leaves_the_child_graphs_of_siblings_as_they_are(run: Sync, saver: Saver, fails: bool) -> None:
    world, fate = World(), World()

    def last(state: Any) -> dict[str, Any]:
        once("last", world.do, "last")
        return {"log": [fate.do("done") if fails else interrupt("inner")]}

    child = build(
        {"first": lambda state: {"log": [once("first", world.do, "first")]}, "last": last}, chain("first", "last")
    )
    nodes = {
        "a": lambda state: {"log": [interrupt("q")]},
        "b": lambda state: {"log": child.invoke({})["log"]},
        "c": lambda state: {"log": [interrupt("c")]},
    }
    graph = build(nodes, fan("a", "b", "c"), saver)
    if fails:
        fate.failures.append(KeyError("no"))
        with pytest.raises(KeyError):
            run.invoke(graph, {}, CONFIG)
    else:
        run.invoke(graph, {}, CONFIG)
    ids = open_ids(graph, CONFIG)
    run.update(graph, CONFIG, {"log": []}, "c")
    old = checkpoint_before(graph, CONFIG, "a", "b", "c")
    found = run.invoke(graph, Command(resume={ids["q"]: 1}), old)
    assert world.calls == ["first", "last"]
    questions = open_ids(graph, CONFIG)
    assert set(questions) == ({"c"} if fails else {"c", "inner"})
    answers = {questions[name]: name for name in questions}
    found = run.invoke(graph, Command(resume=answers), CONFIG)
    assert found["log"] == [1, "first", "done" if fails else "inner", "c"]
    assert world.calls == ["first", "last"]


@pytest.mark.parametrize("stored", [True, False])
def test_a_child_graph_that_stores_nothing_finds_its_records_when_it_starts_over(saver: Saver, stored: bool) -> None:
    world, fate = World(), World(KeyError("later"))

    def step(state: Any) -> dict[str, Any]:
        count = len(state["log"])
        return {"log": [once("k", world.do, count)]}

    def send(state: int) -> dict[str, Any]:
        return {"log": [once("k", world.do, ("send", state))]}

    def route(state: Any) -> Any:
        return "step" if len(state["log"]) < 3 else [Send("send", n) for n in (7, 8)]

    child = build(
        {"step": step, "send": send},
        chain("step"),
        False,
        routers=[("step", route, ["step", "send"])],
    )

    def outer(state: Any) -> dict[str, Any]:
        found = [child.invoke({})["log"] for _ in range(2)]
        fate.do("after")
        return {"log": found}

    options = {"outer": {"retry_policy": AGAIN}}
    graph = build({"outer": outer}, chain("outer"), saver if stored else None, options=options)
    log = [0, 1, 2, ("send", 7), ("send", 8)]
    assert graph.invoke({}, CONFIG) == {"log": [log, log]}
    assert sorted(map(str, world.calls)) == sorted(map(str, [*log, *log]))
    assert len(fate.calls) == 2


def test_records_of_a_child_that_stores_nothing_are_pruned_with_its_caller(saver: Saver) -> None:
    world = World()
    graph = family(world, False, saver)
    graph.invoke({}, CONFIG)
    task = graph.get_state(CONFIG).tasks[0].id
    saver.prune("t", keep=1)
    assert [recorded.key for recorded in saver.recorded("t", "", f"{task}|0:1:inner")] == ["k"]
    graph.invoke(Command(resume=1), CONFIG)
    saver.prune("t", keep=1)
    assert saver.recorded("t", "", f"{task}|0:1:inner") == saver.recorded("t", "", task) == ()


# ------------------------------------------------------------------- a killed process

PROGRAM = """
import operator, os, sys
from typing import Annotated, TypedDict

from minigraph import START, StateGraph, once
from minigraph.checkpoint import SqliteSaver

class State(TypedDict):
    log: Annotated[list[str], operator.add]

def send(address):
    with open("mails", "a") as mails:
        mails.write(address + "\\n")
    if sys.argv[1] == "in the call":
        os.kill(os.getpid(), 9)
    return "sent"

def node(state):
    done = once("mail", send, "ann")
    if sys.argv[1] == "after it":
        os.kill(os.getpid(), 9)
    return {"log": [done]}

config = {"configurable": {"thread_id": "t"}}
with SqliteSaver("threads.db") as saver:
    graph = StateGraph(State).add_node(node).add_edge(START, "node").compile(saver)
    given = None if sys.argv[1] == "go on" else {"log": []}
    print(graph.invoke(given, config))
"""


@pytest.mark.parametrize("where", ["in the call", "after it"])
def test_a_killed_process_does_it_once(tmp_path: Path, where: str) -> None:
    root = Path(__file__).parent.parent

    def process(what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, what]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    assert process(where).returncode == -signal.SIGKILL
    ended = process("go on")
    assert (tmp_path / "mails").read_text() == "ann\n"
    if where == "after it":
        assert (ended.returncode, ended.stdout) == (0, "{'log': ['sent']}\n")
    else:
        assert ended.returncode == 1
        assert "UnknownOutcomeError: node 'node': once('mail', ...) was called in an earlier try" in ended.stderr
