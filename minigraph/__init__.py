"""minigraph: a small typed state-machine engine with LangGraph's semantics and without LangGraph."""

from minigraph.calls import JoinNeverFiredWarning
from minigraph.check import Finding, GraphWarning, check
from minigraph.compiled import CompiledGraph
from minigraph.context import Runtime, get_config, get_runtime, get_stream_writer, interrupt
from minigraph.difference import MISSING, Difference
from minigraph.graph import StateGraph
from minigraph.messages import MessagesState, add_messages
from minigraph.migration import Migration
from minigraph.recording import aonce, once
from minigraph.types import (
    END,
    START,
    CachePolicy,
    Command,
    GraphOutput,
    Interrupt,
    Overwrite,
    RetryPolicy,
    RunControl,
    RunnableConfig,
    Send,
    StateSnapshot,
    StateUpdate,
    StreamPart,
    TimeoutPolicy,
)

__version__ = "0.1.0"

__all__ = [
    "END",
    "MISSING",
    "START",
    "CachePolicy",
    "Command",
    "CompiledGraph",
    "Difference",
    "Finding",
    "GraphOutput",
    "GraphWarning",
    "Interrupt",
    "JoinNeverFiredWarning",
    "MessagesState",
    "Migration",
    "Overwrite",
    "RetryPolicy",
    "RunControl",
    "RunnableConfig",
    "Runtime",
    "Send",
    "StateGraph",
    "StateSnapshot",
    "StateUpdate",
    "StreamPart",
    "TimeoutPolicy",
    "add_messages",
    "aonce",
    "check",
    "get_config",
    "get_runtime",
    "get_stream_writer",
    "interrupt",
    "once",
]
