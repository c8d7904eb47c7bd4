"""Long results on a terminal: shown in the reader's pager, as git shows a log."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from qmd.cli.output import flush_result, out, stdout_is_terminal, warn
from qmd.render.drawing import Screen
from qmd.render.terminal import Styled, visible, without_sequences

VARIABLES = ("QMD_PAGER", "PAGER")
_DEFAULT = "less"
# Quit where one screen is enough, pass colours through, leave the text on the screen.
_SETTINGS = {"LESS": "FRX", "LV": "-c"}
_NOT_RUN = (126, 127)
"""Statuses of a shell that could not run the command."""


def page(text: str, screen: Screen | None, environ: Mapping[str, str]) -> None:
    """Write `text` to stdout, through a pager where a person sees it and it is longer than their screen.

    `QMD_PAGER` names the pager, else `PAGER`, else it is less; an empty one or `cat` means none. A reader who leaves
    before the end, or presses Ctrl-C, has seen enough: that is no error.

    Args:
        text: The result.
        screen: What a person sees stdout on; None where a program reads it, or where no pager is wanted.
        environ: The environment variables.
    """
    command = _command(environ)
    if screen is None or command is None or not stdout_is_terminal() or _fits(text, screen):
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
    """Whether all of it is seen at once, with a row left for the prompt; the terminal folds lines that are wider."""
    from rich.cells import cell_len

    if text.count("\n") >= screen.height:
        return False
    lines = without_sequences(text).splitlines()
    return sum(max(1, -(-cell_len(line) // screen.width)) for line in lines) < screen.height


def _show(command: str, text: str, environ: Mapping[str, str]) -> int:
    """Run `command` with `text` on its stdin until the reader leaves it; its exit status."""
    settings = {name: value for name, value in _SETTINGS.items() if name not in environ}
    # By the shell, as for git: a pager may be `less -i` or a pipeline.
    with _interrupts_belong_to_the_pager():
        process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env={**environ, **settings})
        assert process.stdin is not None
        shown = text if isinstance(text, Styled) else visible(text)
        with suppress(OSError), process.stdin as pipe:
            pipe.write(shown.encode("utf-8", "replace"))
        return process.wait()


@contextmanager
def _interrupts_belong_to_the_pager() -> Iterator[None]:
    """Ctrl-C reaches every program at the terminal; the pager knows what it means there, and is waited for."""
    # Not SIG_IGN, which the pager would inherit.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
