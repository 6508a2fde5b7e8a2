"""Every error the desk raises on purpose.

DeskError
|-- BadInputError           a request, a setting or an answer that cannot be used
|   |-- ThresholdError      costs or thresholds that no decision can rest on (also a ValueError)
|   `-- NotWaitingError     an answer for a thread that asks nothing
|-- NotFoundError
|   |-- UnknownRegistrationError
|   |-- UnknownEventError
|   |-- UnknownThreadError
|   `-- UnknownStepError
|-- WaitingError            a thread that must be reviewed before it can go on
|-- DeskStorageError        a database that is damaged, foreign or cannot be opened
`-- DecisionModelError      the decision model is not there or cannot be loaded
"""

from __future__ import annotations

from collections.abc import Iterable


class DeskError(Exception):
    """The base of all errors of the desk."""


class BadInputError(DeskError):
    """Something given to the desk cannot be used; nothing was done. ``field`` names it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class ThresholdError(BadInputError, ValueError):
    """Costs or thresholds outside what a decision can rest on."""


class NotWaitingError(BadInputError):
    """A thread was given an answer, and it asks nothing."""

    def __init__(self, thread: str, problem: str) -> None:
        super().__init__(f"thread {thread!r}", problem)
        self.thread = thread


class NotFoundError(DeskError):
    """Something named is not in the database. ``kind`` and ``name`` say what; ``known`` are names that exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str] = ()) -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(known)
        hint = f"; there are {', '.join(self.known)}" if self.known else ""
        super().__init__(f"there is no {kind} {name!r}{hint}")


class UnknownRegistrationError(NotFoundError):
    """No registration has this id."""


class UnknownEventError(NotFoundError):
    """No event has this id."""


class UnknownThreadError(NotFoundError):
    """No conversation has this id."""


class UnknownStepError(NotFoundError):
    """The history of a thread has no such step."""


class WaitingError(DeskError):
    """A thread waits for a person, so nothing else can be asked of it yet."""

    def __init__(self, thread: str) -> None:
        super().__init__(
            f"thread {thread!r} waits for a person: answer with `desk review {thread} --approve`, --reject REASON or "
            f"--edit KEY=VALUE, or use another thread"
        )
        self.thread = thread


class DeskStorageError(DeskError):
    """A database file cannot be used. ``path`` is the file, ``problem`` what is wrong with it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"database {path}: {problem}")
        self.path = path
        self.problem = problem


class DecisionModelError(DeskError):
    """The decision model cannot be loaded; the message says how to get one."""
