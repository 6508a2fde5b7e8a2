"""once() and aonce(): a call out of a node whose result is recorded with the task, so that a re-run does not repeat it.

What happens is one generator (`_steps`), which two thin drivers carry out. A call is stored before it is made. Its
record is a `Recorded` of the task: `done` with a value, or not done, which means that nobody knows what became of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, TypeVarTuple

import msgspec

from minigraph.context import TaskContext, calling, current
from minigraph.errors import OnceError, UnknownOutcomeError, UnstorableValueError
from minigraph.identifiers import same_call
from minigraph.records import Recorded
from minigraph.types import START, ErrorRule, error_rule
from minigraph.work import matches

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")


def once(
    key: str,
    function: Callable[[*Arguments], T],
    /,
    *args: *Arguments,
    retry_on: ErrorRule = (),
    on_unknown: Callable[[*Arguments], T] | None = None,
) -> T:
    """Calls a function for this task once: a re-run of the node gets the recorded result and calls nothing.

    `key` is a non-empty str that no other call of the node has. For keyword arguments pass a functools.partial or a
    lambda. An exception out of the function passes, and leaves open what became of the call; `retry_on` (a class, a
    tuple or list of them, or a predicate) names those which mean that nothing happened: the next try calls again.

    Where an earlier call began and has no result (the process was killed in it, or it raised), `on_unknown` is called
    with the same arguments and its result is recorded: it looks up what happened, or calls again where that does no
    harm. Without it UnknownOutcomeError is raised. Raises RuntimeError outside of a node, OnceError where nothing can
    be recorded and for a key that was used in this run of the node, UnstorableValueError for a result that has no
    stored form, with a saver and without; TypeError and ValueError for arguments that make no sense, with nothing
    recorded and nothing called.
    """
    _check_callable("once", key, function, on_unknown)
    _refuse_async(key, function, on_unknown)
    steps = _steps("once()", key, retry_on, on_unknown is not None)
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer = error = None
        try:
            match request:
                case _Call(context, unknown):
                    with calling(context, key):
                        answer = _plain(key, (on_unknown if unknown and on_unknown else function)(*args))
                case _Begin(place, recorded):
                    answer = place.begin(recorded)
                case _Keep(place, recorded):
                    place.keep(recorded)
                case _Drop(place):
                    place.drop(key)
        except BaseException as caught:
            error = caught


async def aonce(
    key: str,
    function: Callable[[*Arguments], Awaitable[T]],
    /,
    *args: *Arguments,
    retry_on: ErrorRule = (),
    on_unknown: Callable[[*Arguments], Awaitable[T]] | None = None,
) -> T:
    """The same as `once` for an async function: `await aonce("mail", send, address)`.

    A call that is cancelled, by a time-out of the node too, leaves open what became of it.
    """
    _check_callable("aonce", key, function, on_unknown)
    steps = _steps("aonce()", key, retry_on, on_unknown is not None)
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer = error = None
        try:
            match request:
                case _Call(context, unknown):
                    with calling(context, key):
                        answer = await _awaitable(key, (on_unknown if unknown and on_unknown else function)(*args))
                case _Begin(place, recorded):
                    answer = await place.abegin(recorded)
                case _Keep(place, recorded):
                    await place.akeep(recorded)
                case _Drop(place):
                    await place.adrop(key)
        except BaseException as caught:
            error = caught


# ---------------------------------------------------------------------- the steps


@dataclass(frozen=True, slots=True)
class _Call:
    """Call the function, or where the outcome of an earlier call is unknown what stands for it."""

    context: TaskContext
    unknown: bool


@dataclass(frozen=True, slots=True)
class _Begin:
    """Store that the call begins, unless there is a record. Answered with that."""

    place: _Place
    recorded: Recorded


@dataclass(frozen=True, slots=True)
class _Keep:
    """Store a record."""

    place: _Place
    recorded: Recorded


@dataclass(frozen=True, slots=True)
class _Drop:
    """Forget the record: the call did nothing."""

    place: _Place


_Request = _Call | _Begin | _Keep | _Drop


def _steps(what: str, key: str, retry_on: ErrorRule, can_look: bool) -> Generator[_Request, Any, Any]:
    """One call from start to end. Returns its value; what stands in the record says which call was the first."""
    context = current(what)
    _check_key(what, key)
    retry_on = error_rule(what, retry_on)
    place = _place_of(context, key)
    mine = object()
    if context.keys.setdefault(key, mine) is not mine:
        raise OnceError(
            f"node {context.task.node!r} called {what} twice with key {key!r} in one run, so the second call would get"
            ' the first one\'s result; give each call a key of its own, in a loop for example f"mail-{address}"',
            node=context.task.node,
            key=key,
        )
    try:
        return (yield from _recorded(context, place, key, retry_on, can_look))
    except BaseException:
        del context.keys[key]  # the record decides what a second call of this key gets
        raise


def _recorded(
    context: TaskContext, place: _Place, key: str, retry_on: ErrorRule, can_look: bool
) -> Generator[_Request, Any, Any]:
    owner = place.owner
    started = Recorded(key, False, questions=owner.questions, children=owner.child_calls)
    earlier: Recorded | None = yield _Begin(place, started)
    if earlier is not None and earlier.done:
        return earlier.value
    if earlier is not None and not can_look:
        raise _unknown_outcome(context, earlier)
    try:
        value = yield _Call(context, earlier is not None)
    except Exception as error:
        if earlier is None:
            ended = _Keep(place, msgspec.structs.replace(started, error=_in_words(error)))
            try:
                nothing_happened = matches(retry_on, error)
            except Exception:
                yield ended
                raise
            yield _Drop(place) if nothing_happened else ended
        raise
    finished = msgspec.structs.replace(earlier or started, done=True, value=value, error="")
    try:
        yield _Keep(place, finished)
    except UnstorableValueError as error:
        node = context.task.node
        yield _Keep(place, msgspec.structs.replace(earlier or started, error=_in_words(error)))
        raise UnstorableValueError(
            f"node {node!r}, once({key!r}, ...): the call was made, and its result cannot be recorded: {error}",
            node=node,
            key=key,
            path=error.path,
            type_name=error.type_name,
        ) from error
    return value


def _unknown_outcome(context: TaskContext, earlier: Recorded) -> UnknownOutcomeError:
    node, key = context.task.node, earlier.key
    ended = f"it ended with {earlier.error}" if earlier.error else "its end was never recorded"
    return UnknownOutcomeError(
        f"node {node!r}: once({key!r}, ...) was called in an earlier try of task {context.task.id}, and {ended};"
        " whether it happened is not known, so it is not called again. Look it up: pass on_unknown=..., which is called"
        " with the same arguments and whose result is recorded; or catch this error and ask a person with interrupt();"
        f" or move the thread on with update_state(config, values, as_node={node!r})",
        node=node,
        key=key,
        task_id=context.task.id,
        error=earlier.error,
    )


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# ---------------------------------------------------------------------- where it is recorded


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the calls of a task are recorded: with its saver, or in memory for the tries of one run.

    A child graph that stores nothing starts over when its caller runs again, so its calls are recorded with the task
    of the nearest graph above that stores (`owner`); `way` leads from there to the task that calls.
    """

    owner: TaskContext
    way: str

    def begin(self, recorded: Recorded) -> Recorded | None:
        scope = self.owner.scope
        if scope.saver is None:
            found = self.owner.ledger.setdefault((self.way, recorded.key), recorded)
            return None if found is recorded else msgspec.structs.replace(found, value=_as_stored(found.value))
        return scope.saver.record_start(scope.thread_id, scope.namespace, self._task_id, recorded)

    async def abegin(self, recorded: Recorded) -> Recorded | None:
        scope = self.owner.scope
        if scope.saver is None:
            return self.begin(recorded)
        return await scope.saver.arecord_start(scope.thread_id, scope.namespace, self._task_id, recorded)

    def keep(self, recorded: Recorded) -> None:
        scope = self.owner.scope
        if scope.saver is None:
            kept = msgspec.structs.replace(recorded, value=_as_stored(recorded.value))
            self.owner.ledger[self.way, recorded.key] = kept
        else:
            scope.saver.record(scope.thread_id, scope.namespace, self._task_id, recorded)

    async def akeep(self, recorded: Recorded) -> None:
        scope = self.owner.scope
        if scope.saver is None:
            self.keep(recorded)
        else:
            await scope.saver.arecord(scope.thread_id, scope.namespace, self._task_id, recorded)

    def drop(self, key: str) -> None:
        scope = self.owner.scope
        if scope.saver is None:
            self.owner.ledger.pop((self.way, key), None)
        else:
            scope.saver.remove_record(scope.thread_id, scope.namespace, self._task_id, key)

    async def adrop(self, key: str) -> None:
        scope = self.owner.scope
        if scope.saver is None:
            self.drop(key)
        else:
            await scope.saver.aremove_record(scope.thread_id, scope.namespace, self._task_id, key)

    @property
    def _task_id(self) -> str:
        return f"{self.owner.task.id}{self.way}"


