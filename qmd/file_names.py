r"""File names as text, for any bytes they consist of.

A file system takes any bytes; the index, YAML, JSON and every protocol take text. A `Path` is the name on disk, with
Python's surrogates for bytes that are not UTF-8; a `str` is text, in which such a byte is written `\xE9`. Nearly all
names are the same in both. Every conversion between the two is in this module.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

# Patterns are kept as text: `re` compiles one when a name first asks, and most names ask for none.
_BYTE = "[\udc80-\udcff]"


_HALF_CHARACTER = "[\ud800-\udfff]"


_ESCAPE = r"\\x([89A-F][0-9A-F]|5C)"


_AMBIGUOUS = r"\\(?=x(?:[89A-F][0-9A-F]|5C))"
"""A backslash of the name itself that would be taken for the beginning of an escape."""


def to_text(name: str | Path) -> str:
    """A name as the system gives it, as text; `to_disk` turns it back."""
    name = str(name)
    if "\\" in name and os.sep != "\\":
        name = re.sub(_AMBIGUOUS, r"\\x5C", name)
    return escape_bytes(name)


def to_disk(name: str) -> str:
    """The system's name of what `to_text` calls `name`."""
    # Where a backslash parts folders no name needs escapes: there names are text already.
    if "\\" not in name or os.sep == "\\":
        return name
    return re.sub(_ESCAPE, lambda match: "\\" if match[1] == "5C" else chr(0xDC00 + int(match[1], 16)), name)


def escape_bytes(text: str, start: str = "\\x") -> str:
    """`text` with its undecodable bytes written out behind `start`, and nothing else changed."""
    return text if text.isascii() else re.sub(_BYTE, lambda match: f"{start}{ord(match[0]) - 0xDC00:02X}", text)


def storable(text: str) -> str:
    """`text` from outside, in which nothing is left that no index or protocol can hold."""
    return text if text.isascii() else re.sub(_HALF_CHARACTER, "\ufffd", escape_bytes(text))


def typed_text(argument: str) -> str:
    """An argument of the command line as text; one with undecodable bytes is a name as the system has it."""
    is_text = argument.isascii() or re.search(_HALF_CHARACTER, argument) is None
    return argument if is_text else storable(to_text(argument))


def typed_path(path: str | Path) -> Path:
    """The file that a person means: a name as a shell completes it wins over what it may stand for."""
    literal = str(path)
    disk = to_disk(literal)
    return Path(literal if disk == literal or os.path.lexists(literal) else disk)


def file_name(path: str) -> str:
    """The name of a file without its folder and its ending: what a wiki link calls the note."""
    name = path.rpartition("/")[2]
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name


def suffix_of(path: str) -> str:
    """The ending of a file's name with its dot, lower case; empty without one."""
    _, dot, ending = path.rpartition(".")
    return f".{ending.lower()}" if dot and ending.isascii() and ending.isalnum() else ""
