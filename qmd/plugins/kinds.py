"""Kinds of files: a table from the ending of a name to what reads it, which `qmd.plugins` has among its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of file; of each function the place, `module:function`.

    Attributes:
        outline: Of a text of this kind, the `qmd.ingest.outline.Outline`. A search asks for it, too.
        decode: Of a file's bytes, the text and what was wrong with them; it raises
            `qmd.errors.UnindexableFileError`. What follows it knows the text alone.
        is_markdown: Whether the text has the links and tags of markdown, and is shown as what its marks mean.
        is_source: Whether it is source code.
        version: Of what reads it: files that another version read are read again.
    """

    outline: str
    decode: str = "qmd.ingest.document:decode_text"
    is_markdown: bool = False
    is_source: bool = False
    version: int = 0


_MARKDOWN = ".md .markdown .mdown .mkd .mkdn .mdx .mdwn .qmd .rmd .mdc .livemd"
_SOURCE = (
    ".py .pyi .pyw .ts .mts .cts .tsx .js .mjs .cjs .jsx .go .rs .java .c .h .cc .cpp .cxx .hh .hpp .hxx .cs .rb .php"
    " .sh .bash"
)

_PLAIN = ".txt .text .log .base .json .toml .yaml .yml"
_MADE_MARKDOWN = {
    ".html .htm .xhtml": "markup:read_html",
    ".ipynb": "boards:read_notebook",
    ".canvas": "boards:read_canvas",
    ".csv .tsv": "lines:read_table",
    ".eml": "mail:read_mail",
    ".epub": "books:read_epub",
}
_READERS, _TEXT = "qmd.plugins.readers.", "qmd.ingest.outline:outline_text"

KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(_MARKDOWN.split(), Kind("qmd.ingest.outline:outline_markdown", is_markdown=True, version=1)),
    ".org": Kind(f"{_READERS}outlines:outline_org", version=1),
    **dict.fromkeys((".rst", ".rest"), Kind(f"{_READERS}outlines:outline_rst", version=1)),
    **dict.fromkeys((".srt", ".vtt"), Kind(_TEXT, f"{_READERS}lines:read_subtitles", version=1)),
    **dict.fromkeys(_SOURCE.split(), Kind(_TEXT, is_source=True)),
    **dict.fromkeys(["", *_PLAIN.split()], Kind(_TEXT)),
    **{
        suffix: Kind(f"{_READERS}texts:outline_titled", _READERS + reader, is_markdown=True, version=1)
        for suffixes, reader in _MADE_MARKDOWN.items()
        for suffix in suffixes.split()
    },
}
"""Ending of a file's name, in lower case -> what it is; anything else is text as well."""
