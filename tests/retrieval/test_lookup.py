"""Lookup of documents by docid, URI, path, suffix, file name, pattern."""

from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.errors import NotFoundError, UsageError
from qmd.records import Collection
from qmd.retrieval.lookup import context_for, resolve_document, resolve_many
from qmd.retrieval.references import ParsedReference, parse_line_range
from tests.note_index import NoteIndex


def index(*places: str) -> NoteIndex:
    reader = NoteIndex()
    for place in places:
        collection, _, path = place.partition("/")
        reader.add(path, f"text of {place}", collection=collection)
    return reader


BASE = ("docs/a.md", "docs/SYNTAX.md", "docs/we ird/ü.md", "notes/a.md", "notes/deep/b.md", "notes/decade")


WAYS = {
    "Ref/Backups.md": """
        notes/Ref/Backups.md  qmd://notes/Ref/Backups.md  Ref/Backups.md  Ref/Backups  notes/Ref/Backups
        qmd://notes/Ref/Backups  Backups.md  Backups  Backups_of_the_shop  safety_copies  #DOCID  DOCID
        [[Backups]]  [[Ref/Backups]]  [[Ref/Backups.md]]  [[Backups|ours]]  [[Backups\\|ours]]  ![[Backups]]
        /srv/notes/x/../Ref/Backups.md  /srv/notes/Ref/Backups  ref/BACKUPS  Réf/bâckups  ref/backups.MD  Ref%2FBackups
        qmd:///notes/Ref/Backups.md  //notes/Ref/Backups.md  qmd://notes/Ref/Backups.md?index=work
        """,
    "Ref/Backups.md:": "Ref/Backups.md:5  Ref/Backups:5-9  Backups:5:5  Ref/Backups.md#L5-L9  #DOCID:5  [[Backups]]:5",
    "Ref/Backups.md#": """
        Ref/Backups#Restore_it  Ref/Backups.md#restore-it  Backups#Restore_it#Then  #DOCID#Restore_it  Backups#^block
        qmd://notes/Ref/Backups.md#Restore_it  [[Backups#Restore_it]]  [[Backups#Restore_it|how]]  Backups#10:30
        """,
    "proj.shop.prices.md": """
        proj.shop.prices  [[proj.shop.prices]]  [[what_it_costs|proj.shop.prices]]
        [[Backups_of_the_shop|proj.shop.prices]]  [[dendron://notes/proj.shop.prices]]  [[x|dendron://other/proj.shop.prices]]
        """,
    "proj.shop.prices.md#": "[[costs|proj.shop.prices#loaves]]  proj.shop.prices#loaves",
    "C#.md": "C#.md  C#  [[C#]]",
    "C#.md#": "[[C##Types]]  C##Types  C#.md#Types",
    "a:5.md": "a:5.md  a:5  [[a:5]]",
    "a:5.md:": "a:5.md:5",
    "x|y.md": "x|y.md  x|y  [[x|y]]  [[x|y.md]]",
    "[[b]].md": "[[b]].md",
    "deep/decade": "decade  deep/decade  [[decade]]",
}
"""References to each note, to lines (`:`) and to a heading in it (`#`); `_` is a blank."""


@pytest.mark.parametrize(("meant", "reference"), [(key, way) for key, ways in WAYS.items() for way in ways.split()])
def test_a_note_is_found_by_every_natural_way_to_name_it(meant: str, reference: str) -> None:
    reader = index(*(f"notes/{one}" for one in {key.rstrip(":#") for key in WAYS}), "notes/c.md", "notes/Ref/Others.md")
    backups = reader.add("Ref/Backups.md", "---\naliases: [Safety copies]\n---\n# Backups of the shop\n")
    found = resolve_document(reader, reference.replace("DOCID", backups.hash[:6]).replace("_", " "))
    assert (found.document.path, found.warnings) == (meant.rstrip(":#"), ())
    assert (found.reading.start, bool(found.reading.heading)) == (5 if meant[-1] == ":" else None, meant[-1] == "#")


