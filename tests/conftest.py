"""Builders of small graphs, and one way to run them both synchronously and with asyncio."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psycopg_pool
import pytest
from postgres_server import conninfo, schema

from minigraph import START, CompiledGraph, StateGraph, interrupt
from minigraph.checkpoint import InMemorySaver, PostgresSaver, Saver, SqliteSaver


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long sweeps to `make nightly`, which names the marker."""
    if "slow" not in str(config.getoption("markexpr")):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="a long sweep: -m slow runs it"))


class Log(TypedDict, total=False):
    """One reducer key and one plain key."""

    log: Annotated[list[Any], operator.add]
    value: Any


def describe(
    nodes: Mapping[str, Any],
    edges: Sequence[tuple[Any, str]],
    routers: Sequence[tuple[Any, ...]] = (),
    *,
    state: Any = Log,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    **schemas: Any,
) -> StateGraph[Any, Any, Any, Any]:
    """A graph to compile; `options` are add_node's by node name, `routers` arguments of add_conditional_edges."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(state, **schemas)
    for name, action in nodes.items():
        builder.add_node(name, action, **(options or {}).get(name, {}))
    for source, target in edges:
        builder.add_edge(source, target)
    for arguments in routers:
        builder.add_conditional_edges(*arguments)
    return builder


def build(
    nodes: Mapping[str, Any],
    edges: Sequence[tuple[Any, str]],
    saver: Saver | bool | None = None,
    *,
    routers: Sequence[tuple[Any, ...]] = (),
    state: Any = Log,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    **compile_options: Any,
) -> CompiledGraph:
    """The same as `describe`, compiled."""
    return describe(nodes, edges, routers, state=state, options=options).compile(saver, **compile_options)


def odd(*findings: str) -> pytest.MarkDecorator:
    """Marks a test that builds graphs with these findings of check() on purpose."""
    return pytest.mark.filterwarnings(*(rf"ignore:\[{name}\]:minigraph.GraphWarning" for name in findings))


def chain(*names: str) -> list[tuple[str, str]]:
    """Edges from START through the names, one after the other."""
    return list(zip((START, *names), names, strict=False))


def fan(*names: str) -> list[tuple[str, str]]:
    """Edges from START to every name."""
    return [(START, name) for name in names]


def say(word: Any, runs: list[Any] | None = None) -> Callable[[Any], dict[str, Any]]:
    """A node that appends a word to the log, and to `runs` each time it runs."""

    def node(state: Any) -> dict[str, Any]:
        if runs is not None:
            runs.append(word)
        return {"log": [word]}

    return node


def words(text: str, runs: list[Any] | None = None) -> dict[str, Any]:
    """Nodes that each say their own name."""
    return {word: say(word, runs) for word in text.split()}


def ask(question: Any, runs: list[Any] | None = None) -> Callable[[Any], dict[str, Any]]:
    """A node that asks and appends `(question, answer)` to the log."""

    def node(state: Any) -> dict[str, Any]:
        if runs is not None:
            runs.append(question)
        return {"log": [(question, interrupt(question))]}

    return node


def thread(thread_id: str = "t", **settings: Any) -> dict[str, Any]:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread_id}, **settings}


def open_ids(graph: CompiledGraph, config: Mapping[str, Any]) -> dict[Any, str]:
    """The ids of the open questions by their values."""
    return {question.value: question.id for question in graph.get_state(config).interrupts}


def checkpoint_before(graph: CompiledGraph, config: Mapping[str, Any], *nodes: str) -> dict[str, Any]:
    """The config of the newest checkpoint after which these nodes are due."""
    return next(shot.config for shot in graph.get_state_history(config) if shot.next == nodes)


def sources(graph: CompiledGraph, config: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Source and step of every checkpoint, newest first."""
    return [(s.metadata["source"], s.metadata["step"]) for s in graph.get_state_history(config) if s.metadata]


