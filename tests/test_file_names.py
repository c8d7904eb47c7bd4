from pathlib import Path

import pytest

from qmd.addresses import places_on_disk, split_address, without_scheme
from qmd.file_names import file_name
from qmd.note_names import page_aliases, page_path
from qmd.records import Collection


@pytest.mark.parametrize(
    "address", ["qmd://notes/a.md", "QMD:notes/a.md", "//notes/a.md", "qmd:///notes/a.md?index=work"]
)
def test_every_spelling_of_the_scheme_is_taken_off(address: str) -> None:
    assert without_scheme(address) == "notes/a.md"


@pytest.mark.parametrize("text", ["notes/a.md", "/notes/a.md", "qmd", "qmd://", "#a1b2c3"])
def test_what_has_no_scheme_is_no_address(text: str) -> None:
    assert without_scheme(text) is None


def test_of_two_collections_that_fit_the_longer_name_is_meant() -> None:
    assert split_address("work/notes/a.md", ["work", "work/notes"]) == ("work/notes", "a.md")
    assert split_address("work", ["work", "work/notes"]) == ("work", "")
    assert split_address("workshop/a.md", ["work"]) is None


def test_a_path_on_disk_belongs_to_the_innermost_collection_first(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    outer, inner = Collection("outer", tmp_path / "a"), Collection("inner", tmp_path / "a/b")
    found = [(one.name, path) for one, path in places_on_disk(tmp_path / "a/x/../b/c.md", [outer, inner])]
    assert found == [("inner", "c.md"), ("outer", "b/c.md")]
    assert [path for _, path in places_on_disk(tmp_path / "a", [outer, inner])] == [""]


def test_a_path_through_a_link_belongs_to_the_collection_that_it_leads_into(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = list(places_on_disk(tmp_path / "link/a.md", [Collection("c", tmp_path / "real")]))
    assert [path for _, path in found] == ["a.md"]


@pytest.mark.parametrize(
    ("path", "page", "aliases"),
    [
        ("pages/a___b%3F.md", "pages/a/b?.md", ["a/b?", "b?"]),
        ("pages/a%2Fb.md", "pages/a/b.md", ["a/b", "b"]),
        ("100%.md", "100%.md", []),
        ("__init__.py", "__init__.py", []),
        ("journals/2024_03_22.md", "journals/2024_03_22.md", ["Mar 22nd, 2024"]),
        ("journals/2024_12_13.md", "journals/2024_12_13.md", ["Dec 13th, 2024"]),
        ("2024_13_01.md", "2024_13_01.md", []),
        ("202403011200 Tides.md", "202403011200 Tides.md", ["202403011200"]),
        ("2024-03-01 Tides.md", "2024-03-01 Tides.md", []),
    ],
)
def test_the_name_of_a_page_in_its_program_follows_from_its_file(path: str, page: str, aliases: list[str]) -> None:
    assert (page_path(path), list(page_aliases(file_name(path)))) == (page, aliases)
