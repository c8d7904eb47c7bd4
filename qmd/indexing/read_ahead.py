"""Read files ahead of the writer: in threads when they are few and small, else in processes of their own.

Parsing is Python and keeps one core busy for any number of threads; processes use the other cores, and leave this one
to SQLite. A process can also be ended: see `qmd.indexing.reader_process`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from qmd.batching import batches
from qmd.indexing.reading import FileReading, read_files
from qmd.ingest.outline import kind_of
from qmd.process import usable_cpus
from qmd.records import FileEntry

if TYPE_CHECKING:
    from concurrent.futures import Future

_FILES_PER_TASK = 16
_MAX_PROCESSES = 4
"""More would wait for the writer, each with some 35 MB."""

_PROCESS_BYTES = 4 * 1024 * 1024
"""Text that takes about as long to parse as processes take to start."""

_HARMLESS_BYTES = 256 * 1024
_HARMLESS_CODE_BYTES = 20_000
"""Sizes up to which no file takes longer than two seconds, so that a process, which takes a tenth of a second to start,
is not worthwhile. Source code goes through a parser outside our control."""

Read = Callable[[Sequence[FileEntry]], list[FileReading]]


def read_ahead(
    entries: Sequence[FileEntry], n_processes: int | None = None, budget_s: Callable[[FileEntry], float] | None = None
) -> Iterator[list[FileReading]]:
    """Yield files read and analysed while the caller writes, in order, a bounded number ahead.

    Args:
        entries: The files.
        n_processes: Number of reading processes; 0 for threads of this one. By default it depends on the sizes.
        budget_s: Seconds that a process may take for a file before the file is skipped; None for `time_budget_s`.
    """
    if not entries:
        return
    tasks = list(batches(entries, _FILES_PER_TASK))
    n_processes = _worthwhile_processes(entries) if n_processes is None else n_processes
    if not n_processes and len(tasks) == 1:
        # A few edited notes, before a search: without threads and their imports.
        yield read_files(entries)
        return
    from concurrent.futures import ThreadPoolExecutor
    from queue import SimpleQueue

    with _readers(n_processes, budget_s) as readers:
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
    files = [(kind := kind_of(entry.path), kind.bytes_read(entry.size_bytes)) for entry in entries]
    n_cores = usable_cpus()
    if n_cores > 1 and sum(n_bytes for _, n_bytes in files) >= _PROCESS_BYTES:
        return min(n_cores, _MAX_PROCESSES)
    is_harmless = all(
        n_bytes <= (_HARMLESS_CODE_BYTES if kind.is_source else _HARMLESS_BYTES) and not kind.is_converted
        for kind, n_bytes in files
    )
    return 0 if is_harmless else 1


@contextmanager
def _readers(n_processes: int, budget_s: Callable[[FileEntry], float] | None) -> Iterator[list[Read]]:
    """Yield the concurrent readers: processes, or this one twice, so that one file is parsed while another is read."""
    from qmd.indexing.reader_process import ReaderProcess, time_budget_s

    with ExitStack() as stack:
        processes = [stack.enter_context(ReaderProcess(budget_s or time_budget_s)) for _ in range(n_processes)]
        yield [process.read for process in processes] or [read_files, read_files]
