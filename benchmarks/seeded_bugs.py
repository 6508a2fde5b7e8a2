"""Puts known bugs into the engine, one at a time, and says which laws turn red.

    python benchmarks/seeded_bugs.py --programs 4 --jobs 2
    python benchmarks/seeded_bugs.py --write docs/how-it-is-tested.md

Each law looks at the first random programs; where none turns red, or only the comparison with LangGraph does, more
programs are looked at until one does. The number behind a law is the seed of the program that shows the bug. Exits with
1 if no law notices one of the bugs.
"""

from __future__ import annotations
import __future__

import argparse
import contextlib
import functools
import importlib
import inspect
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import FunctionType
from typing import Any, cast

from pages import table_of, write

from minigraph.checkpoint.memory import InMemorySaver
from minigraph.checkpoint.sqlite import SqliteSaver
from minigraph.testing import build, compare, crash_everywhere, draw_program, laws, minigraph_engine, saver_conformance
from minigraph.testing.building import Flaky
from minigraph.testing.programs import Input, Program, answer_to, input_of
from minigraph.testing.scheduling import Schedule
from minigraph.testing.traces import run

ANNOTATIONS = __future__.annotations.compiler_flag
LANGGRAPH = "compare with LangGraph"
MOST = 200
"""How many programs are looked at before a bug counts as noticed by nothing."""


@dataclass(frozen=True, slots=True)
class Bug:
    """A mistake: in a function ("module:Class.name"), one piece of its source is replaced by another."""

    what: str
    where: str
    before: str
    after: str


