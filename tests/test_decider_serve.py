"""The server over real HTTP: shapes of errors, the key, limits, metrics, crowds, and an end without lost answers."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from loopback import LoopbackServer

from decider import Answers, Decider, Encoded, QuestionLike
from decider.cli import make_parser
from decider.client import RemoteDecider
from decider.protocol import BatchModel, Picked
from decider.rows import AnyRow
from decider.serve import ERROR_TYPES, ModelCard, ServerLimits, create_app
from decider.wire import key_of_environment, write_response

TINY = Path(__file__).parent / "data" / "tiny_decider"
CARD = ModelCard("tiny", "A tiny model.", "2026-11-30")
NOUL = {"type": "noul", "instructions": "Is a seat free?"}
CHOICE = {"type": "choice", "criteria": {"baking": None, "welding": "with fire"}}
SCORE = {"type": "score", "instructions": "How full?", "criteria": ["empty", "full"]}
QUESTIONS: dict[str, QuestionLike] = {"n": NOUL, "c": CHOICE, "s": SCORE}


@pytest.fixture(scope="module")
def decider() -> Decider:
    return Decider.load(TINY, "cpu", threads=1)


@pytest.fixture(scope="module")
def url(decider: Decider) -> Iterator[str]:
    with LoopbackServer(create_app(decider, CARD)) as server:
        yield server.url


def ask(
    url: str,
    questions: object = QUESTIONS,
    state: object = "seats free: 3",
    authorization: bytes | None = None,
    **extra: object,
) -> httpx.Response:
    headers = {} if authorization is None else {b"Authorization": authorization}
    body = {"model": "jev-latest", "state": state, "questions": questions, **extra}
    return httpx.post(url + "/v1/systemone", json=body, headers=headers, timeout=30)


def wait_for_requests(url: str, count: int) -> None:
    """Wait until so many requests are under way, the one that looks included."""
    until = time.monotonic() + 20
    while f"decider_requests_under_way {float(count)}" not in httpx.get(url + "/metrics").text:
        assert time.monotonic() < until
        time.sleep(0.01)


def error_of(response: httpx.Response) -> str:
    detail = response.json()["detail"]
    assert set(detail) == {"error_type", "message"}
    assert detail["message"]
    return str(detail["error_type"])


def test_the_answers_are_those_of_the_model(url: str, decider: Decider) -> None:
    response = ask(url)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == json.loads(json.dumps(write_response(decider.decide("seats free: 3", QUESTIONS))))


def test_each_response_names_its_request(url: str) -> None:
    responses = [ask(url), ask(url), httpx.get(url + "/nowhere"), ask(url, {})]
    assert len({response.headers["x-typesafe-request-id"] for response in responses}) == 4


def test_the_model_is_listed_by_both_names_and_answers_to_them(url: str) -> None:
    models = httpx.get(url + "/v1/models").json()["models"]
    assert [model["name"] for model in models] == ["tiny", "jev-latest"]
    assert {(model["description"], model["release_date"]) for model in models} == {("A tiny model.", "2026-11-30")}
    assert ask(url, model="tiny").status_code == 200
    assert ask(url, model="tiny").json()["model"] == "tiny"
    refused = ask(url, model="another")
    assert (refused.status_code, error_of(refused)) == (404, "not_found_error")


@pytest.mark.parametrize(
    ("questions", "state", "loc"),
    [
        ({"q": {"type": "noul"}}, "a", ["body", "questions", "q", "noul", "instructions"]),
        (
            {"q": NOUL, "w": {**NOUL, "instructions": "a " * 500}},
            "a",
            ["body", "questions", "w", "noul", "instructions"],
        ),
        ({"q": NOUL}, "", ["body", "state"]),
        ({"q": NOUL}, "a " * 5000, ["body", "state"]),
        ({"q": NOUL}, {"a": float(10**300)}, None),
        ({str(number): NOUL for number in range(1001)}, "a", ["body", "questions"]),
    ],
)
def test_what_cannot_be_asked_is_422_with_the_place(
    url: str, questions: object, state: object, loc: list[str] | None
) -> None:
    response = ask(url, questions, state)
    if loc is None:
        assert response.status_code == 200
        return
    assert response.status_code == 422
    (fault,) = response.json()["detail"]
    assert fault["loc"] == loc
    assert set(fault) == {"loc", "msg", "type"}


@pytest.mark.parametrize("depth", [200, 900, 990, 5000])
def test_deep_nesting_is_no_fault_of_the_server(url: str, depth: int) -> None:
    state = b"[" * depth + b"1" + b"]" * depth
    body = b'{"model":"jev-latest","questions":{"q":{"type":"noul","instructions":"a"}},"state":' + state + b"}"
    assert httpx.post(url + "/v1/systemone", content=body, timeout=30).status_code in (200, 422)


@pytest.mark.parametrize(
    ("method", "path", "status", "error_type"),
    [
        ("GET", "/nowhere", 404, "not_found_error"),
        ("GET", "/v1/systemone", 405, "method_not_allowed_error"),
        ("POST", "/v1/models", 405, "method_not_allowed_error"),
    ],
)
def test_other_errors_have_the_other_shape(url: str, method: str, path: str, status: int, error_type: str) -> None:
    response = httpx.request(method, url + path)
    assert (response.status_code, error_of(response)) == (status, error_type)


def test_a_state_says_which_part_may_be_cut(url: str, decider: Decider) -> None:
    long = "seats " * decider.layout.limits.state
    text = f"facts\n{long}\nmore"
    cut = ask(url, state=text, x_cuttable=[6, 6 + len(long)])
    assert cut.status_code == 200
    assert cut.json()["x_truncated"] > 0
    assert cut.json()["answers"] != ask(url, state=text).json()["answers"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_body_above_the_limit_is_413(decider: Decider, streamed: bool) -> None:
    limits = ServerLimits(body_bytes=1000)
    body = json.dumps({"model": "jev-latest", "state": "a" * 2000, "questions": {"q": NOUL}}).encode()

    def parts() -> Iterator[bytes]:
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    with LoopbackServer(create_app(decider, CARD, limits=limits)) as server:
        response = httpx.post(server.url + "/v1/systemone", content=parts() if streamed else body)
        assert (response.status_code, error_of(response)) == (413, "request_too_large_error")
        assert ask(server.url, {"q": NOUL}, "short").status_code == 200


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/nowhere"])
def test_with_a_key_nothing_is_open(decider: Decider, path: str) -> None:
    with LoopbackServer(create_app(decider, CARD, key="sécret")) as server:
        right = "Bearer sécret".encode()
        for given in (None, b"Bearer wrong", b"Basic " + right[7:], b"Bearer", right + b"x", b"\xff"):
            headers = {} if given is None else {b"Authorization": given}
            refused = httpx.get(server.url + path, headers=headers)
            assert (refused.status_code, error_of(refused)) == (401, "authentication_error")
            assert refused.headers["www-authenticate"] == "Bearer"
        assert httpx.get(server.url + path, headers={b"Authorization": right}).status_code in (200, 404)
        assert ask(server.url, authorization=b"bearer " + right[7:]).status_code == 200


def test_without_a_key_any_header_is_accepted(url: str) -> None:
    assert ask(url, authorization=b"Bearer whatever").status_code == 200


def test_metrics_count_what_happened(decider: Decider) -> None:
    with LoopbackServer(create_app(decider, CARD)) as server:
        tokens = sum(ask(server.url).json()["usage"]["input_tokens"] for _ in range(2))
        ask(server.url, {})
        httpx.get(server.url + "/somewhere")
        page = httpx.get(server.url + "/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=")
    lines = set(page.text.splitlines())
    assert lines >= {
        'decider_requests_total{path="/v1/systemone",status="200"} 2.0',
        'decider_requests_total{path="/v1/systemone",status="422"} 1.0',
        'decider_requests_total{path="other",status="404"} 1.0',
        'decider_questions_total{type="score"} 2.0',
        f"decider_input_tokens_total {float(tokens)}",
        "decider_truncated_total 0.0",
        "decider_requests_under_way 1.0",  # the one that reads this page
        'decider_request_seconds_count{path="/v1/systemone"} 3.0',
    }


def test_the_page_about_the_server_knows_its_statuses_metrics_and_defaults(decider: Decider) -> None:
    page = (Path(__file__).parent.parent / "docs" / "decider-server.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if re.match(r"\| \d", line)]
    assert {int(status) for row in rows for status in row.split(",")} == {*ERROR_TYPES, 422} - {400}
    with LoopbackServer(create_app(decider, CARD)) as server:
        ask(server.url)
        counted = httpx.get(server.url + "/metrics").text
        told = ask(server.url).json()
    named = set(re.findall(r"`(decider_\w+)`", page))
    assert len(named) == 6
    assert {name for name in named if name not in counted} == set()
    assert {field for field in told if field.startswith("x_") and f"`{field}`" not in page} == set()
    assert ServerLimits().body_bytes == make_parser().parse_args(["serve"]).body_limit == 256 * 1024
    assert ServerLimits().body_seconds == make_parser().parse_args(["serve"]).body_time == 10
    assert "256 KiB" in page
    assert "10 seconds" in page


class Held(BatchModel):
    """Answers with the tiny model as soon as it may; keeps how many rows each pass was offered."""

    def __init__(self, decider: Decider, error: Exception | None = None) -> None:
        self.decider = decider
        self.error = error
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.steps: threading.Semaphore | None = None
        self.passes: list[int] = []

    def encode(self, state: object, questions: Mapping[str, QuestionLike]) -> Encoded:
        return self.decider.encode(state, questions)

    def run_pass(
        self, rows: Sequence[AnyRow], max_waste: float = 1.0, max_cells: int | None = None
    ) -> Mapping[int, Picked]:
        self.passes.append(len(rows))
        self.entered.set()
        assert self.gate.wait(20) if self.steps is None else self.steps.acquire(timeout=20)
        if self.error is not None:
            raise self.error
        return self.decider.run_pass(rows, max_waste, max_cells)

    def answer(self, encoded: Encoded, picked: Sequence[Picked]) -> Answers:
        return self.decider.answer(encoded, picked)


def test_the_event_loop_is_free_while_the_model_runs_and_callers_share_a_pass(decider: Decider) -> None:
    model = Held(decider)
    with LoopbackServer(create_app(model, CARD)) as server, ThreadPoolExecutor(8) as pool:
        first = pool.submit(ask, server.url)
        assert model.entered.wait(20)
        others = [pool.submit(ask, server.url) for _ in range(5)]
        wait_for_requests(server.url, 7)
        model.gate.set()
        answers = [each.result(20) for each in (first, *others)]
    assert [each.status_code for each in answers] == [200] * 6
    assert len({each.text for each in answers}) == 1
    assert model.passes == [1, 5]


def test_a_thousand_questions_hold_nobody_up_for_longer_than_a_pass(decider: Decider) -> None:
    """The large request takes many passes; who comes during one of them is answered by the next."""
    model = Held(decider)
    model.steps = steps = threading.Semaphore(0)
    thousand = {f"q{number}": NOUL for number in range(1000)}
    limits = ServerLimits(pass_cells=20_000)
    with LoopbackServer(create_app(model, CARD, limits=limits)) as server, ThreadPoolExecutor(2) as pool:
        large = pool.submit(ask, server.url, thousand)
        assert model.entered.wait(20)
        for number in range(3):
            small = pool.submit(ask, server.url, {"q": NOUL}, f"seats free: {number}")
            wait_for_requests(server.url, 3)
            before = len(model.passes)
            steps.release(2)  # the pass that runs, and the next one
            assert small.result(20).status_code == 200
            assert model.passes[before] == 1
        steps.release(1000)
        answers = large.result(60).json()["answers"]
    assert len(answers) == 1000
    nouls = [answer["noul"] for answer in answers.values()]
    assert nouls == pytest.approx([nouls[0]] * 1000, abs=1e-5)
    assert len(model.passes) > 20


def connection(server: LoopbackServer, sent: bytes) -> socket.socket:
    """Send the beginning of a request."""
    opened = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    opened.sendall(sent)
    return opened


def received(opened: socket.socket) -> tuple[int, dict[str, str], str]:
    """The status and the headers of what the server said until it closed the connection, and the type of its error."""
    with opened:
        said = b"".join(iter(lambda: opened.recv(4096), b""))
    head, _, body = said.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, json.loads(body)["detail"]["error_type"]


BEGINNING = b"POST /v1/systemone HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n{"


def test_a_body_that_does_not_arrive_is_408(decider: Decider) -> None:
    limits = ServerLimits(body_seconds=0.2)
    with LoopbackServer(create_app(decider, CARD, limits=limits)) as server:
        opened = connection(server, BEGINNING)
        status, headers, error_type = received(opened)
        assert (status, error_type) == (408, "request_timeout_error")
        assert headers["connection"] == "close"
        assert "x-typesafe-request-id" in headers
        assert ask(server.url).status_code == 200


def test_stopping_tells_those_whose_body_has_not_arrived(decider: Decider) -> None:
    """The grace is over before the body is there: 503 in the shape of all errors, not the server's plain 500."""
    with LoopbackServer(create_app(decider, CARD, limits=ServerLimits(body_seconds=60)), grace_seconds=1) as server:
        opened = connection(server, BEGINNING)
        wait_for_requests(server.url, 2)
        server.stop()
        status, headers, error_type = received(opened)
        assert (status, error_type, headers["retry-after"]) == (503, "unavailable_error", "1")
        assert server.join()


