"""What readers see while somebody writes, and after somebody was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from qmd.errors import BusyError, StoreError
from qmd.records import LexicalTerm, Scope
from qmd.store.base import IndexReader
from qmd.store.records import NewDocument
from tests.processes import unmeasured
from tests.store.contract.conftest import Place

MakeDocument = Callable[..., NewDocument]


def paths(reader: IndexReader) -> list[str]:
    return [document.path for document in reader.iter_documents()]


def finds(reader: IndexReader, word: str) -> int:
    return len(reader.search_lexical([LexicalTerm(word, f'"{word}"')], 50, Scope()))


def test_a_failed_transaction_leaves_nothing(place: Place, make_document: MakeDocument) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make_document("a", "apple")])
        with pytest.raises(RuntimeError), writer.transaction():
            writer.put_documents("n", [make_document("b", "banana")])
            writer.set_version_stamp("analysis:n", "9")
            assert finds(writer, "banana") == 1
            writer.remove_documents("n", ["a"])
            raise RuntimeError
        assert paths(writer) == ["a"]
        assert (finds(writer, "banana"), finds(writer, "apple")) == (0, 1)
        assert writer.version_stamp("analysis:n") is None
        assert writer.check() == []
        writer.put_documents("n", [make_document("c", "banana bread")])
    with place.reader() as reader:
        assert paths(reader) == ["a", "c"]
        assert finds(reader, "banana") == 1
        assert reader.similar_terms("bananna") == ["banana"]


def test_nothing_is_seen_of_a_transaction_before_its_end(place: Place, make_document: MakeDocument) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make_document("a", "apple")])
        with writer.transaction():
            writer.put_documents("n", [make_document("b", "banana")])
            assert paths(writer) == ["a", "b"]
            with place.reader() as reader:
                assert paths(reader) == ["a"]
                assert finds(reader, "banana") == 0
        with place.reader() as reader:
            assert paths(reader) == ["a", "b"]


def test_a_snapshot_stays_as_it_is_while_a_writer_commits(place: Place, make_document: MakeDocument) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make_document("a", "apple"), make_document("b", "apple")])
        with place.reader() as reader, reader.snapshot():
            assert paths(reader) == ["a", "b"]
            writer.remove_documents("n", ["a"])
            writer.put_documents("n", [make_document("c", "apple apple")])
            assert paths(reader) == ["a", "b"]
            assert finds(reader, "apple") == 2
            found = reader.search_lexical([LexicalTerm("apple", '"apple"')], 50, Scope())
            assert len(reader.documents([one.document_id for one in found])) == 2
        assert paths(writer) == ["b", "c"]


def test_a_second_writer_waits_and_then_says_busy(place: Place, make_document: MakeDocument) -> None:
    with place.writer() as first, place.writer(busy_timeout_ms=50) as second:
        with first.transaction():
            first.put_documents("n", [make_document("a", "apple")])
            assert paths(first) == ["a"]
            with pytest.raises(BusyError, match="in use by another process"):
                second.mark_updated("n")
        second.put_documents("n", [make_document("b", "banana")])
        first.put_documents("n", [make_document("c", "cherry")])
    with place.reader() as reader:
        assert paths(reader) == ["a", "b", "c"]
        assert len({document.id for document in reader.iter_documents()}) == 3


def test_an_id_is_never_given_to_a_second_document(place: Place, make_document: MakeDocument) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make_document("a", "apple")])
        [old] = writer.iter_documents()
        writer.remove_documents("n", ["a"])
        writer.put_documents("n", [make_document("b", "banana")])
        [new] = writer.iter_documents()
    assert new.id > old.id


_KILLED = """
import json, os, sys
from pathlib import Path
import msgspec
from qmd.store.opening import open_writer
from qmd.store.records import NewDocument
path, address = json.loads(sys.argv[1])
made = msgspec.json.decode(sys.stdin.buffer.read(), type=list[NewDocument])
writer = open_writer(Path(path), address)
with writer.transaction():
    writer.remove_documents("n", ["a"])
    writer.put_documents("n", made)
    assert len(list(writer.iter_documents())) == len(made)
    print("in the middle", flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_killed_writer_leaves_the_last_state_and_blocks_nobody(
    place: Place, make_document: MakeDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make_document("a", "apple")])
    import msgspec

    where = json.dumps([str(place.path), place.address])
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, where],
        input=msgspec.json.encode([make_document("b", "banana"), make_document("c", "cherry")]),
        capture_output=True,
        env=unmeasured(),
        check=False,
    )
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, b"in the middle\n"), killed.stderr.decode()
    with place.reader() as reader:
        assert paths(reader) == ["a"]
        assert finds(reader, "banana") == 0
    if place.address is not None:
        from qmd.plugins.lance import claim

        monkeypatch.setattr(claim, "SILENT_S", 0.5)
    with place.writer(busy_timeout_ms=5_000) as writer:
        writer.put_documents("n", [make_document("d", "date")])
        assert paths(writer) == ["a", "d"]
        assert (finds(writer, "banana"), finds(writer, "apple"), finds(writer, "date")) == (0, 1, 1)
        assert writer.check() == []


