"""A file's bytes → markdown: `read_pdf`, `read_docx`, `read_pptx` and `read_xlsx`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from html import escape
from io import BytesIO
from itertools import islice
from typing import Any
from zipfile import ZipFile

from qmd.errors import UnindexableFileError
from qmd.plugins import hooks

Decoded = tuple[str, tuple[str, ...]]

_MOST_CHARACTERS = 5_000_000
"""Limit of the HTML: more than an index stores of one file."""
_MOST_BYTES = 256 << 20
_MOST_PAGES, _MOST_ROWS, _MOST_COLUMNS = 10_000, 1 << 20, 100
_ROWS = 40
"""Rows of a sheet below one heading: about a screen."""

_NO_TITLE = re.compile(r"(?i)(?:(?:untitled|microsoft|powerpoint|slide 1\b|document\d*$).*|.*\.\w{2,5})?")
"""Placeholder titles that programs write."""


def read_pdf(path: str, raw: bytes) -> Decoded:
    """Return the lines of each page below a heading `p12`, with the file's title."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(raw)
    except pypdfium2.PdfiumError as exc:
        if "password" in str(exc).lower():
            raise _protected_error(path, "protected by a password") from exc
        raise
    text, warnings = _to_markdown(path, document.get_metadata_value("Title"), _pages(document))
    return text, warnings if "### p" in text else ("there is no text in it: its pages are pictures",)


def _pages(document: Any) -> Iterator[str]:
    from pypdfium2 import PdfiumError

    for number in range(min(len(document), _MOST_PAGES)):
        # A damaged page must not affect the others.
        with suppress(PdfiumError):
            # Parts of a word at the ends of two lines belong together.
            text = re.sub("[\x02\ufffe\xad]\\s*", "", document[number].get_textpage().get_text_range())
            yield f"<h3>p{number + 1}</h3><p>{_break_lines(text)}</p>" * bool(text.strip())


def read_docx(path: str, raw: bytes) -> Decoded:
    """Convert a Word file with its headings, lists, links, tables and footnotes, without pictures."""
    import mammoth

    file, no_picture = _open_archive(path, raw), mammoth.images.img_element(lambda _: {})
    made = mammoth.convert_to_html(file, convert_image=no_picture, style_map="p[style-name='Title'] => h1:fresh")
    return _to_markdown(path, "", [made.value])


def read_pptx(path: str, raw: bytes) -> Decoded:
    """Return texts, tables and notes of each slide below a heading `slide3`, with the title of the first slide."""
    from pptx import Presentation

    slides = Presentation(_open_archive(path, raw)).slides
    titles = (slide.shapes.title.text_frame.text for slide in islice(slides, 1) if slide.shapes.title is not None)
    parts = (f"<h3>slide{number}</h3>{''.join(_slide(slide))}" for number, slide in enumerate(slides, 1))
    return _to_markdown(path, next(titles, ""), parts)


def _slide(slide: Any) -> Iterator[str]:
    title, shapes = slide.shapes.title, [*slide.shapes][::-1]
    while shapes:
        shape = shapes.pop()
        if hasattr(shape, "shapes"):
            shapes += [*shape.shapes][::-1]
        elif shape.has_text_frame:
            mark = "h4" if title is not None and shape.shape_id == title.shape_id else "p"
            yield f"<{mark}>{_break_lines(shape.text_frame.text)}</{mark}>"
        elif getattr(shape, "has_table", False):
            yield _table([[cell.text for cell in row.cells] for row in shape.table.rows])
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        yield f"<blockquote>{_break_lines(slide.notes_slide.notes_text_frame.text)}</blockquote>"


def read_xlsx(path: str, raw: bytes) -> Decoded:
    """Return the visible sheets, each with 40 rows below a heading like `Sheet1!A1:F40` and its first row as head."""
    from openpyxl import load_workbook

    book = load_workbook(_open_archive(path, raw), read_only=True, data_only=True, keep_links=False)
    sheets = (sheet for sheet in book.worksheets if sheet.sheet_state == "visible")
    return _to_markdown(path, "", (part for sheet in sheets for part in _sheet(sheet)))


def _sheet(sheet: Any) -> Iterator[str]:
    from openpyxl.utils import get_column_letter

    # The size stated in a file may be wrong.
    sheet.reset_dimensions()
    values = sheet.iter_rows(max_row=_MOST_ROWS, max_col=_MOST_COLUMNS, values_only=True)
    filled = ((number, row) for number, row in enumerate(values, 1) if row.count(None) < len(row))
    rows = ((number, cells) for number, row in filled if any(cells := [*map(_cell_text, row)]))
    first: list[str] = []
    while block := [*islice(rows, _ROWS)]:
        width = max(n for _, cells in block for n, cell in enumerate(cells, 1) if cell)
        place = f"{sheet.title}!A{block[0][0]}:{get_column_letter(width)}{block[-1][0]}"
        table = [cells[:width] + [""] * (width - len(cells)) for cells in (first, *(cells for _, cells in block))]
        yield f"<h3>{escape(place)}</h3>{_table(table[not first :])}"
        first = first or block[0][1]


def _cell_text(value: object) -> str:
    """Return a cell as a person reads it."""
    if isinstance(value, datetime):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    return "" if value is None else str(value).removesuffix(".0" if isinstance(value, float) else "")


def _table(rows: list[list[str]]) -> str:
    return "".join(["<table>", *(f"<tr>{''.join(f'<td>{escape(cell)}' for cell in row)}" for row in rows), "</table>"])


def _break_lines(text: str) -> str:
    """Return text whose line breaks survive in HTML."""
    return "<br>".join(map(escape, text.splitlines()))


def _open_archive(path: str, raw: bytes) -> BytesIO:
    """Open a ZIP archive of bounded size."""
    if raw.startswith(b"\xd0\xcf\x11\xe0"):
        raise _protected_error(path, "protected by a password, or of a format from before 2007")
    size = sum(part.file_size for part in ZipFile(BytesIO(raw)).infolist())
    if size > _MOST_BYTES:
        message = f"'{path}' unpacks to {size:,} bytes, more than the limit of {_MOST_BYTES:,}"
        raise UnindexableFileError(message, "too_large", "exclude it with a .qmdignore file")
    return BytesIO(raw)


def _protected_error(path: str, why: str) -> UnindexableFileError:
    return UnindexableFileError(f"'{path}' cannot be read: it is {why}", "failed", "save an unprotected copy")


def _to_markdown(path: str, title: str, parts: Iterable[str]) -> Decoded:
    """Convert HTML, up to the limit of an index, to markdown."""
    title = " ".join(title[:1_000].split())
    # The byte order mark prevents words of the text from being read as an encoding.
    html, n_left = [f"\ufeff<title>{escape('' if _NO_TITLE.fullmatch(title) else title)}</title>"], _MOST_CHARACTERS
    for part in parts:
        html.append(part)
        n_left -= len(part)
        if n_left < 0:
            break
    raw = "".join(html).replace("\0", "").encode("utf-8", "replace")
    return hooks.read_html(path, raw)
