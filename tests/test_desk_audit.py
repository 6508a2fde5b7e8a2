"""What `desk audit` lists, checks and explains."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from smtp_sink import Sink, smtp_sink
from typer.testing import CliRunner, Result

from desk import models
from desk.audit import explain, explanation_lines, moment
from desk.cli import app
from desk.database import create_database
from desk.errors import BadInputError, NotFoundError
from desk.scripted import ScriptedDecider
from desk.service import Desk

CANCEL = {"cancel": 0.91, "ask_policy": 0.09}
MARIT = "marit.solheim@example.org"


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A desk with four mails asked for: one approved, one refused, one edited, one handed over."""
    path = tmp_path_factory.mktemp("seed") / "desk.db"
    create_database(path)
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.8)) as desk:
        for thread, person in (("one", "R101"), ("two", "R103"), ("three", "R115")):
            desk.ask("Please cancel my place.", registration=person, thread=thread)
        desk.review("one", {"verdict": "approve", "by": "Ann"})
        desk.review("two", {"verdict": "reject", "reason": "She stays.", "by": "Ben"})
        desk.review("three", {"verdict": "edit", "arguments": {"subject": "Your place"}, "by": "Ben"})
    with Desk.open(path, decider=ScriptedDecider(CANCEL, allow=0.2)) as desk:
        desk.ask("Please cancel my place.", registration="R101", thread="four")
    return path


