"""Frozen records that live in the state of a run: to plain data and back, checked on the way in."""

from __future__ import annotations

from typing import Self, cast

import msgspec


class PlainRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record of plain values."""

    def to_json(self) -> dict[str, object]:
        """The record as dicts, lists, texts and numbers."""
        return cast("dict[str, object]", msgspec.json.decode(msgspec.json.encode(self)))

    @classmethod
    def from_json(cls, plain: object) -> Self:
        """Read a record back. Raises ``msgspec.ValidationError`` (a ValueError) for what is no such record."""
        return msgspec.convert(plain, cls)


def check_counts(record: msgspec.Struct) -> None:
    """Raise ValueError unless every number of a record, also within its dicts, is a whole one and not negative."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        for number in value.values() if isinstance(value, dict) else (value,):
            if number is not None and (type(number) is not int or number < 0):
                kind = type(record).__name__
                raise ValueError(f"{kind}: {name} is {number!r}; write a whole number that is not negative")
