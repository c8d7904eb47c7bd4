"""A process that reads files for this one, so that no file can crash the program through a parser.

It receives pickled lists of files on stdin and answers file by file on stdout (`FileReading.pack`, after its length),
within a time for each and a bound of memory. Without an answer the process is ended, the file is skipped, and a new
process continues with the next file. It ends with its stdin, so none outlives the program, however that ends.
"""

from __future__ import annotations

import hashlib  # noqa: F401 - for `qmd.files.sha256`
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from typing import IO, Self

from qmd.foreign import short
from qmd.indexing.reading import FileReading, read_file, read_files
from qmd.ingest.outline import kind_of
from qmd.records import FileEntry
from qmd.times import settled_time

_START = "import sys; sys.path[:] = sys.argv[1:]; from qmd.indexing.reader_process import serve; serve()"
"""The process gets the path of its parent, which may have been started from any folder."""

_READY = b"qmd reader\n"
_SIZE_BYTES = 8
_MEMORY_BYTES = 2 << 30
"""Ten megabytes of ligatures, each of which becomes eighteen letters, take one gigabyte."""

_CONVERTED_MEMORY_BYTES, _CONVERTED_S = 512 << 20, 30.0
"""Limits for converted files, whose process gets no network either."""

_BASE_S = 20.0
_PER_MEGABYTE_S = 5.0
"""Ten times the time of the slowest text on one busy core."""

_POLL_S = 0.25


def time_budget_s(entry: FileEntry) -> float:
    """Return the seconds after which a file is given up."""
    is_converted = kind_of(entry.path).is_converted
    return _CONVERTED_S if is_converted else _BASE_S + _PER_MEGABYTE_S * entry.size_bytes / 1_000_000


class ReaderProcess:
    """Reader of lists of files, one at a time; usable as a context manager, from one thread at a time.

    Args:
        budget_s: Seconds that a file may take.
    """

    def __init__(self, budget_s: Callable[[FileEntry], float]) -> None:
        self._budget_s = budget_s
        self._process: subprocess.Popen[bytes] | None = None
        self._has_reported = False
        """True after the process has reported that it runs."""
        self._printed = deque[bytes]()
        """The last kilobytes of the process's stderr."""
        self._listener = threading.Thread()
        self._lock = threading.Lock()
        self._left_s: float | None = None
        """Time left for the expected answer."""
        self._is_expired = False
        self._is_closed = threading.Event()
        self._watch = threading.Thread(target=self._keep_time, name="qmd-read-watch", daemon=True)

    def __enter__(self) -> Self:
        # At once, so that it is ready when the first files are.
        self._start()
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._end()

    def read(self, entries: Sequence[FileEntry]) -> list[FileReading]:
        """Return the files read, in order, or the reason for each failure; without a process, read them here."""
        readings: list[FileReading] = []
        suspect: FileEntry | None = None
        while len(readings) < len(entries):
            rest = entries[len(readings) :]
            if not self._is_running():
                return [*readings, *read_files(rest)]
            assert self._process is not None and self._process.stdin is not None
            # The end of a process is noticed when its answer is read.
            with suppress(OSError):
                pickle.dump(rest, self._process.stdin, pickle.HIGHEST_PROTOCOL)
                self._process.stdin.flush()
            for entry in rest:
                reading = self._receive(entry)
                if reading is not None:
                    readings.append(reading)
                    continue
                if self._is_expired:
                    readings.append(_failed(entry, "slow", f"took longer than {self._budget_s(entry):.0f} s to read"))
                elif suspect is entry:
                    readings.append(_failed(entry, "crash", f"crashed the process that read it{self._last_words()}"))
                # The first crash may have another cause: the system ends processes when memory runs out.
                suspect = entry
                break
        return readings

    def _is_running(self) -> bool:
        """Return whether a process can read; start one if there is none."""
        if self._process is None:
            self._start()
        if self._process is not None and not self._has_reported:
            assert self._process.stdout is not None
            self._has_reported = self._within(_BASE_S, self._process.stdout.readline) == _READY
            if not self._has_reported:
                self._end()
        return self._process is not None

    def _start(self) -> None:
        self._has_reported = False
        with suppress(OSError):
            command, pipe = [sys.executable, "-Wignore", "-c", _START, *sys.path], subprocess.PIPE
            # A separate group is ended as a whole; numpy keeps no memory for threads.
            env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            # The size of a pipe is taken at once.
            self._process = subprocess.Popen(command, 1 << 16, None, pipe, pipe, pipe, env=env, start_new_session=True)
            # The thread closes the stream: the end of the process does not wait for others that may have it open.
            self._printed, stream, self._process.stderr = deque(maxlen=2), self._process.stderr, None
            self._listener = threading.Thread(target=_read_all, args=(stream, self._printed), daemon=True)
            self._listener.start()

    def _receive(self, entry: FileEntry) -> FileReading | None:
        """Return the next answer; None when the process has died or was ended, as it then is for certain."""
        assert self._process is not None and self._process.stdout is not None
        seconds, read = self._budget_s(entry), self._process.stdout.read
        try:
            size = int.from_bytes(self._within(seconds, partial(read, _SIZE_BYTES)))
            packed = self._within(seconds, partial(read, size)) if size else b""
        except OSError:
            packed = b""
        if not packed or len(packed) < size:
            self._end()
            return None
        return FileReading.unpack(entry, packed)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        # A task that the process never received may still wait to be flushed.
        with suppress(OSError), process:
            pass

    def _last_words(self) -> str:
        """Return the last line that the ended process wrote to stderr, after a colon; empty without one."""
        self._listener.join(_POLL_S)
        line = b"".join(self._printed).decode(errors="replace").strip().rpartition("\n")[2]
        return line and f": {short(line)}"

    def _within(self, seconds: float, read: Callable[[], bytes]) -> bytes:
        """Return the result of `read`; end the process and set `_is_expired` if that takes longer."""
        with self._lock:
            self._is_expired, self._left_s = False, seconds
        try:
            return read()
        finally:
            with self._lock:
                self._left_s = None

    def _keep_time(self) -> None:
        # Counted in intervals: while a machine sleeps, or a job is stopped, no file uses its time.
        while not self._is_closed.wait(_POLL_S):
            with self._lock:
                if self._left_s is None:
                    continue
                self._left_s -= _POLL_S
                process = self._process
                if self._left_s <= 0 and process is not None:
                    self._is_expired = True
                    _kill(process)


