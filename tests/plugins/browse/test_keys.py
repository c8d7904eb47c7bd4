"""Keys, rows for the height of a screen, lines of a note, saved searches, and long notes."""

import re
from pathlib import Path

import pytest

from qmd.app.index import Index
from qmd.app.records import DocumentText
from qmd.plugins.browse.app import Picker
from qmd.plugins.browse.keys import KEYS
from qmd.plugins.browse.preview import FIRST_CHARACTERS, Page, Preview, lay_out
from qmd.plugins.browse.rows import Note, draw_row, matching_lines
from qmd.plugins.browse.widgets import Chips, Notices, Results
from qmd.records import StoredDocument
from tests.plugins.browse.conftest import Seat, seated
from tests.plugins.browse.test_browse import page_text


def lines_on(seat: Seat) -> list[str]:
    """Return the lines of the screen."""
    return [strip.text for strip in seat.app.screen._compositor.render_strips()]


def rows_in_view(seat: Seat) -> list[str]:
    """Return the drawn list."""
    results = seat.app.query_one(Results)
    return [strip.text.rstrip() for strip in map(results.render_line, range(results.scrollable_content_region.height))]


@pytest.mark.anyio
async def test_a_low_screen_has_a_row_for_a_note_and_a_high_one_two(index: Index) -> None:
    async with seated(index, "sliding window", (80, 24)) as seat:
        await seat.answered("reranked")
        first, second = rows_in_view(seat)[:2]
        assert first.startswith("● Rate limits › Design") and first.endswith("  notes/")
        assert second.startswith("● ") and len(second) == len(first)
        await seat.pilot.resize_terminal(80, 40)
        await seat.until(lambda: rows_in_view(seat)[1].strip() == "notes/limits.md:5")


@pytest.mark.anyio
@pytest.mark.parametrize(("down", "up"), [("ctrl+n", "ctrl+p"), ("ctrl+j", "ctrl+k")])
async def test_the_hands_of_other_pickers_move_the_choice_while_typing(index: Index, down: str, up: str) -> None:
    async with seated(index, "window") as seat:
        await seat.answered("reranked")
        results = seat.app.query_one(Results)
        await seat.press(down, down, up)
        assert (results.highlighted, seat.question.has_focus, seat.question.value) == (1, True, "window")


@pytest.mark.anyio
async def test_the_keys_are_told_and_escape_leads_back(index: Index) -> None:
    async with seated(index) as seat:
        await seat.until(lambda: seat.titles)
        for keys in (("question_mark",), ("f1",), ("down", "question_mark", "question_mark", "f1")):
            await seat.press(*keys)
            assert [key for key in seat.titles if key.startswith("Ctrl+N, Ctrl+J")]
            assert len(seat.app._views) == 1
            await seat.press("enter")
            assert seat.app._views == [] and seat.question.value == "" and seat.app.query_one(Chips).filters == []
        await seat.press("w", "question_mark")
        assert seat.question.value == "w?"


@pytest.mark.anyio
async def test_notices_are_cut_to_the_line_and_whole_below_the_keys(index: Index) -> None:
    notices = [
        "1353 documents (52%) need embeddings: " + "they are computed, " * 9 + "wait",
        "醤油 is in no note; stop",
    ]
    async with seated(index, "limiter") as seat:
        await seat.answered("reranked")
        seat.app.query_one(Notices).show(*notices)
        assert seat.message == "1353 documents (52%) need embeddings · 醤油 is in no note · F1: more"
        await seat.pilot.resize_terminal(64, 24)
        await seat.until(lambda: seat.message == "1353 documents (52%) need embeddings · F1: more")
        await seat.pilot.resize_terminal(400, 40)
        await seat.until(lambda: seat.message == " · ".join(notices))
        await seat.pilot.resize_terminal(80, 24)
        await seat.press("f1")
        rows = [row for row in seat.titles if not row.endswith("  ")][-5:]
        assert " ".join(rows).endswith(" ".join(f"• {one}" for one in notices)) and max(map(len, rows)) < 80
        assert seat.app.query_one(Notices).size.height == 0


@pytest.mark.anyio
async def test_a_notice_longer_than_the_line_keeps_its_start(index: Index) -> None:
    async with seated(index, "limiter") as seat:
        await seat.answered("reranked")
        seat.app.query_one(Notices).show("word " * 40, "\x1b[2J")
        await seat.pilot.pause()
        assert lines_on(seat)[-2].strip().startswith("word word") and "\x1b" not in "".join(lines_on(seat))


@pytest.mark.anyio
async def test_the_end_of_input_ends_the_screen(index: Index) -> None:
    async with seated(index, "limiter") as seat:
        await seat.press("ctrl+d")
        assert seat.app._exit


@pytest.mark.anyio
async def test_the_keys_of_a_picker_fit_80_columns(index: Index) -> None:
    async with seated(index, "limiter", kind=Picker) as seat:
        await seat.answered("reranked")
        assert "Pick" in lines_on(seat)[-1] and lines_on(seat)[-1].rstrip().endswith("Back")


