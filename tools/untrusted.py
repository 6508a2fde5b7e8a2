"""Text from outside as a block that a language model can tell from instructions, and that the text cannot end."""

from __future__ import annotations

import re
import secrets
from typing import Final

_FENCE: Final = re.compile(r"<\s*<(?=[\s/]*untrusted)", re.IGNORECASE)


def fenced(text: str, *, marker: str | None = None) -> str:
    """The text between two lines that carry one random marker.

    What looks like such a line inside the text, in any case and with any blanks, is escaped, and so is the marker
    itself. ``marker`` is for tests; without it each block has one of its own, 16 hexadecimal digits. The block is a
    hint to a model and no guard: what a model then asks for is decided elsewhere.
    """
    mark = secrets.token_hex(8) if marker is None else marker
    inside = _FENCE.sub("&lt;&lt;", text)
    inside = re.sub(re.escape(mark), "(marker)", inside, flags=re.IGNORECASE)
    return f"<<untrusted {mark}>>\n{inside}\n<</untrusted {mark}>>"
