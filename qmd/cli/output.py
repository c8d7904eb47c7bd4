"""Output: results on stdout, messages on stderr, and no control characters from indexed text on a terminal.

The streams themselves escape control characters, so the rule also covers text that bypasses this module, such as logs,
tracebacks and help. Pipes and files get results unchanged, and messages of one line each.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from io import BufferedIOBase, BufferedWriter, RawIOBase, TextIOBase, TextIOWrapper
from typing import TYPE_CHECKING, TextIO, cast

from qmd.errors import EXIT_FAILURE, BusyError, BusyModelError, QmdError, UsageError
from qmd.escapes import message_line, visible

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
    """Stream that escapes control characters on a terminal, except in `Styled` text."""

    def __init__(self, stream: TextIOWrapper) -> None:
        # Without a buffer (PYTHONUNBUFFERED) a partial write to a pipe or disk loses the rest silently.
        has_buffer = isinstance(stream.buffer, BufferedIOBase)
        buffer = stream.buffer if has_buffer else BufferedWriter(cast("RawIOBase", stream.buffer))
        super().__init__(buffer, encoding="utf-8", errors=_UNENCODABLE, line_buffering=True)
        self.is_terminal = stream.isatty()
        self.colour = "auto"
        """Value of `--color` for messages."""
        # Garbage collection would close the descriptor.
        self._stream = stream

    def write(self, text: str, /) -> int:
        if not self.is_terminal:
            return super().write(text)
        from qmd.render.terminal import Styled

        super().write(text if isinstance(text, Styled) else visible(text))
        return len(text)


def prepare_streams() -> None:
    """Prepare the three streams, which may be closed.

    The next file that is opened, such as the index, would get the descriptor of a closed stream, and native libraries
    would print into it. A closed stdout becomes a stream that rejects writes.
    """
    codecs.register_error(_UNENCODABLE, _encode_surrogate)
    sys.stdin = sys.stdin or _open_null_device(os.O_RDONLY, "r")
    sys.stdout = _wrap_stream(sys.stdout or _open_null_device(os.O_RDONLY, "w"))
    sys.stderr = _wrap_stream(sys.stderr or _open_null_device(os.O_WRONLY, "w"))


def _open_null_device(flags: int, mode: str) -> TextIO:
    descriptor = os.open(os.devnull, flags)
    os.set_inheritable(descriptor, True)
    stream: TextIO = os.fdopen(descriptor, mode, encoding="utf-8")  # type: ignore[assignment]
    return stream


def _wrap_stream(stream: TextIO) -> TextIO:
    if isinstance(stream, _Stream) or not isinstance(stream, TextIOWrapper):
        return stream
    if stream.isatty() or not isinstance(stream.buffer, BufferedIOBase):
        return _Stream(stream)
    stream.reconfigure(encoding="utf-8", errors=_UNENCODABLE)
    return stream


def _encode_surrogate(error: UnicodeError) -> tuple[bytes, int]:
    r"""Encode lone surrogates: those for bytes of file names as these bytes, others as `\ud800`."""
    assert isinstance(error, UnicodeEncodeError)
    character = error.object[error.start]
    is_byte = "\udc80" <= character <= "\udcff"
    return character.encode("utf-8", "surrogateescape" if is_byte else "backslashreplace"), error.start + 1


def out(text: str) -> None:
    """Write a part of the result.

    Raises:
        OutputError: Stdout cannot be written.
        BrokenPipeError: The reader has closed the pipe.
    """
    try:
        sys.stdout.write(text)
    except OSError as exc:
        raise _output_error(exc) from exc


def flush_result() -> None:
    """Flush the result; raises the errors of `out`."""
    try:
        sys.stdout.flush()
    except OSError as exc:
        raise _output_error(exc) from exc


def _output_error(error: OSError) -> Exception:
    return error if isinstance(error, BrokenPipeError) else OutputError(f"cannot write to stdout: {error.strerror}")


def say(*texts: str) -> None:
    """Write messages to stderr, each as one line, and ignore a full disk.

    A drawn line (`Styled`) has its line feed and is not changed. On a terminal, errors, warnings and hints get colours.

    Raises:
        BrokenPipeError: The reader has closed the pipe.
    """
    for text in texts:
        line = _as_line(text)
        label = line.partition(": ")[0]
        if label in _LABELS and isinstance(sys.stderr, _Stream) and sys.stderr.is_terminal:
            line = _format_message(label, line[len(label) + 2 :], sys.stderr.colour)
        _write_message(line if line.endswith("\n") else f"{line}\n")


_LABELS = {"error": "bad", "warning": "warning", "hint": "command", "running": "faint"}
"""Label of a message → its style."""

_MIN_COLUMNS = 30
"""Minimum columns of text after a label; a narrower terminal wraps by itself."""


def _format_message(label: str, text: str, colour: str) -> Styled:
    """Draw a message with its label in colour and wrapped text next to it.

    Words, and the command at the end, stay whole so that they can be copied from the screen.
    """
    from msgspec.structs import replace
    from rich.cells import cell_len
    from rich.text import Text

    from qmd.render.drawing import draw

    screen = find_screen(os.environ, colour, is_terminal=True)
    assert screen is not None
    lead = len(label) + 2
    room = max(screen.width - lead, _MIN_COLUMNS)
    text_before, colon, command = text.rpartition(": qmd ")
    words = [*f"{text_before}:".split(" "), f"qmd {command}"] if colon else command.split(" ")
    rows: list[str] = []
    used = room
    for word in words:
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
    """Apply `--color` to messages."""
    if isinstance(sys.stderr, _Stream) and colour in COLOUR_CHOICES:
        sys.stderr.colour = colour


def warn(text: str) -> None:
    say(f"warning: {text}")


def show_progress(text: str) -> None:
    """Replace the current line of the terminal with `text`."""
    from qmd.render.terminal import ERASE_LINE, join_styled

    # One write, because a fast terminal would show the empty line.
    _write_message(join_styled([ERASE_LINE, _as_line(text)]))


def confirm(question: str) -> bool:
    if not is_interactive() or isinstance(sys.stderr, _Kept):
        return False
    _write_message(f"{message_line(question)} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _as_line(text: str) -> str:
    return message_line(text) if type(text) is str else text


def _write_message(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BrokenPipeError:
        raise
    except OSError:
        return


def flush_streams() -> None:
    """Flush stdout and stderr; drop text that cannot be written, which the interpreter would report again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Kept(TextIOBase):
    """Stream that keeps its last texts for the end of a quiet run."""

    def __init__(self) -> None:
        self.texts: deque[str] = deque(maxlen=1000)  # a server may run for months

    def write(self, text: str, /) -> int:
        self.texts.append(text)
        return len(text)


