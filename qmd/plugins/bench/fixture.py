"""Queries with the files that they should find: the original's fixtures, and the names of notes."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from qmd.analysis.scripts import normalize
from qmd.errors import NotFoundError, UsageError
from qmd.file_names import file_name
from qmd.note_names import aliases_of
from qmd.records import Scope, StoredDocument
from qmd.store.base import IndexReader

MIN_DEPTH = 10

UNANSWERABLE = "unanswerable"
"""Kind of a query that no file answers."""

_OTHER = "other"
"""Kind of a query that names none."""

_NAMED = 5


class Case(Struct, frozen=True):
    """One query with the files that should be among its first `expected_in_top_k`.

    Attributes:
        query: Text, plain or a query document.
        type: What the fixture counts it under; may be empty.
        expected_files: Empty where no file answers.
        expected_in_top_k: At least 1.
        expected_text: The passage shown should hold one of these.
    """

    id: str
    query: str
    type: str
    expected_files: tuple[str, ...]
    expected_in_top_k: int = MIN_DEPTH
    expected_text: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What it is counted under."""
        return self.type or (_OTHER if self.expected_files else UNANSWERABLE)

    @property
    def depth(self) -> int:
        """Results to ask for."""
        return max(self.expected_in_top_k, MIN_DEPTH)


class Fixture(Struct, frozen=True):
    """Cases over one collection, or over all when it names none, under their ids; one that repeats gets `#2`…"""

    collection: str | None
    cases: Mapping[str, Case]


# --- fixtures -------------------------------------------------------------------------------------


def read_fixture(path: Path) -> Fixture:
    """Read a fixture.

    Raises:
        NotFoundError: No such file.
        UsageError: Not JSON, or not a fixture.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise NotFoundError(f"no fixture '{path}'", "qmd bench --help") from exc
    except (OSError, ValueError) as exc:
        raise UsageError(f"cannot read the fixture '{path}': {exc}") from exc
    if not isinstance(raw, dict) or not isinstance(raw.get("queries"), list):
        raise UsageError("Invalid fixture: missing 'queries' array")
    seen: dict[str, int] = {}
    cases = {}
    for number, row in enumerate(raw["queries"], start=1):
        case = _case(number, row)
        seen[case.id] = seen.get(case.id, 0) + 1
        cases[case.id if seen[case.id] == 1 else f"{case.id}#{seen[case.id]}"] = case
    collection = raw.get("collection")
    return Fixture(str(collection) if collection else None, cases)


def same_file(expected: str, found: str) -> bool:
    """Whether both name one file: equal, or one the end of the other at a `/`; case and scheme do not matter."""
    left, right = _bare(expected), _bare(found)
    return bool(left and right) and (left == right or left.endswith("/" + right) or right.endswith("/" + left))


def impossible_cases(reader: IndexReader, scope: Scope, cases: Mapping[str, Case]) -> list[str]:
    """A line for each way in which queries ask for what the index lacks: a file, or a text in the files expected."""
    by_file: dict[str, list[StoredDocument]] = {}
    for document in reader.iter_documents(scope):
        by_file.setdefault(_last_part(document.path), []).append(document)
    without_file: list[str] = []
    without_text: list[str] = []
    for name, case in cases.items():
        found = [
            [document for document in by_file.get(_last_part(expected), ()) if same_file(expected, document.uri)]
            for expected in case.expected_files
        ]
        texts = reader.texts([document.hash for documents in found for document in documents]).values()
        if not all(found):
            without_file.append(name)
        elif case.expected_text and not any(holds_any(text, case.expected_text) for text in texts):
            without_text.append(name)
    lines = []
    if without_file:
        lines.append(f"the index lacks files that queries expect: {_listed(without_file)}")
    if without_text:
        lines.append(f"no expected file holds the expected text of queries: {_listed(without_text)}")
    return lines


def holds_any(passage: str, texts: Sequence[str]) -> bool:
    """Whether a passage holds one of some texts; case, line breaks and the form of characters do not matter."""
    inside = _folded(passage)
    return any(_folded(text) in inside for text in texts)


# --- names ----------------------------------------------------------------------------------------


def cases_of_names(reader: IndexReader, scope: Scope, limit: int, seed: int = 0) -> dict[str, Case]:
    """Every name of a note as a query that should find it; documents are called `collection/path`.

    Names are that of the file without its ending and the aliases of its front matter; kinds are `name` and `alias`. A
    name that several notes carry, in whatever case, is one query that any of them answers. Ids are made of the names,
    so that two states of a collection can be compared. At most `limit`, drawn at random and the same for the same seed.
    """
    documents = list(reader.iter_documents(scope))
    carried = [(file_name(one.path), "name", one) for one in documents]
    carried += [(alias, "alias", one) for one in documents for alias in aliases_of(one.metadata)]
    first: dict[str, tuple[str, str]] = {}
    files: dict[str, dict[str, None]] = {}
    for name, kind, document in carried:
        query = " ".join(name.split())
        if key := quote(_folded(query), safe=""):
            first.setdefault(key, (query, kind))
            files.setdefault(key, {})[path_in_collection(document)] = None
    chosen = random.Random(seed).sample(sorted(first), min(limit, len(first)))
    return {key: Case(key, *first[key], tuple(files[key])) for key in chosen}


def path_in_collection(document: StoredDocument) -> str:
    """What a document is called where its names are asked for."""
    return f"{document.collection}/{document.path}"


# --- parts ----------------------------------------------------------------------------------------


def _case(number: int, row: object) -> Case:
    if not isinstance(row, dict) or not row.get("query") or not isinstance(row.get("expected_files"), list):
        raise UsageError(f"Invalid fixture: query {number} needs 'query' and an 'expected_files' array")
    try:
        top_k = int(row.get("expected_in_top_k", MIN_DEPTH))
    except (TypeError, ValueError):
        raise UsageError(f"Invalid fixture: query {number} has a bad 'expected_in_top_k'") from None
    case = Case(
        id=str(row.get("id", number)),
        query=str(row["query"]),
        type=str(row.get("type", "")),
        expected_files=tuple(str(name) for name in row["expected_files"]),
        expected_in_top_k=max(top_k, 1),
        expected_text=_expected_text(number, row.get("expected_text")),
    )
    if case.type == UNANSWERABLE and case.expected_files:
        raise UsageError(f"Invalid fixture: query {number} is '{UNANSWERABLE}' and has 'expected_files'")
    if case.expected_text and not case.expected_files:
        raise UsageError(f"Invalid fixture: query {number} has an 'expected_text' and no 'expected_files'")
    return case


def _expected_text(number: int, value: object) -> tuple[str, ...]:
    texts = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise UsageError(f"Invalid fixture: query {number} has a bad 'expected_text', expected a string or strings")
    return tuple(map(str, texts))


def _folded(text: str) -> str:
    """`text` on one line, with nothing left of its case and of the form of its characters."""
    return " ".join(normalize(text).casefold().split())


def _bare(name: str) -> str:
    text = name.casefold()
    if text.startswith("qmd://"):
        text = text.removeprefix("qmd://").partition("/")[2]
    return text.strip("/")


def _last_part(path: str) -> str:
    return path.casefold().strip("/").rpartition("/")[2]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:_NAMED]) + more
