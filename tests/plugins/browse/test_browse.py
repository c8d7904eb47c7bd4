"""Full-screen search, driven by keys and clicks."""

import sys
from pathlib import Path
from threading import Event

import pytest
from msgspec.structs import replace

from qmd.app.index import Index
from qmd.app.opening import open_index
from qmd.app.records import DocumentText
from qmd.errors import QmdError
from qmd.plugins.browse.app import Picker
from qmd.plugins.browse.pending_search import NOTHING_YET, _stages
from qmd.plugins.browse.preview import Preview, lay_out
from qmd.plugins.browse.rows import Filter, Note
from qmd.plugins.browse.widgets import Chips, Results
from qmd.records import Collection, StoredDocument
from qmd.retrieval.request import SearchRequest
from qmd.store.opening import open_writer
from tests.plugins.browse.conftest import CONTROLS, Seat, seated

SIZES = [(80, 24), (120, 40)]


def in_view(seat: Seat) -> list[str]:
    preview = seat.app.query_one(Preview)
    return [strip.text for strip in preview.page.lines[preview.scroll_offset.y :][: preview.size.height]]


def page_text(seat: Seat) -> str:
    return "\n".join(strip.text.rstrip() for strip in seat.app.query_one(Preview).page.lines)


@pytest.mark.anyio
@pytest.mark.parametrize("size", SIZES)
async def test_words_answer_while_models_work_and_are_refined(index: Index, gate: Event, size: tuple[int, int]) -> None:
    gate.clear()
    async with seated(index, size=size) as seat:
        await seat.press(*"limiter")
        await seat.until(lambda: seat.titles[:1] == ["Rate limits"] and seat.status.startswith("words"))
        assert seat.status.endswith("ms …")
        gate.set()
        await seat.answered("reranked")
        assert seat.titles[0] == "Rate limits"


@pytest.mark.anyio
async def test_the_answer_to_an_earlier_question_is_dropped(index: Index, gate: Event) -> None:
    gate.clear()
    async with seated(index) as seat:
        await seat.type("teapot")
        await seat.until(lambda: seat.titles[:1] == ["Teapots"] and seat.status.startswith("words"))
        seat.question.value = ""
        await seat.type("zebra")
        await seat.until(lambda: seat.titles == ["Long"])
        gate.set()
        await seat.answered("reranked")
        assert seat.titles[0] == "Long"


@pytest.mark.anyio
async def test_nothing_typed_shows_the_latest_notes(index: Index) -> None:
    async with seated(index) as seat:
        await seat.until(lambda: len(seat.titles) == 7)
        assert seat.status == "latest notes"


@pytest.mark.anyio
@pytest.mark.parametrize("size", SIZES)
async def test_arrows_choose_and_the_preview_follows(index: Index, size: tuple[int, int]) -> None:
    async with seated(index, "window", size) as seat:
        await seat.answered("reranked")
        first = page_text(seat)
        await seat.press("down")
        await seat.until(lambda: page_text(seat) not in ("", first))
        chosen = seat.app.chosen
        assert isinstance(chosen, Note)
        assert chosen.place in str(seat.app.query_one(Preview).border_title)


@pytest.mark.anyio
async def test_the_preview_shows_the_passage_under_its_headings_with_the_words_marked(index: Index) -> None:
    async with seated(index, "zebra stands") as seat:
        await seat.answered("reranked")
        preview = seat.app.query_one(Preview)
        await seat.until(lambda: any("▎ The zebra stands here" in line for line in in_view(seat)))
        assert "Zoo" in str(preview.border_title)
        (line,) = [strip for strip in preview.page.lines if "zebra" in strip.text]
        assert max(strip.cell_length for strip in preview.page.lines) <= preview.scrollable_content_region.width
        marked = next(one for one in line if one.text.startswith("zebra"))
        assert marked.style is not None and marked.style.bgcolor is not None


@pytest.mark.anyio
async def test_page_down_scrolls_the_note_while_typing(index: Index) -> None:
    async with seated(index, "salad") as seat:
        await seat.until(lambda: "word salad" in page_text(seat))
        preview = seat.app.query_one(Preview)
        before = preview.scroll_offset.y
        await seat.press("pagedown")
        await seat.until(lambda: preview.scroll_offset.y > before)


