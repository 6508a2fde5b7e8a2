"""Full-text search over documents in SQLite FTS5, safe for any text a person or a model may type."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from tools.storage import Database, storable
from tools.tool import Tool, tool

WORD_LIMIT: Final = 32
"""Different words of a query that are searched; the rest is left out."""

QUERY_LIMIT: Final = 4_000
"""Characters of a query that are read."""

SNIPPET_LIMIT: Final = 600
"""Characters of a document's text that a result shows."""

# Words that stand in every English text. They are left out of a query that has other words.
_COMMON_WORDS: Final = frozenset(
    re.findall(
        "[a-z]+",
        """a an and any are as at be been but by can could did do does for from had has have how i if in is it its me my
        not of on or our shall should so than that the their them then there these they this to was we were what when
        where which who why will with would you your""",
    )
)

_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS documents (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, text TEXT NOT NULL)""",
    """CREATE VIRTUAL TABLE IF NOT EXISTS documents_words USING fts5(
        title, text, content = '', tokenize = 'porter unicode61 remove_diacritics 2')""",
)
_TABLES: Final = {"documents": ("number", "id", "title", "text"), "documents_words": ("title", "text")}


@dataclass(frozen=True, slots=True)
class Document:
    """One text that can be found, under an id of its own."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """One document found: the part of its text around the first match, and a score (higher is better)."""

    id: str
    title: str
    text: str
    score: float


class DocumentIndex:
    """Documents in one SQLite file, searched by words and ranked by BM25.

    Safe to share between threads. Words are compared without case, accents and English endings. Scripts written
    without spaces (Chinese, Japanese, Thai) are searched character by character, in order.
    """

    def __init__(self, path: str | os.PathLike[str] = ":memory:") -> None:
        self._database = Database(path, _SCHEMA, _TABLES)

    def __enter__(self) -> DocumentIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(self, documents: Iterable[Document]) -> None:
        """Add documents in one transaction; one with a known id takes the old one's place."""
        with self._database.transaction() as connection:
            for item in documents:
                document = Document(storable(item.id), storable(item.title), storable(item.text))
                old = connection.execute(
                    "SELECT number, title, text FROM documents WHERE id = ?", (document.id,)
                ).fetchone()
                if old is not None:
                    connection.execute(
                        "INSERT INTO documents_words (documents_words, rowid, title, text) VALUES ('delete', ?, ?, ?)",
                        (old["number"], _spaced(old["title"]), _spaced(old["text"])),
                    )
                    connection.execute("DELETE FROM documents WHERE number = ?", (old["number"],))
                cursor = connection.execute(
                    "INSERT INTO documents (id, title, text) VALUES (?, ?, ?)",
                    (document.id, document.title, document.text),
                )
                connection.execute(
                    "INSERT INTO documents_words (rowid, title, text) VALUES (?, ?, ?)",
                    (cursor.lastrowid, _spaced(document.title), _spaced(document.text)),
                )

    def get(self, id: str) -> Document | None:
        """The document with this id, or None."""
        with self._database.read() as connection:
            row = connection.execute("SELECT id, title, text FROM documents WHERE id = ?", (storable(id),)).fetchone()
        return None if row is None else Document(row["id"], row["title"], row["text"])

    def __len__(self) -> int:
        with self._database.read() as connection:
            return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def search(self, query: str, limit: int = 5) -> list[Passage]:
        """The documents that hold at least one word of the query, best first; none is an empty list.

        Any text is a query: its words are searched literally and nothing in it is an operator. ``limit`` is at
        least 1, else ValueError.
        """
        if limit < 1:
            raise ValueError(f"limit is {limit}; it must be at least 1")
        words = query_words(query)
        if not words:
            return []
        match = " OR ".join('"' + _spaced(word).replace('"', '""') + '"' for word in words)
        with self._database.read() as connection:
            # A title weighs as much as two mentions in the text.
            rows = connection.execute(
                """SELECT documents.id, documents.title, documents.text, -found.score AS score
                   FROM (SELECT rowid, bm25(documents_words, 2.0, 1.0) AS score FROM documents_words
                         WHERE documents_words MATCH ? ORDER BY score, rowid LIMIT ?) AS found
                   JOIN documents ON documents.number = found.rowid ORDER BY found.score, found.rowid""",
                (match, limit),
            ).fetchall()
        return [Passage(row["id"], row["title"], _snippet(row["text"], words), row["score"]) for row in rows]


def query_words(query: str) -> list[str]:
    """The parts of a query that are searched: split at blanks, each holding a letter or digit, without repeats."""
    text = storable(query[:QUERY_LIMIT]).replace("\0", " ")
    words = dict.fromkeys(word for word in text.split() if any(_is_word_character(item) for item in word))
    telling = [word for word in words if word.casefold().strip("'\"?!.,;:()") not in _COMMON_WORDS]
    return (telling or list(words))[:WORD_LIMIT]


def search_tool(index: DocumentIndex, *, name: str = "search_documents") -> Tool:
    """A safe tool by which a model searches the index."""

    def search(
        query: Annotated[str, Field(description="The words to look for")],
        limit: Annotated[int, Field(ge=1, le=20, description="How many documents to return at most")] = 5,
    ) -> list[dict[str, str]]:
        """Search the documents by words. Returns the best matching passages; an empty list means nothing matched."""
        return [{"id": item.id, "title": item.title, "text": item.text} for item in index.search(query, limit)]

    return tool(name=name)(search)


def _is_word_character(character: str) -> bool:
    # The classes that the unicode61 tokenizer of SQLite takes for parts of words.
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Co"


# Thai to Khmer, kana, the Han blocks: letters that make words without blanks between them.
_UNSPACED: Final = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003134f])"
)


def _spaced(text: str) -> str:
    """The text with blanks around every character of an unspaced script, so that each is a word of its own."""
    return _UNSPACED.sub(r" \1 ", text)


def _snippet(text: str, words: list[str]) -> str:
    if len(text) <= SNIPPET_LIMIT:
        return text
    lowered = text.lower()
    places = [place for word in words if (place := lowered.find(word.lower().strip("'\"?!.,;:()"))) >= 0]
    start = min(max(0, min(places, default=0) - SNIPPET_LIMIT // 4), len(text) - SNIPPET_LIMIT)
    before, after = "..." if start else "", "..." if start + SNIPPET_LIMIT < len(text) else ""
    end = start + SNIPPET_LIMIT - len(after)
    return before + text[start + len(before) : end] + after
