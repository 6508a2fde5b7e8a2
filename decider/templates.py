"""Texts with places to fill, and pieces of a tokenizer by name."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from string import Formatter

from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Part:
    """Literal text, and the place behind it: None at the end of a template."""

    literal: str
    place: str | None


def split(template: str) -> list[Part]:
    """Return the parts of a template."""
    return [Part(literal, place) for literal, place, _, _ in Formatter().parse(template)]


def fill(template: str, **texts: str) -> str:
    """Return the template with texts in its places; braces in the texts stay what they are."""
    return "".join(part.literal + ("" if part.place is None else texts[part.place]) for part in split(template))


def check_template(name: str, template: str, needed: Set[str], allowed: Set[str] = frozenset()) -> None:
    """Raise ValueError where a place is missing, there twice or unknown; a brace that is text is written twice."""
    try:
        places = [part.place for part in split(template) if part.place is not None]
    except ValueError as error:
        raise ValueError(f"{name}: {template!r} cannot be read ({error}); write a brace that is text twice") from None
    for place in sorted(needed - set(places)):
        raise ValueError(f"{name}: {template!r} has no {{{place}}}")
    for place in places:
        if place not in needed | allowed or places.count(place) > 1:
            known = ", ".join(f"{{{known}}}" for known in sorted(needed | allowed))
            raise ValueError(f"{name}: {template!r} has {{{place}}}; each of {known} may stand there once")


def token_ids(tokenizer: Tokenizer, pieces: Sequence[str]) -> list[int]:
    """Return the ids of the pieces; raises ValueError for one that the tokenizer does not have."""
    ids = []
    for piece in pieces:
        found = tokenizer.token_to_id(piece)
        if found is None:
            raise ValueError(f"the tokenizer has no piece {piece!r}, which the layout writes")
        ids.append(found)
    return ids
