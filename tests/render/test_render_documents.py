import json
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.app.records import DocumentText
from qmd.records import StoredDocument
from qmd.render.formats import FetchedDocument, render_document, render_documents
from qmd.render.text import number_lines

DOCUMENT = StoredDocument(1, "docs", "a.md", "Alpha", "abcdef" + "0" * 58, "2026-01-01T00:00:00.000Z", 9)
FETCHED = FetchedDocument(DOCUMENT, "qmd://docs/a.md", "note", "one\ntwo")
SKIPPED = FetchedDocument(DOCUMENT, "qmd://docs/a.md", None, "", "File too large")


def test_a_document_has_header_context_rule_and_numbered_lines() -> None:
    assert render_document(
        "qmd://docs/a.md  #abcdef", DocumentText(DOCUMENT, "note", "x\ny", 3, is_whole=False), True
    ) == ("qmd://docs/a.md  #abcdef\nFolder Context: note\n---\n\n3: x\n4: y\n")


def test_a_range_past_the_end_is_one_empty_line() -> None:
    assert render_document("h", DocumentText(DOCUMENT, None, "", 100, is_whole=False), True) == "h\n---\n\n100: \n"


def test_the_last_line_break_of_a_whole_document_begins_no_line() -> None:
    assert render_document("h", DocumentText(DOCUMENT, None, "x\n"), True) == "h\n---\n\n1: x\n"


def test_json_rows_carry_the_body_or_the_reason() -> None:
    first, second = json.loads(render_documents([FETCHED, SKIPPED], "json", False))
    assert list(first)[:5] == ["file", "docid", "title", "context", "body"]
    assert (second["skipped"], second["reason"]) == (True, "File too large")


def test_skipped_rows_put_the_reason_into_the_csv_body() -> None:
    assert render_documents([SKIPPED], "csv", False).splitlines()[1] == (
        "#abcdef,qmd://docs/a.md,Alpha,,true,File too large"
    )


def test_files_rows_mark_what_was_skipped() -> None:
    shown = render_documents([FETCHED, SKIPPED], "files", False)
    assert shown == '#abcdef,qmd://docs/a.md,"note"\n#abcdef,qmd://docs/a.md,[SKIPPED]\n'


def test_a_fence_in_the_text_does_not_end_the_markdown_block() -> None:
    inner = FetchedDocument(DOCUMENT, "x", None, "```\ncode\n```")
    assert "\n````\n```\ncode\n```\n````\n" in render_documents([inner], "md", False)


def test_the_terminal_form_has_a_ruled_header() -> None:
    rule = "=" * 60
    assert render_documents([FETCHED], "cli", True) == (
        f"\n{rule}\nFile: qmd://docs/a.md  #abcdef\n{rule}\n\nFolder Context: note\n---\n\n1: one\n2: two\n"
    )


@given(st.text(max_size=50), st.text(max_size=50))
def test_xml_is_well_formed_whatever_the_text(context: str, body: str) -> None:
    root = ET.fromstring(render_documents([FetchedDocument(DOCUMENT, "f", context, body), SKIPPED], "xml", False))
    assert len(root) == 2


@pytest.mark.parametrize(
    ("text", "numbered"),
    [
        ("a\r\nb\r", "7: a\r\n8: b"),  # cut out of a note with the line breaks of Windows
        ("a\r\nb\r\n", "7: a\r\n8: b\r\n"),
        ("a\n\r", "7: a\n8: "),
        ("a\n\n", "7: a\n8: \n"),
        ("a\rb\u2028c", r"7: a\x0db\u2028c"),
        ("", "7: "),
    ],
)
def test_numbered_lines_end_at_line_feeds_alone(text: str, numbered: str) -> None:
    assert number_lines(text, 7) == numbered
