"""Fixtures of tobi/qmd: queries with the files that they should find."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from qmd.errors import NotFoundError, UsageError

MIN_DEPTH = 10


class Case(Struct, frozen=True):
    """One query with the files that should be among its first `expected_in_top_k`.

    Attributes:
        query: Text, plain or a query document.
        type: Free text of the fixture; may be empty.
        expected_files: Empty if no file answers.
        expected_in_top_k: At least 1.
    """

    id: str
    query: str
    type: str
    expected_files: tuple[str, ...]
    expected_in_top_k: int = MIN_DEPTH

    @property
    def depth(self) -> int:
        """Number of results to request."""
        return max(self.expected_in_top_k, MIN_DEPTH)


class Fixture(Struct, frozen=True):
    """Cases by id, over one collection or, without one, over all; a repeated id gets `#2` and so on."""

    collection: str | None
    cases: Mapping[str, Case]


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
    """Return whether both names mean one file: equal, or one the end of the other at a `/`, without case and scheme."""
    left, right = _bare(expected), _bare(found)
    return bool(left and right) and (left == right or left.endswith("/" + right) or right.endswith("/" + left))


def _case(number: int, row: object) -> Case:
    if not isinstance(row, dict) or not row.get("query") or not isinstance(row.get("expected_files"), list):
        raise UsageError(f"Invalid fixture: query {number} needs 'query' and an 'expected_files' array")
    try:
        top_k = int(row.get("expected_in_top_k", MIN_DEPTH))
    except (TypeError, ValueError):
        raise UsageError(f"Invalid fixture: query {number} has a bad 'expected_in_top_k'") from None
    return Case(
        id=str(row.get("id", number)),
        query=str(row["query"]),
        type=str(row.get("type", "")),
        expected_files=tuple(str(name) for name in row["expected_files"]),
        expected_in_top_k=max(top_k, 1),
    )


def _bare(name: str) -> str:
    text = name.casefold()
    if text.startswith("qmd://"):
        text = text.removeprefix("qmd://").partition("/")[2]
    return text.strip("/")
