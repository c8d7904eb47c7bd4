"""Opening the index of a place so that its copy of the configuration equals the configuration."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from qmd.config.paths import Locations, own_index
from qmd.config.settings import Config, config_digest, load_config
from qmd.errors import StrangeIndexError
from qmd.files import create_private, tighten

if TYPE_CHECKING:
    from qmd.records import Collection
    from qmd.store.base import IndexWriter

VERIFIED_FOR_S = 86_400
"""For how long an index that was found sound is not verified again."""

MIRROR_TIMEOUT_MS = 250
"""How long a search waits to refresh the index's copy of the configuration before it goes on with the old copy."""


def mirror_for_reading(locations: Locations, environ: Mapping[str, str]) -> None:
    """Make the index's copy of the configuration equal to the edited file, as far as a search may.

    Only a writing command deletes documents; until then those of a collection that left the file are out of scope.

    Raises:
        BusyError: Another process is writing.
        StoreError: The index cannot be written.
    """
    config = load_config(locations)
    with _open_writer(locations, MIRROR_TIMEOUT_MS) as writer, writer.transaction():
        config = _as_it_is_now(config, locations)
        collections = with_the_rest(_trusted_collections(locations, config, environ), writer.collections())
        writer.mirror_config(collections, config.global_context, config.digest)


def open_current_writer(
    locations: Locations, config: Config, environ: Mapping[str, str], say: Callable[[str], None]
) -> IndexWriter:
    """The index for writing, holding exactly the collections of the configuration file; made when missing.

    At an address it keeps those of other machines as well. Where another program has the place, the index lies beside
    its file.

    Args:
        locations: The index.
        config: The file as the caller read it, which spares reading it again while it has not changed.
        environ: Vouches for a project's configuration.
        say: Told when the place is another program's.
    """
    writer = open_or_make(locations, say)
    try:
        if locations.config_file.exists():
            with writer.transaction():
                _mirror_file(writer, locations, config, environ)
    except BaseException:
        writer.close()
        raise
    return writer


def _mirror_file(writer: IndexWriter, locations: Locations, config: Config, environ: Mapping[str, str]) -> None:
    """Mirror the configuration file as it is now, inside the caller's transaction.

    Another process may have added a collection, documents and all, since the caller read `config`. Whoever adds one
    writes the file before the index, so a collection in the index that the file lacks under the index's write lock is
    one that was removed.
    """
    # `config` may lack what is not trusted; documents are deleted only with their collection's entry in the file.
    written = _as_it_is_now(config, locations) if locations.project_root is None else load_config(locations)
    trusted = replace(written, collections=tuple(_trusted_collections(locations, written, environ)))
    mirror(writer, trusted, written, is_shared=locations.address is not None)


def _as_it_is_now(config: Config, locations: Locations) -> Config:
    return config if config.digest == config_digest(locations) else load_config(locations)


def open_or_make(locations: Locations, say: Callable[[str], None]) -> IndexWriter:
    """The index for writing, made when missing; where another program has the place, beside its file.

    One that came with a project and was not made here is set aside.
    """
    for folder in locations.own_folders:
        tighten(folder)
    try:
        writer = _open_writer(locations, None)
    except StrangeIndexError as exc:
        from qmd.store.sqlite.salvage import set_stranger_aside

        aside = set_stranger_aside(exc.path)
        say(f"{exc.message}: it was set aside as '{aside}', and one is built from your files")
        writer = _open_writer(locations, None)
    if locations.address is None and writer.path != locations.database and locations.database.exists():
        say(f"'{locations.database}' belongs to another program and stays as it is; this index is '{writer.path}'")
    return writer


def mend(locations: Locations, say: Callable[[str], None], *, always: bool = False) -> None:
    """Verify the index and, where it is damaged, begin a new one that has its sound vectors; the old file is kept.

    The texts and words come from the files with the next update of their collections. Reads the whole file, at one to
    two seconds per gigabyte: once a day, and when damage was met since, unless `always`. Of an index at an address,
    which may be far away, all is read only then; its damaged tables are begun anew, and the others stay.
    """
    if locations.address is not None:
        from qmd.store.opening import opening_at

        damaged = opening_at(locations.address).mend(locations.address, locations.database, thorough=always)
        if damaged:
            say(f"index '{locations.address}' was damaged: {', '.join(damaged)} are built again from your files")
        return
    from qmd.store.sqlite.connection import DamagedIndexError, verified_mark

    path = own_index(locations.database)
    if not path.exists():
        return
    mark = verified_mark(path)
    if not always and _is_recent(mark):
        return
    found = path.stat()
    try:
        with _open_writer(locations, None) as writer:
            problems = writer.check(thorough=False)
    except DamagedIndexError as exc:
        problems = [exc.message]
    except StrangeIndexError:  # set aside by whoever writes
        return
    if not problems:
        with suppress(OSError):
            create_private(mark)
            os.utime(mark)
        return
    from qmd.store.sqlite.salvage import rebuild

    rebuilt = rebuild(path, found)
    if rebuilt is not None:
        say(
            f"index '{path}' was damaged: it was set aside as '{rebuilt.aside}' and is built again from your files;"
            f" {rebuilt.vectors} vectors were kept"
        )


def _is_recent(mark: Path) -> bool:
    try:
        return 0 <= time.time() - mark.stat().st_mtime < VERIFIED_FOR_S
    except OSError:
        return False


def mirror(writer: IndexWriter, config: Config, written: Config, *, is_shared: bool = False) -> None:
    """Make the index's copy of the configuration equal to `config`, and delete what left `written`, its full form.

    Of an index that is shared each machine's configuration tells a part: what it does not name stays as it is.
    """
    if is_shared:
        _mirror_part(writer, config)
        return
    names = {collection.name for collection in written.collections}
    with writer.transaction():
        # An update that ran while its collection was removed or renamed may have stored documents under the old name.
        known = {collection.name for collection in writer.collections()} | set(writer.collections_with_documents())
        for gone in sorted(known - names):
            writer.remove_collection(gone)
        collections = with_the_rest(config.collections, writer.collections())
        writer.mirror_config(collections, config.global_context, config.digest)


def _mirror_part(writer: IndexWriter, config: Config) -> None:
    with writer.transaction():
        known = {collection.name: collection for collection in writer.collections()}
        collections = {**known, **{collection.name: collection for collection in config.collections}}
        global_context = config.global_context or writer.global_context()
        if list(collections.values()) != list(known.values()) or global_context != writer.global_context():
            writer.mirror_config(tuple(collections.values()), global_context, config.digest)


def with_the_rest(collections: Sequence[Collection], known: Sequence[Collection]) -> list[Collection]:
    """`collections`, then the other known ones, which are searched only when they are named."""
    names = {collection.name for collection in collections}
    return [*collections, *(replace(one, include_by_default=False) for one in known if one.name not in names)]


def _trusted_collections(locations: Locations, config: Config, environ: Mapping[str, str]) -> Sequence[Collection]:
    """The collections of `config`, of a project's own one only those that the user trusts."""
    if locations.project_root is None:
        return config.collections
    from qmd.config.trust import trusted_part

    return trusted_part(config, locations, environ).collections


def _open_writer(locations: Locations, busy_timeout_ms: int | None) -> IndexWriter:
    from qmd.store.opening import open_writer

    return open_writer(locations.database, locations.address, busy_timeout_ms=busy_timeout_ms)
