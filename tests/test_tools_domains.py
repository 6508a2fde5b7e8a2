import pickle
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import AddressNotAllowedError, AllowedDomains, NotPermittedError, ToolDefinitionError

DOMAINS = AllowedDomains(["example.org", "*.docs.example.org", "dev.example.org:8443", "bücher.example", "intranet"])


@pytest.mark.parametrize(
    ("address", "checked"),
    [
        ("https://example.org", "https://example.org/"),
        ("https://example.org/a?b=c#d", "https://example.org/a?b=c#d"),
        ("HTTPS://EXAMPLE.ORG/Path", "https://example.org/Path"),
        ("https://example.org:443/", "https://example.org/"),
        ("https://example.org?q=1", "https://example.org/?q=1"),
        ("https://example.org#@evil.example", "https://example.org/#@evil.example"),
        ("https://example.org/@evil.example", "https://example.org/@evil.example"),
        ("https://example.org//evil.example", "https://example.org//evil.example"),
        ("https://a.docs.example.org/", "https://a.docs.example.org/"),
        ("https://a.b.docs.example.org/", "https://a.b.docs.example.org/"),
        ("https://dev.example.org:8443/x", "https://dev.example.org:8443/x"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("https://XN--BCHER-KVA.example/", "https://xn--bcher-kva.example/"),
        ("https://intranet/", "https://intranet/"),
        ("https://example.org/%2e%2e/é", "https://example.org/%2e%2e/é"),
    ],
)
def test_what_is_on_the_list(address: str, checked: str) -> None:
    assert DOMAINS.check(address) == checked
    assert DOMAINS.check(checked) == checked


@pytest.mark.parametrize(
    "address",
    [
        # other hosts
        "https://evil.example/",
        "https://www.example.org/",
        "https://notexample.org/",
        "https://example.org.evil.example/",
        "https://docs.example.org/",
        "https://evildocs.example.org/",
        "https://example.com/",
        # user names
        "https://example.org@evil.example/",
        "https://evil.example@example.org/",
        "https://user:password@example.org/",
        "https://@example.org/",
        "https://example.org:443@evil.example/",
        "https://example.org%40evil.example/",
        # ports
        "https://example.org:8443/",
        "https://example.org:80/",
        "https://dev.example.org/",
        "https://dev.example.org:443/",
        "https://example.org:/",
        "https://example.org:0443/",
        "https://example.org:99999/",
        "https://example.org:-1/",
        "https://example.org:\uff14\uff14\uff13/",
        "https://example.org:443:443/",
        # dots
        "https://example.org./",
        "https://example.org../",
        "https://.example.org/",
        "https://..docs.example.org/",
        "https://a..docs.example.org/",
        "https://example。org/",
        "https://example\uff0eorg/",
        # letters that look alike, or that some programs map to others
        "https://\u0435xample.org/",
        "https://\uff45xample.org/",
        "https://exam\u200bple.org/",
        "https://exam\u00adple.org/",
        "https://ⓔxample.org/",
        "https://xn--xample-2of.org/",
        "https://xn--a.docs.example.org/",
        "https://ab--c.docs.example.org/",
        "https://BÜCHER.example/",
        "https://bu\u0308cher.example/",
        # IP addresses, in all their forms
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://1.docs.example.org.1/",
        # schemes
        "http://example.org/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:text/plain,x",
        "//example.org/",
        "example.org",
        "https:example.org",
        "https:/example.org",
        "https:///example.org",
        "https://",
        # what parsers drop, fold or read differently
        " https://example.org/",
        "https://example.org/ ",
        "https://exam\tple.org/",
        "https://example.org\n.evil.example/",
        "https://example.org\r\nHost: evil.example",
        "https://example.org\\@evil.example/",
        "https:\\\\example.org/",
        "https://example.org\x00.evil.example/",
        "https://ex%61mple.org/",
        "https://example.org%2f.evil.example/",
        "https://exa_mple.org/",
        "https://-example.org/",
        "https://example.org-/",
        "https://example.org\u2028/",
        "https://exam\ud800ple.org/",
        "https://" + "a" * 64 + ".docs.example.org/",
        "https://" + "a." * 130 + "docs.example.org/",
        "https://example.org/" + "a" * 2_000,
        "",
    ],
)
def test_what_is_not(address: str) -> None:
    with pytest.raises(AddressNotAllowedError) as caught:
        DOMAINS.check(address)
    assert (caught.value.kind, caught.value.address) == ("not_permitted", address)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("address", [None, 1, b"https://example.org/", ["https://example.org/"]])
def test_what_is_no_text(address: str) -> None:
    with pytest.raises(AddressNotAllowedError, match="no text"):
        DOMAINS.check(address)


@pytest.mark.parametrize(
    "entry",
    [
        "", "*", "*.", "*.org", "example.org.", ".example.org", "https://example.org", "example.org/", "127.0.0.1",
        "example.org:", "example.org:x", "exa mple.org", "*.*.example.org", "a.*.example.org", "user@example.org",
        "[::1]",
    ],
)  # fmt: skip
def test_an_entry_that_is_no_domain_is_refused(entry: str) -> None:
    with pytest.raises(ToolDefinitionError):
        AllowedDomains([entry])


def test_a_list_is_a_list_and_a_scheme_one_of_two() -> None:
    with pytest.raises(ToolDefinitionError, match="brackets"):
        AllowedDomains("example.org")
    with pytest.raises(ToolDefinitionError, match="schemes there are"):
        AllowedDomains(["example.org"], schemes=["ftp"])
    with pytest.raises(NotPermittedError):
        AllowedDomains([]).check("https://example.org/")


def test_plain_http_is_allowed_only_where_it_is_asked_for() -> None:
    both = AllowedDomains(["example.org"], schemes=["https", "http"])
    assert both.check("http://example.org:80/") == "http://example.org/"
    assert both.check("https://example.org/") == "https://example.org/"
    with pytest.raises(AddressNotAllowedError):
        both.check("http://example.org:443/")


def test_the_error_can_be_sent_to_another_process() -> None:
    with pytest.raises(AddressNotAllowedError) as caught:
        DOMAINS.check("https://evil.example/")
    assert pickle.loads(pickle.dumps(caught.value)).problem == "evil.example at port 443 is not on the list"


pieces = st.sampled_from(
    ["https://", "http:", "example.org", "evil.example", "docs.", ".", "@", ":", "443", "/", "\\", "?", "#", "%2e", "a",
     "[::1]", "bücher.example", "\t", "*", "xn--", "..", "。", "//"]
)  # fmt: skip
ALLOWED_HOSTS = {"example.org", "dev.example.org", "xn--bcher-kva.example", "intranet"}


@settings(deadline=None)
@given(st.lists(pieces, max_size=9).map("".join) | st.text(max_size=40).map("https://".__add__))
def test_whatever_passes_leads_to_the_list(address: str) -> None:
    try:
        checked = DOMAINS.check(address)
    except AddressNotAllowedError:
        return
    host = urlsplit(checked).hostname or ""
    assert host in ALLOWED_HOSTS or host.endswith(".docs.example.org")
    assert checked.startswith("https://")
    assert "@" not in checked.split("/", 3)[2]
