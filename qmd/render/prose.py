"""Passages for a terminal: wrapped markdown without its marks, aligned tables, unchanged code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.analysis.scripts import has_unspaced
from qmd.escapes import visible
from qmd.ingest.markdown import MAX_MARKED_UP_CHARACTERS, plain_text
from qmd.ingest.outline import kind_of, outline_passage
from qmd.render.drawing import shorten, wrap
from qmd.render.note_marks import BOXES, CALLOUT, MATH, NOTE_MARK
from qmd.retrieval.layout import Layout

if TYPE_CHECKING:
    from rich.text import Text

    from qmd.retrieval.layout import Kind

Mark = Callable[["Text"], "Text"]
"""Function that colours the matches."""

_EDITOR_COLUMNS = range(50, 131)
"""Lengths of the longest line in paragraphs that an editor wrapped."""

_GAP = "  "
_ITEM = r"(?P<quote>[ \t>]*)(?P<mark>[-*+]|\d{1,9}[.)])[ \t]+(?P<task>\[[ xX]\][ \t]+)?"
_RULE = r"[ \t>]*(?:(?:[-*_=][ \t]*){3,}|#{1,6}[ \t]*)\Z"
"""A line that consists of marks."""

_TABLE_RULE = r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-*:?[ \t]*)*\Z"
_KEPT_MARKS = rf"(?<!`)(`{{1,3}})(?!`)(.{{1,200}}?)(?<!`)\1(?!`)|(?<!\\)(?:{MATH}|{NOTE_MARK})"
"""Inline code, formulas, references to footnotes, and highlights."""


class Block(Struct, frozen=True):
    """A block as rows of the screen, and its lines in the passage, from 0."""

    rows: Sequence[Text]
    first: int
    last: int
    heading: str = ""
    n_head: int = 0
    """Rows of a table's header, which are shown with any other row."""


def read_blocks(text: str, path: str, width: int, mark: Mark, *, is_code: bool = False) -> list[Block]:
    """Split a passage into blocks of rows of at most `width` columns; empty blocks are skipped.

    Args:
        path: Path of the file, which determines the format.
        width: Columns.
        is_code: Whether the passage is a part of fenced code.
    """
    shown = visible(text.replace("\r\n", "\n")).expandtabs(4)
    lines = shown.split("\n")
    if is_code:
        rows = _code_rows(lines, width, mark)
        return [Block([row], number, number) for number, row in enumerate(rows) if row.plain.strip()]
    outline = outline_passage(kind_of(path), shown)
    layout = Layout(shown, outline.headings, outline.fences, is_source=False)
    blocks: list[Block] = []
    formulas = _formula_lines(lines)
    for kind, first, last in _with_whole_tables(layout.blocks()):
        part = lines[first : last + 1]
        if kind == "text" and formulas.intersection(range(first, last + 1)):
            blocks += _with_formulas(part, first, formulas, width, mark)
            continue
        heading = layout.trail(first)[-1:] if kind == "heading" else ()
        rows = _rows(kind, part, heading[0] if heading else "", width, mark)
        if rows:
            has_header = kind == "row" and last > first and re.match(_TABLE_RULE, lines[first + 1]) is not None
            blocks.append(Block(rows, first, last, heading[0] if heading else "", int(has_header)))
    return blocks


def choose_rows(blocks: Sequence[Block], line: int, most: int, width: int) -> list[Text]:
    """Return at most `most` rows, of whole blocks around the block that contains `line`.

    A longer block is cut, with an ellipsis. A heading is shown with the block below it.
    """
    if not blocks:
        return []
    at = next((n for n, block in enumerate(blocks) if block.last >= line), len(blocks) - 1)
    if blocks[at].heading and at + 1 < len(blocks):
        at += 1
    low, high, n_left = at, at, most - len(blocks[at].rows)
    while n_left > 0:
        if high + 1 < len(blocks) and len(blocks[high + 1].rows) <= n_left and not blocks[high + 1].heading:
            high += 1
            n_left -= len(blocks[high].rows)
        elif low and len(blocks[low - 1].rows) <= n_left:
            low -= 1
            n_left -= len(blocks[low].rows)
        else:
            break
    if n_left < 0:
        n_head = min(blocks[at].n_head, most - 1)
        return [*blocks[at].rows[:n_head], *_cut(blocks[at].rows[n_head:], most - n_head, width)]
    return [row for block in blocks[low : high + 1] for row in block.rows]


