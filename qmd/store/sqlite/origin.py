"""Check that an index in a project's `.qmd` was made here: one from a clone would answer instead of the files.

Each such index has a random id, which the user's cache records with the index's path: an index made elsewhere has no
record. Only indexes in use before there were records are accepted without one, until they are next opened for writing.
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
_MAX_BYTES = 10_000


def check_origin(database: Database) -> None:
    """Check, before anything else of it is used, that an index was made here.

    Raises:
        UnknownOriginError: It was not, or has content that we did not make.
    """
    path = database.path
    if path.parent.name != PROJECT_FOLDER or database.value("PRAGMA application_id") != APPLICATION_ID:
        return
    if not database.value("SELECT count(*) FROM sqlite_schema"):
        return
    is_ours = is_trusted_by_environment(os.environ) or _has_record(database) or _predates_records(path)
    # Changes by the original or by a newer version are handled where it is opened.
    is_judged_later = is_mixed(database) or int(database.value("PRAGMA user_version")) > len(MIGRATIONS)
    if not is_ours or not (is_judged_later or is_as_made(database)):
        raise UnknownOriginError(path)


def record_origin(database: Database, path: Path | None = None) -> None:
    """Record that a project's index, open for writing and of known origin, was made here; `path` is its final one."""
    path = path or database.path
    if path.parent.name != PROJECT_FOLDER:
        return
    recorded = _recorded_place(database)
    if recorded == _place(path):
        return
    made = _read_id(database) if recorded else os.urandom(16).hex()
    if not recorded:
        with database.transaction():
            database.run("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (ORIGIN, made))
    # Without a record the next run rebuilds the index, which is better than failing now.
    with suppress(OSError):
        write_atomically(_records_folder() / made, _place(path))


def _has_record(database: Database) -> bool:
    """Return whether the index was made in this place, or moved here from a place that no longer has it."""
    recorded = _recorded_place(database)
    return recorded == _place(database.path) or (recorded is not None and not os.path.lexists(typed_path(recorded)))


def _recorded_place(database: Database) -> str | None:
    """Return the recorded place of this index; None without a record."""
    try:
        return read_regular_file(_records_folder() / _read_id(database), _MAX_BYTES).decode()
    except (OSError, ValueError):
        return None


def _read_id(database: Database) -> str:
    """Return the random id of an index; if it has none, a name that no file has."""
    if database.value("SELECT sql FROM sqlite_schema WHERE name = 'meta'") != META:
        return _UNKNOWN_OWNER
    made = str(database.value("SELECT value FROM meta WHERE key = ?", (ORIGIN,)))
    return made if len(made) == len(_UNKNOWN_OWNER) and made.isalnum() else _UNKNOWN_OWNER


def _place(path: Path) -> str:
    return to_text(os.path.join(os.path.realpath(path.parent), path.name))  # noqa: PTH118


def _records_folder() -> Path:
    return user_cache(os.environ) / "projects"


def _predates_records(path: Path) -> bool:
    """Return whether an earlier version, which kept no records, used the index here.

    The first call records the end of that time: the installation time of this version if another one had stored files,
    else never.
    """
    file = _records_folder() / "before"
    try:
        before = float(read_regular_file(file, _MAX_BYTES))
    except (OSError, ValueError):
        installed = Path(qmd.__file__).stat().st_ctime
        kept = file.parent.parent.glob("*")
        before = installed if any(one.lstat().st_ctime < installed for one in kept) else 0.0
        with suppress(OSError):
            write_atomically(file, str(before))
    return path.stat().st_ctime < before