def test_stopping_tells_those_whose_pass_takes_too_long(decider: Decider) -> None:
    model = Held(decider)
    with LoopbackServer(create_app(model, CARD), grace_seconds=1) as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server.url)
        assert model.entered.wait(20)
        server.stop()
        refused = answer.result(20)
        model.gate.set()
        assert (refused.status_code, error_of(refused)) == (503, "unavailable_error")
        assert server.join()


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b'{"model": "m", "state": "a", "state": "b", "questions": {}}', ["state"]),
        (b'{"model": "m", "state": {"a": [{"k": 1, "k": 1}]}, "questions": {}}', ["state", "a", 0, "k"]),
        (
            b'{"model": "m", "state": "a", "questions": {"q": {"type": "noul", "type": "score"}}}',
            ["questions", "q", "type"],
        ),
    ],
)
def test_a_key_that_stands_twice_is_422_and_named(url: str, body: bytes, place: list[str | int]) -> None:
    response = httpx.post(url + "/v1/systemone", content=body)
    assert response.status_code == 422
    (fault,) = response.json()["detail"]
    assert fault["loc"] == ["body", *place]
    assert repr(place[-1]) in fault["msg"]


def test_fields_that_nobody_reads_are_named_in_the_response(url: str) -> None:
    assert ask(url, x_cutable=[0, 1], seed=7).json()["x_ignored"] == ["x_cutable", "seed"]
    assert "x_ignored" not in ask(url).json()


