"""A file of another program's settings: read, changed in one entry, backed up once, and replaced in one step."""

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
"""Claude Code keeps what it was told there, and the file grows to tens of MB."""
_HOOK = "hook prompt"
"""What tells qmd's item of a list of hooks."""
_SHOWN = 160
"""Characters of a line: a file may be all in one."""


class Change(Struct, frozen=True):
    """What is to become of a file, which lies at `place` once links are followed; None where there is none."""

    path: Path
    place: Path
    before: str | None
    after: str | None

    def difference(self) -> str:
        """The lines that go and those that come."""
        old, new = ((text or "").splitlines() for text in (self.before, self.after))
        head = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))))
        tails = zip(reversed(old[head:]), reversed(new[head:]), strict=False)
        tail = len(list(takewhile(lambda pair: pair[0] == pair[1], tails)))
        gone, come = (lines[head : len(lines) - tail] for lines in (old, new))
        rows = [
            f"--- {self.path}",
            f"@@ line {head + 1} @@",
            *(f"-{one}" for one in gone),
            *(f"+{one}" for one in come),
        ]
        return "".join(f"{row if len(row) <= _SHOWN else row[:_SHOWN] + '…'}\n" for row in rows)


def plan_change(path: Path, keys: Keys, value: object, *, removes: bool, is_clones: bool) -> Change:
    """What setting an entry (of a list, qmd's items), or removing it, makes of a file, which is not written.

    A file that nobody has changed since it was made so gets back the bytes that it had, and goes if there was none.
    Where it `is_clones`, a stranger may have made the folder, and no link is followed.

    Raises:
        ConfigError: The file is none of this user's that can be changed, or neither JSON nor TOML.
    """
    is_toml, hint = path.suffix == ".toml", "add what --print shows by hand"
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
    """What is to stand in the place of what does; of a list qmd's item alone comes and goes."""
    if not isinstance(value, list):
        return None if removes else value
    if present is not None and not isinstance(present, list):
        raise ValueError("the hooks are no list")
    others = [one for one in present or () if _HOOK not in json.dumps(one)]
    return [*others, *([] if removes else value)] or None


def carry_out(change: Change) -> Path | None:
    """Write what was planned; the backup that was made, None where there was nothing to keep or one is there.

    Raises:
        BusyError: The file is not as it was when that was planned.
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
        # What was put back needs no backup, and the next change shall have its own.
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
    """What the backup of a file holds; None where there is none, or something else in its place."""
    backup = _backup(path)
    return _read(backup) if backup.is_file() and not backup.is_symlink() else None


def _read(path: Path) -> str | None:
    """The text of a file, None where there is none; OSError, or ValueError where it is too large or not UTF-8."""
    most = _MOST_TOML_BYTES if ".toml" in path.suffixes else _MOST_BYTES
    try:
        raw = read_regular_file(path, most + 1)
    except FileNotFoundError:
        return None
    if len(raw) > most:
        raise ValueError(f"it has more than {most >> 20} MiB")
    return raw.decode()
