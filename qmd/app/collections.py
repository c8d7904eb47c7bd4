"""Collections: lookup, changes of index and configuration together, and the message for an empty one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from qmd.addresses import places_on_disk, split_address, without_scheme
from qmd.app.file_types import command_for_all, kinds_text, without_reader
from qmd.app.records import Part
from qmd.config.paths import expand_home
from qmd.config.settings import Config
from qmd.errors import NotFoundError, QmdError, UsageError
from qmd.escapes import address_line
from qmd.file_names import to_disk, to_text
from qmd.records import DEFAULT_PATTERN, OWN_PATTERNS, UNWRITTEN_PATTERN, Collection

if TYPE_CHECKING:
    from qmd.app.configuration import Configuration
    from qmd.store.base import IndexWriter


def check_name(name: str) -> None:
    """Refuse names that cannot be part of an address.

    Raises:
        UsageError: It is blank or has control characters.
    """
    if not name.strip("/ ") or address_line(name) != name:
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
    """Configure a folder or file and return the new configuration; see `Index.add_collection`."""
    from qmd.config import edits

    check_name(name)
    config = configuration.written()
    if config.collection(name) is not None:
        raise QmdError(f"Collection '{name}' already exists.", "Use a different name with --name <name>")
    # Without a mask, a collection whose mask no user wrote is the same one.
    same = (*OWN_PATTERNS, UNWRITTEN_PATTERN) if pattern == DEFAULT_PATTERN else (pattern,)
    for one in config.collections:
        if one.path.resolve() == folder and one.pattern in same:
            raise QmdError(
                f"A collection already exists for this path and pattern: {one.name} (qmd://{one.name}/)",
                "Use 'qmd update' to re-index it, or remove it first with 'qmd collection remove'",
            )
    return edits.add_collection(configuration.edit, name, folder, pattern, ignore, gitignore=gitignore)


def ensure_collection(
    configuration: Configuration,
    path: Path,
    name: str | None,
    pattern: str | None,
    *,
    gitignore: bool,
    chooses_mask: bool = False,
) -> Part:
    """Return the collection at `path`, or the part of one; see `Index.ensure_collections`."""
    from qmd.config import edits
    from qmd.ingest.exclusion import choose_mask
    from qmd.ingest.scan import scan_collection

    while (known := _known_at(config := configuration.written(), path, name, pattern)) is None:
        if name is None and (part := _part_at(config, path, pattern, gitignore=gitignore)) is not None:
            return part
        mask = pattern or (choose_mask(path, gitignore=gitignore) if chooses_mask else DEFAULT_PATTERN)
        unnamed = Collection("", path, mask, gitignore=gitignore)
        if not (scan := scan_collection(unnamed, enough=1)).files and not scan.skipped:
            raise nothing_to_index(unnamed, scan.git_ignored)
        check_name(new := name or _free_name(config, path))
        if config.collection(new) is not None:
            raise UsageError(f"collection '{new}' already exists", "choose another with --name")
        # Refused when another process has taken the name since; then the next turn chooses another.
        with suppress(UsageError):
            edits.add_collection(configuration.edit, new, path, mask, gitignore=gitignore)
    if not gitignore:
        edits.take_git_ignored(configuration.edit, known)
    return Part(known)


def _known_at(config: Config, path: Path, name: str | None, pattern: str | None) -> str | None:
    for one in config.collections:
        if one.path.resolve() == path and pattern in (None, one.pattern) and name in (None, one.name):
            return one.name
    return None


def _part_at(config: Config, path: Path, pattern: str | None, *, gitignore: bool) -> Part | None:
    """Return the part of a collection at `path`; None if no collection includes the files there."""
    from qmd.ingest.scan import scan_collection

    for one, below in places_on_disk(path, config.collections):
        if pattern not in (None, one.pattern) or (one.gitignore and not gitignore):
            continue
        # Files that the collection's ignore files or mask exclude are indexed if their path is given.
        others = Collection("", path, one.pattern)
        if scan_collection(one, below, enough=1).files or not scan_collection(others, enough=1).files:
            return Part(one.name, below)
    return None


def _free_name(config: Config, path: Path) -> str:
    """Return a name for a collection at `path`: its last part, with the parent's or a number if that is taken."""
    base = to_text(path.stem if path.is_file() else path.name) or "root"
    if config.collection(base) is None:
        return base
    candidate, number = f"{to_text(path.parent.name) or 'root'}-{base}", 2
    while config.collection(candidate) is not None:
        candidate, number = f"{base}-{number}", number + 1
    return candidate


