"""One task from start to end, as a generator: call the node, ask its routers, retry, hand over to an error handler.

It yields `Invoke` (call this function) and `Sleep` (wait so long) and returns an `Outcome`. The drivers in
`execute.py` carry these out, with threads or with asyncio; nothing here knows which.
"""

from __future__ import annotations

import inspect
import itertools
import random
import weakref
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from minigraph.channels import copied
from minigraph.context import Event, Scope, TaskContext, enter
from minigraph.errors import (
    GraphInterrupt,
    InvalidUpdateError,
    MinigraphError,
    NodeError,
    NodeTimeoutError,
    ParentCommand,
    SwallowedInterruptError,
)
from minigraph.records import Failed, Finished, Paused, Result, Task
from minigraph.state import View
from minigraph.step import apply_writes
from minigraph.structure import Callee, Node
from minigraph.types import START, UNSET, ErrorRule, RetryPolicy, TimeoutPolicy
from minigraph.updates import Update, read_update


class Job(msgspec.Struct):
    """A task together with all it needs to run: the state it sees and what an earlier try left behind."""

    scope: Scope
    task: Task
    values: Mapping[str, Any]
    checkpoint_id: str
    step: int
    remaining: int
    earlier: Result | None = None
    returned: Any = UNSET
    """What the node is taken to have returned, for an edit that stands for it; UNSET: run the node."""
    own: dict[str, Any] | None = None
    """The state with the writes of the result, as the node's routers saw it; None where there were none to see it."""

    @property
    def edited(self) -> bool:
        """Whether an edit of the state stands for the node, so that its routers alone run."""
        return self.returned is not UNSET


class Outcome(msgspec.Struct):
    """How a job ended: a result to record, the error behind a failure, or a Command on its way to the parent."""

    job: Job
    result: Result | None
    error: BaseException | None = None


class Invoke(msgspec.Struct):
    """Call a user's function with the state and the parameters it asked for; answer with what it returns."""

    callee: Callee
    argument: Any
    context: TaskContext
    error: NodeError | None = None
    timeout: TimeoutPolicy | None = None

    def keywords(self) -> dict[str, Any]:
        """The extra parameters that the function names."""
        return {name: self._value(name) for name in self.callee.injected}

    def _value(self, name: str) -> Any:
        if name == "runtime":
            return self.context.runtime()
        if name == "config":
            return self.context.scope.config
        if name == "writer":
            return self.context.write
        return self.error if name == "error" else None


class Sleep(msgspec.Struct):
    """Wait before the next try, in seconds."""

    seconds: float


Work = Generator[Invoke | Sleep, Any, Outcome]
RunTask = Callable[[Job, Callable[[Event], None]], Work]
"""What `work` is: it runs a job, whose events go to the function given second."""


def work(job: Job, emit: Callable[[Event], None], *, inline: bool = False) -> Work:
    """Runs one task: tries, retries, routers and the error handler. Ordinary errors end in the outcome, not here.

    `inline`: functions that need nothing but the state are called right here, not by whoever carries out the effects.
    """
    node = job.scope.graph.nodes[job.task.node]
    context = _first_try(job, emit)
    while True:
        enter(context)
        try:
            return Outcome(job, (yield from _attempt(job, node, context, inline)))
        except GraphInterrupt as pause:
            return Outcome(job, _paused(job, context, pause))
        except ParentCommand as signal:
            return Outcome(job, None, signal)
        except Exception as error:
            kept = context.kept
            try:
                policy = _matching(node.retry, error)
            except Exception as broken:  # the predicate of a policy failed: the task did with its own error
                _annotate(broken, job)
                return Outcome(job, failed(job, error, context=context, kept=kept), broken)
            if policy is not None and context.attempt < policy.max_attempts:
                yield Sleep(_delay(policy, context.attempt))
                context = _next_try(context)
                continue
            if node.handler is not None and (
                not isinstance(error, MinigraphError) or isinstance(error, NodeTimeoutError)
            ):
                return (yield from _handle(job, node, node.handler, context, error))
            _annotate(error, job)
            return Outcome(job, failed(job, error, context=context, kept=kept), error)


