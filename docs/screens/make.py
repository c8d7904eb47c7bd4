"""Makes the pictures of the documentation from real runs: `python docs/screens/make.py [NAME…]`.

Each command runs in a terminal of its own (a pty) over the notes of the tutorial, in an empty home; what it drew
becomes an SVG. `--width` tries another size, `--into` another folder.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import io
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from html import unescape
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
VAULT = HERE.parent / "vault"

HOME = Path("/tmp/anas")
"""Stands for `/home/ana` in the pictures: a name of the same length, so that tables stay aligned."""

SCREENS: dict[str, tuple[str, ...]] = {
    "index": ("index", "bakery"),
    "query": ("query", "how do I restore a backup?", "-n", "3"),
    "explain": ("query", "why do we charge by weight?", "-n", "2", "--explain"),
    "none": ("query", "opening hours of the swimming pool"),
    "search-chinese": ("search", "恢复备份"),
    "get": ("get", "Backups"),
    "links": ("links", "Backups"),
    "related": ("related", "Pricing"),
    "status": ("status",),
    "doctor": ("doctor",),
    "start": (),
    "help": ("search", "--help"),
}
"""The arguments of each picture, in the order in which they run; the first one makes the index of the others."""

_HEIGHT = 60
_TIMEOUT_S = 120
_WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_NOT_DRAWN = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b\[\?[0-9;]*[a-z]|\x1b\[[0-9]*[A-GJ]|\x1b[=>]")
"""Links, and what moves the cursor or clears a part of the screen."""

_TEXT = re.compile(r'textLength="([\d.]+)"([^>]*)>([^<]*)</text>')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*SCREENS, []], metavar="NAME", help=", ".join(SCREENS))
    parser.add_argument("--width", type=int, default=80)
    parser.add_argument("--into", type=Path, default=HERE)
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    if HOME.exists():
        parser.error(f"'{HOME}' exists: remove it")
    HOME.mkdir()
    try:
        shutil.copytree(VAULT, HOME / "bakery")
        for name, argv in SCREENS.items():
            if name == "query":
                run(("query", "what is said once is not in the pictures"), options.width)
            if name == "index" or not options.names or name in options.names:
                shown = run(argv, options.width)
                (options.into / f"{name}.svg").write_text(picture(argv, shown, options.width), "utf-8")
    finally:
        shutil.rmtree(HOME)
    return 0


def run(argv: tuple[str, ...], width: int) -> str:
    """What a command draws on a terminal of that width, with the name of its home replaced."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, width, 0, 0))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(HOME),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(HERE.parents[1]),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "qmd", "--no-pager", *argv],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=HOME,
        env=env,
    )
    os.close(follower)
    drawn = io.BytesIO()
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline and select.select([leader], [], [], deadline - time.monotonic())[0]:
        with contextlib.suppress(OSError):  # Linux says so when the last writer has gone
            if part := os.read(leader, 65536):
                drawn.write(part)
                continue
        break
    os.close(leader)
    if process.wait(timeout=10) not in (0, 1):
        raise SystemExit(f"qmd {' '.join(argv)} failed:\n{drawn.getvalue().decode()}")
    text = _NOT_DRAWN.sub(b"", drawn.getvalue()).decode().replace("\r\n", "\n")
    return text.replace(str(HOME), "/home/ana")


def picture(argv: tuple[str, ...], shown: str, width: int) -> str:
    """An SVG of a terminal with the command and what it drew; loads nothing from elsewhere."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    words = [f'"{word}"' if " " in word else word for word in argv]
    console.print(Text.assemble(("$ ", "green"), " ".join(["qmd", *words])), soft_wrap=True)
    console.print(Text.from_ansi(shown.rstrip("\n")))
    return _TEXT.sub(_as_wide_as_drawn, _WEB_FONT.sub("", console.export_svg(title="qmd", unique_id="qmd")))


def _as_wide_as_drawn(found: re.Match[str]) -> str:
    """The length of a text by its cells: rich counts characters, of which Chinese ones take two."""
    length, attributes, text = float(found[1]), found[2], unescape(found[3])
    return f'textLength="{length * cell_len(text) / max(len(text), 1):.1f}"{attributes}>{found[3]}</text>'


if __name__ == "__main__":
    sys.exit(main())