@pytest.mark.anyio
async def test_a_scrollbar_leaves_the_width_of_the_list(index: Index) -> None:
    async with seated(index) as seat:
        await seat.until(lambda: seat.titles)
        results = seat.app.query_one(Results)
        before = results.scrollable_content_region.width
        await seat.press("f1")
        await seat.pilot.resize_terminal(80, 12)
        await seat.until(lambda: results.show_vertical_scrollbar)
        assert results.scrollable_content_region.width == before


@pytest.mark.parametrize("path", ["a/b c.md", "a long folder/" * 9 + "b c.md", "a\nb/\x1b[2J/b c.md"])
def test_a_row_begins_with_its_collection_or_ends_with_its_name(path: str) -> None:
    document = StoredDocument(1, "notes", path, "B", "0", "2026-01-01", 1)
    low, high = (draw_row(Note(document, 7, detail="2026-01-01"), 60, is_low=is_low).plain for is_low in (True, False))
    assert re.search("  notes/[^\n]*/  2026-01-01$", low) and len(low) == 60
    assert re.search("\n  [^\n]*b c.md:7  2026-01-01$", high) and "\x1b" not in low + high


def test_every_key_that_is_told_is_in_the_docs() -> None:
    docs = (Path(__file__).parents[3] / "docs/browse.md").read_text("utf-8").replace("`", "")
    for key in KEYS:
        for name in key.tooltip.partition("  ")[0].split(", ") if key.tooltip else ():
            assert name in docs


@pytest.mark.anyio
async def test_right_lists_the_lines_that_match_and_enter_opens_at_one(index: Index) -> None:
    async with seated(index, "zebra word") as seat:
        await seat.answered("reranked")
        await seat.press("left", "right")
        assert seat.app._views == []
        await seat.until(lambda: seat.titles[:1] == ["Long"])
        await seat.press("right")
        await seat.until(lambda: seat.app._views)
        rows = [row for row in seat.app._rows if isinstance(row, Note)]
        assert [row.text for row in rows] == ["word salad line"] * 200 + ["The zebra stands here."]
        assert rows[-1].spans == ((4, 9),)
        assert seat.app.chosen == rows[-1]
        await seat.press("enter")
        assert [(note.document.title, note.line) for note in seat.opened] == [("Long", rows[-1].line)]
        await seat.press("right", "escape")
        assert (seat.app._views, seat.question.has_focus) == ([], True)


def test_the_lines_of_a_hostile_note_are_few_short_and_steer_nothing() -> None:
    document = StoredDocument(1, "notes", "x.md", "x", "0", "2026-01-01", 1)
    found = DocumentText(document, None, "tea \x1b[2J\r\n" * 5_000 + "tea" * 100_000)
    rows = matching_lines(Note(document), found, lambda line: [(0, 3)] if "tea" in line else [])
    assert len(rows) == 1_000
    assert {draw_row(row, 20).plain.strip() for row in rows[1:2]} == {"2  tea \\x1b[2J"}


@pytest.mark.anyio
async def test_a_saved_search_is_offered_and_put_into_the_question(index: Index) -> None:
    async with seated(index, saved={"tea": "window tag:none collection:diary"}) as seat:
        await seat.press("ctrl+f")
        await seat.until(lambda: seat.titles[:1] == ["@tea"])
        await seat.press("enter")
        assert seat.question.value.strip() == "window"
        assert seat.app.query_one(Chips).filters == ["tag:none", "collection:diary"]
        await seat.press("home", "backspace", "backspace")
        seat.question.value = "@t"
        await seat.until(lambda: seat.question._suggestion == "@tea")


def test_of_a_huge_note_a_screenful_is_laid_out_first_and_more_of_it_moves_nothing() -> None:
    document = StoredDocument(1, "notes", "long.md", "x", "0", "2026-01-01", 1)
    text = "".join(f"Paragraph {number}.\n\n" for number in range(300_000))
    sizes = (FIRST_CHARACTERS, 40_000)
    first, whole = (lay_out(DocumentText(document, None, text), 400_001, 40, lambda _: [], n) for n in sizes)
    assert len(first.lines) < 600 < len(whole.lines)
    assert [page.lines[page.top + 3].text for page in (first, whole)] == [first.lines[first.top + 3].text] * 2


@pytest.mark.anyio
async def test_more_of_a_note_leaves_the_preview_where_it_was_scrolled_to(index: Index) -> None:
    async with seated(index, "zebra") as seat:
        await seat.answered("reranked")
        await seat.until(lambda: "zebra" in page_text(seat))
        preview = seat.app.query_one(Preview)
        lines = preview.page.lines
        preview.show("same", Page(lines[10:], 20))
        preview.scroll_to(y=27, animate=False, force=True, immediate=True)
        preview.show("same", Page(lines, 30))
        assert preview.scroll_offset.y == 37
        preview.show("other", Page(lines, 30))
        assert preview.scroll_offset.y == 30
