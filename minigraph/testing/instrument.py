"""Puts a watcher around the functions of a compiled graph: the same graph, every call of a node seen."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from minigraph.channels import Channel
from minigraph.compiled import CompiledGraph
from minigraph.context import current
from minigraph.errors import NodeError
from minigraph.records import Task
from minigraph.state import ROOT
from minigraph.structure import Callee, Router
from minigraph.types import START, RetryPolicy
from minigraph.work import _retries as retries


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A call that is about to be made: of what ("node 'a'"), for which task, with which argument.

    `own` says how many levels of the argument belong to the callee alone: none of a Send's, one of a state that is
    one value, two of a state with keys.
    """

    what: str
    task: Task
    argument: Any
    own: int


Watch = Callable[[Seen], Callable[[], None]]
"""Called before a node, router or error handler; what it returns is called when that has returned."""


class Found(AssertionError):
    """What a watcher raises. It reaches the caller: nothing is tried again for it and no error handler sees it."""


def watched(
    graph: CompiledGraph, watch: Watch, channels: Callable[[str, Channel], Channel] | None = None
) -> CompiledGraph:
    """A copy of a graph whose nodes, routers and error handlers are watched; those of child graphs too.

    `channels` may replace the rule of a key. A child graph that is called inside of a function is not reached.
    """
    nodes = {}
    for name, node in graph.graph.nodes.items():
        if name == START:
            nodes[name] = node
        elif node.child is not None:
            child = watched(node.child, watch, channels)
            callee = Callee(child.as_node, (), False, child.aas_node)
            nodes[name] = dataclasses.replace(node, child=child, callee=callee)
        else:
            handler = node.handler and _passing(_watch(node.handler, f"the error handler of node {name!r}", watch))
            nodes[name] = dataclasses.replace(
                node,
                callee=_watch(node.callee, f"node {name!r}", watch),
                handler=handler,
                retry=tuple(_not_again(policy) for policy in node.retry),
            )
    made = copy.copy(graph)
    made.graph = dataclasses.replace(
        graph.graph,
        nodes=nodes,
        routers={source: _routers(source, routers, watch) for source, routers in graph.graph.routers.items()},
        channels=_channels(graph.graph.channels, channels),
    )
    return made


def _not_again(policy: RetryPolicy) -> RetryPolicy:
    """The same policy, but for what a watcher raised."""

    def retry_on(error: Exception) -> bool:
        return not isinstance(error, Found) and retries(policy, error)

    return dataclasses.replace(policy, retry_on=retry_on)


def _passing(handler: Callee) -> Callee:
    """The same error handler, which lets through what a watcher raised."""
    function, wants_error = handler.function, "error" in handler.injected

    def call(argument: Any, error: NodeError, **more: Any) -> Any:
        if isinstance(error.error, Found):
            raise error.error
        return function(argument, **more, **({"error": error} if wants_error else {}))

    injected = handler.injected if wants_error else (*handler.injected, "error")
    return dataclasses.replace(handler, function=functools.update_wrapper(call, function), injected=injected)


def _channels(known: Mapping[str, Channel], change: Callable[[str, Channel], Channel] | None) -> Mapping[str, Channel]:
    return known if change is None else {key: change(key, channel) for key, channel in known.items()}


def _routers(source: str, routers: tuple[Router, ...], watch: Watch) -> tuple[Router, ...]:
    return tuple(
        dataclasses.replace(r, callee=_watch(r.callee, f"router {r.name!r} after node {source!r}", watch, state=True))
        for r in routers
    )


def _watch(callee: Callee, what: str, watch: Watch, *, state: bool = False) -> Callee:
    """A callee that is watched; `state`: it gets a state even where its task is a Send's."""
    function = callee.function

    def before(argument: Any) -> Callable[[], None]:
        context = current(what)
        whole = ROOT in context.scope.graph.channels
        own = 0 if context.task.is_send and not state else 1 if whole else 2
        return watch(Seen(what, context.task, argument, own))

    if callee.is_async:

        async def call_async(argument: Any, **more: Any) -> Any:
            after = before(argument)
            result = await function(argument, **more)
            after()
            return result

        return dataclasses.replace(callee, function=functools.update_wrapper(call_async, function))

    def call(argument: Any, **more: Any) -> Any:
        after = before(argument)
        result = function(argument, **more)
        after()
        return result

    return dataclasses.replace(callee, function=functools.update_wrapper(call, function))
