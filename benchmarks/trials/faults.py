"""What can be wrong with a SQLite file: the error says what and what to do, and when it is over the run goes on."""

from __future__ import annotations

import operator
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from minigraph import END, START, CompiledGraph, StateGraph
from minigraph.checkpoint import SqliteSaver
from minigraph.checkpoint.schema import SCHEMA_VERSION
from minigraph.errors import StorageError
from trials.processes import FORK

STEPS: Final = 8
MIDDLE: Final = 3
"""The step in which a fault comes."""
ENTRY: Final = 20_000
"""How many bytes each step adds, so that files have to grow."""
NOBODY: Final = 65_534
SMALL_DISK: Final = 2_000_000
CONFIG: Final[dict[str, Any]] = {"configurable": {"thread_id": "t"}}


class Grown(TypedDict):
    """What each step added."""

    log: Annotated[list[str], operator.add]


def entry(number: int) -> str:
    """What a step adds."""
    return f"step {number} ".ljust(ENTRY, "-")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that can be wrong. `cause` is a with block in which it is.

    In the middle of a run the file is open; otherwise the fault is there before it is opened. `readable`: the state can
    be read all the same.
    """

    name: str
    remedy: str
    """What the error must say."""
    cause: Callable[[Path], AbstractContextManager[None]]
    midway: bool = False
    readable: bool = True


@dataclass(slots=True)
class FaultTally:
    """What one fault did. `wrong` says what the error lacks, what was lost and what did not go on."""

    name: str
    error: str = ""
    skipped: str = ""
    wrong: list[str] = field(default_factory=list)


# ------------------------------------------------------------------------------ causes


@contextmanager
def read_only(path: Path, *, what: str) -> Iterator[None]:
    """The file, or the folder that it is in, may not be written to by us."""
    changed = path if what == "file" else path.parent
    mode = changed.stat().st_mode
    path.parent.chmod(0o777)
    path.chmod(0o666)
    changed.chmod(0o444 if what == "file" else 0o555)
    root = os.geteuid() == 0
    if root:  # for whom nothing is read-only
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        changed.chmod(mode)


@contextmanager
def replaced(path: Path, *, by: Callable[[Path], object]) -> Iterator[None]:
    """Something else is in the file's place, and must stay as it is."""
    aside = path.with_name("aside")
    path.rename(aside)
    by(path)
    before = path.read_bytes()
    try:
        yield
        if path.read_bytes() != before:
            raise AssertionError(f"{path} was changed")
    finally:
        aside.replace(path)


def text(path: Path) -> None:
    """A file that is no database."""
    path.write_text("Dear Ann, thank you for your letter. " * 400)


