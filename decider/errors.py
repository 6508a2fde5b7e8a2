"""Every error that the decider raises.

DeciderError
├── QuestionError        a question that cannot be asked: names the question and the field
├── StateError           a state that cannot be read, or does not fit
├── RequestError         the body of a request to a server that cannot be answered: lists every fault
├── RequestTooLargeError a question that would need too much memory even in a pass of its own
├── OverloadedError      a micro-batcher whose queue is full and that was told not to wait
├── BatcherClosedError   a call to a micro-batcher that was closed, or whose task was ended
├── ProviderError        the wanted execution provider cannot run here
├── MissingPackageError  a package is not installed, or its installation is broken
├── ModelFileError       a model folder with a file missing, damaged or of another version
├── ModelOutputError     a model whose scores are no finite numbers
├── CalibrationError     a fit that means nothing, or a file of fits that belongs to other weights
├── CostError            costs or thresholds that no decision can rest on (also a ValueError)
├── TrainingDataError    a line of a training file that does not say what it should
└── EndpointError        an endpoint elsewhere did not answer
    ├── UnreachableError     no response came, or none in time (`timed_out`)
    ├── RefusedError         it refused the request: 4xx
    │   └── KeyRefusedError      the key: 401, 403
    ├── BusyError            it is overloaded and stayed so: 429, 503, 529
    ├── ServerFaultError     it failed: another 5xx
    └── ReplyError           it answered, but the answer is not one that can be relied on
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class DeciderError(Exception):
    """The base of all errors of this package."""


@contextmanager
def about_request(place: int, of: str = "call") -> Iterator[None]:
    """Say in a note of an error which request of several it is about, counted from 0."""
    try:
        yield
    except DeciderError as error:
        error.add_note(f"This was request {place} of the {of}, counted from 0.")
        raise


class QuestionError(DeciderError):
    """A question that cannot be asked.

    `path` leads to the field at fault, `field` is the same path as text. `question_id` is None while a record is built
    on its own, before it has a name in a request. `code` sorts errors as validation frameworks do: "missing",
    "extra_forbidden", "union_tag_invalid", "too_short", "too_long", "value_error".
    """

    def __init__(
        self,
        path: str | tuple[str | int, ...],
        problem: str,
        remedy: str,
        question_id: str | None = None,
        code: str = "value_error",
    ) -> None:
        self.path = (path,) if isinstance(path, str) else path
        self.field = _joined(self.path)
        self.question_id = question_id
        self.problem = problem
        self.remedy = remedy
        self.code = code
        where = "A question" if question_id is None else f"Question {question_id!r}"
        super().__init__(f"{where}, field {self.field!r}: {problem}. {remedy}")

    def named(self, question_id: str) -> QuestionError:
        """Return the same error with the question's name in it."""
        return QuestionError(self.path, self.problem, self.remedy, question_id, self.code)


class StateError(DeciderError):
    """A state that cannot be rendered or does not fit; `tokens` and `limit` when it is a matter of length."""

    def __init__(self, problem: str, remedy: str, tokens: int | None = None, limit: int | None = None) -> None:
        self.tokens = tokens
        self.limit = limit
        super().__init__(f"The state cannot be used: {problem}. {remedy}")


@dataclass(frozen=True, slots=True)
class RequestFault:
    """One fault of a request's body: the path to it from "body" on, what is wrong, and its code ("missing", ...)."""

    loc: tuple[str | int, ...]
    msg: str
    type: str


class RequestError(DeciderError):
    """The body of a request that cannot be answered, with every fault that was found."""

    def __init__(self, faults: Sequence[RequestFault]) -> None:
        self.faults = tuple(faults)
        listed = "; ".join(f"{'.'.join(map(str, fault.loc))}: {fault.msg}" for fault in self.faults)
        super().__init__(f"The request cannot be answered: {listed}")


class RequestTooLargeError(DeciderError):
    """A request with a row of so many tokens that a pass over it alone costs more attention cells than the limit."""

    def __init__(self, tokens: int, cells: int, limit: int) -> None:
        self.tokens = tokens
        self.cells = cells
        self.limit = limit
        super().__init__(
            f"The state with its longest question has {tokens} tokens, which costs {cells:,} attention cells in one "
            f"pass; the limit is {limit:,}. Shorten the state, or the question and its options, or raise "
            "limits.attention_cells in the model's decider.json where there is memory for it."
        )


class OverloadedError(DeciderError):
    """So many callers wait for a pass already that no further one is taken; asking again later may succeed."""

    def __init__(self, waiting: int, limit: int) -> None:
        self.waiting = waiting
        self.limit = limit
        super().__init__(f"{waiting} callers wait for an answer and the limit is {limit}. Ask again later.")


