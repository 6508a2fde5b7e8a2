"""A decision model of this machine, or of any endpoint, behind LangChain's interface (langchain-core 1.8 or newer).

Prints:

    wish: cancel
    probabilities add up: True
    model desk, 3 answers, tokens read: True
"""

from collections.abc import Mapping, Sequence

from langchain_core.decisions import BaseDecisionModel, Choice, ClassifierResponse, Noul, Question, Score, State
from langchain_core.messages import BaseMessage, HumanMessage
from pydantic import JsonValue, PrivateAttr

from decider import Decider, DecisionModel
from decider.wire import write_response


class DeciderDecisionModel(BaseDecisionModel):
    """`invoke({"state": ..., "questions": ...})` asks a Decider, or a decider.client.RemoteDecider."""

    model: str = "desk"
    _decider: DecisionModel = PrivateAttr()

    def __init__(self, decider: DecisionModel, model: str = "desk") -> None:
        super().__init__(model=model)
        self._decider = decider

    @property
    def _provider(self) -> str:
        return "decider"

    def _classify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        asked = {name: question.model_dump(mode="json") for name, question in questions.items()}
        return ClassifierResponse.model_validate(write_response(self._decider.decide(plain(state), asked)))


def plain(state: object) -> object:
    """Return a state with its messages, at any depth, as what JSON can hold."""
    if isinstance(state, BaseMessage):
        return {"role": state.type, "text": str(state.text)}
    if isinstance(state, Mapping):
        return {name: plain(value) for name, value in state.items()}
    return [plain(value) for value in state] if isinstance(state, Sequence) and not isinstance(state, str) else state


if __name__ == "__main__":
    wishes: dict[str, JsonValue] = {"cancel": "to give up the place", "register": "to get a place", "details": None}
    questions: dict[str, Question] = {
        "wish": Choice(criteria=wishes, instructions="What is wanted?"),
        "person": Noul(instructions="Does the writer ask for a person?"),
        "upset": Score(criteria=["calm", "displeased", "angry"], instructions="How does the writer feel?"),
    }
    state = [HumanMessage("Please cancel my place on Friday, I cannot come.")]
    response = DeciderDecisionModel(Decider.load()).invoke({"state": state, "questions": questions})
    print("wish:", response.choices["wish"].choice)
    print("probabilities add up:", abs(sum(response.scores["upset"].probabilities.values()) - 1) < 1e-6)
    print(f"model {response.model}, {len(response.answers)} answers, tokens read: {bool(response.usage)}")
