"""Builds a program, which is data, into a graph that runs, on either engine."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from minigraph.testing.engines import Engine
from minigraph.testing.programs import (
    NodeSpec,
    Program,
    RouterSpec,
    SendTo,
    Target,
    answer_to,
    names_of,
    schema,
    writes,
)
from minigraph.types import END


class Flaky(Exception):
    """What a program's failing nodes and routers raise."""


class CrowdedError(Exception):
    """A program whose tasks multiply without end; nothing can be learned from running it further."""


CROWD = 2000
"""So many calls of nodes a program may make."""


class Ledger:
    """What a built program remembers outside of its state: which task has called what. Safe for threads.

    Raises CrowdedError for more than CROWD calls of nodes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._called: set[tuple[str, str]] = set()
        self._first_steps: dict[str, str] = {}
        self.nodes = 0

    def enter(self) -> None:
        """Counts the call of a node."""
        with self._lock:
            self.nodes += 1
        if self.nodes > CROWD:
            raise CrowdedError(f"more than {CROWD} calls of nodes")

    def first(self, place: str, step: str, task: str) -> bool:
        """Notes a call, and tells whether it is its task's first, in the step of the place's first call.

        The tasks of one step call in any order; which of them comes first must not matter.
        """
        with self._lock:
            began = self._first_steps.setdefault(place, step)
            known = (place, task) in self._called
            self._called.add((place, task))
        return began == step and not known


Delay = Callable[[str], float]
"""How long (seconds) a node sleeps before it returns, by name."""


def build(
    program: Program,
    engine: Engine,
    saver: Any = None,
    *,
    ledger: Ledger | None = None,
    knows_answers: bool = False,
    delay: Delay | None = None,
) -> Any:
    """The program as a compiled graph of an engine.

    `ledger` remembers which nodes have failed already. `knows_answers` makes the nodes take the program's answers
    without asking. `delay` forces an order of finishing where nodes run in threads.
    """
    return _Builder(program, engine, ledger or Ledger(), knows_answers, delay).graph(program, saver, "")


class _Builder:
    def __init__(self, root: Program, engine: Engine, ledger: Ledger, knows_answers: bool, delay: Delay | None) -> None:
        self.root, self.engine, self.ledger = root, engine, ledger
        self.knows_answers, self.delay = knows_answers, delay

    def graph(self, program: Program, saver: Any, place: str) -> Any:
        engine = self.engine
        builder = engine.state_graph(schema(program.keys, engine))
        for node in program.nodes:
            retry = None
            if node.kind == "retry":
                retry = engine.retry_policy(max_attempts=2, initial_interval=0.0, jitter=False, retry_on=Flaky)
            if node.kind == "child":
                assert node.child is not None
                action = self.graph(node.child, None, f"{place}/{node.name}")
            else:
                action = self.function(program, node, f"{place}/{node.name}")
            builder.add_node(node.name, action, defer=node.defer, retry_policy=retry)
        for source, target in program.edges:
            builder.add_edge(source, target)
        for join in program.joins:
            builder.add_edge(list(join.sources), join.target)
        for router in program.routers:
            self.add_router(builder, program, router, place)
        return builder.compile(
            checkpointer=saver,
            interrupt_before=list(program.before) or None,
            interrupt_after=list(program.after) or None,
            **engine.compile_options,
        )

    def is_first(self, place: str) -> bool:
        """Whether the running task is here for the first time, in the first step that comes here."""
        runtime = self.engine.get_runtime()
        if runtime is None:  # LangGraph asks the routers of an edit outside of any task, and a law asks them itself
            return self.ledger.first(place, "edit", "edit")
        info = runtime.execution_info
        return self.ledger.first(place, info.checkpoint_id, info.task_id)

    # ------------------------------------------------------------------- nodes

    def function(self, program: Program, node: NodeSpec, place: str) -> Callable[[Any], Any]:
        acts: dict[str, Callable[[Any], Any]] = {
            "nothing": self.nothing,
            "command": functools.partial(self.command, program, node),
            "several": lambda state: [self.command(program, node, state), self.update(node, state, "b")],
            "fan_out": functools.partial(self.command, program, node),
            "ask": functools.partial(self.ask, program, node, 1),
            "ask_twice": functools.partial(self.ask, program, node, 2),
            "ask_and_fail": functools.partial(self.ask_and_fail, program, node, place),
            "call_child": self.child_caller(program, node, place),
        }
        act: Callable[[Any], Any] = acts.get(node.kind, functools.partial(self.update, node))
        fails = node.kind in ("fail_once", "retry")

        def run(state: Any) -> Any:
            self.ledger.enter()
            if self.delay is not None:
                time.sleep(self.delay(node.name))
            if fails and self.is_first(place):
                if node.kind == "fail_once":
                    time.sleep(self.engine.patience)
                raise Flaky(node.name)
            return act(state)

        run.__name__ = run.__qualname__ = f"node_{node.name}"
        return run

    def nothing(self, state: Any) -> None:
        return None

    def update(self, node: NodeSpec, state: Any, more: str = "") -> dict[str, Any]:
        return writes(node.puts, node.name + more, seen(state), state.get("total", 0), self.engine)

    def command(self, program: Program, node: NodeSpec, state: Any) -> Any:
        goes = state.get("total", 0) < program.budget
        goto = [self.target(t, state) for t in node.goto] if goes else []
        return self.engine.command(update=self.update(node, state), goto=goto)

    def target(self, target: Target, state: Any) -> Any:
        if not isinstance(target, SendTo):
            return target
        spent = state.get("total", 0) + 3
        return self.engine.send(target.node, {"log": [f"sent{target.number}"], "total": spent})

    def ask(self, program: Program, node: NodeSpec, count: int, state: Any) -> dict[str, Any]:
        answers = []
        for part in range(count):
            question = {"node": node.name, "seen": seen(state), "part": part}
            answers.append(answer_to(self.root, question) if self.knows_answers else self.engine.interrupt(question))
        update = self.update(node, state)
        if "log" in program.keys:
            update["log"] = [f"{node.name}?{answers!r}"]
        return update

    def ask_and_fail(self, program: Program, node: NodeSpec, place: str, state: Any) -> dict[str, Any]:
        update = self.ask(program, node, 1, state)
        if self.is_first(place):
            raise Flaky(node.name)
        return update

    def child_caller(self, program: Program, node: NodeSpec, place: str) -> Callable[[Any], Any]:
        if node.child is None:
            return lambda state: None
        child = self.graph(node.child, None, place)

        def call(state: Any) -> dict[str, Any]:
            found = child.invoke({"log": [f"for {node.name}"], "total": 0})
            return {**self.update(node, state), "log": [[node.name, *found["log"]]]}

        return call

    # ----------------------------------------------------------------- routers

    def add_router(self, builder: Any, program: Program, router: RouterSpec, place: str) -> None:
        names = sorted({name for choice in router.choices for name in names_of(choice)})
        mapping = {**{f"to {name}": name for name in names}, END: END}
        mapped = router.hint == "map"

        def route(state: Any) -> Any:
            if router.fails_once and self.is_first(f"{place}/{router.source}->{router.name}"):
                time.sleep(self.engine.patience)
                raise Flaky(router.name)
            if state.get("total", 0) >= program.budget or not router.choices:
                return END
            choice = router.choices[state.get("total", 0) % len(router.choices)]
            found = [f"to {t}" if mapped and isinstance(t, str) and t != END else self.target(t, state) for t in choice]
            return found[0] if router.bare and len(found) == 1 else found

        route.__name__ = router.name
        path_map: Any = {"map": mapping, "list": [*names, END]}.get(router.hint)
        if router.hint == "literal":
            route.__annotations__ = {"return": Literal[(*names, END)]}
        else:
            route.__annotations__ = {}
        builder.add_conditional_edges(router.source, route, path_map)


def seen(state: Any) -> str:
    """What a node saw, in short: enough to tell two different states apart."""
    return f"{state.get('total', '-')}/{len(state.get('log', ()))}{state.get('flash', '')}"
