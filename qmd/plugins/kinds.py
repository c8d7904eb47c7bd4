"""Kinds of files: a table from the ending of a name to its reader, which `qmd.plugins` has among its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """Kind of file; functions are places, `module:function`.

    Attributes:
        outline: Returns the `qmd.ingest.outline.Outline` of a text of this kind; also called by a search.
        decode: Returns the text of a file's bytes and warnings about them, or raises `qmd.errors.UnindexableFileError`.
            Later stages know the text alone.
        is_markdown: Whether the text has links and tags of markdown, and is shown as formatted markdown.
        is_source: Whether it is source code.
        version: Version of its reader: files that another version read are read again.
        place: Form of a place after a name in an address (`report.pdf:p12`), without its digits; empty if there are
            lines alone. Its headings have the same form; `!` means cells of a sheet, and `::` times.
        is_name: Whether only its name is indexed: no byte of such a file is read.
        is_bulky: Whether pictures may be most of its bytes: it has the limit of converted files.
        needs: Module of the extra `files` that `decode` imports; it runs in a process of its own.
    """

    outline: str
    decode: str = "qmd.ingest.document:decode_text"
    is_markdown: bool = False
    is_source: bool = False
    version: int = 0
    place: str = ""
    needs: str = ""
    is_bulky: bool = False
    is_name: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether the reader of these files is not installed."""
        if not self.needs:
            return False
        from importlib.util import find_spec

        return find_spec(self.needs) is None

    @property
    def is_converted(self) -> bool:
        """Whether the extra `files` makes the text of these files, in a process of its own."""
        return bool(self.needs) and not self.is_missing

    def bytes_read(self, size_bytes: int) -> int:
        """Return how many bytes are read of a file of this size."""
        return 0 if self.is_name or self.is_missing else size_bytes


_MARKDOWN = ".md .markdown .mdown .mkd .mkdn .mdx .mdwn .qmd .rmd .mdc .livemd"
_SOURCE = (
    ".py .pyi .pyw .ts .mts .cts .tsx .js .mjs .cjs .jsx .go .rs .java .c .h .cc .cpp .cxx .hh .hpp .hxx .cs .rb .php"
    " .sh .bash"
)

_NAMED = (
    ".png .jpg .jpeg .gif .webp .heic .tif .tiff .bmp .ico .avif .mp3 .m4a .wav .flac .ogg .opus .mp4 .mov .mkv .webm"
    " .avi .zip .gz .7z .doc .odt .ppt .odp .xls .ods .mobi .msg"
)
_PLAIN = ".txt .text .log .base .json .toml .yaml .yml"
_MADE_MARKDOWN = {
    ".html .htm .xhtml": "markup:read_html",
    ".canvas": "boards:read_canvas",
    ".csv .tsv": "lines:read_table",
    ".eml": "mail:read_mail",
    ".epub": "books:read_epub",
}
_CONVERTED = "pdf/p/pypdfium2 docx//mammoth pptx/slide/pptx xlsx/!/openpyxl"
_READERS, _OFFICE = "qmd.plugins.readers.", "qmd.plugins.office.converting"
_TITLED, _TEXT = f"{_READERS}texts:outline_titled", "qmd.ingest.outline:outline_text"
_TURNS = f"{_READERS}transcripts:"

KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(_MARKDOWN.split(), Kind("qmd.ingest.outline:outline_markdown", is_markdown=True, version=1)),
    ".org": Kind(f"{_READERS}outlines:outline_org", version=1),
    **dict.fromkeys((".rst", ".rest"), Kind(f"{_READERS}outlines:outline_rst", version=1)),
    **dict.fromkeys((".srt", ".vtt"), Kind(_TEXT, f"{_READERS}lines:read_subtitles", version=1, place="::")),
    **dict.fromkeys(_SOURCE.split(), Kind(_TEXT, is_source=True)),
    **dict.fromkeys(["", *_PLAIN.split()], Kind(_TEXT)),
    **dict.fromkeys(_NAMED.split(), Kind(_TEXT, f"{_READERS}texts:read_name", version=1, is_name=True)),
    **{
        suffix: Kind(_TITLED, _READERS + reader, is_markdown=True, version=1)
        for suffixes, reader in _MADE_MARKDOWN.items()
        for suffix in suffixes.split()
    },
    **{
        f".{name}": Kind(_TITLED, f"{_OFFICE}:read_{name}", is_markdown=True, version=1, place=place, needs=needs)
        for name, place, needs in (row.split("/") for row in _CONVERTED.split())
    },
    ".jsonl": Kind(f"{_TURNS}outline_transcript", f"{_TURNS}read_transcript", version=1, place="turn", is_bulky=True),
    ".ipynb": Kind(_TITLED, f"{_READERS}boards:read_notebook", is_markdown=True, version=2, place="cell"),
}
"""Ending of a file's name, in lower case -> its kind; files with other endings are text as well."""
