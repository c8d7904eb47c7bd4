"""Why a file of a collection's folder is not among the collection's documents."""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress
from pathlib import Path

from qmd.ingest.globs import compile_globs, literal_segments, parse_mask, portable
from qmd.ingest.ignores import GITIGNORE, QMDIGNORE, IgnoreFile, is_ignored, load_ignore_file, repository_ignores
from qmd.ingest.scan import NEVER_INDEXED, is_build_output
from qmd.names import to_disk
from qmd.quick_dataclasses import dataclass
from qmd.records import Collection


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What keeps a file out: `rule` as the user wrote it, and where it stands."""

    rule: str
    source: str


def find_exclusion(collection: Collection, path: str) -> Exclusion | None:
    """The first rule that keeps `path` (relative to the collection's folder, POSIX) out; None when none does.

    Looked at in this order: the collection's `ignore` globs, its mask, names that begin with a dot, build output,
    links, `.gitignore` and `.qmdignore` files.
    """
    for glob in collection.ignore:
        if _fits(portable(glob), path):
            return Exclusion(glob, f"ignore of collection '{collection.name}'")
    wanted, excluded = parse_mask(collection.pattern)
    mask = compile_globs(wanted)
    left_out = compile_globs(excluded)
    if mask is None or not mask.fullmatch(path) or (left_out is not None and left_out.fullmatch(path)):
        return Exclusion(collection.pattern, f"mask of collection '{collection.name}'")
    never = next((segment for segment in path.split("/")[:-1] if segment in NEVER_INDEXED), None)
    if never is not None:
        return Exclusion(f"{never}/", "folders of this name are never indexed")
    dotted = next((segment for segment in path.split("/") if segment.startswith(".")), None)
    if dotted is not None:
        return Exclusion(dotted, "names that begin with a dot are never indexed")
    root = Path(collection.path)
    return _not_walked(root, path, literal_segments(wanted)) or _ignored_by_file(root, path)


def _not_walked(root: Path, path: str, asked_for: Set[str]) -> Exclusion | None:
    """Build output, and links that a scan does not follow."""
    base = root.resolve()
    folder = root
    *folders, _ = path.split("/")
    for segment in folders:
        with suppress(OSError):
            if is_build_output(segment, {entry.name for entry in folder.iterdir()}, asked_for):
                return Exclusion(f"{segment}/", "build output is not indexed unless the mask names the folder")
        folder /= to_disk(segment)
        if folder.is_symlink():
            return Exclusion(f"{segment}/", "links to folders are not followed")
    file = root / to_disk(path)
    if file.is_symlink() and not file.resolve().is_relative_to(base):
        return Exclusion(path, "links that lead out of the collection are not followed")
    return None


def _fits(glob: str, path: str) -> bool:
    """Whether an ignore glob takes `path` or a folder above it."""
    compiled = compile_globs((glob, f"{glob.rstrip('/')}/**"))
    return compiled is not None and compiled.fullmatch(path) is not None


def _ignored_by_file(root: Path, path: str) -> Exclusion | None:
    segments = path.split("/")
    ignores: tuple[IgnoreFile, ...] = repository_ignores(root.resolve())
    sources = {id(one): "a .gitignore file above the collection" for one in ignores}
    for depth in range(len(segments)):
        folder = "/".join(segments[:depth])
        prefix = f"{folder}/" if folder else ""
        for name in (GITIGNORE, QMDIGNORE):
            found = load_ignore_file(root / to_disk(folder) / name, depth=len(prefix))
            if found is not None:
                ignores = (*ignores, found)
                sources[id(found)] = f"{prefix}{name}"
        part = "/".join(segments[: depth + 1])
        is_dir = depth + 1 < len(segments)
        if is_ignored(part, is_dir, ignores):
            deciding = next(one for one in reversed(ignores) if is_ignored(part, is_dir, (one,)))
            return Exclusion(part + "/" * is_dir, sources[id(deciding)])
    return None
