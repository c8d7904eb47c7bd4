"""Where the configuration, the database and the models of an index lie."""

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

_BESIDE = ".qmd"
_READABLE = 100
"""Characters of an address that names of files tell; the digits behind them tell the rest apart."""


class Locations(Struct, frozen=True):
    """Absolute paths of everything that belongs to one index. Nothing needs to exist."""

    index_name: str
    config_file: Path
    database: Path
    """The file of the index. At an address there is none, and beside this path lies what this machine keeps of it."""
    cache: Path
    """Folder for pid files, logs and markers."""
    models: Path
    config_dir: Path
    """The user's configuration folder, also for project-local indexes."""
    project_root: Path | None
    """Folder that holds `.qmd`, for a project-local index only."""
    home: Path
    cwd: Path
    own_folders: tuple[Path, ...] = ()
    """Folders that hold nothing but what qmd keeps: closed to others when the index is written."""
    address: str | None = None
    """Where an index lies that is no file of SQLite's: a scheme of `plugins.STORES` and a place."""

    @property
    def base(self) -> Path:
        """Folder against which relative collection paths resolve."""
        return self.project_root or self.config_file.parent

    @property
    def place(self) -> str:
        """Where the index lies, as a person is told and may type it."""
        return self.address or to_text(self.database)

    @property
    def keeps_configuration(self) -> bool:
        """Whether an index has a configuration of its own; one that is opened by its path alone has only its copy."""
        return bool(self.config_file.suffix)

    @property
    def stem(self) -> str:
        """The name of the index as a part of names of files."""
        return self.config_file.stem

    @property
    def key(self) -> str:
        """What tells this index from others in the names of files in the cache: each project's has the same name."""
        return f"{crc32(os.fsencode(self.database)):08x}"

    def expand(self, path: str) -> Path:
        """`path` made absolute: `~` is the home folder, anything relative starts at `base`; symlinks stay."""
        is_home = path == "~" or path.startswith(("~/", "~\\"))
        return Path(os.path.normpath(self.home / path[2:] if is_home else self.base / path))


def expand_home(path: str | Path) -> Path:
    """The file that a person means by `path`: a leading `~` or `~user` is a home folder; an unknown user's, a name."""
    typed = typed_path(path)
    try:
        return typed.expanduser()
    except (RuntimeError, ValueError):  # the latter for a NUL in the user's name
        return typed


def index_beside(path: Path) -> Path:
    """Where our index lies when another program has a database at `path`: the same name with `.qmd` in it.

    The original qmd has the same default file, and either program breaks what the other one wrote.
    """
    return path if path.stem.endswith(_BESIDE) else path.with_name(f"{path.stem}{_BESIDE}{path.suffix}")


def own_index(path: Path) -> Path:
    """`path`, or the index beside it where there is one: once it lies there, the other program can have `path`."""
    beside = index_beside(path)
    # Unlike `Path.exists` this takes any name, also one that no file can have.
    return beside if os.path.exists(beside) else path  # noqa: PTH110


def index_address(text: str, cwd: Path, home: Path) -> str | None:
    """The address that a person means by `text`, in full; None for the name of an index and the path of a file.

    Raises:
        UsageError: It is at a place that qmd does not know.
    """
    scheme, colon, _ = text.partition(":")
    # One letter is a drive of Windows.
    if not colon or len(scheme) < 2 or not scheme.isascii() or not scheme.isalnum():
        return None
    store = plugins.find(plugins.STORES, scheme)
    address = store.full_address(text, cwd, home) if store else None
    if address is None:
        *forms, last = [one.form for one in plugins.all_of(plugins.STORES)]
        hint = f"give a name, {', '.join(forms)} or {last}"
        raise UsageError(f"index '{text}' is at no place that qmd knows", hint)
    return address


def address_stem(address: str) -> str:
    """A name for files of the index at `address`: readable, and no other address's."""
    readable = "".join(one if one.isalnum() or one in "-." else "_" for one in address)[:_READABLE]
    return f"{'_'.join(filter(None, readable.split('_')))}-{crc32(os.fsencode(address)):08x}"


def address_state(address: str, cache: Path) -> Path:
    """The path beside which this machine keeps what concerns the index at `address`: locks, marks, how far a run is."""
    return cache / f"{address_stem(address)}.{plugins.store_at(address).name}"


def locate(index_name: str | None, cwd: Path, environ: Mapping[str, str], *, takes_link: bool = False) -> Locations:
    """Paths of the index that a command started in `cwd` works on.

    Args:
        index_name: Value of `--index`, a name or an address; None selects the nearest project-local index, else the
            user's default one.
        cwd: Working directory, absolute.
        environ: `QMD_CONFIG_DIR`, `XDG_CONFIG_HOME`, `XDG_CACHE_HOME`, `INDEX_PATH`, `HOME` and `USERPROFILE` are read.
        takes_link: Whether a project's `.qmd` may be a link that the user has not trusted yet.

    Raises:
        ConfigError: A project's `.qmd` is such a link, or holds links.
        UsageError: The address is none that qmd knows.
    """
    home = _home(environ)
    # A folder that the user chose (`QMD_CONFIG_DIR`, `INDEX_PATH`) may hold more than what qmd keeps.
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
    """The user's folder for what qmd keeps."""
    return _user_folder("cache", _home(environ), environ)


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())


def _user_folder(kind: Literal["config", "cache"], home: Path, environ: Mapping[str, str]) -> Path:
    """The user's folder for what qmd configures or keeps.

    On macOS as on Linux, because there the original has its files, and programs look for them. A test holds these two
    rules against platformdirs, which only knows the environment of this process, and whose import a search would feel.
    """
    chosen = environ.get(f"XDG_{kind.upper()}_HOME")
    if chosen:
        return Path(chosen).absolute() / "qmd"
    if sys.platform == "win32":
        import platformdirs

        # Not user_cache_path: programs that drive qmd expect %LOCALAPPDATA%\qmd\models.
        find = platformdirs.user_config_path if kind == "config" else platformdirs.user_data_path
        return find("qmd", appauthor=False)
    return home / f".{kind}" / "qmd"


def _plain_name(index_name: str | None, cwd: Path) -> str:
    """A file name for `--index`: a value with a separator is a path, whose separators become underscores."""
    if not index_name:
        return "index"
    if "/" not in index_name and os.sep not in index_name:
        return index_name
    resolved = os.path.normpath(cwd / index_name)
    return resolved.replace(os.sep, "_").replace("/", "_").replace(":", "").lstrip("_")
