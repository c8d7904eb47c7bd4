"""Whether the terminal's own ground is light, so that the screen looks like everything else in it."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Mapping

_ASK = b"\x1b]11;?\x07\x1b[c"
"""For the colour of the ground (OSC 11), which not every terminal tells, and for what it is, which every one does."""

_WAIT_S = 1.0
"""For a far-away terminal; what comes later would be taken for keys."""


def is_light(environ: Mapping[str, str], keyboard: int, screen: int) -> bool:
    """Whether the ground is light: what `COLORFGBG` says, else the terminal itself; False where neither does.

    Args:
        keyboard: The descriptor that the terminal's answer comes in by.
        screen: The descriptor that it is asked by.
    """
    told = environ.get("COLORFGBG", "").rpartition(";")[2]
    if told.isdecimal():
        return int(told) in (7, 15)
    try:
        import termios
        import tty
    except ImportError:  # Windows
        return False
    kept = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard, termios.TCSANOW)
        os.write(screen, _ASK)
        return _reports_light_background(_answer(keyboard))
    finally:
        termios.tcsetattr(keyboard, termios.TCSANOW, kept)


def _answer(keyboard: int) -> bytes:
    """What comes in, up to the terminal's name for itself."""
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
