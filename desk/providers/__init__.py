"""Language models for the desk, behind one protocol: a rule-based planner, and two doubles for tests."""

from desk.providers.base import Provider, ProviderError, Reply, Stop
from desk.providers.obeyer import Obeyer
from desk.providers.planner import Planner
from desk.providers.scripted import ScriptedProvider, calls, says

__all__ = [
    "Obeyer",
    "Planner",
    "Provider",
    "ProviderError",
    "Reply",
    "ScriptedProvider",
    "Stop",
    "calls",
    "says",
]
