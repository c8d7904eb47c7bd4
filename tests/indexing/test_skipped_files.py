"""Files that cannot be indexed: each is named, remembered, skipped while unchanged, and tried again."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from qmd.indexing.read_ahead import read_ahead
from qmd.indexing.update import update_collection
from qmd.ingest.scan import scan_collection
from qmd.records import Collection, FileEntry
from qmd.store.base import IndexWriter
from qmd.store.opening import open_reader, open_writer
from tests.indexing.test_read_ahead import needs_proc, readers_of
from tests.processes import processor_time_s

LONG_AGO_NS = 1_600_000_000_123_456_789


@pytest.fixture
def notes(tmp_path: Path) -> Collection:
    folder = tmp_path / "notes"
    folder.mkdir()
    return Collection("notes", folder)


@pytest.fixture
def writer(tmp_path: Path) -> IndexWriter:
    return open_writer(tmp_path / "index.sqlite")


def write(collection: Collection, name: str, content: bytes) -> None:
    (collection.path / name).write_bytes(content)
    os.utime(collection.path / name, ns=(LONG_AGO_NS, LONG_AGO_NS))


def entries_of(collection: Collection) -> tuple[FileEntry, ...]:
    return scan_collection(collection).files


def test_hostile_files_leave_all_others_in_the_index(notes: Collection, writer: IndexWriter) -> None:
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
    )
    write(notes, "aliases.md", f"---\n{bomb}---\nthe bomb\n".encode())
    write(notes, "integer.md", b"+++\nn = " + b"9" * 5_000 + b"\n+++\nthe number\n")
    write(notes, "tags.md", b" ".join(b"#t%d" % i for i in range(40_000)))
    write(notes, "good.md", b"# Good\n")
    report = update_collection(writer, notes)
    assert (report.new, report.skipped) == (4, ())
    assert report.warnings == (
        "3 notes are indexed without what could not be read"
        " (aliases.md: front matter cannot be read: its aliases stand for too many values, …);"
        " all of them: qmd status --problems",
    )
    assert [(one.path, one.is_indexed) for one in writer.left_out("notes")] == [
        ("aliases.md", True),
        ("integer.md", True),
        ("tags.md", True),
    ]


def test_a_file_that_takes_too_long_is_left_out_and_the_rest_is_read(notes: Collection) -> None:
    write(notes, "a.md", b"# A\n")
    write(notes, "slow.md", "\ufdfa".encode() * 2_000_000)
    write(notes, "z.md", b"# Z\n")
    budgets = {"slow.md": 0.5}
    (batch,) = read_ahead(entries_of(notes), 1, lambda entry: budgets.get(entry.path, 60.0))
    assert [reading.entry.path for reading in batch] == ["a.md", "slow.md", "z.md"]
    assert [reading.document is not None for reading in batch] == [True, False, True]
    assert (batch[1].failure, batch[1].warnings) == ("slow", ("'slow.md' took longer than 0 s to read",))


@needs_proc
def test_a_file_that_ends_its_reader_twice_is_left_out_and_the_rest_is_read(notes: Collection) -> None:
    write(notes, "a.md", b"# A\n")
    write(notes, "fatal.md", "\ufdfa".encode() * 2_000_000)
    write(notes, "z.md", b"# Z\n")
    killed: list[int] = []

    def kill_two() -> None:
        while len(killed) < 2:
            time.sleep(0.05)
            for child in readers_of(os.getpid()):
                # No other file here takes a second, nor does starting.
                if child not in killed and processor_time_s(child) > 1.0:
                    os.kill(child, signal.SIGKILL)
                    killed.append(child)

    killer = threading.Thread(target=kill_two)
    killer.start()
    (batch,) = read_ahead(entries_of(notes), 1)
    killer.join()
    assert [reading.document is not None for reading in batch] == [True, False, True]
    assert batch[1].warnings == ("'fatal.md' crashed the process that read it",)


def test_what_was_left_out_is_remembered_and_told_by_status(
    notes: Collection, writer: IndexWriter, tmp_path: Path
) -> None:
    write(notes, "good.md", b"# Good\n")
    write(notes, "b.md", b"\0binary")
    report = update_collection(writer, notes)
    assert report.skipped == (("b.md", "'b.md' is binary"),)
    writer.close()
    with open_reader(tmp_path / "index.sqlite") as reader:
        assert [(one.collection, one.path, one.reason) for one in reader.status(None).left_out] == [
            ("notes", "b.md", "'b.md' is binary")
        ]


def test_a_left_out_file_is_read_again_only_when_it_changed(notes: Collection, writer: IndexWriter) -> None:
    write(notes, "b.md", b"\0binary")
    assert update_collection(writer, notes).n_bytes == 7
    again = update_collection(writer, notes)
    assert (again.n_bytes, again.skipped) == (0, (("b.md", "'b.md' is binary"),))
    assert again.warnings == ("'b.md' is binary",)
    assert update_collection(writer, notes, verify=True).n_bytes == 7
    write(notes, "b.md", b"# Text now\n")
    report = update_collection(writer, notes)
    assert (report.new, report.skipped) == (1, ())
    assert writer.left_out("notes") == []


def test_another_version_of_the_program_tries_left_out_files_again(
    notes: Collection, writer: IndexWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(notes, "b.md", b"\0binary")
    update_collection(writer, notes)
    monkeypatch.setattr("qmd.indexing.update.__version__", "99.0")
    assert update_collection(writer, notes).n_bytes == 7


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_tried_every_time(notes: Collection, writer: IndexWriter) -> None:
    write(notes, "n.md", b"# N\n")
    (notes.path / "n.md").chmod(0)
    assert update_collection(writer, notes).new == 0
    (notes.path / "n.md").chmod(0o600)
    assert update_collection(writer, notes).new == 1


def test_left_out_files_go_with_their_collection_and_take_its_new_name(notes: Collection, writer: IndexWriter) -> None:
    write(notes, "b.md", b"\0binary")
    update_collection(writer, notes)
    writer.rename_collection("notes", "papers")
    assert [one.collection for one in writer.status(None).left_out] == ["papers"]
    writer.remove_collection("papers")
    assert writer.status(None).left_out == ()
