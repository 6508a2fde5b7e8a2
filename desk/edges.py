"""Which node runs next: pure functions of the state, which hold the thresholds against the probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from desk.conversation import open_calls
from desk.state import K_MAX
from desk.thresholds import as_probability
from minigraph import END


def after_router(state: Mapping[str, Any]) -> Literal["agent", "ask_user", "escalate"]:
    """Follow the route at p_route >= tau_route; all that is less certain, or has no probability, is handed over."""
    p_route = as_probability(state.get("p_route"))
    if p_route is None or p_route < state["thresholds"]["tau_route"]:
        return "escalate"
    match state["route"]:
        case "retrieve" | "calculate" | "send_email":
            return "agent"
        case "ask_user":
            return "ask_user"
        case _:
            return "escalate"


def after_agent(state: Mapping[str, Any]) -> Literal["tools", "escalate", "__end__"]:
    """Run the calls of the reply, hand a failed turn over, or end with the answer."""
    if state.get("failure"):
        return "escalate"
    if not open_calls(state):
        return END
    return "tools" if state["k"] < K_MAX else "escalate"


def after_tools(state: Mapping[str, Any]) -> Literal["guard", "agent"]:
    """Every parked mail meets the guard, whatever route it came by."""
    return "guard" if state.get("pending") else "agent"


def after_guard(state: Mapping[str, Any]) -> Literal["send", "human_review", "escalate"]:
    """Send, ask a person, or hand over, as the stored decision says."""
    match state.get("region"):
        case "act":
            return "send"
        case "ask":
            return "human_review"
        case _:
            return "escalate"


def after_review(state: Mapping[str, Any]) -> Literal["send", "agent"]:
    """Send what a person approved; a refusal goes back to the language model."""
    review = state.get("review")
    return "send" if review is not None and review["verdict"] in ("approve", "edit") else "agent"


def after_send(state: Mapping[str, Any]) -> Literal["agent", "escalate"]:
    """Go on after a mail that went out or may be tried again; a mail nobody can account for needs a person."""
    return "escalate" if state.get("failure") else "agent"
