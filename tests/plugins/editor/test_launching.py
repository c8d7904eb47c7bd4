"""Choice of the program that opens a note, and its arguments."""

import os
import shlex
from pathlib import Path

import pytest

from qmd.errors import QmdError
from qmd.plugins.editor.launching import Launch, launch, plan_launch

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


def written(folder: Path, name: str) -> Path:
    (folder / name).write_text("text\n")
    return folder / name


@pytest.mark.parametrize(("platform", "program"), [("linux", "xdg-open"), ("darwin", "open"), ("win32", "startfile")])
@pytest.mark.parametrize("name", ["a b.md", "PLAN.MD", "x.txt", "x.js.md", "-n.org"])
def test_without_an_editor_the_desktop_opens_the_note(tmp_path: Path, platform: str, program: str, name: str) -> None:
    file = written(tmp_path, name)
    assert plan_launch(file, 1, {"EDITOR": " "}, platform=platform).argv == (program, str(file))


def test_a_note_of_a_vault_is_opened_in_obsidian(tmp_path: Path) -> None:
    (tmp_path / "vault/.obsidian").mkdir(parents=True)
    (tmp_path / "vault/a").mkdir()
    file = written(tmp_path / "vault/a", "b & c.md")
    target = plan_launch(file, 1, {}, platform="linux").argv[1]
    assert target.startswith("obsidian://open?path=%2F")
    assert target.endswith("%2Fvault%2Fa%2Fb%20%26%20c.md")


ENDINGS = (
    "js jse vbs vbe wsf wsh bat cmd com exe scr pif ps1 py pyw rb sh command tool terminal workflow app desktop html"
    " htm xhtml svg xml hta lnk url webloc inetloc jar reg msc cpl chm scpt applescript csv ipynb rmd qmd tex pdf"
)
NAMES = ("README", "x.md.js", "x.md.", "x.md ", "x.md\n", "x.ｍｄ", *(f"install.{one}" for one in ENDINGS.split()))
SHOWN_BY = {"darwin": ("open", "-t"), "win32": (r"C:\Windows\System32\notepad.exe",)}
TEMPLATES = [None, "file://{path}", "FILE:{path}", "{path}", "//{path}", "c:{path}", " file:{path}"]


def opened(file: Path, platform: str, template: str | None = None, **environ: str) -> tuple[str, ...]:
    """Return the planned arguments; none if the file is refused."""
    try:
        return plan_launch(file, 1, environ, template, platform).argv
    except QmdError as error:
        assert (error.hint or "").endswith("or read it here: qmd get")
        return ()


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_a_desktop_might_run_goes_to_an_editor_or_nowhere(tmp_path: Path, platform: str, name: str) -> None:
    file = written(tmp_path, name)
    shown = (*SHOWN_BY[platform], str(file)) if platform in SHOWN_BY else ()
    for template in TEMPLATES:
        assert opened(file, platform, template) == shown
        assert opened(file, platform, template, EDITOR="ed") == ("ed", str(file))
    (tmp_path / ".obsidian").mkdir()
    assert opened(file, platform) == shown
    assert opened(file, platform, "zed://file{path}")[1].startswith("zed://file/")


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_what_is_no_ordinary_file_is_not_handed_to_the_desktop(tmp_path: Path, platform: str) -> None:
    shown = SHOWN_BY.get(platform)
    program, folder = written(tmp_path, "run.md"), tmp_path / "bundle.md"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    folder.mkdir()
    odd = [program, folder, tmp_path / "gone.md", Path("/nowhere/a\0.md")]
    if os.name == "posix":
        (tmp_path / "link.md").symlink_to(written(tmp_path, "evil.command"))
        os.mkfifo(tmp_path / "pipe.md")
        odd += [tmp_path / "link.md", tmp_path / "pipe.md"]
    for file in odd:
        assert opened(file, platform) == ((*shown, str(file)) if shown else ())


@pytest.mark.skipif(os.name != "posix", reason="there is no such bit")
def test_a_note_on_a_disk_where_every_file_is_executable_is_opened_but_by_macos(tmp_path: Path) -> None:
    file = written(tmp_path, "note.md")
    file.chmod(0o777)
    assert opened(file, "linux") == ("xdg-open", str(file))
    assert opened(file, "darwin") == ("open", "-t", str(file))


@pytest.mark.skipif(os.name == "nt", reason="a colon is no part of a name there")
def test_a_hidden_part_of_a_file_is_no_note_on_windows(tmp_path: Path) -> None:
    file = written(tmp_path, "evil.js:note.md")
    assert opened(file, "win32")[0].endswith("notepad.exe")
    assert opened(file, "linux") == ("xdg-open", str(file))


@pytest.mark.skipif(os.name != "posix", reason="the editor of this test is a shell script")
def test_a_program_in_this_folder_is_not_taken_for_the_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = written(tmp_path, "vim")
    program.write_text("#!/bin/sh\ntouch run\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(QmdError, match="'vim' is a file in the current folder and was not run"):
        launch(Launch(("vim", "/notes/a.md")))
    assert not (tmp_path / "run").exists()
    launch(Launch(("./vim", "/notes/a.md")))
    assert (tmp_path / "run").exists()


@pytest.mark.skipif(os.name != "posix", reason="the batch file of this test is a shell script")
@pytest.mark.parametrize("name", ["a&calc&b.md", "%CMDCMDLINE:~-1%&calc.md", "a^b.md", 'a".md', "a\nb.md"])
def test_no_part_of_a_name_is_a_command_for_a_batch_file(tmp_path: Path, name: str) -> None:
    program = written(tmp_path, "code.CMD")
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/run'\n")
    program.chmod(0o755)
    with pytest.raises(QmdError, match="might run a part of"):
        launch(plan_launch(tmp_path / name, 1, {"EDITOR": shlex.quote(str(program))}, platform="linux"))
    assert not (tmp_path / "run").exists()
    launch(plan_launch(tmp_path / "a b (c).md", 1, {"EDITOR": shlex.quote(str(program))}, platform="linux"))
    assert (tmp_path / "run").exists()
