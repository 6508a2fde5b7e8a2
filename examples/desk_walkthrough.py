"""One request to the desk, from the first probability to the mail: a pause, an approval, and a branch that needs none.

The probabilities are prepared, so the walk is the same every time; no model has computed them.

Prints:

    1. router: route send_email, p_route 0.910 >= tau_route 0.750 -> agent
    2. agent: rule-based planner (no language model), call 1 of 4: asks for send_email -> tools
    3. tools: send_email to marit.solheim@example.org parked -> guard
    4. guard: ask: p_allow 0.800 < tau_act 0.969 (p_allow 0.800 >= tau_esc 0.375) -> human_review
    waiting for a person: True, mails so far: 0
    5. human_review: approved by Ann -> send
    6. send: mail to marit.solheim@example.org sent, released by Ann -> agent
    7. agent: rule-based planner (no language model), call 2 of 4: answers -> end
    outcome: sent, mails: 1, questions to the decision model: {'route': 1, 'mail': 1}
    with tau_act 0.55: act: p_allow 0.800 >= tau_act 0.550 (p_allow 0.800 >= tau_esc 0.375); mails in all: 1
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from desk import Desk, ScriptedDecider
from desk.trace import line


def main() -> None:
    """Ask, pause, approve; then run the paused step again with a lower threshold."""
    decider = ScriptedDecider({"cancel": 0.91, "ask_policy": 0.09}, allow=0.80)
    with tempfile.TemporaryDirectory() as folder, Desk.open(Path(folder) / "desk.db", decider=decider) as desk:
        paused = desk.ask("Please cancel my place in the bookbinding workshop.", registration="R101", thread="walk")
        print("\n".join(line(step) for step in paused.trace))
        print(f"waiting for a person: {paused.waiting}, mails so far: {len(paused.mails)}")

        done = desk.review("walk", {"verdict": "approve", "by": "Ann"})
        print("\n".join(line(step) for step in done.trace[len(paused.trace) :]))
        print(f"outcome: {done.outcome}, mails: {len(done.mails)}, questions to the decision model: {decider.passes}")

        branch = desk.fork("walk", "guard", {"tau_act": 0.55})
        print(f"with tau_act 0.55: {branch.trace[3]['text']}; mails in all: {len(branch.mails)}")


if __name__ == "__main__":
    main()
