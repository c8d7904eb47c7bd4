"""Folders with skipped files: the reason, and the option that includes them."""

import shlex
import sys
from pathlib import Path

import pytest

from qmd.masks import DEFAULT_PATTERN
from qmd.store.records import OtherFiles
from tests.program import Qmd


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text\n", encoding="utf-8")
    folder.mkdir(exist_ok=True)
    return folder


def names(qmd: Qmd) -> list[str]:
    return [row["name"] for row in qmd("collection", "list", "--json").json]


@pytest.mark.parametrize(
    ("files", "there", "hint"),
    [
        ("a.csv b.csv c.doc", "there are 2 .csv, 1 .doc", "qmd index {} --all"),
        ("a.png b.JSON c/README", "there are 1 .png, 1 .JSON, 1 other", "qmd index {} --all"),
        ("a.doc", "there is 1 .doc", "convert them to markdown or plain text"),
        ("README", "there is 1 other", "qmd index {} --all"),
        ("", "the folder is empty", "to add it all the same: qmd collection add {}"),
    ],
)  # fmt: skip
def test_index_of_a_folder_without_notes_says_what_is_there(
    qmd: Qmd, home: Path, files: str, there: str, hint: str
) -> None:
    folder = fill(home / "x", *files.split())
    run = qmd("index", "x")
    assert (run.status, run.out) == (3, "")
    reason = f"error: no file in '{folder}' to index; {there}\n"
    assert run.err == f"{reason}hint: {hint.format(shlex.quote(str(folder)))}\n"
    assert names(qmd) == []


def test_the_command_of_the_hint_works(qmd: Qmd, home: Path) -> None:
    fill(home / "x", "a.csv", "b.json")
    assert qmd("index", "x", "--all", "--no-embed").out == "✓ x  2 notes (1 csv, 1 json)  ~/x  **/*\n"
    assert (qmd("index", "--all").status, qmd("index", "x", "--all", "--glob", "*.csv").status) == (2, 2)


def test_index_of_a_folder_whose_notes_are_ignored_says_so(qmd: Qmd, home: Path) -> None:
    folder = fill(home / "x", "MEMORY.md", "out/a.md", "out/b.txt", "out/node_modules/c.md")
    (folder / ".gitignore").write_text("MEMORY.md\nout/\n")
    run = qmd("index", "x")
    assert run.status == 3
    assert run.err == (
        f"error: no file in '{folder}' to index: skipped 3 because of .gitignore (MEMORY.md, out/a.md, out/b.txt)\n"
        f"hint: qmd index {shlex.quote(str(folder))} --no-ignore\n"
    )
    assert "✓ x  3 notes" in qmd("index", "x", "--no-ignore", "--no-embed").out


def test_index_of_a_folder_whose_notes_qmdignore_leaves_out_names_the_rule(qmd: Qmd, home: Path) -> None:
    folder = fill(home / "x", "a.md")
    (folder / ".qmdignore").write_text("*.md\n")
    assert "an ignore rule excludes all files (a.md)\nhint: see .qmdignore" in qmd("index", "x").err


def test_a_new_collection_that_holds_nothing_is_added_with_a_warning(qmd: Qmd, home: Path) -> None:
    folder = fill(home / "x", "a.txt")
    run = qmd("collection", "add", "x")
    assert run.status == 0
    assert "No files found matching pattern.\n" in run.out
    command = f"qmd index {shlex.quote(str(folder))} --all"
    warning = f"warning: no file in '{folder}' to index; there is 1 .txt\nhint: {command}\n"
    assert run.err == warning
    for argv in (("update",), ("index", "--no-embed")):
        run = qmd(*argv)
        assert (run.status, run.err) == (0, warning)


def test_a_folder_of_a_collection_that_holds_nothing_says_what_is_there(indexed: Qmd, notes: Path) -> None:
    folder = fill(notes / "lists", "a.csv")
    run = indexed("index", str(folder), "--no-embed")
    assert (run.status, run.err) == (
        0,
        f"warning: no file in '{folder}' to index; there is 1 .csv\nhint: qmd index {shlex.quote(str(folder))} --all\n",
    )


