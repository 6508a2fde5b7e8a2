"""The records that travel between the step, the run, the drivers and the savers: plain, frozen, picklable.

A checkpoint lists the tasks that are due next. Running a task gives one result. A `Write` is everything a saver
stores in one transaction; `Stored` is what it gives back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from minigraph.identifiers import time_text
from minigraph.types import UNSET, Interrupt, Send, Unset


class Task(msgspec.Struct, frozen=True):
    """One unit of work of a step.

    `payload` is UNSET for a task that an edge asked for (its node reads the state); a `Send` task carries its
    argument there. `index` is the position among the Sends of the step (0 for edge tasks). The id is derived from
    the checkpoint that first listed the task and its place there: stable on a re-run, new on a fork.
    """

    id: str
    node: str
    index: int = 0
    payload: Any = UNSET

    @property
    def is_send(self) -> bool:
        return not isinstance(self.payload, Unset)


class Recorded(msgspec.Struct, frozen=True):
    """What is stored of one `once()` call of a task: that it began, and once `done` its value.

    `error` is the exception that ended a call that is not done ("TimeoutError: no answer"), "" where none is known.
    `questions` and `children` say where in the node it began: after so many of the task's questions, and after so
    many calls of child graphs.
    """

    key: str
    done: bool
    value: Any = None
    error: str = ""
    questions: int = 0
    children: int = 0


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """A task whose node and routers succeeded: its writes in order, and where it goes besides its static edges."""

    task_id: str
    node: str
    writes: tuple[tuple[str, Any], ...] = ()
    targets: tuple[str | Send, ...] = ()
    follow_edges: bool = True
    cached: bool = False
    asked: tuple[Interrupt, ...] = ()
    answers: tuple[Any, ...] = ()


class Paused(msgspec.Struct, frozen=True, tag="paused"):
    """A task that asked and waits.

    `asked` are the task's own questions in call order, `answers` their answers so far; `inner` are open questions of
    child graphs and `given` the answers (by interrupt id) accepted for them.
    """

    task_id: str
    node: str
    asked: tuple[Interrupt, ...] = ()
    answers: tuple[Any, ...] = ()
    inner: tuple[Interrupt, ...] = ()
    given: tuple[tuple[str, Any], ...] = ()

    @property
    def open(self) -> tuple[Interrupt, ...]:
        """The questions that still wait for an answer."""
        given = {key for key, _ in self.given}
        return self.asked[len(self.answers) :] + tuple(i for i in self.inner if i.id not in given)


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A task that raised (or was cancelled): it stays due. Answers it had been given are kept for the next try.

    `kept` is the node's own result where only a router failed: the next try asks the routers alone.
    """

    task_id: str
    node: str
    error_type: str
    message: str
    cancelled: bool = False
    asked: tuple[Interrupt, ...] = ()
    answers: tuple[Any, ...] = ()
    inner: tuple[Interrupt, ...] = ()
    given: tuple[tuple[str, Any], ...] = ()
    kept: Finished | None = None


Result = Finished | Paused | Failed


class Checkpoint(msgspec.Struct, frozen=True):
    """The state after one step, the tasks due next and the joins in progress.

    source: "input" (new input waits to be applied), "loop" (a step ended), "update" (somebody edited the state) or
    "fork" (a branch from an older checkpoint). `joins` maps a list edge ("a+b:c") to the sources seen so far.
    `deferred` are triggered nodes that wait until nothing else is due. `ran` are the nodes whose results made this
    state. `written` is kept by child graphs only: what they hand back to their parent, write by write. `owner` is the
    parent task a child run belongs to. `created` is a label (milliseconds since 1970); the order is that of the writes.
    """

    id: str
    parent_id: str | None
    step: int
    source: str
    created: int
    values: dict[str, Any]
    due: tuple[Task, ...] = ()
    deferred: tuple[str, ...] = ()
    joins: dict[str, tuple[str, ...]] = {}
    ran: tuple[str, ...] = ()
    written: tuple[tuple[str, Any], ...] = ()
    owner: str = ""
    metadata: dict[str, Any] = {}

    @property
    def created_at(self) -> str:
        """When it was made, as ISO 8601 in UTC."""
        return time_text(self.created)


