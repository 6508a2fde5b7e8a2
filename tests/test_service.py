"""The example service over real HTTP: uvicorn with two workers, on a SQLite file and on PostgreSQL."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest
from postgres_server import conninfo

httpx = pytest.importorskip("httpx", reason="needs httpx, starlette and uvicorn")
pytest.importorskip("uvicorn", reason="needs httpx, starlette and uvicorn")

ROOT = Path(__file__).parent.parent
ORDER = {"item": "chairs", "amount": 3}
CHECKED = ["credit checked", "stock checked", "address checked", "customs checked"]
PLACED = [*CHECKED, "answered 'yes'", "placed as order of 3 chairs"]


class Service:
    """A running service, and a client that opens a connection for each request, so that workers take turns."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], port: int, key: str) -> None:
        self.folder, self.process = folder, process
        self.base, self.headers = f"http://127.0.0.1:{port}", {"authorization": f"Bearer {key}"} if key else {}

    def send(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """A request; `content` instead of `body` for one that is no JSON."""
        options = {"headers": self.headers, "timeout": 30, **options}
        return httpx.request(method, self.base + path, **({} if body is None else {"json": body}), **options)

    def begin(self, thread: str, key: str = "") -> Any:
        """POST /threads/{id}/runs."""
        return self.send("POST", f"/threads/{thread}/runs", {"input": ORDER, "key": key})

    def answer(self, thread: str, answer: str, question: str | None = None) -> Any:
        """Answers a question, by default the one that is open."""
        question = question or self.get(thread)["questions"][0]["id"]
        return self.send("POST", f"/threads/{thread}/answers", {"answers": {question: answer}})

    def get(self, thread: str) -> Any:
        """The thread."""
        found = self.send("GET", f"/threads/{thread}")
        assert found.status_code == 200, found.text
        return found.json()

    def until(self, thread: str, condition: Callable[[Any], bool], seconds: float = 40) -> Any:
        """The thread as soon as a condition holds."""
        end = time.monotonic() + seconds
        while not condition(found := self.get(thread)):
            assert time.monotonic() < end, found
            time.sleep(0.05)
        return found

    def waiting(self, thread: str) -> Any:
        """The thread as soon as it waits for an answer."""
        return self.until(thread, lambda found: found["status"] == "waiting")

    def ended(self, thread: str) -> Any:
        """The thread as soon as it has ended."""
        return self.until(thread, lambda found: found["status"] == "ended")

    def orders(self) -> list[str]:
        """What was ordered."""
        file = self.folder / "orders.txt"
        return file.read_text().splitlines() if file.exists() else []


@contextmanager
def service(folder: Path, threads: str, *, workers: int = 2, key: str = "", **settings: float) -> Iterator[Service]:
    """A service on a free port, ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT / "examples"), "service.app:app"]
    command += ["--workers", str(workers), "--port", str(port), "--log-level", "warning"]
    given = {"threads": threads, "orders": str(folder / "orders.txt"), "key": key, "step_seconds": 0.02, **settings}
    environment = {f"SERVICE_{name.upper()}": str(value) for name, value in given.items()}
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, cwd=folder)
    made = Service(folder, process, port, key)
    try:
        wait_until_ready(made)
        yield made
    finally:
        process.terminate()
        process.wait(60)


def wait_until_ready(made: Service) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and made.process.poll() is None:
        try:
            if made.send("GET", "/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("the service did not become ready")


@contextmanager
def place(kind: str, folder: Path) -> Iterator[str]:
    """Where a service keeps its threads: a file, or a database of its own."""
    if kind == "sqlite":
        yield str(folder / "threads.db")
        return
    name = f"service_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(conninfo(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield urlsplit(conninfo())._replace(path=f"/{name}").geturl()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def threads(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Iterator[str]:
    """Where a service keeps its threads."""
    if request.node.get_closest_marker("slow") and "slow" not in str(request.config.getoption("markexpr")):
        pytest.skip("long: -m slow runs it")
    with place(kind, tmp_path) as found:
        yield found


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for several tests."""
    folder = tmp_path_factory.mktemp("service")
    with place(request.param, folder) as threads, service(folder, threads) as found:
        yield found


def events(made: Service, thread: str, **headers: str) -> list[tuple[str, str, Any]]:
    """The events of a thread until its stream ends: id, kind and data."""
    with httpx.stream(
        "GET", f"{made.base}/threads/{thread}/events", headers={**made.headers, **headers}, timeout=30
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        blocks = "".join(response.iter_text()).strip().split("\n\n")
    fields = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks if block]
    return [(each["id"], each["event"], msgspec.json.decode(each["data"])) for each in fields]


# ------------------------------------------------------------------------------ requests


def test_an_order_from_input_to_end(made: Service) -> None:
    assert made.begin("a").status_code == 202
    seen = events(made, "a")
    *steps, last = seen
    assert [kind for _, kind, _ in steps] == ["step"] * 6
    assert [data["state"]["done"] for _, _, data in steps[1:]] == [CHECKED[:count] for count in range(5)]
    assert (last[1], last[2]["questions"][0]["question"]) == ("waiting", "Order 3 chairs?")
    after = events(made, "a", **{"last-event-id": steps[3][0]})
    assert after == seen[4:]
    assert made.answer("a", "yes").status_code == 202
    found = made.ended("a")
    assert (found["state"]["done"], found["next"], found["questions"]) == (PLACED, [], [])
    assert made.orders() == ["3 chairs"]
    assert made.begin("a").status_code == 202  # another run of the same thread
    made.waiting("a")
    assert made.answer("a", "no").status_code == 202
    assert made.ended("a")["state"]["done"] == [*CHECKED, "answered 'no'"]
    assert made.send("DELETE", "/threads/a").status_code == 204
    assert made.send("GET", "/threads/a").status_code == 404
    assert made.orders() == ["3 chairs"]


def test_what_is_wrong_is_said_and_stores_nothing(tmp_path: Path) -> None:
    with service(tmp_path, str(tmp_path / "threads.db"), key="secret", workers=1) as made:
        assert made.send("GET", "/threads/a", headers={}).status_code == 401
        assert made.send("GET", "/threads/a", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert made.send("GET", "/health", headers={}).status_code == 200
        assert [made.send("GET", path).status_code for path in ("/threads/a", "/threads/a/events")] == [404, 404]
        assert made.send("POST", "/threads/a/runs", {"input": None}).status_code == 404
        assert made.send("POST", "/threads/a/answers", {"answers": {}}).status_code == 404
        assert made.send("POST", "/threads/a/runs", content=b"no json").status_code == 400
        for wrong in ({}, {"item": "chairs"}, {"item": "chairs", "amount": "three"}):
            refused = made.send("POST", "/threads/a/runs", {"input": wrong})
            assert refused.status_code == 422
            assert "$.input" in refused.json()["error"]
        assert "unknown field `imput`" in made.send("POST", "/threads/a/runs", {"imput": ORDER}).json()["error"]
        assert made.send("PUT", "/threads/a").status_code == 405
        assert made.send("GET", "/threads/a").status_code == 404
        assert made.begin("a").status_code == 202
        question = made.waiting("a")["questions"][0]["id"]
        assert made.begin("a").status_code == 409
        refused = made.answer("a", "yes", "0" * 32)
        assert (refused.status_code, question in refused.json()["error"]) == (409, True)
        assert made.waiting("a")["questions"][0]["id"] == question
        assert made.orders() == []


def test_of_many_answers_and_inputs_at_once_one_is_taken(made: Service) -> None:
    with ThreadPoolExecutor(8) as clients:
        for thread in ("b", "c"):
            began = list(clients.map(made.begin, [thread] * 8))
            assert Counter(each.status_code for each in began) == {202: 1, 409: 7}
            question = made.waiting(thread)["questions"][0]["id"]
            answers = ["yes", "no"] * 4
            answered = list(clients.map(made.answer, [thread] * 8, answers, [question] * 8))
            codes = [each.status_code for each in answered]
            assert Counter(codes) == {202: 1, 409: 7}
            done = made.ended(thread)["state"]["done"]
            assert done == (PLACED if answers[codes.index(202)] == "yes" else [*CHECKED, "answered 'no'"])
        same = list(clients.map(lambda _: made.begin("same", "key-1").status_code, range(8)))
        assert same == [202] * 8  # a client that repeats itself
        made.waiting("same")
        assert made.begin("same", "key-1").status_code == 202
        assert made.begin("same", "key-2").status_code == 409
        assert len([kind for _, kind, _ in events(made, "same") if kind == "step"]) == 6


def test_a_store_that_cannot_be_written_is_503_and_the_client_tries_again(tmp_path: Path) -> None:
    file = tmp_path / "threads.db"
    with service(tmp_path, str(file), workers=1, store_seconds=0.2) as made:
        lock = sqlite3.connect(file, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        refused = made.begin("a", "key")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert f"SQLite database {file}: another connection kept it locked" in refused.json()["error"]
        lock.execute("ROLLBACK")
        lock.close()
        assert made.begin("a", "key").status_code == 202
        made.waiting("a")


def test_a_thread_that_cannot_be_read_is_500_and_no_retry_helps(tmp_path: Path) -> None:
    file = tmp_path / "threads.db"
    with service(tmp_path, str(file), workers=1) as made:
        assert made.begin("a", "key").status_code == 202
        made.waiting("a")
        with sqlite3.connect(file) as store:
            store.execute("UPDATE writes SET body = x'c1'")
        store.close()
        for method in ("GET", "POST"):
            refused = made.send(method, "/threads/a") if method == "GET" else made.begin("a", "another")
            assert (refused.status_code, refused.headers.get("retry-after")) == (500, None)
            assert "could not be read" in refused.json()["error"]


# ------------------------------------------------------------------------ kill and drain


def worker_of(found: Any) -> int:
    """The process that runs a thread."""
    return int(found["state"]["worker"].rsplit("-", 2)[1])


@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.slow), "postgres"])
def test_a_run_whose_worker_is_killed_is_taken_up_by_another(tmp_path: Path, threads: str) -> None:
    with service(tmp_path, threads, step_seconds=0.4, silence_seconds=2, look_seconds=0.3) as made:
        assert made.begin("a").status_code == 202
        found = made.until("a", lambda found: len(found["state"]["done"]) == 2)
        killed = worker_of(found)
        os.kill(killed, signal.SIGKILL)
        found = made.waiting("a")
        assert found["state"]["done"] == CHECKED
        assert worker_of(found) != killed
        states = [data["state"] for _, kind, data in events(made, "a") if kind == "step"]
        taken_up = [each["worker"] for each in states[1:]]
        assert len(set(taken_up)) == 2, "one worker took it up"


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_an_order_that_was_under_way_when_its_worker_died_is_not_placed_again(tmp_path: Path, threads: str) -> None:
    with service(tmp_path, threads, step_seconds=0.6, silence_seconds=2, look_seconds=0.3) as made:
        made.begin("a")
        made.waiting("a")
        made.answer("a", "yes")
        while not made.orders():
            time.sleep(0.01)
        os.kill(worker_of(made.get("a")), signal.SIGKILL)
        (question,) = made.waiting("a")["questions"]
        assert question["question"].startswith("Was the order placed?")
        assert made.answer("a", "order 17").status_code == 202
        assert made.ended("a")["state"]["done"] == [*CHECKED, "answered 'yes'", "placed as order 17"]
        assert made.orders() == ["3 chairs"]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_a_service_that_stops_drains_and_the_next_one_goes_on(tmp_path: Path, threads: str) -> None:
    with service(tmp_path, threads, step_seconds=0.6, silence_seconds=60) as made:
        assert [made.begin(thread).status_code for thread in ("a", "b", "c")] == [202] * 3
        made.until("c", lambda found: len(found["state"]["done"]) >= 1)
        made.process.send_signal(signal.SIGTERM)
        codes = set()
        while made.process.poll() is None:
            try:
                codes |= {made.send("GET", "/ready").status_code, 1000 + made.begin("d").status_code}
            except httpx.TransportError:
                break
        assert {503, 1503} <= codes <= {200, 503, 1503, 1202, 1409}
        made.process.wait(60)
    with service(tmp_path, threads, look_seconds=60) as made:
        for thread in ("a", "b", "c"):
            assert made.waiting(thread)["state"]["done"] == CHECKED
            steps = [data for _, kind, data in events(made, thread) if kind == "step"]
            assert sum(step["state"].get("worker") == "" for step in steps) == 1
            assert len(steps) == 6 + 2  # handed back, and taken up by one worker


def test_a_node_that_takes_too_long_to_drain_is_cancelled_and_runs_again(tmp_path: Path) -> None:
    file = str(tmp_path / "threads.db")
    with service(tmp_path, file, workers=1, step_seconds=15, drain_seconds=0.2, notice_seconds=0.1) as made:
        assert made.begin("a").status_code == 202
        made.process.send_signal(signal.SIGTERM)
        made.process.wait(10)
    with service(tmp_path, file, workers=1) as made:
        assert made.waiting("a")["state"]["done"] == CHECKED
