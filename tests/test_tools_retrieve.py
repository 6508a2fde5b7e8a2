import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import Document, DocumentIndex, Passage, ToolCall, ToolStorageError, execute, search_tool
from tools.retrieve import SNIPPET_LIMIT, query_words

DOCUMENTS = [
    Document("refund", "Refunds", "Fourteen days before the start everything is paid back."),
    Document("seats", "Seats", "A full event has a list of people who wait. Refunds are another page."),
    Document("ubuntu", "Systems", "The machines run ubuntu 20.04 and a multi-agent setup, ticket BENCH-100821."),
    Document("cafe", "Places", "Meet at the café near O'Hara's, 50% off, C++ and .NET talks"),
    Document("tokyo", "天気", "東京都の天気は晴れです"),
    Document("words", "Operators", "AND, OR and NOT are words; NEAR too"),
]

# More documents, so that what must be found can be told from what must not.
SIGNS = [
    Document("signs", "Signs", "A #tag, an @user, a/b, e=mc2, 50%, C++ and .NET at 12:30"),
    Document("mail", "Address", 'Write to user@host.example; it\'s quoted: "word", key:value'),
    Document("street", "Stra\u00dfe", "\u00c5se, \u0130stanbul, \ufb01ne, \uff37\uff29\uff24\uff25, \u00bd"),
    Document("nfd", "Places", "Meet at the cafe\u0301"),
    Document("tokyo", "Weather", "\u6771\u4eac\u90fd\u306e\u5929\u6c17"),
    Document("seoul", "Weather", "\uc11c\uc6b8\uc758 \ub0a0\uc528"),
    Document("thai", "Weather", "\u0e2d\u0e32\u0e01\u0e32\u0e28\u0e27\u0e31\u0e19\u0e19\u0e35\u0e49"),
    Document("kana", "Weather", "\u304d\u3087\u3046\u306f\u6674\u308c"),
]

# Inputs of public reports by their number in the list of cases, with others of their kind, and what they find.
FOUND: list[tuple[str, str, list[str]]] = [
    ("E53", "multi-agent", []),
    ("E53", "-band", []),
    ("E53", "-tag", ["signs"]),
    ("E53", "--user", ["mail", "signs"]),
    ("E53", "signs:tag", []),
    ("E53", "text : tag", ["signs"]),
    ("E53", "user-host", ["mail"]),
    ("E53", "host-example", ["mail"]),
    ("E55", ".NET", ["signs"]),
    ("E55", "C++", ["signs"]),
    ("E55", "a/b", ["signs"]),
    ("E55", "b/a", []),
    ("E55", "50%", ["signs"]),
    ("E55", "#tag", ["signs"]),
    ("E55", "e=mc2", ["signs"]),
    ("E55", "12:30", ["signs"]),
    ("E55", "user@host.example", ["mail"]),
    ("E55", "it's", ["mail"]),
    ("E55", "key:value;", ["mail"]),
    ("E55", "'; DROP TABLE documents; --", []),
    ("E55", "100$ \\ ~ ` | & !", []),
    ("E57", "AND", ["signs"]),
    ("E57", "OR", []),
    ("E57", "NOT tag", ["signs"]),
    ("E57", "tag AND", ["signs"]),
    ("E57", "NEAR(tag value", ["mail"]),  # "near tag" is one word of two parts
    ("E57", "NEAR( tag value, 9)", ["mail", "signs"]),
    ("E57", "tag NOT user", ["mail", "signs"]),
    ("E57", "^tag", ["signs"]),
    ("E57", "ta*", []),
    ("E57", "{title text}: tag", ["signs"]),
    ("E57", "(tag", ["signs"]),
    ("E57", "tag + value", ["mail", "signs"]),
    ("E57", '"tag', ["signs"]),
    ("E57", '"tag" "" value"', ["mail", "signs"]),
    ("E61", "cafe", ["nfd"]),
    ("E61", "caf\u00e9", ["nfd"]),
    ("E61", "strasse", ["street"]),
    ("E61", "STRASSE", ["street"]),
    ("E61", "ase", ["street"]),
    ("E61", "istanbul", ["street"]),
    ("E61", "fine", ["street"]),
    ("E61", "wide", ["street"]),
    ("E61", "wi\u00adde", ["street"]),
    ("E61", "\u200bwide\ufeff", ["street"]),
    ("E61", "\u6771\u4eac", ["tokyo"]),
    ("E61", "\u4eac\u6771", []),
    ("E61", "\u5929\u6c17", ["tokyo"]),
    ("E61", "\uc11c\uc6b8", ["seoul"]),
    ("E61", "\u0e27\u0e31\u0e19", ["thai"]),
    ("E61", "\u6674\u308c", ["kana"]),
]
BLANK = ["", " ", "   \n\t", "?!.,", '"', '""', "()", "--", "*", "\U0001f600", "\U0001f468\u200d\U0001f469", "\0",
         "\u200b", "\u3000", "\u0301", "+ - * /"]  # fmt: skip