BUGS = (
    Bug(
        "Writes are merged in reverse order",
        "minigraph.step:merge",
        "key=lambda pair: merge_order(pair[0])",
        "key=lambda pair: merge_order(pair[0]), reverse=True",
    ),
    Bug(
        "Writes are merged in the order in which tasks finish",
        "minigraph.run:Run._complete",
        "new = merge(self.graph, old, pairs, stamp(self.scope, position.next_revision(self.scope)), own=own)",
        "pairs.sort(key=lambda pair: [*position.results].index(pair[0].id))\n"
        "            new = merge(\n"
        "                self.graph, old, pairs, stamp(self.scope, position.next_revision(self.scope)), in_order=True\n"
        "            )",
    ),
    Bug(
        "A join forgets the sources that it has seen",
        "minigraph.step:_arrivals",
        "joins[join.name] = seen = (*seen, node)",
        "joins[join.name] = seen = (node,)",
    ),
    Bug(
        "A join that has fired stays complete",
        "minigraph.step:_arrivals",
        "del joins[join.name]",
        "pass",
    ),
    Bug(
        "Of several Sends only the first is made",
        "minigraph.step:_arrivals",
        "sends.append(goto)",
        "sends or sends.append(goto)",
    ),
    Bug(
        "A deferred node is not held back",
        "minigraph.step:_arrivals",
        "names -= graph.deferring",
        "deferred -= graph.deferring",
    ),
    Bug(
        "Of several targets of a router only the first is followed",
        "minigraph.structure:Router.resolve",
        "return tuple(found)",
        "return tuple(found[:1])",
    ),
    Bug(
        "A reducer is applied twice",
        "minigraph.channels:Reduced.update",
        "else self.reducer(value, write)",
        "else self.reducer(self.reducer(value, write), write)",
    ),
    Bug(
        "An Overwrite is a plain write",
        "minigraph.channels:fold",
        "return overwrites[0][1].value",
        "writes = [(n, v if (o := overwrite_of(v)) is None else o.value) for n, v in writes]",
    ),
    Bug(
        "Of conflicting writes the first is taken",
        "minigraph.channels:_only",
        "if len(writes) > 1:",
        "if False:",
    ),
    Bug(
        "An ephemeral key outlives its step",
        "minigraph.channels:EphemeralValue.idle",
        "return UNSET",
        "return old",
    ),
    Bug(
        "A checkpoint names its grandparent as its parent",
        "minigraph.step:merge",
        "parent_id=checkpoint.id",
        "parent_id=checkpoint.parent_id",
    ),
    Bug(
        "A list that was overwritten is stored as if it had grown",
        "minigraph.position:kept_prefixes",
        "grown - overwritten",
        "grown",
    ),
    Bug(
        "Finished siblings run again with those that must",
        "minigraph.run:Run._todo",
        "if not isinstance(result := results.get(task.id), Finished)",
        "if (result := results.get(task.id)) is not task",
    ),
    Bug(
        "What finished beside a question is forgotten",
        "minigraph.opening:position_of",
        "for result in stored.results}",
        "for result in stored.results if not isinstance(result, Finished)}",
    ),
    Bug(
        "What finished after a sibling had failed is forgotten",
        "minigraph.run:Run._execute",
        "self._take(rest, failures)",
        "pass",
    ),
    Bug(
        "A failed router makes its node run again",
        "minigraph.work:_route",
        "context.kept = result",
        "pass",
    ),
    Bug(
        "A node is given the state's own lists",
        "minigraph.state:View.read",
        "value.copy() if type(value := values[key]) in COPIED else value for",
        "values[key] for",
    ),
    Bug(
        "An answer to a closed question is accepted",
        "minigraph.opening:match_answers",
        "if key not in questions and key not in below",
        "if False",
    ),
    Bug(
        "An answer goes to whatever question comes next",
        "minigraph.opening:_answered",
        "if own in answers:\n"
        "            changed = msgspec.structs.replace(changed, answers=(*result.answers, answers[own]))",
        "if own and answers:\n"
        "            changed = msgspec.structs.replace(changed, answers=(*result.answers, [*answers.values()][0]))",
    ),
    Bug(
        "An answer is stored as another value",
        "minigraph.opening:_answered",
        "(*result.answers, answers[own])",
        '(*result.answers, "lost")',
    ),
    Bug(
        "The second question of a node gets the first answer",
        "minigraph.context:interrupt",
        "return context.answers[index]",
        "return context.answers[0]",
    ),
    Bug(
        "A failure forgets the answers that its task was given",
        "minigraph.work:failed",
        "max(asked, earlier.asked, key=len), earlier.answers",
        "(), ()",
    ),
    Bug(
        "A write does not look at the revision of the head",
        "minigraph.checkpoint.saver:TableSaver._put",
        "if revision != write.revision or (known is not None and known.number != number):",
        "if False:",
    ),
    Bug(
        "A run names the newest revision instead of the one that it read",
        "minigraph.execute:ThreadDriver._carry_out",
        "return saver.put(write)",
        "now = saver.get(write.thread_id, write.namespace)\n"
        "                    from msgspec.structs import replace\n"
        "                    return saver.put(replace(write, revision=now.revision if now else 0))",
    ),
    Bug(
        "A step's results are stored after its checkpoint, in another transaction",
        "minigraph.run:Run.flush",
        "yield Save(write, background",
        "if new and results:\n"
        "                    yield Save(msgspec.structs.replace(write, results=()))\n"
        "                    write = msgspec.structs.replace(write, checkpoints=(), revision=write.end)\n"
        "                yield Save(write, background",
    ),
    Bug(
        "A write that fails half-way is not taken back",
        "minigraph.checkpoint.memory:_MemoryTables.take_back",
        "for number in self.added:",
        "for number in ():",
    ),
    Bug(
        "A file keeps the first result of a task",
        "minigraph.checkpoint.reading:read_end",
        "_results(codec, point, body, after[::-1])",
        "_results(codec, point, body, after)",
    ),
    Bug(
        "A replay clears the results of the step that it repeats",
        "minigraph.opening:open_run",
        "return forked(scope, stored), False",
        "removed = tuple((stored.checkpoint.id, task.id) for task in stored.checkpoint.due)\n"
        "    yield Save(Write(scope.thread_id, scope.namespace, stored.revision, removed=removed))\n"
        "    stored = msgspec.structs.replace(stored, revision=stored.revision + 1)\n"
        "    return forked(scope, stored), False",
    ),
    Bug(
        "A branch forgets which sources its joins have seen",
        "minigraph.branching:branch",
        'source="fork",',
        'source="fork",\n        joins={},',
    ),
    Bug(
        "A branch keeps the ids of its parent's tasks",
        "minigraph.branching:branch",
        "msgspec.structs.replace(t, id=task_id(new.id, i)) for i, t",
        "t for i, t",
    ),
    Bug(
        "A branch is stored as a child of its grandparent",
        "minigraph.branching:branch",
        "parent_id=old.id",
        "parent_id=old.parent_id",
    ),
    Bug(
        "update_state forgets which sources joins have seen",
        "minigraph.opening:edited",
        "return merge(graph, base,",
        "return merge(graph, msgspec.structs.replace(base, joins={}),",
    ),
    Bug(
        "update_state drops what else is due",
        "minigraph.snapshots:_superstep",
        "if task.id not in consumed] if at_head else []",
        "if False]",
    ),
    Bug(
        "recursion_limit counts the step that applies the input",
        "minigraph.run:Run._steps",
        "if not starting:\n                self.done += 1",
        "if True:\n                self.done += 1",
    ),
    Bug(
        "A breakpoint before a node holds a run that goes on from it",
        "minigraph.run:Run._steps",
        "check_before, position = self.fresh",
        "check_before, position = True",
    ),
    Bug(
        "The asyncio driver reads the head instead of the checkpoint that was asked for",
        "minigraph.aexecute:AsyncDriver._carry_out",
        "aget(thread_id, namespace, checkpoint_id)",
        "aget(thread_id, namespace)",
    ),
)
"""The bugs, in the order of the table."""


# ------------------------------------------------------------------------- seeding


