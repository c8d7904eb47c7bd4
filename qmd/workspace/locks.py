"""One embedding run per index at a time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from qmd.files import exclusive_lock


def embed_lock(database: Path, wait_s: float = 0.0) -> AbstractContextManager[bool]:
    """Hold the embedding lock of an index; gives False when another process has it longer than `wait_s`."""
    return exclusive_lock(database.with_name(f".{database.name}.embed.lock"), wait_s)