@pytest.mark.parametrize(
    "wrong",
    [
        {"body_bytes": 0},
        {"body_seconds": 0},
        {"body_seconds": float("nan")},
        {"questions": -1},
        {"waiting": 0},
        {"pass_cells": 0},
        {"pass_waste": 2},
    ],
)
def test_senseless_limits_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|body_seconds|max_waste"):
        ServerLimits(**wrong)  # type: ignore[arg-type]


def test_too_many_waiting_are_told_to_come_again(decider: Decider) -> None:
    model = Held(decider)
    with (
        LoopbackServer(create_app(model, CARD, limits=ServerLimits(waiting=1))) as server,
        ThreadPoolExecutor(3) as pool,
    ):
        first = pool.submit(ask, server.url)
        assert model.entered.wait(20)
        second = pool.submit(ask, server.url)
        wait_for_requests(server.url, 3)
        refused = ask(server.url)
        model.gate.set()
        assert (first.result(20).status_code, second.result(20).status_code) == (200, 200)
    assert (refused.status_code, error_of(refused), refused.headers["retry-after"]) == (529, "overloaded_error", "1")


def test_a_fault_of_the_model_is_500_and_named_in_the_log(decider: Decider, caplog: pytest.LogCaptureFixture) -> None:
    model = Held(decider, RuntimeError("out of order"))
    model.gate.set()
    with LoopbackServer(create_app(model, CARD)) as server:
        response = ask(server.url)
        assert (response.status_code, error_of(response)) == (500, "internal_server_error")
        assert ask(server.url).status_code == 500
    request_id = response.headers["x-typesafe-request-id"]
    assert request_id in response.json()["detail"]["message"]
    assert any(request_id in record.getMessage() for record in caplog.records)
    assert "out of order" not in response.text


