"""Every error the engine raises.

    Exception
    ├── MinigraphError
    │   ├── InvalidUpdateError            an update, input or merge that the state's keys do not allow
    │   │   └── UnstorableValueError      a value that has no exact stored form
    │   ├── EmptyInputError               nothing to do: no input and nothing stored
    │   ├── GraphRecursionError           the step limit was reached (also a RecursionError)
    │   ├── GraphDrained                  the run was asked to stop and did, with everything saved
    │   ├── GraphDefinitionError          the graph is not well formed (also a ValueError)
    │   ├── UnknownTargetError            a router, goto or Send names no node (also a ValueError)
    │   ├── RoutingTypeError              a router returned something that is no target (also a TypeError)
    │   ├── UnknownInterruptError         an answer names no open question (also a RuntimeError)
    │   ├── AmbiguousAnswerError          one answer, several open questions (also a RuntimeError)
    │   ├── SwallowedInterruptError       a node caught the pause signal and went on
    │   ├── OnceError                     once() was used where or how it cannot be (also a RuntimeError)
    │   ├── UnknownOutcomeError           a once() call began and its end was never recorded
    │   ├── UnknownCheckpointError        no such checkpoint, or no such namespace (also a ValueError)
    │   ├── NoTurnError                   bisect: no checkpoint at which the predicate turned true (also a ValueError)
    │   ├── GraphChangedError             what a thread has stored does not fit the graph
    │   │   └── UnknownNodeError          a stored task names a node that this graph lacks
    │   ├── NodeTimeoutError              a node ran longer than it may
    │   ├── NodeCancelledError            a node raised CancelledError itself
    │   └── StorageError                  a saver could not do what was asked
    │       ├── ThreadConflictError       somebody else moved the thread meanwhile; nothing was stored
    │       └── DecodeError               stored bytes that are not what a saver writes
    BaseException
    └── GraphSignal
        ├── GraphInterrupt                the pause signal of interrupt(); never catch it
        ├── ParentCommand                 a Command on its way to the parent graph
        └── RunAbandoned                  the caller left a stream early

`NodeError` is not raised: it is what an error handler receives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minigraph.types import Command, Interrupt


def nearest(name: object, allowed: Iterable[str]) -> str:
    """A hint `; did you mean 'x'?` for a misspelt name, or an empty string."""
    import difflib  # needed for a message alone, and not worth loading before

    close = difflib.get_close_matches(str(name), list(allowed), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def listing(names: Iterable[object]) -> str:
    """Names for an error message, sorted, at most 20 of them."""
    texts = sorted(repr(name) for name in names)
    return ", ".join(texts[:20]) + (f", ... ({len(texts)} in all)" if len(texts) > 20 else "") or "(none)"


class MinigraphError(Exception):
    """Base of every error of the engine."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[MinigraphError], args: tuple[Any, ...], facts: dict[str, Any]) -> MinigraphError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class InvalidUpdateError(MinigraphError):
    """An update that the state does not allow; `node` and `key` say where."""

    def __init__(self, message: str, *, node: str | None = None, key: str | None = None) -> None:
        super().__init__(message)
        self.node, self.key = node, key


class UnstorableValueError(InvalidUpdateError, TypeError):
    """A value without an exact stored form: `path` leads to it inside the key (`$[0].name`), `type_name` says what."""

    def __init__(
        self, message: str, *, node: str | None = None, key: str | None = None, path: str = "$", type_name: str = ""
    ) -> None:
        super().__init__(message, node=node, key=key)
        self.path, self.type_name = path, type_name


class EmptyInputError(MinigraphError):
    """There is no input and no stored state to go on from."""