def locate_path(config: Config, path: str, collection: str | None, cwd: Path) -> tuple[str, str]:
    """Return the (collection, prefix) of a path; see `Index.locate_path`."""
    if collection is not None:
        config.require(collection)
        return collection, path.strip("/") if path != "." else ""
    names, place, address = [one.name for one in config.collections], cwd / expand_home(path), without_scheme(path)
    named = split_address(path if address is None else address, names)
    if named is not None and (address is not None or not place.exists()):
        return named[0], named[1].strip("/")
    if address is not None:
        config.require(address.partition("/")[0])
    for one, inside in places_on_disk(place, config.collections):
        return one.name, inside
    message = f"Path is not in any indexed collection: {Path(path)}"
    raise NotFoundError(message, "Run 'qmd status' to see indexed collections")


def rename_collection(configuration: Configuration, old: str, new: str) -> None:
    """Rename a collection in the index and the configuration; see `Index.rename_collection`."""
    from qmd.config import edits

    config = configuration.written()
    config.require(old)
    with configuration.open_writer() as writer:
        check_name(new)
        if config.collection(new) is not None:
            raise QmdError(f"Collection name already exists: {new}", "choose another name")
        with _in_one_step(writer, configuration):
            writer.rename_collection(old, new)
            edits.rename_collection(configuration.edit, old, new)


def remove_collection(configuration: Configuration, name: str) -> int:
    """Remove a collection and return its number of documents; see `Index.remove_collection`."""
    from qmd.config import edits

    configuration.written().require(name)
    with configuration.open_writer() as writer, _in_one_step(writer, configuration):
        n_documents = writer.remove_collection(name)
        edits.remove_collection(configuration.edit, name)
        return n_documents


def _in_one_step(writer: IndexWriter, configuration: Configuration) -> AbstractContextManager[None]:
    """Keep other processes from mirroring the configuration file between the change of the index and that of the file.

    They would take a new name for a collection that left the file, and drop its documents. An edit of a configuration
    that is only in the index needs the write lock.
    """
    return nullcontext() if configuration.is_in_index else writer.transaction()


def git_ignored_line(collection: Collection, git_ignored: Sequence[str]) -> str | None:
    """Return `notes: skipped 6 because of .gitignore (MEMORY.md, …); to include them: --no-ignore`; None without files.

    Args:
        collection: Its mask selects the files.
        git_ignored: Files and folders that git ignores, see `ScanResult`.
    """
    files = _files(collection, git_ignored)
    return f"{collection.name}: {_git_ignored(files)}; to include them: --no-ignore" if files else None


def nothing_to_index(collection: Collection, git_ignored: Sequence[str], below: str = "") -> NotFoundError:
    """Return the reason why a collection, or a folder in it, is empty, and the command that includes its files.

    Args:
        collection: Its name is empty before it is created.
        git_ignored: Files in it that git ignores, see `ScanResult`.
        below: Only this folder of it.
    """
    from qmd.ingest.exclusion import count_kinds, is_unread, selected_files
    from qmd.installation import install_command

    if below:
        collection = replace(collection, name="", path=collection.path / to_disk(below))
        git_ignored = [path.removeprefix(f"{below}/") for path in git_ignored]
    folder, pattern = to_text(collection.path), collection.pattern
    nothing, matching = f"no file in '{folder}' to index", f"no file in '{folder}' matches {pattern}"
    command, is_own = f"qmd index {shlex.quote(folder)}", pattern in OWN_PATTERNS
    if ignored := _files(collection, git_ignored):
        mask = "" if is_own else f" --glob {shlex.quote(pattern)}"
        return NotFoundError(f"{nothing}: {_git_ignored(ignored)}", f"{command}{mask} --no-ignore")
    if selected := selected_files(collection):
        reason = f"an ignore rule excludes all files{'' if is_own else f' that match {pattern}'} ({_some(selected)})"
        return NotFoundError(f"{nothing}: {reason}", "see .qmdignore, and 'ignore' in index.yml")
    kinds = count_kinds(collection.path)
    are = "is" if kinds.total() == 1 else "are"
    there = f"there {are} {kinds_text(kinds)}" if kinds else "the folder is empty"
    if not all(map(is_unread, kinds)):
        hint = command_for_all(collection)
    elif kinds:
        hint = install_command("files") if without_reader(kinds) else "convert them to markdown or plain text"
    elif collection.name:
        hint = "write notes there, then run: qmd index"
    else:
        hint = f"to add it all the same: qmd collection add {shlex.quote(folder)}"
    return NotFoundError(f"{nothing if is_own else matching}; {there}", hint)


def _files(collection: Collection, git_ignored: Sequence[str]) -> list[str]:
    from qmd.ingest.exclusion import selected_files

    folders = [path for path in git_ignored if path.endswith("/")]
    return [path for path in git_ignored if not path.endswith("/")] + selected_files(collection, folders)


def _git_ignored(files: Sequence[str]) -> str:
    return f"skipped {len(files):,} because of .gitignore ({_some(files)})"


def _some(files: Sequence[str]) -> str:
    return ", ".join([*files[:3], *(["…"] if len(files) > 3 else [])])
