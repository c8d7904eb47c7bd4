"""Walk a collection: the files that its mask selects, and those skipped for a reason worth reporting."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from qmd.addresses import is_below
from qmd.errors import NotFoundError
from qmd.file_names import suffix_of, to_disk, to_text
from qmd.ingest.globs import PathMatcher, compile_globs, literal_paths, literal_segments, parse_mask, portable
from qmd.ingest.ignores import (
    GITIGNORE,
    QMDIGNORE,
    EndlessIgnoreFileError,
    IgnoreFile,
    ignored_by,
    load_ignore_file,
    repository_ignores,
)
from qmd.ingest.work_trees import WorkTree, work_tree_around
from qmd.masks import OWN_PATTERNS, PROSE, PROSE_BUT_HTML, UNWRITTEN_PATTERN
from qmd.plugins import KINDS
from qmd.records import Collection, FileEntry
from qmd.times import settled_time

SkipReason = Literal["OUTSIDE_COLLECTION", "UNREADABLE", "UNREADABLE_DIRECTORY"]

NEVER_INDEXED = frozenset({"node_modules", ".git", ".cache"})
_MANIFESTS = frozenset(
    {"package.json", "pyproject.toml", "setup.py", "Cargo.toml", "go.mod", "composer.json", "Gemfile", "Makefile"}
    | {"CMakeLists.txt", "pom.xml", "build.gradle", "build.gradle.kts"}
)
"""Names of generated folders only next to one of these. Elsewhere they are ordinary words: whole parts of product
documentation are in folders called `build`, and a rule by name alone would lose them without a warning."""
_GENERATED = {
    **dict.fromkeys(("build", "dist", "vendor"), _MANIFESTS),
    **dict.fromkeys(("bak", "version-files"), frozenset({"config.edn"})),
}
"""Folder names of generated files → files next to them: build output, and Logseq's copies of every page."""

_TEXTS = "md markdown mdx mdown mkd rmd qmd txt text org rst adoc tex htm html ipynb canvas base csv tsv eml srt vtt"
_DOCUMENTS = "pdf doc docx odt rtf pages ppt pptx odp key xls xlsx ods numbers mobi one msg"
_MEDIA = "png jpg jpeg gif webp svg heic tif tiff bmp ico mp3 m4a wav flac ogg mp4 mov mkv webm avi"
BINARY = frozenset(f".{ending}" for ending in f"{_DOCUMENTS} {_MEDIA}".split())
"""Endings of documents and media without plain text."""
_EXPECTED = BINARY | {f".{ending}" for ending in f"{_TEXTS} epub".split()}
"""Endings of files that a user may expect to find: not those of programs and their data."""


class SkippedPath(Struct, frozen=True):
    """Path that the mask or the walk reached but that is not in `ScanResult.files`."""

    path: str
    reason: SkipReason
    detail: str
    """Error message of the operating system, or the target of the link."""


class ScanResult(Struct, frozen=True, dict=True):
    """Files of a collection, sorted by path, and skipped paths."""

    files: tuple[FileEntry, ...]
    skipped: tuple[SkippedPath, ...] = ()
    ignored_files: int = 0
    """Files that the mask selects but an ignore file or ignore glob excludes (in folders that were entered)."""
    git_ignored: tuple[str, ...] = ()
    """Those of them that git ignores, by path, and ignored folders, which were not entered, with a `/` at the end."""
    folders: Mapping[str, int] = {}
    """Every visited folder, `""` for the collection's own → the last change of a name in it (ns).

    0 if that is so recent that another may have come in the same tick of the file system's clock.
    """
    others: Mapping[str, int] = {}
    """Ending → number of files that only the mask excludes, though a user may expect to find them.

    Empty if the user chose the mask and so its exclusions, and if only a part was visited.
    """

    def is_undecided(self, path: str) -> bool:
        """Return whether an indexed file missing from `files` may still exist, because it could not be examined.

        Such a document must stay in the index: a folder that is unreadable today is not a deleted one.
        """
        places = ("", *accumulate(path.split("/"), "{}/{}".format)) if self._unexamined else ()
        return any(place in self._unexamined for place in places)

    @cached_property
    def _unexamined(self) -> frozenset[str]:
        return frozenset(s.path for s in self.skipped if s.reason != "OUTSIDE_COLLECTION")


class _Walk(Struct):
    folder: Path
    """Real path of the collection."""
    below: str
    base: str
    """`folder`, with a separator at the end."""
    mask: PathMatcher
    mask_excludes: PathMatcher
    excluded: PathMatcher | None
    """Matches the mask's exclusions and ignore globs; None without either saves a match for every file."""
    ignore_dirs: PathMatcher
    asked_for: frozenset[str]
    """Folder names in the mask without wildcards."""
    named: frozenset[str]
    """Files in the mask without wildcards, and the folders on the way to them."""
    ignore_names: tuple[str, ...]
    """Ignore files to read. `.qmdignore` is last, so that `!private/` in it can bring back what git ignores."""
    files: list[FileEntry] = field(default_factory=list)
    skipped: list[SkippedPath] = field(default_factory=list)
    ignored_files: int = 0
    git_ignored: list[str] = field(default_factory=list)
    folders: dict[str, int] = field(default_factory=dict)
    others: Counter[str] | None = None
    expected: Set[str] = _EXPECTED
    """Endings of the files that are counted in `others`."""
    is_prose: bool = False


