"""What else lies in a folder of which the index takes nothing, or not all: asked to say so, hence within bounds."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from qmd.ingest.globs import compile_globs, parse_mask
from qmd.ingest.scan import NEVER_INDEXED
from qmd.names import to_disk, to_text
from qmd.records import Collection

_MOST_NAMES = 10_000
"""A tenth of a second on a local disk; what lies behind is not counted."""

_DOCUMENTS = "pdf doc docx odt rtf pages ppt pptx odp key xls xlsx ods numbers epub mobi one msg"
_MEDIA = "png jpg jpeg gif webp svg heic tif tiff bmp ico mp3 m4a wav flac ogg mp4 mov mkv webm avi"
_DATA = "zip gz bz2 xz 7z rar tar db sqlite exe dll so dylib bin iso dmg pyc class jar ttf woff2"
UNREADABLE = frozenset(f".{ending}" for ending in f"{_DOCUMENTS} {_MEDIA} {_DATA}".split())
"""Endings of files that hold no plain text."""


def count_kinds(folder: Path) -> Counter[str]:
    """How many files of each ending (`.txt`, or empty) lie in a folder, also deep in it."""
    return Counter(PurePosixPath(path).suffix for path in _walk(folder, ""))


def selected_files(collection: Collection, below: Sequence[str] = ("",), end: float | None = None) -> list[str]:
    """Paths in folders (with a `/` at the end, or empty) that the mask selects, also ignored, found until `end`."""
    wanted, excluded = map(compile_globs, parse_mask(collection.pattern))
    return [
        path
        for folder in below
        for path in _walk(collection.path, folder, end)
        if wanted.fullmatch(path) and not excluded.fullmatch(path)
    ]


def _walk(root: Path, prefix: str, end: float | None = None) -> Iterator[str]:
    """Paths of the files below a folder that could be indexed by their names."""
    todo, n_names = [prefix], 0
    while todo and (n_names < _MOST_NAMES if end is None else time.monotonic() < end):
        prefix = todo.pop()
        try:
            with os.scandir(root / to_disk(prefix)) as listing:
                entries = [entry for entry in listing if not entry.name.startswith(".")]
        except OSError:
            continue
        n_names += len(entries)
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = prefix + to_text(entry.name)
            if entry.is_dir(follow_symlinks=False):
                todo += [path + "/"] if entry.name not in NEVER_INDEXED else []
            # `is_dir` raises for a link into a folder that may not be entered.
            elif not (entry.is_symlink() and os.path.isdir(entry.path)):  # noqa: PTH112
                yield path
