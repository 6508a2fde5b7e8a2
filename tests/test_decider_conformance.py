"""Other people's tools against the server: quick with prepared answers, and with the shipped model in the night."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import conformance
import pytest
from loopback import LoopbackServer

from decider import Answer, Answers, ChoiceAnswer, Decider, Encoded, NoulAnswer, QuestionLike, ScoreAnswer, Usage
from decider.model import SHIPPED_MODEL
from decider.protocol import BatchModel, Picked
from decider.questions import Noul, Question, Score, read_questions
from decider.rows import AnyRow, EncodedRequest
from decider.serve import ModelCard, create_app
from decider.wire import to_json, write_question

CARD = ModelCard("prepared", "Prepared answers.", "2026-11-30")
TINY = Path(__file__).parent / "data" / "tiny_decider"


class Prepared(BatchModel):
    """Answers out of thin air, but always the same to the same question; what is asked beside it changes nothing."""

    def encode(self, state: object, questions: Mapping[str, QuestionLike]) -> Encoded:
        return Encoded(read_questions(questions), EncodedRequest([], 0))

    def run_pass(
        self, rows: Sequence[AnyRow], max_waste: float = 1.0, max_cells: int | None = None
    ) -> Mapping[int, Picked]:
        raise AssertionError("no request has a row")

    def answer(self, encoded: Encoded, picked: Sequence[Picked]) -> Answers:
        answers = {name: prepared(question) for name, question in encoded.questions.items()}
        return Answers(answers, "prepared", "cpu", usage=Usage(3))


def prepared(question: Question) -> Answer:
    text = to_json(write_question(question))
    if isinstance(question, Noul):
        return NoulAnswer(hashlib.sha256(text).digest()[0] / 255)
    options: Sequence[str] = [str(n) for n in range(len(question.criteria))]
    if not isinstance(question, Score):
        options = question.options
    weights = [math.exp(hashlib.sha256(text + option.encode()).digest()[0] / 100) for option in options]
    shares = [weight / sum(weights) for weight in weights]
    if isinstance(question, Score):
        score = sum(level * share for level, share in enumerate(shares))
        return ScoreAnswer(score, dict(enumerate(question.criteria)), dict(enumerate(shares)))
    return ChoiceAnswer(options[shares.index(max(shares))], dict(zip(options, shares, strict=True)))


@pytest.mark.parametrize(("key", "should"), [(None, 13), ("k", 15)])
def test_the_wire_format_is_conformant(key: str | None, should: int) -> None:
    with LoopbackServer(create_app(Prepared(), CARD, key)) as server:
        verdict = conformance.wire_format(server.url, key)
    assert verdict.problems == []
    assert (verdict.passed, verdict.summary) == (True, f"MUST 32/32, SHOULD {should}/{should}")


def test_the_suite_notices_a_server_that_is_not_conformant() -> None:
    class Wrong(Prepared):
        def answer(self, encoded: Encoded, picked: Sequence[Picked]) -> Answers:
            return Answers({name: NoulAnswer(0.5) for name in encoded.questions}, "wrong", "cpu")

    with LoopbackServer(create_app(Wrong(), CARD)) as server:
        verdict = conformance.wire_format(server.url, None)
    assert verdict.passed is False
    assert any("choice" in problem for problem in verdict.problems)


def test_a_server_that_is_not_there_is_not_settled() -> None:
    verdict = conformance.wire_format("http://127.0.0.1:9", None)
    assert verdict.passed is False
    assert verdict.problems[0].startswith("not settled: cannot reach")


@pytest.mark.parametrize("address", ["", "/"])
def test_the_official_client_reads_what_the_model_says(address: str) -> None:
    decider = Decider.load(TINY, "cpu", threads=1)
    with LoopbackServer(create_app(decider, CARD, "k")) as server:
        expected = decider.decide(conformance.STATE, conformance.QUESTIONS)
        verdict = conformance.official_client(server.url + address, "k", expected)
    assert (verdict.passed, verdict.problems) == (True, [])


def test_the_official_client_raises_its_own_errors() -> None:
    import typesafe_sdk

    with LoopbackServer(create_app(Prepared(), CARD, "k")) as server:
        noul = typesafe_sdk.Noul(instructions="Open?")
        with (
            typesafe_sdk.TypeSafeClient(api_key="wrong", base_url=server.url) as client,
            pytest.raises(typesafe_sdk.TypeSafeAuthenticationError, match="Authorization: Bearer"),
        ):
            client.system_one(state="a", questions={"q": noul})
        with typesafe_sdk.TypeSafeClient(api_key="k", base_url=server.url) as client:
            with pytest.raises(typesafe_sdk.TypeSafeNotFoundError) as caught:
                client.system_one(state="a", questions={"q": noul}, model="other")
            assert caught.value.request_id
            one = typesafe_sdk.Choice(criteria={"a": "only"})
            with pytest.raises(typesafe_sdk.TypeSafeUnprocessableEntityError, match=r"questions\.q\.choice\.criteria"):
                client.system_one(state="a", questions={"q": one})


def test_labelled_rows_are_asked_and_reported() -> None:
    with LoopbackServer(create_app(Prepared(), CARD, "k")) as server:
        verdict = conformance.labelled(server.url, "k")
    assert (verdict.passed, verdict.problems) == (True, [])
    assert verdict.summary.startswith("24 rows; accuracy ")


def test_coherence_is_measured_and_not_judged() -> None:
    with LoopbackServer(create_app(Prepared(), CARD)) as server:
        verdict = conformance.coherence(server.url, "examples")
    assert verdict.passed is None
    assert "BAT 100" in verdict.summary


def test_who_knows_nothing_is_coherent() -> None:
    """The figure of the page about the server, which says why the score alone means little."""

    class Even(Prepared):
        def answer(self, encoded: Encoded, picked: Sequence[Picked]) -> Answers:
            return Answers({name: even(question) for name, question in encoded.questions.items()}, "even", "cpu")

    with LoopbackServer(create_app(Even(), CARD)) as server:
        verdict = conformance.coherence(server.url, "examples")
    assert verdict.summary.startswith("overall 89.4 ")
    assert "89.4" in (Path(__file__).parent.parent / "docs" / "decider-server.md").read_text(encoding="utf-8")


def even(question: Question) -> Answer:
    if isinstance(question, Noul):
        return NoulAnswer(0.5)
    count = len(question.criteria)
    if isinstance(question, Score):
        return ScoreAnswer((count - 1) / 2, dict(enumerate(question.criteria)), dict.fromkeys(range(count), 1 / count))
    return ChoiceAnswer(question.options[0], dict.fromkeys(question.options, 1 / count))


@pytest.mark.slow
@pytest.mark.skipif(not (SHIPPED_MODEL / "decider.json").is_file(), reason="there is no decision model here")
def test_the_shipped_model_passes_with_every_tool(request: pytest.FixtureRequest) -> None:
    if "slow" not in str(request.config.getoption("markexpr")):
        pytest.skip("some minutes: -m slow runs it")
    verdicts = list(conformance.judge(Decider.load(SHIPPED_MODEL, "cpu"), mini=False))
    assert [verdict.tool for verdict in verdicts if verdict.passed is False] == []
    assert len(verdicts) == 5
