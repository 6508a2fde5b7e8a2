import hashlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import AuditLog, Redaction, ToolCall, ToolContext, ToolResult

RULE = Redaction()
LONG = "A1b2C3d4E5f6G7h8I9j0"


@pytest.mark.parametrize(
    "name",
    ["password", "Password", "user_password", "api_key", "X-Api-Key", "apiKey", "APIKey", "accessToken", "TOKEN", "pin",
     "client.secret", "Authorization", "set-cookie", "credentials", "privateKey", "sessionId", "PASSWORD2"],
)  # fmt: skip
def test_the_value_of_a_secret_field_is_not_kept(name: str) -> None:
    for value in ("x", 1234, ["x"], {"y": "x"}, None):
        assert json.loads(RULE.json({name: value, "to": "ana"})) == {name: "[redacted]", "to": "ana"}
    assert json.loads(RULE.json([{"deep": {name: "x"}}])) == [{"deep": {name: "[redacted]"}}]


@pytest.mark.parametrize(
    "name", ["to", "subject", "tokens", "max_tokens", "secretary", "spin", "keyboard", "passage", ""]
)
def test_other_fields_are_kept(name: str) -> None:
    assert json.loads(RULE.json({name: "x"})) == {name: "x"}


def test_fields_can_be_declared() -> None:
    rule = Redaction(fields=frozenset({"customer number"}))
    given = {"customerNumber": 1, "customer-number": 2, "number": 3, "password": "x"}
    assert json.loads(rule.json(given)) == {
        "customerNumber": "[redacted]", "customer-number": "[redacted]", "number": 3, "password": "x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"use sk-proj-{LONG} now", "use [redacted key] now"),
        (f"sk_live_{LONG}", "[redacted key]"),
        (f"ghp_{LONG}{LONG}", "[redacted key]"),
        (f"glpat-{LONG}", "[redacted key]"),
        (f"xoxb-{LONG}", "[redacted key]"),
        ("AKIAIOSFODNN7EXAMPLE", "[redacted key]"),
        (f"hf_{LONG}", "[redacted key]"),
        (f"Bearer {LONG}", "[redacted authorization]"),
        ("Authorization: Basic dXNlcjpwYXNz", "[redacted authorization]"),
        (f"eyJ{LONG}.{LONG}.{LONG}", "[redacted web token]"),
        ("postgres://desk:hunter2@host/db", "postgres://[redacted password]@host/db"),
        ("password=hunter2; user=ana", "[redacted value]; user=ana"),
        ('{"password": "hunter2", "to": "ana"}', '{"[redacted value], "to": "ana"}'),
        ("api key: abc def", "[redacted value] def"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b", "a [redacted private key] b"),
        ("-----BEGIN PRIVATE KEY-----\nMII", "[redacted private key]"),
        ("The bearer of this ticket pays 50 EUR", "The bearer of this ticket pays 50 EUR"),
        ("Bring a token of thanks; the secret is patience", "Bring a token of thanks; the secret is patience"),
        ("https://example.org:8080/a@b", "https://example.org:8080/a@b"),
    ],
)
def test_what_looks_like_a_key_is_not_kept(text: str, kept: str) -> None:
    assert RULE.text(text) == kept
    assert json.loads(RULE.json({"body": text})) == {"body": kept}
    assert list(json.loads(RULE.json({text: 1}))) == [kept]


def test_a_key_at_the_edge_of_a_cut_text_is_not_kept_and_not_hashed() -> None:
    text = "x" * 990 + " sk-" + LONG + " y" * 100
    clean = "x" * 990 + " [redacted key]" + " y" * 100
    digest = hashlib.sha256(clean.encode()).hexdigest()
    assert RULE.text(text) == clean[:1000] + f"... ({len(clean)} characters, sha256 {digest})"


def test_nothing_secret_reaches_the_file() -> None:
    with AuditLog(":memory:", redaction=Redaction(text_limit=50)) as log:
        call = ToolCall("c", "login", {"password": "hunter2", "note": f"sk-{LONG}", "long": "z" * 60})
        result = ToolResult("c", "login", "token: hunter2", False, "ok")
        log.record(call, result, ToolContext(), decision={"api_key": "hunter2"}, grounds={"request": "pwd=hunter2"})
        [row] = log.rows()
        assert "hunter2" not in repr(row)
        assert LONG not in repr(row)
        assert row.arguments["long"].startswith("z" * 50 + "... (60 characters")  # type: ignore[index]
        assert row.fingerprint == call.fingerprint
        assert log.verify().problem is None


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=10,
    )
)
def test_whatever_is_given_becomes_json(value: object) -> None:
    text = RULE.json(value)
    assert len(text) <= 25_000
    json.loads(text)


def test_long_hostile_texts_cost_little() -> None:
    began = time.process_time()
    for piece in ("eyJ", "sk-", "-----BEGIN ", "://a", "password", "Bearer ", "token:'", "a.b-", "authorization: a "):
        RULE.text(piece * (200_000 // len(piece)))
    assert time.process_time() - began < 10
