"""One approval is one mail at a real SMTP server, whatever is repeated, forked, raced, killed or cut off."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from smtp_sink import Sink, smtp_sink

from desk.database import create_database
from desk.errors import NotWaitingError
from desk.providers import ScriptedProvider, calls, says
from desk.scripted import ScriptedDecider
from desk.service import Desk
from minigraph.errors import MinigraphError

CANCEL = {"cancel": 0.91, "ask_policy": 0.09}
MARIT = "marit.solheim@example.org"
APPROVE = {"verdict": "approve", "by": "Ann"}


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seed") / "desk.db"
    create_database(path)
    return path


@pytest.fixture
def path(tmp_path: Path, seeded: Path) -> Path:
    return Path(shutil.copy(seeded, tmp_path / "desk.db"))


@pytest.fixture
def sink() -> Iterator[Sink]:
    with smtp_sink() as running:
        yield running


def opened(path: Path, sink: Sink, allow: float = 0.8) -> Desk:
    decider = ScriptedDecider(CANCEL, allow=allow)
    return Desk.open(path, decider=decider, transport=sink.transport(), sender="desk@desk.example")


def paused(desk: Desk, thread: str = "t") -> None:
    assert desk.ask("Please cancel my place.", registration="R101", thread=thread).waiting


def states(desk: Desk) -> list[str]:
    return [mail.state for mail in desk.mails()]


def test_one_approval_is_one_mail_to_the_address_on_the_record(path: Path, sink: Sink) -> None:
    with opened(path, sink) as desk:
        paused(desk)
        assert sink.envelopes == []
        assert desk.review("t", APPROVE).outcome == "sent"
        [mail] = desk.mails()
    [envelope], [message] = sink.envelopes, sink.messages
    assert (envelope.mail_from, envelope.rcpt_tos) == ("desk@desk.example", [MARIT])
    assert (message["To"], message["Subject"]) == (MARIT, "Cancelled: Bookbinding for beginners")
    assert (message["Message-ID"], mail.state, mail.approved_by) == (mail.message_id, "sent", "Ann")
    assert message.get_content().replace("\r\n", "\n") == mail.body


def test_replays_forks_and_old_questions_send_no_second_one(path: Path, sink: Sink) -> None:
    with opened(path, sink) as desk:
        paused(desk)
        desk.review("t", APPROVE)
        assert desk.replay("t", "send").outcome == "sent"
        assert desk.fork("t", "guard", {"tau_act": 0.55}).outcome == "sent"
        assert desk.replay("t", "4").waiting
        assert desk.review("t", {"verdict": "approve", "by": "Ben"}).outcome == "sent"
        assert desk.resume("t").outcome == "sent"
        assert states(desk) == ["sent"]
    assert len(sink.envelopes) == 1


def test_a_fork_that_comes_to_other_words_sends_nothing_and_goes_to_a_person(path: Path, sink: Sink) -> None:
    with opened(path, sink) as desk:
        paused(desk)
        desk.review("t", APPROVE)
        assert desk.replay("t", "guard").waiting
        done = desk.review("t", {"verdict": "edit", "arguments": {"body": "Other words."}, "by": "Ben"})
        assert done.outcome == "failed"
        assert "already a mail with other content" in (done.handoff or "")
    assert len(sink.envelopes) == 1


def test_another_conversation_is_another_mail(path: Path, sink: Sink) -> None:
    with opened(path, sink) as desk:
        for thread in ("one", "two"):
            paused(desk, thread)
            desk.review(thread, APPROVE)
    assert len(sink.envelopes) == 2
    assert len({message["Message-ID"] for message in sink.messages}) == 2


def test_two_answers_at_once_are_one_mail(path: Path, sink: Sink) -> None:
    with opened(path, sink) as desk:
        paused(desk)
    barrier = threading.Barrier(2)
    ends: list[str | None] = []

    def answer(by: str) -> None:
        with opened(path, sink) as desk:
            barrier.wait()
            try:
                ends.append(desk.review("t", {"verdict": "approve", "by": by}).outcome)
            except (MinigraphError, NotWaitingError) as error:
                ends.append(type(error).__name__)

    threads = [threading.Thread(target=answer, args=(by,)) for by in ("Ann", "Ben")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "sent" in ends
    assert len(sink.envelopes) == 1


# -------------------------------------------------------------- other processes


PROGRAM = """
import os, signal, smtplib, sys
from desk.scripted import ScriptedDecider
from desk.service import Desk
from tools import SmtpTransport

