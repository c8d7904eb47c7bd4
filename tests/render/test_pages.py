"""Documents on a terminal."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from rich.cells import cell_len

from qmd.app.records import DocumentText
from qmd.records import StoredDocument
from qmd.render import pages
from qmd.render.drawing import Screen
from qmd.render.note_marks import AddressOf
from qmd.render.pages import MAX_CODE, MAX_MARKDOWN, Page, draw_pages
from qmd.render.terminal import without_sequences

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
COLOURED = Screen(width=80, colours="256")
PLAIN = Screen(width=80)


def page(text: str, path: str = "sync.md", address_of: AddressOf = lambda target: None, **more: object) -> Page:
    document = StoredDocument(1, "notes", path, "Sync", "abcdef0123", "2026-03-01T10:00:00.000Z", len(text))
    found = DocumentText(document, "All meetings", text, **more)  # type: ignore[arg-type]
    return Page(document, f"notes/{path}", "All meetings", found, address_of=address_of)


def body(shown: str) -> str:
    """Return the text below the line."""
    return shown.partition("─\n\n")[2] or shown.partition("─\x1b[0m\n\n")[2]


def drawn(text: str, path: str = "sync.md", screen: Screen = PLAIN, **more: object) -> str:
    return body(draw_pages(screen, [page(text, path, **more)], NOW))  # type: ignore[arg-type]


def test_a_document_begins_with_what_it_is(set_zone: Callable[[str], None]) -> None:
    set_zone("UTC")
    assert draw_pages(PLAIN, [page("text\n")], NOW).splitlines()[:4] == [
        "notes/sync.md  #abcdef",
        "5 B · changed Mar  1 10:00",
        "All meetings",
        "─" * 80,
    ]


def test_markdown_is_rendered() -> None:
    text = "# Head\n\nSome **bold** `code`\nand a [web page](https://example.org).\n\n1. one\n2. two\n\n> said\n"
    assert drawn(text) == ("Head\n\nSome bold code and a web page (https://example.org).\n\n 1 one\n 2 two\n\n▌ said\n")
    assert "\x1b[1mbold\x1b[0m" in drawn(text, screen=COLOURED)
    assert "\x1b]8;;https://example.org\x07" in drawn(text, screen=COLOURED)


def test_a_wiki_link_is_shown_by_its_name_and_opens_its_note() -> None:
    def address_of(target: str) -> str | None:
        return {"Plan": "file:///notes/Plan.md", "sub/two.md": "file:///notes/sub/two.md"}.get(target)

    text = "see [[Plan]], [[Plan#Cost|its cost]], [two](sub/two.md#x), [[Nowhere]], [page](other.html)\n"
    assert drawn(text, address_of=address_of) == "see Plan, its cost, two, Nowhere, page\n"
    coloured = drawn(text, screen=COLOURED, address_of=address_of)
    assert coloured.count("\x1b]8;;file:///notes/Plan.md\x07") == 2
    assert coloured.count("\x1b]8;;file:///notes/sub/two.md\x07") == 1
    assert "\x1b[2mNowhere\x1b[0m" in coloured


def test_brackets_that_are_no_wiki_link_stay() -> None:
    assert drawn("a [[ ]] b [[x\ny]] `[[code]]` [[") == "a [[ ]] b [[x y]] [[code]] [[\n"


def test_tasks_pictures_and_callouts_are_readable() -> None:
    tasks, pictures = "- [ ] open\n- [x] done\n\n", "![a chart|80](img/c.png) ![](d.png)\n\n"
    text = f"{tasks}{pictures}> [!note] Mind this\n> text\n\n> [!tip]\n> more\n"
    assert drawn(text) == (
        " • ☐ open\n • ☑ done\n\n[image a chart] [image d.png]\n\n▌ Mind this\n▌ text\n\n▌ Tip\n▌ more\n"
    )


def test_a_picture_in_obsidians_way_is_named_and_not_called_by_its_width() -> None:
    assert drawn("![[a chart.png|400]] ![[d.png]] ![[e.png|the sea|80x40]] [[f.png]]") == (
        "[image a chart.png] [image d.png] [image the sea] f.png\n"
    )


def test_html_loses_no_words() -> None:
    text = "<details>\n<summary>More</summary>\n</details>\n\n2<sup>n</sup><br>next\n"
    assert drawn(text) == "<details>\n<summary>More</summary>\n</details>\n\n2^n\nnext\n"


def test_front_matter_is_faint_and_apart() -> None:
    coloured = drawn("---\ntitle: Sync\ntags: [a]\n---\n# Head\n", screen=COLOURED)
    assert coloured.startswith("\x1b[2mtitle: Sync\x1b[0m\n\x1b[2mtags: [a]\x1b[0m\n\n")


def test_tables_are_aligned() -> None:
    assert drawn("| a | n |\n|---|--:|\n| 发布 | 1 |\n| x | 22 |\n") == "a       n\n─────────\n发布    1\nx      22\n"


def test_code_keeps_its_lines_and_is_indented() -> None:
    assert drawn("```python\ndef f():\n    return 1\n```\n") == "  def f():\n      return 1\n"
    assert "\x1b[35mdef\x1b[0m" in drawn("```python\ndef f():\n    return 1\n```\n", screen=COLOURED)


def test_lines_that_were_asked_for_are_numbered_as_in_the_file() -> None:
    assert drawn("# two\n**three**", first_line=9, is_whole=False) == " 9  # two\n10  **three**\n"


def test_a_source_file_is_numbered_and_in_colours() -> None:
    coloured = drawn("import os\n\nx = 'a'\n", "a.py", COLOURED)
    assert "\x1b[35mimport\x1b[0m" in coloured
    assert [line.rstrip() for line in without_sequences(coloured).splitlines()] == [
        "  1 import os",
        "  2",
        "  3 x = 'a'",
    ]


@pytest.mark.parametrize("path", ["a.md", "a.py", "a.txt"])
def test_a_huge_document_is_shown_as_it_is(path: str) -> None:
    text = "*a* `b`\n" * (max(MAX_MARKDOWN, MAX_CODE) // 8 + 1)
    assert drawn(text, path).startswith("    1  *a* `b`\n")


def test_many_documents_take_no_longer_than_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_MARKDOWN", 1_600)
    half = "*a* `b`\n" * 100
    shown = draw_pages(PLAIN, [page(half), page("*c*\n"), page(half)], NOW)
    assert "\nc\n" in shown
    assert "1  *a* `b`\n" in shown


def test_a_document_that_is_left_out_says_why() -> None:
    left_out = Page(page("x").document, "notes/sync.md", None, reason="too large: qmd get qmd://notes/sync.md")
    assert "! too large: qmd get qmd://notes/sync.md" in draw_pages(PLAIN, [left_out], NOW)


@pytest.mark.parametrize(
    "text", ["> " * 3000, "- " * 3000, "[" * 20000, "*a" * 5000, "| a " * 300, "[[" * 9000, "![[" * 9000]
)
def test_strange_markdown_is_drawn_all_the_same(text: str) -> None:
    assert drawn(f"{text}\n\n# end\n").endswith("end\n")


def test_no_line_exceeds_the_terminal() -> None:
    text = "会议记录发布" * 40 + "\n\n- " + "word " * 60 + "\n\n| " + "x " * 90 + "| b |\n|---|---|\n| 1 | 2 |\n"
    for width in (40, 80, 200):
        lines = without_sequences(drawn(text, screen=Screen(width=width, colours="256"))).splitlines()
        assert max(cell_len(line) for line in lines) <= min(width, 120)
