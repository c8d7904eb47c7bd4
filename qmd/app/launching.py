"""Which program opens a note, and with which arguments: an editor at the line, Obsidian, or what the desktop has."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath

from msgspec import Struct

from qmd.app.disk_paths import is_in_vault, linker
from qmd.errors import QmdError

_AT_LINE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("code", "code-insiders", "codium", "vscodium", "cursor", "windsurf"), ("-g", "{file}:{line}")),
    **dict.fromkeys(("subl", "sublime_text", "hx", "helix", "zed", "zeditor", "atom"), ("{file}:{line}",)),
    **dict.fromkeys(("vi", "vim", "nvim", "gvim", "mvim", "view", "nano", "pico", "micro"), ("+{line}", "{file}")),
    **dict.fromkeys(("emacs", "emacsclient", "kak", "joe", "jed", "ne", "mg", "gedit"), ("+{line}", "{file}")),
    **dict.fromkeys(("kate", "kwrite", "mate", "idea", "pycharm", "webstorm"), ("--line", "{line}", "{file}")),
    "notepad++": ("-n{line}", "{file}"),
}
"""How editors are told a line, by the name of their program; another one gets the file alone."""

_DESKTOP = {"darwin": "open", "win32": "startfile"}
_NO_PROGRAM = "choose one: export EDITOR=nano; or read it here: qmd get"


class Launch(Struct, frozen=True):
    """A program and its arguments, as they are handed over: no shell reads them."""

    argv: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.argv)


def plan_launch(
    file: Path, line: int, environ: Mapping[str, str], uri: str | None = None, platform: str = sys.platform
) -> Launch:
    """What opens `file` at `line`: `uri` if the user has chosen a template, `VISUAL`, `EDITOR`, Obsidian, the desktop.

    Args:
        file: Absolute path.
        line: From 1.
        environ: The environment variables.
        uri: The link that the user's template makes of file and line.
        platform: As `sys.platform`.

    Raises:
        QmdError: The variable of an editor cannot be read as a command.
    """
    desktop = _DESKTOP.get(platform, "xdg-open")
    if uri:
        return Launch((desktop, uri))
    for variable in ("VISUAL", "EDITOR"):
        if environ.get(variable, "").strip():
            return Launch(_editor(variable, environ[variable], file, line, platform))
    return Launch((desktop, linker(None)(str(file), line) if is_in_vault(file.parent) else str(file)))


def _editor(variable: str, command: str, file: Path, line: int, platform: str) -> tuple[str, ...]:
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
    """Run the program and wait for it; it has the terminal meanwhile.

    Raises:
        QmdError: It is not there, or it fails.
    """
    program = plan.argv[0]
    if program == "startfile":
        _start_file(plan.argv[1])
        return
    found = shutil.which(program)
    if found is None:
        raise QmdError(f"cannot run '{program}': there is no such program", _NO_PROGRAM)
    try:
        status = subprocess.run([found, *plan.argv[1:]], check=False).returncode
    except OSError as exc:
        raise QmdError(f"cannot run '{program}': {exc.strerror}", _NO_PROGRAM) from exc
    if status:
        raise QmdError(f"'{program}' ended with status {status}", _NO_PROGRAM)


def _start_file(target: str) -> None:
    try:
        os.startfile(target)  # type: ignore[attr-defined,unused-ignore]
    except OSError as exc:
        raise QmdError(f"Windows cannot open '{target}': {exc.strerror}", _NO_PROGRAM) from exc
