"""Callers are answered together and each on their own account, held against a stand-in and against the tiny model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from decider import (
    Answers,
    BatcherClosedError,
    Choice,
    Decider,
    Encoded,
    ModelOutputError,
    Noul,
    NoulAnswer,
    OverloadedError,
    QuestionError,
    QuestionLike,
    StateError,
)
from decider.batcher import MicroBatcher
from decider.protocol import Picked
from decider.questions import read_questions
from decider.rows import AnyRow, EncodedRequest, FloatArray, IntArray

TINY = Path(__file__).parent / "data" / "tiny_decider"
FOREVER = 60_000.0
QUESTION: dict[str, QuestionLike] = {"q": Noul("Is it?")}


@dataclass(frozen=True)
class NumberRow:
    """A row about a state that is a number, with one question; its length counts as its cost."""

    number: float
    question_id: str
    length: int = 1

    @property
    def inputs(self) -> Mapping[str, IntArray]:
        return {}

    def __len__(self) -> int:
        return self.length

    def pick(self, output: NDArray[np.float32]) -> dict[str, FloatArray]:
        return {}


class Steps(threading.Semaphore):
    """Lets one pass through for each release."""

    def wait(self, timeout: float) -> bool:
        return self.acquire(timeout=timeout)


class FakeModel:
    """Answers every Noul with the number that the state is, a row a question; keeps the states of each pass.

    A pass takes as many rows as `room`. `gate` holds every pass; `unsound` states have no answer.
    """

    def __init__(self, gate: threading.Event | Steps | None = None, room: int = 1000) -> None:
        self.passes: list[list[float]] = []
        self.rows: list[int] = []
        self.room = room
        self.unsound: set[float] = set()
        self.waste: list[float] = []
        self.threads: set[int] = set()
        self.gate = gate
        self.error: BaseException | None = None

    def encode(self, state: object, questions: Mapping[str, QuestionLike]) -> Encoded:
        if not isinstance(state, float):
            raise StateError("it is no number", "Give one.")
        records = read_questions(questions)
        return Encoded(records, EncodedRequest([NumberRow(state, name) for name in records], 0))

    def run_pass(
        self, rows: Sequence[AnyRow], max_waste: float = 1.0, max_cells: int | None = None
    ) -> Mapping[int, Picked]:
        numbered = [row for row in rows if isinstance(row, NumberRow)][: self.room]
        self.threads.add(threading.get_ident())
        self.passes.append(list(dict.fromkeys(row.number for row in numbered)))
        self.rows.append(len(numbered))
        self.waste.append(max_waste)
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return {place: {row.question_id: np.array([row.number])} for place, row in enumerate(numbered)}

    def answer(self, encoded: Encoded, picked: Sequence[Picked]) -> Answers:
        given = {name: float(values[0]) for each in picked for name, values in each.items()}
        assert list(given) == list(encoded.questions)
        for name, number in given.items():
            if number in self.unsound:
                raise ModelOutputError(name)
        return Answers({name: NoulAnswer(number) for name, number in given.items()}, "fake", "cpu")


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


def test_scores_that_mean_nothing_concern_the_one_who_asked() -> None:
    async def run() -> list[Answers | BaseException]:
        async with MicroBatcher(model, max_questions=2, max_delay_ms=FOREVER) as batcher:
            return await asyncio.gather(*(batcher.decide(n, QUESTION) for n in (1.0, 2.0)), return_exceptions=True)

    model = FakeModel()
    model.unsound = {1.0}
    first, second = asyncio.run(run())
    assert isinstance(first, ModelOutputError)
    assert isinstance(second, Answers)
    assert model.passes == [[1, 2]]


# ---------------------------------------------------------------- large requests


def many(count: int) -> dict[str, QuestionLike]:
    return {f"q{place}": Noul("Is it?") for place in range(count)}


def test_who_comes_during_a_large_request_waits_for_one_pass() -> None:
    """100 passes for a thousand questions; the others are answered in between, the large one whole in the end."""

    async def run() -> int:
        async with MicroBatcher(model, max_delay_ms=0) as batcher:
            large = asyncio.create_task(batcher.decide(7.0, many(1000)))
            for number in range(20):
                await until(lambda: len(model.passes) == 1 + 2 * number)  # noqa: B023  # one of the large one's is held
                small = asyncio.create_task(batcher.decide(100.0 + number, QUESTION))
                await until(lambda: batcher.waiting == 1)
                steps.release()  # the held one ends
                steps.release()  # the next one runs, and has the answer
                assert noul(await small) == 100 + number
            steps.release(1000)
            assert {answer.noul for answer in (await large).nouls.values()} == {7.0}
            return len(await large)

    steps = Steps(0)
    model = FakeModel(steps, room=10)
    assert asyncio.run(run()) == 1000
    assert model.passes[:6] == [[7], [100], [7], [101], [7], [102]]
    assert len([states for states in model.passes if states == [7]]) == 100
    assert max(model.rows) == 10


def test_large_requests_take_turns() -> None:
    async def run() -> None:
        async with MicroBatcher(model, max_questions=5, max_delay_ms=FOREVER) as batcher:
            await asyncio.gather(*(batcher.decide(float(number), many(5)) for number in range(3)))

    model = FakeModel(room=2)
    asyncio.run(run())
    assert model.passes[:6] == [[0], [1], [2], [0], [1], [2]]
    assert model.rows[6:] == [2, 1]  # what is left of all three is small enough to share a pass
    assert sum(model.rows) == 15


def test_a_crowd_of_large_requests_leaves_the_queue_bounded() -> None:
    async def run() -> int:
        longest = 0
        async with MicroBatcher(model, max_questions=4, max_delay_ms=0, max_waiting=3) as batcher:
            tasks = [asyncio.create_task(batcher.decide(float(number), many(1 + number % 4))) for number in range(40)]
            while not all(task.done() for task in tasks):
                longest = max(longest, batcher.waiting)
                await asyncio.sleep(0)
            for number, task in enumerate(tasks):
                assert {answer.noul for answer in task.result().nouls.values()} == {float(number)}
        return longest

    model = FakeModel(room=1)
    assert asyncio.run(run()) <= 3 + 4  # those who wait for their first pass, and those who were in the last one
    assert sum(model.rows) == len(model.rows) == 10 * (1 + 2 + 3 + 4)


def test_who_is_cancelled_between_two_passes_leaves_the_others_alone() -> None:
    async def run() -> None:
        async with MicroBatcher(model, max_delay_ms=0, max_waiting=2) as batcher:
            large = asyncio.create_task(batcher.decide(1.0, many(100)))
            await until(lambda: len(model.passes) >= 3)
            large.cancel()
            with pytest.raises(asyncio.CancelledError):
                await large
            for number in range(5):
                assert noul(await batcher.decide(float(number), QUESTION)) == number

    model = FakeModel(room=1)
    asyncio.run(run())
    assert len(model.passes) < 100


def test_closing_answers_a_large_request_whole() -> None:
    async def run() -> int:
        batcher = MicroBatcher(model, max_delay_ms=FOREVER)
        large = asyncio.create_task(batcher.decide(1.0, many(30)))
        await until(lambda: batcher.waiting == 1)
        await batcher.close()
        return len(await large)

    model = FakeModel(room=4)
    assert asyncio.run(run()) == 30
    assert model.rows == [4] * 7 + [2]


# ---------------------------------------------------------------- the end of the task


@pytest.mark.parametrize("started", [False, True])
def test_when_its_task_is_cancelled_everybody_is_told_and_later_callers_too(started: bool) -> None:
    async def run() -> None:
        batcher = MicroBatcher(model, max_questions=2 if started else 100, max_delay_ms=FOREVER, max_waiting=2)
        tasks = [asyncio.create_task(batcher.decide(float(number), QUESTION)) for number in range(6)]
        await until(lambda: len(model.passes) == 1 if started else batcher.waiting == 2)
        assert batcher._worker is not None
        batcher._worker.cancel()
        async with asyncio.timeout(10):
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(outcome, BatcherClosedError)
                assert outcome.problem == "its task was cancelled"
            with pytest.raises(BatcherClosedError, match="cancelled"):
                await batcher.decide(1.0, QUESTION)
            gate.set()
            await batcher.close()

    gate = threading.Event()
    model = FakeModel(gate)
    asyncio.run(run())


def test_a_task_that_is_cancelled_before_it_began_is_noticed() -> None:
    async def run() -> None:
        batcher = MicroBatcher(FakeModel(), max_delay_ms=0)
        call = asyncio.create_task(batcher.decide(1.0, QUESTION))
        while batcher._worker is None:
            await asyncio.sleep(0)
        batcher._worker.cancel()
        with pytest.raises(BatcherClosedError):
            async with asyncio.timeout(10):
                await call
        await batcher.close()

    asyncio.run(run())


def test_an_error_that_ends_the_task_is_told() -> None:
    async def run() -> None:
        batcher = MicroBatcher(model, max_delay_ms=0)
        with pytest.raises(BatcherClosedError, match="GeneratorExit"):
            async with asyncio.timeout(10):
                await batcher.decide(1.0, QUESTION)
        with pytest.raises(BatcherClosedError, match="GeneratorExit"):
            await batcher.decide(1.0, QUESTION)
        await batcher.close()

    model = FakeModel()
    model.error = GeneratorExit()
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
        {"max_cells": 0},
        {"max_cells": -1},
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