def _read_all(stream: IO[bytes], kept: deque[bytes]) -> None:
    with stream:
        kept.extend(iter(partial(os.read, stream.fileno(), 4096), b""))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process that was not waited for yet, and its group."""
    with suppress(OSError):
        process.kill() if sys.platform == "win32" else os.killpg(process.pid, signal.SIGKILL)


def _failed(entry: FileEntry, code: str, message: str) -> FileReading:
    mtime_ns = settled_time(entry.mtime_ns, time.time_ns())
    return FileReading(entry, None, code, mtime_ns, warnings=(f"'{entry.path}' {message}",))


def serve() -> None:
    """Answer tasks until stdin ends, as the main function of a reader process."""
    # Ctrl-C reaches every process of the terminal; the parent decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output of a library must not get into the answers.
    results = os.fdopen(os.dup(1), "wb", 1 << 16)
    os.dup2(2, 1)
    alarm = getattr(signal, "alarm", lambda _: 0)
    results.write(_READY)
    results.flush()
    while True:
        try:
            entries = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        for entry in entries:
            kind = kind_of(entry.path)
            if kind.is_converted:
                _leave_network()
            _limit_memory(_CONVERTED_MEMORY_BYTES if kind.is_converted else _MEMORY_BYTES)
            # When the parent has ended, no other process ends a parser that hangs.
            alarm(int(2 * time_budget_s(entry)))
            packed = read_file(entry, kind).pack()
            alarm(0)
            results.write(len(packed).to_bytes(_SIZE_BYTES) + packed)
            results.flush()


@cache
def _leave_network() -> None:
    """Disconnect this process from the network, if the system permits it: on Linux, but not in all containers."""
    if sys.platform == "linux":
        import ctypes

        # `os.unshare` of Python 3.12, with CLONE_NEWNET; without that permission, in a user namespace of its own.
        unshare = ctypes.CDLL(None).unshare
        _ = unshare(0x40000000) and unshare(0x50000000)


@lru_cache(maxsize=1)
def _limit_memory(n_bytes: int) -> None:
    """Make a file that needs too much memory fail here, before the system chooses a process to end."""
    # Windows has no such limit, and macOS refuses some.
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = n_bytes if hard == resource.RLIM_INFINITY else min(hard, n_bytes)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
