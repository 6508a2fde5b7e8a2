"""Workers of one PostgreSQL server: two answers at once, eight inputs at once, and one that is killed in mid-step."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import conninfo, schema

WORKER = textwrap.dedent(
    """
    import json, operator, os, sys, time
    from typing import Annotated, Any, TypedDict
    from minigraph import START, Command, StateGraph, interrupt, once
    from minigraph.checkpoint import PostgresSaver
    from minigraph.errors import ThreadConflictError

    server, schema, ledger, who, given, hangs = json.loads(sys.argv[1])
    config = {"configurable": {"thread_id": "t"}}


    def say(*words):
        sys.stdout.write(json.dumps(words) + chr(10))  # in one piece: others write to the same pipe
        sys.stdout.flush()


    def note(line):
        with open(ledger, "a") as file:
            file.write(f"{line} by {who}\\n")


    class Together(PostgresSaver):
        \"\"\"Waits, when it has read the thread, until every other process has read it as well.\"\"\"

        reads = []

        def get(self, *place):
            stored = super().get(*place)
            if not self.reads:
                self.reads.append(place)
                os.write(read[1], b"x")
                os.read(go[0], 1)
            return stored


    class State(TypedDict):
        request: str
        decision: str
        log: Annotated[list[str], operator.add]


    def plan(state):
        note("plan")
        return {"log": [f"planned {state['request']}"]}


    def approve(state):
        decision = interrupt(f"approve {state['request']}?")
        note("approved")
        return {"decision": decision, "log": [f"decided {decision}"]}


    def quick(state):
        note("quick")
        return {"log": ["quick"]}


    def slow(state):
        once("mail", note, "mail")
        if hangs:
            say(who, "in mid-step")
            time.sleep(60)
        return {"log": ["slow"]}


    builder = StateGraph(State)
    for node in (plan, approve, quick, slow):
        builder.add_node(node)
    builder.add_edge(START, "plan").add_edge("plan", "approve").add_edge("approve", "quick").add_edge("approve", "slow")
    def work(kind, given):
        with kind(server, schema=schema) as saver:
            graph = builder.compile(checkpointer=saver)
            try:
                if given == "look":
                    shot = graph.get_state(config)
                    asked = [question.value for each in graph.get_state_history(config) for question in each.interrupts]
                    say(who, shot.next, shot.values, asked)
                    return
                if given.startswith("answer "):
                    values = graph.invoke(Command(resume=given.removeprefix("answer ")), config)
                elif given == "go on":
                    values = graph.invoke(None, config)
                else:
                    values = graph.invoke({"request": given, "decision": "", "log": []}, config)
                values.pop("__interrupt__", None)
                say(who, "done", values)
            except ThreadConflictError as error:
                say(who, "conflict", str(error))


    if isinstance(given, str):
        work(PostgresSaver, given)
    else:
        with PostgresSaver(server, schema=schema) as saver:
            saver.setup()
        read, go = os.pipe(), os.pipe()
        children = []
        for number, each in enumerate(given):
            children.append(os.fork())
            if children[-1] == 0:
                os.close(go[1])
                who = f"w{number}"
                work(Together, each)
                sys.stdout.flush()
                os._exit(0)
        for _ in given:
            os.read(read[0], 1)
        os.close(go[1])
        for child in children:
            os.waitpid(child, 0)
    """
)


class Office:
    """The place where workers share threads."""

    def __init__(self, name: str, ledger: Path) -> None:
        self.schema, self.ledger = name, ledger
        ledger.touch()

    def worker(self, who: str, given: str | Sequence[str], *, hangs: bool = False) -> subprocess.Popen[str]:
        told = json.dumps([conninfo(), self.schema, str(self.ledger), who, given, hangs])
        return subprocess.Popen([sys.executable, "-c", WORKER, told], stdout=subprocess.PIPE, text=True)

    def told(self, who: str, given: str) -> list[Any]:
        """What a worker says in the end."""
        words: list[Any] = ended(self.worker(who, given))[-1]
        return words[1:]

    def at_once(self, given: Sequence[str]) -> list[list[Any]]:
        """What workers say, w0 first, that have all read the thread before one of them writes."""
        said = {who: words for who, *words in ended(self.worker("parent", given))}
        return [said[f"w{number}"] for number in range(len(given))]

    def notes(self) -> list[str]:
        return self.ledger.read_text().splitlines()

    def rows(self) -> int:
        with psycopg.connect(conninfo()) as connection:
            ((count,),) = connection.execute(f"SELECT count(*) FROM {self.schema}.writes".encode()).fetchall()
        return int(count)


def heard(worker: subprocess.Popen[str]) -> Any:
    assert worker.stdout is not None
    return json.loads(worker.stdout.readline())


def ended(worker: subprocess.Popen[str]) -> list[Any]:
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    return [json.loads(line) for line in output.splitlines()]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with schema() as name:
        yield Office(name, tmp_path / "ledger")


def test_of_eight_inputs_at_once_one_is_taken_and_nothing_of_the_others_is_stored(office: Office) -> None:
    said = office.at_once([f"request {number}" for number in range(8)])
    assert sorted(kind for kind, _ in said) == ["conflict"] * 7 + ["done"]
    winner = next(number for number, (kind, _) in enumerate(said) if kind == "done")
    next_nodes, values, asked = office.told("looker", "look")
    assert next_nodes == ["approve"]
    assert values == {"request": f"request {winner}", "decision": "", "log": [f"planned request {winner}"]}
    assert asked == [f"approve request {winner}?"]
    assert office.notes() == [f"plan by w{winner}"]
    assert office.rows() == 4  # input, the step of the input, the step of the plan, the question


def test_of_two_answers_at_once_one_is_taken(office: Office) -> None:
    office.told("first", "a boat")
    before = office.rows()
    said = office.at_once(["answer yes", "answer no"])
    assert sorted(kind for kind, _ in said) == ["conflict", "done"]
    winner = next(number for number, (kind, _) in enumerate(said) if kind == "done")
    decision = ["yes", "no"][winner]
    assert said[winner][1] == {
        "request": "a boat",
        "decision": decision,
        "log": ["planned a boat", f"decided {decision}", "quick", "slow"],
    }
    assert sorted(office.notes()) == sorted(
        ["plan by first", *(f"{what} by w{winner}" for what in ("approved", "quick", "mail"))]
    )
    assert office.told("looker", "look")[:2] == [[], said[winner][1]]
    assert office.rows() == before + 4  # the answer, the step it ends, a sibling's result, the last step


def test_a_killed_workers_thread_goes_on_on_another_with_its_decision(office: Office) -> None:
    kind, paused = office.told("first", "a boat")
    assert kind == "done"
    assert paused["log"] == ["planned a boat"]
    dying = office.worker("second", "answer yes", hangs=True)
    assert heard(dying) == ["second", "in mid-step"]
    until = time.monotonic() + 20
    while office.rows() < 7 and time.monotonic() < until:  # the answer, the step it ends, the sibling's result
        time.sleep(0.01)
    dying.send_signal(signal.SIGKILL)
    dying.communicate()
    assert dying.returncode == -signal.SIGKILL
    next_nodes, values, asked = office.told("third", "look")
    assert next_nodes == ["slow"]
    assert (values["decision"], values["log"]) == ("yes", ["planned a boat", "decided yes", "quick"])
    assert asked == ["approve a boat?"]
    assert office.told("fourth", "go on") == [
        "done",
        {"request": "a boat", "decision": "yes", "log": ["planned a boat", "decided yes", "quick", "slow"]},
    ]
    assert sorted(office.notes()) == ["approved by second", "mail by second", "plan by first", "quick by second"]
    assert office.told("fifth", "look")[0] == []
