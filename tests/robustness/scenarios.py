"""Small worlds and the commands that run in them: what the crash states and the disk faults are made of."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import apsw

from qmd.app.collections import remove_collection, set_collection
from qmd.app.configuration import FileConfiguration
from qmd.app.notices import Notices
from qmd.app.records import EmbedRequest
from qmd.app.updating import embed
from qmd.config import edits
from qmd.config.paths import Locations, locate
from qmd.config.settings import load_config
from qmd.indexing.embed import embed_pending
from qmd.indexing.update import update_collection
from qmd.inference.base import Embedder
from qmd.store.base import IndexWriter
from qmd.store.runs import EmbeddingLock
from qmd.store.sqlite import schema
from tests.fakes import HashingEmbedder, fake_engines
from tests.old_schema import take_back
from tests.robustness.recording import without_checksums

_WORDS = ["pricing", "river", "planet", "getUserName", "limiter", "kettle", "orchid", "harbour", "zebra", "quarterly"]
_NOTED_NS = 1_600_000_000_123_456_789

EMBEDDER = cast("Embedder", HashingEmbedder(dim=32))
"""It has all that embedding asks for, but not the optional `embeds`."""


@dataclass(frozen=True, slots=True)
class World:
    """A folder of notes beside a folder that holds nothing but the index and its configuration."""

    home: Path

    @property
    def folder(self) -> Path:
        """What a crash may damage."""
        return self.home / "state"

    @property
    def notes(self) -> Path:
        """The files of the collections, one folder each."""
        return self.home / "notes"

    @property
    def environ(self) -> dict[str, str]:
        """Variables that put everything into the two folders."""
        return {
            "HOME": str(self.home),
            "QMD_CONFIG_DIR": str(self.folder),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "INDEX_PATH": str(self.folder / "index.sqlite"),
        }

    @property
    def locations(self) -> Locations:
        """Where the index and its configuration lie."""
        return locate(None, self.home, self.environ)

    def files(self) -> dict[str, bytes]:
        """The content of the folder, without lock files, marks and SQLite's shared memory."""
        kept = [path for path in self.folder.iterdir() if not path.name.endswith(("-shm", ".lock", ".verified"))]
        return {path.name: path.read_bytes() for path in kept if path.is_file()}

    def put(self, files: dict[str, bytes]) -> None:
        """Let the folder hold these files and no other, as if they had been lying there for an hour."""
        for path in self.folder.iterdir():
            path.unlink()
        an_hour_ago = time.time() - 3_600
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
            os.utime(self.folder / name, (an_hour_ago, an_hour_ago))