async def later(seconds: float) -> None:
    """Sets the running loop's clock forward and lets the loop do what is due then: no time passes."""
    loop = asyncio.get_running_loop()
    then = loop.time
    loop.time = lambda: then() + seconds  # type: ignore[method-assign]
    for _ in range(3):
        await asyncio.sleep(0)


class Sync:
    """Calls the plain methods of a graph."""

    is_async = False

    def invoke(self, graph: CompiledGraph, given: Any, config: Any = None, **options: Any) -> Any:
        return graph.invoke(given, config, **options)

    def stream(self, graph: CompiledGraph, given: Any, config: Any = None, **options: Any) -> list[Any]:
        return list(graph.stream(given, config, **options))

    def state(self, graph: CompiledGraph, config: Any, **options: Any) -> Any:
        return graph.get_state(config, **options)

    def history(self, graph: CompiledGraph, config: Any, **options: Any) -> list[Any]:
        return list(graph.get_state_history(config, **options))

    def update(self, graph: CompiledGraph, config: Any, values: Any, as_node: str | None = None) -> dict[str, Any]:
        return graph.update_state(config, values, as_node)


class Async(Sync):
    """Calls the methods for asyncio, each in a loop of its own."""

    is_async = True

    def invoke(self, graph: CompiledGraph, given: Any, config: Any = None, **options: Any) -> Any:
        return asyncio.run(graph.ainvoke(given, config, **options))

    def stream(self, graph: CompiledGraph, given: Any, config: Any = None, **options: Any) -> list[Any]:
        async def collect() -> list[Any]:
            return [chunk async for chunk in graph.astream(given, config, **options)]

        return asyncio.run(collect())

    def state(self, graph: CompiledGraph, config: Any, **options: Any) -> Any:
        return asyncio.run(graph.aget_state(config, **options))

    def history(self, graph: CompiledGraph, config: Any, **options: Any) -> list[Any]:
        async def collect() -> list[Any]:
            return [shot async for shot in graph.aget_state_history(config, **options)]

        return asyncio.run(collect())

    def update(self, graph: CompiledGraph, config: Any, values: Any, as_node: str | None = None) -> dict[str, Any]:
        return asyncio.run(graph.aupdate_state(config, values, as_node))


@pytest.fixture(params=[Sync(), Async()], ids=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Sync:
    """The same calls, once plain and once with asyncio."""
    mode: Sync = request.param
    return mode


@pytest.fixture(scope="session")
def postgres_pool() -> Iterator[psycopg_pool.ConnectionPool[Any]]:
    """Connections to the server of the test run."""
    with psycopg_pool.ConnectionPool(conninfo(), kwargs={"autocommit": True}, min_size=1, max_size=16) as pool:
        pool.wait()  # a connection that a thread opens draws from `random`, which Hypothesis blames on the test
        yield pool


@pytest.fixture(scope="session")
def shared_schema() -> Iterator[str]:
    """The schema that tests use one after the other."""
    with schema() as name:
        yield name


@pytest.fixture
def make_postgres(postgres_pool: psycopg_pool.ConnectionPool[Any], shared_schema: str) -> Callable[[], PostgresSaver]:
    """Makes a saver whose tables are empty, for what is stored by the one before it is deleted."""

    def make() -> PostgresSaver:
        saver = PostgresSaver(postgres_pool, schema=shared_schema)
        saver.setup()
        with postgres_pool.connection() as connection:
            for table in ("logs", "writes", "recorded"):
                connection.execute(f"DELETE FROM {shared_schema}.{table}".encode())
        return saver

    return make


@pytest.fixture
def postgres(make_postgres: Callable[[], PostgresSaver]) -> Iterator[PostgresSaver]:
    """A saver whose tables are empty."""
    with make_postgres() as saver:
        yield saver


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Saver]:
    """Every kind of saver."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres")
        return
    made: Saver = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "threads.db")
    yield made
    made.close()