def test_ignored_notes_are_counted_and_named_beside_the_others(qmd: Qmd, notes: Path) -> None:
    fill(notes, "a.md", "b.md", "out/c.md", "out/d.md", "x.txt")
    (notes / ".gitignore").write_text("a.md\nb.md\nx.txt\nout/\n")
    run = qmd("index", "notes", "--no-embed")
    assert (run.status, run.err) == (
        0,
        "notes: skipped 5 because of .gitignore (a.md, b.md, x.txt, …); to include them: --no-ignore\n",
    )
    assert qmd("index", "--no-embed").err == "", "a refresh of everything need not say it again"
    assert qmd("update").err == ""
    assert "skipped 4" in qmd("collection", "add", "notes", "--name", "again", "--mask", "**/*.{md,x}").err


VAULT = "a.md B.MD c.Rmd d.markdown sub/e.qmd f.mdx g.mkd h.mdown"
OTHERS = "1.png sub/2.PNG x.txt y.adoc z.xlsx w.doc m.mp3 code.py data.json .hidden.png .trash/3.png"


def test_a_new_collection_takes_markdown_by_all_its_names(qmd: Qmd, home: Path) -> None:
    fill(home / "x", *VAULT.split(), *OTHERS.split())
    assert "Indexed: 8 new" in qmd("collection", "add", "x").out
    assert qmd("collection", "list", "--json").json[0]["pattern"] == DEFAULT_PATTERN
    (home / "x/late.Markdown").write_text("a zebra\n")
    assert "late.Markdown" in qmd("search", "zebra", "--files").out, "a search takes up a new one"
    assert "(mask of collection 'x')" in qmd("get", "x.txt").err


@pytest.mark.parametrize("mask", [["--mask", "**/*.md"], ["--glob", "**/*.md"]])
def test_a_mask_that_is_named_is_taken_by_the_letter(qmd: Qmd, home: Path, mask: list[str]) -> None:
    fill(home / "x", *VAULT.split())
    assert "Indexed: 1 new" in qmd("collection", "add", "x", *mask).out
    assert qmd("collection", "list", "--json").json[0]["pattern"] == "**/*.md"
    run = qmd("collection", "add", "x", "--name", "again")
    assert "A collection already exists for this path and pattern: x" in run.err


def test_an_entry_without_a_mask_takes_what_it_always_took(indexed: Qmd, notes: Path, tmp_path: Path) -> None:
    file = tmp_path / "config/qmd/index.yml"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if "pattern" not in line))
    fill(notes, "B.MD")
    assert "✓ notes  3 notes  ~/notes" in indexed("index", "--no-embed").out
    assert indexed("collection", "list", "--json").json[0]["mask"] == "**/*.md"


def test_what_a_folder_holds_besides_is_said_once(qmd: Qmd, home: Path) -> None:
    folder = fill(home / "x", *VAULT.split(), *OTHERS.split(), "e.log", "out/4.png", "5.svg")
    (folder / ".gitignore").write_text("out/\n")
    (folder / ".qmdignore").write_text("*.svg\n")
    said = (
        "x: skipped 9 files of other kinds (2 png, 1 adoc, 1 doc, 5 other); to include them: "
        f"qmd index {shlex.quote(str(folder))} --all\n"
    )
    assert qmd("index", "x", "--no-embed").err.endswith(said)
    assert qmd("index", "--no-embed").err == "", "a refresh of everything need not say it again"
    assert "Not taken: 2 .png, 1 .adoc, 1 .doc, 5 other\n" in qmd("status").out
    qmd("index", "x/sub", "--no-embed")
    assert qmd("status", "--json").json["notTaken"].startswith("2 .png"), "a look at a part says nothing of the whole"
    another = ("--name", "texts", "--separate", "--glob", "**/*.{adoc,log}", "--no-embed")
    assert qmd("index", "x", *another).err == "", "who names a mask has chosen"
    assert qmd("status", "--json").json["notTaken"] == "2 .png, 1 .doc, 1 .json, 3 other"
    qmd("collection", "rename", "x", "mine")
    assert qmd("status", "--json").json["notTaken"].startswith("2 .png")
    qmd("collection", "remove", "mine")
    assert "Not taken" not in qmd("status").out