Step = Callable[[World], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A command on a world."""

    name: str
    prepare: Step
    """Makes the state before."""
    command: Step
    """What is interrupted; it can be given again at any time."""
    settle: Sequence[Step] = ()
    """Commands that a user gives after it, before which an interrupted run and an undisturbed one may differ."""
    checkpoint_pages: int | None = None
    """See `recording`."""
    beside_reader: bool = False
    """A reader keeps the write-ahead log from being emptied at the end."""
    added_migrations: tuple[str, ...] = ()
    """Steps that the command's version of the program knows and the one before did not."""
    is_outdated: bool = False
    """The file before is of a version that the program brings up to date."""
    keeps_vectors: bool = False
    """Whatever happens, a search finds every document by the vectors of one model."""
    is_first: bool = False
    """There is no index before, so a reader may find none after."""


def write_note(world: World, collection: str, name: str, seed: int) -> None:
    """One note with words of its own, old enough to be known by its time."""
    dice = random.Random(f"{collection}/{name}/{seed}")
    path = world.notes / collection / name
    path.parent.mkdir(parents=True, exist_ok=True)
    words = " ".join(dice.choices(_WORDS, k=dice.randrange(5, 60)))
    # Every fifth is indexed without its front matter.
    sign = "@" if len(words) % 5 == 0 else ""
    path.write_text(f"---\ntags: [{sign}{dice.choice(_WORDS)}]\n---\n# {name} {seed}\n\n{words}\n", encoding="utf-8")
    os.utime(path, ns=(_NOTED_NS + seed, _NOTED_NS + seed))


def _notes(world: World) -> None:
    world.folder.mkdir(parents=True)
    for collection, n_notes in (("first", 8), ("second", 6)):
        for number in range(n_notes):
            write_note(world, collection, f"{collection}-{number}.md", 0)


def _change_notes(world: World) -> None:
    for number in (1, 4):
        write_note(world, "first", f"first-{number}.md", 7)
    write_note(world, "second", "second-new.md", 7)
    (world.notes / "first" / "first-2.md").unlink()


def _configure(world: World) -> None:
    for name in ("first", "second"):
        edits.add_collection(world.locations, name, world.notes / name)


def _configuration(world: World) -> FileConfiguration:
    return FileConfiguration(world.locations, world.environ, Notices())


def _writer(world: World) -> IndexWriter:
    return _configuration(world).open_writer()


def _update(world: World) -> None:
    with _writer(world) as writer:
        for collection in load_config(world.locations).collections:
            update_collection(writer, collection)


def _embed(world: World) -> None:
    with EmbeddingLock(world.locations.database), _writer(world) as writer:
        embed_pending(writer, EMBEDDER)


def _embed_anew(world: World) -> None:
    with EmbeddingLock(world.locations.database), _writer(world) as writer:
        request = EmbedRequest(force=True)
        embed(writer, fake_engines(EMBEDDER), request, on_start=None, on_progress=None, should_stop=None)


def _embed_by_another_model(world: World) -> None:
    other = cast("Embedder", HashingEmbedder(dim=24, fingerprint="fedcba9876543210"))
    with EmbeddingLock(world.locations.database), _writer(world) as writer:
        embed(writer, fake_engines(other), EmbedRequest(), on_start=None, on_progress=None, should_stop=None)


def _index(world: World) -> None:
    _update(world)
    _embed(world)


def _first_index(world: World) -> None:
    _configure(world)
    _index(world)


def _cleanup(world: World) -> None:
    with _writer(world) as writer:
        writer.cleanup()


def _rename(world: World) -> None:
    config = load_config(world.locations)
    if config.collection("renamed") is None:
        set_collection(_configuration(world), "first", None, None, "renamed")
    _writer(world).close()


def _remove(world: World) -> None:
    config = load_config(world.locations)
    if config.collection("first") is not None:
        remove_collection(_configuration(world), "first")
    _writer(world).close()


def _edit_configuration(world: World) -> None:
    edits.set_context(world.locations, "first", "deep", "a note on the path")
    edits.set_global_context(world.locations, "everything")
    edits.set_collection(world.locations, "second", {"includeByDefault": False})
    _writer(world).close()


_ADDED = (
    "CREATE TABLE added (id INTEGER PRIMARY KEY, title TEXT NOT NULL, filler BLOB NOT NULL);"
    "INSERT INTO added SELECT id, title, zeroblob(3000) FROM documents;"
    "CREATE INDEX added_by_title ON added (title)"
)
"""A migration as large as the index, for want of a real one that has data to move."""


def _indexed_by_version_1(world: World) -> None:
    """An index whose pages have no room for checksums."""
    with without_checksums():
        _indexed(world)
        connection = apsw.Connection(str(world.locations.database))
        take_back(connection, 1)
        connection.close()


def _migrate(world: World) -> None:
    _writer(world).close()


@contextmanager
def migrations_of(scenario: Scenario) -> Iterator[None]:
    """The scenario's added migrations while the block runs."""
    real = schema.MIGRATIONS
    schema.MIGRATIONS = (*real, *scenario.added_migrations)
    try:
        yield
    finally:
        schema.MIGRATIONS = real


def _after(*steps: Step) -> Step:
    def run(world: World) -> None:
        for step in steps:
            step(world)

    return run


_indexed = _after(_notes, _first_index)
_stale = _after(_indexed, _change_notes)
_unclean = _after(_stale, _index)

SCENARIOS = (
    Scenario("first index", _notes, _first_index, is_first=True),
    Scenario("index", _stale, _index),
    Scenario("index, many checkpoints", _stale, _index, checkpoint_pages=6),
    Scenario("update", _stale, _update),
    Scenario("update beside a reader", _stale, _update, beside_reader=True),
    Scenario("embed", _after(_notes, _configure, _update), _embed),
    Scenario("embed --force", _indexed, _embed_anew, checkpoint_pages=10, keeps_vectors=True),
    Scenario("embed by another model", _indexed, _embed_by_another_model, checkpoint_pages=10, keeps_vectors=True),
    Scenario("cleanup", _unclean, _cleanup),
    Scenario("cleanup, many checkpoints", _unclean, _cleanup, checkpoint_pages=6),
    Scenario("collection rename", _indexed, _rename, settle=(_index, _cleanup)),
    Scenario("collection remove", _indexed, _remove, settle=(_cleanup,)),
    Scenario("configuration edit", _indexed, _edit_configuration),
    Scenario("migration of version 1", _indexed_by_version_1, _migrate, is_outdated=True),
    Scenario("migration", _indexed, _migrate, checkpoint_pages=10, added_migrations=(_ADDED,)),
)


def fresh_world(home: Path, scenario: Scenario) -> World:
    """The state before a scenario's command, in a folder that is emptied first."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    world = World(home)
    scenario.prepare(world)
    return world
