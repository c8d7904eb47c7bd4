"""Subtitles as timed paragraphs, and comma-separated values as markdown tables."""

from __future__ import annotations

import csv
import re
from io import StringIO

from qmd.ingest.document import decode_text
from qmd.plugins.readers.markup import escape, expand
from qmd.plugins.readers.texts import Decoded, join_parts, table_lines

_TIME = re.compile(r"\s*(?:(\d{1,3}):)?(\d\d?):(\d\d)[.,]\d{1,3}[ \t]++-->[ \t]++(?:(\d{1,3}):)?(\d\d?):(\d\d)[.,]\d")
_SPEAKER = re.compile(r"<v(?:\.[^\s<>]{0,100})?[ \t]([^<>\n]{1,100})>")
_MARKS = re.compile(r"<[^<>\n]{0,200}>|\{\\[^{}\n]{0,200}\}")
_MOST, _PAUSE = 600, 4
"""Characters of a paragraph, or seconds of silence, after which the next line begins a new timed paragraph."""


def read_subtitles(path: str, raw: bytes) -> Decoded:
    """Return the spoken text in paragraphs that begin with their time: `[00:12:40] And now …`."""
    text, warnings = decode_text(path, raw)
    paragraphs: list[list[str]] = []
    size, until, last, is_explicit = 0, 0, "", False
    for line in text.splitlines():
        if time := _TIME.match(line):
            hours, minutes, seconds, *end = (int(one or 0) for one in time.groups())
            if not paragraphs or size > _MOST or hours * 3600 + minutes * 60 + seconds >= until + _PAUSE:
                paragraphs.append([f"[{hours:02}:{minutes:02}:{seconds:02}]"])
                size = 0
            until, is_explicit = end[0] * 3600 + end[1] * 60 + end[2], True
        is_explicit = is_explicit and line.strip() != ""
        words = " ".join(expand(_MARKS.sub("", _SPEAKER.sub(r"\1: ", line))).split())
        # Rolling captions repeat a line until the next one appears.
        if is_explicit and not time and words not in ("", last):
            paragraphs[-1].append(words)
            size, last = size + len(words), words
    return join_parts((" ".join(one) for one in paragraphs if len(one) > 1), warnings)


def read_table(path: str, raw: bytes) -> Decoded:
    """Return the rows of a table, one per line after its head; as written if the columns are unclear."""
    text, warnings = decode_text(path, raw)
    delimiter = "\t" if path.lower().endswith(".tsv") else max(",;\t|", key=text.partition("\n")[0].count)
    rows = csv.reader(StringIO(text, newline=""), delimiter=delimiter)
    try:
        lines = table_lines([escape(cell).strip() for cell in row] for row in rows if row)
    except csv.Error as exc:
        return join_parts([text], (*warnings, f"read as plain text: {exc}"))
    return join_parts(lines, warnings, "\n")
