"""An HTTP server for `POST /v1/systemone`: any client of typed questions can ask a model that runs here.

    POST /v1/systemone    the questions (see decider.wire)
    GET  /v1/models       which model answers, and by which names
    GET  /metrics         counts and times, as Prometheus reads them

Errors are {"detail": {"error_type", "message"}}; for a body that cannot be answered 422 with {"detail": [{"loc", "msg",
"type"}, ...]}. Each response names its request in the header x-typesafe-request-id. The model runs on a thread of its
own, and requests that arrive together share a pass; when too many wait, the answer is 529 with Retry-After.
Needs the extra `serve`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from decider.batcher import MicroBatcher
from decider.errors import (
    BatcherClosedError,
    OverloadedError,
    QuestionError,
    RequestError,
    RequestFault,
    RequestTooLargeError,
    StateError,
)
from decider.passes import check_waste
from decider.protocol import BatchModel
from decider.serve_metrics import Metrics
from decider.stream import CPU_PASS
from decider.wire import (
    DEFAULT_MODEL,
    REQUEST_ID_HEADER,
    check_key,
    question_fault,
    read_request,
    to_json,
    write_question,
    write_response,
)

RETRY_AFTER_SECONDS: Final = 1
# Where the body may not have arrived: what follows on the connection would be the rest of it.
CLOSE: Final = {"connection": "close"}
ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "method_not_allowed_error",
    408: "request_timeout_error",
    413: "request_too_large_error",
    500: "internal_server_error",
    503: "unavailable_error",
    529: "overloaded_error",
}

_log = logging.getLogger("decider.serve")


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What /v1/models says about the model; `name` and "jev-latest" are the names it answers to."""

    name: str
    description: str
    release_date: str


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one server takes on: bytes of a body, questions of a request, requests that wait for a pass at once.

    A body must have arrived after `body_seconds`. `pass_cells` and `pass_waste` bound what shares a pass, as in
    Decider.decide_encoded; the defaults suit a CPU.
    """

    body_bytes: int = 1 << 18
    body_seconds: float = 10.0
    questions: int = 1000
    waiting: int = 256
    pass_cells: int = CPU_PASS
    pass_waste: float = 0.25

    def __post_init__(self) -> None:
        if min(self.body_bytes, self.questions, self.waiting, self.pass_cells) < 1:
            raise ValueError(f"every limit of a server must be at least 1: {self}")
        if not 0 < self.body_seconds < float("inf"):
            raise ValueError(f"body_seconds is {self.body_seconds}: give a time in seconds, above 0")
        check_waste(self.pass_waste)


def create_app(
    model: BatchModel, card: ModelCard, key: str | None = None, limits: ServerLimits | None = None
) -> ASGIApp:
    """Return the ASGI application that answers with a model.

    With a `key`, every request needs the header `Authorization: Bearer KEY`; without one, any header is accepted.
    Raises ValueError for a key that no header could carry.
    """
    if key is not None:
        check_key(key)
    limits = limits or ServerLimits()
    metrics = Metrics()
    service = _Service(model, card, limits, metrics)
    app = Starlette(
        routes=[
            Route("/v1/systemone", service.answer, methods=["POST"]),
            Route("/v1/models", service.models, methods=["GET"]),
            Route("/metrics", service.metrics, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _fault_of_ours},
        lifespan=service.lifespan,
    )
    return _Outside(app, key, metrics)


def run_server(app: ASGIApp, host: str, port: int, grace_seconds: int = 30) -> None:
    """Serve until SIGINT or SIGTERM; then take no new requests and let those under way finish within the grace."""
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="info",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=grace_seconds,
    )


class _Service:
    """The three endpoints over one model."""

    def __init__(self, model: BatchModel, card: ModelCard, limits: ServerLimits, metrics: Metrics) -> None:
        self.model = model
        self.card = card
        self.limits = limits
        self.measured = metrics
        self.batcher: MicroBatcher | None = None

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Hold the queue in front of the model while the server runs; stopping answers whoever waits."""
        limits = self.limits
        async with MicroBatcher(
            self.model,
            max_waiting=limits.waiting,
            when_full="refuse",
            max_waste=limits.pass_waste,
            max_cells=limits.pass_cells,
        ) as self.batcher:
            yield

    async def answer(self, request: Request) -> Response:
        """POST /v1/systemone."""
        try:
            return await self._answer(request)
        except RequestError as error:
            return _faults(error)
        except RequestTooLargeError as error:
            return error_response(413, str(error))
        except OverloadedError as error:
            return error_response(529, str(error), {"retry-after": str(RETRY_AFTER_SECONDS)})
        except BatcherClosedError:
            return _stopping()
        except ClientDisconnect:
            return error_response(400, "The request ended before its body did.")

    async def _answer(self, request: Request) -> Response:
        asked = read_request(await self._body(request))
        if asked.model not in (DEFAULT_MODEL, self.card.name):
            names = f"{DEFAULT_MODEL!r} or {self.card.name!r}"
            return error_response(404, f"There is no model {asked.model!r} here. Ask for {names}.")
        if len(asked.questions) > self.limits.questions:
            rule = f"{len(asked.questions)} questions; at most {self.limits.questions} in one request"
            raise RequestError([RequestFault(("body", "questions"), rule, "too_long")])
        if self.batcher is None:
            raise RuntimeError("the application was not started: run it with a server that speaks ASGI's lifespan")
        try:
            answers = await self.batcher.decide(asked.state, asked.questions)
        except QuestionError as error:
            question = asked.questions[str(error.question_id)]
            raise RequestError([question_fault(error, write_question(question))]) from error
        except StateError as error:
            raise RequestError([RequestFault(("body", "state"), str(error), "value_error")]) from error
        self.measured.answered(answers)
        return json_response(200, write_response(answers, asked.ignored))

    async def models(self, _: Request) -> Response:
        """GET /v1/models."""
        described = {"description": self.card.description, "release_date": self.card.release_date}
        names = dict.fromkeys((self.card.name, DEFAULT_MODEL))
        return json_response(200, {"models": [{"name": name, **described} for name in names]})

    async def metrics(self, _: Request) -> Response:
        """GET /metrics."""
        text, media_type = self.measured.page()
        return Response(text, media_type=media_type)

    async def _body(self, request: Request) -> bytes:
        """Read the body, and stop as soon as it is too long or takes too long."""
        limit, seconds = self.limits.body_bytes, self.limits.body_seconds
        too_long = HTTPException(413, f"The body has more than {limit} bytes.", CLOSE)
        told = request.headers.get("content-length", "")
        if told.isdecimal() and int(told) > limit:
            raise too_long
        body = bytearray()
        try:
            async with asyncio.timeout(seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > limit:
                        raise too_long
        except TimeoutError:
            raise HTTPException(408, f"The body had not arrived after {seconds:g} s.", CLOSE) from None
        return bytes(body)


class _Outside:
    """What holds for every request: its id, the key, the count, and an answer even where the code has a fault."""

    def __init__(self, app: ASGIApp, key: str | None, metrics: Metrics) -> None:
        self.app = app
        self.key = None if key is None else key.encode()
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = uuid.uuid4().hex
        status = 0

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (REQUEST_ID_HEADER.encode(), request_id.encode())]
            await send(message)

        with self.metrics.request(scope["path"], lambda: status):
            if not self._allowed(scope):
                refusal = error_response(
                    401, "Send the header Authorization: Bearer KEY.", {"www-authenticate": "Bearer", **CLOSE}
                )
                await refusal(scope, receive, named)
                return
            scope[REQUEST_ID_HEADER] = request_id
            try:
                await self.app(scope, receive, named)
            except asyncio.CancelledError:
                if status:
                    raise
                # The time for stopping is over, and the server ends what is under way: a caller is told even then.
                await _stopping()(scope, receive, named)
            except Exception:
                if status != 500:
                    raise
                _log.exception("request %s failed", request_id)

    def _allowed(self, scope: Scope) -> bool:
        if self.key is None:
            return True
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, key = given.partition(b" ")
        return bool(kind.lower() == b"bearer") and hmac.compare_digest(key.strip(), self.key)


def json_response(status: int, fields: object, headers: dict[str, str] | None = None) -> Response:
    """Return fields as a JSON response."""
    return Response(to_json(fields), status, headers, "application/json")


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error in the shape that clients of this interface read."""
    return json_response(status, {"detail": {"error_type": ERROR_TYPES[status], "message": message}}, headers)


def _stopping() -> Response:
    return error_response(503, "The server is stopping.", {"retry-after": str(RETRY_AFTER_SECONDS), **CLOSE})


def _faults(error: RequestError) -> Response:
    listed = [{"loc": list(fault.loc), "msg": fault.msg, "type": fault.type} for fault in error.faults]
    return json_response(422, {"detail": listed})


def _fault_of_ours(request: Request, _: Exception) -> Response:
    return error_response(500, f"The server failed; its log names request {request.scope[REQUEST_ID_HEADER]}.")


def _http_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return error_response(error.status_code, error.detail, dict(error.headers or {}))
