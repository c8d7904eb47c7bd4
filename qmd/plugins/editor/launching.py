"""Choice and start of the program that opens a note: an editor at the line, Obsidian, or the desktop's program."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath

from msgspec import Struct

from qmd.app.disk_paths import linker
from qmd.errors import QmdError
from qmd.file_names import to_text

_AT_LINE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("code", "code-insiders", "codium", "vscodium", "cursor", "windsurf"), ("-g", "{file}:{line}")),
    **dict.fromkeys(("subl", "sublime_text", "hx", "helix", "zed", "zeditor", "atom"), ("{file}:{line}",)),
    **dict.fromkeys(("vi", "vim", "nvim", "gvim", "mvim", "view", "nano", "pico", "micro"), ("+{line}", "{file}")),
    **dict.fromkeys(("emacs", "emacsclient", "kak", "joe", "jed", "ne", "mg", "gedit"), ("+{line}", "{file}")),
    **dict.fromkeys(("kate", "kwrite", "mate", "idea", "pycharm", "webstorm"), ("--line", "{line}", "{file}")),
    "notepad++": ("-n{line}", "{file}"),
}
"""Arguments for a file and a line by the name of an editor; other editors get only the file."""

_AT_PAGE = {"evince": "--page-index=", "atril": "--page-index=", "okular": "--page=", "zathura": "--page="}
"""PDF viewers, with their option for a page."""

_DESKTOP = {"darwin": "open", "win32": "startfile"}
_NO_PROGRAM = "choose one: export EDITOR=nano; or read it here: qmd get"
_DISPLAY_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")
"""Variables of sessions that can show windows; one is enough."""
_CMD_SPECIAL = frozenset('&|<>^%"\n')
"""Characters that a batch file of Windows, such as `code.cmd`, may interpret."""


class NoDesktop(QmdError):
    """No program opens files here: no editor is chosen, and there is no desktop."""


class Launch(Struct, frozen=True):
    """Program and arguments to run without a shell."""

    argv: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.argv)


def plan_launch(
    file: Path, line: int, environ: Mapping[str, str], template: str | None = None, platform: str = sys.platform
) -> Launch:
    """Choose the program for `file` at `line`: the user's `template`, `VISUAL`, `EDITOR`, Obsidian, or the desktop.

    The system's text editor opens a file that the desktop might run; see `linker`.

    Args:
        file: Absolute path, no link.
        line: From 1.
        template: Template of links that open a file.

    Raises:
        QmdError: The variable of an editor is not a command, or no program is known for the file.
    """
    desktop = _DESKTOP.get(platform, "xdg-open")
    if template and (link := linker(template, platform)(str(file), line)):
        return Launch((desktop, link))
    for variable in ("VISUAL", "EDITOR"):
        if environ.get(variable, "").strip():
            return Launch(_editor_arguments(variable, environ[variable], file, line, platform))
    if link := linker(None, platform)(str(file), line):
        return Launch((desktop, str(file) if link.startswith("file:") else link))
    if platform == "darwin":
        return Launch(("open", "-t", str(file)))
    if platform == "win32":
        # With its folder: Windows searches the current folder first, which may not be trusted.
        return Launch((environ.get("SYSTEMROOT", r"C:\Windows") + r"\System32\notepad.exe", str(file)))
    raise QmdError(f"no program for '{to_text(file.name)}': the desktop might run it", _NO_PROGRAM)


def plan_viewing(file: Path, page: int, platform: str = sys.platform) -> Launch:
    """Choose the program for a file with extracted text: a known viewer at the page, or else see `plan_launch`."""
    plan = plan_launch(file, 1, {}, None, platform)
    viewer = next((name for name in _AT_PAGE if page > 1 and platform == "linux" and shutil.which(name)), None)
    return Launch((viewer, f"{_AT_PAGE[viewer]}{page}", str(file))) if viewer else plan


def _editor_arguments(variable: str, command: str, file: Path, line: int, platform: str) -> tuple[str, ...]:
    try:
        words = [word.strip('"') for word in shlex.split(command, posix=platform != "win32")]
    except ValueError as exc:
        raise QmdError(
            f"{variable} '{command}' is not a command: {exc}", "for example: export EDITOR='code -w'"
        ) from exc
    name = PurePath(words[0].replace("\\", "/")).name.casefold().removesuffix(".exe").removesuffix(".cmd")
    form = _AT_LINE.get(name, ("{file}",))
    return (*words, *(part.replace("{line}", str(line)).replace("{file}", str(file)) for part in form))


def launch(plan: Launch) -> None:
    """Run the program in this terminal and wait for it.

    Raises:
        NoDesktop: The desktop should open the note, but there is none.
        QmdError: The program does not exist or fails, or might run something else.
    """
    program = plan.argv[0]
    if program == "startfile":
        try:
            os.startfile(plan.argv[1])  # type: ignore[attr-defined,unused-ignore]
        except OSError as exc:
            raise QmdError(f"Windows cannot open '{plan.argv[1]}': {exc.strerror}", _NO_PROGRAM) from exc
        return
    found = shutil.which(program)
    if program == "xdg-open" and (found is None or not any(map(os.environ.get, _DISPLAY_VARIABLES))):
        raise NoDesktop("cannot open notes: there is no desktop here, and no editor is chosen", _NO_PROGRAM)
    if found is None:
        raise QmdError(f"cannot run '{program}': there is no such program", _NO_PROGRAM)
    if PurePath(program).name == program and not Path(found).is_absolute():
        raise QmdError(f"'{program}' is a file in the current folder and was not run", "give its whole path")
    if PurePath(found).suffix.lower() in (".cmd", ".bat") and any(_CMD_SPECIAL & {*word} for word in plan.argv[1:]):
        raise QmdError(f"'{found}' might run a part of '{plan.argv[-1]}'", "rename the note, or choose another editor")
    try:
        status = subprocess.run([found, *plan.argv[1:]], env=os.environ, check=False).returncode
    except OSError as exc:
        raise QmdError(f"cannot run '{program}': {exc.strerror}", _NO_PROGRAM) from exc
    if status:
        raise QmdError(f"'{program}' ended with status {status}", _NO_PROGRAM)
