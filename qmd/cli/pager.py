"""Pager for long results on a terminal, as for `git log`."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from qmd.cli.output import flush_result, has_no_keys, out, stdout_is_terminal, warn
from qmd.escapes import visible
from qmd.render.drawing import Screen
from qmd.render.terminal import Styled, without_sequences

VARIABLES = ("QMD_PAGER", "PAGER")
_DEFAULT = "less"
# Quit if the text fits one screen, keep colours, leave the text on the screen.
_SETTINGS = {"LESS": "FRX", "LV": "-c"}
_NOT_RUN = (126, 127)
"""Exit statuses of a shell that could not run the command."""


def page(text: str, screen: Screen | None, environ: Mapping[str, str]) -> None:
    """Write `text` to stdout, through a pager if it is longer than the terminal.

    `QMD_PAGER` names the pager, else `PAGER`, else `less`; an empty name or `cat` means no pager. It is not an error to
    leave the pager early, by Ctrl-C or otherwise.

    Args:
        text: The result.
        screen: Terminal of stdout; None for no pager.
        environ: The environment variables.
    """
    command = _command(environ)
    if screen is None or command is None or not stdout_is_terminal() or has_no_keys() or _fits(text, screen):
        out(text)
        return
    flush_result()
    if _show(command, text, environ) in _NOT_RUN:
        warn(f"the pager '{command}' cannot be run")
        out(text)


def _command(environ: Mapping[str, str]) -> str | None:
    if environ.get("TERM") == "dumb":
        return None
    chosen = next((environ[name].strip() for name in VARIABLES if name in environ), None)
    if chosen is None:
        return _DEFAULT if shutil.which(_DEFAULT) else None
    return None if chosen in ("", "cat") else chosen


def _fits(text: str, screen: Screen) -> bool:
    """Return whether the text, with wide lines wrapped, fits the screen and leaves a row for the prompt."""
    from rich.cells import cell_len

    if text.count("\n") >= screen.height:
        return False
    lines = without_sequences(text).splitlines()
    return sum(max(1, -(-cell_len(line) // screen.width)) for line in lines) < screen.height


def _show(command: str, text: str, environ: Mapping[str, str]) -> int:
    """Run `command` with `text` on its stdin, and return its exit status."""
    settings = {name: value for name, value in _SETTINGS.items() if name not in environ}
    # A pager can be `less -i` or a pipeline, so the shell runs it, as for git.
    with _ignore_interrupts():
        process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env={**environ, **settings})
        assert process.stdin is not None
        shown = text if isinstance(text, Styled) else visible(text)
        with suppress(OSError), process.stdin as pipe:
            pipe.write(shown.encode("utf-8", "replace"))
        return process.wait()


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C, which also reaches the pager, until the pager ends."""
    # The pager would inherit SIG_IGN.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
