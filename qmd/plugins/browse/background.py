"""Detection of a light terminal background, so that the screen matches the terminal."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Mapping

_ASK = b"\x1b]11;?\x07\x1b[c"
"""Query for the background colour (OSC 11), which some terminals ignore, and for the type, which all report."""

_WAIT_S = 1.0
"""Time for a remote terminal to answer; a later answer would count as keys."""


def is_light(environ: Mapping[str, str], keyboard: int, screen: int) -> bool:
    """Return whether the background is light, by `COLORFGBG` or the terminal's answer; False if unknown.

    Args:
        keyboard: File descriptor to read the terminal's answer from.
        screen: File descriptor to write the query to.
    """
    color = environ.get("COLORFGBG", "").rpartition(";")[2]
    if color.isdecimal():
        return int(color) in (7, 15)
    try:
        import termios
        import tty
    except ImportError:  # Windows
        return False
    kept = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard, termios.TCSANOW)
        os.write(screen, _ASK)
        return _reports_light_background(_read_answer(keyboard))
    finally:
        termios.tcsetattr(keyboard, termios.TCSANOW, kept)


def _read_answer(keyboard: int) -> bytes:
    """Read up to the terminal's type, which it sends last."""
    answer, end = b"", time.monotonic() + _WAIT_S
    while not re.search(rb"\x1b\[\?[\d;]*c", answer):
        if not select.select([keyboard], [], [], max(0.0, end - time.monotonic()))[0]:
            break
        answer += os.read(keyboard, 1024)
    return answer


def _reports_light_background(answer: bytes) -> bool:
    found = re.search(rb"\]11;rgba?:([0-9a-fA-F]{2})[0-9a-fA-F]*/([0-9a-fA-F]{2})[0-9a-fA-F]*/([0-9a-fA-F]{2})", answer)
    if found is None:
        return False
    red, green, blue = (int(part, 16) for part in found.groups())
    return 0.299 * red + 0.587 * green + 0.114 * blue > 127
