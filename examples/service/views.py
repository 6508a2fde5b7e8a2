"""What a client sees of a thread: as it is now, and its steps as they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from minigraph import StateSnapshot
from service.runs import Runs, config_of


def shown(found: StateSnapshot) -> dict[str, Any]:
    """A thread as a client sees it."""
    errors = [f"{task.name}: {task.error}" for task in found.tasks if task.error]
    status = "waiting" if found.interrupts else "failed" if errors else "running" if found.next else "ended"
    questions = [{"id": question.id, "question": question.value} for question in found.interrupts]
    return {"status": status, "state": found.values, "next": found.next, "questions": questions, "errors": errors}


async def steps(runs: Runs, thread_id: str, last: str | None) -> AsyncIterator[str]:
    """Each step after the one with the id `last`; ends when the thread waits, failed or ended, or the worker stops."""
    step: int | None = None
    while True:
        found = await runs.graph.aget_state(config_of(thread_id))
        if found.metadata is None:
            return
        head = found.config["configurable"]["checkpoint_id"]
        if head != last:
            limit = None if step is None else max(1, found.metadata["step"] - step)
            history = runs.graph.aget_state_history(config_of(thread_id), limit=limit)
            for shot in reversed(await newer(history, last)):
                last = shot.config["configurable"]["checkpoint_id"]
                yield event("step", {"state": shot.values, "next": shot.next}, last)
            step = found.metadata["step"]
        view = shown(found)
        if view["status"] != "running":
            yield event(view["status"], view, head)
            return
        if runs.draining:
            return
        await asyncio.sleep(0.1)


async def newer(history: AsyncIterator[StateSnapshot], last: str | None) -> list[StateSnapshot]:
    """The checkpoints of a history, newest first, that come before the one with the id `last`."""
    found = []
    async for shot in history:
        if shot.config["configurable"]["checkpoint_id"] == last:
            break
        found.append(shot)
    return found


def event(kind: str, data: object, name: str | None) -> str:
    """One server-sent event; a client that comes back sends the last `id`."""
    return f"id: {name}\nevent: {kind}\ndata: {msgspec.json.encode(data).decode()}\n\n"
