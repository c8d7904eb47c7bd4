"""A project's `.qmd`: where it is found, and what must hold before anything in it is opened.

A checkout can bring one along. Links in it would lead qmd to files outside, so it is refused for any; a `.qmd` that is
a link itself is used once the user has trusted its target by name (`qmd trust`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from qmd.environment import is_on
from qmd.errors import ConfigError
from qmd.files import PROJECT_FOLDER, real_place

_FILES = ("index.yaml", "index.yml")
_OF_QMD = ("index.", ".index.")
"""What the names of all files begin with that qmd makes there."""

_VOUCHERS = ("QMD_TRUST_LOCAL_CONFIG", "QMD_TRUST_UPDATE_HOOKS")


def is_vouched_for(environ: Mapping[str, str]) -> bool:
    """Whether the environment says that projects are the user's own."""
    return any(is_on(environ.get(name)) for name in _VOUCHERS)


def find_project_file(cwd: Path) -> Path | None:
    """The configuration of the nearest project, in `cwd` or a folder above it."""
    for folder in (cwd, *cwd.parents):
        for name in _FILES:
            candidate = folder / PROJECT_FOLDER / name
            # Also what is no file: another project must not be taken in its place without a word.
            if os.path.lexists(candidate):
                return candidate
    return None


def linked_target(folder: Path) -> Path | None:
    """What a `.qmd` that is a link leads to, in full; None for a folder."""
    real = Path(os.path.realpath(folder))
    return None if real == Path(os.path.realpath(folder.parent), folder.name) else real


def refuse_links(folder: Path, environ: Mapping[str, str]) -> None:
    """Make sure that the files of qmd in a project's folder are regular files of this user's.

    Raises:
        ConfigError: One is not, or the folder cannot be listed.
    """
    try:
        found = [entry.path for entry in os.scandir(folder) if entry.name.startswith(_OF_QMD)]
    except FileNotFoundError:
        return
    except OSError as exc:
        raise ConfigError(f"cannot list '{folder}': {exc.strerror}", "check the permissions of that folder") from exc
    for path in found:
        try:
            real_place(Path(path), takes_any_owner=is_vouched_for(environ))
        except OSError as exc:
            raise ConfigError(str(exc.strerror), "put a file of your own in its place, or remove it") from exc
