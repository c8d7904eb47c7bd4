"""Links in the text of a note."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.ingest.links import _MARK, MAX_LINKS, _marks, find_links
from qmd.ingest.markdown import find_headings
from qmd.records import Link
from tests.parsing import parse_document


def links(text: str) -> list[Link]:
    return list(parse_document("note.md", text.encode()).links)


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("[[Note]]", Link("Note", "", "", 1)),
        ("[[folder/Note|shown]]", Link("folder/Note", "", "shown", 1)),
        ("[[Note#Heading]]", Link("Note", "Heading", "", 1)),
        ("[[Note#^block]]", Link("Note", "^block", "", 1)),
        ("[[#Heading]]", Link("", "Heading", "", 1)),
        ("![[Note]]", Link("Note", "", "", 1, is_embed=True)),
        ("[[C#]]", Link("C#", "", "", 1)),
        ("| [[Note\\|shown]] |", Link("Note", "", "shown", 1)),
        ("[text](file.md)", Link("file.md", "", "text", 1)),
        ("[text](../a%20b.md#part)", Link("../a b.md", "part", "text", 1)),
        ('[text](<with spaces.md> "a title")', Link("with spaces.md", "", "text", 1)),
        ("[text](a(b).md)", Link("a(b).md", "", "text", 1)),
        ("![text](note.md)", Link("note.md", "", "text", 1, is_embed=True)),
        ("[a [b] `c[0]`](file.md)", Link("file.md", "", "a [b] c[0]", 1)),
        ("[![picture](https://a/p.png)](file.md)", Link("file.md", "", "picture", 1)),
        ("![[p.png|400]]", Link("p.png", "", "", 1, is_embed=True)),
        ("![plan|80x60](<my p.png>)", Link("my p.png", "", "plan", 1, is_embed=True)),
        ("[text][ref]\n\n[Ref]: path.md", Link("path.md", "", "text", 1)),
        ("[ref][]\n\n[ref]: <path.md>", Link("path.md", "", "ref", 1)),
        ('---\nparent: "[[note|Note]]"\n---\n', Link("note", "", "Note", 2)),
        ("---\nid: x\nupdated: 1608486400000\n---\n[[a price|proj.x#y z]]", Link("proj.x", "y z", "a price", 5)),
        ("---\nupdated: 1608486400000\n---\n[[note|as shown]]", Link("note", "", "as shown", 4)),
        ("---\nid: x\n---\n[[a price|proj.x]]", Link("proj.x", "", "a price", 4)),
        ("---\nid: x\n---\n[[note|shown]]", Link("note", "", "shown", 4)),
        ("---\nid: x\n---\n[[note.x|v1.2]]", Link("note.x", "", "v1.2", 4)),
        ("[[note|proj.x]]", Link("note", "", "proj.x", 1)),
        ("[[Note]]\n\n[note]: sub/other.md 'Other'\n", Link("sub/other.md", "", "", 1)),
        ("[[dendron://vault/proj.x#y]]", Link("proj.x", "y", "", 1)),
        ("\n\n[[Größe]]", Link("Größe", "", "", 3)),
    ],
)
def test_a_link_is_found_as_it_is_written(text: str, link: Link) -> None:
    assert links(text) == [link]


@pytest.mark.parametrize(
    "text",
    [
        "```\n[[Note]] [a](b.md)\n```",
        "`[[Note]]` and ``a` [[Note]]``",
        "[web](https://example.org/a.md) [mail](mailto:a@example.org) [other](//example.org/a.md)",
        "[contents](#heading)",
        "[unknown][reference] [[]] [text]",
    ],
)
def test_what_is_code_or_leads_out_of_the_notes_is_no_link(text: str) -> None:
    assert links(text) == []


def test_links_come_in_order_with_their_lines_and_code_between_does_not_shift_them() -> None:
    text = "[[a]]\n```\n[[no]]\n```\n[b](b.md) `[[no]]`\n[[c]] [[d]]\n"
    assert [(one.target, one.line) for one in links(text)] == [("a", 1), ("b.md", 5), ("c", 6), ("d", 6)]


@pytest.mark.parametrize(
    "piece",
    [
        "[[",
        "](",
        "](<",
        '](a "',
        "``x ",
        "](a(b)",
        "[a",
        "][",
        "\n[a]:",
        "---\nx\n",
        "`",
        "[](a",
        "](a\t",
        "[a](b)[",
        "[[a|",
    ],
)
def test_marks_that_nothing_closes_take_time_in_proportion_to_the_text(piece: str) -> None:
    assert len(find_links(piece * 200_000, ())) <= MAX_LINKS


PIECES = ("[[", "]]", "](", "][", "[", "]", "`", "``", "\n```\n", "\n", "a", "|", "(", ")", "<", ">", "b.md", " ")


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_marks_looked_for_kind_by_kind_are_those_of_one_look_for_all(text: str) -> None:
    _, code = find_headings(text)
    borders = [0, *(place for span in code for place in span), len(text)]
    parts = zip(borders[::2], borders[1::2], strict=True)
    expected = [mark for part in parts for mark in re.compile(_MARK).finditer(text, *part) if mark.lastindex]
    assert [mark[0] for mark in _marks(text, code)] == [mark[0] for mark in expected]