@pytest.mark.anyio
async def test_enter_opens_the_note_and_the_screen_stays(index: Index) -> None:
    async with seated(index, "teapot") as seat:
        await seat.answered("reranked")
        await seat.press("enter")
        assert [note.document.uri for note in seat.opened] == ["qmd://notes/teapots.md"]
        assert seat.app.is_running


@pytest.mark.anyio
async def test_a_picker_ends_with_the_note(index: Index) -> None:
    async with seated(index, "teapot", kind=Picker) as seat:
        await seat.answered("reranked")
        await seat.press("enter")
    assert seat.app.return_value is not None
    assert seat.app.return_value.document.uri == "qmd://notes/teapots.md"
    assert seat.opened == []


@pytest.mark.anyio
async def test_a_click_shows_a_note_and_a_double_click_opens_it(index: Index) -> None:
    async with seated(index, "window") as seat:
        await seat.answered("reranked")
        await seat.pilot.click(Results, offset=(5, 2))
        assert (seat.app.query_one(Results).highlighted, seat.opened) == (1, [])
        await seat.pilot.click(Results, offset=(5, 2), times=2)
        assert len(seat.opened) == 1


@pytest.mark.anyio
async def test_y_copies_the_link_in_the_list_and_is_a_letter_in_the_question(index: Index) -> None:
    async with seated(index, "teapot") as seat:
        await seat.answered("reranked")
        await seat.press("ctrl+y")
        assert seat.app.clipboard == "file:///teapots.md"
        await seat.press("y")
        assert seat.question.value == "teapoty"
        await seat.press("backspace")
        await seat.until(lambda: seat.titles[:1] == ["Teapots"])
        await seat.press("down")
        seat.app.copy_to_clipboard("")
        await seat.press("y")
        assert seat.app.clipboard.startswith("file:///")
        assert seat.question.value == "teapot"


@pytest.mark.anyio
async def test_typing_goes_on_from_the_list(index: Index) -> None:
    async with seated(index, "window") as seat:
        await seat.answered("reranked")
        await seat.press("down", "s", "backspace", "backspace")
        assert seat.question.has_focus
        assert seat.question.value == "windo"


@pytest.mark.anyio
async def test_tab_shows_links_and_related_notes_and_escape_returns(index: Index) -> None:
    async with seated(index, "sliding") as seat:
        await seat.answered("reranked")
        before = seat.titles
        await seat.press("tab")
        await seat.until(lambda: seat.titles[:1] == ["Cache"])
        linked = seat.app.chosen
        assert isinstance(linked, Note) and linked.detail.startswith("linked from it · ")
        assert "Rate limits" in str(seat.app.query_one(Results).border_title)
        await seat.press("escape")
        assert (seat.titles, seat.question.has_focus) == (before, True)
        await seat.press("escape")
    assert seat.app.return_value is None


@pytest.mark.anyio
async def test_a_filter_becomes_a_chip_when_it_is_complete_and_goes_with_backspace(index: Index) -> None:
    async with seated(index, "limiter") as seat:
        await seat.answered("reranked")
        await seat.type(" tag:work")
        assert seat.app.query_one(Chips).filters == []
        await seat.type(" ")
        assert (seat.app.query_one(Chips).filters, seat.question.value) == (["tag:work"], "limiter ")
        await seat.until(lambda: seat.titles == ["Cache"])
        await seat.press("home", "backspace")
        await seat.until(lambda: len(seat.titles) > 1)
        assert seat.app.query_one(Chips).filters == []


@pytest.mark.anyio
async def test_a_click_takes_a_chip_off(index: Index) -> None:
    async with seated(index, "window collection:diary") as seat:
        await seat.until(lambda: seat.titles == ["Sunday"])
        await seat.pilot.click("Chips Label")
        await seat.until(lambda: len(seat.titles) > 1)