class _Folder(Struct, frozen=True):
    """Folder to visit, and the rules that exclude files in it."""

    prefix: str
    """Its path with a `/` at the end, or empty."""
    ignores: Sequence[IgnoreFile]
    tree: WorkTree | None


def scan_collection(collection: Collection, below: str = "", *, enough: int | None = None) -> ScanResult:
    """Return the files of `collection` that its mask selects, sorted by POSIX path; with `below`, only those in it.

    The mask is a comma list of globs (`**`, `{a,b}`, `[…]`, extended globs, `!glob` to exclude), case-sensitive.
    Segments that start with a dot are never entered, symlinked folders not followed, linked files that lead out of the
    collection skipped. `.qmdignore` and `.gitignore` files apply, also those of the work tree around the collection. A
    collection whose path is a file contains that file alone. With `enough`, it stops after so many files and
    the rest of their folder.

    Raises:
        NotFoundError: If the collection's folder does not exist or is not readable as a whole: an index must not be
            emptied because a disk is not mounted.
        UsageError: If the mask has too many brace alternatives.
    """
    path = collection.path
    if path.is_file():
        return _single_file(path)
    try:
        root = os.path.realpath(path, strict=True)
        os.scandir(root).close()
    except OSError as exc:
        raise NotFoundError(
            f"folder '{to_text(path)}' of collection '{collection.name}' cannot be read: {exc.strerror or exc}",
            f"qmd collection set {(n := shlex.quote(collection.name))} --path NEWPLACE, or: qmd collection remove {n}",
        ) from exc
    walk = _plan(collection, root, below)
    tree = work_tree_around(Path(root)) if collection.gitignore else None
    todo = [_Folder("", repository_ignores(Path(root), tree), tree)]
    while todo and not (enough and len(walk.files) >= enough and is_below(walk.files[-1].path, below)):
        todo += _visit(walk, todo.pop())
    return _result(walk, below)


def _result(walk: _Walk, below: str) -> ScanResult:
    """Return the result of a walk, without the folders on the way to `below`."""
    by_path = attrgetter("path")
    files = [one for one in walk.files if is_below(one.path, below)] if below else walk.files
    return ScanResult(
        tuple(sorted(files, key=by_path)),
        tuple(sorted(walk.skipped, key=by_path)),
        walk.ignored_files,
        tuple(sorted(path for path in walk.git_ignored if is_below(path, below))),
        {path: mtime_ns for path, mtime_ns in walk.folders.items() if is_below(path, below)},
        walk.others or {} if not below else {},
    )


def _single_file(path: Path) -> ScanResult:
    try:
        stat = path.stat()
    except OSError as exc:
        return ScanResult((), (SkippedPath(to_text(path.name), "UNREADABLE", exc.strerror or str(exc)),))
    entry = FileEntry(to_text(path.name), path.parent, stat.st_size, stat.st_mtime_ns)
    return ScanResult((entry,), folders={"": stat.st_mtime_ns})


def _plan(collection: Collection, root: str, below: str) -> _Walk:
    wanted, excluded = parse_mask(collection.pattern)
    ignore = [portable(glob) for glob in collection.ignore]
    # `drafts/**` and `drafts/` mean the folder too: skipping the whole folder is what makes ignoring cheap.
    folders = [re.sub(r"/(\*\*)?\Z", "", glob) for glob in (*ignore, *excluded)]
    is_prose = collection.pattern in (PROSE, PROSE_BUT_HTML)
    return _Walk(
        folder=Path(root),
        below=below,
        base=root.rstrip(os.sep) + os.sep,
        mask=compile_globs(wanted),
        mask_excludes=compile_globs(excluded),
        excluded=compile_globs((*excluded, *ignore)) if excluded or ignore else None,
        ignore_dirs=compile_globs(folder for folder in folders if folder not in ("", "**", "*")),
        asked_for=literal_segments(wanted),
        named=frozenset(one for path in literal_paths(wanted) for one in accumulate(path.split("/"), "{}/{}".format)),
        ignore_names=(GITIGNORE, QMDIGNORE) if collection.gitignore else (QMDIGNORE,),
        others=Counter() if collection.pattern in (*OWN_PATTERNS, UNWRITTEN_PATTERN) else None,
        expected=_EXPECTED | (KINDS.keys() - {""}) if is_prose else _EXPECTED,
        is_prose=is_prose,
    )


