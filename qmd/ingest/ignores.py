"""`.gitignore` and `.qmdignore` files: those that apply to a folder, and their verdict on a name in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.errors import QmdError
from qmd.file_names import escape_bytes
from qmd.files import read_regular_file

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    from qmd.ingest.work_trees import WorkTree

GITIGNORE = ".gitignore"
QMDIGNORE = ".qmdignore"

_MAX_BYTES = 256 * 1024
_MAX_LINES = 5_000
"""Every name of a folder is compared with every line; 5,000 take a millisecond for each."""


class EndlessIgnoreFileError(QmdError):
    """Ignore file too long to be written by hand. A scan without it would index the files that it excludes."""

    code = "ignore_file"


class IgnoreFile(Struct, frozen=True):
    """One ignore file and its location."""

    spec: GitIgnoreSpec
    prefix: str
    """Path from its folder to the collection, for files above it: `""` or `"docs/"`."""
    depth: int
    """Length of its folder's path inside the collection: `len("notes/")`, 0 at or above the root."""
    is_git: bool
    """Whether it is one of git's, which do not apply to files that git tracks."""


def load_ignore_file(path: Path, prefix: str = "", depth: int = 0) -> IgnoreFile | None:
    """Return the parsed ignore file; None when it is absent, unreadable or without a pattern.

    Raises:
        EndlessIgnoreFileError: If it is too long to be compared with every name.
    """
    try:
        raw = read_regular_file(path, _MAX_BYTES + 1)
    except OSError:
        return None
    if len(raw) > _MAX_BYTES or raw.count(b"\n") > _MAX_LINES:
        limits = f"{_MAX_BYTES:,} bytes or {_MAX_LINES:,} lines"
        raise EndlessIgnoreFileError(f"'{path}' has more than {limits}", "shorten it: one pattern covers many files")
    # The same form as the names compared with it, with the backslash that a pattern needs before a backslash.
    text = escape_bytes(raw.decode("utf-8", "surrogateescape"), r"\\x")
    # A file of comments must not cost the import of pathspec and a check per name.
    lines = [line for line in text.removeprefix("\ufeff").splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        return None
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(lines)
    except ValueError:
        # git skips a malformed line, not the file.
        spec = GitIgnoreSpec.from_lines(filter(_is_pattern, lines))
    _forbid_backtracking(spec)
    return IgnoreFile(spec, prefix, depth, path.name != QMDIGNORE)


def _is_pattern(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        return bool(GitIgnoreSpec.from_lines([line]).patterns)
    except ValueError:
        return False


_STAR = r"\[\^/\]\*"
_STAR_BEFORE_ANOTHER = rf"{_STAR}((?:(?!{_STAR})(?:\[\^/\]|[^/]))*)(?={_STAR})"
_ANY_FOLDERS = "(?:/.+)?"
_LEADING_FOLDERS = "^(?:.+/)?"


def _forbid_backtracking(spec: GitIgnoreSpec) -> None:
    """Make the matching of `spec` polynomial: patterns and names may come from a cloned project.

    pathspec writes `*` as `[^/]*` and an inner `/**` as `(?:/.+)?`, and several of them try every division of a name
    among them (0.8 s for four stars and a name of 120 letters, thirty times that for five). As in `qmd.ingest.globs`,
    the first match of a piece is final. The last piece stays greedy, because pathspec distinguishes a match of the name
    from a match of a folder above it.
    """
    for pattern in spec.patterns:
        if pattern.regex is not None:
            source = _without_backtracking(pattern.regex.pattern)
            if source != pattern.regex.pattern:
                pattern.regex = re.compile(source, pattern.regex.flags)


def _without_backtracking(source: str) -> str:
    first, *between = re.sub(_STAR_BEFORE_ANOTHER, r"(?>[^/]*?\1)", source).split(_ANY_FOLDERS)
    if not between:
        return first
    if first.startswith(_LEADING_FOLDERS):
        first = f"^(?>(?:.+?/)??{first.removeprefix(_LEADING_FOLDERS)}(?=/))"
    middle = "".join(f"(?>(?:/.+?)??{piece}(?=/))" for piece in between[:-1])
    return f"{first}{middle}{_ANY_FOLDERS}{between[-1]}"


def repository_ignores(root: Path, tree: WorkTree | None) -> tuple[IgnoreFile, ...]:
    """Return git's rules of the work tree around `root` (files above it, `.git/info/exclude`), outermost first.

    Empty when `root` is in no work tree, or when these rules ignore `root` itself: its user added an ignored folder on
    purpose.
    """
    if tree is None:
        return ()
    levels = [root, *root.parents]
    top = levels.index(tree.top)
    files = [tree.top / ".git" / "info" / "exclude", *(levels[i] / GITIGNORE for i in range(top, 0, -1))]
    prefixes = [f"{root.relative_to(levels[i]).as_posix()}/" if i else "" for i in (top, *range(top, 0, -1))]
    found = [one for one in map(load_ignore_file, files, prefixes) if one is not None]
    for ignore in found:
        own = ignore.prefix.split("/")[:-1]
        if any(ignore.spec.match_file("/".join(own[: k + 1]) + "/") for k in range(len(own))):
            return ()
    return tuple(found)


def ignored_by(
    path: str, is_dir: bool, ignores: Sequence[IgnoreFile], tree: WorkTree | None, *, is_named: bool
) -> IgnoreFile | None:
    """Return the ignore file that excludes `path`; None without one.

    Git's own files do not apply to files that git tracks, or that the mask names (`is_named`).
    """
    found = _deciding(path, is_dir, ignores)
    if found is not None and found.is_git and (is_named or (tree is not None and tree.tracks(path))):
        return _deciding(path, is_dir, [one for one in ignores if not one.is_git])
    return found


def _deciding(path: str, is_dir: bool, ignores: Sequence[IgnoreFile]) -> IgnoreFile | None:
    for ignore in reversed(ignores):
        name = ignore.prefix + path[ignore.depth :]
        verdict = ignore.spec.check_file(name + "/" if is_dir else name).include
        if verdict is not None:
            return ignore if verdict else None
    return None