def test_a_refresh_tells_of_new_kinds_once(qmd: Qmd, home: Path) -> None:
    folder = fill(home / "x", "a.md", "1.png", "b.csv")
    qmd("index", "x", "--no-embed")
    fill(folder, "2.png", "c.mp3")
    qmd("search", "text")
    assert qmd("index", "--no-embed").err == (
        "x: skipped 4 files of other kinds (2 png, 1 csv, 1 mp3); to include them:"
        f" qmd index {shlex.quote(str(folder))} --all\n"
    ), "though a search has counted them before"
    fill(folder, "3.png")
    assert qmd("update").err == "", "another picture is no news"
    fill(folder, "d.mp4")
    assert "skipped 6 files of other kinds" in qmd("update").err
    assert qmd("update").err == ""


def test_files_that_are_not_read_as_a_whole_are_one_line_and_a_list(qmd: Qmd, home: Path) -> None:
    folder = fill(home / "x", "good.md", "sub/good.md")
    bad = {"a.md": b"---\ntags:\n- @me\n---\nzebra\n", "sub/b.md": b"---\nx: [\n---\n", "c.md": b"caf\xe9\n"}
    for name, raw in bad.items():
        (folder / name).write_bytes(raw)
    (folder / "d.md").write_bytes(b"\0\0")
    run = qmd("index", "x", "--no-embed")
    assert run.err == (
        "warning: 'd.md' is binary\n"
        "warning: 3 notes are indexed without what could not be read"
        " (a.md:3: front matter cannot be read: '@' needs quotes, …);"
        " all of them: qmd status --problems\n"
    )
    listed = [
        "x/a.md:3: front matter cannot be read: '@' needs quotes",
        "x/c.md: not valid UTF-8: undecodable bytes were replaced",
        "x/d.md: 'd.md' is binary",
    ]
    lines = qmd("status", "--problems").out.splitlines()
    assert lines[:3] == listed and lines[3].startswith("x/sub/b.md:2: front matter cannot be read: ")
    assert "Problems: 4\n" in qmd("status").out
    row = qmd("status", "--problems", "--json").json[0]
    assert (row["collection"], row["path"], row["line"], row["indexed"]) == ("x", "a.md", 3, True)
    assert [row["path"] for row in qmd("status", "--json").json["leftOut"]] == ["d.md"]
    for argv in (("index", "--no-embed"), ("index", "x/sub", "--no-embed")):
        qmd(*argv)
        assert qmd("status", "--problems").out.splitlines() == lines, "what was not read again is as it was"
    (folder / "a.md").write_text("zebra, mended\n")
    assert "mended" in qmd("search", "zebra").out, "a search takes up a note that had a problem"
    for name in ("sub/b.md", "c.md", "d.md"):
        (folder / name).unlink()
    assert "warning" not in qmd("index", "--no-embed").err
    assert qmd("status", "--problems").out == "Every file was read completely.\n"
    assert qmd("status", "--problems", "--json").json == []


def test_templates_of_obsidian_are_no_problems_and_its_settings_are_only_compared(qmd: Qmd, home: Path) -> None:
    folder = fill(home / "x", "T/day.md", "P/one.md", "Q/week.md", "a.md")
    for name in ("T/day.md", "P/one.md", "Q/week.md", "a.md"):
        (folder / name).write_text("---\na: @b\n---\n")
    settings = folder / ".obsidian/plugins/templater-obsidian"
    settings.mkdir(parents=True)
    (folder / ".obsidian/templates.json").write_text('{"folder": "/T/"}')
    (folder / ".obsidian/daily-notes.json").write_text('{"folder": "a", "template": "P/one"}')
    (settings / "data.json").write_text('{"templates_folder": "Q"}')
    qmd("index", "x", "--no-embed")
    assert [row["path"] for row in qmd("status", "--problems", "--json").json] == ["a.md"]
    assert "T/day.md" in qmd("ls", "x").out, "they are notes as others are"
    for hostile in ('{"folder": "/"}', '{"folder": ".."}', '{"folder": 1}', "[" * 100_000, '["T"]', "{", ""):
        (folder / ".obsidian/templates.json").write_text(hostile)
        run = qmd("index", "--verify", "--no-embed")
        assert (run.status, len(qmd("status", "--problems", "--json").json)) == (0, 2), hostile


