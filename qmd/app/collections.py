"""Collections: lookup, changes of index and configuration together, and the message for an empty one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from qmd.addresses import places_on_disk, split_address, without_scheme
from qmd.app.file_types import command_for_all, kinds_text, without_reader
from qmd.app.records import Part
from qmd.config import edits
from qmd.config.paths import expand_home
from qmd.config.settings import Config
from qmd.errors import NotFoundError, QmdError, UnindexableFileError, UsageError
from qmd.escapes import address_line
from qmd.file_names import folded_home, to_disk, to_text
from qmd.files import folder_identity
from qmd.ingest.scan import scan_collection
from qmd.masks import DEFAULT_PATTERN, HISTORY, OWN_PATTERNS, UNWRITTEN_PATTERN
from qmd.records import Collection, FileEntry

if TYPE_CHECKING:
    from qmd.app.configuration import Configuration
    from qmd.store.base import IndexWriter
    from qmd.store.records import KnownFile

_SAMPLE, _MOVED, _COPIED, _LEAST_TEXTS = 100, 0.5, 0.9, 5
"""Number of compared texts, or up to twice; shares of equal ones in a moved folder, and in a copy; fewest in a copy."""


def check_name(name: str) -> None:
    """Refuse names that cannot be part of an address.

    Raises:
        UsageError: It is blank or has control characters.
    """
    if not name.strip("/ ") or address_line(name) != name:
        raise UsageError(f"collection name '{name}' is not usable", "use letters, digits, dots, dashes")


def add_collection(
    configuration: Configuration, name: str, folder: Path, pattern: str, ignore: Sequence[str], *, gitignore: bool
) -> Config:
    """Configure a folder or file and return the new configuration; see `Index.add_collection`."""
    check_name(name)
    config = configuration.written()
    if config.collection(name) is not None:
        raise QmdError(f"Collection already exists: {name}", "Use a different name with --name <name>")
    _refuse_twin(config, name, folder, pattern)
    folder, settings = configuration.locations.shorten(folder), {"gitignore": None if gitignore else False}
    return edits.add_collection(configuration.edit, name, folder, pattern, {**settings, "ignore": [*ignore] or None})


def _refuse_twin(config: Config, name: str, folder: Path, pattern: str) -> None:
    # Without a mask, a collection whose mask no user wrote is the same one.
    same = (*OWN_PATTERNS, UNWRITTEN_PATTERN) if pattern == DEFAULT_PATTERN else (pattern,)
    for one in config.collections:
        if one.name != name and one.path.resolve() == folder.resolve() and one.pattern in same:
            raise QmdError(
                f"A collection already exists for this path and pattern: {one.name} (qmd://{one.name}/)",
                "Use 'qmd update' to re-index it, or remove it first with 'qmd collection remove'",
            )


def ensure_collection(
    path: Path,
    configuration: Configuration,
    name: str | None,
    pattern: str | None,
    gitignore: bool,
    separate: bool,
    chooses_mask: bool,
) -> Part:
    """Return the collection at `path`, or the part of one; see `Index.ensure_collections`."""
    while (known := _known_at(config := configuration.written(), path, name, pattern, separate)) is None:
        if not (name or separate) and (part := _part_at(config, path, pattern, gitignore=gitignore)) is not None:
            return part
        from qmd.ingest.exclusion import choose_mask
        from qmd.plugins.histories import history_name

        history = history_name(path)
        mask = pattern or (HISTORY if history else None)
        mask = mask or (choose_mask(path, gitignore=gitignore) if chooses_mask else DEFAULT_PATTERN)
        settings = {"includeByDefault": False if history else None}
        _refuse_empty(Collection("", path, mask, gitignore=gitignore))
        check_name(new := name or _free_name(config, path, history))
        if config.collection(new) is not None:
            raise UsageError(f"Collection already exists: {new}", "choose another with --name")
        # Refused when another process has taken the name since; then the next turn chooses another.
        with suppress(UsageError):
            edits.add_collection(configuration.edit, new, configuration.locations.shorten(path), mask, settings)
            name = new
    if pattern not in (None, known.pattern):
        _refuse_empty(replace(known, pattern=pattern, gitignore=known.gitignore and gitignore))
        configuration.notices.say(*set_collection(configuration, known.name, None, pattern, None))
    if not gitignore:
        edits.set_collection(configuration.edit, known.name, {"gitignore": False})
    return Part(known.name)


def _refuse_empty(collection: Collection) -> None:
    if not (scan := scan_collection(collection, enough=1)).files and not scan.skipped:
        raise nothing_to_index(collection, scan.git_ignored)


def _known_at(config: Config, path: Path, name: str | None, pattern: str | None, separate: bool) -> Collection | None:
    """Return the collection of a folder, of several that with the mask; refuse a second one that is not separate."""
    # By identity, as some systems find a folder in other letter case as well.
    identity = folder_identity(path)
    there = [one for one in config.collections if identity and folder_identity(one.path) == identity]
    named = [one for one in there if name in (None, one.name)]
    same = [one for one in named if pattern in (None, one.pattern)]
    if there and (name is None if separate else not (same or len(named) == 1)):
        names, first, new = ", ".join(one.name for one in there), shlex.quote(there[0].name), shlex.quote(name or "NEW")
        hint = f"to rename it: qmd collection set {first} --name {new}; for another: --name {new} --separate"
        raise UsageError(f"'{to_text(path)}' is the folder of collection {names}", hint)
    return next(iter(same or named), None)


def _part_at(config: Config, path: Path, pattern: str | None, *, gitignore: bool) -> Part | None:
    """Return the part of a collection at `path`; None if no collection includes the files there."""
    for one, below in places_on_disk(path, config.collections):
        if pattern not in (None, one.pattern) or (one.gitignore and not gitignore):
            continue
        # Files that the collection's ignore files or mask exclude are indexed if their path is given.
        others = Collection("", path, one.pattern)
        if scan_collection(one, below, enough=1).files or not scan_collection(others, enough=1).files:
            return Part(one.name, below)
    return None


def _free_name(config: Config, path: Path, base: str | None = None) -> str:
    """Return a name for a collection at `path`: `base` or its last part, with the parent's or a number if taken."""
    base = to_text(base or (path.stem if path.is_file() else path.name)) or "root"
    names = chain((base, f"{to_text(path.parent.name) or 'root'}-{base}"), (f"{base}-{n}" for n in count(2)))
    return next(name for name in names if config.collection(name) is None)


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


