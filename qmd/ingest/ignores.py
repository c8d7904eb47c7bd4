"""`.gitignore` and `.qmdignore` files: which of them apply to a folder, and what they say of a name in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.errors import QmdError
from qmd.files import read_regular_file
from qmd.names import escape_bytes
from qmd.quick_dataclasses import dataclass

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

GITIGNORE = ".gitignore"
QMDIGNORE = ".qmdignore"


_MAX_BYTES = 256 * 1024
_MAX_LINES = 5_000
"""Every name of a folder is held against every line; 5,000 take a millisecond for each."""


class EndlessIgnoreFileError(QmdError):
    """An ignore file that nobody wrote by hand. To go on without it would index what it keeps out."""

    code = "ignore_file"


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """One ignore file and where it lies."""

    spec: GitIgnoreSpec
    prefix: str
    """Path from its folder to the collection, for files above it: `""` or `"docs/"`."""
    depth: int
    """Length of its folder's path inside the collection: `len("notes/")`, 0 at or above the root."""


def load_ignore_file(path: Path, prefix: str = "", depth: int = 0) -> IgnoreFile | None:
    """The parsed ignore file; None when it is absent, unreadable or holds no pattern.

    Raises:
        EndlessIgnoreFileError: If it is too long to be held against every name.
    """
    try:
        raw = read_regular_file(path, _MAX_BYTES + 1)
    except OSError:
        return None
    if len(raw) > _MAX_BYTES or raw.count(b"\n") > _MAX_LINES:
        limits = f"{_MAX_BYTES:,} bytes or {_MAX_LINES:,} lines"
        raise EndlessIgnoreFileError(f"'{path}' has more than {limits}", "shorten it: one pattern covers many files")
    # As the name that is held against it, with the backslash that a pattern needs before a backslash.
    text = escape_bytes(raw.decode("utf-8", "surrogateescape"), r"\\x")
    # A comment-only file must not cost the import of pathspec and a check per name.
    lines = [line for line in text.removeprefix("\ufeff").splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        return None
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(lines)
    except ValueError:
        spec = GitIgnoreSpec.from_lines(_valid_lines(lines))
    return IgnoreFile(spec, prefix, depth)


def _valid_lines(lines: Sequence[str]) -> list[str]:
    """The lines that can be parsed: git skips a malformed line, not the file."""
    from pathspec import GitIgnoreSpec

    valid = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        valid.append(line)
    return valid


def repository_ignores(root: Path) -> tuple[IgnoreFile, ...]:
    """Ignore rules of the git work tree around `root` (files above `root`, and `.git/info/exclude`), outermost first.

    Empty when `root` is in no work tree, or when these rules ignore `root` itself: who adds an ignored folder wants it.
    """
    levels = [root, *root.parents]
    top = next((i for i, level in enumerate(levels) if (level / ".git").exists()), None)
    if top is None:
        return ()
    found: list[IgnoreFile] = []
    for i in range(top, 0, -1):
        prefix = root.relative_to(levels[i]).as_posix() + "/"
        exclude = (levels[i] / ".git" / "info" / "exclude",) if i == top else ()
        names = (*exclude, levels[i] / GITIGNORE)
        found.extend(f for f in (load_ignore_file(name, prefix) for name in names) if f is not None)
    if top == 0:
        own_exclude = load_ignore_file(root / ".git" / "info" / "exclude")
        return (own_exclude,) if own_exclude else ()
    segments = root.relative_to(levels[top]).parts
    for ignore in found:
        own = ignore.prefix.rstrip("/").split("/")
        if any(ignore.spec.match_file("/".join(own[: k + 1]) + "/") for k in range(min(len(own), len(segments)))):
            return ()
    return tuple(found)


def is_ignored(path: str, is_dir: bool, ignores: Sequence[IgnoreFile]) -> bool:
    """Whether the innermost ignore file that mentions `path` (collection-relative) excludes it."""
    for ignore in reversed(ignores):
        name = ignore.prefix + path[ignore.depth :]
        verdict = ignore.spec.check_file(name + "/" if is_dir else name).include
        if verdict is not None:
            return verdict
    return False
