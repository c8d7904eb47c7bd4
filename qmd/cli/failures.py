"""What is said of a failure, and the exit status that goes with it."""

from __future__ import annotations

import os
from contextlib import suppress

from qmd.cli.output import OutputError, flush_result, say
from qmd.errors import EXIT_FAILURE, BusyError, BusyModelError, QmdError


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
