"""Runs tasks in an executor that the user passed, another process included: a job goes out, its outcome comes back.

What travels is picklable: the task, the state it sees and its own node, not the saver and not the rest of the graph.
Without the saver nothing can be recorded there, so `once()` refuses to call anything.
So the node, its routers and the state's reducers must be functions that pickle can name (defined at the top of a
module), and the state's values must pickle.
"""

from __future__ import annotations

import pickle
from concurrent.futures import Future
from typing import NamedTuple

import msgspec

from minigraph.context import Event
from minigraph.execute import perform
from minigraph.records import Result
from minigraph.structure import Graph
from minigraph.types import RunControl
from minigraph.work import Job, Outcome, failed


class Reply(NamedTuple):
    """What comes back: the result, the error behind a failure, and what the node streamed."""

    result: Result | None
    error: BaseException | None
    events: list[Event]


def portable(job: Job) -> Job:
    """The job without what cannot travel: the saver, the cache, the parent, and all nodes but its own."""
    graph, name = job.scope.graph, job.task.node
    only = Graph(
        name=graph.name,
        nodes=dict.fromkeys(graph.nodes, graph.nodes[name]),
        channels=graph.channels,
        managed=graph.managed,
        edges={},
        joins=(),
        routers={name: graph.routers[name]} if name in graph.routers else {},
        state_view=graph.state_view,
        input_view=graph.input_view,
        output_view=graph.output_view,
    )
    scope = msgspec.structs.replace(
        job.scope, graph=only, saver=None, cache=None, caller=None, forward=None, executor=None,
        control=RunControl(), elsewhere=True,
    )  # fmt: skip
    return msgspec.structs.replace(job, scope=scope)


def perform_elsewhere(job: Job) -> Reply:
    """Runs a portable job to its end, in the process it was sent to."""
    events: list[Event] = []
    outcome = perform(job, events.append)
    error = outcome.error
    if error is not None:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error} (the error itself cannot be pickled)")
    return Reply(outcome.result, error, events)


def received(job: Job, future: Future[Reply]) -> list[Outcome | Event]:
    """The events and the outcome that an executor's future stands for; a job that could not travel has failed."""
    error = future.exception()
    if error is None:
        reply = future.result()
        return [*reply.events, Outcome(job, reply.result, reply.error)]
    if not isinstance(error, Exception):
        raise error
    error.add_note(
        f"node {job.task.node!r} could not run in the executor: its function, its routers, the reducers and the state"
        " must be picklable (functions at the top of a module, no lambdas)"
    )
    return [Outcome(job, failed(job, error), error)]