def test_counts_that_a_stranger_wrote_into_an_index_hold_no_more_than_endings() -> None:
    fact = ".png=3 .\x1b[31m=4 .txt=x .md=" + "9" * 400 + " ../etc=5 " + "." * 100_000
    assert set(OtherFiles.of({"other_kinds:notes": fact}, "notes").counts) <= {".png", ".md"}
    known = OtherFiles({".png": 2, ".MD": 1}, {".png"})
    stored = {"other_kinds:notes": ".MD=1 .png=2", "kinds_told:notes": ".png"}
    assert known.as_facts("notes") == stored and OtherFiles.of(stored, "notes") == known


def test_counts_of_what_is_left_out_have_separators(qmd: Qmd, home: Path) -> None:
    fill(home / "x", "a.md", *(f"{number}.png" for number in range(1_001)))
    assert qmd("index", "x", "--no-embed").err == "x: skipped 1,001 files of other kinds (1,001 png)\n"


def test_no_ignore_is_remembered_shown_and_survives_other_edits(qmd: Qmd, notes: Path, tmp_path: Path) -> None:
    (notes / ".gitignore").write_text("pricing.md\n")
    qmd("index", "notes", "--no-embed")
    run = qmd("index", "notes", "--no-ignore", "--no-embed")
    assert "✓ notes  1 new, 3 notes" in run.out
    assert run.err == ""
    qmd("collection", "exclude", "notes")
    qmd("context", "add", "qmd://notes/", "all of it")
    qmd("collection", "rename", "notes", "mine")
    assert "gitignore: false" in (tmp_path / "config/qmd/index.yml").read_text()
    assert "✓ mine  3 notes" in qmd("index", "--no-embed").out
    assert "  Gitignore: not followed\n" in qmd("collection", "show", "mine").out
    assert "  Gitignore: not followed\n" in qmd("collection", "list").out
    assert [row["gitignore"] for row in qmd("collection", "list", "--json").json] == [False]


def test_no_ignore_on_a_part_of_a_collection_makes_a_collection_of_its_own(indexed: Qmd, notes: Path) -> None:
    (notes / ".gitignore").write_text("daily/\n")
    run = indexed("index", str(notes / "daily"), "--no-ignore", "--no-embed")
    assert "✓ daily  1 note " in run.out


def test_a_setting_of_gitignore_that_is_no_switch_is_refused(indexed: Qmd, tmp_path: Path) -> None:
    file = tmp_path / "config/qmd/index.yml"
    file.write_text(file.read_text() + "    gitignore: sometimes\n")
    run = indexed("update")
    assert run.status == 1
    assert "gitignore of collection 'notes'" in run.err


def test_what_to_do_without_collections_is_one_command(qmd: Qmd) -> None:
    for argv in (("collection", "list"), ("ls",), ("status",), ("update",), ("embed",)):
        assert "Run 'qmd index ~/notes'" in qmd(*argv).out
    assert qmd("search", "x").err.endswith("hint: make one: qmd index ~/notes\n")


def test_a_new_index_of_a_project_says_how_to_fill_it(qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fill(home / "project"))
    assert qmd("init").err == "next: qmd index .\n"
    assert qmd("search", "x").err == "warning: nothing is indexed yet: run 'qmd index FOLDER'\n"
    assert qmd("search", "x").out == "No results found.\n"
    drawn = qmd("search", "x", "--color", "always")
    assert (drawn.out, drawn.err) == ("", "Nothing is indexed yet. Run: qmd index .\n")


@pytest.mark.skipif(sys.platform == "win32", reason="such a name cannot exist")
def test_a_warning_is_one_line_although_the_name_in_it_has_two(qmd: Qmd, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "new\nerror: line.md").write_bytes(b"# Zebra \xff\n")
    warnings = [line for line in qmd("index", str(folder), "--no-embed").err.splitlines() if "UTF-8" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("warning: 'new error: line.md'")
