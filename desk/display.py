"""How the command line shows things: plain lines, wrapped on a terminal and whole in a pipe, free of control codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console

from desk.trace import line, number

if TYPE_CHECKING:
    from desk.records import Thread
    from desk.report import Moment, Report


class Display:
    """Writes to standard output and, for errors, to standard error."""

    def __init__(self) -> None:
        self.output = Console(highlight=False, emoji=False)
        self.errors = Console(stderr=True, highlight=False, emoji=False)

    def say(self, text: str = "", style: str = "") -> None:
        """Write text. Control characters in it are shown as their escapes, so that no text can steer a terminal."""
        terminal = self.output.is_terminal
        self.output.print(printable(text), style=style or None, markup=False, soft_wrap=not terminal)

    def json(self, value: object) -> None:
        """Write a value as JSON in ASCII, whole lines whatever the width."""
        self.output.print(json.dumps(value, indent=2), markup=False, soft_wrap=True)

    def error(self, text: str) -> None:
        """Write one message to standard error."""
        self.errors.print(printable(f"desk: {text}"), style="red", markup=False, soft_wrap=True)

    def step(self, step: Mapping[str, Any]) -> None:
        """Write the trace line of a step."""
        self.say(line(step))

    def report(self, report: Report) -> None:
        """Write how a turn ended, or what it waits for, and who spoke."""
        if report.question is not None:
            self.question(report.thread, report.question)
        elif report.outcome is not None:
            self.say(f"Outcome: {report.outcome}", "bold")
            self.say(f"Answer: {report.answer}")
        else:
            self.say(f"Unfinished; go on with: desk resume {report.thread}", "bold")
        if report.outcome is not None and report.handoff:
            self.say("Hand-off:", "bold")
            self.say(report.handoff)
        self.say(who_spoke(report))

    def question(self, thread: str, question: Mapping[str, Any]) -> None:
        """Write the mail that waits, with the decision about it and the ways to answer."""
        email, decision = question["email"]["arguments"], question["decision"]
        self.say(f"Waiting for a person: may this mail go out? (thread {thread})", "bold")
        if question.get("problem"):
            self.say(f"The last answer could not be used: {question['problem']}")
        self.say(f"Request: {question['request']}")
        self.say(f"To: {email['to']}\nSubject: {email['subject']}\n{email['body']}")
        self.say(f"Decision: {decision['reason']}")
        self.say(f"Answer with: desk review {thread} --approve | --reject REASON | --edit KEY=VALUE")

    def moment(self, moment: Moment) -> None:
        """Write one line of a history."""
        branch = "" if moment.came_from in (None, moment.step - 1) else f" (branches off at step {moment.came_from})"
        marks = [text for text, on in (("waits for a person", moment.waiting), ("current", moment.current)) if on]
        due = ", ".join(moment.due) or "nothing"
        self.say(f"step {moment.step}: {due} is due{branch}{''.join(f' [{mark}]' for mark in marks)}")

    def waiting(self, thread: Thread, report: Report) -> None:
        """Write one conversation of the inbox."""
        about = thread.registration_id or thread.event_id or "no record"
        request = " ".join(thread.request.split())[:60]
        if report.question is None:
            self.say(f"{thread.id}  {about}  stopped, go on with `desk resume {thread.id}`  {request}")
        else:
            subject = report.question["email"]["arguments"]["subject"]
            p_allow = report.question["decision"]["p_allow"]
            self.say(f"{thread.id}  {about}  p_allow {number(p_allow)}  {subject!r}  {request}")


def who_spoke(report: Report) -> str:
    """Say which language model and which decision model are behind a report."""
    source = report.source
    if source is None:
        decisions = "none"
    else:
        decisions = f"{source['model']}, on {source['provider']}, calibration {source['calibration']}"
    return f"Language: {report.provider}. Decisions: {decisions}. Thread: {report.thread}"


def printable(text: str) -> str:
    """Give the text with every control, format and unassigned character but the line break written as its escape."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
        for letter in text
    )