def set_collection(
    configuration: Configuration, name: str, path: Path | None, pattern: str | None, new: str | None
) -> list[str]:
    """Change a collection in the index and the configuration; see `Index.set_collection`."""
    config, settings = configuration.written(), dict[str, object]()
    one = config.require(name)
    if new is not None:
        check_name(new)
        if config.collection(new) is not None:
            raise QmdError(f"Collection already exists: {new}", "choose another name")
    if path is not None or pattern is not None:
        _refuse_twin(config, name, path or one.path, pattern or one.pattern)
    with configuration.open_writer() as writer, _in_one_step(writer, configuration):
        if path is not None:
            settings["path"] = to_text(configuration.locations.shorten(path))
            # An empty folder is then no detached disk.
            writer.set_facts({f"folder:{name}": None})
        if pattern is not None:
            settings["pattern"] = pattern
        if new is not None:
            writer.rename_collection(name, new)
        edits.set_collection(configuration.edit, name, settings, new)
    changes = {"is now at": path and folded_home(path, Path.home()), "now takes": pattern, "is now called": new}
    return [f"✓ {name} {change} {value}" for change, value in changes.items() if value]


def follow_moves(configuration: Configuration, paths: Sequence[Path], new: str | None) -> None:
    """Set the present places of missing folders of collections; see `Index.ensure_collections`."""
    collections, notices = configuration.written().collections, configuration.notices
    identities = {one.name: folder_identity(one.path) for one in collections}
    for one in (one for one in collections if identities[one.name] is None):
        with configuration.open_writer() as writer:
            found = _find_moved(writer, one, paths, configuration.locations.base)
        if found is None or folder_identity(found[0]) in identities.values():
            continue
        state = f"the folder of collection '{one.name}' is missing, and its texts are in '{to_text(found[0])}'"
        if found[1] or notices.confirms(f"{state}. Has it moved there?"):
            notices.say(*set_collection(configuration, one.name, found[0], None, None))
        else:
            remove = f"qmd collection remove {shlex.quote(new or _free_name(configuration.written(), found[0]))}"
            remedy = shlex.join(["qmd", "collection", "set", one.name, "--path", to_text(found[0])])
            notices.say(f"{state}; if it moved there: {remove} && {remedy}")


def _find_moved(writer: IndexWriter, one: Collection, paths: Sequence[Path], base: Path) -> tuple[Path, bool] | None:
    """Return the place of a missing folder, one of `paths` or near the old place, and whether that is sure.

    A moved folder keeps its inode, which file systems also give to new folders, so texts are compared. A copy has only
    the same texts: a reason to ask, and not even that while the disk of the folder may be unplugged.
    """
    recorded, old, known = writer.facts().get(f"folder:{one.name}", ""), one.path, writer.known_files(one.name)
    # The disk is no longer there if the parent is missing, or now an empty mount point on another device.
    is_attached = (folder_identity(old.parent) or "").rpartition(":")[0] == recorded.rpartition(":")[0]
    sample = [(path, known[path]) for path in sorted(known)[:: len(known) // _SAMPLE + 1]]
    n_texts = len({file.hash for _, file in sample})
    # In a project that has moved, the end of the path is the same.
    near = chain(old.parent.glob("*"), (base.joinpath(*old.parts[n:]) for n in range(1, len(old.parts) + 1)))
    for place in paths or [place for place in near if folder_identity(place) == recorded]:
        n_equal = len({file.hash for path, file in sample if _has_text(place, path, file)})
        if n_equal >= max(_MOVED * n_texts, 1) and folder_identity(place) == recorded:
            return place, True
        if n_equal >= max(_COPIED * n_texts, _LEAST_TEXTS) and is_attached:
            return place, False
    return None


def _has_text(place: Path, path: str, known: KnownFile) -> bool:
    """Return whether a folder, or the file at `place`, has an indexed text; converted files are compared by size."""
    from qmd.ingest.document import read_hash
    from qmd.ingest.outline import kind_of

    file, kind = place if place.is_file() else place / to_disk(path), kind_of(path)
    with suppress(OSError, ValueError, UnindexableFileError):
        entry = FileEntry(to_text(file.name), file.parent, file.stat().st_size, 0)
        return entry.size_bytes == known.size_bytes and (kind.is_converted or read_hash(entry, kind) == known.hash)
    return False


def remove_collection(configuration: Configuration, name: str) -> int:
    """Remove a collection and return its number of documents; see `Index.remove_collection`."""
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
