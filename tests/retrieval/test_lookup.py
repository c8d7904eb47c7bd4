"""Documents by docid, URI, path, suffix, file name, pattern."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.errors import NotFoundError, UsageError
from qmd.records import Collection
from qmd.retrieval.lookup import LineRange, context_for, parse_line_range, resolve_document, resolve_many
from tests.note_index import NoteIndex


def index(*places: str) -> NoteIndex:
    reader = NoteIndex()
    for place in places:
        collection, _, path = place.partition("/")
        reader.add(path, f"text of {place}", collection=collection)
    return reader


BASE = ("docs/a.md", "docs/SYNTAX.md", "docs/we ird/ü.md", "notes/a.md", "notes/deep/b.md", "notes/decade")


@pytest.mark.parametrize(
    ("reference", "uri"),
    [
        ("qmd://docs/a.md", "qmd://docs/a.md"),
        ("qmd:///docs/a.md", "qmd://docs/a.md"),
        ("//docs/a.md", "qmd://docs/a.md"),
        ("qmd://docs/a.md?index=work", "qmd://docs/a.md"),
        ("docs/a.md", "qmd://docs/a.md"),
        ("docs/a.md:10:5", "qmd://docs/a.md"),
        ("deep/b.md", "qmd://notes/deep/b.md"),
        ("b.md", "qmd://notes/deep/b.md"),
        ("syntax.md", "qmd://docs/SYNTAX.md"),
        ("qmd://docs/we%20ird/%C3%BC.md", "qmd://docs/we ird/ü.md"),
        ("/srv/notes/deep/b.md", "qmd://notes/deep/b.md"),
        ("/srv/notes/deep/../deep/b.md", "qmd://notes/deep/b.md"),
        ("decade", "qmd://notes/decade"),
    ],
)
def test_a_document_is_found_by(reference: str, uri: str) -> None:
    assert resolve_document(index(*BASE), reference).uri == uri


def test_a_docid_finds_its_document_with_and_without_the_hash() -> None:
    reader = index(*BASE)
    documents = list(reader.iter_documents())
    assert len(documents) == len(BASE)
    for document in documents:
        assert resolve_document(reader, document.docid) == document
        assert resolve_document(reader, document.hash[:8]) == document


def test_an_ambiguous_path_names_the_choices() -> None:
    with pytest.raises(UsageError, match=r"qmd://docs/a\.md .*qmd://notes/a\.md"):
        resolve_document(index(*BASE), "a.md")


def test_an_unknown_path_suggests_near_ones() -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve_document(index(*BASE), "notes/deep/c.md")
    assert caught.value.hint is not None
    assert "notes/deep/b.md" in caught.value.hint


def test_an_unknown_docid_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        resolve_document(index(*BASE), "#000000")


@given(st.text(alphabet=st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_file_name_round_trips_through_its_uri(name: str) -> None:
    path = name.strip().strip("/")
    if not path or path in (".", "..") or "?index=" in path:
        return
    reader = NoteIndex()
    document = reader.add(path, f"text {path}")
    assert resolve_document(reader, document.uri) == document
    assert resolve_document(reader, document.docid) == document


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.md", LineRange("a.md", None, None)),
        ("a.md:10", LineRange("a.md", 10, None)),
        ("a.md:10:5", LineRange("a.md", 10, 5)),
        ("a.md:0", LineRange("a.md", 1, None)),
        ("qmd://c/a.md:3", LineRange("qmd://c/a.md", 3, None)),
    ],
)
def test_line_ranges_are_split_off(text: str, expected: LineRange) -> None:
    assert parse_line_range(text) == expected


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
