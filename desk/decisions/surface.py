"""How a request looks on the page: how dates are written, slips of the keyboard, case, line breaks."""

from __future__ import annotations

import re
from datetime import date
from random import Random

_WORD = re.compile(r"\S+")


def write_date(rng: Random, day: date) -> str:
    """Write a date in one of the ways people write dates."""
    forms = (
        day.isoformat(),
        f"{day:%B} {day.day}",
        f"{day.day} {day:%B}",
        f"{day.day} {day:%b} {day.year}",
        f"{day:%d.%m.%Y}",
        f"{day:%d/%m}",
        f"{day:%A} the {day.day}th",
        f"the {day.day}. of {day:%B}",
    )
    return rng.choice(forms)


def join_parts(rng: Random, parts: list[str]) -> str:
    """Join the parts of a request with spaces, sometimes with line breaks, as people do."""
    separator = rng.choices((" ", "\n", "\n\n"), (0.78, 0.15, 0.07))[0]
    return separator.join(part.strip() for part in parts)


def blur(rng: Random, text: str, *, typos: float, protected: tuple[str, ...] = ()) -> str:
    """Change how a text looks and never what it says.

    With the chance ``typos`` one to three letters slip; one text in nine is all lower case and one in twenty loses its
    full stops. Words with digits or an ``@``, and those in ``protected`` (names), keep their letters.
    """
    if rng.random() < typos:
        text = _slip(rng, text, rng.randrange(1, 4), protected)
    drawn = rng.random()
    if drawn < 0.11:
        return text.lower()
    if drawn < 0.16:
        return re.sub(r"[.!,](?=\s|$)", "", text)
    return text


def _slip(rng: Random, text: str, count: int, protected: tuple[str, ...]) -> str:
    for _ in range(count):
        words = [
            word
            for word in _WORD.finditer(text)
            if len(word.group()) > 4 and word.group().isalpha() and word.group() not in protected
        ]
        if not words:
            return text
        word = rng.choice(words)
        text = text[: word.start()] + _slip_word(rng, word.group()) + text[word.end() :]
    return text


def _slip_word(rng: Random, word: str) -> str:
    place = rng.randrange(1, len(word) - 1)
    match rng.randrange(3):
        case 0:
            return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
        case 1:
            return word[:place] + word[place + 1 :]
        case _:
            return word[:place] + word[place] + word[place:]