@pytest.fixture
def index() -> Iterator[DocumentIndex]:
    with DocumentIndex() as made:
        made.add(DOCUMENTS)
        yield made


def ids(found: list[Passage]) -> list[str]:
    return [item.id for item in found]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("multi-agent", ["ubuntu"]),
        ("BENCH-100821", ["ubuntu"]),
        ("bench-100821", ["ubuntu"]),
        ("-band", []),
        ("ubuntu 20.04", ["ubuntu"]),
        (".NET", ["cafe"]),
        ("50%", ["cafe"]),
        ("a/b", []),
        ("#tag", []),
        ("@user", []),
        ("e=mc2", []),
        ("cafe", ["cafe"]),
        ("CAFÉ", ["cafe"]),
        ("O'Hara's", ["cafe"]),
        ("東京", ["tokyo"]),
        ("京東", []),
        ("天気", ["tokyo"]),
        ("NEAR", ["words", "cafe"]),
        ("refund", ["refund", "seats"]),
        ('title:refund OR "x', []),
        ('refund OR "x', ["refund", "seats"]),
        ("operators*", ["words"]),
        ('"', []),
        ("", []),
        ("   \n\t", []),
        ("?!.,", []),
        ("\U0001f600", []),
        ("\0", []),
        ("\ud800", []),
        ("weather on Mars", []),
    ],
)
def test_any_text_is_a_query(index: DocumentIndex, query: str, expected: list[str]) -> None:
    assert ids(index.search(query)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("AND", ["cafe", "ubuntu", "words"]),
        ("NOT", ["words"]),
        ("NEAR too", ["cafe", "words"]),
        ("refund AND nothing", ["refund", "seats"]),
        ("refund NOT page", ["refund", "seats"]),
        ("NEAR(a b", []),
        ("OR are", ["seats", "words"]),
        ("{x}: ^y + z", []),
    ],
)
def test_operators_are_words(index: DocumentIndex, query: str, expected: list[str]) -> None:
    assert sorted(ids(index.search(query))) == expected


@pytest.mark.parametrize(("row", "query", "expected"), FOUND)
def test_signs_are_text_and_spellings_are_folded(row: str, query: str, expected: list[str]) -> None:
    with DocumentIndex() as index:
        index.add(SIGNS)
        assert sorted(ids(index.search(query))) == expected, row


@pytest.mark.parametrize("query", BLANK, ids=ascii)
def test_a_query_without_a_word_runs_no_sql(query: str) -> None:
    index = DocumentIndex()
    index.close()
    assert index.search(query) == []
    with pytest.raises(ToolStorageError):
        index.search("word")


def test_the_tool_tells_the_model_its_rules() -> None:
    with DocumentIndex() as index:
        assert "literally" in search_tool(index).description


def test_an_index_of_an_earlier_release_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    with DocumentIndex(path) as index:
        index.add(SIGNS)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("DROP TABLE documents_terms")
        connection.execute("CREATE VIRTUAL TABLE documents_words USING fts5(title, text, content = '')")
        connection.execute("INSERT INTO documents_words (rowid, title, text) VALUES (1, 'Signs', 'old words')")
    connection.close()
    for _ in range(2):
        with DocumentIndex(path) as index:
            assert ids(index.search("strasse")) == ["street"]
            assert ids(index.search("old")) == []
            index.add([Document("street", "Road", "renamed")])
            assert (ids(index.search("road")), ids(index.search("strasse"))) == (["street"], [])
            index.add(SIGNS)
    connection = sqlite3.connect(path)
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    assert "documents_words" not in tables


