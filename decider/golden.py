"""Fixed requests with the logits that a model gives for them, and what they show about a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from decider.answers import Answers
from decider.errors import ModelFileError, QuestionError, StateError
from decider.manifest import MANIFEST_FILE
from decider.model import Decider, GoldenCase, raw_logits, read_golden
from decider.questions import Noul

FixedRequest = tuple[object, dict[str, dict[str, object]]]

FIXED_REQUESTS: Final[tuple[FixedRequest, ...]] = (
    (
        "The shop is open until six. A visitor writes: may I bring my dog?",
        {
            "asks": {"type": "noul", "instructions": "Does the visitor ask for something?"},
            "about": {
                "type": "choice",
                "instructions": "What is it about?",
                "criteria": {"animals": "pets and guide dogs", "hours": None, "prices": None},
            },
        },
    ),
    (
        {"note": "closed today", "seats": 12},
        {
            "open": {
                "type": "noul",
                "instructions": "Is it open?",
                "criteria": {"true": "come in", "false": "go away"},
            },
            "size": {"type": "score", "criteria": ["small", "large"], "instructions": "How large is it?"},
        },
    ),
)


def write_golden(decider: Decider, requests: Sequence[FixedRequest], path: Path) -> None:
    """Write golden.json: the requests with the logits that the model gives now."""
    cases = [
        GoldenCase(state, questions, {name: raw_logits(answer) for name, answer in answers.items()})
        for (state, questions), answers in zip(requests, decider.decide_many(requests), strict=True)
    ]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(cases), indent=1) + b"\n")


def moved_by_company(decider: Decider, golden: Path) -> float:
    """Return how far the logits of the golden requests move at most when all are asked together, not one by one."""
    requests = [(case.state, case.questions) for case in read_golden(golden)]
    together = decider.decide_many(requests)
    differences = [0.0]
    for (state, questions), answers in zip(requests, together, strict=True):
        for name, question in questions.items():
            differences += _differences(decider.decide(state, {name: question}), answers, name)
    return float(np.max(differences))  # NaN when one of them is


def check_longest(decider: Decider) -> int:
    """Ask about the longest state with the longest question that the limits allow; return the row's tokens.

    Raises ModelFileError where the network cannot read as much as its manifest says.
    """
    limits = decider.layout.limits
    state = _longest_state(decider)
    for words in range(limits.question, 0, -1):
        question = {"q": Noul(" ".join(["a"] * words))}
        try:
            encoded = decider.encode(state, question)
        except QuestionError:
            continue
        tokens = max(len(row) for row in encoded.request.rows)
        try:
            decider.decide_encoded([encoded])
        except Exception as error:  # ONNX Runtime's own error classes differ between versions
            raise ModelFileError(
                decider.folder / MANIFEST_FILE,
                f"the network cannot read {tokens} tokens, which the limits state {limits.state} and question "
                f"{limits.question} allow ({str(error).splitlines()[0][:200]})",
                "Lower the limits to what the model was trained with.",
            ) from error
        return tokens
    raise ModelFileError(
        decider.folder / MANIFEST_FILE,
        f"the limit of a question is {limits.question} tokens, and the layout itself needs more",
        "Raise it.",
    )


def _longest_state(decider: Decider) -> str:
    """A text that fills the room for a state, and is not refused."""
    words = decider.layout.limits.state
    while words > 1 and not _is_read_whole(decider, "a " * words):
        words -= 1
    return "a " * words


def _is_read_whole(decider: Decider, state: str) -> bool:
    try:
        return not decider.encode(state, {"q": Noul("a")}).request.truncated
    except StateError:
        return False


def _differences(left: Answers, right: Answers, name: str) -> list[float]:
    return [abs(a - b) for a, b in zip(raw_logits(left[name]), raw_logits(right[name]), strict=True)]