@pytest.fixture
def path(tmp_path: Path, seeded: Path) -> Path:
    return Path(shutil.copy(seeded, tmp_path / "desk.db"))


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these commands asks the decision model."""

    def gone() -> ScriptedDecider:
        raise AssertionError("the log is read without a model")

    monkeypatch.setattr(models, "load_shipped", gone)
    monkeypatch.delenv("DESK_DB", raising=False)


def run(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--db", str(path), "audit", *arguments])


def listed(path: Path, *arguments: str) -> list[tuple[str, str]]:
    """Thread and outcome of each call that is listed."""
    result = run(path, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return [(row["thread_id"], row["kind"]) for row in json.loads(result.stdout)]


def test_each_call_is_one_line_with_who_answered(path: Path) -> None:
    lines = run(path).stdout.splitlines()
    assert [line.split("  ")[2:6] for line in lines] == [
        ["one", "send_email call-1", "ok", "Ann"],
        ["two", "send_email call-1", "not_permitted", "Ben"],
        ["three", "send_email call-1", "ok", "Ben"],
        ["four", "send_email call-1", "not_permitted", "nobody"],
    ]
    assert [line.split("  ")[0] for line in lines] == ["1", "2", "3", "4"]


def test_filters_by_thread_tool_outcome_person_and_time(path: Path) -> None:
    assert listed(path, "--thread", "one") == [("one", "ok")]
    assert listed(path, "--outcome", "not_permitted") == [("two", "not_permitted"), ("four", "not_permitted")]
    assert listed(path, "--person", "Ben") == [("two", "not_permitted"), ("three", "ok")]
    assert listed(path, "--person", "Ben", "--outcome", "ok") == [("three", "ok")]
    assert listed(path, "--tool", "calculate") == []
    today = datetime.now(UTC).date()
    assert len(listed(path, "--since", (today - timedelta(days=1)).isoformat(), "--until", today.isoformat())) == 4
    assert listed(path, "--since", (today + timedelta(days=1)).isoformat()) == []
    assert run(path, "--thread", "' OR 1=1 --").stdout == "The log holds no such call.\n"


def test_a_refused_and_a_handed_over_mail_say_why(path: Path) -> None:
    two, four = (json.loads(run(path, "--thread", name, "--json").stdout)[0] for name in ("two", "four"))
    assert (two["grounds"]["review"]["verdict"], two["grounds"]["review"]["reason"]) == ("reject", "She stays.")
    assert (two["decision"]["region"], two["decision"]["p_allow"], two["approved_by"]) == ("ask", 0.8, None)
    assert (four["decision"]["region"], four["grounds"]["review"]) == ("escalate", None)
    assert "the case went to a person: p_allow 0.200 < tau_esc 0.375" in four["content"]


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("--outcome", "fine"), 2, "there are ok, invalid_arguments"),
        (("--since", "yesterday"), 2, "is no time"),
        (("--until", "2026-02-30"), 2, "is no time"),
        (("why", "none@localhost"), 3, "no mail 'none@localhost'"),
        (("verify", "--head", "abc"), 4, "no row has the hash abc"),
    ],
)
def test_what_cannot_be_answered_is_one_message(path: Path, arguments: tuple[str, ...], code: int, word: str) -> None:
    result = run(path, *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert word in result.stderr


def test_a_whole_log_gives_its_head_and_a_broken_one_its_first_broken_row(path: Path) -> None:
    whole = run(path, "verify")
    assert whole.exit_code == 0
    assert whole.stdout.startswith("4 rows, none changed, missing or put in.\nHead: ")
    head = whole.stdout.split()[-1]
    assert run(path, "verify", "--head", head).exit_code == 0
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER tool_calls_no_update")
        connection.execute("UPDATE tool_calls SET approved_by = 'Eve' WHERE id = 3")
    broken = run(path, "verify")
    assert (broken.exit_code, broken.stdout) == (4, "")
    assert "row 3 of the log: its content was changed; 2 rows before it are whole" in broken.stderr


def test_one_command_says_why_a_mail_was_sent(path: Path) -> None:
    with Desk.open(path) as desk:
        [mail] = desk.mails("one")
        [row] = desk.log.rows(thread_id="one")
    result = run(path, "why", mail.message_id.strip("<>"))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"Mail {mail.message_id}: sent, to {MARIT}"
    for line in (
        "Request: Please cancel my place.",
        "Reading: cancel, route send_email, p_route 0.910 >= tau_route 0.750",
        "Decision: ask (rule: probability)",
        "  p_allow 0.800 < tau_act 0.969 (p_allow 0.800 >= tau_esc 0.375)",
        "  by scripted decisions (test double), on none, calibration none",
        "Released by Ann (approve)",
        f"Arguments: sha256 {row.fingerprint}",
    ):
        assert line in lines
    when = datetime.fromisoformat(lines[lines.index("Released by Ann (approve)") + 1].removeprefix("  at "))
    assert when <= datetime.fromisoformat(row.at)
    assert lines[lines.index("States:") + 1].endswith("sent, attempt 1, outbox")
    plain = json.loads(run(path, "why", mail.message_id, "--json").stdout)
    assert (plain["mail"]["body"], plain["call"]["thresholds"]["tau_act"]) == (mail.body, 0.96875)


def test_an_edited_mail_is_explained_with_what_went_out(path: Path) -> None:
    with Desk.open(path) as desk:
        found = explain(desk.log, desk.mailer, desk.mails("three")[0].message_id)
    assert found.call is not None
    assert found.call.arguments["subject"] == found.mail.subject == "Your place"  # type: ignore[index]
    assert "Released by Ben (edit)" in list(explanation_lines(found))


@pytest.fixture
def sink() -> Iterator[Sink]:
    with smtp_sink() as running:
        yield running


def test_an_unknown_mail_is_explained_with_every_state_it_was_in(path: Path, sink: Sink) -> None:
    sink.drop_after_data = True
    decider = ScriptedDecider(CANCEL, allow=0.99)
    with Desk.open(path, decider=decider, transport=sink.transport()) as desk:
        desk.ask("Please cancel my place.", registration="R101", thread="five")
        desk.replay("five", "send")
        [mail] = desk.mails("five")
        desk.mailer.settle("five", mail.call_id, "sent", by="Bea")
    lines = run(path, "why", mail.message_id).stdout.splitlines()
    assert "Released by guard, p_allow 0.990" in lines
    states = [line.split("  ")[2] for line in lines[lines.index("States:") + 1 : lines.index("Calls in the log:")]]
    assert [state.partition(",")[0] for state in states] == ["sending", "unknown", "sent"]
    assert states[-1].endswith("settled by Bea")
    assert len(lines[lines.index("Calls in the log:") + 1 :]) == 2


def test_a_mail_without_a_logged_call_is_said_to_be_one(path: Path) -> None:
    with Desk.open(path) as desk:
        mail = desk.mails("one")[0]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE outbox SET call_id = 'other' WHERE thread_id = 'one'")
    with Desk.open(path) as desk:
        found = explain(desk.log, desk.mailer, mail.message_id)
        assert (found.call, found.attempts) == (None, ())
        assert "The log holds no call that sent it." in list(explanation_lines(found))
        with pytest.raises(NotFoundError):
            explain(desk.log, desk.mailer, "")


def test_times_of_people() -> None:
    assert moment("--since", "2026-03-01") == datetime(2026, 3, 1, tzinfo=UTC)
    assert moment("--until", "2026-03-01") == datetime(2026, 3, 2, tzinfo=UTC)
    assert moment("--until", "2026-03-01T12:30") == datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    assert moment("--since", "2026-03-01T12:30+02:00") == datetime(2026, 3, 1, 10, 30, tzinfo=UTC)
    with pytest.raises(BadInputError, match="--since"):
        moment("--since", "")
