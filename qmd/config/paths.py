"""Paths of the configuration, the database and the models of an index."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from zlib import crc32

from msgspec import Struct

from qmd import plugins
from qmd.config.project import checked_folder, find_project_file
from qmd.errors import UsageError
from qmd.file_names import to_text, typed_path

_OWN_SUFFIX = ".qmd"
_READABLE = 100
"""Characters of an address that its file name shows; the following digits make the name unique."""


class Locations(Struct, frozen=True):
    """Absolute paths of everything that belongs to one index. None need exist."""

    index_name: str
    config_file: Path
    database: Path
    """The file of the index. An index at an address has none; its local files are named after this path."""
    cache: Path
    """Folder for pid files, logs and markers."""
    models: Path
    config_dir: Path
    """The user's configuration folder, also for project-local indexes."""
    project_root: Path | None
    """Folder that contains `.qmd`, for a project-local index only."""
    home: Path
    cwd: Path
    own_folders: tuple[Path, ...] = ()
    """Folders that contain only files of qmd: made private when the index is written."""
    address: str | None = None
    """Address of an index that is not an SQLite file: a scheme of `plugins.STORES` and a place."""

    @property
    def base(self) -> Path:
        """Folder against which relative collection paths resolve."""
        return self.project_root or self.config_file.parent

    @property
    def place(self) -> str:
        """The place of the index as users see and type it."""
        return self.address or to_text(self.database)

    @property
    def keeps_configuration(self) -> bool:
        """True unless an index is opened by its path alone and so has only its stored copy of the configuration."""
        return bool(self.config_file.suffix)

    @property
    def stem(self) -> str:
        """The name of the index as a part of file names."""
        return self.config_file.stem

    @property
    def key(self) -> str:
        """A unique name of this index for files in the cache: all project indexes have the same name."""
        return f"{crc32(os.fsencode(self.database)):08x}"

    def expand(self, path: str) -> Path:
        """Make `path` absolute: `~` is the home folder, relative paths start at `base`; symlinks stay."""
        is_home = path == "~" or path.startswith(("~/", "~\\"))
        return Path(os.path.normpath(self.home / path[2:] if is_home else self.base / path))

    def shorten(self, path: Path) -> Path:
        """Make a path inside a project, which may move, relative; others, and `~` as the name of a folder, stay."""
        root = self.project_root
        inside = path.relative_to(root) if root is not None and path.is_relative_to(root) else path
        return path if str(inside).startswith("~") else inside


def expand_home(path: str | Path) -> Path:
    """Return the file that a user means by `path`: a leading `~` or `~user` is a home folder, if the user exists."""
    typed = typed_path(path)
    try:
        return typed.expanduser()
    except (RuntimeError, ValueError):  # ValueError for a NUL in the user's name
        return typed


def index_next_to(path: Path) -> Path:
    """Return the path of our index if another program has a database at `path`: the same name with `.qmd` in it.

    The original qmd has the same default file, and each program breaks the file of the other.
    """
    return path if path.stem.endswith(_OWN_SUFFIX) else path.with_name(f"{path.stem}{_OWN_SUFFIX}{path.suffix}")


def own_index(path: Path) -> Path:
    """Return `path`, or the index next to it if there is one; from then on the other program can have `path`."""
    own = index_next_to(path)
    # Unlike `Path.exists`, this accepts any name, even one that no file can have.
    return own if os.path.exists(own) else path  # noqa: PTH110


def index_address(text: str, cwd: Path, home: Path) -> str | None:
    """Return the full address that a user means by `text`; None for the name of an index or the path of a file.

    Raises:
        UsageError: The address has an unknown scheme or place.
    """
    scheme, colon, _ = text.partition(":")
    # One letter is a Windows drive.
    if not colon or len(scheme) < 2 or not scheme.isascii() or not scheme.isalnum():
        return None
    store = plugins.find(plugins.STORES, scheme)
    address = store.full_address(text, cwd, home) if store else None
    if address is None:
        *forms, last = [one.form for one in plugins.all_of(plugins.STORES)]
        hint = f"give a name, {', '.join(forms)} or {last}"
        raise UsageError(f"index '{text}' is not at a place that qmd knows", hint)
    return address