def test_of_copies_one_is_taken_and_the_others_are_named() -> None:
    reader = NoteIndex()
    for place in ("bak/pages/deep/a.md", "vault/pages/a.md", "bak/pages/a.md"):
        collection, _, path = place.partition("/")
        reader.add(path, "the same", collection=collection)
    found = resolve_document(reader, "[[a]]")
    assert found.document.uri == "qmd://bak/pages/a.md"
    assert found.warnings == ("the same text is in qmd://vault/pages/a.md, qmd://bak/pages/deep/a.md",)
    assert resolve_document(reader, "a", Path("/srv/vault")).document.uri == "qmd://vault/pages/a.md"
    reader.add("other/a.md", "another", collection="vault")
    with pytest.raises(UsageError, match=r"Ambiguous path a: qmd://.* \(#.*qmd://vault/other/a\.md \(#") as caught:
        resolve_document(reader, "a")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("name the collection, or use the docid: qmd get '#")


@pytest.mark.parametrize("name", ["#" * 50_000, f"[[{'q|' * 50_000}]]", "q#b" * 20_000, ":1" * 50_000, "q/" * 50_000])
def test_a_hostile_reference_is_refused_at_once(name: str) -> None:
    started = process_time()
    with pytest.raises(NotFoundError):
        resolve_document(index(*BASE), name)
    assert process_time() - started < 2


@pytest.mark.parametrize(
    "name", ["[[../../etc/passwd]]", "[[x|/etc/passwd]]", "/etc/passwd#root", "#000000", "docs/../../etc/passwd"]
)
def test_a_reference_never_leaves_the_index(name: str) -> None:
    with pytest.raises(NotFoundError):
        resolve_document(index(*BASE), name, Path("/"))


def test_an_unknown_path_suggests_near_ones() -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve_document(index(*BASE), "notes/deep/c.md")
    assert caught.value.hint is not None
    assert "notes/deep/b.md" in caught.value.hint


@given(st.text(alphabet=st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_file_name_round_trips_through_its_uri(name: str) -> None:
    path = name.strip().strip("/")
    if not path or path in (".", "..") or "?index=" in path:
        return
    reader = NoteIndex()
    document = reader.add(path, f"text {path}")
    assert resolve_document(reader, document.uri).document == document
    assert resolve_document(reader, document.docid).document == document


def test_line_ranges_are_split_off() -> None:
    assert parse_line_range("a.md") == ParsedReference("a.md")
    assert parse_line_range("a.md:0") == ParsedReference("a.md", 1)
    assert parse_line_range("qmd://c/a.md:3:4") == ParsedReference("qmd://c/a.md", 3, 4)
    assert parse_line_range("qmd://c/a.md:6-3") == ParsedReference("qmd://c/a.md", 3, 4)


def test_a_comma_list_keeps_its_order_and_names_failures() -> None:
    found = resolve_many(index(*BASE), "deep/b.md, a.md, docs/a.md, nope.md")
    assert not found.is_glob
    assert [document.uri for document in found.documents] == ["qmd://notes/deep/b.md", "qmd://docs/a.md"]
    assert found.problems[0] == "Ambiguous path a.md: qmd://docs/a.md, qmd://notes/a.md"
    assert found.problems[1].startswith("File not found: nope.md")


@pytest.mark.parametrize(
    ("pattern", "uris"),
    [
        ("docs/*.md", ["qmd://docs/SYNTAX.md", "qmd://docs/a.md"]),
        ("{docs,notes}/a.md", ["qmd://docs/a.md", "qmd://notes/a.md"]),
        ("qmd://notes/**/*.md", ["qmd://notes/a.md", "qmd://notes/deep/b.md"]),
        ("deep/?.md", ["qmd://notes/deep/b.md"]),
    ],
)
def test_globs_match_uri_collection_path_and_bare_path(pattern: str, uris: list[str]) -> None:
    found = resolve_many(index(*BASE), pattern)
    assert found.is_glob
    assert [document.uri for document in found.documents] == uris


def test_a_glob_without_a_match_says_so() -> None:
    found = resolve_many(index(*BASE), "zzz/*")
    assert found.problems[0] == "No files matched pattern: zzz/*"


def test_contexts_stop_at_path_borders() -> None:
    collection = Collection("c", Path("/srv/c"), context={"/": "all", "sub": "sub", "/sub/x": "deeper"})
    assert context_for(collection, "global", "sub/x/a.md") == "global\n\nall\n\nsub\n\ndeeper"
    assert context_for(collection, None, "subway/a.md") == "all"
    assert context_for(None, None, "a.md") is None
