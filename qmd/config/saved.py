"""Searches that the user keeps by name, in a file of the user's own: a project's `.qmd` has no say in them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from qmd.config.edits import locked_config_file, write_config_file
from qmd.errors import ConfigError, UsageError
from qmd.files import read_regular_file

_FILE = "searches.json"
_NAME = r"@?([^\W_][\w-]{0,49})\s*\Z"
_MAX_BYTES = 1_000_000


def saved_searches(config_dir: Path) -> dict[str, str]:
    """Name → query, in the order in which they were saved.

    Raises:
        ConfigError: The file holds something else, or cannot be read.
    """
    path = config_dir / _FILE
    try:
        return msgspec.json.decode(read_regular_file(path, _MAX_BYTES), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError, UnicodeError) as exc:
        raise ConfigError(f"cannot read '{path}': {exc}", "mend or remove that file") from exc


def named_query(text: str, config_dir: Path) -> str:
    """The saved query that `text` names as `@name`; where none is saved under that name, `text` as words."""
    name = re.match(_NAME, text.strip()) if text.startswith("@") else None
    return saved_searches(config_dir).get(name[1], text) if name else text


def save_search(config_dir: Path, name: str, query: str | None) -> str | None:
    """Keep a query under a name, or with None forget what is kept there.

    Returns:
        What was kept under that name before.

    Raises:
        ConfigError: The file cannot be read or written.
        UsageError: The name is none that can be asked for, or there is too much in the file.
    """
    found = re.match(_NAME, name)
    if found is None:
        raise UsageError(f"'{name}' cannot be the name of a search", "use up to 50 letters, digits, - and _")
    path = config_dir / _FILE
    with locked_config_file(path):
        saved = saved_searches(config_dir)
        before = saved.pop(found[1], None)
        if query is not None:
            saved[found[1]] = query
        text = msgspec.json.format(msgspec.json.encode(saved), indent=2).decode() + "\n"
        if len(text.encode()) > _MAX_BYTES:
            raise UsageError(f"'{path}' has no room for more searches", "remove one: qmd save NAME --remove")
        write_config_file(path, text)
    return before
