"""The two steps that end a turn without an answer: a question to the participant, and a hand-off to a person."""

from __future__ import annotations

from typing import Any, Final

from desk.conversation import open_calls, result_message
from desk.handoff import handoff
from desk.policy import Case
from desk.state import DeskState
from desk.trace import compared, entry
from tools import Kind, ToolCall, error_result

HANDED_OVER: Final = "I have passed your request on to a colleague, who will get back to you."


def ask_user(state: DeskState) -> dict[str, Any]:
    """Ask the participant for what is missing and end the turn; the answer is the next request of the thread."""
    question = missing(Case.from_json(state["case"]), str((state["routing"] or {}).get("intent")))
    message = {"role": "assistant", "content": question, "id": f"turn-{state['turn']}-question"}
    step = entry(state, "ask_user", question, "end", ["asked_user"])
    return {
        "messages": [message],
        "answer": question,
        "outcome": "asked_user",
        "actions": ["asked_user"],
        "trace": [step],
    }


def missing(case: Case, intent: str) -> str:
    """Give the question for what a case lacks, given what the participant most likely wants."""
    if case.event is None:
        return "Which workshop is this about? Please give its number, such as E1, or your registration number."
    if case.registration is None and intent == "register":
        return "Under which name and e-mail address shall I register you?"
    if case.registration is None:
        return "I cannot find your registration. What is its number, or which e-mail address did you register with?"
    if intent == "transfer":
        return "Who shall take your place? Please give the name of that person."
    return "Could you tell me a little more about what you need?"


def escalate(state: DeskState) -> dict[str, Any]:
    """Hand the case to a person: a record that stands alone, a result for every open call, a word to who asked."""
    reason = why(state)
    kind: Kind = "budget" if state["failure"] else "not_permitted"
    results = [
        error_result(
            ToolCall(call["id"], call["name"], call["arguments"]), kind, "Not done; the case went to a person."
        )
        for call in open_calls(state)
    ]
    messages = [result_message(result) for result in results]
    messages.append({"role": "assistant", "content": HANDED_OVER, "id": f"turn-{state['turn']}-handed-over"})
    action = f"escalated:{reason}"
    step = entry(state, "escalate", reason, "end", [action]) | {
        "reason": reason,
        "pending_email": state["pending"],
    }
    record = handoff({**state, "trace": [*state["trace"], step]}).text()
    return {
        "messages": messages,
        "pending": None,
        "answer": HANDED_OVER,
        "outcome": "failed" if state["failure"] else "escalated",
        "handoff": record,
        "actions": [action],
        "trace": [step],
    }


def why(state: DeskState) -> str:
    """Say why the turn goes to a person: a failure, the guard's reason, or the router's."""
    if state["failure"]:
        return state["failure"]
    if state["decision"] is not None:
        return str(state["decision"]["reason"])
    p_route, tau_route = state["p_route"], state["thresholds"]["tau_route"]
    if p_route is None:
        return f"the decision model gave no usable answer: {(state['routing'] or {}).get('error')}"
    if p_route < tau_route:
        return f"the next step is not certain: {state['route']}, {compared('p_route', p_route, 'tau_route', tau_route)}"
    return f"the policy asks for a person, {compared('p_route', p_route, 'tau_route', tau_route)}"
