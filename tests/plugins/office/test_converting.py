"""PDF, Word, slides and sheets: their text, the places in them, and files made to break a reader."""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from qmd.indexing.read_ahead import read_ahead
from qmd.indexing.reading import FileReading, read_files
from qmd.ingest.scan import scan_collection
from qmd.installation import install_command
from qmd.plugins import KINDS
from qmd.records import Collection
from qmd.store.records import unpack_text
from tests.parsing import parse_document
from tests.plugins.office.samples import PROTECTED_PDF, docx, packed, pdf, pptx, xlsx
from tests.processes import wait_until
from tests.program import Qmd, foreign_rows, write_notes

BOOK: list[list[object]] = [
    ["Day", "Bread", "Price"],
    *([datetime(2026, 1, 1), f"loaf {n}", n / 2] for n in range(2, 91)),
]
ALL = "**/*.{pdf,docx,pptx,xlsx,ipynb,md}"


def test_a_pdf_is_the_lines_of_its_pages_below_their_numbers() -> None:
    document = parse_document("x/scan-12.pdf", pdf(["Rye [[1]] rises\n# no tag", " ", "<b>Oats</b>"], "Baker's year"))
    assert document.text == (
        '---\ntitle: "Baker\'s year"\n---\n\n### p1\n\nRye \\[\\[1]] rises\n\\# no tag\n\n### p3\n\n\\<b>Oats\\</b>\n'
    )
    assert (document.title, dict(document.metadata), document.links) == ("Baker's year", {"title": "Baker's year"}, ())


@pytest.mark.parametrize("title", ["", "Microsoft Word - draft.doc", "untitled", "scan.pdf"])
def test_a_title_that_a_program_entered_is_none(title: str) -> None:
    assert parse_document("Bread prices.pdf", pdf(["Rye"], title)).title == "Bread prices"


def test_a_pdf_of_pictures_is_reported() -> None:
    document = parse_document("scan.pdf", pdf([" ", " "]))
    assert (document.text, document.warnings) == ("", ("there is no text in it: its pages are pictures",))


def test_a_text_of_word_has_its_headings_and_no_marks_of_markdown() -> None:
    document = parse_document("a.docx", docx("h1:Oven guide\nHeat [[it]] up\nh1:Care\nLet it &lt;cool&gt;"))
    assert document.text == "# Oven guide\n\nHeat \\[\\[it]] up\n\n# Care\n\nLet it \\<cool>\n"
    assert (document.title, document.links) == ("Oven guide", ())


def test_slides_are_their_texts_tables_and_notes() -> None:
    document = parse_document("deck.pptx", pptx())
    assert document.text == (
        '---\ntitle: "Rye & &lt;oats>"\n---\n\n### slide1\n\n#### Rye & &lt;oats>\n\nFlour \\*rises\\*\n'
        "\\# no heading\n\n> Say it slowly\n\n### slide2\n\n| Bread | Heat |\n| --- | --- |\n| Rye\\|dark | 230 |\n\n"
        "Within a group\n"
    )
    assert document.title == "Rye & <oats>"


def test_a_sheet_is_read_in_parts_under_its_first_row() -> None:
    text = parse_document("book.xlsx", xlsx(BOOK)).text
    headings = [line for line in text.split("\n") if line.startswith("#")]
    assert headings == ["### Sales!A1:C40", "### Sales!A41:C80", "### Sales!A81:C90"]
    assert text.count("| Day | Bread | Price |\n| --- | --- | --- |\n") == 3
    assert "| 2026-01-01 | loaf 41 | 20.5 |\n" in text and "| loaf 42 | 21 |\n" in text
    assert "unseen" not in text


@pytest.fixture
def shelf(qmd: Qmd, home: Path) -> Qmd:
    """Make a collection with a file of each kind."""
    folder = home / "shelf"
    folder.mkdir()
    (folder / "report.pdf").write_bytes(pdf([f"Page about {word}" for word in ("rye", "oats", "wheat")]))
    (folder / "deck.pptx").write_bytes(pptx())
    (folder / "book.xlsx").write_bytes(xlsx(BOOK, "My sales"))
    cells = '{"cell_type": "markdown", "source": "# Yeast"}, {"cell_type": "code", "source": "rise()"}'
    (folder / "study.ipynb").write_text(f'{{"cells": [{cells}, {cells}]}}')
    (folder / "plain.md").write_text("# Plain\n\nRye\n")
    done = qmd("index", str(folder), "--glob", ALL, "--no-embed")
    assert (done.status, done.err) == (0, "")
    return qmd


