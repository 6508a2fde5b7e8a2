"""A reducer for chat histories: messages are plain dictionaries with a role, a content and an id."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

from minigraph.errors import InvalidUpdateError

REMOVE_ALL_MESSAGES: Final = "__remove_all__"
"""The id in {"role": "remove", "id": REMOVE_ALL_MESSAGES} that forgets everything before it."""

Message = dict[str, Any]


def add_messages(left: Any, right: Any) -> list[Message]:
    """Appends messages; one whose id is known replaces that message in its place.

    Each side is a message or a list of them; a message is a dict with at least `role`, a plain string (a user's
    message) or a (role, content) pair. A message without an id gets one. {"role": "remove", "id": ...} removes.
    Raises InvalidUpdateError for anything else, and for a removal of an id that is not there.
    """
    merged = _messages(left, "left")
    incoming = _messages(right, "right")
    for position in reversed(range(len(incoming))):
        if incoming[position]["role"] == "remove" and incoming[position]["id"] == REMOVE_ALL_MESSAGES:
            merged, incoming = [], incoming[position + 1 :]
            break
    places = {message["id"]: place for place, message in enumerate(merged)}
    removed: set[str] = set()
    for message in incoming:
        key = message["id"]
        place = places.get(key)
        if message["role"] == "remove":
            if place is None:
                raise InvalidUpdateError(f"add_messages: cannot remove message {key!r}: no message has that id")
            removed.add(key)
        elif place is None:
            places[key] = len(merged)
            merged.append(message)
        else:
            merged[place] = message
            removed.discard(key)
    return [message for message in merged if message["id"] not in removed] if removed else merged


class MessagesState(TypedDict):
    """A state with one key, a chat history."""

    messages: Annotated[list[Message], add_messages]


def _messages(value: Any, side: str) -> list[Message]:
    items = value if isinstance(value, list) else [value]
    return [_message(item, side) for item in items]


def _message(value: Any, side: str) -> Message:
    if isinstance(value, str):
        value = {"role": "user", "content": value}
    elif isinstance(value, tuple) and len(value) == 2:
        value = {"role": value[0], "content": value[1]}
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
        raise InvalidUpdateError(
            f"add_messages: the {side} side holds {value!r}, which is no message;"
            ' write {"role": "user", "content": "..."}, a string or a (role, content) pair'
        )
    if value["role"] == "remove" and not value.get("id"):
        raise InvalidUpdateError('add_messages: {"role": "remove"} needs the id of the message to remove')
    if not value.get("id"):
        return {**value, "id": str(uuid.uuid4())}
    return value if type(value) is dict else dict(value)