def test_the_words_of_a_query() -> None:
    assert query_words("What is the refund, please?") == ["refund,", "please?"]
    assert query_words("the AND of") == ["the", "AND", "of"]
    assert len(query_words(" ".join(str(number) for number in range(500)))) == 32


def test_a_megabyte_is_a_query(index: DocumentIndex) -> None:
    assert ids(index.search("refund " + "x" * 10**6)) == ["refund", "seats"]
    assert ids(index.search("y" * 10**6)) == []


def test_a_title_outranks_the_text_and_scores_fall(index: DocumentIndex) -> None:
    found = index.search("refunds")
    assert ids(found) == ["refund", "seats"]
    assert found[0].score > found[1].score > 0


def test_the_limit(index: DocumentIndex) -> None:
    assert ids(index.search("refunds", limit=1)) == ["refund"]
    with pytest.raises(ValueError, match="limit is 0"):
        index.search("refunds", limit=0)
    with pytest.raises(ValueError, match="from 1 to 1000"):
        index.search("refunds", limit=10**30)


def test_a_long_text_is_shown_around_the_match() -> None:
    with DocumentIndex() as index:
        index.add([Document("long", "Long", "filler " * 1000 + "needle " + "filler " * 1000)])
        text = index.search("needle")[0].text
    assert len(text) == SNIPPET_LIMIT
    assert "needle" in text
    assert text.startswith("...")
    assert text.endswith("...")


def test_a_new_text_takes_the_place_of_the_old(index: DocumentIndex) -> None:
    index.add([Document("refund", "Refunds", "Half of it after a week.")])
    assert len(index) == len(DOCUMENTS)
    assert ids(index.search("fourteen")) == []
    assert ids(index.search("week")) == ["refund"]
    assert index.get("refund") == Document("refund", "Refunds", "Half of it after a week.")
    assert index.get("none") is None


def test_documents_stay_in_the_file(tmp_path: Path) -> None:
    with DocumentIndex(tmp_path / "d.db") as index:
        index.add(DOCUMENTS)
    with DocumentIndex(tmp_path / "d.db") as index:
        assert ids(index.search("fourteen")) == ["refund"]


def test_threads_share_an_index(tmp_path: Path) -> None:
    found: list[list[str]] = []
    with DocumentIndex(tmp_path / "d.db") as index:

        def work(number: int) -> None:
            index.add([Document(f"n{number}", "Number", f"word{number} shared")])
            found.append(ids(index.search(f"word{number}")))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(index.search("shared", limit=20)) == 8
    assert sorted(found) == [[f"n{number}"] for number in range(8)]


def test_the_tool(index: DocumentIndex) -> None:
    tool = search_tool(index)
    assert tool.tier == "safe"
    found = execute(ToolCall("c", "search_documents", {"query": "fourteen"}), [tool])
    assert found.content == (
        '[{"id": "refund", "title": "Refunds", "text": "Fourteen days before the start everything is paid back."}]'
    )
    empty = execute(ToolCall("c", "search_documents", {"query": "weather"}), [tool])
    assert (empty.content, empty.is_error) == ("[]", False)
    assert execute(ToolCall("c", "search_documents", {"query": "x", "limit": 0}), [tool]).kind == "invalid_arguments"


def test_a_table_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE documents (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ToolStorageError, match="belongs to something else"):
        DocumentIndex(path)
    assert path.read_bytes() == before


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    assert SHARED.search(text, limit=20) is not None


@given(st.text(min_size=1, max_size=60))
def test_a_document_is_found_by_its_own_words(text: str) -> None:
    with DocumentIndex() as index:
        index.add([Document("only", "", text)])
        words = query_words(text)
        for word in words:
            assert ids(index.search(word)) == ["only"], word


SHARED = DocumentIndex()
SHARED.add(DOCUMENTS)


@pytest.fixture(autouse=True, scope="module")
def close_shared() -> Iterator[None]:
    yield
    SHARED.close()
