"""Listings on a terminal."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from qmd.app.records import Listing
from qmd.inference.models.catalogue import advice_on
from qmd.records import Collection, StoredDocument
from qmd.render.drawing import Screen
from qmd.render.listings import StatusReport
from qmd.render.tables import draw_collection, draw_collections, draw_files, draw_status
from qmd.render.terminal import without_sequences
from qmd.status import INDEXED, CollectionStatus, IndexStatus, SkippedFile

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MOMENT = "2026-03-01T10:00:00.000Z"
HOME = Path("/home/me")
NARROW = Screen(width=80)
WIDTHS = (40, 60, 80, 120)


def link(path: str, line: int) -> str:
    return Path(path).as_uri()


def collection(home: Path, name: str = "notes", **more: object) -> Collection:
    folder = home / "a" / "long" / "way" / "down" / name
    folder.mkdir(parents=True, exist_ok=True)
    return Collection(name, folder, **more)  # type: ignore[arg-type]


def counted(one: Collection, documents: int = 12) -> CollectionStatus:
    return CollectionStatus(one.name, one.path, one.pattern, documents, MOMENT, one.include_by_default)


def report(*collections: Collection, pending: int = 0, vectors: int = 90, left_out: int = 0) -> StatusReport:
    counts = tuple(counted(one) for one in collections)
    missing = tuple(SkippedFile("notes", f"{n}.md", f"'{n}.md' is no UTF-8 {'text ' * 20}") for n in range(left_out))
    n_documents = sum(one.documents for one in counts)
    index = IndexStatus(
        HOME / ".cache/qmd/index.sqlite", 2_000_000, n_documents, 10, pending, 90, vectors, MOMENT, "f", counts, missing
    )
    return StatusReport(index, collections)


def stored(path: str) -> StoredDocument:
    return StoredDocument(1, "notes", path, "Title", "abcdef0123", MOMENT, 1200)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_a_listing_exceeds_the_terminal(tmp_path: Path, width: int) -> None:
    screen = Screen(width=width, colours="256")
    known = [
        collection(tmp_path, "发布检查清单和其他非常重要的事情" * 2, ignore=("templates/**", "archive/**")),
        collection(tmp_path, "notes", context={"/": "会议记录" * 40, "work/": "plans\nand lists"}),
        collection(tmp_path, "old", update_command="git pull --rebase " * 6, include_by_default=False),
    ]
    counts = [counted(one, 1_234_567) for one in known]
    files = Listing("notes", "", tuple(stored(path) for path in ("a.md", "会议记录/" * 12 + "发布" * 30 + ".md")))
    drawn = [
        draw_status(screen, report(*known, pending=3, left_out=12), NOW, tmp_path),
        draw_collections(screen, known, counts, NOW, tmp_path),
        draw_collections(screen, known, counts, NOW, tmp_path, masks=True),
        draw_files(screen, files, tmp_path, link, NOW),
        *(draw_collection(screen, one, counts, NOW) for one in known),
    ]
    for text in drawn:
        assert [line for line in without_sequences(text).splitlines() if cell_len(line) > width] == []


def test_status_says_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    drawn = draw_status(NARROW, report(collection(tmp_path), pending=3), NOW, tmp_path)
    assert "Words    ✓ 12 files, updated 2h ago" in drawn
    assert "Vectors  ! 3 texts without, of 12: qmd embed" in drawn
    assert "Next" not in drawn and "context add" not in drawn
    assert f"~{'/a/long/way/down/notes'}" in drawn


def test_status_of_five_collections_fits_one_screen_whatever_is_missing(tmp_path: Path) -> None:
    shown = report(*(collection(tmp_path, f"folder{n}") for n in range(5)), pending=3, left_out=40)
    problems = (SkippedFile("notes", "a.md", "front matter cannot be read", program=INDEXED),)
    advice = advice_on("de")
    kinds = "1,212 .png, 118 .canvas, 31 .csv, 4 .docx and 12 other kinds"
    index = replace(shown.index, problems=problems, copies=3, advice=advice, others=kinds)
    lines = draw_status(NARROW, replace(shown, index=index, daemon_pid=7), NOW, tmp_path).splitlines()
    assert len(lines) < 24, len(lines)
    assert re.search("Copies +3 with the text of another file", "\n".join(lines))


def test_status_leads_to_the_list_of_what_could_not_be_read(tmp_path: Path) -> None:
    shown = report(collection(tmp_path))
    problem = SkippedFile("notes", "a.md", "front matter cannot be read", program=INDEXED)
    shown = replace(shown, index=replace(shown.index, problems=(problem,)))
    drawn = draw_status(NARROW, shown, NOW, tmp_path)
    assert "Problems ! 1: qmd status --problems" in " ".join(drawn.split())


def test_status_without_anything_says_how_to_begin() -> None:
    empty = StatusReport(IndexStatus(HOME / "i.sqlite", 0, 0, 0, 0, 0, 0, None, None, ()))
    drawn = draw_status(NARROW, empty, NOW, HOME)
    assert "qmd index ~/notes" in drawn and "\n\n\n" not in drawn


def test_status_of_a_complete_index_asks_for_nothing(tmp_path: Path) -> None:
    drawn = draw_status(NARROW, report(collection(tmp_path, context={"/": "mine"})), NOW, tmp_path)
    assert "Vectors  ✓ complete, 90 passages" in drawn
    assert "embed" not in drawn and "!" not in drawn


def test_a_collection_whose_folder_is_gone_is_marked(tmp_path: Path) -> None:
    gone = Collection("gone", tmp_path / "gone")
    assert "~/gone (missing)" in draw_collections(NARROW, [gone], [], NOW, tmp_path)


def test_files_are_links_and_folders_faint(tmp_path: Path, set_zone: Callable[[str], None]) -> None:
    set_zone("UTC")
    screen = Screen(width=80, colours="256")
    drawn = draw_files(screen, Listing("notes", "", (stored("daily/50% off.md"),)), tmp_path, link, NOW)
    assert f"{tmp_path.as_uri()}/daily/50%25%20off.md\x07\x1b[2mdaily/\x1b[0m50% off.md\x1b]8;;\x07\n" in drawn
    assert without_sequences(drawn).splitlines() == [
        "notes/  1 file, 1.2 KB",
        "",
        "  Size  Changed       File",
        "1.2 KB  Mar  1 10:00  daily/50% off.md",
    ]


def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    odd = collection(tmp_path, "[bold]x[/]", pattern="[red]/", update_command="[link=http://x]y[/link]")
    drawn = draw_collection(NARROW, odd, [], NOW)
    assert "[bold]x[/]" in drawn and "[red]/" in drawn and "[link=http://x]y[/link]" in drawn


def test_a_collection_tells_its_notes_and_what_is_indexed(tmp_path: Path) -> None:
    noted = collection(tmp_path, context={"/": "mine", "work/": "plans\nand lists"})
    lines = draw_collection(NARROW, noted, [counted(noted)], NOW).splitlines()
    assert [line.split() for line in lines[4:]] == [
        ["Contexts", "/", "mine"],
        ["work/", "plans", "and", "lists"],
        ["Indexed", "12", "files,", "updated", "2h", "ago"],
    ]


def test_a_line_feed_in_a_name_breaks_no_row_of_a_listing() -> None:
    drawn = draw_files(NARROW, Listing("notes", "", (stored("a/new\nline\there.md"),)), None, link, NOW)
    assert drawn.endswith(r"a/new line here.md" + "\n")
