"""A desk at work: one database, one language model, one decision model, and what can be asked of them.

with Desk.open("desk.db") as desk:
    report = desk.ask("Please cancel my place.", registration="R101")
    if report.waiting:
        report = desk.review(report.thread, {"verdict": "approve", "by": "Ann"})
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from desk.database import create_database
from desk.errors import BadInputError, NotWaitingError, UnknownStepError, UnknownThreadError, WaitingError
from desk.graph import build_graph
from desk.inputs import checked_request, checked_thread
from desk.models import LazyDecider
from desk.outcome import ending
from desk.policy import Case
from desk.providers.base import Provider
from desk.providers.planner import Planner
from desk.records import DeskRecords, Thread
from desk.report import Moment, Report
from desk.review import read_answer
from desk.seed import POISONED_PAGES
from desk.state import RECURSION_LIMIT, Outcome, new_turn, turn_trace
from desk.thresholds import checked_thresholds, default_thresholds
from minigraph import START, Command, StateSnapshot
from minigraph.checkpoint.sqlite import SqliteSaver
from tools import (
    AuditedTools,
    AuditLog,
    Delivery,
    Document,
    DocumentIndex,
    Mailer,
    Transport,
    calculate,
    search_tool,
    send_email_tool,
)

if TYPE_CHECKING:
    from decider import DecisionModel

_AFTER_DECIDING: Final = ("human_review", "send", "ask_user", "escalate")

OnStep = Callable[[dict[str, Any]], None]
"""Called with the trace entry of each step as it ends."""


class Desk:
    """The desk over one open database. Made by ``Desk.open``; close it, or use ``with``."""

    def __init__(
        self,
        records: DeskRecords,
        provider: Provider,
        decider: LazyDecider,
        poisoned: bool,
        stack: contextlib.ExitStack,
        transport: Transport | None = None,
        sender: str = "desk@localhost",
    ) -> None:
        path = records.path
        self.records: Final = records
        self.provider: Final = provider
        self._decider = decider
        self._stack = stack
        self.mailer: Final = stack.enter_context(Mailer(path, transport=transport, sender=sender))
        self.log: Final = stack.enter_context(AuditLog(path))
        index = stack.enter_context(DocumentIndex())
        index.add(Document(*page) for page in records.pages())
        if poisoned:
            index.add(Document(id, title, text) for id, title, text in POISONED_PAGES)
        self._send_email = send_email_tool(self.mailer)
        audited = AuditedTools([search_tool(index, name="retrieve"), calculate, self._send_email], self.log)
        saver = stack.enter_context(SqliteSaver(path))
        self.graph: Final = build_graph(provider, decider, audited, saver)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        provider: Provider | None = None,
        decider: DecisionModel | None = None,
        create: bool = True,
        poisoned: bool = False,
        transport: Transport | None = None,
        sender: str = "desk@localhost",
    ) -> Desk:
        """Open a database, and make it where there is none if ``create``.

        The defaults are the rule-based planner and the decision model that comes with the package, loaded when it is
        first asked. ``poisoned`` adds the pages of ``desk.seed.POISONED_PAGES``, for tests and evaluation. Mails go
        over ``transport``, such as ``tools.SmtpTransport``, from the address ``sender``; without one they are only
        written into the outbox.

        Raises:
            DeskStorageError: the file is damaged, foreign, missing, or cannot be made.
        """
        if create:
            create_database(path)
        with contextlib.ExitStack() as stack:
            records = stack.enter_context(DeskRecords(path))
            model = decider
            lazy = LazyDecider() if model is None else LazyDecider(lambda: model)
            desk = cls(records, provider or Planner(), lazy, poisoned, stack, transport, sender)
            desk._stack = stack.pop_all()
        return desk

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._stack.close()

    # --------------------------------------------------------------------- run

    def ask(
        self,
        request: str,
        *,
        registration: str | None = None,
        event: str | None = None,
        thread: str | None = None,
        thresholds: Mapping[str, object] | None = None,
        on_step: OnStep | None = None,
    ) -> Report:
        """Take up a request, in a new conversation or as the next turn of one.

        A registration brings its event along; a further turn keeps the registration and event of the one before
        unless others are named. Where the turn before asked the participant something, its request is read together
        with the new one, which answers it.

        Raises:
            BadInputError: the request or the name of the thread cannot be used.
            UnknownRegistrationError, UnknownEventError: no such record.
            WaitingError: the thread waits for a person.
            DecisionModelError: the decision model cannot be loaded.
        """
        text = checked_request(request)
        name = f"desk-{uuid.uuid4().hex[:8]}" if thread is None else checked_thread(thread)
        known = self._known(name)
        if known is not None and registration is None and event is None:
            registration, event = known.registration_id, known.event_id
        snapshot = self.graph.get_state(_config(name))
        whole = text
        if snapshot.values.get("outcome") == "asked_user":
            whole = checked_request(f"{snapshot.values['case']['request']}\n{text}")
        case, event_id = self._case(whole, registration, event)
        if snapshot.interrupts:
            raise WaitingError(name)
        if snapshot.next:
            raise BadInputError(f"thread {name!r}", f"its last run was stopped; finish it with `desk resume {name}`")
        taus = checked_thresholds(default_thresholds() if thresholds is None else thresholds)
        self._decider.ready()
        given = new_turn(case, taus, int(snapshot.values.get("turn") or 0) + 1, text)
        self.records.note_thread(name, "running", registration_id=registration, event_id=event_id, request=text[:200])
        return self._run(name, given, _config(name), on_step)

    def review(
        self, thread: str, answer: Mapping[str, object], *, at: str | None = None, on_step: OnStep | None = None
    ) -> Report:
        """Answer the question a conversation waits with; ``at`` names a step of another branch that waits.

        Raises:
            UnknownThreadError, UnknownStepError: there is no such conversation or step.
            NotWaitingError: it asks nothing.
            BadInputError: the answer is none, or edited arguments break a rule; the question stays open.
        """
        snapshot = self._state(thread) if at is None else self.graph.get_state(self._moment(thread, at).config)
        if not snapshot.interrupts:
            outcome = snapshot.values.get("outcome")
            ended = f"its last turn ended ({outcome})"
            stopped = f"its last run was stopped; finish it with `desk resume {thread}` first"
            raise NotWaitingError(thread, f"there is nothing to review: {stopped if snapshot.next else ended}")
        read_answer(answer, snapshot.values, self._send_email)
        config = _config(thread) if at is None else dict(snapshot.config)
        return self._run(thread, Command(resume=dict(answer)), config, on_step)

    def resume(self, thread: str, *, on_step: OnStep | None = None) -> Report:
        """Go on with a run that was stopped from outside; one that waits or has ended is reported as it is."""
        snapshot = self._state(thread)
        if snapshot.interrupts or not snapshot.next:
            return self.report(thread)
        return self._run(thread, None, _config(thread), on_step)

    def replay(self, thread: str, at: str, *, on_step: OnStep | None = None) -> Report:
        """Run again from a step of the history, as a new branch; mails that went out are not sent again.

        Raises:
            UnknownThreadError, UnknownStepError: there is no such conversation or step.
            BadInputError: nothing is due at that step.
        """
        moment = self._moment(thread, at)
        if not moment.due:
            raise BadInputError(f"step {moment.step}", "the turn ended there, nothing is due; choose an earlier step")
        self._decider.ready()
        return self._run(thread, None, dict(moment.config), on_step)

    def fork(self, thread: str, at: str, thresholds: Mapping[str, object], *, on_step: OnStep | None = None) -> Report:
        """Change thresholds at a step of the history and run on from there, as a new branch of the conversation.

        The steps before and the branch left behind stay as they are, and can still be shown, replayed and reviewed.
        A mail that the other branch sent under the same call is not sent again.

        Raises:
            UnknownThreadError, UnknownStepError: there is no such conversation or step.
            ThresholdError: a threshold is unknown or out of range.
            BadInputError: nothing is due at that step, or what is due no longer asks the thresholds.
        """
        moment = self._moment(thread, at)
        if not moment.due:
            raise BadInputError(f"step {moment.step}", "the turn ended there, nothing is due; choose an earlier step")
        if moment.due == (START,):
            raise BadInputError(f"step {moment.step}", "the request is not taken in yet; choose the step after it")
        if moment.due[0] in _AFTER_DECIDING:
            raise BadInputError(
                f"step {moment.step}",
                f"{moment.due[0]} is due, so the decision is made and thresholds change nothing; choose `guard` or "
                "an earlier step",
            )
        if not thresholds:
            raise BadInputError("--set", "nothing is changed; write for example tau_act=0.55")
        taus = checked_thresholds({**moment.values["thresholds"], **thresholds})
        self._decider.ready()
        as_node = START if moment.due == ("router",) else None
        config = self.graph.update_state(moment.config, {"thresholds": taus}, as_node=as_node)
        return self._run(thread, None, config, on_step)

    # -------------------------------------------------------------------- read

    def report(self, thread: str) -> Report:
        """Give where a conversation stands, or raise ``UnknownThreadError``."""
        return self._report(thread, self._state(thread))

    def history(self, thread: str) -> list[Moment]:
        """Give every checkpoint of a conversation in the order they were stored, or raise ``UnknownThreadError``."""
        head = self._state(thread)
        snapshots = list(self.graph.get_state_history(_config(thread)))[::-1]
        places = {_checkpoint(item.config): place for place, item in enumerate(snapshots)}
        return [
            Moment(
                step=place,
                came_from=None if item.parent_config is None else places.get(_checkpoint(item.parent_config)),
                due=item.next,
                values=item.values,
                current=_checkpoint(item.config) == _checkpoint(head.config),
                waiting=bool(item.interrupts),
                config=item.config,
            )
            for place, item in enumerate(snapshots)
        ]

    def inbox(self) -> list[tuple[Thread, Report]]:
        """Give the conversations that wait for a person or were stopped, oldest first."""
        found = []
        for thread in self.records.open_threads():
            snapshot = self.graph.get_state(_config(thread.id))
            if snapshot.values and snapshot.next:
                found.append((thread, self._report(thread.id, snapshot)))
        return found

    def mails(self, thread: str | None = None) -> list[Delivery]:
        """Give the mails of all conversations or of one, oldest first."""
        return self.mailer.deliveries(thread)

    # ------------------------------------------------------------------ within

    def _run(self, thread: str, given: object, config: Mapping[str, Any], on_step: OnStep | None) -> Report:
        limited = {**config, "recursion_limit": RECURSION_LIMIT}
        for update in self.graph.stream(given, limited, stream_mode="updates"):
            for step in _entries(update):
                if on_step is not None:
                    on_step(step)
        report = self.report(thread)
        self.records.note_status(thread, "waiting" if report.waiting else "ended")
        return report

    def _report(self, thread: str, snapshot: StateSnapshot) -> Report:
        values = snapshot.values
        decision, routing = values.get("decision") or {}, values.get("routing") or {}
        question = snapshot.interrupts[0].value if snapshot.interrupts else None
        return Report(
            thread=thread,
            outcome=None if snapshot.next else cast("Outcome | None", values.get("outcome")),
            answer=values.get("answer"),
            question=question,
            trace=tuple(turn_trace(values)) if values.get("turn") else (),
            handoff=values.get("handoff"),
            thresholds=values.get("thresholds") or {},
            provider=self.provider.name,
            source=decision.get("source") or routing.get("source"),
            mails=tuple(self.mails(thread)),
            ending=ending(values) if values.get("outcome") and not snapshot.next else None,
        )

    def _state(self, thread: str) -> StateSnapshot:
        snapshot = self.graph.get_state(_config(checked_thread(thread)))
        if not snapshot.values:
            raise UnknownThreadError("thread", thread)
        return snapshot

    def _known(self, thread: str) -> Thread | None:
        try:
            return self.records.thread(thread)
        except UnknownThreadError:
            return None

    def _moment(self, thread: str, at: str) -> Moment:
        """The step with this number, or the newest one before which the named node was due."""
        history = self.history(thread)
        if at.isdecimal() and at.isascii() and len(at) < 10:
            found = [moment for moment in history if moment.step == int(at)]
        else:
            found = [moment for moment in history if moment.due == (at,)]
        if not found:
            raise UnknownStepError(
                f"step of thread {thread!r}", at, [f"0 to {len(history) - 1}", "names of nodes that were due"]
            )
        return found[-1]

    def _case(self, request: str, registration: str | None, event: str | None) -> tuple[Case, str | None]:
        entry = None if registration is None else self.records.registration(registration)
        if entry is not None and event is not None and event != entry.event_id:
            self.records.event(event)
            raise BadInputError(
                "event", f"registration {entry.id} is for {entry.event_id}, not {event}; name one of the two"
            )
        event_id = entry.event_id if entry is not None else event
        found = None if event_id is None else self.records.event(event_id)
        return Case(self.records.today, found, None if entry is None else entry.registration, request), event_id


def _entries(update: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for written in update.values():
        if isinstance(written, Mapping):
            yield from written.get("trace") or []


def _config(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}}


def _checkpoint(config: Mapping[str, Any]) -> str:
    return str(config["configurable"]["checkpoint_id"])