def _visit(walk: _Walk, folder: _Folder) -> list[_Folder]:
    """Record the files of one folder and return the folders below it that are to be visited."""
    place = folder.prefix.rstrip("/")
    directory = f"{walk.base}{to_disk(folder.prefix)}"
    try:
        # Before the listing: a later look must see a file that arrives during it as a change.
        mtime_ns = settled_time(Path(directory).stat().st_mtime_ns, time.time_ns())
        with os.scandir(directory) as listing:
            entries = list(listing)
    except OSError as exc:
        walk.skipped.append(SkippedPath(place, "UNREADABLE_DIRECTORY", exc.strerror or str(exc)))
        return []
    names = {entry.name for entry in entries}
    try:
        folder = _with_ignore_files(walk, folder, Path(directory), names)
    except EndlessIgnoreFileError as exc:
        if not place:
            raise
        walk.skipped.append(SkippedPath(place, "UNREADABLE_DIRECTORY", exc.message))
        return []
    walk.folders[place] = mtime_ns
    below: list[_Folder] = []
    is_selected = walk.mask.fullmatch
    for entry in _asked(entries, folder.prefix, walk.below):
        name = to_text(entry.name)
        if name.startswith("."):
            continue
        path = folder.prefix + name
        try:
            if entry.is_dir(follow_symlinks=False):
                inner = _Folder(path + "/", folder.ignores, folder.tree)
                # Windows folder links are not symlinks; `DirEntry` knows them from Python 3.12 on.
                if not getattr(entry, "is_junction", bool)() and _enters(walk, inner, name, names):
                    below.append(inner)
            elif is_selected(path):
                _add_file(walk, entry, path, folder.ignores, folder.tree)
            elif (suffix := suffix_of(name)) in walk.expected:
                _count_other(walk, entry, path, suffix, folder)
        except OSError as exc:
            walk.skipped.append(SkippedPath(path, "UNREADABLE", exc.strerror or str(exc)))
    return below


def _asked(entries: Sequence[os.DirEntry[str]], prefix: str, below: str) -> Sequence[os.DirEntry[str]]:
    """Return the entries of a folder that are below a path, or on the way to it."""
    if not below:
        return entries
    paths = ((entry, prefix + to_text(entry.name)) for entry in entries)
    return [entry for entry, path in paths if is_below(path, below) or is_below(below, path)]


def _with_ignore_files(walk: _Walk, folder: _Folder, directory: Path, names: Set[str]) -> _Folder:
    """Return a folder with its ignore files, and its work tree if one begins in it.

    Raises:
        EndlessIgnoreFileError: One of them is too long to be matched.
    """
    depth = len(folder.prefix)
    begins_tree = depth and ".git" in names and GITIGNORE in walk.ignore_names
    found = (load_ignore_file(directory / name, depth=depth) for name in walk.ignore_names if name in names)
    ignores = [one for one in found if one is not None]
    if not (begins_tree or ignores):
        return folder
    tree = WorkTree(directory, depth=depth) if begins_tree else folder.tree
    return _Folder(folder.prefix, (*folder.ignores, *ignores), tree)


def is_build_output(name: str, siblings: Set[str], asked_for: Set[str]) -> bool:
    """Return whether a folder of that name is generated, by the names next to it; not if a mask names it."""
    return name in _GENERATED and name not in asked_for and not _GENERATED[name].isdisjoint(siblings)


def _enters(walk: _Walk, folder: _Folder, name: str, siblings: Set[str]) -> bool:
    path = folder.prefix[:-1]
    if name in NEVER_INDEXED or is_build_output(name, siblings, walk.asked_for) or walk.ignore_dirs.fullmatch(path):
        return False
    return not folder.ignores or not _is_ignored(walk, path, True, folder.ignores, folder.tree)


def _is_ignored(walk: _Walk, path: str, is_dir: bool, ignores: Sequence[IgnoreFile], tree: WorkTree | None) -> bool:
    ignore = ignored_by(path, is_dir, ignores, tree, is_named=path in walk.named)
    if ignore is not None and ignore.is_git:
        walk.git_ignored.append(path + "/" * is_dir)
    return ignore is not None


def _count_other(walk: _Walk, entry: os.DirEntry[str], path: str, suffix: str, folder: _Folder) -> None:
    """Count a file that the mask does not select, unless another rule excludes it as well."""
    if entry.is_symlink() or (walk.excluded and walk.excluded.fullmatch(path)) or walk.others is None:
        return
    if not folder.ignores or ignored_by(path, False, folder.ignores, folder.tree, is_named=False) is None:
        walk.others[suffix] += 1


def _add_file(
    walk: _Walk, entry: os.DirEntry[str], path: str, ignores: Sequence[IgnoreFile], tree: WorkTree | None
) -> None:
    if (walk.excluded and walk.excluded.fullmatch(path)) or (ignores and _is_ignored(walk, path, False, ignores, tree)):
        walk.ignored_files += walk.mask_excludes.fullmatch(path) is None
        return
    if entry.is_symlink():
        target = os.path.realpath(entry.path)
        if entry.is_dir():
            return
        if not target.startswith(walk.base):
            walk.skipped.append(SkippedPath(path, "OUTSIDE_COLLECTION", f"links to '{to_text(target)}'"))
            return
    stat = entry.stat()
    # Sockets, pipes and devices would block or never end.
    if entry.is_file():
        walk.files.append(FileEntry(path, walk.folder, stat.st_size, stat.st_mtime_ns, walk.is_prose))
