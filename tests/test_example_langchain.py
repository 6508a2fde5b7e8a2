"""The LangChain adapter of the examples: the same numbers as the model, messages as state, sync and async."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from decider import Answers, Decider, QuestionError, QuestionLike

decisions = pytest.importorskip("langchain_core.decisions", reason="needs langchain-core 1.8 or newer")
messages = pytest.importorskip("langchain_core.messages")

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "tests" / "data" / "tiny_decider"


class Remembering(Decider):
    """The tiny model; remembers the states it was asked about."""

    states: list[object]

    def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        self.states.append(state)
        return super().decide(state, questions)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("langchain_decisions", ROOT / "examples" / "langchain_decisions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def decider() -> Remembering:
    loaded = Remembering.load(TINY, "cpu", threads=1)
    assert isinstance(loaded, Remembering)
    loaded.states = []
    return loaded


def test_the_answers_are_those_of_the_model(example: ModuleType, decider: Remembering) -> None:
    model = example.DeciderDecisionModel(decider)
    noul = decisions.Noul(instructions="Full?", criteria=decisions.NoulCriteria(true="no seat"))
    choice = decisions.Choice(instructions="Which?", criteria={"a": None, "b": ["the", "second"]})
    score = decisions.Score(instructions={"ask": "How full?"}, criteria=["empty", {"level": "full"}])
    request = {"state": "seats free: 3", "questions": {"n": noul, "c": choice, "s": score}}
    response = model.invoke(request)
    own = Decider.decide(
        decider,
        "seats free: 3",
        {
            "n": {"type": "noul", "instructions": "Full?", "criteria": {"true": "no seat"}},
            "c": {"type": "choice", "instructions": "Which?", "criteria": {"a": None, "b": ["the", "second"]}},
            "s": {"type": "score", "instructions": {"ask": "How full?"}, "criteria": ["empty", {"level": "full"}]},
        },
    )
    assert response.nouls["n"].noul == own.nouls["n"].noul
    assert response.choices["c"].probabilities == own.choices["c"].probabilities
    assert response.choices["c"].confidence == own.choices["c"].confidence
    assert response.scores["s"].probabilities == own.scores["s"].probabilities
    assert response.scores["s"].legend == {0: "empty", 1: {"level": "full"}}
    assert response.usage["total_tokens"] == own.usage.input_tokens
    assert asyncio.run(model.ainvoke(request)) == response


def test_messages_become_plain_data_at_any_depth(example: ModuleType, decider: Remembering) -> None:
    model = example.DeciderDecisionModel(decider)
    state = {
        "mail": [messages.HumanMessage("hi"), messages.AIMessage([{"type": "text", "text": "oh"}])],
        "n": (1, None),
    }
    model.invoke({"state": state, "questions": {"q": decisions.Noul(instructions="Full?")}})
    assert decider.states == [{"mail": [{"role": "human", "text": "hi"}, {"role": "ai", "text": "oh"}], "n": [1, None]}]


def test_what_the_model_cannot_be_asked_is_an_error(example: ModuleType, decider: Remembering) -> None:
    box = decisions.Box(instructions="Where is the door?")
    with pytest.raises(QuestionError, match="'box' is not a kind of question"):
        example.DeciderDecisionModel(decider).invoke({"state": "a", "questions": {"q": box}})
