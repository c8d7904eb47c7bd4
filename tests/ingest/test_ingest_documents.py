"""Bytes to documents: decoding, titles, headings, tags."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.errors import UnindexableFileError
from qmd.ingest.document import MAX_SIZE_BYTES, read_document
from qmd.ingest.outline import kind_of
from qmd.records import Document, FileEntry
from tests.parsing import parse_document


def parse(text: str, path: str = "notes/file.md") -> Document:
    return parse_document(path, text.encode("utf-8"))


def headings(text: str, path: str = "x.md") -> list[tuple[int, str]]:
    return [(h.level, h.text) for h in parse(text, path).headings]


def test_the_hash_is_sha_256_of_the_text() -> None:
    assert parse("# Ä\n").hash == hashlib.sha256("# Ä\n".encode()).hexdigest()


def test_a_byte_order_mark_is_dropped() -> None:
    document = parse_document("a.md", b"\xef\xbb\xbf---\ntitle: T\n---\nx")
    assert (document.title, document.text[:3]) == ("T", "---")


def test_utf_16_with_a_byte_order_mark_is_text() -> None:
    assert parse_document("a.md", "# Größe\n".encode("utf-16")).title == "Größe"


def test_invalid_bytes_are_replaced_with_a_warning() -> None:
    document = parse_document("a.md", b"# caf\xe9\n")
    assert document.title == "caf\ufffd"
    assert "not valid UTF-8" in document.warnings[0]


def test_binary_files_are_refused() -> None:
    with pytest.raises(UnindexableFileError) as caught:
        parse_document("a.md", b"PK\x03\x04\0\0")
    assert caught.value.code == "binary"


def test_files_over_the_limit_are_refused_before_reading(tmp_path: Path) -> None:
    entry = FileEntry("big.md", tmp_path, MAX_SIZE_BYTES + 1, 0)
    with pytest.raises(UnindexableFileError) as caught:
        read_document(entry, kind_of("big.md"))
    assert caught.value.code == "too_large"


def test_a_vanished_file_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UnindexableFileError) as caught:
        read_document(FileEntry("gone.md", tmp_path, 1, 0), kind_of("gone.md"))
    assert caught.value.code == "unreadable"


def test_whitespace_alone_gives_an_empty_text() -> None:
    document = parse(" \n\t\n", "a/empty.md")
    assert (document.text, document.title, document.title_source) == ("", "empty", "file")


def test_html_comments_stay_in_the_text() -> None:
    assert "<!-- note -->" in parse("a <!-- note --> b").text


@given(st.binary(max_size=200))
def test_any_bytes_give_a_document_or_the_expected_error(raw: bytes) -> None:
    try:
        document = parse_document("x.md", raw)
    except UnindexableFileError:
        return
    assert 0 <= document.body_offset <= len(document.text)
    assert document.title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("text\n\n## Second level\n# First\n", "Second level"),
        ("```\n# comment\n```\n# Real\n", "Real"),
        ("~~~~\n# a\n~~~\n# b\n~~~~\n# Real\n", "Real"),
        ("# Notes\n\n## Meeting\n", "Meeting"),
        ("# 📝 Notes\n\n## Meeting\n", "Meeting"),
        ("#\n\n# Real\n", "Real"),
        ("Title\n=====\n", "Title"),
        ("# **Bold** _it_ `x_y` [link](http://a(b)) { #anchor }\n", "Bold it x_y link"),
        ("# [[Target|Shown]] and [[Page]]\n", "Shown and Page"),
        (
            '# <a name="x"></a> `std::vector<int>` and __all__ my_var ##\n',
            "std::vector<int> and all my_var",
        ),
        ("# C#\n", "C#"),
        ("# A \\* B &amp; C\r\n", "A * B & C"),
    ],
)
def test_the_title_of_a_file_whose_name_says_nothing_is_its_heading(text: str, title: str) -> None:
    document = parse(text, "notes/12.md")
    assert (document.title, document.title_source) == (title, "heading")


@pytest.mark.parametrize(("value", "title"), [("From front matter", "From front matter"), ("2024", "2024")])
def test_a_title_of_the_front_matter_goes_before_all_else(value: str, title: str) -> None:
    document = parse(f"---\ntitle: {value}\n---\n# Heading\n", "Plan for spring.md")
    assert (document.title, document.title_source) == (title, "front matter")


@pytest.mark.parametrize(
    ("path", "text", "title"),
    [
        ("a/My note.md", "just text", "My note"),
        ("a/My note.md", "## Steps\ntext\n## Results\n", "My note"),
        ("a/My note.md", "# Monday\ntext\n# Tuesday\n", "My note"),
        ("a/My note.md", "# Notes\ntext\n", "My note"),
        ("2018-10-17.md", "## Agenda\n", "2018-10-17"),
        ("2018/W42.md", "text", "W42"),
        ("会议.md", "## 议程\n", "会议"),
        ("a/v1.2.md", "text", "v1.2"),
        ("Makefile", "text", "Makefile"),
        ("dir.d/.md", "text", ".md"),
        ("garden/index.md", "text", "garden"),
        ("Reading list/README.md", "text", "Reading list"),
        ("README.md", "text", "README"),
    ],
)
def test_the_file_name_is_the_title_of_a_note_without_one(path: str, text: str, title: str) -> None:
    document = parse(text, path)
    assert (document.title, document.title_source) == (title, "file")


@pytest.mark.parametrize("path", ["3f9a01c2b7.md", "12.md", "index.md", "202103041200.md", "untitled.md"])
def test_a_name_that_says_nothing_gives_way_to_the_first_heading(path: str) -> None:
    assert parse("text\n\n## Steps\n## Results\n", path).title == "Steps"


@pytest.mark.parametrize(
    ("front_matter", "aliases"),
    [
        ("aliases: [CFG, Control  flow]", ("CFG", "Control flow")),
        ("aliases:\n  - CFG\n  - CFG\n  - ''", ("CFG",)),
        ("alias: CFG", ("CFG",)),
        ("aliases:", ()),
        ("aliases: 2024", ("2024",)),
    ],
)
def test_aliases_come_from_the_front_matter(front_matter: str, aliases: tuple[str, ...]) -> None:
    assert parse(f"---\n{front_matter}\n---\ntext").aliases == aliases


def test_org_titles() -> None:
    assert parse("#+title: Plan\n* A\n", "a.org").title == "Plan"
    assert parse("text\n* Top :tag\n** Sub\n", "a.org").title == "Top :tag"


def test_comments_of_code_are_no_headings() -> None:
    document = parse("# a comment\nx = 1\n", "src/tool.py")
    assert (document.title, document.headings) == ("tool", ())


def test_heading_offsets_point_at_their_lines() -> None:
    text = "---\na: 1\n---\n# One\ntext\n\nTwo\n---\n### Three ###\n"
    document = parse(text)
    assert [(h.level, h.text) for h in document.headings] == [(1, "One"), (2, "Two"), (3, "Three")]
    assert [text[h.offset :].split("\n")[0] for h in document.headings] == ["# One", "Two", "### Three ###"]


@pytest.mark.parametrize(
    "text",
    [
        "#hashtag\n",
        "    # indented code\n",
        "a\nb\n---\n",
        "- item\n---\n",
        "| a |\n---\n",
        "\n---\n",
        "####### seven\n",
        "```\n# open fence\n",
    ],
)
def test_what_is_no_heading(text: str) -> None:
    assert headings(text) == []


def test_an_inline_code_span_of_three_ticks_opens_no_fence() -> None:
    assert headings("```a``` text\n# Title\n") == [(1, "Title")]


def test_front_matter_keys_are_no_headings() -> None:
    assert headings("---\na: 1\n# comment\n---\ntext\n") == []


def test_inline_tags_join_those_of_front_matter() -> None:
    document = parse("---\ntags: [work, home]\n---\nabout #project/alpha and #home, #日本語.\n")
    assert document.metadata["tags"] == ("work", "home", "project/alpha", "日本語")


@pytest.mark.parametrize(
    "text",
    [
        "# Heading { #anchor }\n",
        "see [x](#part) and a#b\n",
        "`#code` and ` #code`\n",
        "```\n#fenced\n```\n",
        "    #include <x>\n",
        "#include <vector>\n",
        "issue #123 and ##double\n",
    ],
)
def test_what_is_no_tag(text: str) -> None:
    assert "tags" not in parse(text).metadata
