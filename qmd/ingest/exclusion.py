"""Files in a collection's folder that are not its documents: the rule that excludes a file, and counts of others."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path, PurePosixPath

from msgspec import Struct

from qmd.file_names import suffix_of, to_disk, to_text
from qmd.foreign import read_json_file
from qmd.ingest.document import BOILERPLATE_PATH, PAGES
from qmd.ingest.globs import compile_globs, literal_paths, literal_segments, parse_mask, portable
from qmd.ingest.ignores import GITIGNORE, QMDIGNORE, ignored_by, load_ignore_file, repository_ignores
from qmd.ingest.scan import BINARY, NEVER_INDEXED, is_build_output, scan_collection
from qmd.ingest.work_trees import WorkTree, work_tree_around
from qmd.masks import CODE, PROSE, PROSE_BUT_HTML
from qmd.plugins import KINDS, find
from qmd.records import Collection


class Exclusion(Struct, frozen=True):
    """Rule that excludes a file, as the user wrote it, and its source."""

    rule: str
    source: str


def find_exclusion(collection: Collection, path: str, *, is_document: bool = True) -> Exclusion | None:
    """Return the first rule that excludes `path` (relative to the collection's folder, POSIX); None without one.

    The order: the collection's `ignore` globs, its mask, names that begin with a dot, build output, links, `.gitignore`
    and `.qmdignore` files. Only documents must match the mask; its exclusions apply to all files.
    """
    for glob in collection.ignore:
        # A glob for a folder excludes everything below it.
        if compile_globs((portable(glob), f"{portable(glob).rstrip('/')}/**")).fullmatch(path):
            return Exclusion(glob, f"ignore of collection '{collection.name}'")
    wanted, excluded = parse_mask(collection.pattern)
    if (is_document and not compile_globs(wanted).fullmatch(path)) or compile_globs(excluded).fullmatch(path):
        return Exclusion(collection.pattern, f"mask of collection '{collection.name}'")
    segments = path.split("/")
    for segment in segments[:-1]:
        if segment in NEVER_INDEXED:
            return Exclusion(f"{segment}/", "folders of this name are never indexed")
    for segment in segments:
        if segment.startswith("."):
            return Exclusion(segment, "names that begin with a dot are never indexed")
    root = Path(collection.path)
    is_named = path in literal_paths(wanted)
    return _not_walked(root, path, literal_segments(wanted)) or _ignored_by_file(collection, path, is_named=is_named)


def _not_walked(root: Path, path: str, asked_for: Set[str]) -> Exclusion | None:
    """Return the exclusion of build output, or of a link that a scan does not follow."""
    folder = root
    for segment in path.split("/")[:-1]:
        with suppress(OSError):
            if is_build_output(segment, {entry.name for entry in folder.iterdir()}, asked_for):
                return Exclusion(f"{segment}/", "generated files are not indexed unless the mask names the folder")
        folder /= to_disk(segment)
        if folder.is_symlink():
            return Exclusion(f"{segment}/", "links to folders are not followed")
    file = root / to_disk(path)
    if file.is_symlink() and not file.resolve().is_relative_to(root.resolve()):
        return Exclusion(path, "links that lead out of the collection are not followed")
    return None


def _ignored_by_file(collection: Collection, path: str, *, is_named: bool) -> Exclusion | None:
    root = Path(collection.path)
    segments = path.split("/")
    tree = work_tree_around(root.resolve()) if collection.gitignore else None
    ignores = repository_ignores(root.resolve(), tree)
    sources = {id(one): "a .gitignore file above the collection" for one in ignores}
    for depth in range(len(segments)):
        folder = "/".join(segments[:depth])
        prefix = f"{folder}/" if folder else ""
        if collection.gitignore and prefix and (root / to_disk(folder) / ".git").exists():
            tree = WorkTree(root / to_disk(folder), depth=len(prefix))
        for name in (GITIGNORE, QMDIGNORE) if collection.gitignore else (QMDIGNORE,):
            found = load_ignore_file(root / to_disk(folder) / name, depth=len(prefix))
            if found is not None:
                ignores = (*ignores, found)
                sources[id(found)] = f"{prefix}{name}"
        part = "/".join(segments[: depth + 1])
        is_dir = depth + 1 < len(segments)
        deciding = ignored_by(part, is_dir, ignores, tree, is_named=is_named)
        if deciding is not None:
            return Exclusion(part + "/" * is_dir, sources[id(deciding)])
    return None


def choose_mask(folder: Path, *, gitignore: bool = True) -> str:
    """Return the mask for a new collection: prose, prose without HTML among source code, or source code alone.

    The first 20,000 files of the folder decide. Scripts of saved pages do not count.
    """
    walked = scan_collection(Collection("", folder, "**/*", gitignore=gitignore), enough=20_000).files
    paths = [one.path for one in walked]
    is_prose, is_code = (compile_globs((mask,)).fullmatch for mask in (PROSE_BUT_HTML, CODE))
    n_prose = sum(is_prose(path) is not None and BOILERPLATE_PATH.fullmatch(path) is None for path in paths)
    pages = {path.rpartition(".")[0] for path in paths if suffix_of(path) in PAGES}
    # `A page.html` is saved with `A page_files/`, or `A page-Dateien/`.
    code = [re.sub(r"[-_.][^-_./]*/[^/]*\Z", "", path) for path in paths if is_code(path)]
    if sum(path not in pages for path in code) <= max(len(pages), n_prose):
        return PROSE
    return PROSE_BUT_HTML if n_prose else CODE


def selects(collection: Collection, path: str) -> bool:
    """Return whether the mask selects a path (relative to the collection's folder, POSIX)."""
    wanted, excluded = map(compile_globs, parse_mask(collection.pattern))
    return wanted.fullmatch(path) is not None and excluded.fullmatch(path) is None


_OBSIDIAN = {
    "templates.json": "folder",
    "daily-notes.json": "template",
    "plugins/templater-obsidian/data.json": "templates_folder",
}


def template_places(folder: Path) -> tuple[str, ...]:
    """Return path prefixes of templates, from Obsidian's settings in a vault: foreign text, only for comparison."""
    found: list[str] = []
    for name, key in _OBSIDIAN.items():
        with suppress(OSError, ValueError, TypeError, KeyError):
            place = read_json_file(folder / ".obsidian" / name)[key]
            if isinstance(place, str) and (place := place.strip("/")):
                found += (f"{place}/", f"{place}.md")
    return tuple(found)


_MOST_NAMES = 10_000
"""A tenth of a second on a local disk; files after these names are not counted."""

_DATA = "zip gz bz2 xz 7z rar tar db sqlite exe dll so dylib bin iso dmg pyc class jar ttf woff2"
_UNREADABLE = BINARY.union(f".{ending}" for ending in _DATA.split())


def is_unread(suffix: str) -> bool:
    """Return whether files with this ending contain no plain text, and no installed reader makes text of them."""
    kind = find(KINDS, suffix.lower())
    return suffix.lower() in _UNREADABLE and (kind is None or kind.is_missing or kind.is_name)


def count_kinds(folder: Path) -> Counter[str]:
    """Return the number of files of each ending (`.txt`, or empty) in a folder and below it."""
    return Counter(PurePosixPath(path).suffix for path in _walk(folder, ""))


def selected_files(collection: Collection, below: Sequence[str] = ("",), end: float | None = None) -> list[str]:
    """Return paths in folders (ending with `/`, or empty) that the mask selects, also ignored, found until `end`."""
    wanted, excluded = map(compile_globs, parse_mask(collection.pattern))
    return [
        path
        for folder in below
        for path in _walk(collection.path, folder, end)
        if wanted.fullmatch(path) and not excluded.fullmatch(path)
    ]


def _walk(root: Path, prefix: str, end: float | None = None) -> Iterator[str]:
    """Yield the paths of the files below a folder whose names do not exclude them."""
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
