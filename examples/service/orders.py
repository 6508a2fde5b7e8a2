"""The graph that the service runs: it checks an order, asks a person, and places the order once."""

from __future__ import annotations

import asyncio
import operator
import os
from pathlib import Path
from typing import Annotated, Any, TypedDict

from minigraph import START, Command, CompiledGraph, Overwrite, StateGraph, TimeoutPolicy, aonce, interrupt
from minigraph.checkpoint import Saver
from minigraph.errors import UnknownOutcomeError

CHECKS = ("credit", "stock", "address", "customs")


class Order(TypedDict):
    """What a client may send."""

    item: str
    amount: int


class Run(TypedDict):
    """A run, by the key that its client chose."""

    key: str
    under_way: bool


class RunUnderWayError(Exception):
    """A run cannot begin: `key` is that of the one which is under way, or which began with the same key."""

    def __init__(self, key: str) -> None:
        super().__init__("a run of this thread is under way; answer its questions, or delete the thread")
        self.key = key


def one_at_a_time(old: Run, new: Run) -> Run:
    """Refuses a run where another is under way. A reducer sees the state that the write builds on, and no older one."""
    if new["under_way"] and old and (old["under_way"] or old["key"] == new["key"]):
        raise RunUnderWayError(old["key"])
    return new


class State(Order):
    """What is known of an order. `worker` runs it, or ran it last; "" where it was handed back."""

    run: Annotated[Run, one_at_a_time]
    worker: str
    done: Annotated[list[str], operator.add]
    approved: bool


def begin(order: Order, key: str, worker: str) -> Command[str]:
    """The input that begins a run: an update, which is refused as a whole where its reducer refuses."""
    fresh = {"run": Run(key=key, under_way=True), "worker": worker, "done": Overwrite([]), "approved": False}
    return Command(update={**order, **fresh}, goto="check")


class Shop:
    """The world outside: a file with a line for each order, and how many seconds a check takes."""

    def __init__(self, orders: Path, seconds: float) -> None:
        self.orders, self.seconds = orders, seconds

    async def check(self, state: State) -> dict[str, Any]:
        """One check; they are a step each, so that a run can stop between any two."""
        name = CHECKS[len(state["done"]) % len(CHECKS)]
        await asyncio.sleep(self.seconds)
        return {"done": [f"{name} checked"]}

    async def approve(self, state: State) -> dict[str, Any]:
        """Asks a person."""
        answer = interrupt(f"Order {state['amount']} {state['item']}?")
        return {"approved": answer == "yes", "done": [f"answered {answer!r}"]}

    async def place(self, state: State) -> dict[str, Any]:
        """Places the order once; where nobody knows whether that happened, a person has to look."""
        try:
            number = await aonce("place", self.send, state["item"], state["amount"])
        except UnknownOutcomeError:
            number = interrupt("Was the order placed? Look it up, place it if not, and answer with its number.")
        return {"done": [f"placed as {number}"]}

    async def close(self, state: State) -> dict[str, Any]:
        """The run is over, and another one may begin."""
        return {"run": {**state["run"], "under_way": False}}

    async def send(self, item: str, amount: int) -> str:
        """The call that must not happen twice."""
        with self.orders.open("a", encoding="utf-8") as file:
            file.write(f"{amount} {item}\n")
            file.flush()
            os.fsync(file.fileno())
        await asyncio.sleep(self.seconds)  # until the shop says so
        return f"order of {amount} {item}"


def next_after_check(state: State) -> str:
    """All checks, then the question."""
    return "check" if len(state["done"]) % len(CHECKS) else "approve"


def order_graph(saver: Saver, shop: Shop) -> CompiledGraph:
    """Checks, asks, places. Every node has a time-out, which is shorter than the silence of a worker that is dead."""
    builder = StateGraph(State)
    builder.set_node_defaults(timeout=TimeoutPolicy(run_timeout=20))
    builder.add_node("check", shop.check).add_node("approve", shop.approve)
    builder.add_node("place", shop.place).add_node("close", shop.close)
    builder.add_edge(START, "check")
    builder.add_conditional_edges("check", next_after_check, ["check", "approve"])
    builder.add_conditional_edges(
        "approve", lambda state: "place" if state["approved"] else "close", ["place", "close"]
    )
    builder.add_edge("place", "close")
    return builder.compile(saver)
