"""The client, sync and async: same answers as the model itself, retries that end, typed errors, nothing unsound."""

from __future__ import annotations

import asyncio
import email.utils
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from loopback import LoopbackServer

from decider import (
    Answers,
    BusyError,
    Choice,
    CuttableState,
    Decider,
    DecisionModel,
    EndpointError,
    KeyRefusedError,
    Noul,
    QuestionError,
    QuestionLike,
    RefusedError,
    ReplyError,
    Score,
    ServerFaultError,
    StateError,
    UnreachableError,
)
from decider.client import AsyncRemoteDecider, RemoteDecider
from decider.protocol import Request
from decider.serve import ModelCard, create_app

TINY = Path(__file__).parent / "data" / "tiny_decider"
URL = "http://there"
QUESTIONS: dict[str, QuestionLike] = {
    "n": Noul("Is a seat free?"),
    "c": Choice({"baking": None, "welding": "with fire"}),
    "s": Score(["empty", "full"]),
}
GOOD = {"model": "m", "answers": {"q": {"type": "noul", "noul": 0.5}}, "usage": {"input_tokens": 1, "output_tokens": 0}}
ASKED: dict[str, QuestionLike] = {"q": Noul("Open?")}

Handler = Callable[[httpx.Request], httpx.Response]
Ask = Callable[..., Answers]


class Script:
    """Plays one outcome after the other and remembers what was asked; a float is slept through, not awaited."""

    def __init__(self, *outcomes: httpx.Response | Exception) -> None:
        self.outcomes = list(outcomes)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def ask_sync(
    handler: Handler, state: object = "a", questions: Mapping[str, QuestionLike] = ASKED, **options: object
) -> Answers:
    with RemoteDecider(URL, transport=httpx.MockTransport(handler), **options) as client:  # type: ignore[arg-type]
        return client.decide(state, questions)


