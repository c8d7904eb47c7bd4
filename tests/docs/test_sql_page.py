"""The statements of `docs/sql.md`, run without qmd."""

import re
from pathlib import Path

import apsw
import pytest
import sqlite_vec

import qmd

_PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text("utf-8")
_STATEMENTS = dict(re.findall(r"```sql (\w+)\n(.*?)```", _PAGE, re.DOTALL))
_NOTES = {
    "pricing.md": "# Pricing\n\nWe chose per-seat pricing for the team plan.\n",
    "costs.md": "# Costs\n\nThe price of a seat is what a team pays every month.\n",
    "garden.md": "# Garden\n\nTomatoes want sun and water.\n",
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    """Return a connection with sqlite-vec to an index of three notes."""
    root = tmp_path_factory.mktemp("sql")
    (root / "notes").mkdir()
    for name, text in _NOTES.items():
        (root / "notes" / name).write_text(text, "utf-8")
    with qmd.open_index(
        root / "index.sqlite", config={"collections": {"notes": {"path": str(root / "notes")}}}
    ) as index:
        index.update()
        index.embed()
    connection = apsw.Connection(str(root / "index.sqlite"), flags=apsw.SQLITE_OPEN_READONLY)
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    return connection


def test_the_page_has_three_statements() -> None:
    assert list(_STATEMENTS) == ["near", "within", "pairs"]


def test_the_notes_nearest_to_one_are_found(plain: apsw.Connection) -> None:
    found = plain.execute(_STATEMENTS["near"]).fetchall()
    assert [row[0] for row in found] == ["pricing.md", "costs.md", "garden.md"]
    assert found[0][3] == 1.0


def test_a_vector_is_looked_for_within_a_collection(plain: apsw.Connection) -> None:
    assert sorted(slot for slot, _ in plain.execute(_STATEMENTS["within"])) == [0, 1, 2]
    elsewhere = _STATEMENTS["within"].replace("'notes'", "'other'")
    assert plain.execute(elsewhere).fetchall() == []


def test_notes_that_say_nearly_the_same_are_paired(plain: apsw.Connection) -> None:
    [(*paths, cosine)] = plain.execute(_STATEMENTS["pairs"])
    assert set(paths) == {"pricing.md", "costs.md"}
    assert cosine > 0.5
