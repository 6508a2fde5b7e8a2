import email
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from email import policy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smtp_sink import Sink, free_port, smtp_sink

from tools import (
    InvalidArgumentsError,
    KeyConflictError,
    Mailer,
    Outcome,
    SmtpTransport,
    ToolCall,
    ToolContext,
    execute,
    send_email_tool,
)
from tools.email import BODY_LIMIT, SUBJECT_LIMIT, message_bytes
from tools.outbox import Letter

RECORD = "ana@example.org"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def context(thread: str = "t1", call: str = "c1", record: object = RECORD) -> ToolContext:
    return ToolContext(thread, call, 2, "Ada", {"record_email": record})


def send_call(call: str = "c1", **changed: object) -> ToolCall:
    return ToolCall(call, "send_email", {"to": RECORD, "subject": "Hello", "body": "Text", **changed})


@pytest.fixture
def mailer(tmp_path: Path) -> Iterator[Mailer]:
    with Mailer(tmp_path / "outbox.db", clock=lambda: NOON) as made:
        yield made


@pytest.fixture
def sink() -> Iterator[Sink]:
    with smtp_sink() as running:
        yield running


def test_a_mail_goes_into_the_outbox_once(mailer: Mailer) -> None:
    tool = send_email_tool(mailer)
    first = execute(send_call(to="ana@EXAMPLE.org"), [tool], context())
    assert (first.is_error, first.kind) == (False, "ok")
    assert execute(send_call(), [tool], context()) == first
    (row,) = mailer.deliveries()
    assert (row.thread_id, row.call_id, row.recipient, row.subject, row.body) == ("t1", "c1", RECORD, "Hello", "Text")
    assert (row.state, row.attempts, row.transport, row.approved_by) == ("sent", 1, "outbox", "Ada")
    assert row.created_at == row.updated_at == "2026-03-01T12:00:00+00:00"
    assert mailer.find("t1", "c1") == row
    assert mailer.find("t1", "c2") is None


def test_another_thread_or_call_is_another_mail(mailer: Mailer) -> None:
    tool = send_email_tool(mailer)
    for thread, call in (("t1", "c1"), ("t2", "c1"), ("t1", "c2")):
        assert not execute(send_call(call), [tool], context(thread)).is_error
    assert [(row.thread_id, row.call_id) for row in mailer.deliveries()] == [("t1", "c1"), ("t2", "c1"), ("t1", "c2")]
    assert len({row.message_id for row in mailer.deliveries()}) == 3
    assert len(mailer.deliveries("t1")) == 2


def test_one_key_with_another_content_is_a_conflict(mailer: Mailer) -> None:
    tool = send_email_tool(mailer)
    execute(send_call(), [tool], context())
    with pytest.raises(KeyConflictError):
        mailer.send(to=RECORD, subject="Hello", body="Other", context=context())
    assert execute(send_call(body="Other"), [tool], context()).kind == "not_permitted"
    assert [row.body for row in mailer.deliveries()] == ["Text"]


@pytest.mark.parametrize(
    ("to", "record"),
    [
        ("eve@example.net", RECORD),
        ("Ana@example.org", RECORD),
        (f"{RECORD}, eve@example.net", RECORD),
        (f"Ana <{RECORD}>", RECORD),
        (f"{RECORD}\r\nBcc: eve@example.net", RECORD),
        (RECORD, None),
        ("", ""),
        ("a@b.example;c@d.example", "a@b.example;c@d.example"),
    ],
)
def test_no_mail_goes_to_any_other_address(mailer: Mailer, to: str, record: object) -> None:
    tool = send_email_tool(mailer)
    assert execute(send_call(to=to), [tool], context(record=record)).kind == "not_permitted"
    assert execute(send_call(to=to), [tool], context(record=record), dry_run=True).kind == "not_permitted"
    assert mailer.deliveries() == []


def test_a_call_without_a_record_an_approval_or_a_key_sends_nothing(mailer: Mailer) -> None:
    tool = send_email_tool(mailer)
    facts = {"record_email": RECORD}
    for given_context in (
        ToolContext("t1", approved_by="Ada"),
        ToolContext("t1", facts=facts),
        ToolContext("", approved_by="Ada", facts=facts),
    ):
        assert execute(send_call(), [tool], given_context).kind == "not_permitted"
    assert execute(send_call(""), [tool], context()).kind == "not_permitted"
    assert mailer.deliveries() == []


