"""Which threads are too old to keep, and how a saver forgets them: by hand, or as new threads begin."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from minigraph.checkpoint import rows
from minigraph.checkpoint.tables import Tables
from minigraph.identifiers import now

BATCH: Final = 10
"""How many threads at most are deleted as one begins."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class RetentionWarning(UserWarning):
    """Threads older than a saver's `time_to_live` could not be deleted; the step meanwhile is stored all the same."""


def milliseconds(moment: datetime) -> int:
    """A moment in milliseconds since 1970. TypeError for what is no datetime, ValueError for one without a zone."""
    if not isinstance(moment, datetime):
        raise TypeError(
            f"delete_before({moment!r}): a datetime with a zone, such as"
            " datetime.now(timezone.utc) - timedelta(days=30)"
        )
    if moment.utcoffset() is None:
        raise ValueError(
            f"delete_before({moment!r}): the datetime has no zone, so which moment it means is not known; make it with"
            " one, such as datetime.now(timezone.utc) - timedelta(days=30), or moment.astimezone() for local time"
        )
    return (moment - _EPOCH) // _MILLISECOND


def idle_threads(tables: Tables, before: int, *, unfinished: bool) -> list[str]:
    """The threads that nobody wrote to since a time in milliseconds since 1970, the oldest first.

    Those with something due are left out unless `unfinished`.
    """
    return [name for name in tables.idle(before) if unfinished or not _has_due(tables, name)]


def delete_idle(tables: Tables, thread_id: str, before: int, *, unfinished: bool) -> bool:
    """Deletes a thread if it is one of those, and says whether it was."""
    if not tables.logs(thread_id):  # looked at first, since that holds off who else would write
        return False
    if not tables.idle(before, thread_id) or not (unfinished or not _has_due(tables, thread_id)):
        return False
    tables.delete(thread_id)
    return True


def _has_due(tables: Tables, thread_id: str) -> bool:
    """Whether the root graph of a thread still has something to do."""
    log = tables.log(thread_id, "")
    head = None if log is None else tables.newest(log.number)
    return head is not None and bool(rows.read_body(head).due)


class TimeToLive:
    """Deletes threads that nobody wrote to for so long, a few each time a thread begins. Safe for several threads.

    It looks for them at most once in a tenth of the time to live, or once an hour. `find` gives those that nobody
    wrote to since a time, `delete` deletes one if that still is so.
    """

    def __init__(
        self, time_to_live: timedelta, find: Callable[[int], list[str]], delete: Callable[[str, int], bool]
    ) -> None:
        if not isinstance(time_to_live, timedelta) or time_to_live <= timedelta(0):
            raise ValueError(
                f"time_to_live={time_to_live!r}: a timedelta greater than zero, such as timedelta(days=30)"
            )
        self._age = time_to_live // _MILLISECOND
        self._every = min(time_to_live.total_seconds() / 10, 3600.0)
        self._find, self._delete = find, delete
        self._next_look = 0.0
        self._found: list[str] = []
        self._lock = threading.Lock()

    def thread_began(self) -> None:
        """Deletes some of the threads that are too old. What goes wrong is a RetentionWarning and no error."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            before = now() - self._age
            if not self._found and time.monotonic() >= self._next_look:
                self._next_look = time.monotonic() + self._every
                self._found = self._find(before)
            for _ in range(min(BATCH, len(self._found))):
                self._delete(self._found.pop(0), before)
        except Exception as error:
            warnings.warn(
                f"threads older than the saver's time_to_live could not be deleted: {error}; what was to be written is"
                " stored, and it is tried again as other threads begin",
                RetentionWarning,
                stacklevel=2,
            )
        finally:
            self._lock.release()
