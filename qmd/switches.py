"""Environment variables that switch something on or off, or set a limit."""

from __future__ import annotations

import os

_OFF_WORDS = frozenset({"0", "off", "no", "false", "none", "never", "disable", "disabled"})


BUSY_TIMEOUT_VARIABLE = "QMD_SQLITE_BUSY_TIMEOUT"


_DEFAULT_BUSY_TIMEOUT_MS = 120_000


def is_off(value: str | None) -> bool:
    """Return whether an environment variable switches off: `0`, `off`, `no`, `false`, `none`, `never`, `disable(d)`."""
    return value is not None and value.strip().lower() in _OFF_WORDS


def is_on(value: str | None) -> bool:
    """Return whether an environment variable switches on: set, not blank, and not a word that switches off."""
    return value is not None and bool(value.strip()) and not is_off(value)


def busy_timeout_ms() -> int:
    """Return the wait for another process in milliseconds, from the environment or the default."""
    raw = os.environ.get(BUSY_TIMEOUT_VARIABLE, "").strip()
    # SQLite's maximum
    return min(int(raw), 2**31 - 1) if raw.isdecimal() and len(raw) < 20 else _DEFAULT_BUSY_TIMEOUT_MS
