"""Edit another program's settings file: change one entry, back the file up once, and replace it in one step."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import BusyError, ConfigError
from qmd.external_files import edit_file, read_if_there, resolve_external_file
from qmd.files import PRIVATE_FILE, sweep_temporaries, temporary_beside
from qmd.plugins.install.clients import is_own_hook
from qmd.plugins.install.settings_text import Keys, changed_text, entry_in, parsed_text

_MOST_BYTES, _MOST_TOML_BYTES = 64 << 20, 1 << 20
"""Claude Code stores its history there, and the file grows to tens of MB."""
_MOST_HOOKS = 20
"""The whole text is read for each that is removed."""
_SHOWN = 160
"""Characters of a shown line: a file may have only one line."""


class Change(Struct, frozen=True):
    """Planned change of an entry in a file, which is at `place` after links are followed; a text of None is no file."""

    path: Path
    place: Path
    keys: Keys
    value: Any
    """The entry, or a list with qmd's own group of hooks."""
    removes: bool
    before: str | None = None
    after: str | None = None

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

    def text_after(self, before: str | None) -> str | None:
        """Return the changed text; a text that has not changed since qmd edited it becomes the former one.

        Raises:
            ValueError: It is neither JSON nor TOML, or has a form that is not changed.
        """
        text = before or ""
        after = self._edited(text, self.value, removes=self.removes)
        if after == text:
            return before
        for original in (None, _kept(self.path)) if self.removes else ():
            was, [(_, present), *_] = original or "", self._own(text)
            with suppress(ValueError):
                if self._edited(was, present, removes=True) == was and self._edited(was, present) == text:
                    return original
        return after

    def _edited(self, text: str, value: Any, *, removes: bool = False) -> str:
        """Return a text with one entry of this value, or with none; a list changes item by item."""
        own, is_toml = self._own(text), self.path.suffix == ".toml"
        for place, _ in reversed(own if removes else own[1:]):
            text = changed_text(text, place, None, is_toml=is_toml)
        if removes or (own and own[0][1] == value):
            return text
        place = own[0][0] if own else self.keys
        if isinstance(value, list):
            place = place if own else (*place, len(entry_in(parsed_text(text, is_toml=is_toml), place) or ()))
            value = value[0]["hooks"][0] if place[-2] == "hooks" else value[0]
        return changed_text(text, place, value, is_toml=is_toml)

    def _own(self, text: str) -> list[tuple[Keys, Any]]:
        """Return the places of qmd's entry and its value; of hooks, of groups without others or of single hooks."""
        entry = entry_in(parsed_text(text, is_toml=self.path.suffix == ".toml"), self.keys)
        if not isinstance(self.value, list):
            return [] if entry is None else [(self.keys, entry)]
        if not isinstance(entry, list | None):
            raise ValueError("the hooks are no list")
        places: list[tuple[Keys, Any]] = []
        for number, group in enumerate(entry or ()):
            hooks, place = entry_in(group, ("hooks",)), (*self.keys, number)
            own = [at for at, hook in enumerate(hooks if isinstance(hooks, list) else ()) if is_own_hook(hook)]
            is_whole = own and len(own) == len(hooks) and len(group) == 1
            single = [((*place, "hooks", at), [{"hooks": [hooks[at]]}]) for at in own]
            places += [(place, [group])] if is_whole else single
        if len(places) > _MOST_HOOKS:
            raise ValueError(f"it has more than {_MOST_HOOKS} prompt hooks of qmd")
        return places


def plan_change(path: Path, keys: Keys, value: object, *, removes: bool, is_clones: bool) -> Change:
    """Plan the change that sets or removes an entry (in a list, qmd's items), without writing the file.

    A file that has not changed since qmd edited it gets its former bytes back, and is deleted if there was none. If it
    `is_clones`, a stranger may have made the folder, and no link is followed.

    Raises:
        ConfigError: The file does not belong to this user or cannot be changed, or is neither JSON nor TOML.
    """
    hint = "add the output of --print by hand"
    try:
        change = Change(path, resolve_external_file(path, follows_links=not is_clones), keys, value, removes)
        for file in (path, change.place):
            sweep_temporaries(file)
        before = _read(change.place)
        return replace(change, before=before, after=change.text_after(before))
    except OSError as exc:
        raise ConfigError(f"cannot use '{path}': {exc.strerror}", hint) from exc
    except ValueError as exc:
        raise ConfigError(f"cannot read '{path}': {exc}", f"correct it, or {hint}") from exc


def carry_out(change: Change) -> Path | None:
    """Write a planned change, in the text that is there now; return the new backup, None if none was needed.

    Raises:
        BusyError: Another program changes the file all the time.
        ConfigError: It cannot be written, or not be read any more.
    """
    path, backup = change.path, _backup(change.path)
    is_made = change.before is not None and not os.path.lexists(backup)

    def edit(raw: bytes | None) -> bytes | None:
        before = None if raw is None else raw.decode()
        after = change.after if before == change.before else change.text_after(before)
        if is_made and raw is not None:
            with temporary_beside(path, raw, PRIVATE_FILE) as temporary:
                temporary.replace(backup)
        return None if after is None else after.encode()

    try:
        edit_file(change.place, edit, _MOST_BYTES)
        # A restored file needs no backup, and the next change must make its own.
        kept = _kept(path)
        if kept is not None and _read(change.place) in (None, kept):
            backup.unlink()
            return None
    except BusyError:
        if is_made:
            backup.unlink(missing_ok=True)
        raise
    except OSError as exc:
        raise ConfigError(f"cannot write '{path}': {exc.strerror}", "check the permissions of that folder") from exc
    except ValueError as exc:
        raise ConfigError(f"cannot read '{path}': {exc}", "correct it") from exc
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
    raw = read_if_there(path, most)
    if raw is not None and len(raw) > most:
        raise ValueError(f"it has more than {most >> 20} MiB")
    return None if raw is None else raw.decode()
