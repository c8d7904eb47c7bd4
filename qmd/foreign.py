"""Untrusted input from other programs: names that become paths, JSON files, words for messages.

Every path built from foreign words is built here: from model records and manifests, archives, graphs, a hub's answers
and other programs' lists. A checked name stays in its folder on every system.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from qmd.errors import ModelError
from qmd.escapes import one_line
from qmd.files import read_regular_file

_MAX_JSON_BYTES = 32 << 20
"""The vocabulary of a tokenizer has 11 MB; parsed as nested lists this much takes less than 1 GiB."""
_LONGEST_NAME = 180
"""In bytes; leaves space for a prefix and a suffix, as file systems allow 255."""
_MOST_FOLDERS = 8
_UNSAFE = frozenset('/\\:*?"<>|')
_DEVICES = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9¹²³]) *(\..*)?", re.IGNORECASE)
"""Names that Windows reserves for devices, with any suffix."""
_COMMIT = re.compile("[0-9a-f]{7,64}")
_MAX_SHOWN = 80
_READER_ERRORS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""Errors of a reader of numbers, lists and names when the file contains something else."""


def short(words: object) -> str:
    """Shorten foreign words to one line of at most 80 characters for a message."""
    return one_line(words, _MAX_SHOWN)


def is_name(words: str) -> bool:
    """Return whether words are a valid, printable name of one file or folder on every system."""
    is_plain = words.isprintable() and not _UNSAFE & set(words) and words == words.strip(" ").rstrip(".")
    return is_plain and 0 < len(words.encode()) <= _LONGEST_NAME and not _DEVICES.fullmatch(words)


def fold_name(words: str) -> str:
    """Fold a name so that names that some file system treats as one become equal."""
    return unicodedata.normalize("NFKC", words).casefold()


def commit_of(words: object) -> str | None:
    """Return the commit that a manifest or a hub names; None for anything else."""
    return words if isinstance(words, str) and _COMMIT.fullmatch(words) else None


def checked_path(words: str, source: str) -> str:
    """Check a foreign path of valid names between slashes. Raises a ModelError that names the source."""
    names = PurePosixPath(words).parts
    if not 0 < len(names) <= _MOST_FOLDERS or not all(map(is_name, names)):
        raise ModelError(f"'{source}' names '{short(words)}', which is not a file in its folder", "use another model")
    return "/".join(names)


def path_below(folder: Path, words: str, source: str) -> Path:
    """Return the place in a folder that a foreign path means, as `checked_path`; refuse links that lead out."""
    place = folder / checked_path(words, source)
    if place.parent != folder and not _resolve(place.parent).is_relative_to(_resolve(folder)):
        raise ModelError(f"'{short(words)}' in '{folder}' lies behind a link that leads out of it", "remove the link")
    return place


def file_below(folder: Path, words: str, source: str) -> Path:
    """Return a file in an untrusted folder, as `path_below`; refuse a missing file and a link out."""
    place, root = path_below(folder, words, source), _resolve(folder)
    # In the hub's cache the files of a version are links to `blobs`, next to `snapshots`.
    root = root.parents[1] if root.parent.name == "snapshots" else root
    if not _resolve(place).is_relative_to(root):
        raise ModelError(f"'{short(words)}' in '{source}' is a link that leads out of it", "copy the file itself")
    if not place.is_file():
        raise ModelError(f"'{short(words)}' is missing from '{source}'", "export or download it again")
    return place


def _resolve(path: Path) -> Path:
    return Path(os.path.realpath(path))


def read_json_file(path: Path, most: int = _MAX_JSON_BYTES) -> Any:
    """Return the content of a small JSON file; OSError or ValueError if it is invalid or larger than `most` bytes."""
    raw = read_regular_file(path, most + 1)
    if len(raw) > most:
        raise ValueError(f"it has more than {most >> 20} MiB")
    return parse_json(raw)


def parse_json(raw: bytes) -> Any:
    """Parse JSON; ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def map_file(path: Path) -> mmap.mmap:
    """Map a file into memory; OSError if it is not a regular file, ValueError if it is empty."""
    read_regular_file(path, 1)  # opening a pipe as below would wait forever
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Turn errors from reading a damaged or hostile file into a one-line ModelError; `source` is its name."""
    try:
        yield
    except _READER_ERRORS as exc:
        raise ModelError(f"'{source}' is damaged: {short(exc)}", "fetch or copy it again") from exc