def address_stem(address: str) -> str:
    """Return a readable, unique file name for the index at `address`."""
    readable = "".join(one if one.isalnum() or one in "-." else "_" for one in address)[:_READABLE]
    return f"{'_'.join(filter(None, readable.split('_')))}-{crc32(os.fsencode(address)):08x}"


def address_state(address: str, cache: Path) -> Path:
    """Return the base path of the local files of the index at `address`: locks, markers, progress of a run."""
    return cache / f"{address_stem(address)}.{plugins.store_at(address).name}"


def locate(index_name: str | None, cwd: Path, environ: Mapping[str, str], *, takes_link: bool = False) -> Locations:
    """Return the paths of the index for a command started in `cwd`.

    Args:
        index_name: Value of `--index`, a name or an address; None selects the nearest project-local index, else the
            user's default one.
        cwd: Working directory, absolute.
        environ: `QMD_CONFIG_DIR`, `XDG_CONFIG_HOME`, `XDG_CACHE_HOME`, `INDEX_PATH`, `HOME` and `USERPROFILE` are read.
        takes_link: Whether a project's `.qmd` may be a link that the user has not trusted yet.

    Raises:
        ConfigError: A project's `.qmd` is such a link, or contains links.
        UsageError: The address is unknown.
    """
    home = _home(environ)
    # A folder that the user chose (`QMD_CONFIG_DIR`, `INDEX_PATH`) may contain other files too.
    own_config_dir = _user_folder("config", home, environ)
    chosen = environ.get("QMD_CONFIG_DIR")
    config_dir = Path(chosen).absolute() if chosen else own_config_dir
    cache = user_cache(environ)
    address = index_address(index_name, cwd, home) if index_name else None
    name = address or _plain_name(index_name, cwd)
    project_file = find_project_file(cwd) if index_name is None else None
    if project_file is not None:
        folder = checked_folder(project_file, config_dir, environ, takes_link=takes_link)
        config_file, database = folder / project_file.name, folder / "index.sqlite"
    else:
        config_file = config_dir / f"{address_stem(address) if address else name}.yml"
        path = environ.get("INDEX_PATH")
        address = index_address(path, cwd, home) if path and not address else address
        database = cwd / path if path else cache / f"{name}.sqlite"
    return Locations(
        index_name=name,
        config_file=config_file,
        database=address_state(address, cache) if address else own_index(database),
        cache=cache,
        models=cache / "models",
        config_dir=config_dir,
        project_root=project_file.parent.parent if project_file else None,
        home=home,
        cwd=cwd,
        own_folders=(cache, own_config_dir, *([config_file.parent] if project_file else [])),
        address=address,
    )


def user_cache(environ: Mapping[str, str]) -> Path:
    """Return the user's cache folder of qmd."""
    return _user_folder("cache", _home(environ), environ)


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())


def _user_folder(kind: Literal["config", "cache"], home: Path, environ: Mapping[str, str]) -> Path:
    """Return the user's folder for qmd's configuration or cache.

    macOS uses the Linux paths, because the original qmd has its files there, and programs look for them. A test
    compares these two rules with platformdirs, which only reads the environment of this process and would slow a search
    by its import.
    """
    if chosen := environ.get(f"XDG_{kind.upper()}_HOME"):
        return Path(chosen).absolute() / "qmd"
    if sys.platform == "win32":
        import platformdirs

        # Not user_cache_path: programs that drive qmd expect %LOCALAPPDATA%\qmd\models.
        find = platformdirs.user_config_path if kind == "config" else platformdirs.user_data_path
        return find("qmd", appauthor=False)
    return home / f".{kind}" / "qmd"


def _plain_name(index_name: str | None, cwd: Path) -> str:
    """Return a file name for `--index`: the separators of a path become underscores."""
    if not index_name:
        return "index"
    if "/" not in index_name and os.sep not in index_name:
        return index_name
    return os.path.normpath(cwd / index_name).replace(os.sep, "_").replace("/", "_").replace(":", "").lstrip("_")
