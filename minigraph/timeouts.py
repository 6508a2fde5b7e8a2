"""Time-outs of async nodes: one for the whole try, one for silence."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from minigraph.context import TaskContext
from minigraph.errors import NodeCancelledError, NodeTimeoutError
from minigraph.types import seconds
from minigraph.work import Invoke


async def limited(call: Callable[[], Awaitable[Any]], effect: Invoke) -> Any:
    """Awaits a node's coroutine within its time-outs.

    Raises NodeTimeoutError when one of them passes, and NodeCancelledError if the node raised CancelledError itself.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        return await _within(call, effect)
    except asyncio.CancelledError as error:
        if task.cancelling() > before:
            raise
        raise NodeCancelledError(
            f"node {effect.context.task.node!r} raised CancelledError although nobody cancelled the run"
        ) from error


async def _within(call: Callable[[], Awaitable[Any]], effect: Invoke) -> Any:
    policy, node = effect.timeout, effect.context.task.node
    if policy is None:
        return await call()
    run = None if policy.run_timeout is None else seconds(policy.run_timeout)
    idle = None if policy.idle_timeout is None else seconds(policy.idle_timeout)
    loop = asyncio.get_running_loop()
    whole, silence = asyncio.timeout(run), asyncio.timeout(idle)
    try:
        async with whole, silence:
            if idle is not None:
                effect.context.beat = functools.partial(_postpone, loop, silence, idle, effect.context)
            try:
                return await call()
            finally:
                effect.context.beat = None
    except TimeoutError as error:
        if whole.expired() and run is not None:
            raise NodeTimeoutError(f"node {node!r} ran longer than {run:g} s", node=node, seconds=run) from error
        if silence.expired() and idle is not None:
            raise NodeTimeoutError(
                f"node {node!r} gave no sign of life for {idle:g} s", node=node, seconds=idle
            ) from error
        raise


def _postpone(loop: asyncio.AbstractEventLoop, silence: asyncio.Timeout, idle: float, context: TaskContext) -> None:
    """Starts the silence anew; nodes may call this from any thread."""

    def postpone() -> None:
        if context.beat is not None and not silence.expired():  # the try may have ended since the sign of life
            silence.reschedule(loop.time() + idle)

    loop.call_soon_threadsafe(postpone)
