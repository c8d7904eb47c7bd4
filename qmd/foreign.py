"""What others wrote, as far as it may be believed: names that become paths, files of JSON, words that are shown.

Every path that is made of foreign words is made here: of the records and manifests of models that came from elsewhere,
of what archives hold, of graphs, of a hub's answers and of other programs' lists. A checked name stays in its folder on
every system.
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
from qmd.files import read_regular_file

_MAX_JSON_BYTES = 32 << 20
"""The vocabulary of a tokenizer has 11 MB; as lists in lists this much takes less than a GiB."""
_LONGEST_NAME = 180
"""Bytes, so that there is room for what is put before and behind it: file systems take 255."""
_MOST_FOLDERS = 8
_UNSAFE = frozenset('/\\:*?"<>|')
_DEVICES = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9¹²³]) *(\..*)?", re.IGNORECASE)
"""What Windows takes for a device, with any ending."""
_COMMIT = re.compile("[0-9a-f]{7,64}")
_SHOWN = 80
_SURPRISES = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What a reader of numbers, lists and names meets where the file holds something else."""


def short(words: object) -> str:
    """Foreign words for a message: one line of at most 80 characters."""
    text = str(words)
    text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def is_name(words: str) -> bool:
    """Whether words can be the name of one file or folder on every system, and be shown."""
    is_plain = words.isprintable() and not _UNSAFE & set(words) and words == words.strip(" ").rstrip(".")
    return is_plain and 0 < len(words.encode()) <= _LONGEST_NAME and not _DEVICES.fullmatch(words)


def folded(words: str) -> str:
    """What names have in common that some file system takes for one."""
    return unicodedata.normalize("NFKC", words).casefold()


def commit_of(words: object) -> str | None:
    """The commit that a manifest or a hub names; None for anything else."""
    return words if isinstance(words, str) and _COMMIT.fullmatch(words) else None


def checked_path(words: str, source: str) -> str:
    """A foreign path that leads down: checked names between slashes. Raises a ModelError, which names the source."""
    names = PurePosixPath(words).parts
    if not 0 < len(names) <= _MOST_FOLDERS or not all(map(is_name, names)):
        raise ModelError(f"'{source}' names '{short(words)}', which is no file of its folder", "use another model")
    return "/".join(names)


def path_below(folder: Path, words: str, source: str) -> Path:
    """The place in a folder that a foreign path means, as `checked_path`; no link on the way may lead out."""
    place = folder / checked_path(words, source)
    if place.parent != folder and not _real(place.parent).is_relative_to(_real(folder)):
        raise ModelError(f"'{short(words)}' in '{folder}' lies behind a link that leads out of it", "remove the link")
    return place


def file_below(folder: Path, words: str, source: str) -> Path:
    """The file in a folder that a stranger filled, as `path_below`; one that is missing or a link out is refused."""
    place, root = path_below(folder, words, source), _real(folder)
    # In the hub's cache the files of a version are links to `blobs`, beside `snapshots`.
    root = root.parents[1] if root.parent.name == "snapshots" else root
    if not _real(place).is_relative_to(root):
        raise ModelError(f"'{short(words)}' in '{source}' is a link that leads out of it", "copy the file itself")
    if not place.is_file():
        raise ModelError(f"'{short(words)}' is missing from '{source}'", "export or download it again")
    return place


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def read_json_file(path: Path, most: int = _MAX_JSON_BYTES) -> Any:
    """What a small file of JSON holds; OSError or ValueError where it is none of at most so many bytes."""
    raw = read_regular_file(path, most + 1)
    if len(raw) > most:
        raise ValueError(f"it has more than {most >> 20} MiB")
    return parse_json(raw)


def parse_json(raw: bytes) -> Any:
    """What JSON holds; ValueError where it is none, or is nested too deeply."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def map_file(path: Path) -> mmap.mmap:
    """The bytes of a file, read when looked at; OSError where it is no regular file, ValueError where it is empty."""
    read_regular_file(path, 1)  # opening a pipe as below would wait for ever
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Turn what a damaged or hostile file makes of its reader into a ModelError of one line; `source` is its name."""
    try:
        yield
    except _SURPRISES as exc:
        raise ModelError(f"'{source}' is damaged: {short(exc)}", "fetch or copy it again") from exc
