"""Copies of an index and its configuration to another place or engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from qmd.app.configuration import FileConfiguration, IndexConfiguration, written_form
from qmd.app.notices import Notices
from qmd.config.edits import edit_config, locked_config_file
from qmd.config.settings import config_text, load_config
from qmd.errors import UsageError
from qmd.files import write_atomically

if TYPE_CHECKING:
    from qmd.app.configuration import Configuration
    from qmd.config.paths import Locations
    from qmd.indexing.copy import CopyReport, OnProgress
    from qmd.store.base import IndexReader


def copy_store(
    source: Locations, target: Locations, environ: Mapping[str, str], on_progress: OnProgress | None = None
) -> CopyReport:
    """Copy an index: no file is read and no vector is computed again.

    A copy with a name or an address gets a configuration, too. The next run on the same index continues an interrupted
    copy; until then the copy cannot be used.

    Args:
        source: The index to be copied.
        target: The new one.
        environ: Variables that may trust a project's configuration.
        on_progress: See `copy_index`.

    Raises:
        NotFoundError: The source does not exist.
        UsageError: The target contains something else or is configured, or the contexts of a project are not trusted.
        BusyError: Another process is copying to the target, or writing it.
    """
    from qmd.indexing.copy import begin_copy, copy_index
    from qmd.store.opening import open_writer
    from qmd.store.runs import EmbeddingLock

    notices, is_configured = Notices(), source.config_file.exists()
    configuration: Configuration = (
        FileConfiguration(source, environ, notices) if is_configured else IndexConfiguration(source, notices)
    )
    with configuration.open_reader() as reader, EmbeddingLock(target.database, "copy", target.place):
        if not configuration.trusts_contexts(reader):  # in the copy they would be the user's own
            raise UsageError(f"the contexts in '{source.place}' are not trusted", "run in that project: qmd trust")
        # The configuration of the target would decide the contents of the copy.
        configured = {one.name for one in load_config(target).collections}
        if configured and configured != {one.name for one in reader.collections()}:
            message = f"index '{target.place}' has other collections in '{target.config_file}'"
            raise UsageError(message, "choose another name or place for the copy")
        with open_writer(target.database, target.address, takes_unfinished=True) as writer:
            begin_copy(writer, source.place, target.place)
            unsafe = _configure(source, target, reader)
            report = copy_index(reader, writer, on_progress)
    return replace(report, warnings=(*report.warnings, *unsafe))


def _configure(source: Locations, target: Locations, reader: IndexReader) -> list[str]:
    """Write the configuration of a new index, unless it has only its own copy; return what could not be copied.

    The user's own file is copied unchanged. From a project, or an index of somebody else, only the index's copy is
    used: commands that `qmd update` runs are dropped, as the user's own configuration is trusted.
    """
    if not target.keeps_configuration or target.config_file.exists():
        return []
    if source.config_file.parent == target.config_dir and source.config_file.exists():
        with locked_config_file(target.config_file):
            write_atomically(target.config_file, config_text(source.config_file.read_bytes()))
        return []
    content = written_form(reader.collections(), reader.global_context())
    commands = [name for name, entry in content["collections"].items() if entry.pop("update")]
    edit_config(target, lambda root: root.update(content))
    return [f"the update command of collection '{name}' was skipped" for name in commands]
