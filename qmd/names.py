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
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
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


def escape_bytes(text: str, start: str = "\\x") -> str:
    """`text` with its undecodable bytes written out behind `start`, and nothing else changed."""
    return text if text.isascii() else _BYTE.sub(lambda match: f"{start}{ord(match[0]) - 0xDC00:02X}", text)


def storable(text: str) -> str:
    """`text` from outside, in which nothing is left that no index or protocol can hold."""
    return text if text.isascii() else _HALF_CHARACTER.sub("\ufffd", escape_bytes(text))


def typed_text(argument: str) -> str:
    """An argument of the command line as text; one with undecodable bytes is a name as the system has it."""
    return argument if _HALF_CHARACTER.search(argument) is None else storable(to_text(argument))


def typed_path(path: str | Path) -> Path:
    """The file that a person means: a name as a shell completes it wins over what it may stand for."""
    literal = str(path)
    disk = to_disk(literal)
    return Path(literal if disk == literal or os.path.lexists(literal) else disk)