def _as_stored(value: object) -> Any:
    """A value as it comes back from a saver: equal and apart. Raises UnstorableValueError like a saver does."""
    from minigraph.checkpoint.codec import Codec

    codec = Codec(learn=True)
    return codec.decode(codec.encode(value))


def _place_of(context: TaskContext, key: str) -> _Place:
    """Where a task's calls are recorded. Raises OnceError where that is nowhere."""
    way, owner = "", context
    for owner in context.chain():
        scope, task = owner.scope, owner.task
        if scope.elsewhere:
            raise _refusal(
                context,
                key,
                "it runs in an executor, out of reach of the saver, so the call could not be recorded; compile this"
                " graph without executor=, or let a node of a graph without one make the call",
            )
        if owner.job.edited or task.node == START:
            raise _refusal(
                context, key, "it was called by a router for which no stored task stands; make the call in a node"
            )
        if scope.saver is not None or scope.caller is None:
            break
        number = same_call(scope.owner).rpartition("#")[2]
        way = f"|{number}:{owner.job.step}:{task.node}{f':{task.index}' if task.is_send else ''}{way}"
    if owner.scope.saver is not None and owner.scope.durability != "sync":
        raise _refusal(
            context,
            key,
            f"with durability={owner.scope.durability!r} its task may not be stored yet, so that after a crash the"
            ' record would be lost and the call repeated; run the graph with durability="sync" (the default)',
        )
    return _Place(owner, way)


