"""The command ``desk``: ask, review, show, fork, replay. Every command opens the database, does one thing, and ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from desk.errors import BadInputError, DecisionModelError, DeskError, DeskStorageError, NotFoundError, WaitingError

if TYPE_CHECKING:
    from desk.display import Display
    from desk.report import Report
    from desk.service import Desk

OK, FAILED, BAD_INPUT, NOT_FOUND, STORAGE, WAITING, NO_MODEL = 0, 1, 2, 3, 4, 5, 6

_EPILOG: Final = (
    "Exit codes: 0 the request came to an end; 1 it failed and was handed to a person; 2 something given cannot be "
    "used; 3 no such record, thread or step; 4 the database cannot be used; 5 a person has to review first; 6 there is "
    "no decision model. One database file holds everything: records, conversations, outbox and log."
)

app = typer.Typer(
    help="A front desk for workshops. It answers, calculates and writes mails; a guard and a person watch the mails.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Thread = Annotated[str, typer.Argument(help="The name of the conversation, as `desk ask` and `desk inbox` show it.")]
At = Annotated[
    str, typer.Option("--at", help="A step number from `desk show`, or a node: the newest step at which it is due.")
]


@app.callback()
def _options(
    context: typer.Context,
    db: Annotated[
        str | None, typer.Option("--db", envvar="DESK_DB", help="The database file; desk.db if nothing is named.")
    ] = None,
) -> None:
    if db == "":
        raise typer.BadParameter("it is empty; name a file", param_hint="--db")
    context.obj = db


@app.command(epilog=_EPILOG)
def ask(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="The request, or - to read it from standard input.")],
    registration: Annotated[str | None, typer.Option(help="The registration that asks, such as R101.")] = None,
    event: Annotated[str | None, typer.Option(help="The event it is about, such as E1.")] = None,
    thread: Annotated[str | None, typer.Option(help="A conversation to go on with, or a name for a new one.")] = None,
) -> None:
    """Take up a request and show each step with its probabilities. Makes the database where there is none."""
    with _desk(context.obj, create=True, status="Reading the request") as (desk, display):
        request = _standard_input() if text == "-" else text
        report = desk.ask(request, registration=registration, event=event, thread=thread, on_step=display.step)
        _finish(report, display)


@app.command()
def inbox(context: typer.Context) -> None:
    """List the conversations that wait for a person, oldest first."""
    with _desk(context.obj) as (desk, display):
        waiting = desk.inbox()
        for thread, report in waiting:
            display.waiting(thread, report)
        if not waiting:
            display.say("Nothing waits.")


@app.command()
def review(
    context: typer.Context,
    thread: Thread,
    approve: Annotated[bool, typer.Option("--approve", help="Send the mail as it is.")] = False,
    reject: Annotated[str | None, typer.Option("--reject", metavar="REASON", help="Do not send it, and why.")] = None,
    edit: Annotated[
        list[str] | None, typer.Option("--edit", metavar="KEY=VALUE", help="Change to, subject or body, and send it.")
    ] = None,
    by: Annotated[str, typer.Option(envvar="USER", help="Who answers.")] = "a reviewer",
    at: Annotated[str | None, typer.Option("--at", help="A waiting step of another branch.")] = None,
) -> None:
    """Answer about the mail that a conversation waits with."""
    with _desk(context.obj, status="Going on") as (desk, display):
        if approve + (reject is not None) + bool(edit) != 1:
            raise BadInputError("review", "choose one of --approve, --reject REASON and --edit KEY=VALUE")
        answer: dict[str, object] = {"verdict": "approve", "by": by}
        if reject is not None:
            answer = {"verdict": "reject", "reason": reject, "by": by}
        elif edit:
            answer = {"verdict": "edit", "arguments": _pairs("--edit", edit), "by": by}
        _finish(desk.review(thread, answer, at=at, on_step=display.step), display)


@app.command()
def show(context: typer.Context, thread: Thread) -> None:
    """Show the history of a conversation, the trace of its newest turn, and its mails."""
    with _desk(context.obj) as (desk, display):
        for moment in desk.history(thread):
            display.moment(moment)
        report = desk.report(thread)
        display.say("Trace of the newest turn:", "bold")
        for step in report.trace:
            display.step(step)
        for mail in report.mails:
            display.say(f"Mail {mail.call_id}: {mail.state}, to {mail.recipient}, released by {mail.approved_by}")
        display.report(report)


@app.command()
def fork(
    context: typer.Context,
    thread: Thread,
    at: At,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="tau_route, tau_esc or tau_act, from 0 to 1.")
    ],
) -> None:
    """Change thresholds at a step and run on from there, as a new branch; the other branch stays as it is."""
    with _desk(context.obj, status="Running the branch") as (desk, display):
        thresholds = {name: _threshold(name, value) for name, value in _pairs("--set", settings).items()}
        _finish(desk.fork(thread, at, thresholds, on_step=display.step), display)


@app.command()
def replay(context: typer.Context, thread: Thread, at: At) -> None:
    """Run again from a step, as a new branch. A mail that went out is not sent again."""
    with _desk(context.obj, status="Running again") as (desk, display):
        _finish(desk.replay(thread, at, on_step=display.step), display)


@app.command()
def resume(context: typer.Context, thread: Thread) -> None:
    """Go on with a run that was stopped from outside, such as by a crash."""
    with _desk(context.obj, status="Going on") as (desk, display):
        _finish(desk.resume(thread, on_step=display.step), display)


audit_app = typer.Typer(help="What was called, by whose leave, and what came of it.", invoke_without_command=True)
app.add_typer(audit_app, name="audit")
Json = Annotated[bool, typer.Option("--json", help="Print JSON, with everything the log holds.")]


@audit_app.callback()
def audit(
    context: typer.Context,
    thread: Annotated[str | None, typer.Option(help="Calls of this conversation.")] = None,
    tool: Annotated[str | None, typer.Option(help="Calls of this tool, such as send_email.")] = None,
    outcome: Annotated[str | None, typer.Option(help="ok, or the kind of the error, such as not_permitted.")] = None,
    person: Annotated[str | None, typer.Option(help="Calls that this person approved or refused.")] = None,
    since: Annotated[str | None, typer.Option(help="From this date or time on (ISO 8601, UTC without a zone).")] = None,
    until: Annotated[str | None, typer.Option(help="Up to the end of this date, or before this time.")] = None,
    as_json: Json = False,
) -> None:
    """List the logged tool calls, oldest first; with `verify` or `why MESSAGE_ID`, check the log or explain a mail."""
    if context.invoked_subcommand is not None:
        return
    with _desk(context.obj) as (desk, display):
        from desk.audit import moment, outcome_named, row_line

        rows = desk.log.rows(
            thread_id=thread,
            tool=tool,
            kind=None if outcome is None else outcome_named(outcome),
            person=person,
            since=None if since is None else moment("--since", since),
            until=None if until is None else moment("--until", until),
        )
        if as_json:
            display.json([asdict(row) for row in rows])
        for row in () if as_json else rows:
            display.say(row_line(row))
        if not rows and not as_json:
            display.say("The log holds no such call.")


@audit_app.command()
def verify(
    context: typer.Context,
    head: Annotated[
        str | None, typer.Option(help="A hash that an earlier check printed; it must still be there.")
    ] = None,
) -> None:
    """Check that no row of the log was changed, taken out or put in; print the hash of the last one."""
    with _desk(context.obj) as (desk, display):
        found = desk.log.verify(head)
        if found.problem is not None:
            whole = f"{found.rows} rows before it are whole" if found.rows else "no row before it"
            raise DeskStorageError(desk.records.path, f"row {found.broken_row} of the log: {found.problem}; {whole}")
        display.say(f"{found.rows} rows, none changed, missing or put in.")
        display.say(f"Head: {found.head}")


@audit_app.command()
def why(
    context: typer.Context,
    message_id: Annotated[str, typer.Argument(help="The Message-ID of a mail, with or without its angle brackets.")],
    as_json: Json = False,
) -> None:
    """Say why a mail was sent: request, reading, decision, who released it and when, and what became of it."""
    with _desk(context.obj) as (desk, display):
        from desk.audit import explain, explanation_lines

        found = explain(desk.log, desk.mailer, message_id)
        if as_json:
            display.json(found.as_dict())
        for line in () if as_json else explanation_lines(found):
            display.say(line)


@app.command()
def demo(
    context: typer.Context,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="Use prepared probabilities in place of the decision model.")
    ] = False,
) -> None:
    """Play three requests: one is answered, one waits for a person and is approved, one is handed over.

    In a temporary database, unless --db or DESK_DB names one.
    """
    from desk.demo import play

    with _errors() as display, display.output.status("Loading the decision model") as status:
        play(context.obj, display, scripted=scripted, ready=status.stop)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with one of the codes that ``desk --help`` lists."""
    app(args=None if arguments is None else list(arguments), prog_name="desk")


