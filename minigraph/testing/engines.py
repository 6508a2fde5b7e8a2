"""The names that a graph program needs from an engine, so that one program runs on this engine or on LangGraph."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minigraph import graph, types
from minigraph.channels import EphemeralValue
from minigraph.check import FINDINGS
from minigraph.checkpoint.memory import InMemorySaver
from minigraph.context import get_runtime, interrupt
from minigraph.errors import GraphRecursionError, InvalidUpdateError


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine's names. `patience` is how long (seconds) a failing node waits for its siblings to finish."""

    name: str
    state_graph: Any
    send: Any
    command: Any
    overwrite: Any
    retry_policy: Any
    interrupt: Callable[[Any], Any]
    get_runtime: Callable[[], Any]
    ephemeral: Any
    make_saver: Callable[[], Any]
    update_error: type[Exception]
    limit_error: type[Exception]
    patience: float = 0.0
    compile_options: Mapping[str, Any] = field(default_factory=dict)
    """What compile() is told besides: a program drawn at random may be odd on purpose."""


def _runtime_or_none() -> Any:
    """The runtime of the running task; None where a law calls a program's functions by itself."""
    try:
        return get_runtime()
    except RuntimeError:
        return None


def minigraph_engine() -> Engine:
    """This engine."""
    return Engine(
        name="minigraph",
        state_graph=graph.StateGraph,
        send=types.Send,
        command=types.Command,
        overwrite=types.Overwrite,
        retry_policy=types.RetryPolicy,
        interrupt=interrupt,
        get_runtime=_runtime_or_none,
        ephemeral=EphemeralValue,
        make_saver=InMemorySaver,
        update_error=InvalidUpdateError,
        limit_error=GraphRecursionError,
        compile_options={"ignore": FINDINGS},
    )


def langgraph_engine() -> Engine:
    """LangGraph, the reference. Raises ImportError, saying what to install, where it is missing."""
    try:
        theirs = importlib.import_module("langgraph.graph")
        their_types = importlib.import_module("langgraph.types")
        channels = importlib.import_module("langgraph.channels")
        memory = importlib.import_module("langgraph.checkpoint.memory")
        errors = importlib.import_module("langgraph.errors")
        their_runtime = importlib.import_module("langgraph.runtime")
    except ImportError as error:
        raise ImportError("comparing with LangGraph needs it: pip install 'langgraph==1.2.24'") from error
    return Engine(
        name="langgraph",
        state_graph=theirs.StateGraph,
        send=their_types.Send,
        command=their_types.Command,
        overwrite=their_types.Overwrite,
        retry_policy=their_types.RetryPolicy,
        interrupt=their_types.interrupt,
        get_runtime=their_runtime.get_runtime,
        ephemeral=channels.EphemeralValue,
        make_saver=memory.InMemorySaver,
        update_error=errors.InvalidUpdateError,
        limit_error=errors.GraphRecursionError,
        patience=0.02,
    )
