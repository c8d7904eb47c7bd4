"""Makes the pictures of the documentation from real runs: `python docs/screens/make.py [NAME…]`.

Each command runs over the notes of the tutorial, in an empty home. What it draws on a terminal of its own (a pty)
becomes an SVG, as does the full screen of `browse`; the page of `serve` becomes a PNG. `--width` tries another size of
the terminal, `--into` another folder.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import io
import os
import pty
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode

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
    "browse": ("browse", "how do I restore a backup?"),
    "serve": ("serve",),
}
"""The arguments of each picture, in the order in which they run; the first one makes the index of the others."""

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

_BROWSE_SIZE = (110, 30)
_PAGE_SIZE = (1060, 500)
_PAGE = {"q": "how do I restore a backup?", "note": "qmd://bakery/Reference/Backups.md", "line": "10"}
"""What the page of `serve` shows."""

_NEEDS = {"serve": ("playwright",)}
"""What is not part of every installation."""

_HEIGHT = 60
_TIMEOUT_S = 120
_WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_NAMES = re.compile(r"terminal-\d+")
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
                _make(name, argv, options.width, options.into)
    finally:
        shutil.rmtree(HOME)
    return 0


def _make(name: str, argv: tuple[str, ...], width: int, into: Path) -> None:
    """Write one picture, or say why it stays as it is."""
    if missing := [what for what in _NEEDS.get(name, ()) if not find_spec(what)]:
        print(f"{name}: left as it is, {missing[0]} is not installed")
    elif name == "serve" and CHROMIUM is None:
        print(f"{name}: left as it is, no chromium is installed")
    elif name == "serve":
        photograph_page(into / f"{name}.png")
    elif name == "browse":
        (into / f"{name}.svg").write_text(asyncio.run(full_screen(argv[1])), "utf-8")
    else:
        (into / f"{name}.svg").write_text(picture(argv, run(argv, width), width), "utf-8")


def run(argv: tuple[str, ...], width: int) -> str:
    """What a command draws on a terminal of that width, with the name of its home replaced."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, width, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "qmd", "--no-pager", *argv],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=HOME,
        env=_environment(),
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


def _environment() -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(HOME),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(HERE.parents[1]),
    }


async def full_screen(question: str) -> str:
    """An SVG of `browse` with the last answer to a question."""
    from textual.widgets import Label

    import qmd
    from qmd.app.searching import SearchRequest
    from qmd.plugins.browse.app import BrowseApp

    with qmd.open_index(environ=_environment()) as index:
        request = SearchRequest(question, mode="hybrid", limit=30)
        app = BrowseApp(index, request, open_note=print, link=str)
        async with app.run_test(size=_BROWSE_SIZE) as pilot:
            status = app.query_one("#status", Label)
            await _until(lambda: str(status.content).startswith("reranked"))
            await pilot.pause(0.5)  # the note beside the list is read a moment later
            return _clean(app.export_screenshot(title="qmd browse"))


async def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("browse gave no answer")
        await asyncio.sleep(0.05)


def photograph_page(file: Path) -> None:
    """Write a picture of the page of `serve`, light."""
    from playwright.sync_api import sync_playwright

    with _serving() as address, sync_playwright() as driver:
        # Without a sandbox of its own, which containers do not let it have: the only page is ours.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        width, height = _PAGE_SIZE
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
        page.goto(f"{address}/?{urlencode(_PAGE)}")
        page.wait_for_selector("body:not(.busy) #note header")
        page.screenshot(path=file)
        browser.close()


@contextlib.contextmanager
def _serving() -> Iterator[str]:
    """The address of a server, until it is no longer needed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "qmd", "serve", "--port", str(port)]
    process = subprocess.Popen(command, cwd=HOME, env=_environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()  # it prints its address when it answers
        yield f"http://localhost:{port}"
    finally:
        process.terminate()
        process.wait(timeout=10)


def picture(argv: tuple[str, ...], shown: str, width: int) -> str:
    """An SVG of a terminal with the command and what it drew; loads nothing from elsewhere."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    words = [f'"{word}"' if " " in word else word for word in argv]
    console.print(Text.assemble(("$ ", "green"), " ".join(["qmd", *words])), soft_wrap=True)
    console.print(Text.from_ansi(shown.rstrip("\n")))
    return _clean(console.export_svg(title="qmd", unique_id="qmd"))


def _clean(svg: str) -> str:
    """A picture that loads no fonts, with texts as wide as they were drawn and names that are the same each time."""
    return _TEXT.sub(_as_wide_as_drawn, _NAMES.sub("qmd", _WEB_FONT.sub("", svg)))


def _as_wide_as_drawn(found: re.Match[str]) -> str:
    """The length of a text by its cells: rich counts characters, of which Chinese ones take two."""
    length, attributes, text = float(found[1]), found[2], unescape(found[3])
    return f'textLength="{length * cell_len(text) / max(len(text), 1):.1f}"{attributes}>{found[3]}</text>'


if __name__ == "__main__":
    sys.exit(main())
