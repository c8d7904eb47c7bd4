"""Documents drawn for a terminal: rendered notes, coloured source files, numbered lines.

`qmd.render.formats` has the forms for programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.app.records import DocumentText
from qmd.escapes import visible
from qmd.ingest.outline import kind_of
from qmd.records import StoredDocument
from qmd.render.columns import ElidedText, shown, state
from qmd.render.drawing import Screen, draw, paint
from qmd.render.listings import listing_time
from qmd.render.markdown import code_theme, render_markdown
from qmd.render.note_marks import AddressOf
from qmd.render.terminal import Styled, join_styled
from qmd.render.text import human_size

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_MARKDOWN, MAX_CODE = 200_000, 60_000
"""Characters that are rendered in about two seconds; longer text is shown unformatted."""


class Page(Struct, frozen=True):
    """A document for a terminal."""

    document: StoredDocument
    name: str
    """Collection and path, or another name."""
    context: str | None
    text: DocumentText | None = None
    """None if the document is skipped."""
    reason: str = ""
    """Reason for skipping it."""
    link: str | None = None
    """Target of a click on the name."""
    address_of: AddressOf = lambda target: None
    """Resolves links to notes."""


def draw_pages(screen: Screen, pages: Sequence[Page], now: datetime, *, line_numbers: bool = True) -> Styled:
    """Draw documents one after another, each with a header.

    Selected lines have the numbers of the file. Limits on rendered text apply to all documents together; the rest is
    unformatted.
    """
    parts: list[str] = []
    before = 0
    for page in pages:
        parts += ["\n"] if parts else []
        parts.append(draw(screen, *_header(screen, page, now)))
        if page.text is None:
            parts.append(draw(screen, state("warning", page.reason)))
            continue
        parts.append(_text(screen, page, page.text, before, line_numbers))
        before += len(page.text.text)
    return join_styled(parts)


def is_rendered(found: DocumentText) -> bool:
    """Return whether a document is shown as rendered markdown: a whole note that is not too long."""
    return found.is_whole and kind_of(found.document.path).is_markdown and len(found.text) <= MAX_MARKDOWN


def _text(screen: Screen, page: Page, found: DocumentText, before: int, line_numbers: bool) -> Styled:
    text = found.text.replace("\r\n", "\n")
    text = text.removesuffix("\n") if found.is_whole else text
    path, n_characters = page.document.path, before + len(text)
    if not kind_of(path).is_markdown:
        is_short = n_characters <= MAX_CODE
        return _code(screen, path, text, found.first_line, line_numbers) if is_short else _lines(screen, text, found)
    if not is_rendered(found) or n_characters > MAX_MARKDOWN:
        return _lines(screen, text, found)
    body = render_markdown(text, page.address_of, hyperlinks=screen.colours is not None)
    # Rich puts an empty line before lists and tables, also at the start.
    return Styled(draw(Screen(screen.text_width, screen.height, screen.colours), *body).lstrip("\n"))


def _header(screen: Screen, page: Page, now: datetime) -> list[RenderableType]:
    """Return name, docid, date, size, time of the last change, context and a line."""
    from rich.rule import Rule
    from rich.table import Table

    document = page.document
    name = Table.grid(padding=(0, 2, 0, 0))
    name.add_column()
    name.add_column(no_wrap=True)
    name.add_row(ElidedText(page.name, page.link, "title"), shown(document.docid, "faint"))
    facts = [human_size(document.size), f"changed {listing_time(document.modified_at, now)}"]
    rows: list[RenderableType] = [name, shown(" · ".join(filter(None, (document.date, *facts))), "faint")]
    if page.context:
        rows += [shown(line, "markdown.block_quote") for line in page.context.split("\n") if line.strip()]
    return [*rows, Rule(characters="─", style="rule.line"), ""]


def _code(screen: Screen, path: str, text: str, first_line: int, line_numbers: bool) -> Styled:
    """Draw a source file in the colours of its language."""
    from rich.syntax import Syntax

    syntax = Syntax(
        visible(text),
        Syntax.guess_lexer(path),
        theme=code_theme(),
        line_numbers=line_numbers,
        start_line=first_line,
        word_wrap=True,
    )
    return draw(screen, syntax)


def _lines(screen: Screen, text: str, found: DocumentText) -> Styled:
    """Number unformatted lines, which the terminal wraps; hundreds of thousands take about a second."""
    lines = visible(text).split("\n")
    width = len(str(found.first_line + len(lines) - 1))
    before, after = paint(screen, "N", "faint").split("N")
    numbered = enumerate(lines, found.first_line)
    return Styled("".join(f"{before}{number:>{width}}  {after}{line}\n" for number, line in numbered))
