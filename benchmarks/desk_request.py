"""How long one request takes the desk, by kind, and where the time goes.

    python benchmarks/desk_request.py [--requests 50] [--shipped]

With prepared probabilities (the default) this is the desk itself: graph, checkpoints, tools, log and outbox, on a file
on disk. With --shipped the decision model that comes with the package answers, and its share is shown.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from decider import Answers, DecisionModel, QuestionLike, Request
from desk import Desk, Report, ScriptedDecider
from desk.models import LazyDecider

KINDS: Mapping[str, tuple[str, str, dict[str, float], float]] = {
    # name: registration, request, prepared intent, prepared answer of the guard
    "answered": ("R105", "What is the rule on refunds when I cancel?", {"ask_policy": 1.0}, 0.0),
    "sent": ("R101", "Please cancel my place in the bookbinding workshop.", {"cancel": 1.0}, 0.99),
    "handed over": ("R108", "Please cancel my place in Lyon and pay me back.", {"cancel": 1.0}, 0.0),
}


class Timed:
    """A decision model that adds up the seconds its passes take."""

    def __init__(self, model: DecisionModel) -> None:
        self._model = model
        self.seconds = 0.0

    def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        """Answer as the model does."""
        return self.decide_many([(state, questions)])[0]

    def decide_many(self, requests: Sequence[Request]) -> list[Answers]:
        """Answer as the model does."""
        start = time.perf_counter()
        answers = self._model.decide_many(requests)
        self.seconds += time.perf_counter() - start
        return answers


def main() -> None:
    """Run the benchmark and print one line a kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50, help="requests of each kind")
    parser.add_argument("--shipped", action="store_true", help="use the decision model that comes with the package")
    options = parser.parse_args()
    shipped = LazyDecider().ready() if options.shipped else None
    with tempfile.TemporaryDirectory() as folder:
        for name, (registration, request, intent, allow) in KINDS.items():
            timed = Timed(shipped or ScriptedDecider(intent, allow=allow))
            with Desk.open(Path(folder) / f"{registration}.db", decider=timed) as desk:

                def ask(
                    thread: int, desk: Desk = desk, text: str = request, registration: str = registration
                ) -> Report:
                    return desk.ask(text, registration=registration, thread=f"thread-{thread}")

                _measure(name, options.requests, ask, timed)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def _measure(name: str, requests: int, ask: Callable[[int], Report], timed: Timed) -> None:
    ask(0)
    timed.seconds = 0.0
    durations, report = [], None
    for number in range(1, requests + 1):
        start = time.perf_counter()
        report = ask(number)
        durations.append(time.perf_counter() - start)
    assert report is not None
    median, slowest = statistics.median(durations) * 1e3, max(durations) * 1e3
    model = timed.seconds / requests * 1e3
    state = report.outcome or "waiting"
    print(
        f"{name:12} {state:10} {len(report.trace)} steps  median {median:6.2f} ms  slowest {slowest:6.2f} ms"
        f"  decision model {model:5.2f} ms a request"
    )


if __name__ == "__main__":
    main()