@contextlib.contextmanager
def seeded(bug: Bug) -> Iterator[None]:
    """The engine with a bug in it, for the time of the block. Raises ValueError where the source has changed."""
    function = function_of(bug)
    source = inspect.getsource(function)
    if source.count(bug.before) != 1:
        raise ValueError(f"the bug {bug.what!r} replaces {bug.before!r}, which {bug.where} no longer holds once")
    changed = ("if True:\n" if source[0] == " " else "") + source.replace(bug.before, bug.after)
    code = compile(changed, bug.where, "exec", ANNOTATIONS, True)
    made: dict[str, Any] = {}
    exec(code, function.__globals__, made)
    original = function.__code__
    function.__code__ = cast(FunctionType, made[function.__name__]).__code__
    try:
        yield
    finally:
        function.__code__ = original


def function_of(bug: Bug) -> FunctionType:
    """The function that a bug is put into."""
    module, _, path = bug.where.partition(":")
    return cast(FunctionType, functools.reduce(getattr, path.split("."), importlib.import_module(module)))


# -------------------------------------------------------------------------- judging


def program_of(seed: int) -> Program:
    """The program that the laws see for a seed: small, and every third with routers that fail once."""
    return draw_program(Random(seed), size=5, failing_routers=seed % 3 == 0)


def any_finishing_order(seed: int) -> None:
    """The law of that name, with an order that follows from the seed."""
    laws.any_finishing_order(program_of(seed), Schedule((seed + 1, 2, 0, 3), bool(seed % 2)))


def savers_agree(seed: int) -> None:
    """The law of that name, for memory and file."""
    with SqliteSaver(":memory:") as saver:
        laws.savers_agree(program_of(seed), saver)


def crash(seed: int) -> None:
    """The crash sweep over the program's first input, where that comes to an end."""
    program = replace(program_of(seed), turns=(Input(seed % 3, ("log", "text")),), before=(), after=())
    last = run(program).calls[-1]
    if last.ended != "ok" or last.next:
        return
    crash_everywhere(
        lambda saver: build(program, minigraph_engine(), saver),
        input_of(Input(seed % 3, ("log", "text"))),
        answers=lambda question: answer_to(program, question.value),
        failures=Flaky,
        limit=8,
    )


def conformance(seed: int) -> None:
    """The conformance of the saver in memory; one seed is enough."""
    if seed == 0:
        saver_conformance(InMemorySaver)


def langgraph(seed: int) -> None:
    """The comparison with LangGraph."""
    found = compare(draw_program(Random(seed)))
    assert found.outcome != "different", found.detail


def checks() -> dict[str, Callable[[int], None]]:
    """Everything that can turn red, by name; each takes the seed of a program."""

    def check(law: Callable[[Program], None]) -> Callable[[int], None]:
        return lambda seed: law(program_of(seed))

    return {
        "any finishing order": any_finishing_order,
        **{law.__name__.replace("_", " "): check(law) for law in laws.PROGRAM_LAWS},
        "savers agree": savers_agree,
        "crash everywhere": crash,
        "saver conformance": conformance,
        LANGGRAPH: langgraph,
    }


def broken(name: str, seed: int) -> bool:
    """Whether a check turns red for a program; any exception counts."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            checks()[name](seed)
    except ImportError:
        raise
    except Exception:
        return True
    return False


def caught_by(bug: Bug, programs: int, most: int = MOST) -> dict[str, int]:
    """The checks that turn red with a bug on the first programs, each with the seed of the program that shows it.

    Where none does, LangGraph aside, more programs are looked at, up to `most`, until one does.
    """
    found: dict[str, int] = {}
    with seeded(bug):
        for seed in range(most):
            if seed >= programs and found.keys() - {LANGGRAPH}:
                break
            for name in checks():
                if name not in found and broken(name, seed):
                    found[name] = seed
    return {name: found[name] for name in checks() if name in found}


# ---------------------------------------------------------------------------- table


def lines(caught: dict[str, dict[str, int]]) -> list[str]:
    """The table in Markdown."""
    rows = [
        f"| {what} | {', '.join(f'{name} ({seed})' for name, seed in found.items()) or '**nothing**'} |"
        for what, found in caught.items()
    ]
    return ["| Bug in the engine | Turned red, and the first program that shows it |", "|---|---|", *rows]


def read(page: str) -> dict[str, dict[str, int]]:
    """The table of a page, as `lines` wrote it."""
    table = table_of(page, "seeded bugs")
    found: dict[str, dict[str, int]] = {}
    for line in table.splitlines()[2:]:
        _, what, names, _ = (part.strip() for part in line.split("|"))
        pairs = (name.removesuffix(")").rpartition(" (") for name in names.split(", "))
        found[what] = {name: int(seed) for name, _, seed in pairs}
    return found


def main() -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=4, help="how many programs every law looks at (default 4)")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes (default 1)")
    parser.add_argument("--write", type=Path, help="a page whose table is to be replaced")
    options = parser.parse_args()
    caught: dict[str, dict[str, int]] = {}
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        results = pool.imap(functools.partial(caught_by, programs=options.programs), BUGS)
        for bug, found in zip(BUGS, results, strict=True):
            caught[bug.what] = found
            print(lines({bug.what: found})[-1], flush=True)
    if options.write:
        write(options.write, "seeded bugs", "\n".join(lines(caught)))
    return 0 if all(caught.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
