"""Who computes the vectors of an index now, and how far that is: a lock and a record beside the index file.

The lock alone says whether a run is going on, because the system drops it when its holder dies, however it dies. What
the record of a killed run says is therefore not believed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import json
from msgspec.structs import replace

from qmd.clock import time_text, utc_now
from qmd.files import exclusive_lock, is_locked, write_atomically
from qmd.pace import Progress
from qmd.status import EmbeddingRun

_PROBE_S = 0.1
"""Whoever asks whether a run is going on holds the lock for a moment, which must not look like a run to another."""

_PAUSE_S = 5.0
"""A process that computes vectors in slices (`watch`) looks at files between two of them, without the lock."""

_INTERVAL_S = 1.0
"""Between two records of how far a run is."""


@contextmanager
def embed_lock(database: Path, wait_s: float = _PROBE_S) -> Iterator[bool]:
    """Hold the embedding lock of an index; gives False when another process has it longer than `wait_s`."""
    with exclusive_lock(_lock_file(database), wait_s) as is_ours:
        yield is_ours


def running_embedding(database: Path) -> EmbeddingRun | None:
    """The run that computes vectors of an index now; costs nothing where there is none."""
    record = _record_file(database)
    try:
        run = json.decode(record.read_bytes(), type=EmbeddingRun)
        age_s = time.time() - record.stat().st_mtime
    except (OSError, ValueError):
        return None
    is_going_on = is_locked(_lock_file(database)) or (run.is_paused and age_s < _PAUSE_S)
    return run if is_going_on else None


@contextmanager
def recorded_run(database: Path, before: EmbeddingRun | None = None) -> Iterator[RunRecord]:
    """Let others see the run of this process, which holds the lock, while the block runs.

    Args:
        database: The index.
        before: The slice before this one, when the run is done in several.
    """
    record = RunRecord(database, before)
    try:
        yield record
    finally:
        if not record.run.is_paused:
            record.end()


class RunRecord:
    """What others are told of a run; see `recorded_run`."""

    def __init__(self, database: Path, before: EmbeddingRun | None) -> None:
        self._file = _record_file(database)
        self._before = before
        self._written_at = -_INTERVAL_S
        self.run = EmbeddingRun(os.getpid(), before.started_at if before else time_text(utc_now()))
        self._write()

    def update(self, progress: Progress) -> None:
        """Say how far it is, once a second."""
        # A later slice knows only what is left, and what came in meanwhile.
        total = max(progress.total, self._before.total if self._before else 0)
        done = total - progress.total + progress.done
        is_first = not self.run.total
        self.run = replace(self.run, done=done, total=total, left_s=progress.left_s)
        if is_first or time.monotonic() - self._written_at >= _INTERVAL_S:
            self._write()

    def pause(self) -> None:
        """Say that this process goes on in a moment."""
        self.run = replace(self.run, is_paused=True)
        self._write()

    def end(self) -> None:
        """Say nothing more."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _write(self) -> None:
        self._written_at = time.monotonic()
        # The vectors matter more than whether somebody can be told of them.
        with suppress(OSError):
            write_atomically(self._file, json.encode(self.run).decode())


def _lock_file(database: Path) -> Path:
    return database.with_name(f".{database.name}.embed.lock")


def _record_file(database: Path) -> Path:
    return database.with_name(f".{database.name}.embed.json")