class Ancestor(msgspec.Struct, frozen=True):
    """A checkpoint of a lineage without its state; the fields are those of `Checkpoint`."""

    id: str
    step: int
    source: str
    ran: tuple[str, ...] = ()
    graph: str = ""
    """The fingerprint of the graph that wrote it, "" where none is known."""


class NewCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint to store, with its parent's state so that a saver can store what changed.

    `previous` is None where the checkpoint has no parent. `kept` may name keys whose lists are known to begin with the
    very items of the parent's (a list that was only appended to); a saver then need not compare them.
    """

    checkpoint: Checkpoint
    previous: Checkpoint | None
    kept: frozenset[str] = frozenset()


class Carried(msgspec.Struct, frozen=True):
    """Copies what a task recorded with `once()` to the task that stands for it on a branch.

    `namespace` and `task_id` are the old task's. Only calls that began after at most `questions` questions and
    `children` calls of child graphs are copied (None: whenever they began).
    """

    namespace: str
    task_id: str
    new_task_id: str
    questions: int | None = None
    children: int | None = None

    def includes(self, questions: int, children: int) -> bool:
        """Whether a call that began after so many questions and calls of child graphs is copied."""
        limits = ((questions, self.questions), (children, self.children))
        return all(limit is None or number <= limit for number, limit in limits)


class Write(msgspec.Struct, frozen=True):
    """Everything that one transaction stores for one thread and namespace.

    `revision` is the revision of the head that the writer saw (0: there was none). If the stored one differs, nothing
    is stored and ThreadConflictError is raised. Otherwise the checkpoints are added in order, each under the next
    revision, which its id must begin with (`identifiers.new_checkpoint_id`); the last one is the new head. A write
    without checkpoints takes one revision. The results, by (checkpoint id, task id), belong to the checkpoint that was
    the head or to new ones, and replace earlier ones of their task.
    """

    thread_id: str
    namespace: str
    revision: int
    checkpoints: tuple[NewCheckpoint, ...] = ()
    results: tuple[tuple[str, Result], ...] = ()
    removed: tuple[tuple[str, str], ...] = ()
    """Results to forget, by (checkpoint id, task id)."""
    carried: tuple[Carried, ...] = ()
    """Records of `once()` calls to copy to tasks of this namespace."""
    graph: str = ""
    """The fingerprint of the graph that writes, "" where there is none to note."""
    under: str | None = None
    """The namespace of the run that called this one as a child graph, where that is stored already. If there is no log
    of it, so that the thread was deleted meanwhile, a write of revision 0 stores nothing: ThreadConflictError."""

    @property
    def end(self) -> int:
        """The revision of the thread after this write."""
        return self.revision + max(1, len(self.checkpoints))


class Stored(msgspec.Struct, frozen=True):
    """A checkpoint as stored, with the results recorded for its due tasks and the thread's head at reading time."""

    checkpoint: Checkpoint
    results: tuple[Result, ...]
    head_id: str
    revision: int
    graph: str = ""
    """The fingerprint of the graph that wrote the checkpoint, "" where none is known."""


def without_untracked(write: Write, untracked: frozenset[str]) -> Write:
    """The write without the keys that are never stored."""
    if not untracked:
        return write

    def strip(checkpoint: Checkpoint | None) -> Checkpoint | None:
        if checkpoint is None:
            return None
        values = {key: value for key, value in checkpoint.values.items() if key not in untracked}
        return msgspec.structs.replace(checkpoint, values=values)

    def strip_result(result: Result) -> Result:
        if not isinstance(result, Finished):
            return result
        return msgspec.structs.replace(result, writes=tuple(w for w in result.writes if w[0] not in untracked))

    new = tuple(
        NewCheckpoint(strip(item.checkpoint) or item.checkpoint, strip(item.previous), item.kept)
        for item in write.checkpoints
    )
    results = tuple((checkpoint_id, strip_result(result)) for checkpoint_id, result in write.results)
    return msgspec.structs.replace(write, checkpoints=new, results=results)
