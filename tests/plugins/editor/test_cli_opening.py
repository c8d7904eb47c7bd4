"""`qmd open`: a note, or a hit of the last search, in an editor."""

import os
import shlex
import stat
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.program import Qmd


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File to which a fake editor writes its arguments, one per line."""
    program, seen = tmp_path / "vim", tmp_path / "seen"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{seen}"\n')
    program.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", shlex.quote(str(program)))
    return seen


@pytest.mark.skipif(os.name != "posix", reason="the editor of this test is a shell script")
def test_open_runs_the_editor_at_the_line(indexed: Qmd, editor: Path, notes: Path) -> None:
    run = indexed("open", "sunday.md:3")
    assert (run.status, run.out, run.err) == (0, "", "")
    assert editor.read_text() == f"+3\n{notes / 'daily/sunday.md'}\n"


@pytest.mark.skipif(os.name != "posix", reason="the editor of this test is a shell script")
def test_no_shell_reads_the_name_of_a_note(indexed: Qmd, editor: Path, notes: Path, home: Path) -> None:
    name = "a$(touch hacked) `touch hacked`; touch hacked.md"
    (notes / name).write_text("# Odd\n")
    indexed("update")
    assert indexed("open", f"notes/{name}").status == 0
    assert editor.read_text().endswith(f"{name}\n")
    assert not (home / "hacked").exists()


def test_open_print_shows_what_would_run(indexed: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "code -w")
    run = indexed("open", "[[as shown|we ird/c & d]]", "--print")
    assert (run.status, run.out) == (0, f"code -w -g '{notes}/we ird/c & d.md:1'\n")


def test_a_hit_of_the_last_search_on_a_terminal_is_opened_by_its_number(
    indexed: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VISUAL", "vim")
    assert indexed("search", "window", "--color", "always").status == 0
    assert indexed("open", "1", "--print").out == f"vim +4 {shlex.quote(str(notes / 'daily/sunday.md'))}\n"
    run = indexed("open", "2", "--print")
    assert (run.status, run.err) == (3, 'error: no hit 2: the last search had 1\nhint: search first: qmd query "…"\n')
    (kept,) = (tmp_path / "cache/qmd").glob("last-hits-*.json")
    assert os.name != "posix" or stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_search_that_a_program_reads_leaves_the_numbers_alone(indexed: Qmd) -> None:
    for argv in (["search", "window"], ["search", "window", "--json", "--color", "always"]):
        assert indexed(*argv).status == 0
    run = indexed("open", "1")
    assert (run.status, run.out) == (3, "")
    assert "no hit 1: there was no search on a terminal yet" in run.err


def test_each_index_has_numbers_of_its_own(indexed: Qmd) -> None:
    indexed("search", "window", "--color", "always")
    assert indexed("open", "1", "--index", "other").status == 3


def test_a_template_for_links_opens_the_note_too(indexed: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "vim")
    monkeypatch.setenv("QMD_EDITOR_URI", "zed://file{path}:{line}")
    assert f"zed://file{quote(str(notes))}/pricing.md:5" in indexed("open", "pricing.md:5", "--print").out


def test_a_file_that_is_no_note_is_opened_or_refused(qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    (home / "p/.qmd").mkdir(parents=True)
    (home / "p/.qmd/index.yml").write_text('collections:\n  p:\n    path: .\n    pattern: "**/*.{md,command}"\n')
    (home / "p/install.command").write_text("touch run\n")
    monkeypatch.chdir(home / "p")
    assert qmd("index", "--no-embed").status == 0
    run = qmd("open", "install.command")
    assert (run.status, run.out) == (1, "")
    assert run.err == (
        "error: no program for 'install.command': the desktop might run it\n"
        "hint: choose one: export EDITOR=nano; or read it here: qmd get\n"
    )
    monkeypatch.setenv("EDITOR", "vim")
    assert qmd("open", "install.command", "--print").out == f"vim +1 {shlex.quote(str(home / 'p/install.command'))}\n"


def test_a_note_whose_file_is_gone_names_the_next_command(indexed: Qmd, notes: Path) -> None:
    (notes / "pricing.md").unlink()
    run = indexed("open", "pricing.md")
    assert run.status == 3
    assert run.err == "error: the file of 'qmd://notes/pricing.md' is missing\nhint: refresh the index: qmd update\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a desktop")
def test_without_a_desktop_a_note_is_shown_where_it_was_asked(indexed: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VISUAL", "EDITOR", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    message = "cannot open notes: there is no desktop here, and no editor is chosen"
    shown = indexed("open", "sunday.md:3", "--color", "always")
    assert (shown.status, shown.err) == (0, f"shown here: {message}\n")
    assert shown.out == indexed("get", "sunday.md:3", "--color", "always").out
    piped = indexed("open", "sunday.md")
    assert (piped.status, piped.out) == (1, "")
    assert piped.err.startswith(f"error: {message}\nhint: choose one: export EDITOR=nano")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-editor", "cannot run 'no-such-editor': there is no such program"),
        ("vim '", "VISUAL 'vim '' is not a command: No closing quotation"),
        ("false", "'false' ended with status 1"),
    ],
)
def test_an_editor_that_cannot_be_run_is_one_line_with_a_remedy(
    indexed: Qmd, monkeypatch: pytest.MonkeyPatch, command: str, message: str
) -> None:
    monkeypatch.setenv("VISUAL", command)
    run = indexed("open", "pricing.md")
    assert (run.status, run.out) == (1, "")
    assert run.err.startswith(f"error: {message}\nhint: ")
