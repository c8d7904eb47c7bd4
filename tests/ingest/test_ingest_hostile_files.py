"""Files made to break a reader: each costs a warning and a time proportional to its size, never the run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from qmd.analysis.index import analyze_document
from qmd.chunking.split import split_document
from qmd.errors import QmdError, UnindexableFileError
from qmd.indexing.embed import embedded_text
from qmd.ingest.document import MAX_SIZE_BYTES, read_document
from qmd.ingest.outline import kind_of
from qmd.ingest.scan import scan_collection
from qmd.plugins import KINDS
from qmd.records import Collection, FileEntry
from tests.parsing import parse_document
from tests.regex_tokens import regex_token_starts

ALIAS_BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)
MERGE_BOMB = "a0: &a0 {k: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 9)
)


def front_matter_warning(text: str) -> str:
    document = parse_document("note.md", text.encode())
    assert document.metadata == {}
    assert document.text == text
    (warning,) = document.warnings
    return warning


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (ALIAS_BOMB, "its aliases stand for too many values"),
        (MERGE_BOMB, "its aliases stand for too many values"),
        ("long: &long " + "x" * 60_000 + "\nlist: [" + "*long," * 2_000 + "]", "its aliases stand for too many values"),
        ("a: &a [*a]", "the value of '&a' contains itself"),
        ("a: &a 1\nb: &a [*a]", "the value of '&a' contains itself"),
        ("a: " + "[" * 3_000 + "]" * 3_000, "values are nested more than 64 deep"),
        ("- " * 3_000 + "a: 1", "values are nested more than 64 deep"),
        ('"m": 1\nn: ' + "9" * 5_000, "a number has more than 1,000 digits"),
        ('"m": 1\nn: 0x' + "f" * 5_000, "a number has more than 1,000 digits"),
        ('"m": [' + "b," * 60_000 + "]", "it contains too many values"),
        ('title: "\\ud800"', "an escape means half a character"),
        ('title: "\\0"', "a value contains a NUL character"),
        ("a: b\n" * 60_000, "it has 300,000 characters, more than the limit of 262,144"),
        ("t: 9999-12-31T23:59:59-99:00", ""),
        ("? " * 300 + "a: 1", ""),
        ('"m": !!timestamp 2020', ""),
        ('"k' + "k" * 600 + '": 1', "a key has more than 500 characters"),
    ],
)  # fmt: skip
def test_hostile_yaml_front_matter_is_one_warning(block: str, reason: str) -> None:
    document = parse_document("note.md", f"---\n{block}\n---\nbody\n".encode())
    assert document.text.endswith("body\n")
    if reason:
        assert document.metadata == {}
        assert len(document.warnings) == 1
        assert reason in document.warnings[0]


@pytest.mark.parametrize(
    "block",
    [
        "n = " + "9" * 5_000,
        "n = 0x" + "f" * 5_000,
        "n = [0x" + "f" * 5_000 + "]",
        "n = " + "[" * 3_000,
        "n = " + "{a=" * 3_000,
        "a." * 30_000 + "a = 1",
        "a = {" + "a." * 30_000 + "a = 1}",
        'n = "\\ud800"',
        "n = 2020-13-45",
        "n = 1\n" * 60_000,
    ],
)
def test_hostile_toml_front_matter_is_one_warning(block: str) -> None:
    assert front_matter_warning(f"+++\n{block}\n+++\nbody\n").startswith("front matter cannot be read: ")


def test_an_anchor_used_as_a_person_would_is_read() -> None:
    document = parse_document("n.md", b"---\nbase: &b {x: 1}\nother: *b\nmore:\n  <<: *b\n  y: 2\n---\n")
    assert document.warnings == ()
    assert document.metadata == {"base.x": 1, "other.x": 1, "more.x": 1, "more.y": 2}


def test_an_escaped_surrogate_pair_in_front_matter_is_one_character() -> None:
    assert parse_document("n.md", b'---\ntitle: "\\ud83d\\ude00 smile"\n---\n').title == "\U0001f600 smile"


def test_numbers_that_json_has_no_word_for_stay_text() -> None:
    document = parse_document("n.md", b"---\na: 1e999\nb: .nan\nc: [.inf]\nd: !!float inf\n---\n")
    assert all(not isinstance(value, float) for value in document.metadata.values())


def test_a_heading_with_a_character_reference_of_5000_digits_is_read() -> None:
    document = parse_document("n.md", b"# a &#" + b"9" * 5_000 + b"; b\n")
    assert len(document.title) <= 500


def test_a_paragraph_behind_a_hash_is_no_title_of_a_megabyte() -> None:
    assert len(parse_document("n.md", b"# " + b"word " * 200_000).title) <= 500
    assert len(parse_document("n.org", b"* " + b"word " * 200_000).title) <= 500
    assert len(parse_document("n.md", b"---\ntitle: " + b"word " * 40_000 + b"\n---\n").title) <= 500


def test_more_tags_or_headings_than_any_note_has_are_cut_with_a_warning() -> None:
    tagged = parse_document("n.md", " ".join(f"#t{i}" for i in range(3_000)).encode())
    tags = tagged.metadata["tags"]
    assert isinstance(tags, tuple) and len(tags) == 2_000
    assert tagged.warnings == ("only the first 2,000 tags are taken",)
    assert parse_document("n.md", b"# a\n" * 60_000).warnings == ("only the first 50,000 headings are taken",)


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes in folders")
def test_a_file_that_became_a_pipe_after_the_scan_is_left_out_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "n.md")
    with pytest.raises(UnindexableFileError, match="not a regular file"):
        read_document(FileEntry("n.md", tmp_path, 10, 0), kind_of("n.md"))


def test_a_file_that_grew_after_the_scan_is_not_read_beyond_the_limit(tmp_path: Path) -> None:
    (tmp_path / "n.md").write_bytes(b"x" * (MAX_SIZE_BYTES + 100))
    with pytest.raises(UnindexableFileError, match="has 10,485,761 bytes, more than the limit of 10,485,760"):
        read_document(FileEntry("n.md", tmp_path, 10, 0), kind_of("n.md"))


UNITS = (
    "#a ", "#a", "#a/", "# a\n", "#\n", "# # ", "`", "``a`", "``` \n", "```\n", "~~~\n", "[", "]", "[[a|",
    "[a](", "[a][", "\\[", "![", "*", "*a ", "**a ", "***a ", "a *", "_", "_a ", " _a", "__a ", "~~a ", "==a ",
    "<!--", "<b ", "<", "{", "{#", "\\", "&", "&#", "- ", "> ", "|", "| - ", "a\n===\n", "a\n---\n", "===\n",
    "---\n", "+++\n", "a: b\n", " ", "\t", "\n", "\r", "\r\n", " \n", "aA", "Aa", "a", "1.", ".\"", "c++ ",
    "C#", ".NET", "\u0301\u0316", "\u4e00", "\ufdfa", "\u3000", "\U0001f600", "\ue0000\ue001", "#+begin_src\n",
    "#+end_src\n", "* a\n",
)  # fmt: skip
SHAPES: dict[str, Callable[[str, int], str]] = {
    "text": lambda unit, n: unit * (n // len(unit)),
    "heading": lambda unit, n: "# x " + unit * (n // len(unit)) + "}",
    "underlined": lambda unit, n: unit * (n // len(unit)) + "\n===\n",
    "title": lambda unit, n: "---\ntitle: " + unit * (n // len(unit)) + "\n---\n",
    "flow list": lambda unit, n: "---\na: [" + unit * (n // len(unit)) + "]\n---\n",
    "quoted": lambda unit, n: '---\n"k": "' + unit * (n // len(unit)) + '"\n---\n',
    "properties": lambda unit, n: f"a:: {(unit * 800)[:800]}\n" * (n // 800),
    "toml": lambda unit, n: "+++\na = " + unit * (n // len(unit)) + "\n+++\n",
    "growing runs": lambda unit, n: "# " + " ".join(unit * k for k in range(1, int((2 * n / len(unit)) ** 0.5))),
    "marks by class": lambda unit, n: "a" + "".join(mark * (n // len(unit)) for mark in unit),
}


def processor_time(text: str, name: str = "note.md") -> float:
    raw = text.encode()
    begun = time.process_time()
    document = parse_document(name, raw)
    analyze_document(document)
    starts = regex_token_starts(text)
    for chunk in split_document(text, document.headings, document.body_offset, starts, 240):
        embedded_text(document, chunk)
    return time.process_time() - begun


OTHERS = {kind.outline: f"note{suffix}" for suffix, kind in KINDS.items() if not kind.is_markdown}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "name"), [*((shape, "note.md") for shape in SHAPES), *(("text", name) for name in OTHERS.values())]
)
def test_time_grows_no_faster_than_the_text(shape: str, name: str) -> None:
    """Quadratic behaviour would take sixteen times as long for four times the text."""
    make = SHAPES[shape]

    def seconds(unit: str, n: int) -> float:
        return min(processor_time(make(unit, n), name) for _ in range(3))

    slow = []
    for unit in UNITS:
        # A time that is short, or grew little more than the text since a quarter of it, needs no second measurement.
        once = processor_time(make(unit, 24_000), name)
        if once < 0.1 or once < 5 * seconds(unit, 6_000):
            continue
        small, large = seconds(unit, 12_000), seconds(unit, 48_000)
        if large > 8 * small:
            slow.append((unit, small, large))
    assert slow == []


@pytest.mark.parametrize("content", [b"a\n" * 6_000, b"#" * 300_000])
def test_an_endless_ignore_file_keeps_its_folder_out_and_the_rest_in(tmp_path: Path, content: bytes) -> None:
    for name in ("top.md", "sub/secret.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "sub" / ".qmdignore").write_bytes(content)
    scan = scan_collection(Collection("n", tmp_path))
    assert [entry.path for entry in scan.files] == ["top.md"]
    assert [(one.path, one.reason) for one in scan.skipped] == [("sub", "UNREADABLE_DIRECTORY")]
    assert scan.is_undecided("sub/secret.md")
    (tmp_path / ".qmdignore").write_bytes(content)
    with pytest.raises(QmdError, match=r"\.qmdignore' has more than"):
        scan_collection(Collection("n", tmp_path))


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes in folders")
def test_an_ignore_file_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / "n.md").write_text("x")
    assert [entry.path for entry in scan_collection(Collection("n", tmp_path)).files] == ["n.md"]
