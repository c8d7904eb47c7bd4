"""Collections by name: finding them, and changing index and configuration together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.app.records import Part
from qmd.config.paths import Locations, expand_home
from qmd.config.settings import Config
from qmd.errors import NotFoundError, QmdError, UsageError
from qmd.names import places_on_disk, split_address, to_text, without_scheme
from qmd.records import DEFAULT_PATTERN, Collection

if TYPE_CHECKING:
    from qmd.app.configuration import Configuration
    from qmd.config.edits import Target
    from qmd.store.base import IndexWriter


def check_name(name: str) -> None:
    """Refuse names that no address could hold.

    Raises:
        UsageError: It is blank or has control characters.
    """
    if not name.strip("/ ") or any(ord(character) < 32 for character in name):
        raise UsageError(f"collection name '{name}' is not usable", "use letters, digits, dots, dashes")


def add_collection(
    configuration: Configuration,
    name: str,
    folder: Path,
    pattern: str,
    ignore: Sequence[str] = (),
    *,
    gitignore: bool = True,
) -> Config:
    """Configure a folder, or a single file; the new configuration.

    Raises:
        QmdError: The name is taken, or another collection has this folder and pattern.
        UsageError: The name cannot be part of an address.
    """
    from qmd.config import edits

    check_name(name)
    config = configuration.written()
    if config.collection(name) is not None:
        raise QmdError(f"Collection '{name}' already exists.", "Use a different name with --name <name>")
    for one in config.collections:
        if one.path.resolve() == folder and one.pattern == pattern:
            raise QmdError(
                f"A collection already exists for this path and pattern: {one.name} (qmd://{one.name}/)",
                "Use 'qmd update' to re-index it, or remove it first with 'qmd collection remove'",
            )
    edited = edits.add_collection(configuration.target, name, folder, pattern, ignore, gitignore=gitignore)
    configuration.vouch(config)
    return edited


def ensure_collection(
    configuration: Configuration, path: Path, name: str | None, pattern: str | None, *, gitignore: bool
) -> Part:
    """The collection at `path`, or the part of one (with that name and pattern, where given), added when there is none.

    Without `gitignore` it takes what git ignores from now on.

    Raises:
        NotFoundError: A new one would hold nothing.
        UsageError: `name` is taken, or no usable name.
    """
    from qmd.config import edits

    while (known := _known_at(config := configuration.written(), path, name, pattern)) is None:
        if name is None and (part := _part_at(config, path, pattern, gitignore=gitignore)) is not None:
            return part
        _refuse_empty(Collection("", path, pattern or DEFAULT_PATTERN, gitignore=gitignore))
        new = name or _free_name(config, path)
        check_name(new)
        if config.collection(new) is not None:
            raise UsageError(f"collection '{new}' already exists", "choose another with --name")
        # Refused when another process has taken the name since; then the next turn chooses another.
        with suppress(UsageError):
            edits.add_collection(configuration.target, new, path, pattern or DEFAULT_PATTERN, gitignore=gitignore)
            configuration.vouch(config)
    if not gitignore:
        edits.take_git_ignored(configuration.target, known)
    return Part(known)


def _refuse_empty(collection: Collection) -> None:
    from qmd.ingest.scan import scan_collection

    scan = scan_collection(collection)
    if not scan.files and not scan.skipped:
        from qmd.app.left_out import nothing_to_index

        raise nothing_to_index(collection, scan.git_ignored)


def _known_at(config: Config, path: Path, name: str | None, pattern: str | None) -> str | None:
    for one in config.collections:
        if one.path.resolve() == path and pattern in (None, one.pattern) and name in (None, one.name):
            return one.name
    return None


def _part_at(config: Config, path: Path, pattern: str | None, *, gitignore: bool) -> Part | None:
    """The part of a collection that `path` is; None where no collection takes care of the files there."""
    from qmd.ingest.scan import scan_collection

    for one, below in places_on_disk(path, config.collections):
        if pattern not in (None, one.pattern) or (one.gitignore and not gitignore):
            continue
        # What its ignore files or its mask keep out of a collection is indexed when somebody asks for it by name.
        if scan_collection(one, below).files or not scan_collection(Collection("", path, one.pattern)).files:
            return Part(one.name, below)
    return None


def _free_name(config: Config, path: Path) -> str:
    """A name for a collection at `path`: its last part, with the parent's or a number where that is taken."""
    base = to_text(path.stem if path.is_file() else path.name) or "root"
    if config.collection(base) is None:
        return base
    candidate, number = f"{to_text(path.parent.name) or 'root'}-{base}", 2
    while config.collection(candidate) is not None:
        candidate, number = f"{base}-{number}", number + 1
    return candidate


def find_place(config: Config, path: str, collection: str | None, cwd: Path) -> tuple[str, str]:
    """(collection, prefix) that a note is for: a path inside `collection`, a `qmd://` address, or a path on disk.

    Raises:
        NotFoundError: It is in no collection.
    """
    if collection is not None:
        config.require(collection)
        return collection, path.strip("/") if path != "." else ""
    address = without_scheme(path)
    if address is not None:
        named = split_address(address, [one.name for one in config.collections])
        if named is not None:
            return named[0], named[1].strip("/")
        config.require(address.partition("/")[0])
    named = split_address(path, [one.name for one in config.collections])
    if named is not None and not (cwd / expand_home(path)).exists():
        return named[0], named[1].strip("/")
    for one, inside in places_on_disk(cwd / expand_home(path), config.collections):
        return one.name, inside
    raise NotFoundError(
        f"Path is not in any indexed collection: {Path(path)}", "Run 'qmd status' to see indexed collections"
    )


def rename_collection(writer: IndexWriter, target: Target, config: Config, old: str, new: str) -> Config:
    """Give a collection another name in the index and the configuration; nothing is read or embedded again.

    Raises:
        NotFoundError: There is no collection `old`.
        QmdError: `new` is taken.
        UsageError: `new` is no usable name.
    """
    from qmd.config import edits

    config.require(old)
    check_name(new)
    if config.collection(new) is not None:
        raise QmdError(f"Collection name already exists: {new}", "choose another name")
    with _in_one_step(writer, target):
        writer.rename_collection(old, new)
        return edits.rename_collection(target, old, new)


def remove_collection(writer: IndexWriter, target: Target, config: Config, name: str) -> tuple[int, Config]:
    """Forget a collection; (number of documents deleted, the new configuration). Its files stay.

    Raises:
        NotFoundError: There is no such collection.
    """
    from qmd.config import edits

    config.require(name)
    with _in_one_step(writer, target):
        return writer.remove_collection(name), edits.remove_collection(target, name)


def _in_one_step(writer: IndexWriter, target: Target) -> AbstractContextManager[None]:
    """Keep other processes from mirroring the configuration file between the change of the index and that of the file.

    They would take the documents of a new name for those of a collection that left the file, and drop them. A
    configuration kept elsewhere may live in the index itself, whose editor needs the write lock.
    """
    return writer.transaction() if isinstance(target, Locations) else nullcontext()
