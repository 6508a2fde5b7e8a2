"""The driver that carries out what `run.py` asks for with asyncio: async nodes as tasks, sync ones in other threads."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any

from minigraph.context import Event, Scope
from minigraph.effects import Effect, Found, History, Lineage, Load, Namespaces, Save, Settle, Start, Stop, Wait
from minigraph.errors import RunAbandoned
from minigraph.execute import Item, keeping, needed
from minigraph.types import START
from minigraph.work import Invoke, Job, Outcome, Sleep, Work, failed, work

if TYPE_CHECKING:
    import asyncio

    from minigraph.checkpoint.base import Saver


class AsyncDriver:
    """Runs effects with asyncio: async nodes as tasks, sync nodes in worker threads."""

    def __init__(self, saver: Saver | None, scope: Scope | None = None) -> None:
        import asyncio

        self.asyncio = asyncio
        self.saver = saver
        self._items: asyncio.Queue[Item | BaseException] = asyncio.Queue()
        self._tasks: dict[asyncio.Task[None], Job] = {}
        self._raised: BaseException | None = None
        self._saving: asyncio.Task[int] | None = None
        self._cancelled: asyncio.CancelledError | None = None
        self._loop = asyncio.get_running_loop()
        limit = scope.max_concurrency if scope is not None else None
        self._semaphore = asyncio.Semaphore(limit) if limit else None

    async def events(self, steps: Generator[Effect, Any, Any]) -> AsyncGenerator[Event, None]:
        """Runs a generator of effects and yields what it emits (an async generator)."""
        answer: Any = None
        error: BaseException | None = None
        try:
            while True:
                try:
                    effect = steps.send(answer) if error is None else steps.throw(error)
                except StopIteration:
                    self._raise_if_cancelled()
                    return
                answer = error = None
                if isinstance(effect, Event):
                    try:
                        yield effect
                    except GeneratorExit:
                        await self._abandon(steps)
                        raise
                    continue
                try:
                    answer = await self._carry_out(effect)
                except BaseException as caught:
                    error = caught
        finally:
            await self._stop()

    async def _abandon(self, steps: Generator[Effect, Any, Any]) -> None:
        """Ends a run whose caller left: running tasks are cancelled, and what has finished is stored."""
        try:
            effect = steps.throw(RunAbandoned())
            while True:
                effect = steps.send(None if isinstance(effect, Event) else await self._carry_out(effect))
        except (StopIteration, RunAbandoned):
            return

    async def result(self, steps: Generator[Effect, Any, Found]) -> Found:
        """Runs a generator of effects that emits nothing, and returns what it returns."""

        kept: list[Found] = []
        async for _ in self.events(keeping(steps, kept)):
            pass
        return kept[0]

    async def _carry_out(self, effect: Effect) -> Any:
        if not isinstance(effect, Save | Settle | Stop):
            self._raise_if_cancelled()
        match effect:
            case Start(jobs):
                for job in jobs:
                    self._tasks[self._loop.create_task(self._run(job))] = job
                return await self._wait()
            case Wait():
                return await self._wait()
            case Stop():
                return await self._stop()
            case Save(write, background):
                await self._settle()
                self._saving = self._loop.create_task(needed(self.saver).aput(write))
                if not background:
                    await self._settle()
            case Settle():
                await self._settle()
            case Load(thread_id, namespace, checkpoint_id):
                return await needed(self.saver).aget(thread_id, namespace, checkpoint_id)
            case History(thread_id, namespace, before, limit, wanted):
                return await needed(self.saver).ahistory(
                    thread_id, namespace, before=before, limit=limit, filter=wanted
                )
            case Lineage(thread_id, namespace, checkpoint_id):
                return await needed(self.saver).alineage(thread_id, namespace, checkpoint_id)
            case Namespaces(thread_id):
                return await needed(self.saver).anamespaces(thread_id)
        return None

    async def _wait(self) -> list[Item]:
        found: list[Item] = []
        while not found or not self._items.empty():
            item = self._raised or await self._items.get()
            if isinstance(item, BaseException):
                if found:  # what came before it counts
                    self._raised = item
                    break
                self._raised = None
                raise item
            found.append(item)
        return found

    def _raise_if_cancelled(self) -> None:
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None:
            raise cancelled

    async def _run(self, job: Job) -> None:
        try:
            if self._semaphore is None:
                outcome = await self._perform(job)
            else:
                async with self._semaphore:
                    outcome = await self._perform(job)
        except self.asyncio.CancelledError as error:
            outcome = Outcome(job, failed(job, error, cancelled=True), None)
        except BaseException as error:
            self._items.put_nowait(error)
            return
        self._items.put_nowait(outcome)

    async def _perform(self, job: Job) -> Outcome:
        node = job.scope.graph.nodes[job.task.node]
        executor = job.scope.executor
        if executor is None or node.name == START or node.callee.is_async or node.child is not None:
            return await self._drive_work((job.scope.run_task or work)(job, self._emit))
        from minigraph.elsewhere import perform_elsewhere, portable, received

        future = executor.submit(perform_elsewhere, portable(job))
        await self.asyncio.wait([self.asyncio.wrap_future(future)])
        *events, outcome = received(job, future)
        for event in events:
            self._items.put_nowait(event)
        assert isinstance(outcome, Outcome)
        return outcome

    def _emit(self, event: Event) -> None:
        """Queues an event; sync nodes call this from their worker threads."""
        try:
            same_loop = self.asyncio.get_running_loop() is self._loop
        except RuntimeError:
            same_loop = False
        if same_loop:
            self._items.put_nowait(event)
        else:
            self._loop.call_soon_threadsafe(self._items.put_nowait, event)

    async def _drive_work(self, steps: Work) -> Outcome:
        try:
            effect = next(steps)
            while True:
                try:
                    answer = await self._invoke(effect)
                except BaseException as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(answer)
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return outcome

    async def _invoke(self, effect: Invoke | Sleep) -> Any:
        from minigraph.timeouts import limited

        if isinstance(effect, Sleep):
            return await self.asyncio.sleep(effect.seconds)
        if effect.callee.async_function is not None:
            return await effect.callee.async_function(effect.argument)
        call = functools.partial(effect.callee.function, effect.argument, **effect.keywords())
        if not effect.callee.is_async and effect.context.task.node != START:
            answer = await self.asyncio.to_thread(call)
            return await answer if hasattr(answer, "__await__") else answer
        if not effect.callee.is_async:
            return call()
        return await limited(call, effect)

    async def _stop(self) -> list[Item]:
        tasks, self._tasks = self._tasks, {}
        for task in tasks:
            task.cancel()
        if tasks:
            await self.asyncio.gather(*tasks, return_exceptions=True)
        found: list[Item] = []
        while not self._items.empty():
            item = self._items.get_nowait()
            if not isinstance(item, BaseException):
                found.append(item)
        return found

    async def _settle(self) -> None:
        """Waits for the save that is under way. A run that is cancelled meanwhile learns of it at its next effect."""
        if self._saving is None:
            return
        saving, self._saving = self._saving, None
        try:
            await self.asyncio.shield(saving)
        except self.asyncio.CancelledError as error:
            if saving.cancelled():
                raise
            await self.asyncio.wait([saving])
            self._cancelled = error
            saving.result()
