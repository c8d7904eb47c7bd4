"""Other types of files in the folders of collections: reported once, and counted in the status.

Files that ignore rules exclude, and files of programs and their data, do not count; neither do files of a collection
whose mask the user has chosen. The last complete update of a collection has counted them.
"""

from __future__ import annotations

import posixpath
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.file_names import suffix_of, to_text
from qmd.plugins import KINDS, find
from qmd.status import NO_READER
from qmd.store.records import OtherFiles

if TYPE_CHECKING:
    from qmd.records import Collection
    from qmd.store.base import IndexReader


def other_kinds(index: IndexReader, name: str | None = None) -> Counter[str]:
    """Return ending → number of files in the folders of all collections, or of one, that no collection has read."""
    collections, facts, found = index.collections(), index.facts(), dict[Path, Counter[str]]()
    for one in collections:
        kinds = OtherFiles.of(facts, one.name).counts if name in (None, one.name) else {}
        # Another collection over the same folder may include them.
        around = [two for two in collections if two != one and one.path.is_relative_to(two.path)] if kinds else []
        for two in around:
            from qmd.ingest.exclusion import selects

            inside = one.path.relative_to(two.path).as_posix()
            kinds = {end: n for end, n in kinds.items() if not selects(two, posixpath.normpath(f"{inside}/x{end}"))}
        found[one.path] = found.get(one.path, Counter()) | Counter(kinds)
    unread = Counter(suffix_of(one.path) for one in index.left_out(name) if one.message == NO_READER)
    return sum(found.values(), unread)


def command_for_all(collection: Collection) -> str:
    """Return the command that includes all files of a collection's folder."""
    return f"qmd index {shlex.quote(to_text(collection.path))} --all"


def to_read(kinds: Counter[str]) -> str:
    """Return `; to read .pdf: pip install …` where a package is missing; empty otherwise."""
    missing = without_reader(kinds)
    if not missing:
        return ""
    from qmd.installation import install_command

    return f"; to read {', '.join(missing)}: {install_command('files')}"


def without_reader(kinds: Counter[str]) -> list[str]:
    """Return the endings whose reader is in the extra `files` and not installed; the most frequent first."""
    found = {ending: find(KINDS, ending.lower()) for ending, _ in kinds.most_common()}
    return [ending for ending, kind in found.items() if kind is not None and kind.is_missing]


def kinds_text(kinds: Counter[str], dot: str = ".") -> str:
    """Return `1,212 .txt, 3 .docx, 2 .pdf, 4 other`: the most frequent endings with their numbers of files."""
    named = Counter({suffix: n_files for suffix, n_files in kinds.items() if suffix}).most_common(3)
    counts = [f"{n_files:,} {dot}{suffix[1:]}" for suffix, n_files in named]
    n_others = kinds.total() - sum(n_files for _, n_files in named)
    return ", ".join([*counts, *([f"{n_others:,} other"] if n_others else [])])
