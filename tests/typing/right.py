"""Right programs: mypy and pyright must accept every line. Read by the checkers alone, never run."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, assert_type

import msgspec
from pydantic import BaseModel

from minigraph import (
    END,
    START,
    Command,
    CompiledGraph,
    GraphOutput,
    MessagesState,
    Overwrite,
    RetryPolicy,
    RunnableConfig,
    Runtime,
    Send,
    StateGraph,
)
from minigraph.cache import Cache
from minigraph.checkpoint.base import Saver
from minigraph.checkpoint.memory import InMemorySaver
from minigraph.context import StreamWriter
from minigraph.errors import NodeError
from minigraph.testing import detect_mutation


class Order(TypedDict):
    number: str


class State(Order):
    log: Annotated[list[str], operator.add]
    total: int


class Log(TypedDict):
    log: list[str]


class Total(TypedDict):
    total: int


class Draft(TypedDict):
    text: str


@dataclass
class User:
    name: str


# ---------------------------------------------------------------------- nodes


def whole(state: State) -> dict[str, Any]:
    return {"total": len(state["log"])}


def smaller(state: Log) -> Total:
    return {"total": len(state["log"])}


def plain(state: dict[str, Any]) -> dict[str, object]:
    return {"total": state["total"]}


def mapping(state: Mapping[str, Any]) -> None:
    return None


def untyped(state):  # type: ignore[no-untyped-def]  # as a beginner would write it
    return {"total": 1}


def private(state: Draft) -> dict[str, str]:
    return {"text": state["text"]}


def number(value: Any) -> dict[str, list[str]]:
    return {"log": [str(value)]}


async def later(state: State, runtime: Runtime[User]) -> Command[Literal["whole", "smaller"]]:
    return Command(update={"log": [runtime.context.name]}, goto="whole")


def wanting(state: State, config: RunnableConfig, runtime: Runtime[User], writer: StreamWriter) -> dict[str, Any]:
    writer(config.get("tags"))
    return {"log": Overwrite([runtime.context.name])}


def only_writer(state: State, *, writer: StreamWriter) -> None:
    writer(state["total"])


def config_as_dict(state: State, config: dict[str, Any]) -> None:
    return None


def defaults(state: State, config: RunnableConfig | None = None, times: int = 1) -> None:
    return None


def recover(state: State, error: NodeError) -> Command[str]:
    return Command(update={"log": [str(error)]}, goto=END)


class Reader:
    def __call__(self, state: State) -> None: ...

    def method(self, state: State, runtime: Runtime[User]) -> None: ...


def configured(state: State, *, factor: int) -> None: ...


# -------------------------------------------------------------------- routers


def choose(state: State) -> Literal["whole", "later"]:
    return "whole" if state["total"] else "later"


def several(state: State) -> list[str]:
    return ["whole", "later"]


def spread(state: State, runtime: Runtime[User]) -> list[Send]:
    return [Send("number", 1), Send("private", Draft(text=runtime.context.name))]


async def choose_later(state: Log) -> str:
    return END


def enough(state: State) -> bool:
    return state["total"] > 3


def build(saver: Saver | None, cache: Cache) -> CompiledGraph[State, User, Order, Total]:
    graph = StateGraph(State, User, input_schema=Order, output_schema=Total)
    assert_type(graph, StateGraph[State, User, Order, Total])
    graph.add_node(whole).add_node(smaller).add_node("plain", plain).add_node(mapping).add_node(untyped)
    graph.add_node(private, input_schema=Draft)
    graph.add_node("draft", private, input_schema=Draft, defer=True)
    graph.add_node(number)
    graph.add_node(later, retry_policy=RetryPolicy(max_attempts=2, retry_on=(ValueError, KeyError)), timeout=1.5)
    RetryPolicy(retry_on=[ValueError, KeyError])
    graph.add_node(wanting, error_handler=recover, metadata={"owner": "Ann"}, destinations=["whole"])
    graph.add_node(only_writer).add_node(config_as_dict).add_node(defaults)
    graph.add_node("object", Reader()).add_node("method", Reader().method)
    graph.add_node("partial", functools.partial(configured, factor=2))
    graph.add_node("short", lambda state: {"total": state["total"] + 1})
    graph.add_sequence([("first", whole), ("second", smaller)])
    graph.add_edge(START, "whole").add_edge(["whole", "smaller"], "plain")
    graph.add_conditional_edges("whole", choose)
    graph.add_conditional_edges("smaller", several, ["whole", "later"])
    graph.add_conditional_edges("plain", spread)
    graph.add_conditional_edges("later", choose_later)
    graph.add_conditional_edges("number", enough, {True: "whole", False: END})
    graph.add_conditional_edges("first", lambda state: "whole" if state["total"] else END)
    graph.set_conditional_entry_point(choose)
    return graph.compile(saver, cache=cache, interrupt_before=["whole"], interrupt_after="*", name="orders")


# ----------------------------------------------------------------------- runs


def run(graph: CompiledGraph[State, User, Order, Total], config: RunnableConfig) -> None:
    thread = {"configurable": {"thread_id": "1"}}
    assert_type(graph.invoke({"number": "R1"}, thread, context=User("Ann")), dict[str, Any])
    assert_type(graph.invoke({"number": "R1"}, config, version="v2"), GraphOutput[Total])
    assert_type(graph.invoke({"number": "R1"}, version="v2").value["total"], int)
    assert_type(graph.invoke({"number": "R1"}, output_keys=["log", "total"]), Any)
    total: int = graph.invoke({"number": "R1"}, output_keys="total")
    chunks: list[Any] = graph.invoke({"number": "R1"}, stream_mode="updates", durability="exit")
    graph.invoke(None, thread)
    graph.invoke(Command(resume=total), thread, interrupt_before=["whole"], interrupt_after="*")
    graph.invoke(Command(resume=chunks, goto=[Send("whole", {}), "later"]), thread)
    for part in graph.stream({"number": "R1"}, thread, version="v2", stream_mode=["values", "custom"]):
        assert_type(part["ns"], tuple[str, ...])
    for mode, chunk in graph.stream({"number": "R1"}, thread, stream_mode=["values", "custom"], subgraphs=False):
        print(mode, chunk)
    graph.resume(thread, "yes", context=User("Ann"))
    graph.replay(graph.get_state(thread).config)
    graph.fork(graph.get_state(config).config, {"total": 2}, as_node="whole")


async def run_async(graph: CompiledGraph[State, User, Order, Total]) -> None:
    assert_type(await graph.ainvoke({"number": "R1"}, context=User("Ann")), dict[str, Any])
    assert_type((await graph.ainvoke({"number": "R1"}, version="v2")).value, Total)
    async for part in graph.astream({"number": "R1"}, version="v2"):
        assert_type(part["ns"], tuple[str, ...])
    await graph.aresume({"configurable": {"thread_id": "1"}}, "yes", version="v2")


def any_graph(graph: CompiledGraph) -> None:
    """A graph of unknown state takes anything."""
    graph.invoke({"x": 1}, context="c")["x"]


def inner_and_outer(graph: CompiledGraph[State, User, Order, Total]) -> None:
    any_graph(graph)
    StateGraph(State).add_node("child", graph).add_node(graph).add_edge(START, "child").compile(InMemorySaver())
    StateGraph(State, User).add_node(later).compile(checkpointer=True)


def testing(graph: CompiledGraph[State, User, Order, Total]) -> None:
    assert_type(detect_mutation(graph), CompiledGraph[State, User, Order, Total])


# ------------------------------------------------------------- kinds of schema


@dataclass
class Data:
    total: int = 0


class Record(msgspec.Struct):
    total: int = 0


class Model(BaseModel):
    total: int = 0


def with_data(state: Data) -> dict[str, int]:
    return {"total": state.total}


def with_record(state: Record) -> Record:
    return Record(state.total + 1)


def with_model(state: Model) -> dict[str, int]:
    return {"total": state.total}


def with_messages(state: MessagesState) -> dict[str, Any]:
    return {"messages": state["messages"][-1:]}


def add_one(value: int) -> int:
    return value + 1


def kinds() -> None:
    data = StateGraph(Data).add_node(with_data).compile()
    assert_type(data.invoke(Data(1)), dict[str, Any])
    assert_type(data.invoke(Data(1), version="v2"), GraphOutput[Data])
    record = StateGraph(Record).add_node(with_record).compile()
    assert_type(record.invoke(Record(1)), dict[str, Any])
    model = StateGraph(Model).add_node(with_model).compile()
    assert_type(model.invoke(Model(total=1)), dict[str, Any])
    StateGraph(MessagesState).add_node(with_messages).compile().invoke({"messages": [{"role": "user", "content": "x"}]})
    one = StateGraph(int).add_node(add_one).compile()
    assert one.invoke(1) == 2
    free = StateGraph(dict).add_node(plain).compile()
    assert free.invoke({"total": 1})["total"] == 1