@pytest.mark.parametrize(
    "changed",
    [
        {"subject": "Hi\r\nBcc: eve@example.net"},
        {"subject": "Hi\nBcc: eve@example.net"},
        {"subject": "Hi\r\n\r\nA body"},
        {"subject": "Hi\r\n folded"},
        {"subject": "Hi\n"},
        {"subject": "\nHi"},
        {"subject": "Hi\r"},
        {"subject": "Hi\rthere"},
        {"subject": "Hi\u2028there"},
        {"subject": "Hi\u2029there"},
        {"subject": "Hi\x85there"},
        {"subject": "Hi\x0bthere"},
        {"subject": "Hi\x0cthere"},
        {"subject": "Hi\x1dthere"},
        {"subject": "Hi\tthere"},
        {"subject": "Hi\0"},
        {"subject": "Hi\x7f"},
        {"subject": "\ud800"},
        {"subject": "=?utf-8?q?Hi=0d=0aBcc:_eve@example.net?="},
        {"subject": "=?utf-8?b?SGkNCkJjYzogZXZlQGV4YW1wbGUubmV0?="},
        {"subject": ""},
        {"subject": "  "},
        {"subject": "\u3000"},
        {"subject": "x" * (SUBJECT_LIMIT + 1)},
        {"body": ""},
        {"body": "\n\n"},
        {"body": "x" * (BODY_LIMIT + 1)},
        {"body": "a\0b"},
        {"body": "a\x1b[2Jb"},
        {"body": "a\u2028b"},
        {"body": "\udcff"},
        {"body": 5},
        {"bcc": "eve@example.net"},
        {"cc": "eve@example.net"},
        {"headers": {"Bcc": "eve@example.net"}},
        {"reply_to": "eve@example.net"},
        {"to": [RECORD]},
    ],
)
def test_arguments_are_bounded(mailer: Mailer, changed: dict[str, object]) -> None:
    for dry_run in (True, False):
        result = execute(send_call("c1", **changed), [send_email_tool(mailer)], context(), dry_run=dry_run)
        assert (result.is_error, result.kind) == (True, "invalid_arguments")
    assert mailer.deliveries() == []


def test_a_refusal_names_the_field_and_the_place(mailer: Mailer) -> None:
    tool = send_email_tool(mailer)
    assert (
        "subject: character U+000D at 2 is not allowed"
        in execute(send_call(subject="Hi\r\n"), [tool], context()).content
    )
    assert "body: character U+001B at 1 is not allowed" in execute(send_call(body="a\x1b"), [tool], context()).content
    for to, words in (
        ("b\u043e@example.org", r"'b\u043e@example.org', is not the one on the record; mail goes to no other"),
        (f"{RECORD}, eve@example.net", "it is not one bare address"),
        (f"\u200b{RECORD}", r"'\u200bana@example.org', is not the one on the record: it is not one bare"),
        ("ANA@example.org", "upper and lower case differ before the @"),
    ):
        assert words in execute(send_call(to=to), [tool], context()).content


def test_the_tool_tells_the_model_its_rules(mailer: Mailer) -> None:
    for words in (
        "the address stored on the registration record",
        "no name, list, comment",
        "one line",
        "not sent again",
    ):
        assert words in " ".join(send_email_tool(mailer).description.split())


def test_a_dry_run_sends_nothing(mailer: Mailer) -> None:
    result = execute(send_call(), [send_email_tool(mailer)], context(), dry_run=True)
    assert result.content == "Dry run: would send to ana@example.org, subject 'Hello', body of 4 characters."
    assert mailer.deliveries() == []


