"""What every command starts from: environment, places, configuration, the index, and the trust gate."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.config.paths import Locations, locate
from qmd.config.settings import Config, config_digest, load_config
from qmd.errors import BusyError, NotFoundError, StoreError, UsageError
from qmd.quick_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from qmd.config.trust import GatedItems
    from qmd.records import Collection
    from qmd.store import IndexReader, IndexWriter

_MIRROR_TIMEOUT_MS = 250
"""How long a search waits to refresh the index's copy of the configuration before it goes on with the old copy."""


@dataclass(frozen=True, slots=True)
class Session:
    """One run of the program: which command, and the world it runs in."""

    command: str
    usage: str
    environ: Mapping[str, str]
    cwd: Path

    def locate(self, index: str | None) -> Locations:
        """The places of the index that `--index` names."""
        return locate(index, self.cwd, self.environ)

    def missing_argument(self) -> UsageError:
        """What to raise when a required word is absent: the usage line stands for itself."""
        return UsageError(f"Usage: qmd {self.usage}")

    @property
    def is_interactive(self) -> bool:
        """Whether a person can answer a question."""
        return sys.stdin.isatty() and sys.stdout.isatty()

    @property
    def has_colour(self) -> bool:
        """Whether stdout is a terminal that may be sent colours and links."""
        return sys.stdout.isatty() and not self.environ.get("NO_COLOR")


def out(text: str) -> None:
    """Write a piece of the result."""
    sys.stdout.write(text)


def say(text: str) -> None:
    """Write a line for people to stderr."""
    print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Write a warning line to stderr."""
    say(f"warning: {text}")


def open_current_reader(locations: Locations) -> IndexReader:
    """The index, with its copy of the configuration made equal to the file if that was edited since.

    Raises:
        NotFoundError: There is no index yet.
        StoreError: The index is damaged or foreign.
    """
    from qmd.store import open_reader

    reader = open_reader(locations.database)
    # Without the file (an index copied alone) the index's own copy is all there is.
    if reader.config_hash() == config_digest(locations) or not locations.config_file.exists():
        return reader
    config = load_config(locations)
    # Only a writing command deletes documents; until then those of a collection that left the file are out of scope.
    collections = _with_the_rest(_trusted_collections(locations, config), reader.collections())
    reader.close()
    try:
        with _open_writer(locations, _MIRROR_TIMEOUT_MS) as writer:
            writer.mirror_config(collections, config.global_context, config.digest)
    except (BusyError, StoreError) as exc:
        warn(f"'{locations.config_file.name}' changed, but this run still uses its old settings: {exc.message}")
    return open_reader(locations.database)


def open_current_writer(locations: Locations, config: Config) -> IndexWriter:
    """The index for writing, holding exactly the collections of `config`; made when missing.

    An index of another program with the same name is moved aside, whole, and rebuilt from the configuration.
    """
    from qmd.store import ForeignIndexError

    try:
        writer = _open_writer(locations, None)
    except ForeignIndexError:
        aside = _move_aside(locations.database)
        say(f"the index of another program was moved to '{aside}'; building a new one from '{locations.config_file}'")
        writer = _open_writer(locations, None)
    if locations.config_file.exists():
        # `config` may lack what is not trusted; documents are deleted only with their collection's entry in the file.
        written = config if locations.project_root is None else load_config(locations)
        names = {collection.name for collection in written.collections}
        for known in writer.collections():
            if known.name not in names:
                writer.remove_collection(known.name)
        collections = _with_the_rest(_trusted_collections(locations, config), writer.collections())
        writer.mirror_config(collections, config.global_context, config.digest)
    return writer


def _trusted_collections(locations: Locations, config: Config) -> Sequence[Collection]:
    """The collections of `config`, of a project's own one only those that the user trusts."""
    if locations.project_root is None:
        return config.collections
    from qmd.config.trust import trusted_part

    return trusted_part(config, locations, os.environ).collections


def _with_the_rest(collections: Sequence[Collection], known: Sequence[Collection]) -> list[Collection]:
    """`collections`, then the other known ones, which are searched only when they are named."""
    names = {collection.name for collection in collections}
    return [*collections, *(replace(one, include_by_default=False) for one in known if one.name not in names)]


def current_config(locations: Locations) -> Config:
    """The configuration file, or where there is none the copy that an index of that place holds."""
    if locations.config_file.exists() or not locations.database.exists():
        return load_config(locations)
    from qmd.store import open_reader

    with open_reader(locations.database) as reader:
        return Config(tuple(reader.collections()), reader.global_context(), digest=config_digest(locations))


def _open_writer(locations: Locations, busy_timeout_ms: int | None) -> IndexWriter:
    from qmd.store import open_writer

    return open_writer(locations.database, busy_timeout_ms=busy_timeout_ms)


def _move_aside(database: Path) -> Path:
    aside = database.with_name(f"{database.name}.original")
    number = 1
    while aside.exists():
        number += 1
        aside = database.with_name(f"{database.name}.original-{number}")
    for suffix in ("", "-wal", "-shm"):
        part = database.with_name(database.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def require_collection(config: Config, name: str) -> Collection:
    """The collection called `name`.

    Raises:
        NotFoundError: There is none; the hint names the nearest.
    """
    collection = config.collection(name)
    if collection is None:
        raise collection_not_found(name, [known.name for known in config.collections])
    return collection


def collection_not_found(name: str, known: Sequence[str]) -> NotFoundError:
    """The error for an unknown collection."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    if near:
        hint = f"did you mean '{near[0]}'? see: qmd collection list"
    elif known:
        hint = f"known: {', '.join(known)}; see: qmd collection list"
    else:
        hint = "add one: qmd index PATH"
    return NotFoundError(f"Collection not found: {name}", hint)


def scope_collections(collections: Sequence[Collection], names: Sequence[str]) -> tuple[str, ...] | None:
    """Names to search in: those asked for, else those included by default; None means all.

    Raises:
        NotFoundError: A name that does not exist.
    """
    known = [collection.name for collection in collections]
    for name in names:
        if name not in known:
            raise collection_not_found(name, known)
    if names:
        return tuple(dict.fromkeys(names))
    included = tuple(collection.name for collection in collections if collection.include_by_default)
    if len(included) == len(collections):
        return None
    if not included:
        warn("every collection is excluded from searches; name one with -c, or run: qmd collection include NAME")
    return included


def apply_trust(session: Session, locations: Locations, config: Config) -> Config:
    """`config` as far as it is trusted: a project's own file may not run commands, leave it, or choose models.

    On a terminal the user is asked; elsewhere the gated items are left out with a warning.
    """
    from qmd.config.trust import gated_items, is_trusted, record_trust, trusted_part

    items = gated_items(config, locations)
    if is_trusted(items, locations, session.environ):
        return config
    for line in describe_gated(items):
        say(line)
    if session.is_interactive:
        sys.stderr.write("Trust this project's .qmd config? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            record_trust(items, locations)
            return config
    for name, path in items.paths:
        warn(f"Skipping collection '{name}' — path {path} is outside this project and this .qmd config is not trusted.")
    if items.hooks or items.models:
        warn("update commands and custom models of this project are not used; to allow them run: qmd trust")
    return trusted_part(config, locations, session.environ)


def describe_gated(items: GatedItems) -> list[str]:
    """The gated items as lines under their headings."""
    lines: list[str] = []
    headings = (
        ("This project's config defines update commands:", items.hooks),
        ("Collection paths outside this project:", items.paths),
        ("Custom models:", items.models),
    )
    for heading, entries in headings:
        if entries:
            lines += [heading, *(f"  {name}: {value}" for name, value in entries)]
    return lines
