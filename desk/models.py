"""Loads the decision model when it is first needed, and says how to get one where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from desk.errors import DecisionModelError

if TYPE_CHECKING:
    from decider import Answers, DecisionModel, QuestionLike, Request

HOW_TO_TRAIN: Final = """\
Train one (about two hours on two cores; make model does it in one command):
  python -m desk.decisions.generate --out decisions
  python -m decider.train --train decisions/train.jsonl --calibration decisions/calibration.jsonl \\
      --test decisions/test.jsonl --out decider/models/desk --runs 3"""


class LazyDecider:
    """A decision model that is loaded at its first question, or by ``ready``."""

    def __init__(self, load: Callable[[], DecisionModel] | None = None) -> None:
        self._load = load or load_shipped
        self._model: DecisionModel | None = None

    def ready(self) -> DecisionModel:
        """Give the loaded model, or raise ``DecisionModelError``."""
        if self._model is None:
            self._model = self._load()
        return self._model

    def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        """Answer all questions about one state."""
        return self.ready().decide(state, questions)

    def decide_many(self, requests: Sequence[Request]) -> list[Answers]:
        """Answer many states, each with its own questions, in one pass."""
        return self.ready().decide_many(requests)


def load_shipped(path: Path | None = None) -> DecisionModel:
    """Load the decision model that comes with the package, or the one in a folder.

    Raises:
        DecisionModelError: it is not there, damaged, or cannot run here.
    """
    from decider import Decider, DeciderError
    from decider.model import SHIPPED_MODEL

    folder = path or SHIPPED_MODEL
    if not folder.is_dir():
        raise DecisionModelError(f"there is no decision model at {folder}. {HOW_TO_TRAIN}")
    try:
        return Decider.load(folder)
    except (DeciderError, ImportError, OSError) as error:
        raise DecisionModelError(f"the decision model at {folder} cannot be loaded: {error}\n{HOW_TO_TRAIN}") from error
