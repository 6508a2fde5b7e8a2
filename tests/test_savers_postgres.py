"""What PostgreSQL alone asks of its saver: text, numbers, set-up, privileges, lost connections, pools, locks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from conftest import ask, build, chain, say, thread
from postgres_pooler import SESSIONS, BeforeTheServer, Pooler, server_socket
from postgres_server import WITH_PASSWORD, conninfo, schema
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from minigraph import Command
from minigraph.checkpoint import PostgresSaver, postgres_schema
from minigraph.checkpoint.postgres_tables import PostgresTables
from minigraph.errors import StorageError, ThreadConflictError
from minigraph.records import Checkpoint, Finished, NewCheckpoint, Recorded, Task, Write
from minigraph.testing.saver_parts import named_id


@pytest.fixture
def fresh() -> Iterator[str]:
    """The name of a schema that is not there yet."""
    with schema() as name:
        yield name


def first(values: dict[str, Any] | None = None, thread_id: str = "t", name: str = "c0", **others: Any) -> Write:
    """The write that begins a thread."""
    point = Checkpoint(named_id(1, name), None, -1, "input", 1_767_225_600_123, values or {}, **others)
    return Write(thread_id, "", 0, (NewCheckpoint(point, None),))


def next_write(saver: PostgresSaver, values: dict[str, Any], thread_id: str = "t", name: str = "next") -> Write:
    """A write that builds on the head."""
    head = saver.get(thread_id, "")
    assert head is not None
    before, revision = head.checkpoint, head.revision
    point = Checkpoint(named_id(revision + 1, name), before.id, before.step + 1, "loop", 0, values)
    return Write(thread_id, "", revision, (NewCheckpoint(point, before),))


def values_of(saver: PostgresSaver, thread_id: str = "t") -> Any:
    stored = saver.get(thread_id, "")
    return None if stored is None else stored.checkpoint.values


def sql(statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Runs a statement on a connection of its own."""
    with psycopg.connect(conninfo(), autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


def with_settings(**settings: object) -> str:
    """The server's connection string with settings of the session."""
    return make_conninfo(conninfo(), options=" ".join(f"-c {name}={value}" for name, value in settings.items()))


@contextmanager
def in_thread(work: Any) -> Iterator[list[BaseException | None]]:
    """Runs a function meanwhile; afterwards the list holds the error that ended it, or None."""
    outcome: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
            outcome.append(None)
        except BaseException as error:
            outcome.append(error)

    worker = threading.Thread(target=run)
    worker.start()
    yield outcome
    worker.join(20)
    assert outcome, "it did not end"


def wait_for(statement: str, *values: object) -> list[tuple[Any, ...]]:
    """The first rows that a query gives."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found = sql(statement, *values)
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"never came: {statement}")


WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"


# ------------------------------------------------------------------ what is stored


def test_the_tables_read_by_hand(fresh: str) -> None:
    with PostgresSaver.from_conn_string(conninfo(), schema=fresh) as saver:
        saver.put(first({"n": 1}, metadata={"who": "me", "n": 1.0}))
        saver.put(next_write(saver, {"n": 2}))
    line = (
        "SELECT thread_id, namespace, revision, checkpoint_id, parent_id, step, source, metadata ->> 'who', "
        f"created_at AT TIME ZONE 'UTC' = '2026-01-01 00:00:00.123' FROM {fresh}.checkpoints ORDER BY revision"
    )
    assert sql(line) == [
        ("t", "", 1, named_id(1, "c0"), None, -1, "input", "me", True),
        ("t", "", 2, named_id(2, "next"), named_id(1, "c0"), 0, "loop", None, False),
    ]
    assert sql(f"SELECT version FROM {fresh}.minigraph_version") == [(postgres_schema.SCHEMA_VERSION,)]


ODD_METADATA: dict[str, Any] = {
    "one": 1,
    "float": 1.0,
    "large float": 1e22,
    "small": 5e-324,
    "minus zero": -0.0,
    "large": 2**63 - 1,
    "text": "1",
    "yes": True,
    "none": None,
    "nul": "a\0b",
    "sign": "a␀b ␀0 \\u0000 \\",
    "k\0y": [1, "\0", {"␀": "\0"}],
}


def test_metadata_keeps_every_number_and_character_and_is_found_by_it(postgres: PostgresSaver) -> None:
    postgres.put(first(metadata=ODD_METADATA))
    stored = postgres.get("t", "")
    assert stored is not None
    assert repr(stored.checkpoint.metadata) == repr(ODD_METADATA)
    for key, value in ODD_METADATA.items():
        assert len(list(postgres.history("t", "", filter={key: value}))) == 1, key
    others = {"one": 1.0, "float": 1, "text": 1, "yes": 1, "none": False, "large": 2**63 - 2, "nul": "ab", "x\0": 1}
    for key, value in others.items():
        assert list(postgres.history("t", "", filter={key: value})) == [], key
    for wrong in ({"step": True}, {"step": -1.0}, {"step": "-1"}, {"source": 1}, {"source": "in\0put"}):
        assert list(postgres.history("t", "", filter=wrong)) == []
    assert len(list(postgres.history("t", "", filter={"step": -1, "source": "input"}))) == 1


@pytest.mark.parametrize("name", ["a\0b", "a␀0b", "a␀b", "x" * 100_000, "'; DROP TABLE logs; --", "%s", "\\x00"])
def test_any_text_is_an_id_or_a_key(postgres: PostgresSaver, name: str) -> None:
    postgres.put(first({"n": 1}, thread_id=name))
    postgres.put(Write(name, name, 0, first({"n": 2}, name="inner").checkpoints))
    call = Recorded(name, False, error=f"lost: {name}")
    postgres.record(name, name, name, call)
    assert postgres.record_start(name, name, name, Recorded(name, False)) == call
    assert postgres.recorded(name, name, name) == (call,)
    assert [item.config["configurable"]["thread_id"] for item in postgres.list()] == [name, name]
    assert postgres.namespaces(name) == sorted(["", name])
    postgres.copy_thread(name, f"{name} copy")
    assert postgres.recorded(f"{name} copy", name, name) == (call,)
    postgres.delete_thread(name)
    assert postgres.recorded(name, name, name) == ()
    assert values_of(postgres, name) is None
    assert values_of(postgres, f"{name} copy") == {"n": 1}


def test_numbers_are_never_given_twice(postgres: PostgresSaver, shared_schema: str) -> None:
    numbers = []
    for _ in range(3):
        postgres.put(first())
        numbers += sql(f"SELECT number FROM {shared_schema}.logs")
        postgres.delete_thread("t")
    assert len({*numbers}) == 3
    assert numbers == sorted(numbers)


# ------------------------------------------------------------------ set-up


def test_many_workers_set_up_one_schema_at_once(fresh: str) -> None:
    barrier = threading.Barrier(8)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with PostgresSaver(conninfo(), schema=fresh, max_size=1) as saver:
                barrier.wait(10)
                saver.put(first(thread_id=f"t{number}"))
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    assert sql(f"SELECT count(*) FROM {fresh}.logs") == [(8,)]


def test_a_saver_connects_when_it_is_first_used() -> None:
    with PostgresSaver("host=nowhere.invalid dbname=x password=secret-word") as saver:
        with pytest.raises(StorageError, match=r"in x on nowhere\.invalid: it cannot be reached") as caught:
            saver.setup()
        assert "secret-word" not in "".join(map(str, [caught.value, caught.value.__cause__]))


def test_what_is_no_pool_or_has_no_connection_is_refused() -> None:
    with pytest.raises(TypeError, match=r"PostgresSaver\(int\): a connection string"):
        PostgresSaver(1)  # type: ignore[arg-type]
    for least, most in ((1, 0), (3, 2), (-1, 8), (0, 0)):
        with pytest.raises(ValueError, match="min_size="):
            PostgresSaver("", min_size=least, max_size=most)


@pytest.mark.skipif("MINIGRAPH_POSTGRES_URL" in os.environ, reason="the rules of that server are not the tests'")
def test_a_wrong_password_is_told_and_not_shown(fresh: str) -> None:
    sql(f"CREATE ROLE {WITH_PASSWORD} LOGIN PASSWORD 'right-secret'")
    try:
        sql(f"CREATE SCHEMA {fresh} AUTHORIZATION {WITH_PASSWORD}")
        right = make_conninfo(conninfo(), user=WITH_PASSWORD, password="right-secret")
        with PostgresSaver(make_conninfo(right, password="wrong-secret"), schema=fresh) as saver:
            with pytest.raises(StorageError, match="password authentication failed") as caught:
                saver.put(first())
            assert "wrong-secret" not in f"{caught.value} {caught.value.__cause__} {saver._connections.name}"
        with PostgresSaver(right, schema=fresh) as saver:
            assert saver.put(first()) == 1
    finally:
        sql(f"DROP OWNED BY {WITH_PASSWORD}")
        sql(f"DROP ROLE {WITH_PASSWORD}")


def test_newer_older_and_foreign_tables_are_refused(fresh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(match: str) -> None:
        with PostgresSaver(conninfo(), schema=fresh) as saver, pytest.raises(StorageError, match=match):
            saver.get("t", "")

    sql(f"CREATE SCHEMA {fresh}")
    sql(f"CREATE TABLE {fresh}.logs (mine text)")
    refuse("'logs' that is none of a saver's")
    sql(f"DROP TABLE {fresh}.logs")
    with PostgresSaver(conninfo(), schema=fresh) as saver:
        saver.put(first({"n": 1}))
    sql(f"UPDATE {fresh}.minigraph_version SET version = version + 1")
    refuse("newer release")
    sql(f"UPDATE {fresh}.minigraph_version SET version = version - 1")
    monkeypatch.setattr(postgres_schema, "SCHEMA_VERSION", 3)
    refuse("version 1, which this release .* cannot")
    steps = {1: "ALTER TABLE {schema}.writes RENAME TO halfway", 2: "broken"}
    monkeypatch.setattr(postgres_schema, "MIGRATIONS", steps)
    refuse("syntax error")
    assert sql(f"SELECT version FROM {fresh}.minigraph_version") == [(1,)], "a migration that fails changes nothing"
    steps[2] = "ALTER TABLE {schema}.halfway RENAME TO writes"
    for _ in range(2):
        with PostgresSaver(conninfo(), schema=fresh) as saver:
            assert values_of(saver) == {"n": 1}


@pytest.mark.parametrize("name", ["", "1a", "pg_x", 'a"b', "a.b", "x" * 64, "a b", "ä", "a%s"])
def test_a_schema_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="schema="):
        PostgresSaver(conninfo(), schema=name)


@pytest.mark.parametrize(
    "wrong",
    ["postgresql://u:pa@secret@host/db", "postgresql://u:pa:se/secret@h:1/db", "password=a secret", "secret"],
)
def test_a_wrong_connection_string_is_not_shown(wrong: str) -> None:
    with pytest.raises(ValueError, match="connection string cannot be read") as caught:
        PostgresSaver(wrong)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_role_without_privileges_is_told_so(fresh: str) -> None:
    role = f"{fresh}_role"
    sql(f"CREATE ROLE {role}")
    try:
        with PostgresSaver(with_settings(role=role), schema=fresh) as weak:
            with pytest.raises(StorageError, match="lacks a privilege"):
                weak.get("t", "")
            with PostgresSaver(conninfo(), schema=fresh) as saver:
                saver.put(first({"n": 1}))
            with pytest.raises(StorageError, match="lacks a privilege"):
                weak.get("t", "")
            sql(f"GRANT USAGE ON SCHEMA {fresh} TO {role}")
            sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA {fresh} TO {role}")
            assert values_of(weak) == {"n": 1}
            with pytest.raises(StorageError, match="lacks a privilege"):
                weak.put(next_write(weak, {"n": 2}))
            sql(f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {fresh} TO {role}")
            weak.put(next_write(weak, {"n": 2}))
            weak.copy_thread("t", "u")
            weak.prune("t", keep=1)
            weak.record_start("t", "", "task", Recorded("k", False))
            weak.delete_thread("u")
            assert values_of(weak) == {"n": 2}
    finally:
        sql(f"DROP OWNED BY {role}")
        sql(f"DROP ROLE {role}")


def test_a_read_only_session_reads_and_refuses_writes(postgres: PostgresSaver, shared_schema: str) -> None:
    postgres.put(first({"n": 1}))
    with PostgresSaver(with_settings(default_transaction_read_only="on"), schema=shared_schema) as reader:
        assert values_of(reader) == {"n": 1}
        for write in (next_write(postgres, {"n": 2}), first(thread_id="new")):
            with pytest.raises(StorageError, match="standby or the session is read-only"):
                reader.put(write)
        with pytest.raises(StorageError, match="read-only"):
            reader.record_start("t", "", "task", Recorded("k", False))
        assert values_of(reader) == {"n": 1}


# ------------------------------------------------------------------ connections


class Proxy(BeforeTheServer):
    """Stands between a saver and the server, and loses what one of them says."""

    def __init__(self) -> None:
        self.lose: str | None = None
        """"request": the next one does not reach the server; "answer": the answer to it does not come back."""
        self.lost = self.statements = 0
        super().__init__()

    def _serve(self, client: socket.socket) -> None:
        with client, server_socket(self._place) as server, contextlib.suppress(ConnectionError):
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if server in ready:
                    answer = server.recv(65536)
                    if not answer:
                        return
                    client.sendall(answer)
                if client in ready:
                    request = client.recv(65536)
                    lose = None
                    if request[:1] in (b"P", b"B", b"Q"):  # a statement
                        lose, self.lose = self.lose, None
                        self.statements += 1
                    if lose is not None:
                        self.lost += 1
                    if not request or lose == "request":
                        return
                    server.sendall(request)
                    if lose == "answer":
                        server.recv(65536)
                        return


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with closing(Proxy()) as made:
        yield made


def several(saver: PostgresSaver) -> Write:
    """A write of two rows, which is a transaction of several statements."""
    write = next_write(saver, {"n": 2}, name="second")
    before = write.checkpoints[0].checkpoint
    point = Checkpoint(named_id(write.revision + 2, "third"), before.id, 1, "loop", 0, {"n": 3})
    return Write("t", "", write.revision, (*write.checkpoints, NewCheckpoint(point, before)))


def test_a_step_is_one_round_trip_and_so_are_a_question_and_an_answer(proxy: Proxy, fresh: str) -> None:
    with PostgresSaver(proxy.conninfo, schema=fresh) as saver:
        saver.put(first({"n": 1}, due=(Task("task", "node"),)))
        results = ((named_id(1, "c0"), Finished("task", "node")),)
        steps: list[Callable[[], Write]] = [
            lambda: Write("t", "", 1, (), results),
            lambda: next_write(saver, {"n": 2}),
        ]
        for make in steps:
            write, before = make(), proxy.statements
            saver.put(write)
            assert proxy.statements == before + 1


def test_a_look_at_the_newest_checkpoint_is_one_round_trip(proxy: Proxy, fresh: str) -> None:
    unprepared = PostgresSaver(proxy.conninfo, schema=fresh, prepare_threshold=None)  # which is a round trip once
    with PostgresSaver(conninfo(), schema=fresh) as saver, unprepared as other:
        other.setup()
        items: list[str] = []
        saver.put(first({"items": items}, due=(Task("task", "node"),)))
        for number in range(70):
            items = [*items, f"{number} " * 50]
            saver.put(next_write(saver, {"items": items}, name=f"c{number}"))
            before = proxy.statements
            stored = other.get("t", "")
            assert proxy.statements == before + 1
            assert stored is not None
            assert (stored.checkpoint.values, stored.revision) == ({"items": items}, number + 2)
            assert stored.checkpoint.parent_id == named_id(number + 1, f"c{number - 1}" if number else "c0")
        assert other.get("nobody", "") is None
        saver.prune("t", keep=1)  # the head has no parent any more: that takes a second look
        assert values_of(other) == {"items": items}


def test_a_write_whose_answer_is_lost_is_looked_for(proxy: Proxy, fresh: str) -> None:
    with PostgresSaver(proxy.conninfo, schema=fresh) as saver:
        saver.put(first({"n": 1}))
        write = next_write(saver, {"n": 2})
        proxy.lose = "answer"
        assert saver.put(write) == 2
        assert proxy.lost == 1
        assert values_of(saver) == {"n": 2}
        assert sql(f"SELECT count(*) FROM {fresh}.writes") == [(2,)]
        assert saver.put(next_write(saver, {"n": 3}, name="more")) == 3


def test_a_write_that_never_arrived_is_an_error_and_not_repeated(proxy: Proxy, fresh: str) -> None:
    with PostgresSaver(proxy.conninfo, schema=fresh) as saver:
        saver.put(first({"n": 1}))
        for write in (next_write(saver, {"n": 2}), several(saver)):
            proxy.lose = "request"
            with pytest.raises(StorageError, match=r"connection was lost.*not known"):
                saver.put(write)
            assert values_of(saver) == {"n": 1}
        assert saver.put(next_write(saver, {"n": 2})) == 2


def test_of_results_alone_nobody_can_tell_whose_they_are(proxy: Proxy, fresh: str) -> None:
    """So a lost answer stays an error, though the row is there: another run may have written the same."""
    with PostgresSaver(proxy.conninfo, schema=fresh) as saver:
        saver.put(first({"n": 1}, due=(Task("task", "node"),)))
        write = Write("t", "", 1, (), ((named_id(1, "c0"), Finished("task", "node")),))
        proxy.lose = "answer"
        with pytest.raises(StorageError, match="connection was lost"):
            saver.put(write)
        stored = saver.get("t", "")
        assert stored is not None
        assert (stored.revision, len(stored.results)) == (2, 1)
        with pytest.raises(ThreadConflictError):
            saver.put(write)


@pytest.mark.parametrize("lose", ["request", "answer"])
def test_a_read_whose_connection_is_lost_is_an_error(proxy: Proxy, fresh: str, lose: str) -> None:
    with PostgresSaver(proxy.conninfo, schema=fresh) as saver:
        saver.put(first({"n": 1}))
        proxy.lose = lose
        with pytest.raises(StorageError, match="connection was lost"):
            saver.get("t", "")
        assert values_of(saver) == {"n": 1}


def test_connections_that_the_server_ended_meanwhile_are_not_used(fresh: str) -> None:
    with PostgresSaver(conninfo(), schema=fresh, min_size=3, max_size=3) as saver:
        saver.put(first({"n": 1}))
        for number in range(2, 5):
            mine = "FROM pg_stat_activity WHERE application_name = 'minigraph' AND query LIKE %s"
            sql(f"SELECT pg_terminate_backend(pid) {mine}", f"%{fresh}%")
            wait_for(f"SELECT 1 WHERE NOT EXISTS (SELECT {mine})", f"%{fresh}%")
            assert saver.put(next_write(saver, {"n": number})) == number
        assert values_of(saver) == {"n": 4}


@contextmanager
def locked(schema_name: str, thread_id: str = "t") -> Iterator[None]:
    """Another transaction holds a thread meanwhile."""
    with psycopg.connect(conninfo()) as holder:
        statement = f"SELECT FROM {schema_name}.logs WHERE thread_id = %s FOR UPDATE"
        holder.execute(statement.encode(), (thread_id,))
        yield


def test_a_backend_that_is_ended_in_mid_write_is_an_error(fresh: str) -> None:
    with PostgresSaver(conninfo(), schema=fresh) as saver:
        saver.put(first({"n": 1}))
        write = next_write(saver, {"n": 2})
        with locked(fresh), in_thread(lambda: saver.put(write)) as outcome:
            ((pid,),) = wait_for(WAITING, f'INSERT INTO "{fresh}%')
            sql("SELECT pg_terminate_backend(%s)", pid)
        assert isinstance(outcome[0], StorageError)
        assert "not known" in str(outcome[0])
        assert values_of(saver) == {"n": 1}
        assert saver.put(write) == 2


@pytest.mark.parametrize(
    ("setting", "match"), [("statement_timeout", "statement was cancelled"), ("lock_timeout", "lock was not free")]
)
def test_time_outs_of_the_server_store_nothing(fresh: str, setting: str, match: str) -> None:
    with PostgresSaver(with_settings(**{setting: 50}), schema=fresh) as saver:
        saver.put(first({"n": 1}))
        write = next_write(saver, {"n": 2})
        with locked(fresh):
            for call in (lambda: saver.put(write), lambda: saver.put(several(saver)), lambda: saver.delete_thread("t")):
                with pytest.raises(StorageError, match=match):
                    call()
        assert saver.put(write) == 2


def test_a_session_that_is_serializable_by_default_works_alike(fresh: str) -> None:
    with (
        PostgresSaver(with_settings(default_transaction_isolation="serializable"), schema=fresh) as saver,
        PostgresSaver(conninfo(), schema=fresh) as other,
    ):
        saver.put(first({"n": 1}))
        for number in range(2, 12):
            write = next_write(saver, {"n": number})
            rival = next_write(other, {"n": -number}, name="rival")
            with in_thread(lambda write=rival: other.put(write)) as outcome:
                won = True
                try:
                    saver.put(write)
                except ThreadConflictError:
                    won = False
            assert (outcome[0] is None) is not won
            assert values_of(other) == {"n": number if won else -number}


def test_no_free_connection_is_an_error_after_the_time_out(fresh: str) -> None:
    with PostgresSaver(conninfo(), schema=fresh, max_size=1, timeout=0.1) as saver:
        saver.put(first())
        with saver._reading(), pytest.raises(StorageError, match=r"within 0\.1 seconds.*raise max_size"):
            saver.get("t", "")
        assert saver.get("t", "") is not None


def test_a_closed_saver_says_so_and_leaves_no_connection(fresh: str) -> None:
    saver = PostgresSaver(conninfo(), schema=fresh)
    saver.put(first())
    asyncio.run(saver.aget("t", ""))
    saver.close()
    saver.close()
    gc.collect()
    for call in (lambda: saver.get("t", ""), lambda: saver.put(first()), lambda: asyncio.run(saver.aget("t", ""))):
        with pytest.raises(StorageError, match="the saver was closed"):
            call()
    mine = "SELECT FROM pg_stat_activity WHERE application_name = 'minigraph' AND query LIKE %s"
    wait_for(f"SELECT 1 WHERE NOT EXISTS ({mine})", f"%{fresh}%")


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_connection_of_a_given_pool_may_have_news_for_its_owner(fresh: str, autocommit: bool) -> None:
    pool: ConnectionPool[Any]
    with ConnectionPool(conninfo(), kwargs={"autocommit": autocommit}, min_size=1, max_size=1) as pool:
        saver = PostgresSaver(pool, schema=fresh)
        saver.put(first({"n": 1}))
        with pool.connection() as connection:
            connection.execute(f"LISTEN {fresh}".encode())
        for number in range(2, 5):
            sql(f"NOTIFY {fresh}")
            assert saver.put(next_write(saver, {"n": number})) == number
        with pool.connection() as connection:
            assert connection.autocommit is autocommit


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_given_pool_is_used_as_it_is_and_stays_open(fresh: str, autocommit: bool) -> None:
    settings = {"autocommit": autocommit, "row_factory": dict_row, "cursor_factory": psycopg.ClientCursor}
    pool: ConnectionPool[Any]
    with ConnectionPool(conninfo(), kwargs=settings, min_size=1, max_size=1) as pool:
        with PostgresSaver(pool, schema=fresh) as saver:
            saver.put(first({"n": 1}, metadata={"k": 1}))
            saver.put(several(saver))
            assert [stored.checkpoint.values["n"] for stored in saver.history("t", "")] == [3, 2, 1]
            with pool.connection() as connection:
                assert connection.autocommit is autocommit
                found: list[Any] = connection.execute("SELECT 1 AS one").fetchall()
                assert found == [{"one": 1}]
        with pytest.raises(StorageError, match="the saver was closed"):
            saver.get("t", "")
        with pool.connection() as connection:
            connection.execute("SELECT 1")
        again = PostgresSaver(pool, schema=fresh)
        assert values_of(again) == {"n": 3}
    with pytest.raises(StorageError, match="pool is not open"):
        again.get("t", "")


@pytest.mark.parametrize(("threshold", "some"), [(None, False), (0, True)])
def test_statements_are_prepared_unless_a_pooler_forbids_it(fresh: str, threshold: int | None, some: bool) -> None:
    with PostgresSaver(conninfo(), schema=fresh, max_size=1, prepare_threshold=threshold) as saver:
        saver.put(first({"n": 0}))
        for number in range(1, 8):
            saver.put(next_write(saver, {"n": number}))
        saver.record_start("t", "", "task", Recorded("k", False))
        connection = saver._connections.take()
        ((count,),) = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchall()
        assert (count > 0) is some
        saver._connections.give_back(connection)


@pytest.mark.skipif("MINIGRAPH_POSTGRES_URL" in os.environ, reason="that server may ask the pooler for a password")
def test_a_pooler_may_give_each_transaction_another_session(fresh: str) -> None:
    with closing(Pooler()) as pooler:
        with PostgresSaver(pooler.conninfo, schema=fresh, prepare_threshold=None) as saver:
            saver.put(first({"n": 0}))
            for number in range(1, 40):
                saver.put(next_write(saver, {"n": number}, name=f"c{number}"))
            saver.put(several(saver))
            saver.copy_thread("t", "copy")
            saver.prune("t", keep=3)
            for _ in range(2):
                saver.record_start("t", "", "task", Recorded("k", False))
            saver.delete_thread("copy")
            assert [stored.checkpoint.values["n"] for stored in saver.history("t", "")] == [3, 2, 39]
            assert asyncio.run(saver.arecorded("t", "", "task")) == (Recorded("k", False),)
        assert pooler.transactions > 80
        prepared = PostgresSaver(pooler.conninfo, schema=fresh, prepare_threshold=0)
        with prepared as saver, pytest.raises(StorageError, match="prepared statement"):
            [saver.get("t", "") for _ in range(2 * SESSIONS)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_opens_connections_of_its_own(fresh: str) -> None:
    with PostgresSaver(conninfo(), schema=fresh) as saver, ConnectionPool(conninfo(), min_size=1) as pool:
        saver.put(first({"n": 1}))
        asyncio.run(saver.aget("t", ""))
        given = PostgresSaver(pool, schema=fresh)
        given.get("t", "")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                saver.put(first({"n": 2}, thread_id="child"))
                code = 2
                assert values_of(saver) == {"n": 1}
                assert asyncio.run(saver.aget("t", "")) is not None
                code = 3
                try:
                    given.get("t", "")
                except StorageError as error:
                    code = 0 if "after a fork" in str(error) else 4
                saver.close()
                gc.collect()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        saver.put(next_write(saver, {"n": 3}))
        assert values_of(saver, "child") == {"n": 2}
        assert values_of(given) == {"n": 3}


# ------------------------------------------------------------------ the disk, locks, the event loop


@pytest.mark.parametrize(
    ("usual", "lasting"), [("off", "on"), ("local", "on"), ("on", "on"), ("remote_apply", "remote_apply")]
)
def test_the_start_of_a_once_call_waits_for_the_disk_and_a_step_as_the_session_says(
    fresh: str, monkeypatch: pytest.MonkeyPatch, usual: str, lasting: str
) -> None:
    seen: list[str] = []
    run = PostgresTables._run

    def noting(self: PostgresTables, statement: str, *values: object) -> Any:
        if statement.startswith("INSERT"):
            seen.extend(self._cursor.connection.execute("SHOW synchronous_commit").fetchone() or ())
        return run(self, statement, *values)

    monkeypatch.setattr(PostgresTables, "_run", noting)
    with PostgresSaver(with_settings(synchronous_commit=usual), schema=fresh, max_size=1) as saver:
        saver.put(first({"n": 1}))
        saver.put(next_write(saver, {"n": 2}))
        assert {*seen} == {usual}
        seen.clear()
        saver.record_start("t", "", "task", Recorded("k", False))
        assert seen == [lasting]
        seen.clear()
        saver.record("t", "", "task", Recorded("k", True))
        assert seen == [usual]


def test_a_busy_thread_does_not_hold_up_the_others(fresh: str) -> None:
    with PostgresSaver(with_settings(statement_timeout=5000), schema=fresh) as saver:
        for name in ("t", "other"):
            saver.put(first({"n": 1}, thread_id=name))
        write = next_write(saver, {"n": 2})
        with locked_later(fresh) as release, in_thread(lambda: saver.put(write)) as outcome:
            wait_for(WAITING, f'INSERT INTO "{fresh}%')
            assert values_of(saver) == {"n": 1}
            saver.put(next_write(saver, {"n": 2}, "other"))
            saver.put(first({"n": 1}, thread_id="new"))
            saver.record_start("other", "", "task", Recorded("k", False))
            saver.prune("other", keep=1)
            saver.copy_thread("other", "copy")
            saver.delete_thread("other")
            assert outcome == []
            release()
        assert outcome == [None]
        assert values_of(saver) == {"n": 2}


def test_of_two_once_calls_one_begins(postgres: PostgresSaver) -> None:
    for number in range(20):
        barrier = threading.Barrier(4)
        found: list[Recorded | None] = []

        def begin(
            call: Recorded, barrier: threading.Barrier = barrier, found: Any = found, number: int = number
        ) -> None:
            barrier.wait(10)
            found.append(postgres.record_start("t", "", f"task{number}", call))

        calls = [Recorded("k", False, each) for each in range(4)]
        workers = [threading.Thread(target=begin, args=(call,)) for call in calls]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert found.count(None) == 1
        (kept,) = postgres.recorded("t", "", f"task{number}")
        assert [each for each in found if each is not None] == [kept] * 3


def test_a_thread_that_is_deleted_while_runs_write_keeps_no_row(postgres: PostgresSaver, shared_schema: str) -> None:
    stop, lost = threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            with contextlib.suppress(ThreadConflictError):
                postgres.put(first({"n": 0}))
            try:
                for number in range(1, 9):
                    postgres.put(next_write(postgres, {"n": number}))
            except (ThreadConflictError, AssertionError) as error:
                lost.append(error)

    workers = [threading.Thread(target=write) for _ in range(3)]
    for worker in workers:
        worker.start()
    for _ in range(60):
        time.sleep(0.01)
        postgres.delete_thread("t")
    stop.set()
    for worker in workers:
        worker.join()
    assert lost
    orphans = f"SELECT FROM {shared_schema}.writes WHERE log NOT IN (SELECT number FROM {shared_schema}.logs)"
    assert sql(orphans) == []
    revisions = [revision for (revision,) in sql(f"SELECT revision FROM {shared_schema}.writes ORDER BY 1")]
    assert revisions == [*range(1, len(revisions) + 1)]


def test_a_writer_learns_that_its_thread_was_deleted_and_begun_anew(postgres: PostgresSaver) -> None:
    postgres.put(first({"n": 1}))
    write = next_write(postgres, {"n": 2})
    postgres.delete_thread("t")
    with pytest.raises(ThreadConflictError):
        postgres.put(write)
    postgres.put(first({"n": 10}, name="anew"))
    with pytest.raises(ThreadConflictError):
        postgres.put(write)
    assert values_of(postgres) == {"n": 10}


def test_slow_nodes_hold_up_neither_the_saves_nor_the_loop(fresh: str) -> None:
    """Nodes that fill the loop's own executor wait for a save that happens meanwhile."""
    saved = threading.Event()

    async def work() -> int:
        loop = asyncio.get_running_loop()
        slow = [loop.run_in_executor(None, saved.wait, 20) for _ in range(64)]
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while not saved.is_set():
                await asyncio.sleep(0.005)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        with locked_later(fresh) as release:
            await saver.aput(first({"n": 1}, thread_id="other"))
            loop.call_later(0.1, release)
            await saver.aput(write)
        saved.set()
        await asyncio.gather(ticking, *slow)
        return ticks

    with PostgresSaver(conninfo(), schema=fresh, max_size=2) as saver:
        saver.put(first({"n": 1}))
        write = next_write(saver, {"n": 2})
        assert asyncio.run(work()) > 5


def test_a_slow_set_up_does_not_hold_up_the_loop(fresh: str) -> None:
    async def work() -> int:
        with closing(psycopg.connect(conninfo())) as holder:
            holder.execute("SELECT pg_advisory_xact_lock(%s)", (postgres_schema._lock_number(fresh),))
            pending = [asyncio.ensure_future(saver.aget("t", "")) for _ in range(3)]
            ticks = 0
            while not sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") or ticks < 5:
                await asyncio.sleep(0.005)
                pending.append(asyncio.ensure_future(saver.aget("t", "")))
                ticks += 1
            assert not any(each.done() for each in pending)
            holder.commit()
            assert {*await asyncio.gather(*pending)} == {None}
        return ticks

    with PostgresSaver(conninfo(), schema=fresh, max_size=2) as saver:
        assert asyncio.run(work()) >= 5


@contextmanager
def locked_later(schema_name: str) -> Iterator[Any]:
    """Another transaction holds the thread until a function is called."""
    with closing(psycopg.connect(conninfo())) as holder:
        holder.execute(f"SELECT FROM {schema_name}.logs WHERE thread_id = 't' FOR UPDATE".encode())
        yield holder.commit


def test_a_cancelled_write_has_ended_when_the_cancellation_is_felt(fresh: str) -> None:
    async def work() -> None:
        with locked_later(fresh) as release:
            task = asyncio.ensure_future(saver.aput(write))
            await asyncio.to_thread(wait_for, WAITING, f'INSERT INTO "{fresh}%')
            task.cancel()
            await asyncio.sleep(0.02)
            assert not task.done()
            release()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert values_of(saver) == {"n": 2}

    with PostgresSaver(conninfo(), schema=fresh) as saver:
        saver.put(first({"n": 1}))
        write = next_write(saver, {"n": 2})
        asyncio.run(work())


def test_a_graph_pauses_on_one_saver_and_goes_on_on_another(fresh: str) -> None:
    nodes, edges = {"a": say("a"), "q": ask("q"), "z": say("z")}, chain("a", "q", "z")
    with PostgresSaver(conninfo(), schema=fresh) as one, PostgresSaver(conninfo(), schema=fresh) as two:
        build(nodes, edges, one).invoke({}, thread())
        graph = build(nodes, edges, two)
        assert [question.value for question in graph.get_state(thread()).interrupts] == ["q"]
        assert graph.invoke(Command(resume=1), thread())["log"] == ["a", ("q", 1), "z"]
        assert build(nodes, edges, one).get_state(thread()).values["log"] == ["a", ("q", 1), "z"]


def test_a_child_that_begins_as_its_thread_is_deleted_goes_with_it(postgres: PostgresSaver) -> None:
    postgres.put(first())
    deleting = threading.Thread(target=postgres.delete_thread, args=("t",))
    with postgres._writing() as tables:
        assert tables.log("t", "") is not None
        tables.begin("t", "child")
        deleting.start()
        wait_for(WAITING, "%FOR UPDATE%")
    deleting.join(10)
    assert not deleting.is_alive()
    assert postgres.namespaces("t") == []
