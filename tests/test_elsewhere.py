"""Tasks in another process: what travels, what comes back, and what cannot travel."""

from __future__ import annotations

import asyncio
import operator
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
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
