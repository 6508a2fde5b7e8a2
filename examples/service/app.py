"""The HTTP side: `uvicorn --app-dir examples service.app:app --workers 2`. Settings come from the environment."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from minigraph import StateSnapshot
from minigraph.errors import (
    DecodeError,
    InvalidUpdateError,
    StorageError,
    ThreadConflictError,
    UnknownInterruptError,
)
from service.orders import Order, RunUnderWayError, Shop, order_graph
from service.runs import Runs, config_of
from service.settings import Settings, open_saver
from service.views import shown, steps


class NewRun(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /threads/{id}/runs; without input a failed run goes on. `key` makes a repeat harmless."""

    input: Order | None = None
    key: str = ""


class Answers(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /threads/{id}/answers: answers by the ids of the questions."""

    answers: dict[str, Any]


class Refused(Exception):
    """Ends a request with a status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Opens what a worker needs, looks for threads that were left, and closes in order."""
    settings = app.state.settings = Settings.read()
    saver = open_saver(settings)
    graph = order_graph(saver, Shop(Path(settings.orders), settings.step_seconds))
    runs = app.state.runs = Runs(graph, saver, timedelta(seconds=settings.silence_seconds))
    drain_on_sigterm(runs, settings)
    looking = asyncio.create_task(runs.take_up_for_ever(settings.look_seconds))
    yield
    looking.cancel()
    await runs.drain(settings.drain_seconds)
    saver.close()


def drain_on_sigterm(runs: Runs, settings: Settings) -> None:
    """Drains first, and lets the server stop afterwards."""
    stop_server, loop = signal.getsignal(signal.SIGTERM), asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []

    async def drained(number: int) -> None:
        notice = asyncio.sleep(settings.notice_seconds)
        await asyncio.gather(notice, runs.drain(settings.drain_seconds))
        if callable(stop_server):
            stop_server(number, None)

    def on_signal(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(lambda: stopping.append(asyncio.create_task(drained(number))))

    signal.signal(signal.SIGTERM, on_signal)


# ---------------------------------------------------------------------------- requests


def json(content: object, status: int = 200) -> Response:
    """A JSON response."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")


async def thread(request: Request) -> tuple[str, StateSnapshot]:
    """The thread that a request is about; 404 if there is none."""
    thread_id = request.path_params["id"]
    found = await request.app.state.runs.graph.aget_state(config_of(thread_id))
    if found.metadata is None:
        raise Refused(404, f"there is no thread {thread_id!r}")
    return thread_id, found


def runs_of(request: Request) -> Runs:
    """The runs of this worker; 503 where it takes no new ones."""
    runs: Runs = request.app.state.runs
    if runs.draining:
        raise Refused(503, "this worker stops; another one takes the request")
    return runs


async def post_run(request: Request) -> Response:
    """Begins a run with an input, or goes on with one that failed. 202 says that it is stored."""
    runs, thread_id = runs_of(request), request.path_params["id"]
    body = msgspec.json.decode(await request.body(), type=NewRun)
    if body.input is not None:
        await runs.begin(thread_id, body.input, body.key or secrets.token_hex(16))
    else:
        _, found = await thread(request)
        if found.interrupts or not found.next:
            raise Refused(409, "nothing is due that could go on: answer the questions, or send an input")
        await runs.go_on(thread_id)
    return json({"thread": thread_id}, 202)


async def get_thread(request: Request) -> Response:
    """The state and the open questions of a thread."""
    return json(shown((await thread(request))[1]))


async def post_answers(request: Request) -> Response:
    """Answers questions. 409 where one of them is not open, for example since somebody else was quicker."""
    runs, body = runs_of(request), msgspec.json.decode(await request.body(), type=Answers)
    thread_id, _ = await thread(request)
    await runs.answer(thread_id, body.answers)
    return json({"thread": thread_id}, 202)


async def delete_thread(request: Request) -> Response:
    """Forgets a thread. A run of it that is under way, in whatever worker, stops at its next save."""
    await request.app.state.runs.saver.adelete_thread(request.path_params["id"])
    return Response(status_code=204)


async def get_events(request: Request) -> Response:
    """The steps of a thread as server-sent events, as they are stored, by whatever worker."""
    thread_id, _ = await thread(request)
    events = steps(request.app.state.runs, thread_id, request.headers.get("last-event-id"))
    return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-store"})


async def health(request: Request) -> Response:
    """The process answers."""
    return json({"worker": request.app.state.runs.worker})


async def ready(request: Request) -> Response:
    """Whether the worker takes requests: it does not stop, and its store can be read."""
    runs = runs_of(request)
    await runs.saver.aget("ready?", "")
    return json({"worker": runs.worker})


# -------------------------------------------------------------------------------- app


def refuse(status: int) -> Callable[[Request, Exception], Response]:
    """Turns an error into a response with this status and the error's text."""

    def handler(request: Request, error: Exception) -> Response:
        response = json({"error": str(error)}, error.status if isinstance(error, Refused) else status)
        if response.status_code == 503:
            response.headers["retry-after"] = "1"
        return response

    return handler


class BearerKey:
    """401 for requests without the bearer token, where one is set; health and readiness are open."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] not in ("/health", "/ready"):
            key = scope["app"].state.settings.key
            given = Request(scope).headers.get("authorization", "")
            if key and not hmac.compare_digest(given.encode(), f"Bearer {key}".encode()):
                await json({"error": "send Authorization: Bearer KEY"}, 401)(scope, receive, send)
                return
        await self.app(scope, receive, send)


app = Starlette(
    lifespan=lifespan,
    middleware=[Middleware(BearerKey)],
    routes=[
        Route("/threads/{id}/runs", post_run, methods=["POST"]),
        Route("/threads/{id}/answers", post_answers, methods=["POST"]),
        Route("/threads/{id}/events", get_events),
        Route("/threads/{id}", get_thread),
        Route("/threads/{id}", delete_thread, methods=["DELETE"]),
        Route("/health", health),
        Route("/ready", ready),
    ],
    exception_handlers={
        Refused: refuse(400),
        msgspec.DecodeError: refuse(400),
        msgspec.ValidationError: refuse(422),
        InvalidUpdateError: refuse(422),
        UnknownInterruptError: refuse(409),
        ThreadConflictError: refuse(409),
        RunUnderWayError: refuse(409),
        DecodeError: refuse(500),
        StorageError: refuse(503),
    },
)