@contextmanager
def _desk(named: str | None, *, create: bool = False, status: str = "") -> Iterator[tuple[Desk, Display]]:
    """An open desk, with errors shown and turned into exit codes."""
    path = named or "desk.db"
    with _errors() as display:
        from contextlib import nullcontext

        from desk.service import Desk

        if not create and not os.path.exists(path):
            raise NotFoundError("database", path)
        with display.output.status(status) if status else nullcontext(), Desk.open(path, create=create) as desk:
            yield desk, display


@contextmanager
def _errors() -> Iterator[Display]:
    from desk.display import Display

    display = Display()
    try:
        yield display
    except DeskError as error:
        _stop(display, str(error), _code(error))
    except Exception as error:
        from minigraph.errors import StorageError, ThreadConflictError, UnknownInterruptError
        from tools import ToolStorageError

        if isinstance(error, UnknownInterruptError | ThreadConflictError):
            _stop(display, f"somebody else has answered meanwhile: {error}", BAD_INPUT)
        if not isinstance(error, StorageError | ToolStorageError):
            raise
        _stop(display, str(error), STORAGE)


def _code(error: DeskError) -> int:
    match error:
        case BadInputError():
            return BAD_INPUT
        case NotFoundError():
            return NOT_FOUND
        case DeskStorageError():
            return STORAGE
        case WaitingError():
            return WAITING
        case DecisionModelError():
            return NO_MODEL
        case _:
            return FAILED


def _stop(display: Display, message: str, code: int) -> NoReturn:
    display.error(message)
    raise typer.Exit(code)


def _finish(report: Report, display: Display) -> None:
    display.report(report)
    if report.waiting:
        raise typer.Exit(WAITING)
    if report.outcome == "failed":
        raise typer.Exit(FAILED)


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise BadInputError(option, f"{item!r} is not KEY=VALUE")
        if name in found:
            raise BadInputError(option, f"{name!r} is given twice")
        found[name] = value
    return found


def _threshold(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadInputError(name, f"{value!r} is no number; write one from 0 to 1") from None


def _standard_input() -> str:
    from desk.inputs import REQUEST_LIMIT

    try:
        return sys.stdin.read(2 * REQUEST_LIMIT)
    except UnicodeDecodeError as error:
        raise BadInputError("request", f"standard input is not valid text: {error}") from error
