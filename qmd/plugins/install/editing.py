"""Edit another program's settings file: change one entry, back the file up once, and replace it in one step."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from msgspec import Struct

from qmd.errors import BusyError, ConfigError
from qmd.files import read_regular_file, resolve_external_file, write_atomically
from qmd.plugins.install.settings_text import Keys, changed_text, entry_in, parsed_text

_MOST_BYTES, _MOST_TOML_BYTES = 64 << 20, 1 << 20
"""Claude Code stores its history there, and the file grows to tens of MB."""
_HOOK = "hook prompt"
"""Text that identifies qmd's item in a list of hooks."""
_SHOWN = 160
"""Characters of a shown line: a file may have only one line."""


class Change(Struct, frozen=True):
    """Planned change of a file, which is at `place` after links are followed; None for no file."""

    path: Path
    place: Path
    before: str | None
    after: str | None

    def difference(self) -> str:
        """Return the removed and the added lines."""
        old, new = ((text or "").splitlines() for text in (self.before, self.after))
        head = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))))
        tails = zip(reversed(old[head:]), reversed(new[head:]), strict=False)
        tail = len(list(takewhile(lambda pair: pair[0] == pair[1], tails)))
        removed, added = (lines[head : len(lines) - tail] for lines in (old, new))
        rows = [
            f"--- {self.path}",
            f"@@ line {head + 1} @@",
            *(f"-{one}" for one in removed),
            *(f"+{one}" for one in added),
        ]
        return "".join(f"{row if len(row) <= _SHOWN else row[:_SHOWN] + '…'}\n" for row in rows)


def plan_change(path: Path, keys: Keys, value: object, *, removes: bool, is_clones: bool) -> Change:
    """Plan the change that sets or removes an entry (in a list, qmd's items), without writing the file.

    A file that has not changed since qmd edited it gets its former bytes back, and is deleted if there was none. If it
    `is_clones`, a stranger may have made the folder, and no link is followed.

    Raises:
        ConfigError: The file does not belong to this user or cannot be changed, or is neither JSON nor TOML.
    """
    is_toml, hint = path.suffix == ".toml", "add the output of --print by hand"
    try:
        place = resolve_external_file(path, follows_links=not is_clones)
        before = _read(place)
        present = entry_in(parsed_text(before or "", is_toml=is_toml), keys)
        wanted = _wanted(present, value, removes=removes)
        if present == wanted:
            return Change(path, place, before, before)
        after: str | None = changed_text(before or "", keys, wanted, is_toml=is_toml)
        for original in (None, _kept(path)) if removes else ():
            with suppress(ValueError):
                was = entry_in(parsed_text(original or "", is_toml=is_toml), keys)
                if was == wanted and changed_text(original or "", keys, present, is_toml=is_toml) == before:
                    after = original
        return Change(path, place, before, after)
    except OSError as exc:
        raise ConfigError(f"cannot use '{path}': {exc.strerror}", hint) from exc
    except ValueError as exc:
        raise ConfigError(f"cannot read '{path}': {exc}", f"correct it, or {hint}") from exc


def _wanted(present: Any, value: object, *, removes: bool) -> object:
    """Return the new value of an entry; in a list, only qmd's item is added or removed."""
    if not isinstance(value, list):
        return None if removes else value
    if present is not None and not isinstance(present, list):
        raise ValueError("the hooks are no list")
    others = [one for one in present or () if _HOOK not in json.dumps(one)]
    return [*others, *([] if removes else value)] or None


def carry_out(change: Change) -> Path | None:
    """Write a planned change; return the new backup, None if there was nothing to keep or one exists.

    Raises:
        BusyError: The file has changed since the plan.
        ConfigError: It cannot be written.
    """
    path, place, backup = change.path, change.place, _backup(change.path)
    try:
        if _read(place) != change.before:
            raise BusyError(f"'{path}' was changed by another program meanwhile", "try again")
        is_made = change.before is not None and not os.path.lexists(backup)
        if is_made:
            write_atomically(backup, change.before or "")
        if change.after is None:
            place.unlink()
        else:
            write_atomically(place, change.after, keeps_mode=True)
        # A restored file needs no backup, and the next change must make its own.
        kept = _kept(path)
        if kept is not None and change.after in (None, kept):
            backup.unlink()
            return None
    except OSError as exc:
        raise ConfigError(f"cannot write '{path}': {exc.strerror}", "check the permissions of that folder") from exc
    return backup if is_made else None


def _backup(path: Path) -> Path:
    return path.with_name(f"{path.name}.qmd-backup")


def _kept(path: Path) -> str | None:
    """Return the backup of a file; None if there is none, or another kind of file in its place."""
    backup = _backup(path)
    return _read(backup) if backup.is_file() and not backup.is_symlink() else None


def _read(path: Path) -> str | None:
    """Return the text of a file, None without one; OSError, or ValueError if it is too large or not UTF-8."""
    most = _MOST_TOML_BYTES if ".toml" in path.suffixes else _MOST_BYTES
    try:
        raw = read_regular_file(path, most + 1)
    except FileNotFoundError:
        return None
    if len(raw) > most:
        raise ValueError(f"it has more than {most >> 20} MiB")
    return raw.decode()