class GraphRecursionError(MinigraphError, RecursionError):
    """The run needed more steps than `recursion_limit` allows; `last_nodes` ran last. What was done is saved."""

    def __init__(self, message: str, *, limit: int, last_nodes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.limit, self.last_nodes = limit, last_nodes


class GraphDrained(MinigraphError):
    """The run stopped at a step boundary because it was asked to; go on with `invoke(None, config)`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the run was drained: {reason}; everything is saved, go on with invoke(None, config)")
        self.reason = reason


class GraphDefinitionError(MinigraphError, ValueError):
    """The graph is not well formed."""


class UnknownTargetError(MinigraphError, ValueError):
    """A router, goto or Send names something that is no node; `value` is what it named."""

    def __init__(self, message: str, *, node: str, value: object, choices: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.node, self.value, self.choices = node, value, choices


class RoutingTypeError(MinigraphError, TypeError):
    """A router returned a value of a type that can be no target."""


class UnknownInterruptError(MinigraphError, RuntimeError):
    """An answer names a question that is not open; nothing was written. `ids` are the ones that match nothing."""

    def __init__(self, message: str, *, ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.ids = ids


class AmbiguousAnswerError(MinigraphError, RuntimeError):
    """One plain answer for several open questions; `ids` are theirs."""

    def __init__(self, message: str, *, ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.ids = ids


class SwallowedInterruptError(MinigraphError):
    """A node caught the pause signal of `interrupt()` and went on."""


class OnceError(MinigraphError, RuntimeError):
    """`once()` was used where or how it cannot keep its word; `node` and `key` say where. Nothing was called."""

    def __init__(self, message: str, *, node: str, key: str) -> None:
        super().__init__(message)
        self.node, self.key = node, key


class UnknownOutcomeError(MinigraphError):
    """A `once()` call began in an earlier try and its end was never recorded: it may or may not have happened.

    `node`, `key` and `task_id` say which call; `error` is the exception that ended it, "" where none is known.
    """

    def __init__(self, message: str, *, node: str, key: str, task_id: str, error: str = "") -> None:
        super().__init__(message)
        self.node, self.key, self.task_id, self.error = node, key, task_id, error


class UnknownCheckpointError(MinigraphError, ValueError):
    """The thread has no such checkpoint or namespace."""


class NoTurnError(MinigraphError, ValueError):
    """A predicate turned true at no checkpoint of a lineage; `at_oldest` is what it said of the oldest one."""

    def __init__(self, message: str, *, at_oldest: bool) -> None:
        super().__init__(message)
        self.at_oldest = at_oldest


class GraphChangedError(MinigraphError):
    """What a thread has stored does not fit the graph: `keys` or `joins` that it lacks. Nothing was written.

    `stored` is the fingerprint of the graph that wrote it ("": unknown), `present` that of the graph at hand.
    """

    def __init__(
        self,
        message: str,
        *,
        thread_id: str = "",
        keys: tuple[str, ...] = (),
        joins: tuple[str, ...] = (),
        stored: str = "",
        present: str = "",
    ) -> None:
        super().__init__(message)
        self.thread_id, self.keys, self.joins = thread_id, keys, joins
        self.stored, self.present = stored, present


class UnknownNodeError(GraphChangedError):
    """A stored task waits for a node that this graph does not have."""

    def __init__(self, message: str, *, node: str, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.node = node


class NodeTimeoutError(MinigraphError):
    """One try of a node took longer than its time-out (`seconds`)."""

    def __init__(self, message: str, *, node: str, seconds: float) -> None:
        super().__init__(message)
        self.node, self.seconds = node, seconds


class NodeCancelledError(MinigraphError):
    """A node raised `CancelledError` although nobody cancelled the run."""


class StorageError(MinigraphError):
    """A saver could not do what was asked; nothing was stored."""


class ThreadConflictError(StorageError):
    """The thread moved on since this run read it: another run won, and nothing of this one was stored."""


class DecodeError(StorageError):
    """Stored bytes that no saver of this release writes."""


class GraphSignal(BaseException):
    """Control flow inside a run. Not an Exception, so that `except Exception` in a node lets it pass."""


class GraphInterrupt(GraphSignal):
    """Raised by `interrupt()` to pause the run; `interrupts` are the questions."""

    def __init__(self, interrupts: tuple[Interrupt, ...] = ()) -> None:
        super().__init__(interrupts)
        self.interrupts = interrupts


class ParentCommand(GraphSignal):
    """Carries a Command to the parent graph."""

    def __init__(self, command: Command[Any]) -> None:
        super().__init__(command)
        self.command = command


class RunAbandoned(GraphSignal):
    """Ends a run whose caller left the stream early; what had finished is stored."""


@dataclass(frozen=True, slots=True)
class NodeError:
    """What an error handler receives as `error`: which node failed, and how."""

    node: str
    error: Exception
