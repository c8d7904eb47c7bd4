"""Makes the moving picture of the README from a real run of the full screen: `python docs/pictures.py`.

Somebody types, chooses and looks around in the notes of the tutorial. Each change of the screen becomes a frame of one
SVG, which shows them in turn by styles alone: it runs no script, loads nothing, and stands still for whoever asks for
less motion.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from textual.pilot import Pilot
from textual.widgets import Label

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "screens"))

import make  # noqa: E402

import qmd  # noqa: E402
from qmd.app.searching import SearchRequest  # noqa: E402
from qmd.plugins.browse.app import BrowseApp  # noqa: E402

PICTURE = HERE / "images" / "browse.svg"
COLUMNS, ROWS = 100, 28
CELL, LINE, EDGE = 8.4, 18.0, 10.0
"""Pixels: a cell's width, a row's height, and what stands around the screen."""

QUESTION = "how do I restore a backup?"
STEPS: tuple[tuple[str, float], ...] = (
    ("", 1.2),
    *((key, 0.12) for key in QUESTION),
    ("reranked", 2.6),
    ("ctrl+n", 1.2),
    ("ctrl+n", 1.8),
    ("ctrl+p", 0.6),
    ("ctrl+p", 1.2),
    ("right", 1.6),
    ("down", 1.0),
    ("escape", 0.8),
    ("tab", 2.4),
    ("escape", 0.6),
    ("f1", 3.0),
    ("escape", 1.4),
)
"""Keys, and for how many seconds the screen is then shown."""


def main() -> None:
    make.HOME.mkdir()
    try:
        shutil.copytree(make.VAULT, make.HOME / "bakery")
        make.run(make.SCREENS["index"], 80)
        frames = asyncio.run(film())
    finally:
        shutil.rmtree(make.HOME)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(moving_picture(frames), "utf-8")


async def film() -> list[tuple[list[str], float]]:
    """The rows of the screen and for how long they are shown, step by step; a screen that stays is shown for longer."""
    frames: list[tuple[list[str], float]] = []
    with qmd.open_index(environ=make._environment()) as index:
        app = BrowseApp(index, SearchRequest("", mode="hybrid", limit=30), open_note=print, link=str)
        async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
            await pilot.pause(1)
            for key, seconds in STEPS:
                await press(pilot, key)
                rows = [draw_row(strip, app) for strip in app.screen._compositor.render_strips()]
                if frames and frames[-1][0] == rows:
                    frames[-1] = rows, frames[-1][1] + seconds
                else:
                    frames.append((rows, seconds))
    return frames


async def press(pilot: Pilot[object], key: str) -> None:
    """Press a key, or wait for the last answer."""
    status = pilot.app.query_one("#status", Label)
    if key == "reranked":
        await make._until(lambda: str(status.content).startswith(key))
    elif key:
        await pilot.press({" ": "space", "?": "question_mark"}.get(key, key))
    # The note beside the list is read a moment later.
    await pilot.pause(0.08 if len(key) == 1 else 0.6)


def draw_row(strip: list[Segment], app: BrowseApp) -> str:
    """A row of the screen as elements of SVG, at the top left."""
    parts, x = [], 0.0
    for text, style, _ in strip:
        width = cell_len(text) * CELL
        ground = colour(style.bgcolor, app) if style and style.bgcolor else ""
        ink = colour(style.color, app) if style and style.color else ""
        if style and style.reverse:
            ground, ink = ink, ground
        if ground and ground != colour(app.screen.rich_style.bgcolor, app):
            parts.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="{LINE}" fill="{ground}"/>')
        if text.strip():
            looks = "".join(" " + one for one in looks_of(style))
            parts.append(
                f'<text x="{x:.1f}" y="13.5" textLength="{width:.1f}" fill="{ink}"{looks}>{escape(text)}</text>'
            )
        x += width
    return "".join(parts)


def looks_of(style: object) -> Iterator[str]:
    """Attributes for weight, slant and lines."""
    for name, attribute in (
        ("bold", 'font-weight="bold"'),
        ("italic", 'font-style="italic"'),
        ("underline", 'text-decoration="underline"'),
    ):
        if getattr(style, name, False):
            yield attribute


def colour(one: Color | None, app: BrowseApp) -> str:
    """A colour as SVG writes it."""
    return one.get_truecolor(app.ansi_theme).hex if one is not None else ""


def moving_picture(frames: list[tuple[list[str], float]]) -> str:
    """One SVG of all frames; a row that several have stands in it once."""
    length = sum(seconds for _, seconds in frames)
    names: dict[str, str] = {}
    styles, groups, began = [], [], 0.0
    still = max(range(len(frames)), key=lambda number: frames[number][1] if number < len(frames) - 2 else 0)
    for number, (rows, seconds) in enumerate(frames):
        uses = [
            f'<use href="#{names.setdefault(row, f"r{len(names)}")}" y="{at * LINE:.0f}"/>'
            for at, row in enumerate(rows)
            if row
        ]
        first, last = 100 * began / length, 100 * (began + seconds) / length
        before = "0%{opacity:0}" if number else ""
        styles.append(f"@keyframes k{number}{{{before}{first:.2f}%{{opacity:1}}{last:.2f}%{{opacity:0}}}}")
        styles.append(f"#f{number}{{animation:k{number} {length:.1f}s step-end infinite}}")
        groups.append(f'<g id="f{number}" class="{"still" if number == still else "frame"}">{"".join(uses)}</g>')
        began += seconds
    width, height = COLUMNS * CELL + 2 * EDGE, ROWS * LINE + 2 * EDGE
    rows_drawn = "".join(f'<g id="{name}">{row}</g>' for row, name in names.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
        "<title>qmd browse: a question is typed, notes come up, one is read, its links are followed</title>"
        "<style>text{white-space:pre}.frame{opacity:0}"
        f"{''.join(styles)}@media(prefers-reduced-motion:reduce){{g{{animation:none!important}}}}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#121212"/><defs>{rows_drawn}</defs>'
        f'<g transform="translate({EDGE} {EDGE})" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14">'
        f"{''.join(groups)}</g></svg>\n"
    )


if __name__ == "__main__":
    main()
