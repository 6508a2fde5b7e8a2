"""Checks on what people hand to the desk, made before anything is done."""

from __future__ import annotations

from typing import Final

from desk.errors import BadInputError

REQUEST_LIMIT: Final = 20_000
"""Characters a request may have."""

THREAD_LIMIT: Final = 100
"""Characters the name of a conversation may have."""


def checked_request(request: str) -> str:
    """Give the text of a request without blanks around it, or raise ``BadInputError``."""
    text = request.strip()
    if not text:
        raise BadInputError("request", "it is empty; write what is wanted")
    if len(text) > REQUEST_LIMIT:
        raise BadInputError("request", f"it has {len(text):,} characters and {REQUEST_LIMIT:,} are allowed; shorten it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInputError("request", f"character {error.start} is not valid Unicode") from error
    return text


def checked_thread(thread: str) -> str:
    """Give the name of a conversation, or raise ``BadInputError``."""
    if not thread or len(thread) > THREAD_LIMIT or not thread.isprintable() or thread.isspace():
        raise BadInputError("thread", f"a name has 1 to {THREAD_LIMIT} printable characters")
    return thread
