"""Open an index for writing: create or repair it, and update its copy of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from qmd.config.paths import Locations, own_index
from qmd.config.settings import Config
from qmd.errors import UnknownOriginError
from qmd.files import is_recent, renew_mark, restrict_to_owner

if TYPE_CHECKING:
    from qmd.records import Collection
    from qmd.store.base import IndexWriter

VERIFIED_FOR_S = 86_400
"""Seconds before an index that was created or verified is verified again."""


def open_or_make(locations: Locations, say: Callable[[str], None]) -> IndexWriter:
    """Open the index for writing, and create a missing one; next to the file of another program.

    An index that came with a project and was not made here is set aside.
    """
    from qmd.store.opening import open_writer

    for folder in locations.own_folders:
        restrict_to_owner(folder)
    is_made = locations.address is None and not own_index(locations.database).exists()
    try:
        writer = open_writer(locations.database, locations.address)
    except UnknownOriginError as exc:
        from qmd.store.sqlite.salvage import set_foreign_index_aside

        aside = set_foreign_index_aside(exc.path)
        say(f"{exc.message}: it was set aside as '{aside}', and one is built from your files")
        writer = open_writer(locations.database, locations.address)
    if locations.address is None and writer.path != locations.database and locations.database.exists():
        say(f"'{locations.database}' belongs to another program and stays as it is; this index is '{writer.path}'")
    if is_made:
        from qmd.store.sqlite.connection import record_state, verified_mark

        # A new index need not be verified before tomorrow.
        renew_mark(verified_mark(writer.path))
        record_state(writer.path)
    return writer


def mend(locations: Locations, say: Callable[[str], None], *, always: bool = False) -> None:
    """Verify the index and repair it, or replace a damaged one by a new one with its sound vectors; the old is kept.

    The next update of the collections restores the texts and words from the files. Reads the whole file, at one to two
    seconds per gigabyte: once a day, and after damage or a change by another program, unless `always`. An index at an
    address, which may be far away, is read only then; its damaged tables are emptied, and the others stay.
    """
    if locations.address is not None:
        from qmd.store.opening import load_store_module

        damaged = load_store_module(locations.address).mend(locations.address, locations.database, thorough=always)
        if damaged:
            say(f"index '{locations.address}' was damaged: {', '.join(damaged)} are built again from your files")
        return
    from qmd.store.opening import open_writer
    from qmd.store.sqlite.connection import DamagedIndexError, record_state, verified_mark

    path = own_index(locations.database)
    if not path.exists():
        return
    mark, found = verified_mark(path), path.stat()
    is_due = always or not is_recent(mark, VERIFIED_FOR_S) or not record_state(path, found.st_mtime_ns)
    try:
        with open_writer(locations.database, locations.address) as writer:
            problems = writer.check(thorough=False) if is_due else []
    except DamagedIndexError as exc:
        problems = [exc.message]
    except UnknownOriginError:  # set aside by the writer
        return
    if problems:
        from qmd.store.sqlite.salvage import rebuild, restore_checksums

        if restore_checksums(path):
            say(f"index '{path}' lacked checksums, which other programs do not write: it was sound, they were added")
            problems = []
    if not problems:
        if is_due:
            renew_mark(mark)
            record_state(path)
        return
    rebuilt = rebuild(path, found)
    if rebuilt is not None:
        say(
            f"index '{path}' was damaged: it was set aside as '{rebuilt.aside}' and is built again from your files;"
            f" {rebuilt.vectors} vectors were kept"
        )


def mirror(writer: IndexWriter, config: Config, written: Config, *, is_shared: bool = False) -> None:
    """Update the index's copy of the configuration to `config`, and delete collections that are not in `written`.

    A shared index has collections of several machines: collections that `config` does not name stay unchanged.
    """
    with writer.transaction():
        known = {collection.name: collection for collection in writer.collections()}
        if is_shared:
            collections = {**known, **{collection.name: collection for collection in config.collections}}
            note = config.global_context or writer.global_context()
            if list(collections.values()) != list(known.values()) or note != writer.global_context():
                writer.mirror_config(tuple(collections.values()), note, config.digest)
            return
        names = {collection.name for collection in written.collections}
        # An update that ran while its collection was removed or renamed may have stored documents under the old name.
        for gone in sorted({*known, *writer.collections_with_documents()} - names):
            writer.remove_collection(gone)
        writer.mirror_config(
            with_unchanged(config.collections, writer.collections()), config.global_context, config.digest
        )


def with_unchanged(collections: Sequence[Collection], known: Sequence[Collection]) -> list[Collection]:
    """Return `collections`, then the other known ones, which are searched only when they are named."""
    names = {collection.name for collection in collections}
    return [*collections, *(replace(one, include_by_default=False) for one in known if one.name not in names)]
