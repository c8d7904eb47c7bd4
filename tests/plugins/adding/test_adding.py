"""`qmd add`: saved notes, and refused texts and targets."""

import errno
import io
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qmd.app.opening import open_index
from qmd.errors import QmdError
from qmd.external_files import append, open_below
from qmd.plugins.adding.notes import MAX_BYTES, NewNote, add_note
from qmd.store.opening import open_writer
from tests.parsing import parse_document
from tests.program import Qmd

needs_links = pytest.mark.skipif(sys.platform == "win32", reason="links and pipes need rights there")
FACT = "The boiler is serviced every May by Mr Fix, who comes at nine."

TITLES = {
    "Größe 検索 हिन्दी": "größe-検索-हिन्दी",
    "con": "note-con",
    "LPT1": "note-lpt1",
    "AGENTS": "note-agents",
    "Copilot instructions": "note-copilot-instructions",
    "TOOLS": "tools",
    "../../.ssh/authorized_keys": "ssh-authorized-keys",
    "\x1b[31m\u202e.hidden": "31m-hidden",
    "…!?": "a-first-line",
    "ä" * 300: "ä" * 50,
    "pricing": "pricing-2",
}
PLACES = (
    "notes/../out.md notes/a/../../out notes//etc/../.. /tmp/out.md qmd://elsewhere/x.md notes/.git/hooks/x.md"
    " notes/node_modules notes/a\x07b.md notes/aux.md notes/CLAUDE.md notes/left-out/x.md"
    " notes/linked notes/linked/x.md notes/link.md notes/inner.md notes/twice.md notes/pipe.md notes/pricing.md/x.md"
    f" notes/{'d/' * 9} notes/{'n' * 300}.md"
)
"""Refused targets: outside the folder, unnamed, excluded, with instructions, behind links, or not plain files."""

OBEYED = """AGENTS.md agents.md Agents.override.md AGENTS.txt AGENTS.md. agents..md AGENTS.Markdown AGENT.md
    agent.local.md claude.local.md Gemini.md skill.md QWEN.md warp.md Crush.local.md OPENCODE.md IFLOW.md CODEBUDDY.md
    ſ\u212aill.md SKIL\u200cL.md copilot-instructions.md Copilot-Instructions.local.md
    py.instructions.md a.INSTRUCTIONS.md CLAUDE~1.MD .github/x.md .cursor/rules/x.md .clinerules/x.md .AGENTS.md"""
OBEYED_CAPITALS = "MEMORY SOUL TOOLS USER IDENTITY HEARTBEAT BOOTSTRAP CONVENTIONS"


@pytest.fixture(autouse=True)
def without_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_EMBED_MODEL", "none")


def files_of(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in found}


def test_a_text_becomes_a_note_that_the_next_search_finds(indexed: Qmd, notes: Path) -> None:
    run = indexed(
        "add", FACT, "--title", 'Boiler: "when"? C:\\x', "--tags", "home, Heat/Gas", "--source", "me", "--json"
    )
    assert (run.status, run.json["file"]) == (0, "qmd://notes/boiler-when-c-x.md")
    found = parse_document("x.md", (notes / "boiler-when-c-x.md").read_bytes())
    assert found.title == 'Boiler: "when"? C:\\x'
    assert found.metadata["tags"] == ("home", "heat/gas")
    assert found.metadata["source"] == "me"
    assert str(found.metadata["created"])[:2] == "20"
    assert found.text[found.body_offset :].strip() == FACT
    assert indexed("search", "serviced by Mr Fix", "--json").json[0]["docid"] == run.json["docid"]