def _attempt(job: Job, node: Node, context: TaskContext, inline: bool) -> Generator[Invoke | Sleep, Any, Finished]:
    """One try: the node, unless an earlier try of it succeeded, then its routers."""
    key: Hashable | None = None
    returned: Any = None
    result = context.kept
    if result is None:
        returned = job.returned
        if returned is UNSET:
            argument = read_input(job, node.view)
            if node.cache is not None and job.scope.cache is not None:
                key = cache_key(node, argument)
                hit = job.scope.cache.get(cache_namespace(node), key)
                if hit is not None:
                    return Finished(job.task.id, node.name, hit.writes, hit.targets, hit.follow_edges, cached=True)
            try:
                if inline and node.callee.plain:
                    returned = node.callee.function(argument)
                else:
                    returned = yield Invoke(node.callee, argument, context, timeout=node.timeout)
            except ParentCommand as signal:  # a child graph's Command for this graph
                returned = replace(signal.command, graph=None)
            if context.pausing:
                raise SwallowedInterruptError(
                    f"node {node.name!r} caught the pause signal of interrupt() and went on; let BaseException pass"
                    " (catch Exception at most, and no return_exceptions=True around it)"
                )
        result = _finished(job, node, context, returned)
    if node.name in job.scope.graph.routers:
        result = yield from _route(job, node, context, result, returned, inline)
    if key is not None and job.scope.cache is not None and node.cache is not None and not context.asked:
        job.scope.cache.set(cache_namespace(node), key, result, node.cache.ttl)
    return result


def _finished(job: Job, node: Node, context: TaskContext, returned: Any) -> Finished:
    """What a node returned, as its result."""
    graph = job.scope.graph
    update = read_update(graph, node.name, returned)
    if update.parent is not None:
        if job.scope.forward is None:
            raise InvalidUpdateError(
                f"node {node.name!r} returned Command(graph=Command.PARENT), but this graph has no parent",
                node=node.name,
            )
        raise ParentCommand(update.parent)
    if node.name == START and not job.edited:
        update.writes = [write for write in update.writes if write[0] in graph.input_view.keys]
    return _result(job, context, update)


def _result(job: Job, context: TaskContext, update: Update, *, follow_edges: bool = True) -> Finished:
    asked = tuple(context.asked)
    parts = (tuple(update.writes), tuple(update.targets), follow_edges, False, asked, context.answers[: len(asked)])
    return Finished(job.task.id, job.task.node, *parts)


def _route(
    job: Job, node: Node, context: TaskContext, result: Finished, returned: Any, inline: bool
) -> Generator[Invoke | Sleep, Any, Finished]:
    """Asks the routers of a node. Each sees the state with this task's own writes, and nobody else's."""
    graph = job.scope.graph
    context.kept = result
    own = apply_writes(graph, job.values, ((node.name, result.writes),), idle=False)
    default_view = graph.state_view if node.name == START or node.child is not None else node.view
    targets = result.targets
    for router in graph.routers[node.name]:
        argument = (router.view or default_view).read(own, job.remaining)
        if router.view is None and isinstance(returned, dict) and isinstance(argument, dict):
            argument = {**returned, **argument}
        if inline and router.callee.plain:
            answer = router.callee.function(argument)
        else:
            answer = yield Invoke(router.callee, argument, context)
        targets += router.resolve(node.name, answer, graph.nodes)
    job.own = own
    return Finished(result.task_id, result.node, result.writes, targets, asked=result.asked, answers=result.answers)


def _handle(job: Job, node: Node, handler: Callee, context: TaskContext, error: Exception) -> Work:
    """Lets the error handler's return value stand for the node's; the node's edges are not followed."""
    job.own = None
    try:
        argument = read_input(job, node.view)
        returned = yield Invoke(handler, argument, context, error=NodeError(node.name, error))
        update = read_update(job.scope.graph, node.name, returned)
        if update.parent is not None:
            raise ParentCommand(update.parent)
        return Outcome(job, _result(job, context, update, follow_edges=False))
    except GraphInterrupt as pause:
        return Outcome(job, _paused(job, context, pause))
    except ParentCommand as signal:
        return Outcome(job, None, signal)
    except Exception as second:
        _annotate(second, job)
        return Outcome(job, failed(job, second, context=context), second)


def read_input(job: Job, view: View) -> Any:
    """What the task's node is called with: a Send's argument, or its view of the state."""
    return copied(job.task.payload) if job.task.is_send else view.read(job.values, job.remaining)


