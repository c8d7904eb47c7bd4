"""Where all output goes: results to stdout, messages to stderr, and to a terminal nothing that could steer it.

The rule for terminals lies in the streams themselves, each judged by itself, so that it also holds for what is written
past this module: log lines of the servers, tracebacks, help. Through a pipe or into a file everything goes as it is.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from io import BufferedIOBase, BufferedWriter, RawIOBase, TextIOWrapper
from typing import TYPE_CHECKING, TextIO, cast

from qmd.errors import EXIT_FAILURE, BusyError, BusyModelError, QmdError, UsageError

if TYPE_CHECKING:
    from qmd.render.drawing import Colours, Screen
    from qmd.render.terminal import Styled

_UNENCODABLE = "qmd-unencodable"

COLOUR_CHOICES = ("auto", "always", "never")
_NO = ("", "0", "false")


class OutputError(QmdError):
    """The result cannot be written: stdout is closed, or its disk is full."""

    code = "output"


class _Stream(TextIOWrapper):
    """`stream` with the rule for terminals: what is written to one is made visible, `Styled` text apart."""

    def __init__(self, stream: TextIOWrapper) -> None:
        # Under PYTHONUNBUFFERED there is no buffer, and what a pipe or a disk did not take in one go is lost silently.
        has_buffer = isinstance(stream.buffer, BufferedIOBase)
        buffer = stream.buffer if has_buffer else BufferedWriter(cast("RawIOBase", stream.buffer))
        super().__init__(buffer, encoding="utf-8", errors=_UNENCODABLE, line_buffering=True)
        self.is_terminal = stream.isatty()
        self.colour = "auto"
        """What `--color` says of messages."""
        # Once collected it would close the descriptor.
        self._stream = stream

    def write(self, text: str, /) -> int:
        """Write `text`; see the class."""
        if not self.is_terminal:
            return super().write(text)
        from qmd.render.terminal import Styled, visible

        super().write(text if isinstance(text, Styled) else visible(text))
        return len(text)


def prepare_streams() -> None:
    """Make the three streams fit for use, whatever the program was started with.

    One that is closed is None to Python, and the next file to be opened, say the index, would take its descriptor, and
    with it whatever a native library prints there. A closed stdout becomes one that refuses what is written to it.
    """
    codecs.register_error(_UNENCODABLE, _encode_anyway)
    sys.stdin = sys.stdin or _stream_to_nowhere(os.O_RDONLY, "r")
    sys.stdout = _prepared(sys.stdout or _stream_to_nowhere(os.O_RDONLY, "w"))
    sys.stderr = _prepared(sys.stderr or _stream_to_nowhere(os.O_WRONLY, "w"))


def _stream_to_nowhere(flags: int, mode: str) -> TextIO:
    descriptor = os.open(os.devnull, flags)
    os.set_inheritable(descriptor, True)
    stream: TextIO = os.fdopen(descriptor, mode, encoding="utf-8")  # type: ignore[assignment]
    return stream


def _prepared(stream: TextIO) -> TextIO:
    if isinstance(stream, _Stream) or not isinstance(stream, TextIOWrapper):
        return stream
    if stream.isatty() or not isinstance(stream.buffer, BufferedIOBase):
        return _Stream(stream)
    stream.reconfigure(encoding="utf-8", errors=_UNENCODABLE)
    return stream


def _encode_anyway(error: UnicodeError) -> tuple[bytes, int]:
    r"""What UTF-8 has no form for: bytes of file names come out as they went in, other lone surrogates as `\ud800`."""
    assert isinstance(error, UnicodeEncodeError)
    character = error.object[error.start]
    is_byte = "\udc80" <= character <= "\udcff"
    return character.encode("utf-8", "surrogateescape" if is_byte else "backslashreplace"), error.start + 1


# --- writing --------------------------------------------------------------------------------------


def out(text: str) -> None:
    """Write a piece of the result.

    Raises:
        OutputError: If stdout takes nothing.
        BrokenPipeError: If its reader has gone.
    """
    try:
        sys.stdout.write(text)
    except OSError as exc:
        raise _refusal(exc) from exc


def flush_result() -> None:
    """Bring what was written so far to the reader; raises as `out` does."""
    try:
        sys.stdout.flush()
    except OSError as exc:
        raise _refusal(exc) from exc


def _refusal(error: OSError) -> Exception:
    return error if isinstance(error, BrokenPipeError) else OutputError(f"cannot write to stdout: {error.strerror}")


def say(text: str) -> None:
    """Write a line for people to stderr; the result does not depend on whether they can be told.

    A drawn line has its line feed, and stays drawn. A failure, warning or hint is laid out for a person.

    Raises:
        BrokenPipeError: If the reader has gone.
    """
    label = text.partition(": ")[0]
    if label in _LABELS and isinstance(sys.stderr, _Stream) and sys.stderr.is_terminal:
        text = _laid_out(label, text[len(label) + 2 :], sys.stderr.colour)
    _tell(text if text.endswith("\n") else f"{text}\n")


_LABELS = {"error": "bad", "warning": "warning", "hint": "command"}
"""What messages begin with, and its style."""

_NARROWEST = 30
"""Columns of text beside a label: on a narrower screen the terminal itself goes on below."""


def _laid_out(label: str, text: str, colour: str) -> Styled:
    """A message as a person reads it: its label in colour, whole words in the columns beside it.

    No word is cut, and no command at its end: what is copied from the screen must be what was meant.
    """
    from msgspec.structs import replace
    from rich.cells import cell_len
    from rich.text import Text

    from qmd.render.drawing import draw
    from qmd.render.terminal import visible

    screen = find_screen(os.environ, colour, is_terminal=True)
    assert screen is not None
    lead = len(label) + 2
    room = max(screen.width - lead, _NARROWEST)
    said, colon, command = text.strip("\n").rpartition(": qmd ")
    words = [*f"{said}:".split(" "), f"qmd {command}"] if colon else command.split(" ")
    rows: list[str] = []
    used = room
    for word in map(visible, words):
        size = cell_len(word)
        if used + 1 + size > room:
            rows.append(word)
            used = size
        else:
            rows[-1] += f" {word}"
            used += 1 + size
    shown = Text(f"\n{' ' * lead}".join(rows), no_wrap=True, overflow="ignore")
    return draw(
        replace(screen, width=max(screen.width, lead + max(map(cell_len, rows)))),
        Text.assemble((f"{label}: ", _LABELS[label]), shown),
    )


def set_message_colours(colour: str) -> None:
    """Have the messages that follow obey `--color`."""
    if isinstance(sys.stderr, _Stream) and colour in COLOUR_CHOICES:
        sys.stderr.colour = colour


def warn(text: str) -> None:
    """Write a warning to stderr, one line whatever the names in it hold."""
    say("warning: " + text.replace("\n", r"\x0a"))


def show_progress(text: str) -> None:
    """Put `text` in place of the present line of the terminal at stderr."""
    from qmd.render.terminal import ERASE_LINE, join_styled

    # In one piece, or a terminal that is quick would show the empty line in between.
    _tell(join_styled([ERASE_LINE, text]))


def confirm(question: str) -> bool:
    """Whether a person says yes to `question`; without one at the terminal, no."""
    if not is_interactive():
        return False
    _tell(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tell(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BrokenPipeError:
        raise
    except OSError:
        return


def settle_streams() -> None:
    """Flush both; what cannot be written is dropped, or the interpreter would complain of it once more at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def report(error: QmdError) -> int:
    """Print a failure; the exit status."""
    with suppress(OutputError):  # what was written so far comes first where both streams are one terminal
        flush_result()
    if error.message.startswith("Usage: "):
        say(error.message)
    else:
        # Programs that drive qmd wait and try again when they read SQLite's own words.
        is_index = isinstance(error, BusyError) and not isinstance(error, BusyModelError)
        suffix = " (database is locked)" if is_index and "locked" not in error.message else ""
        say(f"error: {error.message}{suffix}")
    if error.hint:
        say(f"hint: {error.hint}")
    return error.exit_code


