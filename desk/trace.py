"""One entry for each step of a turn: what a node did, with every probability and threshold, and where it went next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from desk.state import turn_trace


def entry(
    state: Mapping[str, Any], node: str, text: str, next_node: str, actions: Sequence[str] = (), **numbers: float | None
) -> dict[str, Any]:
    """Give the trace entry of a step, as plain data. ``numbers`` are the probabilities and thresholds it used."""
    return {
        "turn": state["turn"],
        "step": len(turn_trace(state)) + 1,
        "node": node,
        "text": text,
        "next": next_node,
        "actions": list(actions),
        "numbers": numbers,
    }


def line(step: Mapping[str, Any]) -> str:
    """Give the line in which a trace entry is shown."""
    return f"{step['step']}. {step['node']}: {step['text']} -> {step['next']}"


def number(value: float | None) -> str:
    """Give a probability with three decimals; "none" where there is none."""
    return "none" if value is None else f"{value:.3f}"


def compared(name: str, value: float, threshold_name: str, threshold: float) -> str:
    """Write a comparison, with all digits where three decimals would hide which side a value is on."""
    sign = ">=" if value >= threshold else "<"
    left, right = number(value), number(threshold)
    if left == right and value != threshold:
        left, right = repr(value), repr(threshold)
    return f"{name} {left} {sign} {threshold_name} {right}"
