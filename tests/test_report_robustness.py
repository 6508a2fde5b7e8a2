"""How far answers move when the same is asked in another way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from decider import (
    Answers,
    Choice,
    ChoiceAnswer,
    Decider,
    Noul,
    NoulAnswer,
    QuestionError,
    Request,
    Score,
    TrainingDataError,
)
from decider.questions import Question
from decider.report.robustness import (
    CUTS,
    DENIALS,
    FRAMES,
    INJECTIONS,
    Shift,
    Wordings,
    measure_robustness,
    read_wordings,
    shift,
)
from decider.train.examples import Example

TINY = Path(__file__).parent / "data" / "tiny_decider"
QUESTIONS: dict[str, Question] = {
    "open": Noul("Is the door open?"),
    "colour": Choice({"red": None, "blue": "like the sky", "green": None}, "Which colour?"),
    "size": Score(["small", "large"], "How large?"),
}
EXAMPLES = [Example(f"door {place}, paint red, seats {place}", QUESTIONS, {}) for place in range(4)]


def by_name(shifts: Iterable[Shift]) -> dict[str, Shift]:
    return {each.name: each for each in shifts}


def test_moves_and_changed_decisions() -> None:
    pairs = [({"yes": 0.9, "no": 0.1}, {"yes": 0.4, "no": 0.6}), ({"yes": 0.9, "no": 0.1}, {"yes": 0.8, "no": 0.2})]
    found = shift("s", "n", pairs)
    assert found is not None
    assert (found.count, found.mean, found.largest, found.changed) == pytest.approx((2, 0.3, 0.5, 1))
    assert found.high == pytest.approx(0.1 + 0.95 * 0.4)
    assert found.holds
    exact = shift("s", "n", pairs, exact=True)
    assert exact is not None
    assert not exact.holds
    assert shift("s", "n", []) is None


def test_a_model_of_this_layout_does_not_move_with_order_and_company() -> None:
    found = by_name(measure_robustness(Decider.load(TINY, "cpu", threads=1), EXAMPLES))
    for name in ("questions and options in reverse", "each question alone"):
        assert found[name].count == 12
        assert found[name].exact
        assert found[name].holds
    assert {*INJECTIONS, *CUTS} <= found.keys()
    assert found["the second half left out"].largest > 0
    assert found["other words, the same question"].count == 4 * len(FRAMES)
    assert found["the opposite question, read as its negation"].count == 4 * len(DENIALS)


class Scripted(Decider):
    """Says yes with 0.9 to what holds "open", 0.3 to what holds "shut"; with order 0.1 less for what comes later."""

    def __init__(self, by_place: float = 0.0) -> None:
        self.by_place = by_place

    def decide_iter(
        self,
        requests: Iterable[Request],
        max_waste: float = 0.25,
        progress: bool = False,
    ) -> Iterator[Answers]:
        for state, questions in requests:
            given = {}
            for place, (name, question) in enumerate(questions.items()):
                text = f"{state} {getattr(question, 'instructions', '')}"
                p = (0.3 if "shut" in text else 0.9) - self.by_place * place
                given[name] = (
                    ChoiceAnswer("red", {"red": p, "blue": 1 - p}) if isinstance(question, Choice) else NoulAnswer(p)
                )
            yield Answers(given, model="scripted", provider="none")


def test_a_model_that_looks_at_the_order_is_found_out() -> None:
    questions: dict[str, Question] = {"a": Noul("open?"), "b": Noul("open?")}
    found = by_name(measure_robustness(Scripted(0.1), [Example("x", questions, {})]))
    assert found["questions and options in reverse"].largest == pytest.approx(0.1)
    assert not found["questions and options in reverse"].holds
    assert not found["each question alone"].holds


def test_wordings_are_compared_with_their_base() -> None:
    wordings = {"a": Wordings(Noul("open?"), (Noul("ajar?"), Noul("not shut?")), (Noul("shut?"),))}
    found = by_name(
        measure_robustness(Scripted(), [Example("x", {"a": Noul("asked as the file has it")}, {})], wordings)
    )
    same = found["other words, the same question"]
    assert (same.count, same.largest, same.changed) == pytest.approx((2, 0.6, 1))
    opposite = found["the opposite question, read as its negation"]
    assert (opposite.count, opposite.largest, opposite.changed) == pytest.approx((1, 0.9 + 0.3 - 1, 0))


def test_a_state_of_which_nothing_is_left_is_left_out() -> None:
    found = by_name(measure_robustness(Scripted(), [Example("x", {"a": Noul("open?")}, {})]))
    assert "the second half left out" not in found
    assert found["orders to say yes"].count == 1


def test_structured_states_are_changed_as_the_text_that_the_model_reads() -> None:
    questions: dict[str, Question] = {"a": Noul("?")}
    found = by_name(measure_robustness(Scripted(), [Example({"b": "shut", "a": "open"}, questions, {})]))
    assert found["the second half left out"].largest == pytest.approx(0.6)  # {"a": "open", "b": "shut"} loses "shut"


def noul(text: str) -> dict[str, object]:
    return {"type": "noul", "instructions": text}


def test_wordings_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"a": {"base": noul("1"), "same": [noul("2")]}, "b": {"base": noul("3")}}))
    assert read_wordings(path) == {
        "a": Wordings(Noul("1"), (Noul("2"),), ()),
        "b": Wordings(Noul("3"), (), ()),
    }


CHOICE = {"type": "choice", "criteria": {"x": None, "y": None}}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[]", "holds no wordings"),
        ('{"a": {"same": []}}', "incomplete"),
        ('{"a": {"base": {"type": "noul", "instructions": "1"}, "same": {"type": "noul"}}}', "incomplete"),
        (json.dumps({"a": {"base": CHOICE, "same": [noul("1")]}}), "different options"),
        (json.dumps({"a": {"base": CHOICE, "opposite": [CHOICE]}}), "no Noul"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "w.json"
    path.write_text(content)
    with pytest.raises(TrainingDataError, match=problem):
        read_wordings(path)


def test_a_wording_that_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text('{"a": {"base": {"type": "noul"}}}')
    with pytest.raises(QuestionError):
        read_wordings(path)