def wait_until_nobody_listens(url: str) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            httpx.get(url + "/v1/models", timeout=5)
        except httpx.ConnectError:
            return
        time.sleep(0.02)
    raise AssertionError("the server still takes requests")


def test_stopping_answers_what_is_under_way(decider: Decider) -> None:
    model = Held(decider)
    with LoopbackServer(create_app(model, CARD)) as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server.url)
        assert model.entered.wait(20)
        server.stop()
        wait_until_nobody_listens(server.url)
        assert not answer.done()
        model.gate.set()
        assert answer.result(20).status_code == 200
        assert server.join()


def test_a_caller_who_leaves_harms_nobody(url: str) -> None:
    async def leave() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST /v1/systemone HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        del reader

    asyncio.run(leave())
    assert ask(url).status_code == 200


@pytest.mark.parametrize("key", ["", "secret\n", " secret", "secret ", "se\ncret", "\ud800"])
def test_a_key_that_no_header_carries_is_refused_at_the_start(
    decider: Decider, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one rule, whoever is given it and however."""
    with pytest.raises(ValueError, match="no header can carry it"):
        create_app(decider, CARD, key)
    if not key:
        return
    with pytest.raises(ValueError, match="no header can carry it"):
        RemoteDecider("http://there", key=key)
    monkeypatch.setattr("decider.wire.os.environ", {"DECIDER_API_KEY": key})
    with pytest.raises(ValueError, match="no header can carry it"):
        RemoteDecider("http://there")
    with pytest.raises(ValueError, match="no header can carry it"):
        key_of_environment()