def test_the_sender_is_one_address(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sender"):
        Mailer(tmp_path / "x.db", sender="Desk <desk@example.org>")


def test_over_smtp_one_mail_reaches_the_record_and_nobody_else(tmp_path: Path, sink: Sink) -> None:
    with Mailer(
        tmp_path / "o.db", transport=sink.transport(), sender="desk@desk.example", clock=lambda: NOON
    ) as mailer:
        tool = send_email_tool(mailer)
        call = send_call(to="ana@Example.ORG", subject="Grüße", body="Zeile 1\n.\n.Zeile 3\n")
        first = execute(call, [tool], context())
        assert (first.is_error, execute(call, [tool], context())) == (False, first)
        row = mailer.find("t1", "c1")
    assert row is not None
    assert (row.state, row.attempts, row.detail) == ("sent", 1, "250 taken")
    (envelope,) = sink.envelopes
    assert (envelope.mail_from, envelope.rcpt_tos) == ("desk@desk.example", [RECORD])
    assert isinstance(envelope.content, bytes)
    read = email.message_from_bytes(envelope.content, policy=policy.default)
    assert read.keys() == ["From", "To", "Subject", "Date", "Message-ID", "Content-Type",
                           "Content-Transfer-Encoding", "MIME-Version"]  # fmt: skip
    assert (read["From"], read["To"], read["Subject"]) == ("desk@desk.example", RECORD, "Grüße")
    assert read["Message-ID"] == row.message_id
    assert read["Date"] == "Sun, 01 Mar 2026 12:00:00 +0000"
    assert read.get_content().replace("\r\n", "\n") == "Zeile 1\n.\n.Zeile 3\n"


@pytest.mark.parametrize(
    "body",
    [
        "a\n.\nMAIL FROM:<eve@example.net>\nRCPT TO:<eve@example.net>\nDATA\nSubject: two\n\ntwo\n.\n",
        "a\r.\rMAIL FROM:<eve@example.net>\rDATA\rtwo\r.\r",
        "a\r\n.\r\nMAIL FROM:<eve@example.net>\r\nDATA\r\ntwo\r\n.\r\n",
        "a\n.\r\nMAIL FROM:<eve@example.net>",
        "a\r\n.\nMAIL FROM:<eve@example.net>",
        "ä\r.\rMAIL FROM:<eve@example.net>",
        "..\n.\n..",
        "Bcc: eve@example.net\n\nHello",
        "From here on\nFrom there on",
    ],
)
def test_no_body_can_end_the_mail_or_begin_another(tmp_path: Path, sink: Sink, body: str) -> None:
    with Mailer(tmp_path / "o.db", transport=sink.transport()) as mailer:
        assert mailer.send(to=RECORD, subject="s", body=body, context=context()).state == "sent"
    [envelope], [message] = sink.envelopes, sink.messages
    assert envelope.rcpt_tos == [RECORD]
    assert message.get_all("Bcc") is None
    expected = body.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    assert message.get_content().replace("\r\n", "\n").rstrip("\n") == expected


def test_every_state_of_a_mail_is_kept(tmp_path: Path, sink: Sink) -> None:
    sink.answers["MAIL"] = "451 busy"
    times = iter(range(60))

    def clock() -> datetime:
        return NOON.replace(second=next(times))

    with Mailer(tmp_path / "o.db", transport=sink.transport(), clock=clock) as mailer:
        mailer.send(to=RECORD, subject="s", body="b", context=context())
        sink.answers["MAIL"] = ""
        sink.drop_after_data = True
        mailer.send(
            to=RECORD, subject="s", body="b", context=ToolContext("t1", "c1", 2, "Ben", {"record_email": RECORD})
        )
        mailer.settle("t1", "c1", "sent", by="Bea")
        kept = mailer.changes("t1", "c1")
        assert mailer.changes("t1", "c2") == []
        found = mailer.find("t1", "c1")
        assert found is not None
        assert mailer.find_message(found.message_id) == mailer.find_message(found.message_id.strip("<>")) == found
        assert mailer.find_message("none") is None
    assert [(item.state, item.attempt, item.approved_by) for item in kept] == [
        ("sending", 1, "Ada"), ("failed", 1, "Ada"), ("sending", 2, "Ben"), ("unknown", 2, "Ben"), ("sent", 2, "Ben"),
    ]  # fmt: skip
    assert [item.detail.partition(":")[0] for item in kept] == [
        "",
        "MAIL",
        "",
        "connection lost after DATA",
        "settled by Bea",
    ]
    assert [item.at for item in kept] == sorted({item.at for item in kept})
    connection = sqlite3.connect(tmp_path / "o.db")
    for statement in ("UPDATE outbox_changes SET state = 'sent'", "DELETE FROM outbox_changes"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()


def test_an_outbox_that_kept_no_changes_begins_with_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    with Mailer(path) as mailer:
        mailer.send(to=RECORD, subject="s", body="b", context=context())
    connection = sqlite3.connect(path)
    with connection:
        for name in ("outbox_after_insert", "outbox_after_update"):
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DROP TABLE outbox_changes")
    connection.close()
    for _ in range(2):
        with Mailer(path) as mailer:
            assert [(item.state, item.approved_by) for item in mailer.changes("t1", "c1")] == [("sent", "Ada")]


def test_a_node_that_is_entered_again_after_a_question_sends_no_second_mail(mailer: Mailer) -> None:
    from minigraph import START, Command, StateGraph, interrupt
    from minigraph.checkpoint.memory import InMemorySaver

    tool = send_email_tool(mailer)

    def node(state: dict[str, object]) -> dict[str, object]:
        first = execute(send_call(), [tool], context())
        return {"answers": [interrupt("one"), interrupt("two")], "first": first.content}

    graph = StateGraph(dict).add_node(node).add_edge(START, "node").compile(InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}}
    graph.invoke({}, config)
    graph.invoke(Command(resume="yes"), config)
    done = graph.invoke(Command(resume="no"), config)
    assert done["answers"] == ["yes", "no"]
    assert [(row.state, row.attempts) for row in mailer.deliveries()] == [("sent", 1)]


@pytest.mark.parametrize(
    ("subject", "body"), [("Hello", "Other"), ("Other", "Text"), ("Hello", "Text "), ("hello", "Text")]
)
def test_one_key_takes_no_other_content(tmp_path: Path, sink: Sink, subject: str, body: str) -> None:
    with Mailer(tmp_path / "o.db", transport=sink.transport()) as mailer:
        tool = send_email_tool(mailer)
        execute(send_call(), [tool], context())
        result = execute(send_call(subject=subject, body=body), [tool], context())
        moved = execute(send_call(to="ana@new.example"), [tool], context(record="ana@new.example"))
        again = execute(send_call("c2", subject=subject, body=body), [tool], context())
    assert (result.kind, moved.kind, again.kind) == ("not_permitted", "not_permitted", "ok")
    assert "nothing was sent" in result.content
    assert len(sink.envelopes) == 2


def test_the_message_id_depends_on_the_key_alone(tmp_path: Path) -> None:
    found = set()
    for number in (1, 2):
        with Mailer(tmp_path / f"{number}.db") as mailer:
            found.add(mailer.send(to=RECORD, subject=f"s{number}", body="x", context=context()).message_id)
    assert len(found) == 1


def test_a_connection_lost_after_the_text_is_unknown_and_never_sent_again(tmp_path: Path, sink: Sink) -> None:
    sink.drop_after_data = True
    with Mailer(tmp_path / "o.db", transport=sink.transport()) as mailer:
        tool = send_email_tool(mailer)
        first = execute(send_call(), [tool], context())
        sink.drop_after_data = False
        second = execute(send_call(), [tool], context())
        row = mailer.find("t1", "c1")
        assert row is not None
        assert (row.state, row.may_retry, row.attempts) == ("unknown", False, 1)
        assert len(sink.envelopes) == 1
        assert (first.is_error, first.kind, second.kind) == (True, "failed", "failed")
        assert "not known" in first.content

        settled = mailer.settle("t1", "c1", "sent", by="Bea")
        assert (settled.state, settled.detail) == ("sent", "settled by Bea")
        assert execute(send_call(), [tool], context()).kind == "ok"
        assert len(sink.envelopes) == 1
        with pytest.raises(ValueError, match="no mail with an unknown outcome"):
            mailer.settle("t1", "c1", "failed", by="Bea")


@pytest.mark.parametrize("stage", ["MAIL", "RCPT", "DATA"])
def test_a_4xx_answer_is_temporary_and_may_be_retried(tmp_path: Path, sink: Sink, stage: str) -> None:
    sink.answers[stage] = "451 try later"
    with Mailer(tmp_path / "o.db", transport=sink.transport()) as mailer:
        tool = send_email_tool(mailer)
        result = execute(send_call(), [tool], context())
        assert (result.is_error, result.kind) == (True, "temporary")
        row = mailer.find("t1", "c1")
        assert row is not None
        assert (row.state, row.may_retry) == ("failed", True)
        assert "451 try later" in row.detail
        sink.answers[stage] = ""
        assert execute(send_call(), [tool], context()).kind == "ok"
        again = mailer.find("t1", "c1")
        assert again is not None
        assert (again.state, again.attempts, again.message_id) == ("sent", 2, row.message_id)
    assert len(sink.envelopes) == 1


@pytest.mark.parametrize("stage", ["MAIL", "RCPT", "DATA"])
def test_a_5xx_answer_is_the_end(tmp_path: Path, sink: Sink, stage: str) -> None:
    sink.answers[stage] = "550 never"
    with Mailer(tmp_path / "o.db", transport=sink.transport()) as mailer:
        tool = send_email_tool(mailer)
        assert execute(send_call(), [tool], context()).kind == "failed"
        sink.answers[stage] = ""
        assert execute(send_call(), [tool], context()).kind == "failed"
        row = mailer.find("t1", "c1")
        assert row is not None
        assert (row.state, row.may_retry, row.attempts) == ("failed", False, 1)
    assert sink.envelopes == []


def test_a_server_that_is_not_there_is_temporary(tmp_path: Path) -> None:
    with Mailer(tmp_path / "o.db", transport=SmtpTransport("127.0.0.1", free_port(), timeout=5)) as mailer:
        assert execute(send_call(), [send_email_tool(mailer)], context()).kind == "temporary"
        row = mailer.find("t1", "c1")
        assert row is not None
        assert (row.state, row.may_retry) == ("failed", True)


class Counting:
    """A transport that counts and, if told, raises or waits."""

    name = "counting"

    def __init__(self, error: BaseException | None = None, gate: threading.Event | None = None) -> None:
        self.sent: list[bytes] = []
        self.entered = threading.Event()
        self.error = error
        self.gate = gate

    def deliver(self, message: bytes, sender: str, recipient: str) -> Outcome:
        self.sent.append(message)
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return Outcome("sent", False, "counted")


def test_a_transport_that_raises_leaves_an_unknown_outcome(tmp_path: Path) -> None:
    transport = Counting(RuntimeError("x"))
    with Mailer(tmp_path / "o.db", transport=transport) as mailer:
        assert mailer.send(to=RECORD, subject="s", body="b", context=context()).state == "unknown"
        assert mailer.send(to=RECORD, subject="s", body="b", context=context()).state == "unknown"
    assert len(transport.sent) == 1


def test_an_interrupt_while_sending_leaves_an_unknown_outcome(tmp_path: Path) -> None:
    with Mailer(tmp_path / "o.db", transport=Counting(KeyboardInterrupt())) as mailer:
        with pytest.raises(KeyboardInterrupt):
            mailer.send(to=RECORD, subject="s", body="b", context=context())
        row = mailer.find("t1", "c1")
    assert row is not None
    assert row.state == "unknown"


def test_the_row_is_written_before_the_mail_and_a_second_sender_does_not_send(tmp_path: Path) -> None:
    transport = Counting(gate=threading.Event())
    with Mailer(tmp_path / "o.db", transport=transport) as first, Mailer(tmp_path / "o.db", transport=transport) as two:
        sender = threading.Thread(target=first.send, kwargs={"to": RECORD, "subject": "Hello", "body": "Text",
                                                             "context": context()})  # fmt: skip
        sender.start()
        assert transport.entered.wait(10)
        row = two.find("t1", "c1")
        assert row is not None
        assert row.state == "sending"
        assert execute(send_call(), [send_email_tool(two)], context()).kind == "failed"
        assert transport.gate is not None
        transport.gate.set()
        sender.join()
        assert execute(send_call(), [send_email_tool(two)], context()).kind == "ok"
    assert len(transport.sent) == 1


PROGRAM = """
import sys
from tools import Mailer, SmtpTransport, ToolContext
path, port, crash = sys.argv[1:]
class Crash(SmtpTransport):
    def deliver(self, message, sender, recipient):
        if crash == "before":
            import os; os._exit(9)
        outcome = SmtpTransport.deliver(self, message, sender, recipient)
        if crash == "after":
            import os; os._exit(9)
        return outcome
transport = Crash("127.0.0.1", int(port), local_hostname="localhost")
context = ToolContext("t1", "c1", 0, "Ada", {"record_email": "ana@example.org"})
with Mailer(path, transport=transport) as mailer:
    print(mailer.send(to="ana@example.org", subject="Hello", body="Text", context=context).state)
"""


def start(path: Path, port: int, crash: str = "no") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), str(port), crash], stdout=subprocess.PIPE, text=True
    )


