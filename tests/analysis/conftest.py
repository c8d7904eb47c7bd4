"""A real FTS5 table with the columns and the tokenizer of the index."""

from collections.abc import Callable, Sequence

import apsw
import pytest

from qmd.analysis.index import analyze_document
from qmd.records import LexicalTerm
from qmd.store.sqlite.schema import TOKENIZER
from tests.parsing import parse_document

Search = Callable[[dict[str, str], Sequence[LexicalTerm]], list[str]]


def expression(terms: Sequence[LexicalTerm]) -> str | None:
    """Join the terms as the index does; None without a positive term."""
    optional = " OR ".join(t.fts for t in terms if not (t.required or t.excluded))
    wanted = [t.fts for t in terms if t.required] or ([f"({optional})"] if optional else [])
    if not wanted:
        return None
    return " AND ".join(wanted) + "".join(f" NOT {t.fts}" for t in terms if t.excluded)


@pytest.fixture(scope="session")
def search() -> Search:
    """Return `search(files, terms)` → sorted paths of the files that match."""

    def run(files: dict[str, str], terms: Sequence[LexicalTerm]) -> list[str]:
        match = expression(terms)
        if match is None:
            return []
        db = apsw.Connection(":memory:")
        db.execute(f"CREATE VIRTUAL TABLE t USING fts5(title, headings, path, body, extra, tokenize = '{TOKENIZER}')")
        paths = sorted(files)
        for rowid, path in enumerate(paths):
            found = analyze_document(parse_document(path, files[path].encode("utf-8")))
            row = (rowid, found.title, found.headings, found.path, found.body, found.extra)
            db.execute("INSERT INTO t(rowid, title, headings, path, body, extra) VALUES (?, ?, ?, ?, ?, ?)", row)
        rows = db.execute("SELECT rowid FROM t WHERE t MATCH ? ORDER BY rowid", (match,))
        return [paths[int(str(row[0]))] for row in rows]

    return run
