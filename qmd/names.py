r"""Names of files as text, whatever bytes they are made of.

A file system takes any bytes; the index, YAML, JSON and every protocol take text. A `Path` here is what the system
knows, with Python's surrogates for bytes that are no UTF-8; a `str` is text, in which such a byte is written `\xE9`.
Practically all names are the same in both. Everything that turns one into the other calls this module.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_BYTE = re.compile("[\udc80-\udcff]")
_ESCAPE = re.compile(r"\\x([89A-F][0-9A-F]|5C)")
_AMBIGUOUS = re.compile(r"\\(?=x(?:[89A-F][0-9A-F]|5C))")
"""A backslash of the name itself that would be taken for the beginning of an escape."""


def to_text(name: str | Path) -> str:
    """A name as the system gives it, as text; `to_disk` turns it back."""
    name = str(name)
    if "\\" in name and os.sep != "\\":
        name = _AMBIGUOUS.sub(r"\\x5C", name)
    return escape_bytes(name)


def to_disk(name: str) -> str:
    """The system's name of what `to_text` calls `name`."""
    # Where a backslash parts folders no name needs escapes: there names are text already.
    if "\\" not in name or os.sep == "\\":
        return name
    return _ESCAPE.sub(lambda match: "\\" if match[1] == "5C" else chr(0xDC00 + int(match[1], 16)), name)


def escape_bytes(text: str) -> str:
    """`text` with its undecodable bytes written out, and nothing else changed."""
    return text if text.isascii() else _BYTE.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02X}", text)