path, port, by, kill = sys.argv[1:]
data = smtplib.SMTP.data

def killed(self, message):
    if kill == "after":
        data(self, message)
    os.kill(os.getpid(), signal.SIGKILL)

if kill != "no":
    smtplib.SMTP.data = killed
decider = ScriptedDecider({"cancel": 0.91, "ask_policy": 0.09}, allow=0.8)
transport = SmtpTransport("127.0.0.1", int(port), timeout=5, local_hostname="localhost")
with Desk.open(path, decider=decider, transport=transport, sender="desk@desk.example") as desk:
    print(desk.review("t", {"verdict": "approve", "by": by}).outcome)
"""


def answering(path: Path, sink: Sink, by: str = "Ann", kill: str = "no") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(path), str(sink.port), by, kill]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_that_answer_send_one_mail(path: Path, sink: Sink) -> None:
    with opened(path, sink) as desk:
        paused(desk)
    running = [answering(path, sink, by) for by in ("Ann", "Ben")]
    ends = [process.communicate(timeout=60)[0].strip() for process in running]
    assert "sent" in ends
    assert len(sink.envelopes) == 1
    with opened(path, sink) as desk:
        assert states(desk) == ["sent"]


@pytest.mark.parametrize(("kill", "received"), [("before", 0), ("after", 1)])
def test_killed_while_sending_nothing_is_sent_again_until_a_person_says_so(
    path: Path, sink: Sink, kill: str, received: int
) -> None:
    with opened(path, sink) as desk:
        paused(desk)
    process = answering(path, sink, kill=kill)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert len(sink.envelopes) == received
    with opened(path, sink) as desk:
        assert states(desk) == ["sending"]
        done = desk.resume("t")
        assert done.outcome == "failed"
        assert "not known whether the mail" in (done.handoff or "")
        assert desk.replay("t", "send").outcome == "failed"
        assert len(sink.envelopes) == received
        desk.mailer.settle("t", "call-1", "sent" if received else "failed", by="Bea")
        assert desk.replay("t", "send").outcome == "sent"
    assert len(sink.envelopes) == 1


# ------------------------------------------------------------ what a server says


def test_a_dropped_connection_after_the_text_is_unknown_and_never_sent_again(path: Path, sink: Sink) -> None:
    sink.drop_after_data = True
    with opened(path, sink) as desk:
        paused(desk)
        done = desk.review("t", APPROVE)
        assert (done.outcome, states(desk)) == ("failed", ["unknown"])
        assert "a person has to look" in (done.handoff or "")
        sink.drop_after_data = False
        assert desk.replay("t", "send").outcome == "failed"
        assert desk.fork("t", "guard", {"tau_act": 0.55}).outcome == "failed"
        assert states(desk) == ["unknown"]
    assert len(sink.envelopes) == 1


def test_a_refusal_for_now_may_be_tried_again_under_the_same_key(path: Path, sink: Sink) -> None:
    sink.answers["RCPT"] = "451 try later"
    mail: dict[str, object] = {"to": MARIT, "subject": "Cancelled", "body": "Your place is cancelled."}
    provider = ScriptedProvider([calls(("c1", "send_email", mail)), says("Later.")])
    decider = ScriptedDecider(CANCEL, allow=0.8)
    with Desk.open(path, provider=provider, decider=decider, transport=sink.transport()) as desk:
        paused(desk)
        assert desk.review("t", APPROVE).outcome == "failed"
        assert states(desk) == ["failed"]
        sink.answers["RCPT"] = ""
    with opened(path, sink) as desk:
        assert desk.replay("t", "send").outcome == "sent"
        assert [(mail.call_id, mail.state, mail.attempts) for mail in desk.mails()] == [("c1", "sent", 2)]
        assert desk.replay("t", "send").outcome == "sent"
    assert len(sink.envelopes) == 1
