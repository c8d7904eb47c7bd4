"""Cases of a fixture that no search of an index can meet."""

from __future__ import annotations

from collections.abc import Sequence

from qmd.plugins.bench.answers import holds_any
from qmd.plugins.bench.fixture import Fixture, query_names, same_file
from qmd.records import Scope, StoredDocument
from qmd.store.base import IndexReader

_NAMED = 5


def impossible_cases(reader: IndexReader, scope: Scope, fixture: Fixture) -> list[str]:
    """A line for each way in which queries ask for what the index lacks: a file, or a text in the files expected."""
    by_file: dict[str, list[StoredDocument]] = {}
    for document in reader.iter_documents(scope):
        by_file.setdefault(_file_name(document.path), []).append(document)
    without_file: list[str] = []
    without_text: list[str] = []
    for name, query in zip(query_names(fixture), fixture.queries, strict=True):
        found = [
            [document for document in by_file.get(_file_name(expected), ()) if same_file(expected, document.uri)]
            for expected in query.expected_files
        ]
        texts = reader.texts([document.hash for documents in found for document in documents]).values()
        if not all(found):
            without_file.append(name)
        elif query.expected_text and not any(holds_any(text, query.expected_text) for text in texts):
            without_text.append(name)
    lines = []
    if without_file:
        lines.append(f"the index lacks files that queries expect: {_listed(without_file)}")
    if without_text:
        lines.append(f"no expected file holds the expected text of queries: {_listed(without_text)}")
    return lines


def _file_name(path: str) -> str:
    return path.casefold().strip("/").rpartition("/")[2]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:_NAMED]) + more
