"""Whether an index in a project's `.qmd` was made here: one that came with a clone would answer in place of the files.

Each such index holds a random id, of which the user's cache has a record with the index's path: what was made elsewhere
cannot know it. Only indexes that were in use before there were records do without one, until they are next
opened for writing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import qmd
from qmd.config.paths import user_cache
from qmd.config.project import is_trusted_by_environment
from qmd.errors import UnknownOriginError
from qmd.file_names import to_text, typed_path
from qmd.files import PROJECT_FOLDER, read_regular_file, write_atomically
from qmd.store.sqlite.connection import Database
from qmd.store.sqlite.files import APPLICATION_ID
from qmd.store.sqlite.schema import META, MIGRATIONS, is_as_made, is_mixed

ORIGIN = "made_here"
"""Key of the random id in `meta`."""

_UNKNOWN_OWNER = "0" * 32
_RECORDS = "projects"
_BEFORE = "before"
_MAX_BYTES = 10_000


def check_origin(database: Database) -> None:
    """Make sure, before anything else of it is believed, that an index was made here.

    Raises:
        UnknownOriginError: It was not, or holds what we did not make.
    """
    path = database.path
    if path.parent.name != PROJECT_FOLDER or database.value("PRAGMA application_id") != APPLICATION_ID:
        return
    if not database.value("SELECT count(*) FROM sqlite_schema"):
        return
    is_ours = is_trusted_by_environment(os.environ) or _has_record(database) or _was_here_before(path)
    # What the original adds to an index of ours, and what a newer version makes, is dealt with where it is opened.
    is_judged_later = is_mixed(database) or int(database.value("PRAGMA user_version")) > len(MIGRATIONS)
    if not is_ours or not (is_judged_later or is_as_made(database)):
        raise UnknownOriginError(path)


def record_origin(database: Database, path: Path) -> None:
    """Remember that an index of a project, which is open for writing and no stranger's, was made here.

    Args:
        database: The index.
        path: Where it will lie.
    """
    if path.parent.name != PROJECT_FOLDER:
        return
    recorded = _recorded_place(database)
    if recorded == _place(path):
        return
    made = _id_of(database) if recorded else os.urandom(16).hex()
    if not recorded:
        with database.transaction():
            database.run("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (ORIGIN, made))
    # Without a record the next run builds the index again, which is better than none now.
    with suppress(OSError):
        write_atomically(_records() / made, _place(path))


def _has_record(database: Database) -> bool:
    """Whether the index was made in this place, or moved here: where it was there is none any more."""
    recorded = _recorded_place(database)
    return recorded == _place(database.path) or (recorded is not None and not os.path.lexists(typed_path(recorded)))


def _recorded_place(database: Database) -> str | None:
    """Where the index lay that has the id of this one; None without a record."""
    try:
        return read_regular_file(_records() / _id_of(database), _MAX_BYTES).decode()
    except (OSError, ValueError):
        return None


def _id_of(database: Database) -> str:
    """The random id of an index, a name that no file has where there is none."""
    if database.value("SELECT sql FROM sqlite_schema WHERE name = 'meta'") != META:
        return _UNKNOWN_OWNER
    made = str(database.value("SELECT value FROM meta WHERE key = ?", (ORIGIN,)))
    return made if len(made) == len(_UNKNOWN_OWNER) and made.isalnum() else _UNKNOWN_OWNER


def _place(path: Path) -> str:
    return to_text(os.path.join(os.path.realpath(path.parent), path.name))  # noqa: PTH118


def _records() -> Path:
    return user_cache(os.environ) / _RECORDS


def _was_here_before(path: Path) -> bool:
    """Whether the index was in use here with an earlier version, which kept no records.

    When that ended is written down the first time that it is asked for: when this version was installed, where another
    one had kept something, else never.
    """
    file = _records() / _BEFORE
    try:
        before = float(read_regular_file(file, _MAX_BYTES))
    except (OSError, ValueError):
        installed = Path(qmd.__file__).stat().st_ctime
        kept = file.parent.parent.glob("*")
        before = installed if any(one.lstat().st_ctime < installed for one in kept) else 0.0
        with suppress(OSError):
            write_atomically(file, str(before))
    return path.stat().st_ctime < before
