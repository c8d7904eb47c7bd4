"""Parts of drawn tables: columns without lines, elided paths, next commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from qmd.escapes import LONG_CHARS, one_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

MARKS = {"good": "✓", "warning": "!", "bad": "✗", "faint": "–"}
"""Style → the sign before a line, for readers without colours."""

_MIN_PATH_WIDTH = 12

_ELLIPSIS = "…"


def shown(text: str, style: str = "", link: str | None = None) -> Text:
    """Return foreign text on one line, with control characters escaped."""
    from rich.style import Style
    from rich.text import Text

    part = Text(one_line(text, LONG_CHARS), style)
    if link:
        part.stylize(Style(link=link))
    return part


def mark(style: str) -> Text:
    """Return the sign of a state: `good`, `warning`, `bad` or `faint`."""
    from rich.text import Text

    return Text(MARKS[style], style)


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class ElidedText:
    """A path that loses its middle in a narrow column; its folders are faint."""

    def __init__(self, path: str, link: str | None = None, style: str = "", *, is_path: bool = True) -> None:
        """Store the path, or another text on one line, and the style of its last part."""
        self._path, self._link, self._style = one_line(path), link, style
        self._is_path = is_path

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the narrowest useful width and the full width."""
        from rich.cells import cell_len
        from rich.measure import Measurement

        width = cell_len(self._path)
        return Measurement(min(width, _MIN_PATH_WIDTH), width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.style import Style
        from rich.text import Text

        text = (elide_path if self._is_path else elide)(self._path, options.max_width)
        line = Text(text, no_wrap=True, end="")
        name = line.plain.rstrip("/").rfind("/") + 1 if self._is_path else 0
        line.stylize("path", 0, name)
        line.stylize(self._style, name)
        if self._link:
            line.stylize(Style(link=self._link))
        yield line


def elide_path(path: str, width: int) -> str:
    """Shorten `path` to `width` columns; folders are dropped before the last name is cut."""
    from rich.cells import cell_len

    if cell_len(path) <= width:
        return path
    folders, _, name = path.rpartition("/")
    room = width - cell_len(name) - 2
    if folders and room >= 0:
        return f"{_prefix(folders, room)}{_ELLIPSIS}/{name}"
    return elide(name if cell_len(name) > width else path, width)


def elide(text: str, width: int) -> str:
    """Shorten `text` to `width` columns by an ellipsis in the middle; more of the end is kept."""
    from rich.cells import cell_len, get_character_cell_size

    if cell_len(text) <= width:
        return text
    start, end = (width - 1) // 3, width - 1 - (width - 1) // 3
    head = _prefix(text, start)
    kept = 0
    for position in range(len(text) - 1, -1, -1):
        end -= get_character_cell_size(text[position])
        if end < 0:
            break
        # A combining mark would attach to the ellipsis.
        kept = position if get_character_cell_size(text[position]) else kept
    return f"{head}{_ELLIPSIS}{text[kept:] if kept else ''}"


def _prefix(text: str, width: int) -> str:
    from rich.cells import get_character_cell_size

    for position, character in enumerate(text):
        width -= get_character_cell_size(character)
        if width < 0:
            return text[:position]
    return text


def tabulate(
    heads: Sequence[str], rows: Iterable[Sequence[RenderableType]], right: Sequence[str] = (), fold: Sequence[str] = ()
) -> Table:
    """Lay out rows in columns without lines, and skip empty columns.

    Args:
        heads: Heads of the columns; different numbers of blanks for a table without heads.
        rows: One cell for each column, or fewer.
        right: Heads of columns with numbers.
        fold: Heads of columns that can wrap or be elided; the others keep their width.
    """
    from rich.table import Table

    has_heads = bool("".join(heads).strip())
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="faint", show_header=has_heads)
    filled = [list(row) + [""] * (len(heads) - len(row)) for row in rows]
    used = [number for number in range(len(heads)) if any(row[number] != "" for row in filled)]
    for head in (heads[number] for number in used):
        drawn.add_column(head, justify="right" if head in right else "left", no_wrap=head not in fold)
    for row in filled:
        drawn.add_row(*(row[number] for number in used))
    return drawn


def facts(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Lay out (name, value) rows."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="faint", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, value)
    return table


def heading(text: str, more: str = "") -> Text:
    """Return the title of a table, with `more` after it in a faint style."""
    from rich.text import Text

    return Text.assemble(shown(text, "title"), *(("  ", shown(more, "faint")) if more else ()))


def state(style: str, text: str) -> Text:
    """Return `text` after the coloured sign of a state."""
    from rich.text import Text

    return Text.assemble(mark(style), " ", shown(text))


def indented(part: RenderableType) -> RenderableType:
    from rich.padding import Padding

    return Padding(part, (0, 0, 0, 2), expand=False)


def in_index(command: str, index_name: str) -> str:
    """Return a command for an index, quoted for a shell."""
    import shlex

    return command if index_name == "index" else f"{command} --index {shlex.quote(index_name)}"