def test_a_text_never_becomes_front_matter(indexed: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"---\r\ntags: [urgent]\r\n---\r\nA text from a pipe\r\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text), isatty=lambda: False))
    assert indexed("add", "-", "--title", "one\u2028---\n---").status == 0
    found = parse_document("x.md", (notes / "one.md").read_bytes())
    assert (found.title, "tags" in found.metadata) == ("one --- ---", False)


@pytest.mark.parametrize(("title", "name"), TITLES.items())
def test_titles_make_names_that_every_system_takes(indexed: Qmd, notes: Path, title: str, name: str) -> None:
    assert indexed("add", "# A first line\n\nand more", "--title", title).status == 0
    assert (notes / f"{name}.md").exists()


@needs_links
@pytest.mark.parametrize("place", PLACES.split())
def test_nothing_is_written_where_no_note_can_be(indexed: Qmd, notes: Path, tmp_path: Path, place: str) -> None:
    (notes / ".gitignore").write_text("left-out/\n", "utf-8")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "there.md").write_text("theirs", "utf-8")
    (notes / "linked").symlink_to(outside)
    (notes / "link.md").symlink_to(outside / "there.md")
    (notes / "inner.md").symlink_to(notes / "pricing.md")
    os.link(outside / "there.md", notes / "twice.md")
    os.mkfifo(notes / "pipe.md")
    before = files_of(tmp_path / "home"), files_of(outside)
    run = indexed("add", FACT, "--to", place)
    assert (run.status in (1, 2, 3), run.out) == (True, "")
    assert run.err.startswith("error: ")
    assert (files_of(tmp_path / "home"), files_of(outside)) == before


@pytest.mark.parametrize("folder", ["", "in/", "skills/x/"])
def test_names_that_agents_obey_are_refused(indexed: Qmd, notes: Path, folder: str) -> None:
    obeyed = OBEYED.split() + [f"{name}.md" for name in OBEYED_CAPITALS.split()]
    with open_index() as index:
        for name in obeyed:
            with pytest.raises(QmdError, match=r"programs follow instructions|path below|names that begin with a dot"):
                add_note(index, NewNote(FACT, to=f"notes/{folder}{name}", force=True), index.collections())
        assert len(files_of(notes)) == 3
        for name in (*map(str.lower, OBEYED_CAPITALS.split()), "agents-meeting", "Users", "instructions"):
            add_note(index, NewNote(FACT, to=f"notes/{folder}{name}.md", force=True), index.collections())


def test_a_file_that_the_mask_names_is_the_users_choice(indexed: Qmd, notes: Path) -> None:
    index_file = notes.parents[1] / "config" / "qmd" / "index.yml"
    entries = "".join(
        f"  {name}:\n    path: {notes}\n    pattern: 'log.md, {name}.md'\n    agents_may_write: true\n"
        for name in ("MEMORY", "CLAUDE")
    )
    index_file.write_text(f"collections:\n{entries}", "utf-8")
    assert indexed("add", FACT, "--to", "MEMORY/MEMORY.md").out.split()[1] == "qmd://MEMORY/MEMORY.md"
    assert "programs follow instructions" in indexed("add", FACT, "--to", "CLAUDE/CLAUDE.md").err


def test_a_folder_whose_name_has_no_letters_does_not_ignore_case(indexed: Qmd, notes: Path) -> None:
    folder = notes / "2026"
    folder.mkdir()
    indexed("collection", "add", str(folder), "--name", "year")
    assert indexed("add", FACT, "--to", "year/tools.md").out.split()[1] == "qmd://year/tools.md"


@needs_links
def test_where_the_file_system_ignores_case_small_letters_open_the_same_file(indexed: Qmd, notes: Path) -> None:
    notes.with_name(notes.name.swapcase()).symlink_to(notes)  # as such a file system answers
    run = indexed("add", FACT, "--to", "notes/tools.md")
    assert (run.status, "programs follow instructions in 'tools.md'" in run.err) == (2, True)
    assert indexed("add", FACT, "--title", "Tools").out.split()[1] == "qmd://notes/note-tools.md"


def test_empty_and_large_texts_are_refused(indexed: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (" ", "a\0b", "\ud800", "x" * MAX_BYTES):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode(errors="surrogatepass"))))
        assert indexed("add", "-").status == 2
    assert len(files_of(notes)) == 3
    (notes / "log.md").write_text("y" * (MAX_BYTES - 50), "utf-8")
    assert indexed("add", FACT, "--to", "notes/log.md").status == 2
    assert (notes / "log.md").stat().st_size == MAX_BYTES - 50


