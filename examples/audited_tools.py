"""Tool calls in a graph: every call gets one result, every result one row in the log, and a mail goes out once.

Prints:

    [ok] 120
    [unknown_tool] There is no tool 'refund'. The tools are: calculate, send_email.
    [not_permitted] send_email needs an approval and this call has none. Do not try this call again.
    [ok] Sent to marit@example.org
    [ok] Sent to marit@example.org
    mails: 1
    log: calculate ok, refund unknown_tool, send_email not_permitted, send_email ok, send_email ok
"""

from __future__ import annotations

import operator
import tempfile
from pathlib import Path
from typing import Annotated, TypedDict

from minigraph import START, StateGraph
from tools import RECORD_EMAIL, AuditedTools, AuditLog, Mailer, ToolCall, ToolContext, calculate, send_email_tool

Call = tuple[str, str, dict[str, object]]
SUM: Call = ("c1", "calculate", {"expression": "240 * 50 // 100"})
TEXT: dict[str, object] = {"to": "marit@example.org", "subject": "Your refund", "body": "You get back 120 EUR."}


class State(TypedDict):
    """Calls as a model would make them, who approved them, and what came of them."""

    calls: list[Call]
    approved_by: str | None
    results: Annotated[list[str], operator.add]


def main(path: Path) -> None:
    """Three calls without an approval; then the mail again, approved, twice under one call id."""
    with AuditLog(path) as log, Mailer(path) as mailer:
        audited = AuditedTools([calculate, send_email_tool(mailer)], log)

        def run_tools(state: State) -> dict[str, list[str]]:
            facts = {RECORD_EMAIL: "marit@example.org"}
            context = ToolContext(thread_id="R101", approved_by=state["approved_by"], facts=facts)
            results = [audited.execute(ToolCall(*call), context) for call in state["calls"]]
            return {"results": [f"[{item.kind}] {item.content.split(' (Message-ID')[0]}" for item in results]}

        graph = StateGraph(State).add_node(run_tools).add_edge(START, "run_tools").compile()
        asked: list[Call] = [SUM, ("c2", "refund", {}), ("c3", "send_email", TEXT)]
        print("\n".join(graph.invoke({"calls": asked, "approved_by": None, "results": []})["results"]))
        print("\n".join(graph.invoke({"calls": asked[2:] * 2, "approved_by": "Ann", "results": []})["results"]))
        print(f"mails: {len(mailer.deliveries())}")
        print("log:", ", ".join(f"{row.tool} {row.kind}" for row in log.rows()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder) / "tools.db")
