"""Reads files ahead of the writer: in threads when they are few, in processes of their own when they are many.

Parsing is Python and keeps one core busy however many threads it has; processes use the others, and leave this one to
SQLite. A reader process gets pickled lists of files on stdin and answers each with what it read on stdout. It ends with
its stdin, so none outlives the program, however that ends.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue

from qmd.indexing.reading import FileReading, read_files
from qmd.records import FileEntry

_FILES_PER_TASK = 16
_MAX_PROCESSES = 4
"""More would wait for the writer, each with some 35 MB."""

_PROCESS_BYTES = 4 * 1024 * 1024
"""Text that takes about as long to parse as processes take to start."""

_START = "import sys; sys.path[:] = sys.argv[1:]; from qmd.indexing.read_ahead import serve; serve()"
"""The parent's path is taken over: a program may have been started from anywhere."""

Read = Callable[[Sequence[FileEntry]], list[FileReading]]


def read_ahead(entries: Sequence[FileEntry], n_processes: int | None = None) -> Iterator[list[FileReading]]:
    """Files read and analysed while the caller writes, in order, a bounded number ahead.

    Args:
        entries: The files.
        n_processes: How many processes read; 0 for threads of this one. By default as their size is worth.
    """
    if not entries:
        return
    tasks = [entries[first : first + _FILES_PER_TASK] for first in range(0, len(entries), _FILES_PER_TASK)]
    with _readers(_worthwhile_processes(entries) if n_processes is None else n_processes) as readers:
        idle: SimpleQueue[Read] = SimpleQueue()
        for reader in readers:
            idle.put(reader)

        def read(task: Sequence[FileEntry]) -> list[FileReading]:
            reader = idle.get()
            try:
                return reader(task)
            finally:
                idle.put(reader)

        running: deque[Future[list[FileReading]]] = deque()
        with ThreadPoolExecutor(len(readers), thread_name_prefix="qmd-read") as pool:
            try:
                for task in tasks:
                    running.append(pool.submit(read, task))
                    if len(running) >= 2 * len(readers):
                        yield running.popleft().result()
                while running:
                    yield running.popleft().result()
            finally:
                for future in running:
                    future.cancel()


def _worthwhile_processes(entries: Sequence[FileEntry]) -> int:
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_cores < 2 or sum(entry.size_bytes for entry in entries) < _PROCESS_BYTES:
        return 0
    return min(n_cores, _MAX_PROCESSES)


@contextmanager
def _readers(n_processes: int) -> Iterator[list[Read]]:
    """What reads at the same time: processes, or this one twice, so that one file is parsed while another is read."""
    with ExitStack() as stack:
        yield [stack.enter_context(_reader_process()) for _ in range(n_processes)] or [read_files, read_files]


@contextmanager
def _reader_process() -> Iterator[Read]:
    """A process that reads; where it cannot start or dies, its files are read here."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, *sys.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError:
        yield read_files
        return
    tasks, results = process.stdin, process.stdout
    assert tasks is not None and results is not None

    def read(entries: Sequence[FileEntry]) -> list[FileReading]:
        try:
            pickle.dump(entries, tasks, pickle.HIGHEST_PROTOCOL)
            tasks.flush()
            readings: list[FileReading] = pickle.load(results)
        except (OSError, EOFError, pickle.UnpicklingError):
            return read_files(entries)
        return readings

    try:
        yield read
    finally:
        process.kill()
        # A task that the process never took may still wait to be flushed.
        with suppress(OSError), process:
            pass


def serve() -> None:
    """Answer tasks until stdin ends: what a reader process runs."""
    # Ctrl-C reaches every process of the terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints must not get into the answers.
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            entries = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(read_files(entries), results, pickle.HIGHEST_PROTOCOL)
        results.flush()
