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

from qmd.file_names import to_text
from qmd.plugins import KINDS, find
from qmd.store.records import OtherFiles

if TYPE_CHECKING:
    from qmd.records import Collection
    from qmd.store.base import IndexReader

KINDS_SHOWN = 4


def other_kinds(index: IndexReader, name: str | None = None) -> Counter[str]:
    """Return ending → number of files in the folders of all collections, or of one, that no collection includes."""
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
    return sum(found.values(), Counter())


def other_kinds_line(collection: Collection, kinds: Counter[str]) -> str:
    """Return a line such as `notes: skipped 2 .pdf, 3 .txt; to read .pdf: …; to include the others: …`."""
    from qmd.ingest.exclusion import is_unread

    endings = [ending[1:] for ending, _ in kinds.most_common() if not is_unread(ending)]
    missing = to_read(kinds)
    line = f"{collection.name}: skipped {kinds_text(kinds)}{missing}"
    if not endings:
        return line
    mask = f"**/*.{{{','.join(endings)}}}" if len(endings) > 1 else f"**/*.{endings[0]}"
    masks = shlex.quote(f"{collection.pattern},{mask}")
    command = f"qmd index {shlex.quote(to_text(collection.path))} --glob {masks}"
    return f"{line}; to include {'the others' if missing else 'them'}: {command}"


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


def kinds_text(kinds: Counter[str]) -> str:
    """Return `1,212 .txt, 3 .docx and 2 other kinds`: the most frequent endings with their numbers of files."""
    counts = [f"{n_files:,} {suffix or 'without an ending'}" for suffix, n_files in kinds.most_common(KINDS_SHOWN)]
    n_more = len(kinds) - KINDS_SHOWN
    return ", ".join(counts) + (f" and {n_more} other kind{'s' * (n_more > 1)}" if n_more > 0 else "")