@pytest.mark.anyio
async def test_filters_are_offered_with_their_counts_and_completed(index: Index) -> None:
    async with seated(index, "window") as seat:
        await seat.until(lambda: seat.app._offered)
        await seat.press("ctrl+f")
        assert seat.app._rows[:2] == [Filter("collection:notes", 6), Filter("collection:diary", 1)]
        assert Filter("tag:work/infra", 1) in seat.app._rows
        assert [one for one in seat.app._rows if "evil" in one.key] == []
        await seat.press("down", "enter")
        assert seat.app.query_one(Chips).filters == ["collection:diary"]
        await seat.until(lambda: seat.titles == ["Sunday"])
        await seat.type(" tag:wo")
        await seat.until(lambda: seat.question._suggestion)
        await seat.press("right")
        assert seat.question.value == "window tag:work/infra"


@pytest.mark.anyio
async def test_a_window_that_changes_its_size_is_laid_out_anew(index: Index) -> None:
    async with seated(index, "zebra") as seat:
        await seat.until(lambda: "zebra" in page_text(seat))
        preview, results = seat.app.query_one(Preview), seat.app.query_one(Results)
        assert preview.region.y > results.region.y
        await seat.pilot.resize_terminal(160, 40)
        await seat.until(lambda: preview.region.y == results.region.y and "zebra" in page_text(seat))
        await seat.press("ctrl+o")
        await seat.until(lambda: results.region.width == 160)
        assert not preview.display or preview.region.width == 0


@pytest.mark.anyio
async def test_chinese_and_japanese_are_typed_and_found(index: Index) -> None:
    async with seated(index) as seat:
        await seat.press("検", "索")
        await seat.until(lambda: seat.question.value == "検索" and seat.titles[:1] == ["検索"])
        await seat.until(lambda: "データベースの検索" in page_text(seat))


@pytest.mark.anyio
async def test_without_an_index_the_next_command_is_told(tmp_path: Path) -> None:
    with open_index(tmp_path / "none.sqlite", environ={}) as index:
        async with seated(index) as seat:
            await seat.until(lambda: seat.message == NOTHING_YET)
            await seat.type("words")
            await seat.press("enter", "tab", "ctrl+y", "ctrl+f")
            await seat.until(lambda: seat.message == NOTHING_YET)


@pytest.mark.anyio
async def test_an_index_of_nothing_says_how_to_begin_and_nothing_of_filters(tmp_path: Path) -> None:
    with open_writer(tmp_path / "index.sqlite") as writer:
        writer.mirror_config([Collection("notes", tmp_path)], None, "digest")
    with open_index(tmp_path / "index.sqlite", environ={}) as empty:
        async with seated(empty) as seat:
            await seat.until(lambda: seat.message)
            assert seat.message == NOTHING_YET


@pytest.mark.anyio
async def test_no_match_is_one_line(index: Index) -> None:
    async with seated(index, "window tag:nosuch") as seat:
        await seat.until(lambda: seat.message.startswith("No note matches."))
        assert seat.titles == []


@pytest.mark.anyio
async def test_a_mistake_in_the_question_is_told_and_typing_goes_on(index: Index) -> None:
    async with seated(index) as seat:
        await seat.type("tea after:nonsense ")
        await seat.until(lambda: "is not a date" in seat.message)
        await seat.press("home", "backspace")
        await seat.until(lambda: "Teapots" in seat.titles)


@pytest.mark.anyio
async def test_a_damaged_index_is_a_notice_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").write_bytes(b"no database at all" * 1000)
    with open_index(tmp_path / "index.sqlite", environ={}) as index:
        async with seated(index, "words") as seat:
            await seat.until(lambda: seat.message)
            assert seat.app.is_running


class Failing(Index):
    """Index whose methods fail in different ways."""

    def search(self, *arguments: object, **options: object) -> object:  # type: ignore[override]
        raise ZeroDivisionError("not foreseen")


@pytest.mark.anyio
async def test_what_nobody_foresaw_is_a_notice_too(index: Index) -> None:
    index.__class__ = Failing
    async with seated(index, "words") as seat:
        await seat.until(lambda: "unexpected ZeroDivisionError" in seat.message)


