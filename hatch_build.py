"""Leaves the commands `desk` and `decider` out of the wheel: it holds the engine alone, so they could not run there."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class EngineAlone(BuildHookInterface[Any]):
    """An editable install of the repository has all packages and their commands, a wheel has neither."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Forget the commands of pyproject.toml, unless it is an editable install that is made."""
        if version != "editable":
            self.metadata.core.scripts.clear()