def test_two_processes_with_one_key_send_once(tmp_path: Path, sink: Sink) -> None:
    running = [start(tmp_path / "o.db", sink.port) for _ in range(2)]
    states = [process.communicate(timeout=60)[0].strip() for process in running]
    assert "sent" in states
    assert set(states) <= {"sent", "sending"}
    assert len(sink.envelopes) == 1


@pytest.mark.parametrize(("crash", "received"), [("before", 0), ("after", 1)])
def test_a_process_that_dies_while_sending_is_not_followed_by_another_mail(
    tmp_path: Path, sink: Sink, crash: str, received: int
) -> None:
    process = start(tmp_path / "o.db", sink.port, crash)
    process.communicate(timeout=60)
    assert process.returncode == 9
    with Mailer(tmp_path / "o.db", transport=sink.transport()) as mailer:
        tool = send_email_tool(mailer)
        assert execute(send_call(), [tool], context()).kind == "failed"
        assert len(sink.envelopes) == received
        mailer.settle("t1", "c1", "failed", by="Bea")
        assert execute(send_call(), [tool], context()).kind == "ok"
    ids = {email.message_from_bytes(item.content)["Message-ID"] for item in sink.envelopes}  # type: ignore[arg-type]
    assert (len(sink.envelopes), len(ids)) == (received + 1, 1)


