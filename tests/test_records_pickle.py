"""Records and public values survive pickle, so that a task can run in another process."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from minigraph import (
    CachePolicy,
    Command,
    GraphOutput,
    Interrupt,
    Overwrite,
    RetryPolicy,
    RunControl,
    Send,
    StateSnapshot,
    StateUpdate,
    TimeoutPolicy,
)
from minigraph.errors import (
    AmbiguousAnswerError,
    DecodeError,
    EmptyInputError,
    GraphDefinitionError,
    GraphDrained,
    GraphInterrupt,
    GraphRecursionError,
    InvalidUpdateError,
    NodeCancelledError,
    NodeError,
    NodeTimeoutError,
    OnceError,
    ParentCommand,
    RoutingTypeError,
    StorageError,
    SwallowedInterruptError,
    ThreadConflictError,
    UnknownCheckpointError,
    UnknownInterruptError,
    UnknownNodeError,
    UnknownOutcomeError,
    UnknownTargetError,
    UnstorableValueError,
)
from minigraph.records import (
    Carried,
    Checkpoint,
    Failed,
    Finished,
    NewCheckpoint,
    Paused,
    Recorded,
    Stored,
    Task,
    Write,
)
from minigraph.types import UNSET, ExecutionInfo, TaskSnapshot

QUESTION = Interrupt({"amount": (1, None)}, "0" * 32)
EDGE_TASK = Task("1", "n")
SEND_TASK = Task("2", "n", 3, None)
FINISHED = Finished("1", "n", (("log", [1]),), ("z", Send("w", {"x": 1})), False, True, (QUESTION,), (None,))
PAUSED = Paused("1", "n", (QUESTION,), (), (QUESTION,), (("a", False),))
FAILED = Failed("1", "n", "ValueError", "x", True, (QUESTION,), (0,), (), (), FINISHED)
CHECKPOINT = Checkpoint(
    "a", None, 2, "loop", 1_767_225_600_000, {"log": [1]}, (EDGE_TASK, SEND_TASK), ("d",), {"a+b:c": ("a",)}, ("n",),
    (("log", [1]),), "owner", {"k": 1},
)  # fmt: skip
TASK_SHOT = TaskSnapshot("1", "n", ("node", "n"), None, (QUESTION,), None, {"log": [1]})

VALUES: list[Any] = [
    EDGE_TASK,
    SEND_TASK,
    FINISHED,
    PAUSED,
    FAILED,
    CHECKPOINT,
    Recorded("k", False, None, "E: m", 1, 2),
    Carried("ns", "1", "2", 1, None),
    NewCheckpoint(CHECKPOINT, None, frozenset({"log"})),
    Write("t", "", 1, (NewCheckpoint(CHECKPOINT, CHECKPOINT),), (("a", PAUSED),), (("a", "1"),)),
    Stored(CHECKPOINT, (FINISHED,), "a", 3),
    Send("n", [1]),
    Command(update={"a": 1}, goto=[Send("n"), "z"], graph=Command.PARENT),
    Command(resume=None),
    QUESTION,
    Overwrite(None),
    StateSnapshot({"a": 1}, ("n",), {"configurable": {}}, {"step": 1}, "now", None, (TASK_SHOT,), (QUESTION,), ("j",)),
    TASK_SHOT,
    GraphOutput({"a": 1}, (QUESTION,)),
    StateUpdate({"a": 1}, "n"),
    RetryPolicy(retry_on=(ValueError, KeyError)),
    TimeoutPolicy(run_timeout=1.5),
    CachePolicy(key_func=len, ttl=3),
    RunControl(),
    ExecutionInfo("t", "a", "", "1", 2),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_a_record_comes_back_equal_and_of_its_type(value: Any, protocol: int) -> None:
    back = pickle.loads(pickle.dumps(value, protocol))
    assert type(back) is type(value)
    assert back == value


def test_no_answer_and_no_payload_stay_the_one_unset() -> None:
    assert pickle.loads(pickle.dumps(UNSET)) is UNSET
    assert pickle.loads(pickle.dumps(Command())).resume is UNSET
    assert not pickle.loads(pickle.dumps(EDGE_TASK)).is_send
    assert pickle.loads(pickle.dumps(SEND_TASK)).is_send


ERRORS: list[Any] = [
    InvalidUpdateError("m", node="n", key="k"),
    UnstorableValueError("m", node="n", key="k", path="$[0]", type_name="function"),
    EmptyInputError("m"),
    GraphRecursionError("m", limit=3, last_nodes=("n",)),
    GraphDrained("reason"),
    GraphDefinitionError("m"),
    UnknownTargetError("m", node="n", value="x", choices=("a",)),
    RoutingTypeError("m"),
    UnknownInterruptError("m", ids=("1",)),
    AmbiguousAnswerError("m", ids=("1", "2")),
    SwallowedInterruptError("m"),
    OnceError("m", node="n", key="k"),
    UnknownOutcomeError("m", node="n", key="k", task_id="1", error="E: m"),
    UnknownCheckpointError("m"),
    UnknownNodeError("m", node="n"),
    NodeTimeoutError("m", node="n", seconds=1.5),
    NodeCancelledError("m"),
    StorageError("m"),
    ThreadConflictError("m"),
    DecodeError("m"),
    GraphInterrupt((QUESTION,)),
    ParentCommand(Command(goto="z")),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_with_its_message_and_its_facts(error: BaseException) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_what_a_handler_receives_survives_too() -> None:
    back = pickle.loads(pickle.dumps(NodeError("n", ValueError("x"))))
    assert (back.node, type(back.error), str(back.error)) == ("n", ValueError, "x")


def succeed(task: Task) -> Finished:
    """What a worker process does with a task."""
    return Finished(task.id, task.node, (("log", [task.payload]),), (Send("w", task.payload),))


def test_a_task_goes_to_another_process_and_its_result_comes_back() -> None:
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(succeed, SEND_TASK).result() == Finished("2", "n", (("log", [None]),), (Send("w", None),))
