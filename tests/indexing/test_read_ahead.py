"""Files read in threads and in processes of their own: the same answers, in the same order, after any failure."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.indexing.read_ahead import read_ahead
from qmd.indexing.reading import FileReading
from qmd.ingest.scan import scan_collection
from qmd.records import Collection, FileEntry
from tests.processes import wait_until

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


@pytest.fixture
def entries(tmp_path: Path) -> tuple[FileEntry, ...]:
    folder = tmp_path / "notes"
    folder.mkdir()
    rng = random.Random(7)
    for number in range(70):
        words = " ".join(rng.choices(["pricing", "getUserName", "C++", "über", "日本語", "\n\n## Part"], k=80))
        (folder / f"{number:02}.md").write_text(f"---\ntags: [a, b]\n---\n# Note {number}\n\n{words}", encoding="utf-8")
    (folder / "33.md").write_bytes(b"\0\1\2")
    (folder / "44.md").write_bytes(b"# caf\xe9")
    for file in folder.iterdir():
        os.utime(file, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    return scan_collection(Collection("notes", folder)).files


def comparable(reading: FileReading) -> FileReading:
    """Return the readings without their times."""
    return replace(reading, document=reading.document and replace(reading.document, created_at=""))


def readings(entries: tuple[FileEntry, ...], n_processes: int) -> list[FileReading]:
    return [comparable(reading) for batch in read_ahead(entries, n_processes) for reading in batch]


@pytest.mark.parametrize("n_processes", [1, 3])
def test_processes_read_what_threads_read(entries: tuple[FileEntry, ...], n_processes: int) -> None:
    by_threads = readings(entries, 0)
    assert [reading.entry for reading in by_threads] == list(entries)
    assert [reading.entry.path for reading in by_threads if reading.failure] == ["33.md"]
    assert readings(entries, n_processes) == by_threads


def test_no_files_start_nothing() -> None:
    assert list(read_ahead((), 2)) == []


@needs_proc
def test_a_reader_process_that_dies_loses_no_file(entries: tuple[FileEntry, ...]) -> None:
    batches = read_ahead(entries, 1)
    first = next(batches)
    (child,) = readers_of(os.getpid())
    os.kill(child, signal.SIGKILL)
    rest = [reading for batch in batches for reading in batch]
    assert [reading.entry for reading in [*first, *rest]] == list(entries)


@needs_proc
def test_a_caller_that_stops_early_leaves_no_process(entries: tuple[FileEntry, ...]) -> None:
    batches = read_ahead(entries, 2)
    next(batches)
    assert len(readers_of(os.getpid())) == 2
    assert isinstance(batches, Generator)
    batches.close()
    assert readers_of(os.getpid()) == []


_READS_AND_DIES = """
import os, signal, sys
from pathlib import Path
from qmd.indexing.read_ahead import read_ahead
from qmd.ingest.scan import scan_collection
from qmd.records import Collection
entries = scan_collection(Collection("notes", Path(sys.argv[1]))).files
for batch in read_ahead(entries, 2):
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_proc
def test_no_reader_process_outlives_a_killed_program(entries: tuple[FileEntry, ...]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", _READS_AND_DIES, str(entries[0].folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as program:
        assert program.stdin is not None and program.stdout is not None
        readers = readers_of(int(program.stdout.readline()))
        program.stdin.write(b"go\n")
        program.stdin.flush()
        assert program.wait(timeout=20) == -signal.SIGKILL
    assert len(readers) == 2
    wait_until(lambda: not any(map(is_reader, readers)))


def readers_of(parent: int) -> list[int]:
    """Return the living reader processes that a process started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, ppid = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
        except OSError:
            continue
        if int(ppid) == parent and state != "Z" and is_reader(int(folder.name)):
            found.append(int(folder.name))
    return found


def is_reader(pid: int) -> bool:
    try:
        return b"reader_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
