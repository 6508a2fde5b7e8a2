"""Callers are answered together and each on their own account, held against a stand-in and against the tiny model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import pytest

from decider import (
    Answers,
    BatcherClosedError,
    Choice,
    Decider,
    Encoded,
    Noul,
    NoulAnswer,
    OverloadedError,
    QuestionError,
    QuestionLike,
    StateError,
)
from decider.batcher import MicroBatcher
from decider.questions import read_questions
from decider.rows import EncodedRequest

TINY = Path(__file__).parent / "data" / "tiny_decider"
FOREVER = 60_000.0
QUESTION: dict[str, QuestionLike] = {"q": Noul("Is it?")}


class FakeModel:
    """Answers every Noul with the number that the state is; keeps the states of each pass. `gate` holds every pass."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.passes: list[list[float]] = []
        self.waste: list[float | None] = []
        self.threads: set[int] = set()
        self.gate = gate
        self.error: Exception | None = None

    def encode(self, state: object, questions: Mapping[str, QuestionLike]) -> Encoded:
        if not isinstance(state, float):
            raise StateError("it is no number", "Give one.")
        return Encoded(read_questions(questions), EncodedRequest([], int(state)))

    def decide_encoded(
        self, encoded: Sequence[Encoded], max_waste: float | None = None, max_cells: int | None = None
    ) -> list[Answers]:
        self.threads.add(threading.get_ident())
        self.passes.append([float(each.request.truncated) for each in encoded])
        self.waste.append(max_waste)
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return [
            Answers({name: NoulAnswer(float(each.request.truncated)) for name in each.questions}, "fake", "cpu")
            for each in encoded
        ]


def noul(answers: Answers) -> float:
    return answers.nouls["q"].noul


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("count", [1, 2, 50])
def test_callers_of_one_moment_share_a_pass_and_get_their_own_answers(count: int) -> None:
    async def run() -> list[Answers]:
        async with MicroBatcher(model, max_questions=count, max_delay_ms=FOREVER) as batcher:
            return await asyncio.gather(*(batcher.decide(float(number), QUESTION) for number in range(count)))

    model = FakeModel()
    assert [noul(answers) for answers in asyncio.run(run())] == list(range(count))
    assert model.passes == [list(range(count))]
    assert threading.get_ident() not in model.threads


def test_a_pass_starts_when_the_first_caller_has_waited_long_enough() -> None:
    async def run() -> float:
        loop = asyncio.get_running_loop()
        async with MicroBatcher(model, max_questions=1000, max_delay_ms=30) as batcher:
            start = loop.time()
            await asyncio.gather(batcher.decide(1.0, QUESTION), batcher.decide(2.0, QUESTION))
            return loop.time() - start

    model = FakeModel()
    assert 0.03 <= asyncio.run(run()) < 5
    assert model.passes == [[1, 2]]


def test_a_pass_takes_no_more_than_its_size_and_one_that_is_larger_goes_alone() -> None:
    two: dict[str, QuestionLike] = {"q": Noul("a"), "r": Noul("b")}
    many: dict[str, QuestionLike] = {name: Noul(name) for name in "qrstu"}

    async def run() -> None:
        async with MicroBatcher(model, max_questions=3, max_delay_ms=0) as batcher:
            await asyncio.gather(*(batcher.decide(float(n), asked) for n, asked in enumerate([two, two, many, two])))

    model = FakeModel()
    asyncio.run(run())
    assert model.passes == [[0], [1], [2], [3]]


def test_callers_who_come_during_a_pass_are_the_next_pass() -> None:
    async def run() -> None:
        async with MicroBatcher(model, max_delay_ms=0) as batcher:
            first = asyncio.create_task(batcher.decide(0.0, QUESTION))
            await until(lambda: len(model.passes) == 1)
            others = [asyncio.create_task(batcher.decide(float(number), QUESTION)) for number in (1, 2, 3)]
            await until(lambda: batcher.waiting == 3)
            gate.set()
            assert [noul(await task) for task in (first, *others)] == [0, 1, 2, 3]

    gate = threading.Event()
    model = FakeModel(gate)
    asyncio.run(run())
    assert model.passes == [[0], [1, 2, 3]]


def test_the_loop_is_free_while_a_pass_runs() -> None:
    async def run() -> int:
        async with MicroBatcher(model, max_delay_ms=0) as batcher:
            task = asyncio.create_task(batcher.decide(0.0, QUESTION))
            await until(lambda: len(model.passes) == 1)
            turns = 0
            for _ in range(100):
                await asyncio.sleep(0)
                turns += 1
            assert not task.done()
            gate.set()
            await task
            return turns

    gate = threading.Event()
    model = FakeModel(gate)
    assert asyncio.run(run()) == 100


