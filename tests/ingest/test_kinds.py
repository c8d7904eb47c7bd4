"""Kinds of file: the effect of the ending of a name, and a kind from another package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qmd import plugins
from qmd.ingest.outline import kind_of
from qmd.plugins import KINDS, Kind
from qmd.plugins.code.languages import language_of
from tests.parsing import parse_document
from tests.program import Qmd, foreign_rows, write_notes

PACKAGE = """
from qmd.errors import UnindexableFileError
from qmd.ingest.outline import Outline
from qmd.plugins import Kind
from qmd.records import Heading

KINDS = {".mirror": Kind("mirror:outline", "mirror:decode")}

def decode(path, raw):
    if not raw.endswith(b"!"):
        raise UnindexableFileError(f"'{path}' is no mirror", "binary")
    return raw[-2::-1].decode(), ("read backwards",)

def outline(text):
    return Outline(headings=(Heading(1, text.partition("\\n")[0], 0),))
"""
"""Text with reversed bytes; its first line is its heading."""


@pytest.fixture
def foreign_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with foreign_rows(tmp_path / "site", "mirror", PACKAGE, monkeypatch):
        yield


@pytest.mark.usefixtures("foreign_kind")
def test_a_row_of_another_package_makes_a_further_kind_of_file_searchable(qmd: Qmd, tmp_path: Path) -> None:
    folder = tmp_path / "glass"
    text = "Silver\nWe polish every mirror."
    write_notes(folder, {"a.mirror": f"{text[::-1]}!", "b.mirror": "?"})
    done = qmd("index", str(folder), "--glob", "**/*.mirror", "--no-embed")
    assert done.status == 0 and "'a.mirror': read backwards" in done.err and "'b.mirror' is no mirror" in done.err
    found = qmd("search", "polish", "--files").out
    assert "a.mirror" in found
    assert "Silver" in qmd("search", "polish", "--json").out
    assert "polish" not in qmd("get", "a.mirror:1:1").out


def test_files_that_were_text_are_read_anew_once_their_kind_is_known(
    qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_notes(tmp_path / "glass", {"a.mirror": "drawkcab !"})
    assert qmd("index", str(tmp_path / "glass"), "--glob", "**/*.mirror", "--no-embed").status == 0
    monkeypatch.setitem(plugins.KINDS, ".mirror", Kind("qmd.ingest.outline:outline_text", f"{__name__}:reversed_text"))
    assert "1 updated" in qmd("update").out
    assert "a.mirror" in qmd("search", "backward", "--files").out


def test_files_of_a_kind_are_read_anew_once_when_their_reader_is_another(
    qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_notes(tmp_path / "glass", {"a.html": "drawkcab", "sub/b.html": "<p>x", "c.md": "# C"})
    assert (
        "3 notes (2 html, 1 md)" in qmd("index", str(tmp_path / "glass"), "--glob", "**/*.{md,html}", "--no-embed").out
    )
    assert "0 updated, 3 unchanged" in qmd("update").out
    kind = KINDS[".html"]._replace(decode=f"{__name__}:reversed_text", version=KINDS[".html"].version + 1)
    monkeypatch.setitem(plugins.KINDS, ".html", kind)
    # A part of the collection is not all that the new reader has to read.
    assert "2 updated, 3 notes" in qmd("index", str(tmp_path / "glass" / "sub"), "--no-embed").out
    assert "a.html" in qmd("search", "backward", "--files").out
    (tmp_path / "glass" / "a.html").touch()
    assert "0 updated, 3 unchanged" in qmd("update").out


def test_an_index_from_before_a_kind_was_known_reads_its_files_anew_once(
    qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = {
        "a.rst": "Heat\n====\n",
        "b.csv": "bread,price\nrye,4\n",
        "c.srt": "1\n00:00:01,0 --> 00:00:02,0\nsteam\n",
        "d.org": "* Plan :work:\n",
        "e.md": "# E",
        "f.txt": "f",
        "g.jsonl": '{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":"kettle"}}',
    }
    write_notes(tmp_path / "n", notes)
    with monkeypatch.context() as before:
        for suffix in (".csv", ".org"):
            before.setitem(plugins.KINDS, suffix, Kind("qmd.ingest.outline:outline_text"))
        for suffix in (".rst", ".srt", ".jsonl"):
            before.delitem(plugins.KINDS, suffix)
        assert "7 notes" in qmd("index", str(tmp_path / "n"), "--glob", "**/*", "--no-embed").out
        assert "steam" in qmd("get", "c.srt:3").out
    # A second reading finds the same text of two of the four.
    assert "3 updated, 4 unchanged" in qmd("update").out
    assert "a.rst" in qmd("search", "title:heat", "--files").out
    assert "[00:00:01] steam" in qmd("get", "c.srt:1").out
    assert "d.org" in qmd("search", "tag:work", "--files").out
    assert "User: kettle" in qmd("get", "g.jsonl:turn1").out
    assert "0 updated, 7 unchanged" in qmd("update").out


def reversed_text(path: str, raw: bytes) -> tuple[str, tuple[str, ...]]:
    """Decode the bytes for the test above."""
    return raw[::-1].decode(), ()


@pytest.mark.usefixtures("foreign_kind")
def test_a_further_kind_takes_nothing_from_the_others() -> None:
    assert kind_of("a.MD").is_markdown and parse_document("a.md", b"# A #b\n").metadata["tags"] == ("b",)
    assert kind_of("a.unknown") == kind_of("Makefile") == KINDS[".txt"]


def test_every_language_with_a_grammar_is_a_kind_of_source_and_no_other_ending() -> None:
    assert all(language_of(f"x{suffix}") is not None for suffix, kind in KINDS.items() if kind.is_source)
    assert all(KINDS[suffix].is_source for suffix in KINDS if language_of(f"x{suffix}") is not None)
