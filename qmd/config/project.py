"""A project's `.qmd`: its discovery and the checks before anything in it is opened.

A checkout may contain one. Links in it would lead qmd to files outside, so any link in it is refused; a `.qmd` that is
a link itself is used once the user has trusted its target by name (`qmd trust`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from qmd.errors import ConfigError
from qmd.file_names import to_text
from qmd.files import PROJECT_FOLDER, read_regular_file, resolve_own_file
from qmd.switches import is_on

TRUST_FILE = "trusted.json"
"""In the user's configuration folder: the trusted items, by the path of a project's configuration."""

_MAX_BYTES = 10_000_000

_FILES = ("index.yaml", "index.yml")
_OF_QMD = ("index.", ".index.")
"""Prefixes of all files that qmd creates there."""


def is_trusted_by_environment(environ: Mapping[str, str]) -> bool:
    """Return whether the environment marks projects as the user's own."""
    return any(is_on(environ.get(name)) for name in ("QMD_TRUST_LOCAL_CONFIG", "QMD_TRUST_UPDATE_HOOKS"))


def find_project_file(cwd: Path) -> Path | None:
    """Return the configuration of the nearest project, in `cwd` or a folder above it."""
    for folder in (cwd, *cwd.parents):
        for name in _FILES:
            candidate = folder / PROJECT_FOLDER / name
            # Include non-files: another project must not silently replace it.
            if os.path.lexists(candidate):
                return candidate
    return None


def linked_target(folder: Path) -> Path | None:
    """Return the full target of a `.qmd` that is a link; None for a folder."""
    real = Path(os.path.realpath(folder))
    return None if real == Path(os.path.realpath(folder.parent), folder.name) else real


def refuse_links(folder: Path, environ: Mapping[str, str]) -> None:
    """Check that the files of qmd in a project's folder are regular files of this user.

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
            resolve_own_file(Path(path), takes_any_owner=is_trusted_by_environment(environ))
        except OSError as exc:
            raise ConfigError(str(exc.strerror), "put a file of your own in its place, or remove it") from exc


def read_trust(config_dir: Path) -> dict[str, dict[str, str]]:
    """Read all records of trust; a missing or damaged file trusts nothing."""
    import json

    try:
        records = json.loads(read_regular_file(config_dir / TRUST_FILE, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(records, dict):
        return {}
    return {str(path): record for path, record in records.items() if isinstance(record, dict)}


def checked_folder(file: Path, config_dir: Path, environ: Mapping[str, str], *, takes_link: bool) -> Path:
    """Return the folder of a project's configuration, or its target once the user has trusted that by name.

    Args:
        file: The project's configuration.
        config_dir: The user's configuration folder, which has the records of trust.
        environ: May mark projects as trusted.
        takes_link: Whether the folder may be a link that the user has not trusted yet.

    Raises:
        ConfigError: It is such a link, or contains links.
    """
    folder = file.parent
    if (target := linked_target(folder)) is None:
        refuse_links(folder, environ)
        return folder
    if not takes_link and not is_trusted_by_environment(environ):
        trusted = read_trust(config_dir).get(to_text(file), {}).get("folder")
        if trusted != to_text(target):
            raise ConfigError(f"'{folder}' is a link to '{target}'", "if you made it, trust it: qmd trust")
    return target
