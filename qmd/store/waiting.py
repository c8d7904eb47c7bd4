"""How long a writer waits for another one."""

from __future__ import annotations

import os

DEFAULT_BUSY_TIMEOUT_MS = 120_000
BUSY_TIMEOUT_VARIABLE = "QMD_SQLITE_BUSY_TIMEOUT"


def busy_timeout_ms() -> int:
    """How long to wait for another process, from the environment or the default, in milliseconds."""
    raw = os.environ.get(BUSY_TIMEOUT_VARIABLE, "").strip()
    # SQLite counts to no more.
    return min(int(raw), 2**31 - 1) if raw.isdecimal() and len(raw) < 20 else DEFAULT_BUSY_TIMEOUT_MS
