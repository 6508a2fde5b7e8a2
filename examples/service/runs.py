"""The runs that a worker has under way: begun, drained, and taken up where another worker left them."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

from minigraph import Command, CompiledGraph, RunControl, StateSnapshot
from minigraph.checkpoint import Saver
from minigraph.errors import GraphDrained, StorageError, ThreadConflictError
from service.orders import Order, RunUnderWayError, begin

log = logging.getLogger("service")


def config_of(thread_id: str) -> dict[str, Any]:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread_id}}


class Runs:
    """Runs of one graph in this process. A thread that stored nothing for `silence` counts as left by its worker."""

    def __init__(self, graph: CompiledGraph, saver: Saver, silence: timedelta) -> None:
        self.graph, self.saver, self.silence = graph, saver, silence
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.draining = False
        self._under_way: dict[asyncio.Task[None], tuple[str, RunControl]] = {}

    async def begin(self, thread_id: str, order: Order, key: str) -> None:
        """Begins a run; nothing happens where one with this key began already. RunUnderWayError for any other."""
        try:
            try:
                await self._start(thread_id, begin(order, key, self.worker))
            except ThreadConflictError:  # somebody was quicker: the rule decides again, on what is stored now
                await self._start(thread_id, begin(order, key, self.worker))
        except RunUnderWayError as error:
            if error.key != key:
                raise

    async def answer(self, thread_id: str, answers: dict[str, Any]) -> None:
        """Answers questions by their ids, and goes on."""
        await self._start(thread_id, Command(resume=answers, update={"worker": self.worker}))

    async def go_on(self, thread_id: str) -> None:
        """Goes on with a thread that failed or was left: the update is stored first, so of two workers one does."""
        await self._start(thread_id, Command(update={"worker": self.worker}))

    async def _start(self, thread_id: str, given: Command[Any]) -> None:
        """Returns when what was given is stored; raises what kept it from being stored."""
        control, stored = RunControl(), asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._run(config_of(thread_id), given, control, stored))
        self._under_way[task] = thread_id, control
        task.add_done_callback(self._under_way.pop)
        await asyncio.shield(stored)

    async def _run(self, config: dict[str, Any], given: Any, control: RunControl, stored: asyncio.Future[None]) -> None:
        try:
            async for _ in self.graph.astream(given, config, stream_mode="tasks", control=control):
                if not stored.done():  # a task is shown when what led to it is stored
                    stored.set_result(None)
        except GraphDrained:
            await self._hand_back(config)
        except asyncio.CancelledError:
            stored.cancel()
            await self._hand_back(config)
            raise
        except Exception as error:
            if not stored.done():
                stored.set_exception(error)
            elif isinstance(error, ThreadConflictError):
                log.warning("%s: another worker moved the thread: %s", config["configurable"], error)
            else:
                log.exception("%s: the run failed", config["configurable"])
        if not stored.done():
            stored.set_result(None)

    async def _hand_back(self, config: dict[str, Any]) -> None:
        """Stores that nobody runs the thread: this run is drained, too, before its first step."""
        control = RunControl()
        control.request_drain("handed back")
        try:
            await self.graph.ainvoke(Command(update={"worker": ""}), config, control=control)
        except GraphDrained:
            log.info("%s: drained", config["configurable"])
        except StorageError as error:
            log.warning("%s: not handed back, so it is taken up later: %s", config["configurable"], error)

    # ------------------------------------------------------------------- the life of a worker

    async def drain(self, seconds: float) -> None:
        """Takes no new runs and stops those under way at their next step boundary, with everything stored.

        What is not there after so many seconds is cancelled: its nodes run again where it goes on.
        """
        self.draining = True
        for _, control in self._under_way.values():
            control.request_drain("the worker stops")
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def take_up_for_ever(self, pause: float) -> None:
        """Looks for threads that were left, again and again."""
        while not self.draining:
            try:
                await self.take_up()
            except StorageError as error:
                log.warning("no look for threads that were left: %s", error)
            await asyncio.sleep(pause)

    async def take_up(self) -> None:
        """Goes on with the threads that their worker left."""
        mine = {thread_id for thread_id, _ in self._under_way.values()}
        for thread_id in await asyncio.to_thread(self._threads):
            if thread_id not in mine and self.was_left(await self.graph.aget_state(config_of(thread_id))):
                try:
                    await self.go_on(thread_id)
                    log.info("thread %r: taken up", thread_id)
                except ThreadConflictError:
                    log.info("thread %r: another worker was first", thread_id)

    def _threads(self) -> list[str]:
        found = self.saver.list(filter={"source": "input"})
        return list(dict.fromkeys(each.config["configurable"]["thread_id"] for each in found))

    def was_left(self, found: StateSnapshot) -> bool:
        """Whether something is due that no worker runs: nobody is asked, nothing failed, nothing was stored lately."""
        failed = any(task.error and not task.error.startswith("CancelledError(") for task in found.tasks)
        if not found.next or found.interrupts or failed:
            return False
        if not found.values.get("worker") or found.created_at is None:
            return True
        silent = datetime.now(UTC) - datetime.fromisoformat(found.created_at)
        return silent > self.silence and found.values["worker"] != self.worker
