"""Named searches of the user, stored in a file of the user's own: a project's `.qmd` cannot change them."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import MsgspecError, json

from qmd.config.edits import locked_config_file
from qmd.errors import ConfigError, UsageError
from qmd.files import read_regular_file, write_atomically

_FILE, _MAX_BYTES = "searches.json", 16_000_000
_NAME = r"@?([^\W_][\w-]{0,49})\s*\Z"


def saved_searches(config_dir: Path) -> dict[str, str]:
    """Return name → query, in the order of saving; ConfigError if the file has other content."""
    path = config_dir / _FILE
    try:
        return json.decode(read_regular_file(path, _MAX_BYTES), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, MsgspecError, UnicodeError) as exc:
        raise ConfigError(f"cannot read '{path}': {exc}", "correct or remove that file") from exc


def named_query(text: str, config_dir: Path) -> str:
    """Return the saved query for `@name`; `text` itself if none has that name."""
    name = re.match(_NAME, text) if text.startswith("@") else None
    return saved_searches(config_dir).get(name[1], text) if name else text


def save_search(config_dir: Path, name: str, query: str | None) -> str | None:
    """Save a query under a name, or delete it with None; return the previous one."""
    if (found := re.match(_NAME, name)) is None:
        raise UsageError(f"'{name}' cannot be the name of a search", "use up to 50 letters, digits, - and _")
    with locked_config_file(config_dir / _FILE):
        saved = saved_searches(config_dir)
        before = saved.pop(found[1], None)
        saved |= {} if query is None else {found[1]: query}
        write_atomically(config_dir / _FILE, json.format(json.encode(saved)).decode() + "\n")
    return before
