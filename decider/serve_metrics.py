"""What a server counts, in the text form that Prometheus reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from decider.answers import Answers

PATHS: Final = ("/v1/systemone", "/v1/models", "/metrics")
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counters of one server; each has a registry of its own, so that two servers in a process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "decider_requests", "Requests by path and status.", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "decider_request_seconds",
            "Time from request to response.",
            ["path"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._under_way = Gauge("decider_requests_under_way", "Requests not yet answered.", registry=self._registry)
        self._questions = Counter(
            "decider_questions", "Questions answered, by type.", ["type"], registry=self._registry
        )
        self._tokens = Counter("decider_input_tokens", "Tokens read, without padding.", registry=self._registry)
        self._truncated = Counter("decider_truncated", "Requests whose state had to be cut.", registry=self._registry)

    @contextmanager
    def request(self, path: str, status: Callable[[], int]) -> Iterator[None]:
        """Count a request while it is under way and, when it is done, with the status it got (0: none)."""
        known = path if path in PATHS else "other"
        began = time.perf_counter()
        with self._under_way.track_inprogress():
            try:
                yield
            finally:
                self._requests.labels(known, str(status())).inc()
                self._seconds.labels(known).observe(time.perf_counter() - began)

    def answered(self, answers: Answers) -> None:
        """Count the answers to one request."""
        for kind, found in (("noul", answers.nouls), ("choice", answers.choices), ("score", answers.scores)):
            self._questions.labels(kind).inc(len(found))
        self._tokens.inc(answers.usage.input_tokens)
        self._truncated.inc(answers.truncated > 0)

    def page(self) -> tuple[bytes, str]:
        """Return everything counted so far, and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
