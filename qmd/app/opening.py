"""Locate an index and its configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from qmd.app.configuration import FileConfiguration, IndexConfiguration, MappingConfiguration
from qmd.app.index import Index
from qmd.app.notices import Notices
from qmd.config.paths import Locations, address_state, index_address, locate, own_index
from qmd.errors import NotFoundError, UsageError
from qmd.files import PROJECT_FOLDER

if TYPE_CHECKING:
    from qmd.app.configuration import Configuration

ConfigSource = Mapping[str, Any] | str | os.PathLike[str]
"""A mapping of the shape of `index.yml`, or the path of such a file."""


def open_index(
    path: str | os.PathLike[str] | None = None,
    *,
    config: ConfigSource | None = None,
    index: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Index:
    """Return an index; nothing is opened or loaded before its first use.

    Without arguments, this is the index that `qmd` would use in this folder: the nearest project's, else the user's.

    Args:
        path: The index file, or the address of an index (`lance:/path`, `s3://bucket/prefix`); the first write
            creates it. With it, the configuration is `config` or the index's own copy.
        config: With `path` only: a mapping of the shape of `index.yml`, which stays in memory, or the path of a file,
            which receives edits. Relative paths inside start at the working directory, or at the file's folder.
        index: Without `path`: the name or address of an index, as in `qmd --index NAME`.
        environ: Read in place of the process's environment variables.

    Raises:
        UsageError: The arguments contradict each other, or qmd does not know the scheme of the address.
        NotFoundError: `config` names a file that does not exist.
        ConfigError: The mapping is not of the shape of `index.yml`.
    """
    environ = os.environ if environ is None else environ
    locations, notices = locate(index, Path.cwd(), environ), Notices()
    configuration: Configuration
    if path is None:
        if config is not None:
            raise UsageError("a configuration needs the path of an index", 'qmd.open_index("index.sqlite", config=…)')
        configuration = FileConfiguration(locations, environ, notices)
    elif index is not None:
        raise UsageError(f"both a path and the index name '{index}' are given", "name one of the two")
    else:
        locations = _at(locations, os.fspath(path))
        if config is None:
            configuration = IndexConfiguration(locations, notices)
        elif isinstance(config, Mapping):
            configuration = MappingConfiguration(config, locations, notices)
            configuration.load()  # report a mistake here, not at the first search
        else:
            locations = _configured_by(locations, Path(config))
            configuration = FileConfiguration(locations, environ, notices)
    return Index(locations, configuration, environ, notices=notices)


def locate_store(place: str, cwd: Path, environ: Mapping[str, str]) -> Locations:
    """Return the locations of an index given by a name, an address, or the path of a `.sqlite` file.

    Such a file has no configuration but its own copy. `INDEX_PATH` is ignored, as every index here is named.

    Raises:
        UsageError: qmd does not know the scheme of the address.
    """
    named = {name: value for name, value in environ.items() if name != "INDEX_PATH"}
    if place.endswith(".sqlite"):
        return _at(locate("index", cwd, named), place)
    return locate(place, cwd, named)


def default_index_path(index: str | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """Return the file of the index that `qmd` would use here; it need not exist.

    For an index at an address, it is the path next to which this machine keeps its locks.

    Args:
        index: The name of an index, as in `qmd --index NAME`.
        environ: Read in place of the process's environment variables.
    """
    return locate(index, Path.cwd(), os.environ if environ is None else environ).database


def _at(locations: Locations, path: str) -> Locations:
    """Return the locations of an index at `path` without a configuration file: relative paths start here."""
    address = index_address(path, locations.cwd, locations.home)
    if address is not None:
        database = address_state(address, locations.cache)
    else:
        database = own_index(locations.expand(path) if path.startswith("~") else locations.cwd / path)
    absent = locations.cwd / "the given configuration"
    return replace(locations, database=database, address=address, config_file=absent, project_root=None)


def _configured_by(locations: Locations, path: Path) -> Locations:
    file = locations.expand(str(path)) if str(path).startswith("~") else (locations.cwd / path)
    if not file.is_file():
        raise NotFoundError(f"configuration '{path}' does not exist", "give the path of an index.yml, or a mapping")
    root = file.parent.parent if file.parent.name == PROJECT_FOLDER else None
    return replace(locations, config_file=file, project_root=root)