def test_an_address_beyond_ascii_needs_a_server_that_takes_it(tmp_path: Path, sink: Sink) -> None:
    record = "jörg@example.org"
    with Mailer(tmp_path / "o.db", transport=sink.transport()) as mailer:
        result = execute(send_call(to=record), [send_email_tool(mailer)], context(record=record))
    assert result.kind == "ok"
    assert sink.envelopes[0].rcpt_tos == [record]


@pytest.mark.parametrize("record", ["a..b@x.example", ".a@x.example", "a%b!c@x.example", "o'hara+x@x.example"])
def test_an_odd_address_is_written_as_it_stands_on_the_record(record: str) -> None:
    letter = Letter("t", "c", "<id@desk.example>", record, "s", "b", None)
    assert f"\r\nTo: {record}\r\n".encode() in message_bytes(letter, "desk@desk.example", NOON)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(SmtpTransport("mail.example", username="desk", password="secret"))


def test_the_outbox_opens_in_sqlite(mailer: Mailer, tmp_path: Path) -> None:
    mailer.send(to=RECORD, subject="s", body="b", context=context())
    connection = sqlite3.connect(tmp_path / "outbox.db")
    assert connection.execute("SELECT state, recipient FROM outbox").fetchall() == [("sent", RECORD)]
    connection.close()