@needs_links
def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(indexed: Qmd, notes: Path, tmp_path: Path) -> None:
    outside, inner = tmp_path / "outside", notes / "inner"
    outside.mkdir()
    is_over = threading.Event()

    def swap() -> None:
        for number in count():
            for step in (
                lambda: inner.mkdir(exist_ok=True),
                lambda: inner.rename(notes / f"was-{number}"),  # noqa: B023 - called at once
                lambda: inner.symlink_to(outside),
                inner.unlink,
            ):
                with suppress(OSError):
                    step()
            if is_over.is_set():
                return

    swapping = threading.Thread(target=swap)
    swapping.start()
    with open_index() as index:
        for number in range(60):
            for place in ("notes/inner", "notes/inner/log.md"):
                with suppress(QmdError):
                    add_note(index, NewNote(f"{number}", to=place, force=True), index.collections())
    is_over.set()
    swapping.join()
    assert files_of(outside) == {}


def test_the_last_of_many_notes_with_one_title_is_as_quick_as_the_first(notes: Path, indexed: Qmd) -> None:
    for number in ("", *range(2, 9)):
        (notes / f"idea{number and '-'}{number}.md").write_text("x", "utf-8")
    tried: list[str] = []

    def note_name(name: str, *args: Any, at: Any = os.open, **more: Any) -> Any:
        tried.append(str(name))
        return at(name, *args, **more)

    with open_index() as index, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", note_name)
        names = {add_note(index, NewNote(f"{n}", "Idea", force=True), index.collections()).file for n in range(3)}
    assert len(names) == 3
    assert sum(name.startswith("idea") for name in tried) < 50


def test_what_is_added_side_by_side_is_all_there(indexed: Qmd, notes: Path) -> None:
    def add(number: int) -> str:
        with open_index() as index:
            note = NewNote(f"entry {number} " + f"word{number} " * 2000, "Same", daily=number % 2 == 0, force=True)
            return add_note(index, note, index.collections()).file

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(add, range(12)))) == 7
    text = "".join(files_of(notes).values())
    assert all(f"entry {number} " + f"word{number} " * 1999 + f"word{number}\n" in text for number in range(12))
    assert indexed("search", "word11").out.count("qmd://") == 1


def test_a_note_is_kept_while_another_has_the_index(indexed: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_SQLITE_BUSY_TIMEOUT", "1")
    with open_index() as index, open_writer(index.path) as writer, writer.transaction():
        run = indexed("add", FACT, "--title", "kept")
    assert (run.status, run.out) == (0, "added qmd://notes/kept.md\n")
    assert "warning: the note is not indexed yet: " in run.err
    assert "kept.md" in indexed("search", "serviced by Mr Fix").out


def test_daily_notes_and_named_ones_grow_at_their_end(indexed: Qmd, notes: Path) -> None:
    first = indexed("add", "Called the plumber", "--daily", "--to", "notes/daily")
    second = indexed("add", "He comes on Friday", "--daily", "--to", "notes/daily", "--title", "Plumber", "--tags", "a")
    assert (first.out.split()[0], second.out.split()[0]) == ("added", "appended")
    daily = next(text for path, text in files_of(notes).items() if path.startswith("daily/20"))
    assert re.search(r"---\n\n## \d\d:\d\d\n\nCalled .*\n\n## \d\d:\d\d Plumber\n\nHe comes on Friday\n\n#a\n\Z", daily)
    (notes / "we ird" / "c & d.md").write_text("# Pricing\n\nNo line break at its end", "utf-8")
    assert indexed("add", FACT, "--to", "qmd://notes/we%20ird/c%20%26%20d.md", "--source", "me").status == 0
    grown = (notes / "we ird" / "c & d.md").read_text("utf-8")
    assert re.fullmatch(r"# Pricing\n\nNo line break at its end\n\n## 20\S+ \d\d:\d\d \(me\)\n\n.*\n", grown)
    assert "c & d.md" in indexed("search", "serviced by Mr Fix").out


def test_what_an_editor_saves_meanwhile_is_kept_and_so_is_the_entry(notes: Path, indexed: Qmd) -> None:
    log, saved = notes / "log.md", list[int]()
    log.write_text("# Log\n", "utf-8")

    def save_once(*args: object, at: Any = os.lstat, **more: Any) -> os.stat_result:
        if args[0] == log and not saved:
            saved.append(log.with_name("log.new").write_text("# Log\n\nfrom the editor\n", "utf-8"))
            log.with_name("log.new").replace(log)
        result: os.stat_result = at(*args, **more)
        return result

    with open_index() as index, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "lstat", save_once)
        add_note(index, NewNote(FACT, to="notes/log.md"), index.collections())
    assert "from the editor" in log.read_text("utf-8")
    assert log.read_text("utf-8").count(FACT) == 1


