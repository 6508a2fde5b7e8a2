"""Every error that the decider raises.

DeciderError
├── QuestionError        a question that cannot be asked: names the question and the field
├── StateError           a state that cannot be read, or does not fit
├── RequestTooLargeError one call that would need too much memory for one pass
├── OverloadedError      a micro-batcher whose queue is full and that was told not to wait
├── BatcherClosedError   a call to a micro-batcher that was closed
├── ProviderError        the wanted execution provider cannot run here
├── MissingPackageError  a package is not installed, or its installation is broken
├── ModelFileError       a model folder with a file missing, damaged or of another version
├── CalibrationError     a fit that means nothing, or a file of fits that belongs to other weights
└── TrainingDataError    a line of a training file that does not say what it should
"""

from __future__ import annotations

from pathlib import Path


class DeciderError(Exception):
    """The base of all errors of this package."""


class QuestionError(DeciderError):
    """A question that cannot be asked.

    `question_id` is None while a record is built on its own, before it has a name in a request.
    """

    def __init__(self, field: str, problem: str, remedy: str, question_id: str | None = None) -> None:
        self.question_id = question_id
        self.field = field
        self.problem = problem
        self.remedy = remedy
        where = "A question" if question_id is None else f"Question {question_id!r}"
        super().__init__(f"{where}, field {field!r}: {problem}. {remedy}")

    def named(self, question_id: str) -> QuestionError:
        """Return the same error with the question's name in it."""
        return QuestionError(self.field, self.problem, self.remedy, question_id)


class StateError(DeciderError):
    """A state that cannot be rendered or does not fit; `tokens` and `limit` when it is a matter of length."""

    def __init__(self, problem: str, remedy: str, tokens: int | None = None, limit: int | None = None) -> None:
        self.tokens = tokens
        self.limit = limit
        super().__init__(f"The state cannot be used: {problem}. {remedy}")


class RequestTooLargeError(DeciderError):
    """A call whose rows, padded to the longest, need more attention cells than the model's limit."""

    def __init__(self, rows: int, tokens: int, limit: int) -> None:
        self.rows = rows
        self.tokens = tokens
        self.limit = limit
        super().__init__(
            f"One pass over {rows} rows of {tokens} tokens needs {rows * tokens * tokens:,} attention cells; "
            f"the limit is {limit:,}. Ask about fewer states in one call, let decide_many run several passes "
            "(max_waste=0.25), or take decide_iter for a long stream."
        )


class OverloadedError(DeciderError):
    """So many callers wait for a pass already that no further one is taken; asking again later may succeed."""

    def __init__(self, waiting: int, limit: int) -> None:
        self.waiting = waiting
        self.limit = limit
        super().__init__(f"{waiting} callers wait for an answer and the limit is {limit}. Ask again later.")


class BatcherClosedError(DeciderError):
    """A question to a MicroBatcher after its close(): nothing would answer it."""

    def __init__(self) -> None:
        super().__init__("The MicroBatcher was closed and takes no more questions. Make a new one.")


class ProviderError(DeciderError):
    """The execution provider that was asked for cannot run here; never a silent change to another one."""

    def __init__(self, provider: str, reason: str, remedy: str) -> None:
        self.provider = provider
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"Provider {provider!r} was asked for and cannot be used: {reason}. {remedy}")


class MissingPackageError(DeciderError):
    """A package that is needed for what was called is not there or is broken."""

    def __init__(self, package: str, problem: str, remedy: str) -> None:
        self.package = package
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"Package {package!r}: {problem}. {remedy}")


class ModelFileError(DeciderError):
    """A model folder that cannot be used; `path` is the file at fault."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        self.path = path
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{path}: {problem}. {remedy}")


class CalibrationError(DeciderError):
    """A fit of probabilities that cannot be relied on; `what` was fitted, `problem` says why it is refused."""

    def __init__(self, what: str, problem: str, remedy: str) -> None:
        self.what = what
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{what[0].upper()}{what[1:]} cannot be used: {problem}. {remedy}")


class TrainingDataError(DeciderError):
    """A line of a training file that cannot be used; `line` counts from 1."""

    def __init__(self, path: Path, line: int, problem: str, remedy: str) -> None:
        self.path = path
        self.line = line
        super().__init__(f"{path}, line {line}: {problem}. {remedy}")
