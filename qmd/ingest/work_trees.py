"""Work trees of git: their tops, and the files that git tracks in them.

This module reads the index file of the work tree and runs no git. The settings of a cloned repository can name commands
for git to run, and a process for every scan would cost more than the scan of a small vault.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from functools import cached_property
from pathlib import Path

from qmd.file_names import to_disk
from qmd.files import read_regular_file

_MAX_BYTES = 64 * 1024 * 1024
"""Some six hundred thousand files."""

_HASH_BYTES = (20, 32)
"""Lengths of SHA-1 and SHA-256. The file does not contain which; with the wrong one the lengths of names do not fit."""


class WorkTree:
    """One work tree, seen from a collection.

    Args:
        top: Folder that contains `.git`.
        prefix: Path from there to the collection, `""` or `"docs/"`.
        depth: Length of the top's path inside the collection, 0 at or above its root.
    """

    def __init__(self, top: Path, prefix: str = "", depth: int = 0) -> None:
        self.top = top
        self._prefix = prefix
        self._depth = depth

    def tracks(self, path: str) -> bool:
        """Return whether git tracks the file, or something in the folder, at a path of the collection."""
        name = os.fsencode(to_disk(self._prefix + path[self._depth :]))
        at = bisect_left(self._tracked, name)
        if at < len(self._tracked) and self._tracked[at] == name:
            return True
        at = bisect_left(self._tracked, name + b"/", at)
        return at < len(self._tracked) and self._tracked[at].startswith(name + b"/")

    @cached_property
    def _tracked(self) -> list[bytes]:
        """Read at the first use: most work trees contain nothing that is both ignored and needed."""
        place = self.top / ".git"
        try:
            # In a submodule and a second work tree, the file `.git` names the folder.
            if not place.is_dir():
                named = read_regular_file(place, 8_192).decode("utf-8", "surrogateescape")
                place = self.top / named.removeprefix("gitdir:").strip()
            raw = read_regular_file(place / "index", _MAX_BYTES + 1)
        except (OSError, ValueError):
            return []
        return tracked_names(raw) if len(raw) <= _MAX_BYTES else []


def work_tree_around(root: Path) -> WorkTree | None:
    """Return the work tree that a folder is, or is in."""
    top = next((level for level in (root, *root.parents) if os.path.lexists(level / ".git")), None)
    if top is None:
        return None
    return WorkTree(top, "" if top == root else f"{root.relative_to(top).as_posix()}/")


def tracked_names(raw: bytes) -> list[bytes]:
    """Return the names in an index file of git, in order; none when it is damaged or of an unknown version.

    Source: git's Documentation/gitformat-index.
    """
    version = int.from_bytes(raw[4:8], "big")
    if raw[:4] != b"DIRC" or version not in (2, 3, 4):
        return []
    n_entries = int.from_bytes(raw[8:12], "big")
    for n_hash in _HASH_BYTES:
        names = _names(raw, n_entries, 40 + n_hash, is_packed=version == 4)
        if names is not None:
            return names
    return []


def _names(raw: bytes, n_entries: int, flags_at: int, *, is_packed: bool) -> list[bytes] | None:
    """Return the names of `n_entries`; None when an entry does not have its flags at the offset `flags_at`."""
    found: list[bytes] = []
    name, start = b"", 12
    for _ in range(n_entries):
        at = start + flags_at
        flags = int.from_bytes(raw[at : at + 2], "big")
        at += 4 if flags & 0x4000 else 2
        kept = 0
        if is_packed:
            dropped, at = _varint(raw, at)
            kept = len(name) - dropped
        end = raw.find(b"\0", at)
        # Longer names have the maximum as their length.
        if end < 0 or kept < 0 or min(kept + end - at, 0xFFF) != flags & 0xFFF:
            return None
        name = name[:kept] + raw[at:end]
        found.append(name)
        start = end + 1 if is_packed else start + (end - start + 8) // 8 * 8
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a number of git's variable length, and the index after it."""
    value = -1
    while at < len(raw):
        byte = raw[at]
        at += 1
        value = (value + 1) << 7 | byte & 0x7F
        if not byte & 0x80:
            break
    return max(value, 0), at
