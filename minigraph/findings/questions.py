"""Findings about nodes that ask: what they do before the question happens again."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.check import Finding
from minigraph.findings.flow import Flow


def found(flow: Flow) -> Iterator[Finding]:
    """Effects before a question in the same node."""
    for name, facts in flow.facts.items():
        if facts.repeated is not None:
            effect, line = facts.repeated.effect, facts.repeated.question_line
            yield Finding(
                "effect-before-interrupt",
                name,
                f"node {name!r} calls {effect.call} in line {effect.line} before interrupt() in line {line}; when the"
                " answer comes, the node runs again from its first line and the effect happens twice",
                f"record it, as in once('key', {effect.call.removesuffix('()')}, ...), or move it after the question or"
                " into a node of its own",
            )
