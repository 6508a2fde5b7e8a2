"""The steps of a request: each reads the state and gives back what changes, with a trace entry that says why.

Code that decides lies elsewhere (``edges``, ``judgement``, ``review``); here the parts are called and recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from desk import edges
from desk.conversation import assistant_message, edited_message, open_calls, plain_call, result_message, tool_call
from desk.errors import BadInputError
from desk.judgement import judge_mail, judge_route
from desk.policy import Case, facts
from desk.prompt import system_prompt
from desk.providers.base import Provider, Reply, this_turn
from desk.review import may_be_parked, read_answer, record_context
from desk.state import K_MAX, DeskState, turn_actions, turn_trace
from desk.thresholds import region
from desk.trace import compared, entry, number
from minigraph import RunnableConfig, interrupt
from tools import (
    AuditedTools,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    error_result,
    exchanges,
    history_of,
    judge,
    note,
    same_address,
)

if TYPE_CHECKING:
    from decider import DecisionModel

MAX_TOKENS: Final = 300
CALLS_A_STEP: Final = 8
"""Tool calls of one reply that are run; the rest get an error result."""

SEND_EMAIL: Final = "send_email"


class DeskNodes:
    """The nodes of the desk's graph, over a language model, a decision model and the tools."""

    def __init__(self, provider: Provider, decider: DecisionModel, audited: AuditedTools) -> None:
        self._provider = provider
        self._decider = decider
        self._audited = audited
        self._offered: Sequence[Tool] = tuple(audited.tools.values())
        self._send_email = audited.tools[SEND_EMAIL]

    def router(self, state: DeskState) -> dict[str, Any]:
        """Ask what comes next and store it with its probability; a decision model that fails leaves None."""
        case = Case.from_json(state["case"])
        tau_route = state["thresholds"]["tau_route"]
        update: dict[str, Any] = {"route": None, "p_route": None}
        try:
            judged = judge_route(self._decider, case)
        except Exception as error:  # whatever failed, the case goes to a person
            update["routing"] = {"error": _described(error)}
            text = f"no decision ({_described(error)})"
        else:
            update |= {"route": judged.route, "p_route": judged.p_route}
            update["routing"] = {
                "distribution": judged.distribution,
                "intent": judged.intent,
                "source": judged.source.as_dict(),
            }
            text = f"route {judged.route}, {compared('p_route', judged.p_route, 'tau_route', tau_route)}"
        following = edges.after_router({**state, **update})
        step = entry(state, "router", text, following, p_route=update["p_route"], tau_route=tau_route)
        return {**update, "trace": [step]}

    def agent(self, state: DeskState) -> dict[str, Any]:
        """Call the language model once. A reply that is no answer and asks for nothing fails the turn."""
        k = state["k"] + 1
        update: dict[str, Any] = {"k": k, "failure": None}
        try:
            reply = self._provider.chat(state["messages"], system_prompt(state), self._offered, MAX_TOKENS)
        except Exception as error:
            update["failure"] = f"the language model failed: {_described(error)}"
            text = update["failure"]
        else:
            message = assistant_message(reply, state, k)
            update |= {"messages": [message], "failure": _failure(reply, k)}
            asked = ", ".join(call["name"] for call in message["tool_calls"])
            text = update["failure"] or (f"asks for {asked}" if asked else "answers")
        merged = {**state, **update, "messages": [*state["messages"], *update.get("messages", [])]}
        following = edges.after_agent(merged)
        if following == "__end__":
            update |= {"answer": merged["messages"][-1]["content"], "outcome": _outcome(state)}
        text = f"{self._provider.name}, call {k} of {K_MAX}: {text}"
        return {**update, "trace": [entry(state, "agent", text, following.strip("_"), k=k)]}

    def tools(self, state: DeskState, config: RunnableConfig) -> dict[str, Any]:
        """Run the open calls in order, except a well-formed ``send_email``, which is parked and not run.

        A call made for the third time is not run either (``tools.loops``): the model is told to do something else.
        """
        case = Case.from_json(state["case"])
        pending: list[dict[str, Any]] = []

        def run(call: ToolCall) -> ToolResult | None:
            if call.name != SEND_EMAIL:
                return self._audited.execute(call, self._context(state, config, case, call), thresholds=_taus(state))
            if may_be_parked(call, case, self._send_email):
                if not pending:
                    pending.append(plain_call(call))
                    return None
                text = "one mail at a time: this one was not looked at. Ask again once the other is settled."
                return self._logged(error_result(call, "temporary", text), call, state, config, case)
            return self._audited.execute(call, self._context(state, config, case, call), dry_run=True)

        results: list[ToolResult] = []
        history = history_of(exchanges(this_turn(state["messages"])))
        for place, call in enumerate(tool_call(plain) for plain in open_calls(state)):
            judgement = judge(history, call.fingerprint)
            history = note(history, call.fingerprint, temporary=judgement.is_retry)
            if place >= CALLS_A_STEP:
                text = f"a reply may make {CALLS_A_STEP} calls; this one was not run."
                result: ToolResult | None = self._logged(error_result(call, "budget", text), call, state, config, case)
            elif judgement.verdict != "go":
                text = judgement.text(call.name)
                result = self._logged(error_result(call, "budget", text), call, state, config, case)
            else:
                result = run(call)
            if result is not None:
                results.append(result)
        update = {
            "pending": pending[0] if pending else None,
            "messages": [result_message(item) for item in results],
        }
        parts = [f"{result.name} {result.kind}" for result in results]
        parts += [f"send_email to {pending[0]['arguments'].get('to')} parked"] if pending else []
        following = edges.after_tools({**state, **update})
        return {**update, "trace": [entry(state, "tools", "; ".join(parts), following)]}

    def guard(self, state: DeskState, config: RunnableConfig) -> dict[str, Any]:
        """Decide on the parked mail and store the decision: P6 in code, then one question to the decision model."""
        case, pending, taus = Case.from_json(state["case"]), state["pending"], state["thresholds"]
        assert pending is not None
        p_allow, source, rule = None, None, "P6"
        if not same_address(pending["arguments"].get("to"), facts(case).record_address):
            reason = "the mail would go to an address that is not on the record (P6)"
        else:
            try:
                judged = judge_mail(self._decider, case, pending["arguments"])
            except Exception as error:
                rule, reason = "no decision", f"the decision model gave no usable answer: {_described(error)}"
            else:
                p_allow, source, rule = judged.p_allow, judged.source.as_dict(), "probability"
                reason = _place(p_allow, taus)
        chosen = "escalate" if p_allow is None else region(p_allow, taus["tau_esc"], taus["tau_act"])
        decision = {
            "call_id": pending["id"],
            "fingerprint": tool_call(pending).fingerprint,
            "rule": rule,
            "reason": reason,
            "p_allow": p_allow,
            "region": chosen,
            "tau_esc": taus["tau_esc"],
            "tau_act": taus["tau_act"],
            "source": source,
        }
        update = {"p_allow": p_allow, "region": chosen, "decision": decision, "review": None}
        following = edges.after_guard({**state, **update})
        if following == "escalate":
            call = tool_call(pending)
            result = error_result(call, "not_permitted", f"Not done; the case went to a person: {reason}")
            self._logged(result, call, state, config, case, decision)
        step = entry(
            state,
            "guard",
            f"{chosen}: {reason}",
            following,
            p_allow=p_allow,
            tau_esc=taus["tau_esc"],
            tau_act=taus["tau_act"],
        )
        return {**update, "trace": [step]}

    def human_review(self, state: DeskState, config: RunnableConfig) -> dict[str, Any]:
        """Pause until a person answers about the parked mail; an answer that cannot be used is asked for again."""
        problem: str | None = None
        while True:
            answer = interrupt(
                {
                    "request": state["case"]["request"],
                    "email": state["pending"],
                    "decision": state["decision"],
                    "problem": problem,
                }
            )
            try:
                review = read_answer(answer, state, self._send_email)
                break
            except BadInputError as error:
                problem = str(error)
        review["at"] = datetime.now(UTC).isoformat()
        pending = state["pending"]
        if review["verdict"] == "reject" and pending is not None:
            case, reviewed = Case.from_json(state["case"]), DeskState(**{**state, "review": review})
            self._logged(_rejection(pending, review), tool_call(pending), reviewed, config, case, state["decision"])
        return _reviewed(state, review)

    def send(self, state: DeskState, config: RunnableConfig) -> dict[str, Any]:
        """Send the mail that was released: exactly the arguments that were decided on, once for its call."""
        pending, decision, review = state["pending"], state["decision"], state["review"]
        assert pending is not None
        assert decision is not None
        call = tool_call(pending)
        case = Case.from_json(state["case"])
        released = (review or decision)["fingerprint"]
        approved_by = review["by"] if review else f"guard, p_allow {number(state['p_allow'])}"
        context = self._context(state, config, case, call, approved_by)
        if call.fingerprint != released:
            text = "the mail is not the one that was released; nothing was sent."
            result = self._logged(error_result(call, "not_permitted", text), call, state, config, case, decision)
        else:
            result = self._audited.execute(
                call, context, decision=decision, thresholds=_taus(state), grounds=_grounds(state)
            )
        sent = not result.is_error
        action = f"{'sent' if sent else 'not_sent'}:{call.id}"
        failure = None if sent or result.kind in ("temporary", "invalid_arguments") else f"sending: {result.content}"
        update = {"pending": None, "messages": [result_message(result)], "actions": [action], "failure": failure}
        text = f"mail to {pending['arguments'].get('to')} {'sent' if sent else result.kind}, released by {approved_by}"
        following = edges.after_send({**state, **update})
        return {**update, "trace": [entry(state, "send", text, following, [action])]}

    def _context(
        self, state: DeskState, config: RunnableConfig, case: Case, call: ToolCall, approved_by: str | None = None
    ) -> ToolContext:
        thread_id = str(config.get("configurable", {})["thread_id"])
        step = len(turn_trace(state)) + 1
        return record_context(case, thread_id=thread_id, call_id=call.id, step=step, approved_by=approved_by)

    def _logged(
        self,
        result: ToolResult,
        call: ToolCall,
        state: DeskState,
        config: RunnableConfig,
        case: Case,
        decision: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        self._audited.log.record(
            call,
            result,
            self._context(state, config, case, call),
            decision=decision,
            thresholds=_taus(state),
            grounds=None if decision is None else _grounds(state),
        )
        return result


def _reviewed(state: DeskState, review: dict[str, Any]) -> dict[str, Any]:
    pending = state["pending"]
    assert pending is not None
    call, by, verdict = tool_call(pending), review["by"], review["verdict"]
    action = f"{'rejected' if verdict == 'reject' else 'approved'}:{call.id}"
    update: dict[str, Any] = {"review": review, "actions": [action]}
    text = f"approved by {by}"
    if verdict == "reject":
        text = f"rejected by {by}: {review['reason']}"
        update |= {"pending": None, "messages": [result_message(_rejection(pending, review))]}
    elif verdict == "edit":
        text = f"edited and approved by {by}"
        update |= {"pending": {**pending, "arguments": review["arguments"], "edited_by": by}}
        update["messages"] = [edited_message(state, call.id, review["arguments"], by)]
    following = edges.after_review({**state, **update})
    return {**update, "trace": [entry(state, "human_review", text, following, [action])]}


def _rejection(pending: Mapping[str, Any], review: Mapping[str, Any]) -> ToolResult:
    text = f"A person decided against this mail: {review['reason']}"
    return error_result(tool_call(pending), "not_permitted", text)


def _grounds(state: DeskState) -> dict[str, object]:
    """What a decision about a mail rested on, for the log: the request, how it was read, what a person answered."""
    review = state["review"]
    return {
        "request": state["case"]["request"],
        "reading": {
            "route": state["route"],
            "p_route": state["p_route"],
            "tau_route": state["thresholds"]["tau_route"],
            **(state["routing"] or {}),
        },
        "review": None if review is None else {name: review[name] for name in review if name != "arguments"},
    }


def _failure(reply: Reply, k: int) -> str | None:
    if reply.stop in ("truncated", "refused"):
        return f"the reply of the language model was {'cut off' if reply.stop == 'truncated' else 'a refusal'}"
    if reply.tool_calls and k >= K_MAX:
        return f"no answer after {k} calls of the language model"
    if not reply.tool_calls and not reply.text.strip():
        return "the reply of the language model was empty"
    return None


def _outcome(state: DeskState) -> str:
    done = [action.partition(":")[0] for action in turn_actions(state)]
    if "sent" in done:
        return "sent"
    if "not_sent" in done:
        return "failed"
    return "rejected" if "rejected" in done else "answered"


def _place(p_allow: float, taus: Mapping[str, float]) -> str:
    tau_esc, tau_act = taus["tau_esc"], taus["tau_act"]
    if p_allow < tau_esc:
        return f"{compared('p_allow', p_allow, 'tau_esc', tau_esc)} (tau_act {number(tau_act)})"
    above = f"{compared('p_allow', p_allow, 'tau_act', tau_act)}"
    return f"{above} ({compared('p_allow', p_allow, 'tau_esc', tau_esc)})"


def _taus(state: DeskState) -> dict[str, object]:
    return dict(state["thresholds"])


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
