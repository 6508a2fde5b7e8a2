"""A process that is killed outright, and a new one that goes on: nothing is asked or sent a second time."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from desk.errors import NotWaitingError
from desk.scripted import ScriptedDecider
from desk.service import Desk

APPROVE = {"verdict": "approve", "by": "Ann"}

SCRIPT = """
import os, signal, sys
from desk.providers import Planner
from desk.records import DeskRecords
from desk.scripted import ScriptedDecider
from desk.service import Desk
from tools import Mailer

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

path, allow = sys.argv[1], float(sys.argv[2])
{before}
with Desk.open(path, decider=ScriptedDecider({{"cancel": 0.91, "ask_policy": 0.09}}, allow=allow)) as desk:
    desk.ask("Please cancel my place.", registration="R101", thread="t"{options})
print("not killed")
"""


def run_until_killed(path: Path, allow: float, before: str = "", options: str = "") -> None:
    script = SCRIPT.format(before=textwrap.dedent(before), options=options)
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(allow)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


def test_killed_at_the_pause_the_review_comes_from_another_process(tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    run_until_killed(path, 0.8, before="DeskRecords.note_status = die")
    decider = ScriptedDecider({"cancel": 1.0}, allow=0.8)
    with Desk.open(path, decider=decider) as desk:
        [(thread, report)] = desk.inbox()
        assert (thread.id, report.waiting) == ("t", True)
        done = desk.review("t", APPROVE)
        assert (done.outcome, len(done.mails)) == ("sent", 1)
        assert [step["node"] for step in done.trace] == [
            "router", "agent", "tools", "guard", "human_review", "send", "agent",
        ]  # fmt: skip
    assert decider.passes == {"route": 0, "mail": 0}


def test_killed_after_the_mail_went_out_it_is_not_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    before = """
    send = Mailer.send
    def send_and_die(self, **given):
        send(self, **given)
        die()
    Mailer.send = send_and_die
    """
    run_until_killed(path, 0.99, before=before)
    decider = ScriptedDecider({"cancel": 1.0}, allow=0.99)
    with Desk.open(path, decider=decider) as desk:
        assert len(desk.mails()) == 1
        [(thread, report)] = desk.inbox()
        assert (thread.status, report.unfinished) == ("running", True)
        with pytest.raises(NotWaitingError, match="desk resume t"):
            desk.review("t", APPROVE)
        done = desk.resume("t")
        assert (done.outcome, len(done.mails)) == ("sent", 1)
        assert desk.inbox() == []
    assert decider.passes == {"route": 0, "mail": 0}


def test_killed_between_steps_the_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    run_until_killed(path, 0.8, options=", on_step=lambda step: die() if step['node'] == 'tools' else None")
    decider = ScriptedDecider({"cancel": 1.0}, allow=0.8)
    with Desk.open(path, decider=decider) as desk:
        assert desk.resume("t").waiting
        assert desk.review("t", APPROVE).outcome == "sent"
        assert len(desk.mails()) == 1
    assert decider.passes == {"route": 0, "mail": 1}
