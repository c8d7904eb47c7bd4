"""An index in a temporary folder, and documents to put into it."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qmd.records import IndexTerms, LexicalTerm
from qmd.store.records import NewDocument, pack_text
from qmd.store.sqlite.opening import open_writer
from qmd.store.sqlite.writer import SqliteWriter

MakeDocument = Callable[..., NewDocument]


def word(text: str, *, required: bool = False, excluded: bool = False) -> LexicalTerm:
    return LexicalTerm(text, f'"{text}"', required=required, excluded=excluded)


@pytest.fixture
def index_path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "index.sqlite"


@pytest.fixture
def writer(index_path: Path) -> Iterator[SqliteWriter]:
    with open_writer(index_path, busy_timeout_ms=200) as opened:
        yield opened


@pytest.fixture
def make() -> MakeDocument:
    def make(
        path: str, text: str, *, title: str = "", modified_at: str = "2025-06-01T12:00:00.000Z", **metadata: object
    ) -> NewDocument:
        return NewDocument(
            path=path,
            title=title or path,
            hash=hashlib.sha256(text.encode()).hexdigest(),
            n_chars=len(text),
            doc=pack_text(text),
            terms=IndexTerms(title=title, headings="", path=path, body=text, extra=""),
            metadata_json=json.dumps(metadata),
            size_bytes=len(text),
            mtime_ns=1,
            created_at="2025-01-01T00:00:00.000Z",
            modified_at=modified_at,
            date=str(metadata["date"]) if "date" in metadata else None,
        )

    return make