def foreign(path: Path) -> None:
    """A database of another program."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name)")


def newer(path: Path) -> None:
    """A file that a newer release wrote."""
    shutil.copy(path.with_name("aside"), path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")


def damaged(path: Path) -> None:
    """A file of which every page but the first was overwritten."""
    whole = bytearray(path.with_name("aside").read_bytes())
    whole[4096:] = os.urandom(len(whole) - 4096)
    path.write_bytes(whole)


def cut(path: Path) -> None:
    """A file of which the second half is gone."""
    whole = path.with_name("aside").read_bytes()
    path.write_bytes(whole[: len(whole) // 2 + 100])


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process keeps a transaction open."""
    script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE')"
    command = [sys.executable, "-c", f"{script}; print('has it', flush=True); input()", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "has it\n"
        try:
            yield
        finally:
            other.communicate("\n")


@contextmanager
def size_limit(path: Path) -> Iterator[None]:
    """The process may not make files larger than the log of this one is now."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name(path.name + "-wal").stat().st_size + 5000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """The disk that the file is on has no room left."""
    if shutil.disk_usage(path.parent).total > SMALL_DISK:
        raise OSError(f"{path.parent} is no small disk of its own")
    filler = path.with_name("filler")
    try:
        with filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        pass
    try:
        yield
    finally:
        filler.unlink()


FAULTS: Final = (
    Fault("the file is read-only", "read-only", lambda path: read_only(path, what="file")),
    Fault("the folder is read-only", "folder", lambda path: read_only(path, what="folder"), readable=False),
    Fault("another process keeps it locked", "raise `timeout`", locked, midway=True),
    Fault("a limit on the size of files", "limit", size_limit, midway=True),
    Fault("the disk is full", "the disk is full", full_disk, midway=True),
    Fault("it is no database", "no SQLite database", lambda path: replaced(path, by=text), readable=False),
    Fault(
        "it belongs to another program", "a file of its own", lambda path: replaced(path, by=foreign), readable=False
    ),
    Fault("a newer release wrote it", "newer release", lambda path: replaced(path, by=newer), readable=False),
    Fault("pages are overwritten", "restore it from a copy", lambda path: replaced(path, by=damaged), readable=False),
    Fault("its second half is gone", "restore it from a copy", lambda path: replaced(path, by=cut), readable=False),
)


# ------------------------------------------------------------------------------- trial


class Growing:
    """A graph of some steps. In one of them something happens; each notes that it ran."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self.happens, self.ran = happens, [0] * STEPS

    def step(self, state: Grown) -> dict[str, Any]:
        """Adds an entry."""
        number = len(state["log"])
        self.ran[number] += 1
        if number == MIDDLE and self.ran[number] == 1:
            self.happens()
        return {"log": [entry(number)]}

    def graph(self, saver: SqliteSaver) -> CompiledGraph:
        """The graph with a saver."""
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(Grown)
        builder.add_node("step", self.step).add_edge(START, "step")
        builder.add_conditional_edges("step", lambda state: END if len(state["log"]) == STEPS else "step")
        return builder.compile(saver)


class _Stopped(Exception):
    """Ends a run in its middle."""


def suffer(fault: Fault, path: Path) -> FaultTally:
    """Runs into a fault, looks at the error and at what is stored, and goes on when it is over."""
    tally = FaultTally(fault.name)
    growing = _midway(fault, path, tally) if fault.midway else _at_opening(fault, path, tally)
    with SqliteSaver(path) as saver:
        graph = growing.graph(saver)
        _expect_middle(graph, tally, "afterwards")
        if len(graph.invoke(None, CONFIG)["log"]) != STEPS:
            tally.wrong.append("the run did not go on to its end")
        others = [count for number, count in enumerate(growing.ran) if number != MIDDLE]
        if set(others) != {1} or growing.ran[MIDDLE] > 3:
            tally.wrong.append(f"the steps ran {growing.ran} times")
    with closing(sqlite3.connect(path)) as connection:
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            tally.wrong.append("integrity_check finds damage")
    return tally


def _midway(fault: Fault, path: Path, tally: FaultTally) -> Growing:
    cause = fault.cause(path)
    growing = Growing(cause.__enter__)
    with SqliteSaver(path, timeout=0.2) as saver:
        graph = growing.graph(saver)
        try:
            _refused(fault, path, tally, lambda: graph.invoke({"log": []}, CONFIG))
            _expect_middle(graph, tally, "meanwhile")
        finally:
            cause.__exit__(None, None, None)
        _expect_middle(graph, tally, "in the same process")
    return growing


def _at_opening(fault: Fault, path: Path, tally: FaultTally) -> Growing:
    def stop() -> None:
        raise _Stopped

    growing = Growing(stop)
    with SqliteSaver(path) as saver, suppress(_Stopped):
        growing.graph(saver).invoke({"log": []}, CONFIG)

    def go_on() -> None:
        with SqliteSaver(path, timeout=0.2) as saver:
            graph = growing.graph(saver)
            if fault.readable:
                _expect_middle(graph, tally, "meanwhile")
            graph.invoke(None, CONFIG)

    with fault.cause(path):
        _refused(fault, path, tally, go_on)
    return growing


def _refused(fault: Fault, path: Path, tally: FaultTally, action: Callable[[], object]) -> None:
    try:
        action()
    except StorageError as error:
        tally.error = str(error).replace(str(path), "FILE")
        tally.wrong += [f"the error names no {what!r}: {error}" for what in (str(path), fault.remedy)
                        if what not in str(error)]  # fmt: skip
    else:
        tally.wrong.append("nothing was raised")


def _expect_middle(graph: CompiledGraph, tally: FaultTally, when: str) -> None:
    found = graph.get_state(CONFIG)
    if found.values["log"] != [entry(number) for number in range(MIDDLE)] or found.next != ("step",):
        tally.wrong.append(f"{when} the state is {len(found.values['log'])} steps, due {found.next}")


def all_faults() -> list[FaultTally]:
    """Each fault on a file of its own, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # others have to get there
        return [in_process(number, Path(folder)) for number in range(len(FAULTS))]


def in_process(number: int, parent: Path) -> FaultTally:
    """The fault with this number, in a process and a folder of its own."""
    fault, folder = FAULTS[number], parent / str(number)
    folder.mkdir()
    with _small_disk(folder) as failed, ProcessPoolExecutor(1, mp_context=FORK) as pool:
        if failed and fault.cause is full_disk:
            return FaultTally(fault.name, skipped=f"no small disk can be made here: {failed}")
        return pool.submit(_suffer, number, folder / "threads.db").result()


def _suffer(number: int, path: Path) -> FaultTally:
    return suffer(FAULTS[number], path)


@contextmanager
def _small_disk(folder: Path) -> Iterator[str]:
    """Puts a small disk in memory at a folder, where that is allowed; says what went wrong otherwise."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK // 2}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        yield done.stderr.strip()
    finally:
        if not done.returncode:
            subprocess.run(["umount", str(folder)], check=True)
