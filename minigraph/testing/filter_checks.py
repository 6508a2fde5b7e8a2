"""What every saver must do with odd names and values in a filter: they are compared, never run."""

from __future__ import annotations

from typing import Any

from minigraph.checkpoint.base import Saver
from minigraph.testing.saver_parts import SavedThread, demand

_NAMES = (
    *("k", "'", '"', "a.b", "$", "$.a", "%", "_", "k'; DROP TABLE writes; --", "", "a\0b", "\0", "a", "日本", "[0]"),
    *("\\", 'a"b', "\\u0000", "metadata", "step ", "SOURCE", "/", "␀0", "{}", "x" * 5_000),
)
_VALUES: tuple[Any, ...] = (
    *(True, False, None, 0, 1, -1, 1.0, 0.0, -0.0, 1e300, 1e16, 5e-324, 2**63 - 1, -(2**63), "", "1", "true", "null"),
    *(
        "' OR 1=1 --",
        '"a"',
        "\0",
        "a\0b",
        "%",
        "_",
        "日本",
        "\u2028",
        "\\",
        "\\u0000",
        "A",
        "a",
        "/",
        "␀",
        "x" * 50_000,
    ),
    *([1], [1.0], [True], ["\0"], [], {}, {"a": 1}, {"a": {"b": [None]}}, {"b": 1, "a": 2}, {"a": 2, "b": 1}),
)


def filters_compare_exactly(saver: Saver) -> None:
    """A filter finds what has that very name and value, whatever characters they hold, and nothing else."""
    thread = SavedThread(saver)
    for number, name in enumerate(_NAMES):
        thread.add({}, name=f"n{number}", metadata={name: "here"})
    for number, value in enumerate(_VALUES):
        thread.add({}, name=f"v{number}", metadata={"value": value, "a\0": value})
    for number, name in enumerate(_NAMES):
        demand(thread.names(filter={name: "here"}), [f"n{number}"], f"the filter {{{name[:30]!r}: 'here'}}")
    for number, value in enumerate(_VALUES):
        for name in ("value", "a\0"):
            found = thread.names(filter={name: value})
            demand(found, [f"v{number}"], f"the filter {{{name!r}: {str(value)[:30]!r}}}")
    many = {f"name {number}": number for number in range(200)}
    thread.add({}, name="many", metadata=many)
    demand(thread.names(filter=many), ["many"], "a filter with 200 names")
    demand(thread.names(filter={**many, "name 0": 1}), [], "a filter with one value that differs")
    demand(thread.names(filter={"value": 0.0}, limit=0), [], "a limit of none")
