"""Which web addresses a tool may open: a list of domains, and a strict reading of the address.

The check answers with the address to open. Open that one and not the text that was checked: two programs may read an
odd address differently, and everything odd is refused here rather than understood. The check knows names alone: what a
name resolves to, and where a server redirects to, is to be checked by whoever opens the address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import idna

from tools.errors import NotPermittedError, ToolDefinitionError

ADDRESS_LIMIT: Final = 2_000
"""Characters an address may have."""

_LABEL: Final = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)\Z")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}\Z")
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}

# What begins an address and cannot be mistaken: scheme, host of name characters, perhaps a port, then / ? # or the end.
_FORM: Final = re.compile(r"(?P<scheme>[A-Za-z]+)://(?P<host>[^\s/?#@:\\%\[\]]+)(?::(?P<port>[0-9]*))?(?=[/?#]|\Z)")


class AddressNotAllowedError(NotPermittedError):
    """An address that is not on the list, or that cannot be read with certainty. ``problem`` says which."""

    def __init__(self, address: str, problem: str) -> None:
        shown = address if len(address) <= 80 else f"{address[:77]}..."
        super().__init__(f"{shown!r} may not be opened: {problem}")
        self.address = address
        self.problem = problem

    def __reduce__(self) -> tuple[type[AddressNotAllowedError], tuple[str, str]]:
        return type(self), (self.address, self.problem)


@dataclass(frozen=True, slots=True)
class _Entry:
    domain: str
    with_subdomains: bool
    port: int | None

    def allows(self, host: str, port: int, default: int) -> bool:
        if port != (default if self.port is None else self.port):
            return False
        return host.endswith(f".{self.domain}") if self.with_subdomains else host == self.domain


class AllowedDomains:
    """A list of domains a tool may reach.

    ``example.org`` allows that host alone, ``*.example.org`` every host below it and not itself, and
    ``example.org:8443`` another port than the usual one of the scheme. Domains may be written in their own script.
    """

    def __init__(self, domains: Iterable[str], *, schemes: Iterable[str] = ("https",)) -> None:
        """Raises ``ToolDefinitionError`` for an entry that is no domain, or one that allows a whole top level."""
        if isinstance(domains, str):
            raise ToolDefinitionError(domains, "the domains are a list; write it in brackets")
        self._entries: Final = tuple(_entry(domain) for domain in domains)
        self._schemes: Final = tuple(schemes)
        for scheme in self._schemes:
            if scheme not in _DEFAULT_PORTS:
                raise ToolDefinitionError(scheme, f"the schemes there are: {', '.join(_DEFAULT_PORTS)}")

    def check(self, address: str) -> str:
        """The address to open: its host in ASCII and small letters, the rest as it was.

        Raises ``AddressNotAllowedError`` for another scheme, host or port, for a user name, an IP address, a final dot,
        escapes or blanks in the host, control characters and backslashes anywhere.
        """
        if not isinstance(address, str) or not address:
            raise AddressNotAllowedError(str(address), "it is no text")
        if len(address) > ADDRESS_LIMIT:
            raise AddressNotAllowedError(address, f"it has {len(address)} characters and {ADDRESS_LIMIT} are allowed")
        if any(ord(character) <= 0x20 or 0x7F <= ord(character) <= 0xA0 for character in address) or "\\" in address:
            raise AddressNotAllowedError(address, "it holds a blank, a control character or a backslash")
        found = _FORM.match(address)
        if found is None:
            raise AddressNotAllowedError(address, "it is not scheme://host/path without user name, escapes or brackets")
        scheme = found["scheme"].lower()
        if scheme not in self._schemes:
            raise AddressNotAllowedError(address, f"the scheme {scheme!r} is none of {', '.join(self._schemes)}")
        host, port = _host(address, found["host"]), self._port(address, found["port"], scheme)
        if not any(entry.allows(host, port, _DEFAULT_PORTS[scheme]) for entry in self._entries):
            raise AddressNotAllowedError(address, f"{host} at port {port} is not on the list")
        shown_port = "" if port == _DEFAULT_PORTS[scheme] else f":{port}"
        rest = address[found.end() :]
        checked = f"{scheme}://{host}{shown_port}{rest if rest.startswith('/') else f'/{rest}'}"
        _agree(address, checked, host)
        return checked

    def _port(self, address: str, given: str | None, scheme: str) -> int:
        if given is None:
            return _DEFAULT_PORTS[scheme]
        if not _PORT.match(given) or int(given) > 65_535:
            raise AddressNotAllowedError(address, f"{given!r} is no port")
        return int(given)


def _entry(text: str) -> _Entry:
    name, found, port = text.partition(":")
    if found and (not _PORT.match(port) or int(port) > 65_535):
        raise ToolDefinitionError(text, f"{port!r} is no port")
    with_subdomains = name.startswith("*.")
    name = name.removeprefix("*.")
    try:
        domain = ascii_domain(name)
    except ValueError as error:
        raise ToolDefinitionError(text, f"it is no domain: {error}") from error
    if with_subdomains and "." not in domain:
        raise ToolDefinitionError(text, "it would allow everything under a top level; name a domain below it")
    return _Entry(domain, with_subdomains, int(port) if found else None)


def ascii_domain(name: str) -> str:
    """A domain in ASCII and small letters, after IDNA 2008, without mapping look-alikes to other letters.

    Raises ValueError for everything that is none, such as an IP address, a final dot, or a label with an underscore.
    """
    lowered = name.lower() if name.isascii() else name
    try:
        # Strict: only "." parts labels, and nothing is mapped.
        domain = (
            lowered if name.isascii() else ".".join(idna.alabel(label).decode("ascii") for label in name.split("."))
        )
        for label in domain.split("."):
            if not _LABEL.match(label):
                raise ValueError(f"{label!r} is no part of a domain")
            if label[2:4] == "--":
                idna.ulabel(label)  # raises for xn-- that means nothing, and for other reserved forms
                if not label.startswith("xn--"):
                    raise ValueError(f"{label!r} is reserved")
    except idna.IDNAError as error:
        raise ValueError(str(error)) from error
    if len(domain) > 253:
        raise ValueError(f"it has {len(domain)} characters and 253 are allowed")
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", domain.rpartition(".")[2]):
        raise ValueError("it is an IP address")
    return domain


def _host(address: str, text: str) -> str:
    try:
        return ascii_domain(text)
    except ValueError as error:
        raise AddressNotAllowedError(address, f"its host cannot be read: {error}") from error


def _agree(address: str, checked: str, host: str) -> None:
    """The standard library must read the checked address as it was read here."""
    parts = urlsplit(checked)
    if parts.hostname != host or parts.username is not None or parts.password is not None:
        raise AddressNotAllowedError(address, f"it can be read in two ways, {parts.hostname} is one")