@needs_links
def test_a_full_disk_leaves_a_note_as_it_was_and_makes_no_new_one(notes: Path, indexed: Qmd) -> None:
    import resource

    log = notes / "log.md"
    log.write_text("# Log\n" + "filled with some words\n" * 6_000, "utf-8")
    before, text = log.read_bytes(), "another entry, which is long\n" * 3_000
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50_000, limits[1]))
    try:
        runs = [indexed("add", text, "--to", "notes/log.md"), indexed("add", text * 2 + "x" * 80_000)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for run in runs:
        assert run.status == 1
        assert "File too large" in run.err and "hint: nothing was written" in run.err
    assert log.read_bytes() == before
    assert len(files_of(notes)) == 4


@needs_links
def test_what_another_program_appends_to_a_full_disk_is_not_cut_off(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = notes / "log.md"
    log.write_bytes(b"# Log\n")

    def sync(handle: int) -> None:
        with log.open("ab") as other:
            other.write(b"theirs\n")
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(OSError, match="full"), open_below(notes, "log.md", is_new=False) as handle:
        append(handle, b"ours\n")
    assert log.read_bytes() == b"# Log\nours\ntheirs\n"


@needs_links
@pytest.mark.parametrize("nameless", [True, False])
def test_a_new_note_has_no_name_before_it_is_whole(
    notes: Path, nameless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not nameless:
        monkeypatch.setattr(sys, "platform", "other")
    with pytest.raises(KeyboardInterrupt), open_below(notes, "new.md", is_new=True) as handle:
        append(handle, b"half")
        assert (notes / "new.md").exists() != nameless or sys.platform != "linux"
        raise KeyboardInterrupt
    assert not (notes / "new.md").exists()


def test_what_a_note_says_already_is_named_and_not_written(indexed: Qmd, notes: Path) -> None:
    said = "We chose per-seat  PRICING after the interviews. Why? Bills, simply!"
    again = indexed("add", said)
    assert again.status == 1
    assert again.err.startswith("error: 'qmd://notes/pricing.md' has nearly the same text")
    assert len(files_of(notes)) == 3
    assert indexed("add", said, "--force").status == 0
    assert indexed("add", "We chose a price for each kitchen, and asked nobody before we did.").status == 0
    assert indexed("add", "Take the pills", "--daily").status == 0
    assert indexed("add", "take the pills!", "--daily").status == 1


def test_without_a_place_the_one_collection_that_agents_may_write_is_meant(indexed: Qmd, notes: Path) -> None:
    other = notes.parent / "other"
    other.mkdir()
    (other / "o.md").write_text("# O", "utf-8")
    assert indexed("index", str(other), "--no-embed").status == 0
    run = indexed("add", FACT)
    assert (run.status, "notes, other" in run.err) == (2, True)
    config = notes.parents[1] / "config" / "qmd" / "index.yml"
    head, mark, rest = config.read_text("utf-8").partition("  other:\n")
    config.write_text(f"{head}{mark}    agents_may_write: true\n{rest}", "utf-8")
    assert "qmd://other/" in indexed("add", FACT).out


@needs_links
@pytest.mark.parametrize("can_hold", [True, False])
def test_links_are_not_followed_even_where_folders_cannot_be_held_open(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_hold: bool
) -> None:
    if not can_hold:
        monkeypatch.setattr(os, "supports_dir_fd", set())
    with open_below(notes, "new/folder/x.md", is_new=True) as handle:
        append(handle, b"x")
    assert (notes / "new" / "folder" / "x.md").read_text("utf-8") == "x"
    (notes / "linked").symlink_to(tmp_path)
    (notes / "link.md").symlink_to(notes / "pricing.md")
    for path, is_new in (("linked/x.md", True), ("linked/in/x.md", True), ("link.md", False), ("link.md", True)):
        with pytest.raises(OSError), open_below(notes, path, is_new=is_new):
            pass
    assert not (tmp_path / "x.md").exists()
