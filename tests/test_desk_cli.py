"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from desk import models
from desk.cli import app
from desk.database import create_database
from desk.display import printable
from desk.errors import DecisionModelError
from desk.scripted import ScriptedDecider

ASKS = ("ask", "Please cancel my place.", "--registration", "R101", "--thread", "t")


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seed") / "desk.db"
    create_database(path)
    return path


class Terminal:
    """Runs commands on one database with a scripted decision model."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._patch = monkeypatch
        self.decide({"cancel": 0.91, "ask_policy": 0.09}, 0.8)

    def decide(self, intent: dict[str, float], allow: float = 0.0) -> None:
        self._patch.setattr(models, "load_shipped", lambda: ScriptedDecider(intent, allow=allow))

    def __call__(self, *arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(app, ["--db", str(self.path), *arguments], input=input)


@pytest.fixture
def desk(tmp_path: Path, seeded: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.delenv("DESK_DB", raising=False)
    return Terminal(Path(shutil.copy(seeded, tmp_path / "desk.db")), monkeypatch)


def refused(result: Result, code: int, *words: str) -> None:
    """One message on standard error and nothing else."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("desk: ")
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def test_asking_shows_each_step_and_waits_with_code_5(desk: Terminal) -> None:
    result = desk(*ASKS)
    assert result.exit_code == 5
    lines = result.stdout.splitlines()
    assert lines[0] == "1. router: route send_email, p_route 0.910 >= tau_route 0.750 -> agent"
    assert lines[1] == "2. agent: rule-based planner (no language model), call 1 of 4: asks for send_email -> tools"
    assert lines[2] == "3. tools: send_email to marit.solheim@example.org parked -> guard"
    assert lines[3] == ("4. guard: ask: p_allow 0.800 < tau_act 0.969 (p_allow 0.800 >= tau_esc 0.375) -> human_review")
    assert "To: marit.solheim@example.org" in lines
    assert lines[-1] == (
        "Language: rule-based planner (no language model). Decisions: scripted decisions (test double), on none, "
        "calibration none. Thread: t"
    )
    assert result.stderr == ""


def test_a_waiting_request_is_found_reviewed_and_shown(desk: Terminal) -> None:
    desk(*ASKS)
    inbox = desk("inbox")
    assert inbox.exit_code == 0
    assert inbox.stdout.startswith("t  R101  p_allow 0.800  'Cancelled: Bookbinding for beginners'")
    done = desk("review", "t", "--approve", "--by", "Ann")
    assert done.exit_code == 0
    assert "6. send: mail to marit.solheim@example.org sent, released by Ann -> agent" in done.stdout
    assert "Outcome: sent" in done.stdout
    assert desk("inbox").stdout == "Nothing waits.\n"
    shown = desk("show", "t").stdout
    assert "step 5: human_review is due [waits for a person]" in shown
    assert "step 8: nothing is due [current]" in shown
    assert "Mail call-1: sent, to marit.solheim@example.org, released by Ann" in shown


def test_rejecting_and_editing(desk: Terminal) -> None:
    desk(*ASKS)
    rejected = desk("review", "t", "--reject", "not the right person", "--by", "Ann")
    assert (rejected.exit_code, "Outcome: rejected" in rejected.stdout) == (0, True)
    desk(*ASKS[:-1], "u")
    edited = desk("review", "u", "--edit", "subject=Your place", "--edit", "body=a=b")
    assert edited.exit_code == 0
    with closing(sqlite3.connect(desk.path)) as connection:
        assert connection.execute("SELECT thread_id, subject, body FROM outbox").fetchall() == [
            ("u", "Your place", "a=b")
        ]


def test_forking_and_replaying(desk: Terminal) -> None:
    desk(*ASKS)
    forked = desk("fork", "t", "--at", "4", "--set", "tau_act=0.55")
    assert forked.exit_code == 0
    assert "4. guard: act: p_allow 0.800 >= tau_act 0.550" in forked.stdout
    assert "step 6: guard is due (branches off at step 4)" in desk("show", "t").stdout
    assert desk("replay", "t", "--at", "send").exit_code == 0
    assert desk("review", "t", "--approve", "--at", "5").exit_code == 0
    with closing(sqlite3.connect(desk.path)) as connection:
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (1,)


def test_a_failed_turn_has_code_1_and_a_handed_over_one_code_0(desk: Terminal) -> None:
    desk.decide({"cancel": 0.91, "ask_policy": 0.09}, 0.3)
    result = desk(*ASKS)
    assert result.exit_code == 0
    assert "Outcome: escalated" in result.stdout
    assert "participant: Marit Solheim" in result.stdout


