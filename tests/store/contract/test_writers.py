"""Readers during a write, and after a writer was killed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from qmd.errors import BusyError, StoreError
from qmd.records import LexicalTerm, Scope
from qmd.store.base import IndexReader
from tests.processes import unmeasured
from tests.store.conftest import MakeDocument
from tests.store.contract.conftest import Place


def paths(reader: IndexReader) -> list[str]:
    return [document.path for document in reader.iter_documents()]


def finds(reader: IndexReader, word: str) -> int:
    return len(reader.search_lexical([LexicalTerm(word, f'"{word}"')], 50, Scope()))


def test_a_failed_transaction_leaves_nothing(place: Place, make: MakeDocument) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make("a", "apple")])
        with pytest.raises(RuntimeError), writer.transaction():
            writer.put_documents("n", [make("b", "banana")])
            writer.set_version_stamp("analysis:n", "9")
            assert finds(writer, "banana") == 1
            writer.remove_documents("n", ["a"])
            raise RuntimeError
        assert paths(writer) == ["a"]
        assert (finds(writer, "banana"), finds(writer, "apple")) == (0, 1)
        assert writer.version_stamp("analysis:n") is None
        assert writer.check() == []
        writer.put_documents("n", [make("c", "banana bread")])
    with place.reader() as reader:
        assert paths(reader) == ["a", "c"]
        assert finds(reader, "banana") == 1
        assert reader.similar_terms("bananna") == ["banana"]


def test_nothing_is_seen_of_a_transaction_before_its_end(place: Place, make: MakeDocument) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make("a", "apple")])
        with writer.transaction():
            writer.put_documents("n", [make("b", "banana")])
            assert paths(writer) == ["a", "b"]
            with place.reader() as reader:
                assert paths(reader) == ["a"]
                assert finds(reader, "banana") == 0
        with place.reader() as reader:
            assert paths(reader) == ["a", "b"]


def test_a_snapshot_stays_as_it_is_while_a_writer_commits(place: Place, make: MakeDocument) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make("a", "apple"), make("b", "apple")])
        with place.reader() as reader, reader.snapshot():
            assert paths(reader) == ["a", "b"]
            writer.remove_documents("n", ["a"])
            writer.put_documents("n", [make("c", "apple apple")])
            assert paths(reader) == ["a", "b"]
            assert finds(reader, "apple") == 2
            found = reader.search_lexical([LexicalTerm("apple", '"apple"')], 50, Scope())
            assert len(reader.documents([one.document_id for one in found])) == 2
        assert paths(writer) == ["b", "c"]


def test_a_second_writer_waits_and_then_reports_busy(place: Place, make: MakeDocument) -> None:
    with place.writer() as first, place.writer(busy_timeout_ms=50) as second:
        with first.transaction():
            first.put_documents("n", [make("a", "apple")])
            assert paths(first) == ["a"]
            with pytest.raises(BusyError, match="in use by another process"):
                second.mark_updated("n")
        second.put_documents("n", [make("b", "banana")])
        first.put_documents("n", [make("c", "cherry")])
    with place.reader() as reader:
        assert paths(reader) == ["a", "b", "c"]
        assert len({document.id for document in reader.iter_documents()}) == 3


def test_an_id_is_never_given_to_a_second_document(place: Place, make: MakeDocument) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make("a", "apple")])
        [old] = writer.iter_documents()
        writer.remove_documents("n", ["a"])
        writer.put_documents("n", [make("b", "banana")])
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


def test_a_killed_writer_leaves_the_last_state_and_blocks_no_one(
    place: Place, make: MakeDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make("a", "apple")])
    where = json.dumps([str(place.path), place.address])
    command, made = [sys.executable, "-c", _KILLED, where], [make("b", "banana"), make("c", "cherry")]
    done = subprocess.run(command, input=msgspec.json.encode(made), capture_output=True, env=unmeasured(), check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"in the middle\n"), done.stderr.decode()
    with place.reader() as reader:
        assert paths(reader) == ["a"]
        assert finds(reader, "banana") == 0
    if place.engine == "lance":
        from qmd.plugins.lance import claim

        monkeypatch.setattr(claim, "SILENT_S", 0.5)
    with place.writer(busy_timeout_ms=5_000) as writer:
        writer.put_documents("n", [make("d", "date")])
        assert paths(writer) == ["a", "d"]
        assert (finds(writer, "banana"), finds(writer, "apple"), finds(writer, "date")) == (0, 1, 1)
        assert writer.check() == []


def test_an_abandoned_search_ends(place: Place, make: MakeDocument) -> None:
    with place.writer() as writer:
        writer.put_documents("n", [make(str(n), f"apple {n}") for n in range(300)])
    with place.reader() as reader:
        reader.stop_when(lambda: True)
        with pytest.raises(StoreError, match="interrupted"):
            list(reader.iter_documents())
        reader.stop_when(None)
        assert len(paths(reader)) == 300


def test_a_place_that_cannot_be_written_is_one_line(place: Place, tmp_path: Path) -> None:
    if place.address is not None and str(tmp_path) not in place.address:
        pytest.skip("the engine keeps its indexes in no folder of this test's")
    for name in ("cache", "tables"):
        (tmp_path / name).write_text("a file in the way")
    with pytest.raises(StoreError) as caught:
        place.writer()
    assert "\n" not in caught.value.message
