"""Who has the vectors of an index now, since when, and how far that is: a lock and a record beside the index file.

The lock alone says whether a run is going on, because the system drops it when its holder dies, however it dies. What
the record of a killed run says is therefore not believed. Whoever computes, cleans or copies vectors takes the lock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import json
from msgspec.structs import replace

from qmd.errors import AlreadyEmbeddingError
from qmd.files import exclusive_lock, is_locked, read_regular_file, write_atomically
from qmd.progress import Progress
from qmd.status import EmbeddingRun, Runner
from qmd.times import time_text, utc_now

_PROBE_S = 0.1
"""Whoever asks whether a run is going on holds the lock for a moment, which must not look like a run to another."""

_PAUSE_S = 5.0
"""A process that computes vectors in slices (`watch`) looks at files between two of them, without the lock."""

_HANDOVER_S = 15.0
"""Longest wait for a run that gives way: `watch` stores what it has computed first, the work of some seconds."""

_MAX_BYTES = 10_000

_INTERVAL_S = 1.0
"""Between two records of how far a run is."""


@contextmanager
def embed_lock(database: Path, wait_s: float = _PROBE_S, by: Runner = "embed") -> Iterator[bool]:
    """Hold the embedding lock of an index; gives False when another process has it longer than `wait_s`.

    A run that gives way is asked to end, unless this one would give way itself. Commands wait for each other for a
    while; but who computes does not wait for another one that does, which may take hours.
    """
    yields = by in ("watch", "server")
    if yields and is_locked(_wanted_file(database)):
        # Who gave way would else be back before the command finds the lock free.
        yield False
        return
    with ExitStack() as held:
        is_ours = held.enter_context(exclusive_lock(_lock_file(database), wait_s))
        run = None if is_ours or yields else lock_holder(database)
        if run is not None and not run.by == by == "embed":
            with exclusive_lock(_wanted_file(database), _PROBE_S):
                is_ours = held.enter_context(exclusive_lock(_lock_file(database), _HANDOVER_S))
        yield is_ours


@contextmanager
def sole_run(database: Path, by: Runner, place: str, before: EmbeddingRun | None = None) -> Iterator[RunRecord]:
    """Have the vectors of an index to oneself, or raise `AlreadyEmbeddingError`, which says who has them of `place`."""
    with embed_lock(database, by=by) as is_ours:
        if not is_ours:
            run = lock_holder(database)
            state = f", {run.state}" if run is not None and run.computes else ""
            who = "" if run is None else f" ({run.who}, since {run.started_at}{state})"
            message = f"another process{who} is {run.work if run else 'computing vectors for'} index '{place}'"
            raise AlreadyEmbeddingError(message, "wait until it has ended, see: qmd status")
        with recorded_run(database, before, by) as record:
            yield record


def lock_holder(database: Path) -> EmbeddingRun | None:
    """Who has the vectors of an index now; costs nothing where nobody has them."""
    record = _record_file(database)
    try:
        run = json.decode(read_regular_file(record, _MAX_BYTES), type=EmbeddingRun)
        age_s = time.time() - record.stat().st_mtime
    except (OSError, ValueError):
        return None
    is_going_on = is_locked(_lock_file(database)) or (run.is_paused and age_s < _PAUSE_S)
    return run if is_going_on else None


@contextmanager
def recorded_run(database: Path, before: EmbeddingRun | None = None, by: Runner = "embed") -> Iterator[RunRecord]:
    """Let others see the run of this process, which holds the lock, while the block runs.

    Args:
        database: The index.
        before: The slice before this one, when the run is done in several.
        by: What computes.
    """
    record = RunRecord(database, before, by)
    try:
        yield record
    finally:
        if not record.run.is_paused:
            record.end()


class RunRecord:
    """What others learn of a run; see `recorded_run`."""

    def __init__(self, database: Path, before: EmbeddingRun | None, by: Runner) -> None:
        self._file = _record_file(database)
        self._wanted = _wanted_file(database)
        self._before = before
        self._written_at = -_INTERVAL_S
        # Until a slice can tell for itself, it is as far as the one before it.
        known = replace(before, is_paused=False) if before else EmbeddingRun(os.getpid(), time_text(utc_now()))
        self.run = replace(known, by=by)
        self._write()

    def update(self, progress: Progress) -> None:
        """Say how far it is, once a second."""
        # A later slice knows only what is left, and what came in meanwhile.
        total = max(progress.total, self._before.total if self._before else 0)
        done = total - progress.total + progress.done
        is_first = not self.run.total
        left_s = self.run.left_s if progress.left_s is None else progress.left_s
        self.run = replace(self.run, done=done, total=total, left_s=left_s)
        if is_first or time.monotonic() - self._written_at >= _INTERVAL_S:
            self._write()

    @property
    def is_wanted(self) -> bool:
        """Whether a command waits for this run to give way."""
        return self.run.yields and is_locked(self._wanted)

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
        # The vectors matter more than whether anybody learns of them.
        with suppress(OSError):
            write_atomically(self._file, json.encode(self.run).decode())


def _lock_file(database: Path) -> Path:
    return database.with_name(f".{database.name}.embed.lock")


def _wanted_file(database: Path) -> Path:
    return database.with_name(f".{database.name}.embed-wanted.lock")


def _record_file(database: Path) -> Path:
    return database.with_name(f".{database.name}.embed.json")
