"""What never reaches a log: values of named fields, texts that look like keys, and the length of long texts.

- A field whose name holds one of ``fields``, as whole words in any spelling (``api_key``, ``X-Api-Key``, ``apiKey``),
  keeps ``[redacted]`` for its value.
- Parts of a text that look like keys (private keys, bearer tokens, web tokens, keys of known services, passwords in
  addresses, ``password=...``) are replaced by ``[redacted KIND]``.
- A text longer than ``text_limit``, or a value of more than ``JSON_LIMIT`` characters of JSON, keeps its beginning, its
  length and the SHA-256 of the whole; what is nested deeper than ``DEPTH_LIMIT`` keeps a note that there was more.

Secrets go first, so neither a cut text nor a digest is made of one.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

TEXT_LIMIT: Final = 1_000
"""Characters kept of any one text inside a value."""

JSON_LIMIT: Final = 20_000
"""Characters that a value may have as JSON; beyond that only its beginning is kept."""

DEPTH_LIMIT: Final = 20
"""Levels of nested values that are kept."""

REDACTED: Final = "[redacted]"
"""What stands for the value of a secret field."""

SECRET_FIELDS: Final = frozenset(
    {
        "password", "passwd", "passphrase", "pwd", "pin", "otp", "cvv", "secret", "token", "api key", "apikey",
        "private key", "access key", "authorization", "cookie", "credential", "credentials", "session id",
    }
)  # fmt: skip
"""Names of fields whose values are never kept, in words."""

_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "private key": re.compile(
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    "web token": re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
    "key": re.compile(
        r"\b(?:sk-[\w-]{16,}|[rsp]k_(?:live|test)_\w{10,}|gh[opsur]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
        r"|xox[abposr]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{30,}|hf_\w{20,}|npm_\w{20,}|pypi-[\w-]{20,})"
    ),
    "authorization": re.compile(
        r"(?i)\bbearer\s+[\w.~+/=-]{12,}|\bauthorization[\"']?\s*[:=]\s*[\"']?\w+\s+[\w.~+/=-]+"
    ),
    "password": re.compile(r"(?<=://)[^\s/:@]{1,200}:[^\s/@]{1,200}(?=@)"),
    "value": re.compile(
        r"(?i)\b(?:password|passwd|passphrase|pwd|secret|token|api[_ -]?key|access[_ -]?key)[\"']?\s*[:=]\s*"
        r"(?:\"[^\"]*\"?|'[^']*'?|[^\s\"',;&}\]]+)"
    ),
}
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True, slots=True)
class Redaction:
    """The rule by which values are made fit for a log. ``fields`` are names in words, such as ``"api key"``."""

    fields: frozenset[str] = SECRET_FIELDS
    text_limit: int = TEXT_LIMIT

    def text(self, text: str, limit: int | None = None) -> str:
        """The text without what looks like a key, cut to ``limit`` characters (``text_limit`` if None)."""
        for kind, pattern in _PATTERNS.items():
            text = pattern.sub(f"[redacted {kind}]", text)
        return shortened(text, self.text_limit if limit is None else limit)

    def json(self, value: object) -> str:
        """The value as JSON text, redacted; what JSON does not know is written as its ``repr``."""
        text = json.dumps(self._plain(value, 0), ensure_ascii=False)
        if len(text) > JSON_LIMIT:
            cut = {"cut": text[: self.text_limit], "characters": len(text), "sha256": _digest(text)}
            text = json.dumps(cut, ensure_ascii=False)
        return text

    def names_secret(self, name: str) -> bool:
        """Whether the values of a field of this name are never kept."""
        words = " ".join(word.lower() for word in _WORDS.findall(name))
        return any(f" {field} " in f" {words} " for field in self.fields)

    def _plain(self, value: object, depth: int) -> object:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        if depth >= DEPTH_LIMIT:
            return f"(nested deeper than {DEPTH_LIMIT})"
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): REDACTED if self.names_secret(str(key)) else self._plain(item, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._plain(item, depth + 1) for item in value]
        return self.text(repr(value))


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning with the length and the SHA-256 (hex, of UTF-8) of the whole."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters, sha256 {_digest(text)})"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