def test_a_request_that_cannot_be_asked_concerns_its_caller_alone() -> None:
    async def run() -> list[Answers | BaseException]:
        async with MicroBatcher(model, max_questions=5, max_delay_ms=FOREVER) as batcher:
            calls = [
                batcher.decide(1.0, QUESTION),
                batcher.decide("text", QUESTION),
                batcher.decide(2.0, {"odd": {"type": "noul"}}),
                batcher.decide(3.0, {}),
                batcher.decide(4.0, QUESTION),
            ]
            return await asyncio.gather(*calls, return_exceptions=True)

    model = FakeModel()
    first, second, third, fourth, fifth = asyncio.run(run())
    assert isinstance(first, Answers)
    assert isinstance(second, StateError)
    assert isinstance(third, QuestionError)
    assert third.question_id == "odd"
    assert isinstance(fourth, QuestionError)
    assert isinstance(fifth, Answers)
    assert (noul(first), noul(fifth)) == (1, 4)
    assert model.passes == [[1, 4]]


def test_where_no_request_can_be_asked_there_is_no_pass() -> None:
    async def run() -> None:
        async with MicroBatcher(model, max_delay_ms=0) as batcher:
            with pytest.raises(StateError):
                await batcher.decide("text", QUESTION)
            with pytest.raises(QuestionError):
                await batcher.decide(1.0, None)  # type: ignore[arg-type]

    model = FakeModel()
    asyncio.run(run())
    assert model.passes == []


def test_a_pass_that_fails_is_told_to_all_in_it_and_the_next_one_runs() -> None:
    async def run() -> None:
        async with MicroBatcher(model, max_questions=2, max_delay_ms=FOREVER) as batcher:
            model.error = MemoryError("too much")
            pair = [batcher.decide(1.0, QUESTION), batcher.decide(2.0, QUESTION)]
            outcomes = await asyncio.gather(*pair, return_exceptions=True)
            assert outcomes == [model.error, model.error]
            model.error = None
            pair = [batcher.decide(3.0, QUESTION), batcher.decide(4.0, QUESTION)]
            assert [noul(answers) for answers in await asyncio.gather(*pair)] == [3, 4]

    model = FakeModel()
    asyncio.run(run())