@pytest.mark.anyio
async def test_a_warning_that_is_written_meanwhile_is_shown(index: Index) -> None:
    async with seated(index) as seat:
        print("warning: no warm process was started", file=sys.stderr)
        await seat.until(lambda: [one.message for one in seat.app._notifications])
        assert [one.message for one in seat.app._notifications] == ["warning: no warm process was started"]


@pytest.mark.anyio
async def test_a_note_that_cannot_be_opened_is_told_of(index: Index) -> None:
    def refuse(note: Note) -> None:
        raise QmdError("the file is gone", "run: qmd update")

    async with seated(index, "teapot") as seat:
        seat.app._open_note = refuse
        await seat.answered("reranked")
        await seat.press("enter")
        assert seat.message == "the file is gone. run: qmd update"


@pytest.mark.anyio
async def test_what_a_note_holds_cannot_steer_the_terminal(index: Index) -> None:
    async with seated(index, "hostile", (120, 40)) as seat:
        await seat.until(lambda: "hostile" in page_text(seat))
        shown = [strip.text for line in seat.app.screen._compositor.render_strips() for strip in [line]]
        text = "".join(shown)
        assert "\\x1b]0;owned\\x07 title" in text
        assert [one for one in CONTROLS if one in text] == []
        strips = seat.app.query_one(Preview).page.lines
        assert all(one.style is None or one.style.link is None for strip in strips for one in strip)


@pytest.mark.anyio
async def test_light_and_dark_change_with_a_key(index: Index) -> None:
    async with seated(index) as seat:
        assert seat.app.current_theme.dark
        await seat.press("ctrl+t")
        assert not seat.app.current_theme.dark


@pytest.mark.parametrize(("path", "line", "shown"), [("x.md", 5, "▎ A word"), ("x.py", 5, "▎ A [[Note|word]]")])
def test_the_passage_has_a_bar_beside_it_in_notes_and_in_source_files(path: str, line: int, shown: str) -> None:
    text = "---\ntitle: x\n---\n\nA [[Note|word]]\n\n```\n[[kept|so]]\n```\n"
    document = StoredDocument(1, "notes", path, "x", "0", "2026-01-01", len(text))
    rows = [strip.text.rstrip() for strip in lay_out(DocumentText(document, None, text), line, 60, lambda _: []).lines]
    assert [row for row in rows if row.startswith("▎")] == [shown]
    assert [row.strip() for row in rows if "kept" in row] == ["[[kept|so]]"]


def test_of_a_long_note_the_part_around_the_passage_is_laid_out() -> None:
    document = StoredDocument(1, "notes", "long.md", "x", "0", "2026-01-01", 1)
    text = "".join(f"Paragraph {number}.\n\n" for number in range(30_000))
    page = lay_out(DocumentText(document, None, text), 40_001, 40, lambda _: [])
    lines = [strip.text.rstrip() for strip in page.lines]
    assert lines[page.top + 3] == "▎ Paragraph 20000."
    assert lines[-1].startswith("  A long note: ")
    assert len(lines) < 6000


def test_words_bring_a_screenful_at_once_and_all_a_little_later() -> None:
    request = SearchRequest("x", mode="lexical", limit=30)
    assert [one.limit for _, _, one in _stages(request)] == [12, 30]
    assert [one.limit for _, _, one in _stages(replace(request, limit=5))] == [5]
    stages = [(name, one.limit) for name, _, one in _stages(replace(request, mode="hybrid"))]
    assert stages == [("words", 12), ("meaning", 30), ("reranked", 30)]


@pytest.mark.anyio
async def test_a_better_answer_lays_out_the_same_preview_once(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[str] = []
    get = index.get

    def noted(uri: str) -> DocumentText:
        got.append(uri)
        return get(uri)

    monkeypatch.setattr(index, "get", noted)
    async with seated(index) as seat:
        await seat.type("zebra")
        await seat.answered("reranked")
        await seat.until(lambda: got and len(seat.app.query_one(Preview).page.lines))
        assert len([uri for uri in got if uri.endswith("long.md")]) == 1