PLACES = [
    ("report.pdf:p2", 5, "### p2\n\nPage about oats"),
    ("shelf/report.pdf:page 3", 9, "### p3\n\nPage about wheat"),
    ("report.pdf#page=2", 5, "### p2\n\nPage about oats"),
    ("report:P2", 5, "### p2\n\nPage about oats"),
    ("deck.pptx:slide2", 14, "### slide2\n\n| Bread"),
    ("qmd://shelf/deck.pptx:Slide 1", 5, "### slide1\n\n#### Rye"),
    ("book.xlsx:My sales!A41:C80", 45, "### My sales!A41:C80"),
    ("book.xlsx:'My sales'!$B$90", 90, "### My sales!A81:C90"),
    ("study.ipynb:cell4", 15, "###### cell4\n\n```python\nrise()"),
]
NO_PLACES = ("plain.md:p1", "report.pdf:slide1", "deck.pptx:p1", "book.xlsx:p2", "p2", ":p2")
NOT_THERE = ("report.pdf:p9", "report.pdf#p" + "1" * 6_000, "book.xlsx:Other!A1", "book.xlsx#!")


def test_an_address_leads_to_a_place_in_files_that_have_such(shelf: Qmd) -> None:
    for place, first, says in PLACES:
        lines = enumerate(says.split("\n"), first)
        assert "---\n\n" + "\n".join(f"{number}: {line}" for number, line in lines) in shelf("get", place).out
    for place in NO_PLACES:
        assert f"not found: {place}" in shelf("get", place).err
    for place in NOT_THERE:
        run = shelf("get", place)
        assert run.status != 0 and "has no heading" in run.err and "its headings: '" in run.err


def test_the_name_of_a_file_is_no_place_in_another(shelf: Qmd, home: Path) -> None:
    (home / "shelf/report.pdf:p2").with_suffix(".pdf:p2.md").write_text("# Colon\n")
    shelf("update")
    assert "# Colon" in shelf("get", "report.pdf:p2").out


def test_subtitles_are_found_by_their_times(qmd: Qmd, home: Path) -> None:
    said = (("00:00:01", "Rye."), ("00:12:30", "Oats."), ("01:00:00", "End."))
    cues = (f"{number}\n{at},000 --> {at},900\n{words}\n\n" for number, (at, words) in enumerate(said, 1))
    write_notes(home / "talks", {"talk.srt": "".join(cues)})
    qmd("index", "talks", "--glob", "*.srt", "--no-embed")
    assert qmd("get", "talk.srt:00:12:40").out.endswith(": [00:12:30] Oats.\n")
    assert qmd("get", "talk.srt:2:00:00").out.endswith(": [01:00:00] End.\n")
    assert "has no heading '00:00:00'" in qmd("get", "talk.srt:00:00:00").err


