"""The one rule by which two e-mail addresses are the same.

Nothing is parsed, trimmed or normalised: parsers of addresses drop what they do not understand, and what they drop
is the second recipient. Whatever is not plainly the same is different.
"""

from __future__ import annotations

import unicodedata
from typing import Final, TypeGuard

# Characters with a meaning in mail headers: lists, groups, comments, quotes, routes, domain literals.
_SYNTAX: Final = frozenset(',;:<>()[]"\\')

LOCAL_PART_OCTETS: Final = 64
"""RFC 5321, 4.5.3.1.1."""

ADDRESS_OCTETS: Final = 254
"""RFC 5321, 4.5.3.1.3: a path of 256 octets, less its two angle brackets."""


def is_plain_address(value: object) -> TypeGuard[str]:
    """Whether the value is one bare address: ``local@domain``, nothing before, after or inside it."""
    if not isinstance(value, str) or len(value) > ADDRESS_OCTETS:
        return False
    if any(unicodedata.category(character)[0] in "CZ" or character in _SYNTAX for character in value):
        return False
    local, _, domain = value.partition("@")
    if not local or not domain or "@" in domain:
        return False
    return len(local.encode()) <= LOCAL_PART_OCTETS and len(value.encode()) <= ADDRESS_OCTETS


def same_address(to: object, record: object) -> bool:
    """Whether ``to`` is the address on the record.

    Both must be plain addresses; the local parts must be equal to the letter (RFC 5321, 2.4) and the domains equal
    but for the case of the letters A to Z (RFC 4343).
    """
    if not is_plain_address(to) or not is_plain_address(record):
        return False
    to_local, _, to_domain = to.partition("@")
    record_local, _, record_domain = record.partition("@")
    return to_local == record_local and _lower_ascii(to_domain) == _lower_ascii(record_domain)


def _lower_ascii(text: str) -> str:
    return "".join(character.lower() if character.isascii() else character for character in text)
