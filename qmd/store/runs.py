"""The embedding lock of an index, and the progress of the run that has it.

A lock file and a record lie next to the index file. The lock alone decides whether a run is active, because the system
drops it when its process dies, so the record of a killed run is ignored. Every process that computes, cleans or copies
vectors takes the lock.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec import json
from msgspec.structs import replace

from qmd.errors import AlreadyEmbeddingError
from qmd.files import exclusive_lock, is_locked, is_recent, read_regular_file, write_atomically
from qmd.status import EMBEDDING_TASKS, EmbeddingRun, Runner
from qmd.times import time_text, utc_now

if TYPE_CHECKING:
    from qmd.progress import Progress

_PROBE_S = 0.1
"""Longest wait for a process that only asks for the lock, which takes it for a moment."""

_PAUSE_S = 5.0
"""A process that computes vectors in slices (`watch`) looks at files between two of them, without the lock."""

_HANDOVER_S = 15.0
"""Longest wait for a run that gives way: `watch` stores what it has computed first, the work of some seconds."""

_LOCK, _WANTED, _RECORD, _MAX_BYTES = "embed.lock", "embed-wanted.lock", "embed.json", 10_000
"""Files next to the index, and the largest record."""

_INTERVAL_S = 1.0
"""Interval of the records of a run's progress."""


class EmbeddingLock:
    """The embedding lock of an index for the time of a `with` block, and the record that other processes read.

    A lock may be taken again: if the last block paused, the next one continues its run.

    Args:
        database: The index.
        by: The kind of run.
        place: Name of the index in messages.
    """

    def __init__(self, database: Path, by: Runner = "embed", place: str | None = None) -> None:
        self._database = database
        self._place = place or str(database)
        self._lock = ExitStack()
        self._known_total = 0
        self._written_at = 0.0
        self.run = _new_run(by)
        """The record that other processes see."""

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            AlreadyEmbeddingError: Another process has it; the message names it.
        """
        with ExitStack() as lock:
            if not self._take(lock):
                raise self._refusal()
            # Until a slice knows more, its progress is that of the previous one.
            self.run = replace(self.run, is_paused=False) if self.run.is_paused else _new_run(self.run.by)
            self._known_total = self.run.total
            self._write()
            self._lock = lock.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.run.is_paused:
            with suppress(OSError):
                _file(self._database, _RECORD).unlink(missing_ok=True)
        self._lock.close()

    def update(self, progress: Progress) -> None:
        """Report the progress of the run, once a second."""
        # A later slice only knows the remaining and the new texts.
        total = max(progress.total, self._known_total)
        done = total - progress.total + progress.done
        is_first = not self.run.total
        left_s = self.run.left_s if progress.left_s is None else progress.left_s
        self.run = replace(self.run, done=done, total=total, left_s=left_s)
        if is_first or time.monotonic() - self._written_at >= _INTERVAL_S:
            self._write()

    @property
    def is_wanted(self) -> bool:
        """Return whether a command waits for this run to give way."""
        return self.run.task.yields and is_locked(_file(self._database, _WANTED))

    def pause(self) -> None:
        """Report that this process continues in a moment."""
        self.run = replace(self.run, is_paused=True)
        self._write()

    def _take(self, stack: ExitStack) -> bool:
        """Take the lock; return False if another process keeps it.

        A run that gives way is asked to end, unless this one would give way itself. Commands wait for each other for a
        while, but a command that computes does not wait for another one, which may take hours.
        """
        lock, wanted = _file(self._database, _LOCK), _file(self._database, _WANTED)
        yields = self.run.task.yields
        if yields and is_locked(wanted):
            # A run that gave way would otherwise be back before the command finds the lock free.
            return False
        is_ours = stack.enter_context(exclusive_lock(lock, _PROBE_S))
        holder = None if is_ours or yields else lock_holder(self._database)
        if holder is not None and not holder.by == self.run.by == "embed":
            with exclusive_lock(wanted, _PROBE_S):
                is_ours = stack.enter_context(exclusive_lock(lock, _HANDOVER_S))
        return is_ours

    def _refusal(self) -> AlreadyEmbeddingError:
        holder = lock_holder(self._database)
        state = f", {holder.state}" if holder is not None and holder.task.computes else ""
        who = "" if holder is None else f" ({holder.who}, since {holder.started_at}{state})"
        work = EMBEDDING_TASKS[holder.by if holder else "embed"].work
        message = f"another process{who} is {work} index '{self._place}'"
        return AlreadyEmbeddingError(message, "wait until it has ended, see: qmd status")

    def _write(self) -> None:
        self._written_at = time.monotonic()
        # The vectors matter more than the report about them.
        with suppress(OSError):
            write_atomically(_file(self._database, _RECORD), json.encode(self.run).decode())


def lock_holder(database: Path) -> EmbeddingRun | None:
    """Return the run that has the lock of an index now; None for none, at no cost."""
    record = _file(database, _RECORD)
    try:
        run = json.decode(read_regular_file(record, _MAX_BYTES), type=EmbeddingRun)
    except (OSError, ValueError):
        return None
    return run if is_locked(_file(database, _LOCK)) or (run.is_paused and is_recent(record, _PAUSE_S)) else None


def _new_run(by: Runner) -> EmbeddingRun:
    return EmbeddingRun(os.getpid(), time_text(utc_now()), by=by)


def _file(database: Path, name: str) -> Path:
    return database.with_name(f".{database.name}.{name}")