def report_unforeseen(error: Exception) -> int:
    """Print a failure that nothing has foreseen; what the system says of a file is none of the program's faults."""
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):
        return report(QmdError(f"cannot use '{os.fsdecode(error.filename)}': {error.strerror}"))
    detail = " ".join(str(error).split())
    say(f"error: unexpected {type(error).__name__}: {detail}")
    say("hint: run it again with QMD_DEBUG=1 for the traceback, and report it")
    return EXIT_FAILURE


# --- who reads ------------------------------------------------------------------------------------


def stdout_is_terminal() -> bool:
    """Whether a person sees the result at once."""
    return sys.stdout.isatty()


def stderr_is_terminal() -> bool:
    """Whether a person sees the messages at once."""
    return sys.stderr.isatty()


def is_interactive() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def find_screen(environ: Mapping[str, str], colour: str, is_terminal: bool) -> Screen | None:
    """The screen to draw results for; None where a program reads them, which gets plain lines that never change.

    What was asked on the command line beats `NO_COLOR`, that beats `FORCE_COLOR` and `CLICOLOR_FORCE`, and these beat
    `TERM=dumb` and `CLICOLOR=0`.

    Args:
        environ: The environment variables.
        colour: The value of `--color`.
        is_terminal: Whether stdout is one.

    Raises:
        UsageError: `colour` is none of `COLOUR_CHOICES`.
    """
    from qmd.render.drawing import Screen

    if colour not in COLOUR_CHOICES:
        raise UsageError(f"unknown --color '{colour}'", f"Valid: {', '.join(COLOUR_CHOICES)}")
    is_forced = any(environ.get(name, "").lower() not in _NO for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))
    if colour == "auto":
        if environ.get("NO_COLOR"):
            colour = "never"
        elif is_forced:
            colour = "always"
        elif environ.get("TERM") == "dumb" or environ.get("CLICOLOR") == "0":
            colour = "never"
    if not is_terminal and colour != "always":
        return None
    import shutil

    size = shutil.get_terminal_size()
    return Screen(size.columns, size.lines, None if colour == "never" else _colours(environ))


def _colours(environ: Mapping[str, str]) -> Colours:
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") or environ.get("WT_SESSION"):
        return "truecolor"
    return "256" if environ.get("TERM", "").endswith("256color") else "standard"
