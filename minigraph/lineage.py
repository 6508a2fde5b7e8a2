"""A checkpoint and where it comes from: answering a question there, and searching its ancestors.

Generators of effects, like `snapshots.py`. A lineage follows parents, so it holds one branch of the history, and it
begins where a parent is not stored (any more).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from minigraph.branching import first_asked_below
from minigraph.context import Scope
from minigraph.effects import Effect, Lineage
from minigraph.errors import AmbiguousAnswerError, NoTurnError, UnknownCheckpointError, UnknownInterruptError
from minigraph.identifiers import looks_like_answers
from minigraph.opening import after_failure, load
from minigraph.records import Ancestor, Paused
from minigraph.snapshots import snapshot
from minigraph.types import Command, Interrupt, StateSnapshot

Predicate = Callable[[StateSnapshot], bool]
Line = list[Ancestor]
"""A lineage, oldest first."""


# ---------------------------------------------------------------------------- answer


def answering(
    scope: Scope, checkpoint_id: str | None, answer: Any, question: str | Interrupt | None
) -> Generator[Effect, Any, Command[Any]]:
    """The Command that gives an answer to a question of a checkpoint: by its id, so that it reaches no other one.

    Raises UnknownInterruptError where nothing was asked, AmbiguousAnswerError where `question` must say which one.
    """
    if question is not None:
        return Command(resume={_question_id(scope, question): answer})
    stored = yield from load(scope, checkpoint_id)
    if stored is None or scope.namespace or looks_like_answers(answer):
        return Command(resume=answer)  # the run itself knows what is to be said of these
    point = stored.checkpoint
    questions = [q for result in stored.results if isinstance(result, Paused) for q in result.open]
    if point.id != stored.head_id:
        questions += [result.asked[0] for result in stored.results if result.asked]
        questions += yield from first_asked_below(scope, scope.namespace, point.due)
    found = {q.id: q for q in questions}
    if len(found) == 1:
        return Command(resume={questions[0].id: answer})
    place = f"thread {scope.thread_id!r}, checkpoint {point.id!r} (step {point.step})"
    if found:
        raise AmbiguousAnswerError(
            f"{place}: one answer for {len(found)} questions; say which one with question=. They are"
            f" {', '.join(f'{key} ({q.value!r})' for key, q in found.items())}",
            ids=tuple(found),
        )
    raise UnknownInterruptError(
        f"{place}: no question waits for an answer there, so nothing was written; get_state_history(config) shows the"
        f" checkpoints at which something was asked (their `interrupts`){after_failure(stored)}"
    )


def _question_id(scope: Scope, question: object) -> str:
    found = question.id if isinstance(question, Interrupt) else question
    if not isinstance(found, str):
        raise TypeError(f"question={question!r}: an Interrupt, as in a snapshot's interrupts, or its id, a str")
    if not looks_like_answers({found: None}):
        raise UnknownInterruptError(
            f"thread {scope.thread_id!r}: question={found!r} is no id of a question, which has 32 hexadecimal digits",
            ids=(found,),
        )
    return found


# ------------------------------------------------------------------------------ read


def line_of(scope: Scope, checkpoint_id: str | None) -> Generator[Effect, Any, Line]:
    """The lineage of a checkpoint (None: the head), without states. Raises UnknownCheckpointError if there is none."""
    found: Line = yield Lineage(scope.thread_id, scope.namespace, checkpoint_id)
    if not found:
        yield from load(scope, checkpoint_id)  # says of an unknown id that it is one
        raise UnknownCheckpointError(
            f"thread {scope.thread_id!r}, namespace {scope.namespace!r}: nothing is stored there, it never ran"
        )
    return found[::-1]


# ---------------------------------------------------------------------------- bisect


def bisect(
    scope: Scope, checkpoint_id: str | None, predicate: Predicate, *, monotone: bool
) -> Generator[Effect, Any, StateSnapshot]:
    """The first checkpoint of a lineage at which a predicate turned true, having been false at its parent.

    `monotone`: it turns once, so that n checkpoints take about log2(n) looks. Otherwise all are looked at from the
    oldest on, up to the turn. Raises NoTurnError where there is none; what the predicate raises names the checkpoint.
    """
    line = yield from line_of(scope, checkpoint_id)
    search = _halving if monotone else _one_by_one
    return (yield from search(scope, line, predicate))


Search = Generator[Effect, Any, StateSnapshot]


def _halving(scope: Scope, line: Line, predicate: Predicate) -> Search:
    low, high = 0, len(line) - 1
    turned, holds = yield from _look(scope, line[high], predicate)
    at_oldest = holds
    if high > 0:
        _, at_oldest = yield from _look(scope, line[low], predicate)
    if at_oldest or not holds:
        place, said = (low, _ALREADY) if at_oldest else (high, "the predicate is not true there, and so never turned")
        advice = "if it may turn more than once, search with monotone=False"
        raise NoTurnError(f"{_where(scope, line[place])}: {said}; {advice}", at_oldest=at_oldest)
    while high - low > 1:
        middle = (low + high) // 2
        shot, holds = yield from _look(scope, line[middle], predicate)
        if holds:
            high, turned = middle, shot
        else:
            low = middle
    return turned


def _one_by_one(scope: Scope, line: Line, predicate: Predicate) -> Search:
    _, at_oldest = yield from _look(scope, line[0], predicate)
    before = at_oldest
    for ancestor in line[1:]:
        shot, holds = yield from _look(scope, ancestor, predicate)
        if holds and not before:
            return shot
        before = holds
    said = f"{_ALREADY} and did not turn true again" if at_oldest else "the predicate is not true there, nor later"
    raise NoTurnError(f"{_where(scope, line[0])}: {said}, up to {line[-1].id!r}", at_oldest=at_oldest)


_ALREADY = "the predicate is true already at this oldest stored checkpoint"


def _look(scope: Scope, ancestor: Ancestor, predicate: Predicate) -> Generator[Effect, Any, tuple[StateSnapshot, bool]]:
    shot: StateSnapshot = yield from snapshot(scope, ancestor.id)
    try:
        return shot, _truth(predicate(shot))
    except Exception as error:
        error.add_note(f"raised by the predicate of bisect at {_where(scope, ancestor)}")
        raise


def _truth(said: object) -> bool:
    if hasattr(said, "__await__"):
        getattr(said, "close", lambda: None)()  # a coroutine that nobody awaits would warn
        raise TypeError(f"the predicate returned {said!r}: it must be a plain function, not an async one")
    return bool(said)


def _where(scope: Scope, ancestor: Ancestor) -> str:
    return f"thread {scope.thread_id!r}, checkpoint {ancestor.id!r} (step {ancestor.step})"
