r"""File names as text, for any bytes they consist of.

A file system accepts any bytes; the index, YAML, JSON and every protocol need text. A `Path` is the name on disk, with
Python's surrogates for bytes that are not UTF-8; a `str` is text with such a byte written as `\xE9`. Nearly all names
are the same in both. This module contains every conversion between the two.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

# Kept as text: `re` compiles a pattern on first use, and most names need none.
_BYTE = "[\udc80-\udcff]"


_HALF_CHARACTER = "[\ud800-\udfff]"


_ESCAPE = r"\\x([89A-F][0-9A-F]|5C)"


_AMBIGUOUS = r"\\(?=x(?:[89A-F][0-9A-F]|5C))"
"""A backslash of the name itself that would look like the beginning of an escape."""


def to_text(name: str | Path) -> str:
    """Convert a name from the system to text; `to_disk` reverses it."""
    name = str(name)
    if "\\" in name and os.sep != "\\":
        name = re.sub(_AMBIGUOUS, r"\\x5C", name)
    return escape_bytes(name)


def folded_home(path: Path, home: Path) -> str:
    """Return `path` with the home folder as `~`."""
    if path == home:
        return "~"
    return to_text(f"~/{path.relative_to(home)}" if home != home.parent and path.is_relative_to(home) else path)


def to_disk(name: str) -> str:
    """Convert text from `to_text` back to the system's name."""
    # Where a backslash separates folders no name needs escapes: names are text already.
    if "\\" not in name or os.sep == "\\":
        return name
    return re.sub(_ESCAPE, lambda match: "\\" if match[1] == "5C" else chr(0xDC00 + int(match[1], 16)), name)


def escape_bytes(text: str, start: str = "\\x") -> str:
    """Replace undecodable bytes in `text` with hex digits after `start`; change nothing else."""
    return text if text.isascii() else re.sub(_BYTE, lambda match: f"{start}{ord(match[0]) - 0xDC00:02X}", text)


def storable(text: str) -> str:
    """Replace characters in outside `text` that no index or protocol can store."""
    return text if text.isascii() else re.sub(_HALF_CHARACTER, "\ufffd", escape_bytes(text))


def typed_text(argument: str) -> str:
    """Convert a command-line argument to text; undecodable bytes mean a name from the system."""
    is_text = argument.isascii() or re.search(_HALF_CHARACTER, argument) is None
    return argument if is_text else storable(to_text(argument))


def typed_path(path: str | Path) -> Path:
    """Return the file that a user means; a name as the shell completes it wins over its escaped meaning."""
    literal = str(path)
    disk = to_disk(literal)
    return Path(literal if disk == literal or os.path.lexists(literal) else disk)


def file_name(path: str) -> str:
    """Return the name of a file without folder and suffix, as a wiki link names the note."""
    name = path.rpartition("/")[2]
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name


def suffix_of(path: str) -> str:
    """Return the suffix of a file's name with its dot, in lower case; empty without one."""
    _, dot, ending = path.rpartition(".")
    return f".{ending.lower()}" if dot and ending.isascii() and ending.isalnum() else ""