def test_a_writer_that_was_taken_for_dead_commits_nothing(
    tmp_path: Path, make_document: MakeDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qmd.plugins.lance import claim

    monkeypatch.setattr(claim, "SILENT_S", 0.2)
    monkeypatch.setattr(claim, "BEAT_S", 60.0)
    place = Place(tmp_path, "lance")
    with place.writer() as silent, place.writer(busy_timeout_ms=5_000) as other:
        silent.put_documents("n", [make_document("a", "apple")])
        for is_first in (True, False):
            with pytest.raises(BusyError, match="taken over"), silent.transaction():
                silent.put_documents("n", [make_document("lost", "banana")])
                if is_first:
                    assert finds(silent, "banana") == 1
                other.put_documents("n", [make_document(f"kept{is_first}", "cherry")])
                silent.remove_documents("n", ["a"])
        assert finds(other, "banana") == 0
        other.put_documents("n", [make_document("late", "cherry")])
    with place.reader() as reader:
        assert paths(reader) == ["a", "keptFalse", "keptTrue", "late"]
        assert finds(reader, "banana") == 0
        assert reader.check() == []


def test_an_index_of_a_newer_version_is_refused(place: Place) -> None:
    place.writer().close()
    if place.address is None:
        import apsw

        connection = apsw.Connection(str(place.path))
        connection.execute("PRAGMA user_version = 999")
        connection.close()
    else:
        from qmd.plugins.lance.state import State, encode_state
        from qmd.plugins.lance.tables import Connection

        table = Connection(place.address).open_state()
        table.update(values={"state": encode_state(State(format=999))})
    for open_index in (place.reader, place.writer):
        with pytest.raises(StoreError, match="written by a newer qmd") as caught:
            open_index()
        assert caught.value.hint == "upgrade qmd"


def test_a_search_that_nobody_waits_for_ends(place: Place, make_document: MakeDocument) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make_document(str(n), f"apple {n}") for n in range(300)])
    with place.reader() as reader:
        reader.stop_when(lambda: True)
        with pytest.raises(StoreError, match="interrupted"):
            list(reader.iter_documents())
        reader.stop_when(None)
        assert len(paths(reader)) == 300


def test_a_place_that_cannot_be_written_is_one_line(place: Place, tmp_path: Path) -> None:
    for name in ("cache", "tables"):
        (tmp_path / name).write_text("a file in the way")
    with pytest.raises(StoreError) as caught:
        place.writer()
    assert "\n" not in caught.value.message


def test_tidying_joins_files_and_keeps_what_readers_look_at(
    tmp_path: Path, make_document: MakeDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, "lance")
    from qmd.plugins.lance import health

    monkeypatch.setattr(health, "_VERSIONS", 3)
    with place.writer() as writer, ExitStack() as readers:
        before = []
        for n in range(8):
            writer.put_documents("n", [make_document(f"{n}", f"apple number{n}")])
            before.append((n + 1, readers.enter_context(place.reader())))
            writer.mark_updated("n")
        writer.cleanup()
        for n, reader in before:
            assert (len(paths(reader)), finds(reader, "apple")) == (n, n)
            assert reader.check() == []
        assert finds(writer, "apple") == 8
    with place.reader() as reader:
        assert finds(reader, "number7") == 1
        assert reader.status(None).documents == 8