def _refusal(context: TaskContext, key: str, why: str) -> OnceError:
    node = context.task.node
    return OnceError(f"node {node!r}: once({key!r}, ...) was not called: {why}", node=node, key=key)


# ---------------------------------------------------------------------- what it is given


def _check_key(what: str, key: object) -> None:
    if not isinstance(key, str):
        raise TypeError(f"{what}: the key is {key!r} ({type(key).__name__}); it is a str that names the call")
    if not key or any("\ud800" <= character <= "\udfff" for character in key):
        raise ValueError(f"{what}: the key is {key!r}; it is a non-empty str of whole characters that names the call")


def _check_callable(what: str, key: object, function: object, on_unknown: object) -> None:
    if not callable(function):
        raise TypeError(f"{what}({key!r}, {function!r}): give it the function to call and its arguments after it")
    if on_unknown is not None and not callable(on_unknown):
        raise TypeError(
            f"{what}({key!r}, ..., on_unknown={on_unknown!r}): on_unknown is a function, called with the same arguments"
        )


def _refuse_async(key: str, *functions: object) -> None:
    for function in functions:
        call = getattr(function, "__call__", None)  # noqa: B004  # an object whose __call__ is async
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
            raise TypeError(f"once({key!r}, {function!r}): the function is async; write `await aonce({key!r}, ...)`")


def _plain(key: str, result: T) -> T:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"once({key!r}, ...): the function returned {type(result).__name__} to be awaited; use aonce")
    return result


def _awaitable(key: str, result: Awaitable[T]) -> Awaitable[T]:
    if not inspect.isawaitable(result):
        raise TypeError(
            f"aonce({key!r}, ...): the function is not async (it returned {type(result).__name__}); use once"
        )
    return result