def test_hits_name_their_place_and_open_at_it(shelf: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Section: p3\n" in shelf("search", "wheat").out
    monkeypatch.setenv("EDITOR", "vim")
    monkeypatch.setenv("PATH", str(tmp_path))
    file = shlex.quote(str((Path.cwd() / "shelf/report.pdf").resolve()))
    assert shelf("open", "report.pdf:p3", "--print").out.split()[-1] == file
    viewer = tmp_path / "zathura"
    viewer.write_text("#!/bin/sh\n")
    viewer.chmod(0o755)
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert shelf("open", "report.pdf:p3", "--print").out == f"zathura --page=3 {file}\n"
        assert shelf("open", "report.pdf:10", "--print").out == f"zathura --page=3 {file}\n"


def test_without_the_extra_files_wait_and_texts_stay(shelf: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(KINDS, ".pdf", KINDS[".pdf"]._replace(needs="not_installed"))
        for name in ("new.pdf", "other.pdf", "report.pdf"):
            (home / "shelf" / name).write_bytes(pdf(["Page about barley"]))
        said = f"shelf: skipped 3 files (3 pdf); to read .pdf: {install_command('files')}\n"
        assert shelf("update").err == said
        assert "Page about rye" in shelf("get", "report.pdf").out
        (home / "b").mkdir()
        (home / "b/a.md").write_text("a")
        (home / "b/x.PDF").write_bytes(b"x")
        remedy = f"to read .pdf: {install_command('files')}"
        assert shelf("index", "b", "--no-embed").err == f"b: skipped 1 file (1 pdf); {remedy}\n"
        assert shelf("update").err == "", "it is said once"
        assert f"Not taken: 4 .pdf; {remedy}\n" in shelf("status").out
    assert "2 new, 1 updated" in shelf("update").out


LAUGHS = "<!DOCTYPE l [<!ENTITY a 'ha'>" + "".join(
    f"<!ENTITY a{n} '{f'&a{n - 1 or str()};' * 10}'>" for n in range(1, 12)
)
SHEET = (
    '<?xml version="1.0"?>{}<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    '<row r="{row}"><c r="A{row}" t="str"><v>{}</v></c><c r="XFD{row}"><v>8</v></c></row></sheetData></worksheet>'
)
GOOD = pdf(["Page about rye"] * 3)

BAD = {
    "bomb.docx": packed({"a": bytes(77_777)}).replace((77_777).to_bytes(4, "little"), (1 << 30).to_bytes(4, "little")),
    "laughs.docx": docx("&a11;", LAUGHS + "]>"),
    "laughs.xlsx": packed({"xl/worksheets/sheet1.xml": SHEET.format(LAUGHS + "]>", "&a11;", row=1)}, xlsx([[1]])),
    "words.docx": packed({"word/document.xml": b"\xff\xfe<w"}, docx("x")),
    "cut.pdf": GOOD[: len(GOOD) // 2],
    "locked.pdf": PROTECTED_PDF,
    "locked.docx": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
    "page.pdf": b"<!DOCTYPE html><title>x</title>",
    "picture.pptx": b"\x89PNG\r\n\x1a\n" + bytes(99),
    "letter.xlsx": docx("A letter"),
    **{f"empty.{ending}": b"" for ending in ("pdf", "docx", "pptx", "xlsx")},
}
ODD = {
    "circle.pdf": pdf(["Page about rye"] * 3, kids="3 0 R 8 0 R 5 0 R"),
    "count.pdf": GOOD.replace(b"/Count 3", b"/Count 2000000000"),
    "no-table.pdf": pdf(["Page about rye"], with_table=False),
    "far.xlsx": packed({"xl/worksheets/sheet1.xml": SHEET.format("", "7", row=1_048_576)}, xlsx([["x"]])),
}


def read_apart(folder: Path, budget_s: float = 60) -> dict[str, FileReading]:
    entries = scan_collection(Collection("x", folder, "*")).files
    batches = read_ahead(entries, budget_s=lambda _: budget_s)
    return {reading.entry.path: reading for batch in batches for reading in batch}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FileReading]:
    """Return the text of the files above, and of a good one after them."""
    folder = tmp_path_factory.mktemp("files")
    for name, raw in {**BAD, **ODD, "z.pdf": GOOD}.items():
        (folder / name).write_bytes(raw)
    return read_apart(folder)


def test_a_bad_file_is_one_warning_and_the_others_are_read(converted: dict[str, FileReading]) -> None:
    assert sorted(name for name, one in converted.items() if one.document is None) == sorted(BAD)
    for name in BAD:
        (warning,) = converted[name].warnings
        assert repr(name) in warning and "\n" not in warning and len(warning) < 250
    assert converted["locked.pdf"].warnings == ("'locked.pdf' cannot be read: it is protected by a password",)
    assert "password" in converted["locked.docx"].warnings[0] and "unpacks to" in converted["bomb.docx"].warnings[0]


def test_a_file_that_means_more_than_it_holds_is_read_as_far_as_it_goes(converted: dict[str, FileReading]) -> None:
    for name, n_pages in (("circle.pdf", 2), ("count.pdf", 3), ("no-table.pdf", 1), ("z.pdf", 3)):
        document = converted[name].document
        assert document is not None and document.n_chars == n_pages * len("### p1\n\nPage about rye\n\n") - 1
    assert converted["far.xlsx"].document is not None


def test_a_file_takes_in_no_other_file() -> None:
    doctype = f'<!DOCTYPE l [<!ENTITY other SYSTEM "{Path(__file__).as_uri()}">]>'
    assert parse_document("a.docx", docx("v &other; w", doctype)).text == "v w\n"
    slide = ZipFile(BytesIO(pptx())).read("ppt/slides/slide1.xml").decode()
    slide = slide.replace("?>", f"?>{doctype}", 1).replace("Flour", "&other;")
    assert "import" not in parse_document("a.pptx", packed({"ppt/slides/slide1.xml": slide}, pptx())).text


@pytest.mark.slow
def test_a_million_cells_are_read_as_far_as_an_index_keeps_them() -> None:
    made = parse_document("book.xlsx", xlsx([[f"cell {n}"] * 20 for n in range(50_000)]))
    assert len(made.text) == 4_000_001 and made.warnings == ("only the first 4,000,000 characters are taken",)


STRANGE = """
import os, socket, subprocess, sys, time
from qmd.plugins import Kind
KINDS = {".strange": Kind("qmd.ingest.outline:outline_text", "strange:decode", needs="json")}

def decode(path, raw):
    if path[0] == "e":
        bytes(1 << 30)
    if path[0] == "n":
        socket.create_connection(("127.0.0.1", int(raw)), 5)
    if path[0] == "h":
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(raw, "w") as file:
            file.write(str(started.pid))
        time.sleep(600)
    if path[0] == "p":
        os.write(2, b"Traceback\\n" * 100_000 + raw)
        path[1] == "d" and os.abort()
    return f"text {os.getpid()}", ()
"""
"""A reader that eats memory, asks a network, starts a program, hangs or prints, by the first letter of its file."""


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "notes").mkdir()
    with foreign_rows(tmp_path / "site", "strange", STRANGE, monkeypatch):
        yield tmp_path / "notes"


def text_of(reading: FileReading) -> str:
    assert reading.document is not None
    return unpack_text(reading.document.doc)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_reader_that_hangs_is_ended_with_what_it_started(strange: Path, tmp_path: Path) -> None:
    (strange / "hang.strange").write_text(str(tmp_path / "pid"))
    (strange / "other.strange").write_text("x")
    read = read_apart(strange, 3)
    assert read["hang.strange"].warnings == ("'hang.strange' took longer than 3 s to read",)
    assert read["other.strange"].document is not None
    started = Path("/proc", (tmp_path / "pid").read_text(), "cmdline")
    wait_until(lambda: not started.exists() or not started.read_bytes())


@pytest.mark.skipif(sys.platform != "linux", reason="no bound of memory")
def test_a_reader_that_eats_memory_fails_alone_and_one_process_reads_the_rest(strange: Path) -> None:
    for name in ("eat", "a", "b", "z"):
        (strange / f"{name}.strange").write_text("x")
    read = read_apart(strange)
    assert read["eat.strange"].warnings == ("'eat.strange' needs more memory than one file may use",)
    texts = {text_of(read[f"{name}.strange"]) for name in ("a", "b", "z")}
    assert len(texts) == 1 and texts != {f"text {os.getpid()}"}


def test_of_all_that_a_reader_prints_one_line_is_shown_where_it_crashed(
    strange: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, last in {"pdies": "\x1b[31mbad\u2028pointer\n \n", "plives": "x", "pdlong": "y" * 99999}.items():
        (strange / f"{name}.strange").write_text(last, "utf-8")
    read = read_apart(strange)
    crashed = "crashed the process that read it"
    assert read["pdies.strange"].warnings == (f"'pdies.strange' {crashed}: \\x1b[31mbad pointer",)
    assert read["pdlong.strange"].warnings == (f"'pdlong.strange' {crashed}: {'y' * 79}…",)
    assert read["plives.strange"].document is not None
    assert capfd.readouterr() == ("", "")


def test_a_reader_reaches_no_network_where_the_system_can_forbid_it(strange: Path) -> None:
    try_it = "import ctypes, sys; f = ctypes.CDLL(None).unshare; sys.exit(f(0x40000000) and f(0x50000000) and 1)"
    if sys.platform != "linux" or subprocess.run([sys.executable, "-c", try_it], check=False).returncode:
        pytest.skip("this system does not let programs leave the network")
    with socket.create_server(("127.0.0.1", 0)) as server:
        (strange / "net.strange").write_text(str(server.getsockname()[1]))
        (warning,) = read_apart(strange)["net.strange"].warnings
    assert "Network is unreachable" in warning


def test_where_no_process_starts_the_file_is_left_for_later(strange: Path) -> None:
    (strange / "a.strange").write_text("x")
    (reading,) = read_files(scan_collection(Collection("x", strange, "*")).files)
    assert reading.failure == "unreadable"