def ask_async(
    handler: Handler, state: object = "a", questions: Mapping[str, QuestionLike] = ASKED, **options: object
) -> Answers:
    async def ask() -> Answers:
        transport = httpx.MockTransport(handler)
        async with AsyncRemoteDecider(URL, transport=transport, **options) as client:  # type: ignore[arg-type]
            return await client.decide(state, questions)

    return asyncio.run(ask())


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    chosen: Ask = request.param
    return chosen


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client wanted to sleep; it does not."""
    pauses: list[float] = []

    async def asleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("decider.client.time", SimpleNamespace(time=time.time, sleep=pauses.append))
    monkeypatch.setattr("decider.client.asyncio", SimpleNamespace(sleep=asleep))
    return pauses


@pytest.fixture(scope="module")
def decider() -> Decider:
    return Decider.load(TINY, "cpu", threads=1)


@pytest.fixture(scope="module")
def url(decider: Decider) -> Iterator[str]:
    with LoopbackServer(create_app(decider, ModelCard("tiny", "", "2026-11-30"), key="k")) as server:
        yield server.url


@pytest.mark.parametrize("state", ["seats free: 3", {"seats": 3}, ["a", 1], CuttableState("seats", "free " * 100, "3")])
def test_over_the_wire_the_answers_are_those_of_the_model(url: str, decider: Decider, state: object) -> None:
    with RemoteDecider(url, key="k") as client:
        assert isinstance(client, DecisionModel)
        assert client.decide(state, QUESTIONS) == decider.decide(state, QUESTIONS)

    async def many() -> list[Answers]:
        async with AsyncRemoteDecider(url + "/v1", key="k") as remote:
            return await asyncio.gather(*(remote.decide(state, QUESTIONS) for _ in range(5)))

    alone = decider.decide(state, QUESTIONS)
    for answers in asyncio.run(many()):
        assert answers["n"].noul == pytest.approx(alone["n"].noul, abs=1e-5)  # type: ignore[union-attr]


def test_a_wrong_key_and_what_the_server_refuses(url: str) -> None:
    with RemoteDecider(url, key="wrong") as client, pytest.raises(KeyRefusedError) as refused:
        client.decide("a", QUESTIONS)
    assert (refused.value.status, refused.value.error_type) == (401, "authentication_error")
    assert refused.value.request_id
    with RemoteDecider(url, key="k") as client, pytest.raises(RefusedError, match=r"body\.questions\.long") as long:
        client.decide("a", {"long": Noul("a " * 500)})
    assert long.value.status == 422
    with RemoteDecider(url, key="k", model="other") as client, pytest.raises(RefusedError, match="no model 'other'"):
        client.decide("a", QUESTIONS)


@pytest.mark.parametrize(
    "address", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/systemone"]
)
def test_the_address_may_be_given_with_or_without_its_path(address: str) -> None:
    script = Script(httpx.Response(200, json=GOOD))
    with RemoteDecider(address, transport=httpx.MockTransport(script)) as client:
        client.decide("a", ASKED)
    assert str(script.requests[0].url) == "http://h:1/v1/systemone"


def test_what_is_sent(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECIDER_API_KEY", "from the environment")
    script = Script(*[httpx.Response(200, json=GOOD) for _ in range(3)])
    ask(script, {"a": 1}, model="m1")
    ask(script, key="given")
    ask(script, key="clé")
    first, second, third = script.requests
    assert json.loads(first.content) == {
        "model": "m1",
        "state": {"a": 1},
        "questions": {"q": {"type": "noul", "instructions": "Open?"}},
    }
    assert first.headers["authorization"] == "Bearer from the environment"
    assert second.headers["authorization"] == "Bearer given"
    assert dict(third.headers.raw)[b"authorization"] == "Bearer clé".encode()
    assert first.headers["content-type"] == "application/json"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_what_passes_is_tried_again_with_growing_pauses(ask: Ask, slept: list[float], status: int) -> None:
    script = Script(httpx.Response(status), httpx.ConnectError("refused"), httpx.Response(200, json=GOOD))
    assert ask(script)["q"].noul == 0.5  # type: ignore[union-attr]
    assert slept == [0.25, 0.5]


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({"retry-after": "3"}, 3),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2),
        ({"retry-after": "-1"}, 0.25),
        ({"retry-after": "nan"}, 0.25),
        ({"retry-after": "later"}, 0.25),
        ({"retry-after": email.utils.formatdate(0)}, 0),
    ],
)
def test_the_pause_is_what_the_server_asks_for(
    ask: Ask, slept: list[float], headers: dict[str, str], pause: float
) -> None:
    ask(Script(httpx.Response(429, headers=headers), httpx.Response(200, json=GOOD)))
    assert slept == [pause]


def test_who_asks_for_too_long_a_pause_is_not_asked_again(ask: Ask, slept: list[float]) -> None:
    script = Script(
        httpx.Response(503, headers={"retry-after": "31"}, json={"detail": {"error_type": "x", "message": "y"}})
    )
    with pytest.raises(BusyError) as caught:
        ask(script)
    assert (caught.value.retry_after, caught.value.error_type, caught.value.message) == (31, "x", "y")
    assert slept == []


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (400, "no", RefusedError, "no"),
        (401, {"detail": {"error_type": "a", "message": "who?"}}, KeyRefusedError, "who?"),
        (403, {"error": {"type": "a", "message": "no entry"}}, KeyRefusedError, "no entry"),
        (404, {"detail": "nothing here"}, RefusedError, "nothing here"),
        (422, {"detail": [{"loc": ["body", "q"], "msg": "bad"}, 3]}, RefusedError, "body.q: bad"),
        (301, "", RefusedError, "without a body"),
        (429, [1], BusyError, "[1]"),
        (529, {}, BusyError, "{}"),
        (500, "<html>", ServerFaultError, "<html>"),
        (504, {"error": "slow"}, ServerFaultError, "slow"),
    ],
)
def test_errors_are_typed(
    ask: Ask, slept: list[float], status: int, body: object, error: type[EndpointError], message: str
) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        headers = {"x-typesafe-request-id": "r7"}
        return httpx.Response(status, headers=headers, text=body if isinstance(body, str) else json.dumps(body))

    with pytest.raises(error) as caught:
        ask(answer, retries=1)
    assert type(caught.value) is error
    assert (caught.value.status, caught.value.message) == (status, message)  # type: ignore[attr-defined]
    assert (caught.value.endpoint, caught.value.request_id) == ("http://there/v1/systemone", "r7")
    assert len(slept) == (status in (429, 500, 504, 529))


@pytest.mark.parametrize(("fault", "timed_out"), [(httpx.ReadTimeout("slow"), True), (httpx.ConnectError("no"), False)])
def test_no_response_at_all(ask: Ask, slept: list[float], fault: Exception, timed_out: bool) -> None:
    with pytest.raises(UnreachableError) as caught:
        ask(Script(fault, fault, fault))
    assert (caught.value.attempts, caught.value.timed_out, slept) == (3, timed_out, [0.25, 0.5])


def test_a_server_that_does_not_answer_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with RemoteDecider(address, timeout=0.1, retries=0) as client, pytest.raises(UnreachableError) as caught:
            client.decide("a", ASKED)
    assert caught.value.timed_out


def test_an_unsound_answer_is_an_error_and_not_asked_again(ask: Ask, slept: list[float]) -> None:
    lying = {**GOOD, "answers": {"q": {"type": "noul", "noul": 1.5}}}
    script = Script(httpx.Response(200, json=lying, headers={"x-typesafe-request-id": "r9"}))
    with pytest.raises(ReplyError) as caught:
        ask(script)
    assert (caught.value.question_id, caught.value.field, caught.value.request_id) == ("q", "noul", "r9")


@pytest.mark.parametrize(
    ("state", "questions", "error"),
    [
        ("a", {}, QuestionError),
        ("a", {"q": {"type": "noul"}}, QuestionError),
        (None, ASKED, StateError),
        (3, ASKED, StateError),
        ({"a": float("nan")}, ASKED, StateError),
        ({1: "a"}, ASKED, StateError),
        ("\ud800", ASKED, StateError),
    ],
)
def test_what_cannot_be_asked_is_not_sent(
    ask: Ask, state: object, questions: Mapping[str, QuestionLike], error: type[Exception]
) -> None:
    script = Script()
    with pytest.raises(error):
        ask(script, state, questions)
    assert script.requests == []


def many_sync(handler: Handler, requests: Sequence[Request]) -> list[Answers]:
    with RemoteDecider(URL, transport=httpx.MockTransport(handler), retries=0) as client:
        return client.decide_many(requests)


def many_async(handler: Handler, requests: Sequence[Request]) -> list[Answers]:
    async def ask() -> list[Answers]:
        async with AsyncRemoteDecider(URL, transport=httpx.MockTransport(handler), retries=0) as client:
            return await client.decide_many(requests, at_once=2)

    return asyncio.run(ask())


@pytest.mark.parametrize("at_once", [0, -1])
def test_no_request_at_once_is_refused(at_once: int) -> None:
    async def ask() -> None:
        async with AsyncRemoteDecider(URL, transport=httpx.MockTransport(Script())) as client, asyncio.timeout(10):
            await client.decide_many([("a", ASKED)], at_once=at_once)

    with pytest.raises(ValueError, match="at_once is"):
        asyncio.run(ask())


@pytest.mark.parametrize("many", [many_sync, many_async])
def test_many_states_keep_their_order_and_an_error_says_which_it_was(
    many: Callable[[Handler, Sequence[Request]], list[Answers]],
) -> None:
    sent: list[str] = []

    def share(request: httpx.Request) -> httpx.Response:
        state = json.loads(request.content)["state"]
        sent.append(state)
        if state == "wrong":
            return httpx.Response(400, text="no")
        answer = {"type": "noul", "noul": int(state) / 10}
        return httpx.Response(200, json={**GOOD, "answers": {"q": answer}})

    answers = many(share, [(str(number), ASKED) for number in range(10)])
    assert [each.nouls["q"].noul for each in answers] == [number / 10 for number in range(10)]
    assert many(share, []) == []
    with pytest.raises(RefusedError) as refused:
        many(share, [("1", ASKED), ("wrong", ASKED)])
    assert refused.value.__notes__ == ["This was request 1 of the call, counted from 0."]
    sent.clear()
    with pytest.raises(QuestionError) as caught:
        many(share, [("1", ASKED), ("2", ASKED), ("3", {"q": {"type": "noul"}})])
    assert caught.value.__notes__ == ["This was request 2 of the call, counted from 0."]
    assert sent == []


@pytest.mark.parametrize(
    "options",
    [
        {"url": "there"},
        {"url": "ftp://there"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"retries": -1},
        {"key": "k\n"},
        {"key": " k"},
    ],
)
@pytest.mark.parametrize("client", [RemoteDecider, AsyncRemoteDecider])
def test_settings_that_mean_nothing_are_refused(client: type, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^(url|retries|the key)"):
        client(**{"url": URL, **options})


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"[Pp]ort"):
        RemoteDecider("http://127.0.0.1:99999")
