"""The desk's graph: eight nodes, and the edges that the thresholds choose.

    START -> router -> agent | ask_user | escalate
             agent -> tools | escalate | END
             tools -> guard (a mail is parked) | agent
             guard -> send | human_review | escalate
             human_review -> send | agent (rejected)
             send -> agent | escalate (nobody knows what became of the mail)

The guard sits on the way out of the tools, not on a route: whatever asked for a mail, the guard sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from desk import edges
from desk.endings import ask_user, escalate
from desk.nodes import DeskNodes
from desk.providers.base import Provider
from desk.state import DeskState
from minigraph import END, START, CompiledGraph, StateGraph
from minigraph.checkpoint.base import Saver
from tools import AuditedTools

if TYPE_CHECKING:
    from decider import DecisionModel


def build_graph(
    provider: Provider, decider: DecisionModel, audited: AuditedTools, checkpointer: Saver | None = None
) -> CompiledGraph:
    """Compile the desk over a language model, a decision model and its tools, which include ``send_email``."""
    nodes = DeskNodes(provider, decider, audited)
    graph: StateGraph[DeskState, None, DeskState, DeskState] = StateGraph(DeskState)
    graph.add_node("router", nodes.router)
    graph.add_node("agent", nodes.agent)
    graph.add_node("tools", nodes.tools)
    graph.add_node("guard", nodes.guard)
    graph.add_node("human_review", nodes.human_review)
    graph.add_node("send", nodes.send)
    graph.add_node("ask_user", ask_user)
    graph.add_node("escalate", escalate)
    graph.add_edge(START, "router")
    graph.add_conditional_edges("router", edges.after_router, ["agent", "ask_user", "escalate"])
    graph.add_conditional_edges("agent", edges.after_agent, ["tools", "escalate", END])
    graph.add_conditional_edges("tools", edges.after_tools, ["guard", "agent"])
    graph.add_conditional_edges("guard", edges.after_guard, ["send", "human_review", "escalate"])
    graph.add_conditional_edges("human_review", edges.after_review, ["send", "agent"])
    graph.add_conditional_edges("send", edges.after_send, ["agent", "escalate"])
    graph.add_edge("ask_user", END)
    graph.add_edge("escalate", END)
    return graph.compile(checkpointer=checkpointer, name="desk")
