"""Jupyter notebooks and Obsidian's canvases: JSON files that contain markdown."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from msgspec import Struct

from qmd.errors import UnindexableFileError
from qmd.plugins.readers.texts import Decoded, fence_code, join_parts, one_line

_MOST_LINES, _MOST_CHARACTERS = 30, 4_000
"""Characters kept of one output: its beginning identifies it."""

_T = TypeVar("_T")
_Text = str | list[str]


class _Forms(Struct, frozen=True, rename={"plain": "text/plain"}):
    plain: _Text = ""


class _Output(Struct, frozen=True):
    text: _Text = ""
    data: _Forms = _Forms()
    ename: str = ""
    evalue: str = ""


class _Cell(Struct, frozen=True):
    cell_type: str = ""
    source: _Text = ""
    outputs: list[_Output] = []


class _Language(Struct, frozen=True):
    name: str = "python"


class _Metadata(Struct, frozen=True):
    language_info: _Language = _Language()


class _Notebook(Struct, frozen=True):
    cells: list[_Cell]
    metadata: _Metadata = _Metadata()


class _Card(Struct, frozen=True):
    text: str = ""
    file: str = ""
    subpath: str = ""
    url: str = ""
    label: str = ""
    x: float = 0
    y: float = 0


class _Canvas(Struct, frozen=True):
    nodes: list[_Card] = []
    edges: list[_Card] = []


def _parse(path: str, raw: bytes, form: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf") or b"{}", type=form)
    except (ValueError, RecursionError) as exc:
        message = f"'{path}' cannot be read as {what}: {one_line(str(exc), 100)}"
        raise UnindexableFileError(message, "failed", "exclude it with a .qmdignore file") from exc


def read_notebook(path: str, raw: bytes) -> Decoded:
    """Return the cells of a notebook: markdown as it is, code between fences, and the beginning of the output."""
    notebook = _parse(path, raw, _Notebook, "a notebook")
    language = re.sub(r"[^\w+#-]", "", notebook.metadata.language_info.name[:30])
    parts: list[str] = []
    for number, cell in enumerate(notebook.cells, 1):
        source = "".join(cell.source).strip("\n")
        # The lowest level, which ends no section of the notebook's own.
        parts += [f"###### cell{number}"] * bool(source)
        parts.append(fence_code(source, language) if cell.cell_type == "code" and source else source)
        parts += [fence_code(text, "text") for text in map(_output_text, cell.outputs) if text.strip()]
    return join_parts(parts)


def _output_text(output: _Output) -> str:
    """Return the text of an output, cut; of an error its name and message."""
    text = f"{output.ename}: {output.evalue}" if output.ename else "".join(output.text or output.data.plain)
    kept = text[:_MOST_CHARACTERS].splitlines()[:_MOST_LINES]
    return "\n".join([*kept, *["…"] * (len(text) > _MOST_CHARACTERS or text.count("\n") > _MOST_LINES)])


def read_canvas(path: str, raw: bytes) -> Decoded:
    """Return the cards of a canvas from top to bottom: texts, links to notes and pages, names of groups and arrows."""
    canvas = _parse(path, raw, _Canvas, "a canvas")
    cards = sorted(canvas.nodes, key=lambda card: (card.y, card.x))
    return join_parts(_card(card) for card in (*cards, *canvas.edges))


def _card(card: _Card) -> str:
    if card.file:
        return f"[[{re.sub(r'[][|]', ' ', one_line(card.file + card.subpath))}]]"
    return card.text.strip("\n") or (f"<{one_line(card.url)}>" if card.url else one_line(card.label))