texts = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=SUBJECT_LIMIT)


@given(texts, st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=2000))
def test_a_mail_has_the_headers_and_the_body_it_was_given(subject: str, body: str) -> None:
    letter = Letter("t", "c", "<id@desk.example>", RECORD, subject, body, None)
    try:
        written = message_bytes(letter, "desk@desk.example", NOON)
    except InvalidArgumentsError:
        return
    read = email.message_from_bytes(written, policy=policy.default)
    assert read.get_all("To") == [RECORD]
    assert read.get_all("Bcc", []) == []
    assert len(read.keys()) == 8
    assert written.isascii()
    assert max(len(line) for line in written.split(b"\r\n")) <= 998


def test_plain_subjects_of_any_length_are_written() -> None:
    for subject in ("x" * 200, "word " * 39 + "end", "ü" * 200, "Refund for E1: 50% (150 EUR)", "=?utf-8?q?x?="):
        letter = Letter("t", "c", "<id@desk.example>", RECORD, subject, "b", None)
        if subject.startswith("=?"):
            with pytest.raises(InvalidArgumentsError):
                message_bytes(letter, "desk@desk.example", NOON)
        else:
            read = email.message_from_bytes(message_bytes(letter, "desk@desk.example", NOON), policy=policy.default)
            assert read["Subject"] == subject