def failed(
    job: Job,
    error: BaseException,
    *,
    context: TaskContext | None = None,
    cancelled: bool = False,
    kept: Finished | None = None,
) -> Failed:
    """The record of a task that did not get through; answers it had been given stay with it."""
    earlier = job.earlier
    asked: tuple[Any, ...] = tuple(context.asked) if context is not None else ()
    answers: tuple[Any, ...] = context.answers if context is not None else ()
    inner: tuple[Any, ...] = ()
    given: tuple[tuple[str, Any], ...] = ()
    if isinstance(earlier, Paused | Failed):
        asked, answers = max(asked, earlier.asked, key=len), earlier.answers
        inner, given = earlier.inner, earlier.given
    return Failed(
        job.task.id, job.task.node, type(error).__name__, str(error), cancelled, asked, answers, inner, given, kept=kept
    )


_objects: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_counter = itertools.count(1)


def cache_namespace(node: Node) -> str:
    """Where a node's cached results live: its name and its function.

    A plain function is known by its place in the code; closures and objects are told apart one by one, since what they
    hold decides what they return.
    """
    function = node.callee.function
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", type(function).__name__)
    place = f"{module}.{name}:{node.name}"
    if inspect.isfunction(function) and function.__closure__ is None:
        return place
    owner = getattr(function, "__self__", function)
    number = _objects.get(owner)
    if number is None:
        number = _objects[owner] = next(_counter)
    return f"{place}:{number}"


def cache_key(node: Node, argument: Any) -> Hashable:
    """The key of an input: what the policy's `key_func` says, or the input's exact stored form.

    Raises UnstorableValueError where the input has no stored form and there is no `key_func`.
    """
    from minigraph.checkpoint.codec import Codec

    assert node.cache is not None
    key = argument if node.cache.key_func is None else node.cache.key_func(argument)
    return key if type(key) in (str, bytes) else Codec(learn=True).encode(key)


def _first_try(job: Job, emit: Callable[[Event], None]) -> TaskContext:
    """A task's context, with what an earlier run left: questions, answers, and a result that waits for its routers."""
    earlier = job.earlier
    if not isinstance(earlier, Failed | Paused):
        return TaskContext(job, 1, emit)
    kept = earlier.kept if isinstance(earlier, Failed) else None
    return TaskContext(job, 1, emit, [*earlier.asked], earlier.answers, dict(earlier.given), kept)


def _next_try(context: TaskContext) -> TaskContext:
    """The context of the try after a failed one."""
    first = _first_try(context.job, context.emit)
    first.attempt, first.kept, first.ledger = context.attempt + 1, context.kept, context.ledger
    return first


def _paused(job: Job, context: TaskContext, pause: GraphInterrupt) -> Paused:
    own = len(context.asked) > len(context.answers)
    inner = () if own else pause.interrupts
    given = tuple(context.given.items())
    return Paused(job.task.id, job.task.node, tuple(context.asked), context.answers, inner, given)


def _matching(policies: tuple[RetryPolicy, ...], error: Exception) -> RetryPolicy | None:
    if isinstance(error, MinigraphError) and not isinstance(error, NodeTimeoutError):
        return None  # an engine error would come back the same
    return next((policy for policy in policies if _retries(policy, error)), None)


def _retries(policy: RetryPolicy, error: Exception) -> bool:
    if policy.retry_on is None:
        return isinstance(error, ConnectionError | TimeoutError | NodeTimeoutError) or _is_transport_error(error)
    return matches(policy.retry_on, error)


def matches(rule: ErrorRule, error: Exception) -> bool:
    """Whether an exception is one of those that a rule names; what a predicate raises has it as its cause."""
    if isinstance(rule, type):
        return isinstance(error, rule)
    if isinstance(rule, Sequence):
        return isinstance(error, tuple(rule))
    try:
        return bool(rule(error))
    except Exception as broken:
        raise broken from error


_TRANSPORT = {
    "requests": ("ConnectionError", "Timeout"),
    "httpx": ("TransportError",),
    "httpcore": ("NetworkError", "TimeoutException"),
    "urllib3": ("TimeoutError", "NewConnectionError", "ProtocolError"),
    "aiohttp": ("ClientConnectionError",),
}


def _is_transport_error(error: Exception) -> bool:
    """Connection and time-out errors of the common HTTP clients, which derive from no common base class."""
    return any(kind.__name__ in _TRANSPORT.get(kind.__module__.partition(".")[0], ()) for kind in type(error).__mro__)


def _delay(policy: RetryPolicy, attempt: int) -> float:
    interval = policy.initial_interval * policy.backoff_factor ** (attempt - 1)
    return min(policy.max_interval, interval) + (random.random() if policy.jitter else 0.0)


def _annotate(error: BaseException, job: Job) -> None:
    note = f"in node {job.task.node!r} (task {job.task.id})"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
