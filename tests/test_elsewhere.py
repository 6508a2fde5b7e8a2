"""Tasks in another process: what travels, what comes back, and what cannot travel."""

from __future__ import annotations

import asyncio
import operator
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Annotated, Any, TypedDict

import pytest

from minigraph import END, START, Command, Send, StateGraph, get_stream_writer, interrupt
from minigraph.checkpoint import InMemorySaver


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def where(state: Any) -> dict[str, list[Any]]:
    get_stream_writer()("here")
    return {"log": [os.getpid() != int(os.environ["MINIGRAPH_TEST_PARENT"])]}


def ask(state: Any) -> dict[str, list[Any]]:
    return {"log": [interrupt("q")]}


def fail(state: Any) -> None:
    raise KeyError("lost")


def square(x: Any) -> dict[str, list[int]]:
    return {"log": [x * x]}


def spread(state: Any) -> list[Send]:
    return [Send("square", x) for x in (3, 1, 2)]


def stop(state: Any) -> str:
    return END


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    os.environ["MINIGRAPH_TEST_PARENT"] = str(os.getpid())
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        yield executor
    del os.environ["MINIGRAPH_TEST_PARENT"]


CONFIG = {"configurable": {"thread_id": "t"}}


def test_nodes_run_there_and_their_writes_and_chunks_come_back(pool: ProcessPoolExecutor) -> None:
    builder = StateGraph(Log).add_node("where", where).add_edge(START, "where")
    graph = builder.add_conditional_edges("where", stop, {END: END}).compile(executor=pool)
    assert graph.invoke({}) == {"log": [True]}
    assert list(graph.stream({}, stream_mode="custom")) == ["here"]
    assert asyncio.run(graph.ainvoke({})) == {"log": [True]}


def test_sends_come_back_in_their_order(pool: ProcessPoolExecutor) -> None:
    graph = StateGraph(Log).add_node("square", square).add_conditional_edges(START, spread).compile(executor=pool)
    assert graph.invoke({}) == {"log": [9, 1, 4]}


def test_a_question_asked_there_pauses_the_run_here(pool: ProcessPoolExecutor) -> None:
    graph = StateGraph(Log).add_node("ask", ask).add_edge(START, "ask").compile(InMemorySaver(), executor=pool)
    assert graph.invoke({}, CONFIG)["__interrupt__"][0].value == "q"
    assert graph.invoke(Command(resume="yes"), CONFIG) == {"log": ["yes"]}


def test_an_error_there_is_raised_here_and_the_task_stays_due(pool: ProcessPoolExecutor) -> None:
    graph = StateGraph(Log).add_node("fail", fail).add_edge(START, "fail").compile(InMemorySaver(), executor=pool)
    with pytest.raises(KeyError, match="lost"):
        graph.invoke({}, CONFIG)
    assert graph.get_state(CONFIG).next == ("fail",)


def test_a_node_that_cannot_travel_fails_with_the_remedy(pool: ProcessPoolExecutor) -> None:
    graph = StateGraph(Log).add_node("local", lambda state: None).add_edge(START, "local").compile(executor=pool)
    with pytest.raises(Exception, match="lambda") as caught:
        graph.invoke({})
    assert any("must be picklable" in note for note in caught.value.__notes__)


class ToldLate(Future[Any]):
    """Is done a while before its callbacks are called, unless its task has failed."""

    def _invoke_callbacks(self) -> None:
        if self.result().error is None:
            time.sleep(0.2)
        super()._invoke_callbacks()  # type: ignore[misc]  # not part of the typed interface


class Late(Executor):
    """Runs everything in threads, and tells of it late."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = ToldLate()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run).start()
        return future


def test_a_result_that_is_told_of_late_is_not_lost_when_a_sibling_fails() -> None:
    calls: list[str] = []

    def quick(state: Any) -> dict[str, list[str]]:
        calls.append("quick")
        time.sleep(0.02)  # its future has a callback by then
        return {"log": ["quick"]}

    def failing(state: Any) -> None:
        time.sleep(0.1)
        if "failed" not in calls:
            calls.append("failed")
            raise KeyError("failed")

    builder = StateGraph(Log).add_node("failing", failing).add_node("quick", quick)
    builder.add_edge(START, "failing").add_edge(START, "quick")
    graph = builder.compile(checkpointer=InMemorySaver(), executor=Late())
    with pytest.raises(KeyError):
        graph.invoke({}, CONFIG)
    assert graph.invoke(None, CONFIG) == {"log": ["quick"]}
    assert calls == ["quick", "failed"]


def test_an_executor_that_drops_its_tasks_ends_the_run() -> None:
    class Closed(Executor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    graph = StateGraph(Log).add_node("where", where).add_edge(START, "where").compile(executor=Closed())
    with pytest.raises(CancelledError):
        graph.invoke({}, CONFIG)