def run_quietly(run: Callable[[], int], *, has_result: bool) -> int:
    """Run a command and drop its messages, and its output if that is no result; show them if its status is a failure.

    An error that it raises needs no more words.
    """
    kept = _Kept()
    with redirect_stderr(kept), nullcontext() if has_result else redirect_stdout(kept):
        status = run()
    for text in kept.texts if status else ():
        _write_message(text)
    return status


def report(error: QmdError) -> int:
    with suppress(OutputError):  # if both streams are one terminal, the result comes first
        flush_result()
    # Programs retry when they read SQLite's message.
    is_index = isinstance(error, BusyError) and not isinstance(error, BusyModelError)
    suffix = " (database is locked)" if is_index and "locked" not in error.message else ""
    say(*f"error: {error.message}{suffix}".split("\n"))
    if error.hint:
        say(f"hint: {error.hint}")
    return error.exit_code


def report_unexpected(error: Exception) -> int:
    """Print an unexpected failure; system errors about a file are reported like expected ones."""
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):
        return report(QmdError(f"cannot use '{os.fsdecode(error.filename)}': {error.strerror}"))
    say(
        f"error: unexpected {type(error).__name__}: {error}",
        "hint: run it again with QMD_DEBUG=1 for the traceback, and report it",
    )
    return EXIT_FAILURE


def stdout_is_terminal() -> bool:
    return sys.stdout.isatty()


def stderr_is_terminal() -> bool:
    return sys.stderr.isatty()


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def has_no_keys() -> bool:
    """Return whether stdin is a terminal at its end, which sends no key ever, as for `script </dev/null`."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        return False
    import fcntl
    import select
    import termios

    return bool(select.select([sys.stdin], [], [], 0)[0]) and not any(fcntl.ioctl(0, termios.FIONREAD, bytes(4)))


def find_screen(environ: Mapping[str, str], colour: str, is_terminal: bool) -> Screen | None:
    """Return the screen to draw results on; None if a program reads them, which gets plain lines.

    The command line overrides `NO_COLOR`, then `FORCE_COLOR` and `CLICOLOR_FORCE`, then `TERM=dumb` and `CLICOLOR=0`.

    Args:
        environ: The environment variables.
        colour: The value of `--color`.
        is_terminal: Whether stdout is a terminal.

    Raises:
        UsageError: `colour` is not in `COLOUR_CHOICES`.
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
