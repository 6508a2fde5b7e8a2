"""Asks typed questions of any `POST /v1/systemone` endpoint, in the same words as a model on this machine.

`RemoteDecider` and `AsyncRemoteDecider` are two thin drivers of one core: `_Call` says what to send, and what came of
it: answers, another attempt after a while, or an error. Nothing that is not a sound answer is handed on (see
decider.reply). Needs the extra `client`.
"""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec

from decider.answers import Answers
from decider.errors import (
    BusyError,
    KeyRefusedError,
    RefusedError,
    ServerFaultError,
    StateError,
    UnreachableError,
    about_request,
)
from decider.protocol import Request
from decider.questions import QuestionLike, read_questions
from decider.rendering import CuttableState, render
from decider.reply import read_response
from decider.wire import DEFAULT_MODEL, REQUEST_ID_HEADER, check_key, key_of_environment, to_json, write_request

PATH: Final = "/v1/systemone"
BUSY: Final = (429, 503, 529)
AGAIN: Final = (408, 500, 502, 504, *BUSY)
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 8.0


class _Settings:
    """What both clients are made with."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        model: str = DEFAULT_MODEL,
        timeout: float = 10.0,
        retries: int = 2,
        longest_wait: float = 30.0,
    ) -> None:
        parts = urlsplit(url)
        # The property raises ValueError for a port that is none.
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.port == 0:
            raise ValueError(f"url is {url!r}: write the address of the server, such as http://127.0.0.1:8000")
        if retries < 0 or not 0 < timeout < float("inf") or longest_wait < 0:
            raise ValueError("retries and longest_wait must not be negative, timeout must be above 0 and finite")
        base = url.rstrip("/")
        self.endpoint = base if base.endswith(PATH) else base.removesuffix("/v1") + PATH
        self.model = model
        self.timeout = timeout
        self.retries = retries
        self.longest_wait = longest_wait
        key = key_of_environment() if key is None else key
        self.headers = {b"content-type": b"application/json"}
        if key:
            self.headers[b"authorization"] = f"Bearer {check_key(key)}".encode()


class _Call:
    """One request with its attempts: what is sent, and what came of each attempt."""

    def __init__(self, settings: _Settings, state: object, questions: Mapping[str, QuestionLike]) -> None:
        self.settings = settings
        self.questions = read_questions(questions)
        _check_state(state)
        self.body = to_json(write_request(state, self.questions, settings.model))
        self.attempts = 0

    def answered(self, response: httpx.Response) -> Answers | float:
        """Return the answers, or how many seconds to wait before the next attempt; raise when it is over."""
        self.attempts += 1
        settings = self.settings
        request_id = response.headers.get(REQUEST_ID_HEADER)
        if response.status_code == 200:
            return read_response(response.content, self.questions, settings.endpoint, request_id)
        pause = _retry_after(response.headers)
        again = response.status_code in AGAIN and self.attempts <= settings.retries
        if again and (pause is None or pause <= settings.longest_wait):
            return self._pause() if pause is None else pause
        error_type, message = _detail(response)
        kind: type[RefusedError | BusyError | ServerFaultError] = RefusedError
        if response.status_code in BUSY:
            kind = BusyError
        elif response.status_code in (401, 403):
            kind = KeyRefusedError
        elif response.status_code >= 500:
            kind = ServerFaultError
        error = kind(settings.endpoint, response.status_code, error_type, message, request_id)
        if isinstance(error, BusyError):
            error.retry_after = pause
        raise error

    def failed(self, error: httpx.RequestError) -> float:
        """Return how many seconds to wait after an attempt without a response; raise when it was the last."""
        self.attempts += 1
        if self.attempts <= self.settings.retries:
            return self._pause()
        timed_out = isinstance(error, httpx.TimeoutException)
        problem = f"no response within {self.settings.timeout:g} s" if timed_out else f"no response ({error})"
        raise UnreachableError(self.settings.endpoint, problem, self.attempts, timed_out) from error

    def _pause(self) -> float:
        return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self.attempts - 1)))


class RemoteDecider:
    """A decision model behind an endpoint; safe to use from several threads.

    `url` is the address of the server, with or without /v1/systemone. `key` is sent as a bearer key (None: that of the
    environment variable DECIDER_API_KEY, if set; "": none). `timeout` is how long, in seconds, an
    attempt may take to connect, to send, and to wait for the next bytes; `retries` further
    attempts follow when no response came, or 408, 429 or 5xx, after the pause that the server asks for (if it is not
    above `longest_wait` seconds) or a growing one. `transport` replaces the network, for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        model: str = DEFAULT_MODEL,
        timeout: float = 10.0,
        retries: int = 2,
        longest_wait: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._settings = _Settings(url, key, model, timeout, retries, longest_wait)
        self._http = httpx.Client(headers=self._settings.headers, timeout=timeout, transport=transport)

    def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        """Answer all questions about one state.

        Raises QuestionError or StateError for what cannot be asked, before anything is sent, and EndpointError for
        what went wrong there: UnreachableError, RefusedError, BusyError, ServerFaultError, ReplyError.
        """
        return self._play(_Call(self._settings, state, questions))

    def decide_many(self, requests: Sequence[Request]) -> list[Answers]:
        """Answer many states, each with its own questions, one after the other.

        Nothing is sent before all of them were checked; the first error ends it, and its note says which request.
        """
        answers = []
        for place, call in enumerate(_calls(self._settings, requests)):
            with about_request(place):
                answers.append(self._play(call))
        return answers

    def _play(self, call: _Call) -> Answers:
        while True:
            try:
                outcome = call.answered(self._http.post(self._settings.endpoint, content=call.body))
            except httpx.RequestError as error:
                outcome = call.failed(error)
            if isinstance(outcome, Answers):
                return outcome
            time.sleep(outcome)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> RemoteDecider:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncRemoteDecider:
    """RemoteDecider for coroutines: the same parameters, answers and errors."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        model: str = DEFAULT_MODEL,
        timeout: float = 10.0,
        retries: int = 2,
        longest_wait: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = _Settings(url, key, model, timeout, retries, longest_wait)
        self._http = httpx.AsyncClient(headers=self._settings.headers, timeout=timeout, transport=transport)

    async def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        """Answer all questions about one state; raises what RemoteDecider.decide raises."""
        return await self._play(_Call(self._settings, state, questions))

    async def decide_many(self, requests: Sequence[Request], at_once: int = 8) -> list[Answers]:
        """Answer many states, each with its own questions, with so many requests under way at once.

        Nothing is sent before all of them were checked; the first error ends it, and its note says which request.
        """
        if at_once < 1:
            raise ValueError(f"at_once is {at_once}: give how many requests may be under way, at least 1")
        room = asyncio.Semaphore(at_once)

        async def play(place: int, call: _Call) -> Answers:
            async with room:
                with about_request(place):
                    return await self._play(call)

        calls = enumerate(_calls(self._settings, requests))
        tasks = [asyncio.ensure_future(play(place, call)) for place, call in calls]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _play(self, call: _Call) -> Answers:
        while True:
            try:
                outcome = call.answered(await self._http.post(self._settings.endpoint, content=call.body))
            except httpx.RequestError as error:
                outcome = call.failed(error)
            if isinstance(outcome, Answers):
                return outcome
            await asyncio.sleep(outcome)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncRemoteDecider:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _calls(settings: _Settings, requests: Sequence[Request]) -> list[_Call]:
    calls = []
    for place, (state, questions) in enumerate(requests):
        with about_request(place):
            calls.append(_Call(settings, state, questions))
    return calls


def _check_state(state: object) -> None:
    parts = (state.head, state.cuttable, state.tail) if isinstance(state, CuttableState) else (state,)
    if not isinstance(state, str | dict | list | CuttableState):
        raise StateError(f"it is a {type(state).__name__}", "Give text, an object or a list.")
    try:
        for part in parts:
            render(part)
    except ValueError as error:
        raise StateError(str(error), "Give text, or data that JSON can hold.") from None


def _retry_after(headers: httpx.Headers) -> float | None:
    """Return the seconds that a response asks to wait: retry-after-ms, or Retry-After in seconds or as a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        given = headers.get(name, "").strip()
        try:
            seconds = float(given) * scale
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (KeyError, ValueError, OverflowError):
        return None


def _detail(response: httpx.Response) -> tuple[str | None, str]:
    """Return the type and the message of an error, from any of the shapes that servers use; else the body's start."""
    try:
        body = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        body = None
    found = next((body[name] for name in ("detail", "error") if name in body), body) if isinstance(body, dict) else None
    if isinstance(found, dict) and isinstance(found.get("message"), str):
        error_type = found.get("error_type", found.get("type"))
        return error_type if isinstance(error_type, str) else None, found["message"]
    if isinstance(found, list):
        faults = [fault for fault in found if isinstance(fault, dict)]
        paths = [".".join(map(str, loc)) if isinstance(loc := fault.get("loc"), list) else str(loc) for fault in faults]
        listed = "; ".join(f"{path}: {fault.get('msg')}" for path, fault in zip(paths, faults, strict=True))
        return "validation_error", listed
    if isinstance(found, str):
        return None, found
    return None, response.text[:200] or "without a body"
