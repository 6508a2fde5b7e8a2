"""What the async methods of a saver must do that its sync methods have no part in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

from minigraph.checkpoint.base import Saver
from minigraph.records import NewCheckpoint, Recorded, Write
from minigraph.testing.saver_parts import demand, named_id, point, stored_in


def sync_and_async_methods_see_the_same(saver: Saver) -> None:
    """What async methods store, sync ones read, and the other way round."""

    async def work() -> None:
        first = point(1, "c0", {"n": 1})
        write = Write("t", "", 0, (NewCheckpoint(first, None),))
        demand(await saver.aput(write), 1, "aput returns the new revision")
        demand(stored_in(saver, "t", "").checkpoint, first, "get finds what aput stored")
        second = point(2, "c1", {"n": 2}, first)
        saver.put(Write("t", "", 1, (NewCheckpoint(second, first),)))
        found = await saver.aget("t", "")
        demand(found, stored_in(saver, "t", ""), "aget finds what put stored")
        demand(await saver.ahistory("t", ""), [*saver.history("t", "")], "ahistory")
        demand(await saver.alineage("t", ""), saver.lineage("t", ""), "alineage")
        demand(await saver.anamespaces("t"), saver.namespaces("t"), "anamespaces")
        demand(await saver.arecord_start("t", "", "task", Recorded("k", False)), None, "arecord_start")
        demand(saver.record_start("t", "", "task", Recorded("k", False)), Recorded("k", False), "record_start")
        await saver.arecord("t", "", "task", Recorded("k", True, 1))
        demand(saver.recorded("t", "", "task"), (Recorded("k", True, 1),), "recorded finds what arecord stored")
        saver.record("t", "", "task", Recorded("k", True, 2))
        demand(await saver.arecorded("t", "", "task"), (Recorded("k", True, 2),), "arecorded")

    asyncio.run(work())


def cancelled_writes_have_ended(saver: Saver) -> None:
    """When the caller of a cancelled async write goes on, the write is stored as a whole or not, and stays so."""
    large = {"l": [[number] for number in range(8_000)]}

    def put(name: str) -> Awaitable[Any]:
        revision = 0 if (head := saver.get("t", "")) is None else head.revision
        return saver.aput(Write("t", "", revision, (NewCheckpoint(point(revision + 1, name, large), None),)))

    def begin(name: str) -> Awaitable[Any]:
        return saver.arecord_start("t", "", "task", Recorded(f"{name} begun", False, large))

    def record(name: str) -> Awaitable[Any]:
        return saver.arecord("t", "", "task", Recorded(f"{name} done", True, large))

    def look() -> Any:
        stored = stored_in(saver, "t", "")
        keys = tuple((recorded.key, recorded.done) for recorded in saver.recorded("t", "", "task"))
        return stored.revision, stored.head_id, keys

    async def cancelled(write: Awaitable[Any], after: float) -> None:
        task = asyncio.ensure_future(write)
        await asyncio.sleep(after)
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()

    async def work() -> None:
        longest = 0.0
        for write in (put, begin, record):
            began = time.perf_counter()
            await write("whole")
            longest = max(longest, time.perf_counter() - began)
        for write, method in ((put, "aput"), (begin, "arecord_start"), (record, "arecord")):
            for number, after in enumerate((0.0, longest / 2)):
                revision, head_id, _ = look()
                await cancelled(write(f"c{number}"), after)
                found = look()
                new = (revision + 1, named_id(revision + 1, f"c{number}"))
                whole = (revision, head_id) if found[0] == revision else new
                demand(found[:2], whole, f"a cancelled {method} is stored as a whole or not")
                await asyncio.sleep(max(0.02, 2 * longest))
                demand(look(), found, f"a cancelled {method} has ended")

    asyncio.run(work())
