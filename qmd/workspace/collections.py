"""Collections by name: finding them, and changing index and configuration together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from qmd.config.paths import Locations
from qmd.config.settings import Config
from qmd.errors import NotFoundError, QmdError, UsageError, nearest_name

if TYPE_CHECKING:
    from qmd.config.edits import Target
    from qmd.records import Collection
    from qmd.store import IndexWriter


def check_name(name: str) -> None:
    """Refuse names that no address could hold.

    Raises:
        UsageError: It is blank or has control characters.
    """
    if not name.strip("/ ") or any(ord(character) < 32 for character in name):
        raise UsageError(f"collection name '{name}' is not usable", "use letters, digits, dots, dashes")


def require_collection(config: Config, name: str) -> Collection:
    """The collection called `name`.

    Raises:
        NotFoundError: There is none; the hint names the nearest.
    """
    collection = config.collection(name)
    if collection is None:
        raise collection_not_found(name, [known.name for known in config.collections])
    return collection


def refuse_unknown(names: Sequence[str], known: Sequence[Collection]) -> None:
    """Check that there is a collection of each name.

    Raises:
        NotFoundError: There is none of one of them; the hint names the nearest.
    """
    known_names = [collection.name for collection in known]
    for name in names:
        if name not in known_names:
            raise collection_not_found(name, known_names)


def collection_not_found(name: str, known: Sequence[str]) -> NotFoundError:
    """The error for an unknown collection."""
    near = nearest_name(name, known)
    if near is not None:
        hint = f"did you mean '{near}'? see: qmd collection list"
    elif known:
        hint = f"known: {', '.join(known)}; see: qmd collection list"
    else:
        hint = "add one: qmd index PATH"
    return NotFoundError(f"Collection not found: {name}", hint)


def rename_collection(writer: IndexWriter, target: Target, config: Config, old: str, new: str) -> Config:
    """Give a collection another name in the index and the configuration; nothing is read or embedded again.

    Raises:
        NotFoundError: There is no collection `old`.
        QmdError: `new` is taken.
        UsageError: `new` is no usable name.
    """
    from qmd.config import edits

    require_collection(config, old)
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

    require_collection(config, name)
    with _in_one_step(writer, target):
        return writer.remove_collection(name), edits.remove_collection(target, name)


def _in_one_step(writer: IndexWriter, target: Target) -> AbstractContextManager[None]:
    """Keep other processes from mirroring the configuration file between the change of the index and that of the file.

    They would take the documents of a new name for those of a collection that left the file, and drop them. A
    configuration kept elsewhere may live in the index itself, whose editor needs the write lock.
    """
    return writer.transaction() if isinstance(target, Locations) else nullcontext()
