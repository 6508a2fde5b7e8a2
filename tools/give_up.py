"""The way out for a model that cannot do its task: it says so, and why, instead of going on."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from tools.tool import tool

GIVE_UP: Final = "give_up"
"""The name of the tool; a run ends after the turn that calls it."""


@tool(name=GIVE_UP)
def give_up(reason: Annotated[str, Field(min_length=1, max_length=500, description="What stands in the way.")]) -> str:
    """Stop, when the task cannot be done with the tools there are. Say what stands in the way."""
    return f"Given up: {reason}"
