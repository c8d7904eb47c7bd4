"""Work trees of git: where one begins, and which files git tracks in it.

The index file of the work tree is read here and no git is run. The settings of a cloned repository can name commands
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
"""Of SHA-1 and SHA-256. The file itself does not say which; with the wrong one the lengths of names do not fit."""


class WorkTree:
    """One work tree, seen from a collection.

    Args:
        top: The folder that holds `.git`.
        prefix: Path from there to the collection, `""` or `"docs/"`.
        depth: Length of the top's path inside the collection, 0 at or above its root.
    """

    def __init__(self, top: Path, prefix: str = "", depth: int = 0) -> None:
        self.top = top
        self._prefix = prefix
        self._depth = depth

    def tracks(self, path: str) -> bool:
        """Whether git tracks the file, or something in the folder, at a path of the collection."""
        name = os.fsencode(to_disk(self._prefix + path[self._depth :]))
        at = bisect_left(self._tracked, name)
        if at < len(self._tracked) and self._tracked[at] == name:
            return True
        at = bisect_left(self._tracked, name + b"/", at)
        return at < len(self._tracked) and self._tracked[at].startswith(name + b"/")

    @cached_property
    def _tracked(self) -> list[bytes]:
        """Read when first asked for: most work trees hold nothing that is both ignored and of interest."""
        try:
            raw = read_regular_file(_git_folder(self.top) / "index", _MAX_BYTES + 1)
        except (OSError, ValueError):
            return []
        return tracked_names(raw) if len(raw) <= _MAX_BYTES else []


def work_tree_around(root: Path) -> WorkTree | None:
    """The work tree that a folder is, or lies in."""
    top = next((level for level in (root, *root.parents) if os.path.lexists(level / ".git")), None)
    if top is None:
        return None
    return WorkTree(top, "" if top == root else f"{root.relative_to(top).as_posix()}/")


def _git_folder(top: Path) -> Path:
    """Where the index lies: `.git`, or for a submodule and a second work tree the folder that the file `.git` names."""
    place = top / ".git"
    if place.is_dir():
        return place
    named = read_regular_file(place, 8_192).decode("utf-8", "surrogateescape")
    return top / named.removeprefix("gitdir:").strip()


def tracked_names(raw: bytes) -> list[bytes]:
    """The names in an index file of git, in order; none when it is damaged or of an unknown version.

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
    """The names of so many entries; None when one is not where `flags_at`, the offset of an entry's flags, has it."""
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
        # Longer names say only that they are.
        if end < 0 or kept < 0 or min(kept + end - at, 0xFFF) != flags & 0xFFF:
            return None
        name = name[:kept] + raw[at:end]
        found.append(name)
        start = end + 1 if is_packed else start + (end - start + 8) // 8 * 8
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A number of git's variable length, and the index behind it."""
    value = -1
    while at < len(raw):
        byte = raw[at]
        at += 1
        value = (value + 1) << 7 | byte & 0x7F
        if not byte & 0x80:
            break
    return max(value, 0), at
