"""The syntax of docs/syntax.md finds the documented notes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmd

_DOCS = Path(__file__).parents[2] / "docs"
_PAGE = (_DOCS / "syntax.md").read_text("utf-8")
_ROWS = re.findall(r"^\| (`.*`) \| .* \| ([^`|]+) \|$", _PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[qmd.Index]:
    place = tmp_path_factory.mktemp("syntax") / "index.sqlite"
    with qmd.open_index(place, config={"collections": {"vault": {"path": str(_DOCS / "vault")}}}) as index:
        index.update()
        yield index


@pytest.mark.parametrize(("examples", "first"), _ROWS)
def test_a_row_finds_what_it_says(examples: str, first: str, vault: qmd.Index) -> None:
    queries = re.findall("`([^`]+)`", examples)
    found = [vault.search(query, mode="lexical") for query in queries]
    assert found[0].hits[0].document.title == first
    assert all(one.hits for one in found)
    assert all("searched for" in warning for one in found for warning in one.warnings)


def test_every_table_was_read_and_lines_of_a_kind_find_their_answer(vault: qmd.Index) -> None:
    assert len(_ROWS) == _PAGE.count("\n| `") > 10
    [document] = re.findall("^```query\n(.*?)```$", _PAGE, re.MULTILINE | re.DOTALL)
    assert vault.search(document).hits[0].document.title == "Online shop"
