"""Where nodes with a CachePolicy keep their results between runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from typing import Protocol

from minigraph.records import Finished


class Cache(Protocol):
    """A store of finished results by (namespace, key)."""

    def get(self, namespace: str, key: Hashable) -> Finished | None:
        """The result stored under a key, if it is there and not too old."""
        ...

    def set(self, namespace: str, key: Hashable, result: Finished, ttl: float | None) -> None:
        """Stores a result for `ttl` seconds (None: for good)."""
        ...

    def clear(self, namespace: str | None = None) -> None:
        """Forgets the results of one namespace, or all."""
        ...


class InMemoryCache:
    """A cache in this process's memory; safe to share between threads and graphs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, dict[Hashable, tuple[Finished, float | None]]] = {}

    def get(self, namespace: str, key: Hashable) -> Finished | None:
        """The result stored under a key, if it is there and not too old."""
        with self._lock:
            found = self._rows.get(namespace, {}).get(key)
            if found is None:
                return None
            result, expires = found
            if expires is not None and time.monotonic() >= expires:
                del self._rows[namespace][key]
                return None
            return result

    def set(self, namespace: str, key: Hashable, result: Finished, ttl: float | None) -> None:
        """Stores a result for `ttl` seconds (None: for good)."""
        with self._lock:
            self._rows.setdefault(namespace, {})[key] = (result, None if ttl is None else time.monotonic() + ttl)

    def clear(self, namespace: str | None = None) -> None:
        """Forgets the results of one namespace, or all."""
        with self._lock:
            if namespace is None:
                self._rows.clear()
            else:
                self._rows.pop(namespace, None)
