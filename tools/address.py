r"""The one rule by which two e-mail addresses are the same.

Nothing is parsed, trimmed or normalised: parsers of addresses drop what they do not understand, and what they drop
is the second recipient. Whatever is not plainly the same is different.

| rule | what follows |
|---|---|
| an address is one text ``local@domain`` with one ``@`` | no list, group, route, nothing at all |
| without blanks, control and invisible characters, anywhere | no line break, trailing blank or hidden letter |
| without ``, ; : < > ( ) [ ] \ "`` | no display name, comment, quoted or bracketed part |
| at most 64 octets before the ``@`` and 254 in all | RFC 5321 |
| same address: equal, but for the case of A to Z in the domain | a look-alike of another script is another address |
| same contact: equal, but for the case of A to Z | only to look somebody up, never to decide where mail goes |
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


def contact_key(address: object) -> str | None:
    """The form under which an address is looked up among those already known; None if it is not a plain one.

    For comparison only, since receivers rarely tell the case of a local part: mail goes to the form that is stored,
    and whether it may go there is ``same_address``'s to say.
    """
    return _lower_ascii(address) if is_plain_address(address) else None


def _lower_ascii(text: str) -> str:
    return "".join(character.lower() if character.isascii() else character for character in text)