def test_a_request_may_come_from_standard_input(desk: Terminal) -> None:
    desk.decide({"ask_policy": 1.0})
    assert desk("ask", "-", input="What is the rule on refunds?\n").exit_code == 0
    refused(desk("ask", "-", input="x" * 1_000_000), 2, "20,000")
    refused(desk("ask", "-", input=""), 2, "empty")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("ask", ""), 2, "empty"),
        (("ask", "x" * 20_001), 2, "20,001 characters"),
        (("ask", "hello", "--registration", "R999"), 3, "no registration 'R999'"),
        (("ask", "hello", "--event", "E99"), 3, "no event 'E99'"),
        (("ask", "hello", "--registration", "R101", "--event", "E2"), 2, "R101 is for E1"),
        (("ask", "hello", "--thread", "a\nb"), 2, "printable"),
        (("show", "none"), 3, "no thread 'none'"),
        (("review", "none", "--approve"), 3, "no thread 'none'"),
        (("review", "none"), 2, "choose one"),
        (("review", "none", "--approve", "--reject", "x"), 2, "choose one"),
        (("resume", "none"), 3, "no thread"),
        (("fork", "none", "--at", "1", "--set", "tau_act=0.5"), 3, "no thread"),
        (("replay", "none", "--at", "1"), 3, "no thread"),
    ],
)
def test_bad_input_is_one_message(desk: Terminal, arguments: tuple[str, ...], code: int, word: str) -> None:
    refused(desk(*arguments), code, word)
    assert desk("inbox").stdout == "Nothing waits.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("fork", "t", "--at", "guard", "--set", "tau_act"), 2, "KEY=VALUE"),
        (("fork", "t", "--at", "guard", "--set", "tau_act=high"), 2, "no number"),
        (("fork", "t", "--at", "guard", "--set", "tau_act=nan"), 2, "no threshold"),
        (("fork", "t", "--at", "guard", "--set", "tau_act=7"), 2, "no threshold"),
        (("fork", "t", "--at", "guard", "--set", "tau_act=0.1"), 2, "above tau_act"),
        (("fork", "t", "--at", "guard", "--set", "k=1"), 2, "no threshold"),
        (("fork", "t", "--at", "guard", "--set", "tau_act=0.5", "--set", "tau_act=0.6"), 2, "twice"),
        (("fork", "t", "--at", "99", "--set", "tau_act=0.5"), 3, "0 to 5"),
        (("replay", "t", "--at", "nowhere"), 3, "nowhere"),
        (("review", "t", "--reject", " "), 2, "reason"),
        (("review", "t", "--edit", "to=x@example.net"), 2, "not the one on the record"),
        (("review", "t", "--edit", "cc=x@example.net"), 2, "to, subject, body"),
        (("review", "t", "--approve", "--at", "3"), 2, "nothing to review"),
        (("ask", "more", "--thread", "t"), 5, "waits for a person"),
    ],
)
def test_bad_input_about_a_waiting_thread_changes_nothing(
    desk: Terminal, arguments: tuple[str, ...], code: int, word: str
) -> None:
    desk(*ASKS)
    before = desk("show", "t").stdout
    refused(desk(*arguments), code, word)
    assert desk("show", "t").stdout == before


def test_reviewing_what_has_ended(desk: Terminal) -> None:
    desk(*ASKS)
    desk("review", "t", "--approve")
    refused(desk("review", "t", "--approve"), 2, "last turn ended (sent)")


def test_databases_that_cannot_be_used(desk: Terminal, tmp_path: Path) -> None:
    desk.path.write_bytes(b"nonsense " * 1_000)
    for arguments in (ASKS, ("inbox",), ("show", "t")):
        refused(desk(*arguments), 4, "desk.db")
    desk.path.unlink()
    refused(desk("inbox"), 3, "no database")
    assert not desk.path.exists(), "reading makes no file"
    desk.path = tmp_path / "none" / "desk.db"
    refused(desk(*ASKS), 4, "folder")


def test_without_a_decision_model_it_says_how_to_train_one(desk: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    from decider import model

    monkeypatch.undo()
    monkeypatch.setattr(model, "SHIPPED_MODEL", desk.path.parent / "no-model")
    refused(desk(*ASKS), 6, "python -m decider.train")
    assert desk("inbox").stdout == "Nothing waits.\n"
    (desk.path.parent / "no-model").mkdir()
    refused(desk(*ASKS), 6, "cannot be loaded")
    with pytest.raises(DecisionModelError):
        models.load_shipped()


def test_a_review_needs_no_decision_model(desk: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    desk(*ASKS)

    def none() -> ScriptedDecider:
        raise DecisionModelError("gone")

    monkeypatch.setattr(models, "load_shipped", none)
    assert desk("review", "t", "--approve").exit_code == 0
    refused(desk("replay", "t", "--at", "guard"), 6, "gone")


@pytest.mark.parametrize("width", ["20", "80", "200"])
def test_the_demonstration_plays_three_requests(monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.delenv("DESK_DB", raising=False)
    result = CliRunner().invoke(app, ["demo", "--scripted"])
    assert result.exit_code == 0, result.output
    outcomes = [line for line in result.stdout.splitlines() if line.startswith("Outcome: ")]
    assert outcomes == ["Outcome: answered", "Outcome: sent", "Outcome: escalated"]
    assert result.stdout.count("scripted decisions (test double)") == 3


def test_the_demonstration_can_use_a_database_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_DB", str(tmp_path / "demo.db"))
    assert CliRunner().invoke(app, ["demo", "--scripted"]).exit_code == 0
    with closing(sqlite3.connect(tmp_path / "demo.db")) as connection:
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (1,)


def test_no_text_can_steer_the_terminal(desk: Terminal) -> None:
    desk.decide({"cancel": 0.91, "ask_policy": 0.09}, 0.8)
    result = desk("ask", "Please \x1b[31mcancel\x07 [bold]now[/bold].", "--registration", "R101")
    assert "\x1b" not in result.stdout
    assert "Request: Please \\x1b[31mcancel\\x07 [bold]now[/bold]." in result.stdout
    assert printable("a\u202eb\nc") == "a\\u202eb\nc"


def test_help_lists_the_exit_codes_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['desk', '--help']\n"
        "from desk.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n"
        "    names = {'numpy', 'pydantic', 'sqlite_utils', 'onnxruntime', 'decider', 'minigraph'}\n"
        "    heavy = sorted(names & set(sys.modules))\n"
        "    print('heavy', heavy, 'code', end.code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "heavy [] code 0" in done.stdout, done.stdout + done.stderr
    assert "Exit codes" in done.stdout


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "desk", "--db", str(tmp_path / "none.db"), "inbox"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("desk: there is no database")
    usage = subprocess.run([sys.executable, "-m", "desk", "fork", "t"], capture_output=True, text=True, timeout=60)
    assert usage.returncode == 2
