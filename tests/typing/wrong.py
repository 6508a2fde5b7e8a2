"""Wrong programs: mypy and pyright must refuse every line that ends with `# error`, and no other. Never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from minigraph import (
    START,
    CachePolicy,
    Command,
    CompiledGraph,
    Interrupt,
    Overwrite,
    RetryPolicy,
    Runtime,
    Send,
    StateGraph,
    StateUpdate,
    TimeoutPolicy,
    interrupt,
)
from minigraph.checkpoint.memory import InMemorySaver
from minigraph.checkpoint.sqlite import SqliteSaver
from minigraph.testing import detect_mutation


class State(TypedDict):
    log: list[str]
    total: int


class Question(TypedDict):
    log: list[str]


class Other(TypedDict):
    colour: str


class Misread(TypedDict):
    total: str


@dataclass
class User:
    name: str


@dataclass
class Robot:
    serial: int


@dataclass
class Data:
    total: int = 0


def node(state: State) -> dict[str, Any]:
    return {"total": state["totl"]}  # error


def of_user(state: State, runtime: Runtime[User]) -> dict[str, Any]:
    return {"log": [runtime.context.nme]}  # error


def of_robot(state: State, runtime: Runtime[Robot]) -> dict[str, Any]:
    return {"total": runtime.context.serial}


def of_other(state: Other) -> dict[str, Any]:
    return {"total": len(state["colour"])}


def misreading(state: Misread) -> dict[str, Any]:
    return {}


def of_data(state: Data) -> dict[str, Any]:
    return {"total": state.total}


def nothing() -> dict[str, Any]:
    return {}


def wanting(state: State, session: str) -> dict[str, Any]:
    return {"log": [session]}


def with_writer(state: State, writer: int) -> None:
    return None


def number(state: State) -> int:
    return state["total"]


def maybe(state: State) -> str | None:
    return "node"


def numbers(state: State) -> list[int]:
    return [state["total"]]


def robot_router(state: State, runtime: Runtime[Robot]) -> str:
    return "node"


def goes_wrong(state: State) -> Command[Literal["node"]]:
    return Command(goto=3)  # error


def goes_wrong_too(state: State) -> Command[str]:
    return Command(update={}, goto=["node", None])  # error


builder = StateGraph(State, User, input_schema=Question)

# ---------------------------------------------------------------------- nodes

builder.add_node(of_other)  # error
builder.add_node("other", of_other)  # error
builder.add_node(misreading)  # error
builder.add_node(of_data)  # error
builder.add_node(of_data, input_schema=Other)  # error
builder.add_node(of_robot)  # error
builder.add_node("robot", of_robot)  # error
builder.add_node(of_robot, input_schema=State)  # error
builder.add_node(nothing)  # error
builder.add_node(wanting)  # error
builder.add_node(with_writer)  # error
builder.add_node("node")  # error
builder.add_node("node", 3)  # error
builder.add_node(3, node)  # error
builder.add_node("node", node, retry=RetryPolicy())  # error
builder.add_node("node", node, retry_policy=3)  # error
builder.add_node("node", node, timeout="soon")  # error
builder.add_node("node", node, cache_policy=60)  # error
builder.add_node("node", node, destinations=[1])  # error
builder.add_node("node", node, error_handler="node")  # error
builder.add_node("node", node, defer="yes")  # error
builder.add_sequence([node, of_other])  # error
builder.add_sequence([("node", of_robot)])  # error
builder.set_node_defaults(retry_policy=3)  # error
StateGraph(State).add_node(of_user)  # error
StateGraph(Data).add_node(node)  # error
StateGraph()  # error
StateGraph(State, context=User)  # error

# ---------------------------------------------------------------------- edges

builder.add_edge("node")  # error
builder.add_edge("node", 3)  # error
builder.add_edge(None, "node")  # error
builder.add_edge("node", ["node"])  # error
builder.add_conditional_edges("node", number)  # error
builder.add_conditional_edges("node", numbers)  # error
builder.add_conditional_edges("node", maybe)  # error
builder.add_conditional_edges("node", number, ["node"])  # error
builder.add_conditional_edges("node", number, {1: 2})  # error
builder.add_conditional_edges("node", robot_router)  # error
builder.add_conditional_edges("node", "node")  # error
builder.add_conditional_edges("node")  # error
builder.set_conditional_entry_point(number)  # error

# -------------------------------------------------------------------- compile

graph = builder.compile(InMemorySaver())
builder.compile(memory=InMemorySaver())  # error
builder.compile("threads.db")  # error
builder.compile(InMemorySaver)  # error
builder.compile(interrupt_before=[3])  # error
builder.compile(interrupt_after=3)  # error
builder.compile(executor="processes")  # error
builder.compile(name=3)  # error
wrong_state: CompiledGraph[Other, User, Question, State] = graph  # error
wrong_context: CompiledGraph[State, Robot, Question, State] = graph  # error

# ----------------------------------------------------------------------- runs

graph.invoke()  # error
graph.invoke("text")  # error
graph.invoke({"colour": "red"})  # error
graph.invoke({"log": "a"})  # error
graph.invoke({"log": [1]})  # error
graph.invoke({"log": [], "total": 1})  # error
graph.invoke({"log": []}, context=Robot(1))  # error
graph.invoke({"log": []}, context="Ann")  # error
graph.invoke({"log": []}, {"thread_id": 1}, "sync")  # error
graph.invoke({"log": []}, "thread")  # error
graph.invoke({"log": []}, thread="1")  # error
graph.invoke({"log": []}, durability="never")  # error
graph.invoke({"log": []}, stream_mode="everything")  # error
graph.invoke({"log": []}, version="v3")  # error
print(graph.invoke({"log": []}).total)  # error
graph.invoke({"log": []}, version="v2")["total"]  # error
graph.invoke({"log": []}, version="v2").value["colour"]  # error
graph.stream({"colour": "red"})  # error
graph.stream({"log": []}, stream_mode="everything")  # error
graph.stream({"log": []}, context=Robot(1))  # error
graph.stream({"log": []}, output_keys="log")  # error
graph.resume({}, "yes", context=Robot(1))  # error
graph.resume({}, "yes", thread="1")  # error
graph.resume("thread")  # error
graph.fork({}, as_node=3)  # error
graph.get_state("thread")  # error
print(graph.get_state({}).vals)  # error
graph.update_state({}, {}, as_node=3)  # error
graph.bulk_update_state({}, [StateUpdate({})])  # error
StateGraph(Data).compile().invoke({"total": 1})  # error
StateGraph(State).compile().invoke({"log": []})  # error
StateGraph(State).compile().invoke({"log": [], "total": 1}, context=User("Ann"))  # error
for chunk in graph.astream({"log": []}):  # error
    print(chunk)

detect_mutation(builder)  # error

# --------------------------------------------------------------------- values

Send()  # error
Send(3, {})  # error
Overwrite()  # error
Command("node")  # error
Command(goto={"node"})  # error
Command(graph=3)  # error
Interrupt("question")  # error
RetryPolicy(3)  # error
RetryPolicy(max_attempts="3")  # error
RetryPolicy(initial_interval="1s")  # error
RetryPolicy(retry_on=ValueError())  # error
RetryPolicy(retry_on=["ValueError"])  # error
TimeoutPolicy(run_timeout="1s")  # error
TimeoutPolicy(refresh_on="never")  # error
CachePolicy(ttl="1h")  # error
SqliteSaver(3)  # error
interrupt()  # error
print(START.name)  # error