def test_who_is_cancelled_while_waiting_is_not_asked_about() -> None:
    async def run() -> None:
        async with MicroBatcher(model, max_questions=3, max_delay_ms=FOREVER) as batcher:
            tasks = [asyncio.create_task(batcher.decide(float(number), QUESTION)) for number in range(2)]
            await until(lambda: batcher.waiting == 2)
            tasks[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            assert batcher.waiting == 1
            tasks += [asyncio.create_task(batcher.decide(float(number), QUESTION)) for number in (2, 3)]
            assert [noul(await task) for task in tasks[1:]] == [1, 2, 3]

    model = FakeModel()
    asyncio.run(run())
    assert model.passes == [[1, 2, 3]]


def test_who_is_cancelled_during_a_pass_leaves_the_others_their_answers() -> None:
    async def run() -> None:
        async with MicroBatcher(model, max_questions=2, max_delay_ms=FOREVER) as batcher:
            leaver, stayer = (asyncio.create_task(batcher.decide(float(number), QUESTION)) for number in range(2))
            await until(lambda: len(model.passes) == 1)
            leaver.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaver
            gate.set()
            assert noul(await stayer) == 1

    gate = threading.Event()
    model = FakeModel(gate)
    asyncio.run(run())


def test_a_full_queue_makes_callers_wait_and_serves_them_in_order() -> None:
    async def run() -> None:
        async with MicroBatcher(model, max_questions=2, max_delay_ms=0, max_waiting=2) as batcher:
            tasks = [asyncio.create_task(batcher.decide(0.0, QUESTION))]
            await until(lambda: len(model.passes) == 1)
            tasks += [asyncio.create_task(batcher.decide(float(number), QUESTION)) for number in range(1, 8)]
            await until(lambda: batcher.waiting == 2)
            await asyncio.sleep(0.01)
            assert batcher.waiting == 2
            gate.set()
            assert [noul(await task) for task in tasks] == list(range(8))

    gate = threading.Event()
    model = FakeModel(gate)
    asyncio.run(run())
    assert list(chain(*model.passes)) == list(range(8))
    assert max(map(len, model.passes)) == 2


def test_a_full_queue_can_refuse_and_takes_the_next_one_when_there_is_room() -> None:
    async def run() -> None:
        async with MicroBatcher(model, max_delay_ms=0, max_waiting=2, when_full="refuse") as batcher:
            first = asyncio.create_task(batcher.decide(0.0, QUESTION))
            await until(lambda: len(model.passes) == 1)
            queued = [asyncio.create_task(batcher.decide(float(number), QUESTION)) for number in (1, 2)]
            await until(lambda: batcher.waiting == 2)
            with pytest.raises(OverloadedError) as caught:
                await batcher.decide(3.0, QUESTION)
            assert (caught.value.waiting, caught.value.limit) == (2, 2)
            queued[0].cancel()
            await until(lambda: batcher.waiting == 1)
            late = asyncio.create_task(batcher.decide(4.0, QUESTION))
            await until(lambda: batcher.waiting == 2)
            gate.set()
            assert [noul(await task) for task in (first, queued[1], late)] == [0, 2, 4]

    gate = threading.Event()
    model = FakeModel(gate)
    asyncio.run(run())


def test_cancelling_callers_before_and_in_the_queue_frees_their_room() -> None:
    async def run() -> None:
        async with MicroBatcher(model, max_questions=100, max_delay_ms=FOREVER, max_waiting=2) as batcher:
            for _ in range(3):
                tasks = [asyncio.create_task(batcher.decide(float(number), QUESTION)) for number in range(4)]
                await until(lambda: batcher.waiting == 2)
                for task in tasks:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
                assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
                assert batcher.waiting == 0

    model = FakeModel()
    asyncio.run(run())
    assert model.passes == []


def test_closing_answers_those_who_wait_at_once_and_refuses_new_ones() -> None:
    async def run() -> None:
        batcher = MicroBatcher(model, max_questions=100, max_delay_ms=FOREVER, max_waiting=2)
        tasks = [asyncio.create_task(batcher.decide(float(number), QUESTION)) for number in range(5)]
        await until(lambda: batcher.waiting == 2)
        await batcher.close()
        assert [noul(await task) for task in tasks] == [0, 1, 2, 3, 4]
        with pytest.raises(BatcherClosedError):
            await batcher.decide(9.0, QUESTION)
        await batcher.close()

    model = FakeModel()
    asyncio.run(run())
    assert list(chain(*model.passes)) == [0, 1, 2, 3, 4]


def test_closing_one_that_was_never_used_ends() -> None:
    async def run() -> None:
        async with MicroBatcher(FakeModel()):
            pass

    asyncio.run(run())


def test_a_second_event_loop_is_refused() -> None:
    batcher = MicroBatcher(FakeModel(), max_delay_ms=0)
    assert noul(asyncio.run(batcher.decide(1.0, QUESTION))) == 1
    with pytest.raises(RuntimeError, match="one for each loop"):
        asyncio.run(batcher.decide(1.0, QUESTION))


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_questions": 0},
        {"max_waiting": 0},
        {"max_delay_ms": -1},
        {"max_delay_ms": float("nan")},
        {"max_waste": 1.5},
        {"when_full": "drop"},
    ],
)
def test_senseless_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"max_|when_full"):
        MicroBatcher(FakeModel(), **wrong)  # type: ignore[arg-type]


def test_the_share_of_padding_is_passed_on() -> None:
    async def run() -> None:
        for waste in (1.0, 0.25):
            async with MicroBatcher(model, max_delay_ms=0, max_waste=waste) as batcher:
                await batcher.decide(1.0, QUESTION)

    model = FakeModel()
    asyncio.run(run())
    assert model.waste == [1.0, 0.25]


def test_a_real_model_gives_a_crowd_what_it_gives_each_alone() -> None:
    decider = Decider.load(TINY, "cpu", threads=1)
    choice = Choice({"cancel": "leave the course", "register": "take part", "ask": None}, "What is wanted?")
    requests: list[tuple[str, dict[str, QuestionLike]]] = [
        (f"seats free: {number}; " + "please take me off the list. " * (number % 5), {"q": Noul("Full?"), "c": choice})
        for number in range(20)
    ]

    async def run() -> list[Answers]:
        async with MicroBatcher(decider, max_questions=16, max_delay_ms=1) as batcher:
            return await asyncio.gather(*(batcher.decide(state, questions) for state, questions in requests))

    for together, (state, questions) in zip(asyncio.run(run()), requests, strict=True):
        alone = decider.decide(state, questions)
        assert noul(together) == pytest.approx(noul(alone), abs=1e-5)
        assert together.choices["c"].probabilities == pytest.approx(alone.choices["c"].probabilities, abs=1e-5)