class BatcherClosedError(DeciderError):
    """A question to a MicroBatcher after its close(), or after its task was ended by others: nothing answers it."""

    def __init__(self, problem: str = "it was closed") -> None:
        self.problem = problem
        super().__init__(f"The MicroBatcher takes no more questions: {problem}. Make a new one.")


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


class ModelOutputError(DeciderError):
    """A model gave a score that is no finite number; an answer made of it would mean nothing."""

    def __init__(self, question_id: str) -> None:
        self.question_id = question_id
        super().__init__(
            f"The model's scores for question {question_id!r} are not all finite numbers, so there is no answer. "
            "Check the model with decider check."
        )


class CalibrationError(DeciderError):
    """A fit of probabilities that cannot be relied on; `what` was fitted, `problem` says why it is refused."""

    def __init__(self, what: str, problem: str, remedy: str) -> None:
        self.what = what
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{what[0].upper()}{what[1:]} cannot be used: {problem}. {remedy}")


class CostError(DeciderError, ValueError):
    """Costs or thresholds outside what a decision can rest on; `field` names the one at fault."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class TrainingDataError(DeciderError):
    """A line of a training file that cannot be used; `line` counts from 1."""

    def __init__(self, path: Path, line: int, problem: str, remedy: str) -> None:
        self.path = path
        self.line = line
        super().__init__(f"{path}, line {line}: {problem}. {remedy}")


class EndpointError(DeciderError):
    """An endpoint that was asked and did not answer; `endpoint` is its address, `request_id` its name for the call."""

    def __init__(self, endpoint: str, problem: str, remedy: str, request_id: str | None = None) -> None:
        self.endpoint = endpoint
        self.problem = problem
        self.remedy = remedy
        self.request_id = request_id
        named = "" if request_id is None else f" (request {request_id})"
        super().__init__(f"{endpoint}{named}: {problem}. {remedy}")


class UnreachableError(EndpointError):
    """No complete response came; `timed_out` when the time ran out, `attempts` counts how often it was tried."""

    def __init__(self, endpoint: str, problem: str, attempts: int, timed_out: bool) -> None:
        self.attempts = attempts
        self.timed_out = timed_out
        remedy = "Allow more time." if timed_out else "Check that a server runs there."
        super().__init__(endpoint, f"{problem}, {attempts} attempt(s)", remedy)


class _StatusError(EndpointError):
    """A response with an error status, as the endpoint worded it."""

    remedy_of_kind = "Correct the request."

    def __init__(
        self, endpoint: str, status: int, error_type: str | None, message: str, request_id: str | None = None
    ) -> None:
        self.status = status
        self.error_type = error_type
        self.message = message
        kind = "" if error_type is None else f" {error_type}"
        super().__init__(
            endpoint, f"it answered {status}{kind}: {message.rstrip('. ')}", self.remedy_of_kind, request_id
        )


class RefusedError(_StatusError):
    """The endpoint refused the request (4xx): asking again changes nothing."""


class KeyRefusedError(RefusedError):
    """The endpoint refused the key, or wants one (401, 403)."""

    remedy_of_kind = "Give the key that the endpoint expects."


class BusyError(_StatusError):
    """The endpoint was overloaded at every attempt (429, 503, 529); `retry_after` is what it asked for, in seconds."""

    remedy_of_kind = "Ask later, or less at once."
    retry_after: float | None = None


class ServerFaultError(_StatusError):
    """The endpoint failed at every attempt (5xx)."""

    remedy_of_kind = "Look into the server's log."


class ReplyError(EndpointError):
    """The endpoint answered 200 with something that is not a sound answer, so there is none.

    `question_id` and `field` say which answer and which part of it; `question_id` is None for the whole body.
    """

    def __init__(
        self, endpoint: str, field: str, problem: str, question_id: str | None = None, request_id: str | None = None
    ) -> None:
        self.question_id = question_id
        self.field = field
        where = "the body" if question_id is None else f"the answer to {question_id!r}"
        super().__init__(
            endpoint, f"{where}, field {field!r}: {problem}", "Nothing of it was used; report it there.", request_id
        )


def _joined(path: tuple[str | int, ...]) -> str:
    """Write ("criteria", "late", "no show", 2) as criteria.late['no show'][2]."""
    first, *rest = path
    return str(first) + "".join(
        f".{part}" if isinstance(part, str) and part.isidentifier() else f"[{part!r}]" for part in rest
    )
