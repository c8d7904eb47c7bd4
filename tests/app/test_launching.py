"""Which program opens a note, and how it is told the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from qmd.app.launching import plan_launch

FILE = Path("/notes/a b.md")


@pytest.mark.parametrize(
    ("editor", "argv"),
    [
        ("vim", ["vim", "+7", "/notes/a b.md"]),
        ("/usr/bin/nvim -O", ["/usr/bin/nvim", "-O", "+7", "/notes/a b.md"]),
        ("nano", ["nano", "+7", "/notes/a b.md"]),
        ("emacsclient -nw", ["emacsclient", "-nw", "+7", "/notes/a b.md"]),
        ("code -w", ["code", "-w", "-g", "/notes/a b.md:7"]),
        ("hx", ["hx", "/notes/a b.md:7"]),
        ("subl -n", ["subl", "-n", "/notes/a b.md:7"]),
        ("kate", ["kate", "--line", "7", "/notes/a b.md"]),
        ("ed", ["ed", "/notes/a b.md"]),
    ],
)
def test_each_editor_is_told_the_line_in_its_own_way(editor: str, argv: list[str]) -> None:
    assert list(plan_launch(FILE, 7, {"EDITOR": editor}).argv) == argv


def test_an_editor_of_windows_keeps_its_backslashes() -> None:
    editor = r'"C:\Program Files\Microsoft VS Code\Code.exe" -n'
    argv = plan_launch(FILE, 7, {"EDITOR": editor}, platform="win32").argv
    assert argv == (r"C:\Program Files\Microsoft VS Code\Code.exe", "-n", "-g", "/notes/a b.md:7")


def test_visual_goes_before_editor_and_a_template_before_both() -> None:
    environ = {"VISUAL": "code", "EDITOR": "vim"}
    assert plan_launch(FILE, 1, environ).argv[0] == "code"
    assert plan_launch(FILE, 1, environ, "zed://x", platform="linux").argv == ("xdg-open", "zed://x")


@pytest.mark.parametrize(("platform", "program"), [("linux", "xdg-open"), ("darwin", "open"), ("win32", "startfile")])
def test_without_an_editor_the_desktop_opens_the_note(platform: str, program: str) -> None:
    assert plan_launch(FILE, 1, {"EDITOR": " "}, platform=platform).argv == (program, str(FILE))


def test_a_note_of_a_vault_is_opened_in_obsidian(tmp_path: Path) -> None:
    (tmp_path / "vault/.obsidian").mkdir(parents=True)
    file = tmp_path / "vault/a/b & c.md"
    target = plan_launch(file, 1, {}, platform="linux").argv[1]
    assert target.startswith("obsidian://open?path=%2F")
    assert target.endswith("%2Fvault%2Fa%2Fb%20%26%20c.md")
