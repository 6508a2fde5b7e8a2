"""Tables that a command writes into a page, between two marks that name them."""

from __future__ import annotations

from pathlib import Path


def marks(name: str) -> tuple[str, str]:
    """What stands before and after a table in a page."""
    return f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"


def table_of(page: str, name: str) -> str:
    """A table of a page, without the marks. ValueError if it is not there."""
    begin, end = marks(name)
    _, found, rest = page.partition(begin)
    table, closed, _ = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no table between {begin.strip()!r} and {end!r}")
    return table


def replaced(page: str, name: str, table: str) -> str:
    """The page with another table. ValueError if it has none of that name."""
    begin, end = marks(name)
    return page.replace(f"{begin}{table_of(page, name)}{end}", f"{begin}{table}\n{end}")


def write(path: Path, name: str, table: str) -> None:
    """Replaces a table in the file of a page."""
    path.write_text(replaced(path.read_text(encoding="utf-8"), name, table), encoding="utf-8")