def _formula_lines(lines: Sequence[str]) -> set[int]:
    """Return the lines, from 0, of formulas between two lines with `$$`."""
    marks = [number for number, line in enumerate(lines) if line.count("$$") % 2]
    pairs = zip(marks[::2], marks[1::2], strict=False)
    return {number for first, last in pairs for number in range(first, last + 1)}


def _with_formulas(lines: Sequence[str], first: int, formulas: set[int], width: int, mark: Mark) -> list[Block]:
    """Split a block into formulas, whose lines stay as written, and paragraphs."""
    from rich.text import Text

    blocks = []
    for is_formula, group in groupby(enumerate(lines, first), key=lambda line: line[0] in formulas):
        numbers, part = zip(*group, strict=True)
        rows = [row for line in part for row in wrap(mark(Text(line.strip(" >"))), width)] if is_formula else None
        rows = _prose_rows(part, width, mark) if rows is None else rows
        if rows:
            blocks.append(Block(rows, numbers[0], numbers[-1]))
    return blocks


def _cut(rows: Sequence[Text], most: int, width: int) -> list[Text]:
    """Return `most` rows, from about the first row with a match."""
    from rich.text import Text

    first = next((n for n, row in enumerate(rows) if any(span.style == "match" for span in row.spans)), 0)
    start = max(min(first - 1, len(rows) - most), 0)
    kept = [row.copy() for row in rows[start : start + most]]
    if start + most < len(rows):
        last = kept[-1]
        if last.cell_len > width - 2:
            last.right_crop(len(last) - max(last.plain.rfind(" ", 0, width - 2), width // 2 - 1))
        last.append(" …", "faint")
    if start:
        row = kept[0]
        while row.cell_len > width - 2:
            space = row.plain.find(" ", 0, len(row) // 2)
            row = row[max(space, 0) + 1 :]
        kept[0] = Text.assemble(("… ", "faint"), row)
    return kept


def _with_whole_tables(blocks: Iterable[tuple[Kind, int, int]]) -> list[tuple[Kind, int, int]]:
    """Join the rows of each table to one block."""
    found: list[tuple[Kind, int, int]] = []
    for kind, first, last in blocks:
        if kind == "row" and found and found[-1][0] == "row":
            found[-1] = (kind, found[-1][1], last)
        else:
            found.append((kind, first, last))
    return found


def _rows(kind: Kind, lines: Sequence[str], heading: str, width: int, mark: Mark) -> list[Text]:
    from rich.text import Text

    if kind == "blank":
        return []
    if kind == "heading":
        return wrap(mark(Text(heading, style="title")), width)
    if kind == "fence":
        code = [line for line in lines if line.strip() and not re.match(r"[ >]*(?:`{3,}|~{3,})", line)]
        return _code_rows(code, width, mark)
    if kind == "row" and max(map(len, lines)) <= MAX_MARKED_UP_CHARACTERS:
        return _table_rows(lines, width, mark)
    return _prose_rows(lines, width, mark)


def _code_rows(lines: Sequence[str], width: int, mark: Mark) -> list[Text]:
    from rich.text import Text

    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [shorten(mark(Text(line[indent:], style="code")), width) for line in lines]


def _table_rows(lines: Sequence[str], width: int, mark: Mark) -> list[Text]:
    """Align the columns of a table, cut the widest ones, and make a header bold."""
    from rich.text import Text

    rule = next((line for line in lines[1:2] if re.match(_TABLE_RULE, line)), None)
    rows = [[mark(_inline(cell)) for cell in _cells(line)] for line in lines if not re.match(_TABLE_RULE, line)]
    widths = _column_widths(rows, width)
    is_number = [re.match(r"[^:]*-:\Z", cell) is not None for cell in _cells(rule or "")]
    shown: list[Text] = []
    for row in rows:
        line = Text()
        for number, (cell, size) in enumerate(zip(row, widths, strict=False)):
            shorten(cell, size)
            cell.align("right" if is_number[number : number + 1] == [True] else "left", size)
            line.append_text(cell).append(_GAP)
        line.rstrip()
        shown.append(line)
    if rule is not None:
        shown[0].stylize_before("table.header")
    return [shorten(line, width) for line in shown]


def _column_widths(rows: Sequence[Sequence[Text]], width: int) -> list[int]:
    """Return the widths of the columns; the widest ones are reduced to fit."""
    n_columns = min(max((len(row) for row in rows), default=0), width // (len(_GAP) + 1))
    widths = [min(max(row[n].cell_len for row in rows if n < len(row)), width) for n in range(n_columns)]
    while sum(widths) + len(_GAP) * (n_columns - 1) > width and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    return widths


def _cells(line: str) -> list[str]:
    inner = line.strip(" \t>").removeprefix("|").removesuffix("|")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|(?![^\[]*\]\])", inner)]


def _prose_rows(lines: Sequence[str], width: int, mark: Mark) -> list[Text]:
    """Wrap a paragraph, a quotation, or an item of a list with its mark."""
    from rich.text import Text

    lead = ""
    first = lines[0]
    item = re.match(_ITEM, first)
    if item is not None:
        bullet = BOXES.get((item["task"] or "").strip(), "•" if item["mark"] in "-*+" else item["mark"])
        lead = " " * (len(item["quote"].replace(">", "")) // 2 * 2) + bullet + " "
        first = first[item.end() :]
    paragraphs = _joined([first, *lines[1:]])
    rows: list[Text] = []
    inner = max(width - len(lead), width // 2)
    lead = lead[-(width - inner) :] if lead else lead
    for paragraph in paragraphs:
        rows += wrap(mark(_inline(paragraph)), inner)
    return [Text(lead if not number else " " * len(lead)) + row for number, row in enumerate(rows)] if lead else rows


def _joined(lines: Sequence[str]) -> list[str]:
    """Remove the marks before lines of a paragraph, and join lines that an editor wrapped."""
    longest = max(map(len, lines))
    joined: list[str] = []
    before = ""
    for line in lines:
        bare = line.strip(" \t>")
        callout = None if joined or ">" not in line else re.match(CALLOUT, bare)
        if callout:
            bare = bare[callout.end() :] or callout[1].capitalize()
        if re.match(_RULE, line) or not bare:
            continue
        is_full = len(before) + len(bare.split(" ", 1)[0]) >= longest
        if before and longest in _EDITOR_COLUMNS and is_full and not bare.startswith("[^"):
            joined[-1] += bare if has_unspaced(joined[-1][-1] + bare[0]) else f" {bare}"
        else:
            joined.append(bare)
        # Two blanks or a backslash are an intended line break.
        before = "" if callout or line.endswith(("  ", "\\")) else line.rstrip()
    return joined


def _inline(text: str) -> Text:
    """Render a line: without marks of emphasis and links, with styles for code, footnotes and highlights."""
    from rich.text import Text

    if len(text) > MAX_MARKED_UP_CHARACTERS:
        return Text(text)
    kept: list[Text] = []

    def keep(found: re.Match[str]) -> str:
        sign = Text(found[0])
        if found["highlight"]:
            sign = _inline(found["highlight"])
            sign.stylize_before("markdown.mark")
        elif found["footnote"]:
            sign = Text(f"[{found['footnote']}]", "markdown.sup")
        elif found[2]:
            sign = Text(found[2].strip(), "code")
        kept.append(sign)
        return f"\ue010{len(kept) - 1}\ue011"

    shown = Text()
    plain = plain_text(re.sub(_KEPT_MARKS, keep, text), MAX_MARKED_UP_CHARACTERS)
    for number, part in enumerate(re.split("\ue010([0-9]{1,4})\ue011", plain)):
        if number % 2 == 0:
            # A character reference can encode a control character.
            shown.append(visible(part))
        elif int(part) < len(kept):
            shown.append_text(kept[int(part)])
    return shown
