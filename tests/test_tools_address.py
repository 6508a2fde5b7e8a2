import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import contact_key, is_plain_address, same_address

RECORD = "bo.berg@town.example"


@pytest.mark.parametrize("to", ["bo.berg@town.example", "bo.berg@TOWN.example", "bo.berg@Town.Example"])
def test_the_domain_is_compared_without_case(to: str) -> None:
    assert same_address(to, RECORD)


@pytest.mark.parametrize(
    "to",
    [
        "BO.BERG@town.example",
        "Bo.berg@town.example",
        "boberg@town.example",
        "bo.berg+x@town.example",
        "bo.berg@town.example.evil.example",
        "Bo <bo.berg@town.example>",
        "bo.berg@town.example <evil@x.example>",
        "bo.berg@town.example (evil@x.example)",
        "evil@x.example bo.berg@town.example",
        '"bo.berg@town.example" <evil@x.example>',
        "bo.berg@town.example\t",
        "<@x.example:bo.berg@town.example>",
        "bo.berg@town.example|evil@x.example",
        "bo.berg@town.example&evil@x.example",
        "bo.berg@town.example/evil@x.example",
        "bo.berg@[127.0.0.1]",
        "mailto:bo.berg@town.example",
        "bo.berg%40town.example",
        "bo.berg@town.example?cc=evil@x.example",
        "bo.berg@town.example\\",
        "undisclosed-recipients:;",
        "<bo.berg@town.example>",
        "bo.berg@town.example,evil@x.example",
        "bo.berg@town.example;evil@x.example",
        "x: bo.berg@town.example;",
        "bo.berg@town.example\r\nBcc: evil@x.example",
        "bo.berg@town.example\n",
        "bo.berg@town.example\r",
        "bo.berg@town.example\0",
        " bo.berg@town.example",
        "bo.berg@town.example ",
        "bo.berg@town.example.",
        "bo.berg@town\u3002example",
        "b\u043e.berg@town.example",
        "b\u00f6.berg@town.example",
        "bo.berg@town.\u0435xample",
        "bo.berg@\uff54own.example",
        "bo.berg@town\uff0eexample",
        "bo\u2024berg@town.example",
        "bo.berg\uff20town.example",
        "bo.ber\u0261@town.example",
        "bo.berg@town.exam\u00adple",
        "bo.berg@town.example\ufe0f",
        "bo.berg\u0301@town.example",
        "\ufeffbo.berg@town.example",
        "bo.berg@xn--town-0qa.example",
        "bo.berg@t\u043ewn.example",
        "bo.berg\u200b@town.example",
        "\u202ebo.berg@town.example",
        "bo.berg@town.example\u00a0",
        '"bo.berg"@town.example',
        "bo.berg(c)@town.example",
        "a@b@town.example",
        "@town.example",
        "bo.berg@",
        "bo.berg",
        "",
        None,
        7,
        ["bo.berg@town.example"],
        b"bo.berg@town.example",
    ],
)
def test_everything_else_is_another_address(to: object) -> None:
    assert not same_address(to, RECORD)


@pytest.mark.parametrize("record", [None, "", " ", "@", "bo", "a@b,c@d", "bo.berg @town.example", ["a@b"]])
def test_without_a_usable_record_nothing_is_the_same(record: object) -> None:
    assert not same_address(record, record)
    assert not is_plain_address(record)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("BOSS@Corp.Example", "boss@corp.example", True),
        ("bOsS@corp.example", "boss@CORP.EXAMPLE", True),
        ("boss@corp.example", "boss@corp.example.", False),
        ("bo.ss@corp.example", "boss@corp.example", False),
        ("boss+x@corp.example", "boss@corp.example", False),
        ("bos\u017f@corp.example", "boss@corp.example", False),
        ("\u212aim@corp.example", "kim@corp.example", False),
        ("b\u043ess@corp.example", "boss@corp.example", False),
    ],
)
def test_a_contact_is_known_without_case_and_by_nothing_more(first: str, second: str, same: bool) -> None:
    assert (contact_key(first) == contact_key(second)) is same
    assert same_address(first, second) is False


@pytest.mark.parametrize("value", [None, 7, "", "Bo <bo@town.example>", " bo@town.example", "a@b,c@d"])
def test_what_is_no_address_is_no_contact(value: object) -> None:
    assert contact_key(value) is None


def test_the_lengths_of_the_standard() -> None:
    assert is_plain_address("a" * 64 + "@x.example")
    assert not is_plain_address("a" * 65 + "@x.example")
    assert not is_plain_address("\u00e9" * 33 + "@x.example")
    assert is_plain_address("a@" + "b" * 252)
    assert not is_plain_address("a@" + "b" * 253)
    assert not is_plain_address("a@" + "b" * 10**6)


@given(st.text(), st.text())
def test_same_never_means_more_than_equal_but_for_case(first: str, second: str) -> None:
    if same_address(first, second):
        assert first.lower() == second.lower()
    assert same_address(first, first) is is_plain_address(first)
