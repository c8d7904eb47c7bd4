"""Features of LanceDB's engine alone: claims that change hands, kept versions, an index of vectors."""

import re
import shutil
from contextlib import ExitStack
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lancedb", reason="LanceDB has no wheel for this system")

from lancedb.index import IvfRq
from lancedb.table import LanceTable

from qmd.errors import BusyError, StoreError
from qmd.plugins.lance import claim, tables, tidying
from qmd.plugins.lance.scope import UNFOLDED
from qmd.plugins.lance.state import State, encode_state
from qmd.plugins.lance.tables import Connection, reason_and_hint
from qmd.records import LexicalTerm, Scope
from qmd.status import SkippedFile
from tests.store.conftest import MakeDocument
from tests.store.contract.conftest import Place
from tests.store.contract.test_writers import finds, paths
from tests.store.made_vectors import fill, put_late, unit_vectors


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "lance")


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        (
            'Invalid input, Failed to connect: IO { source: "Failed to get AWS credentials: CredentialsNotLoaded('
            '{ source: Some(\\"no providers in chain\\") })", location: Location { file: "/x/lance/aws.rs" } }',
            "there are no credentials for it",
            "AWS_ACCESS_KEY_ID",
        ),
        (
            "lance error: LanceError(IO): Generic S3 error: Failed to resolve region for bucket 'b', /x/aws.rs:319:13",
            "the region of its bucket is not known, or there is no such bucket",
            "AWS_REGION",
        ),
        (
            "S3 error: <Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message>, /x.rs:1",
            "The specified bucket does not exist",
            "can be reached",
        ),
        ("lance error: LanceError(IO): No space left on device, /x/io.rs:31:2", "No space left on device", "reached"),
    ],
)
def test_an_unusable_place_is_reported_without_the_librarys_source(text: str, reason: str, hint: str) -> None:
    assert reason_and_hint(text)[0] == reason
    assert hint in reason_and_hint(text)[1]


def test_a_writer_taken_for_dead_is_refused(place: Place, make: MakeDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "SILENT_S", 0.2)
    monkeypatch.setattr(claim, "BEAT_S", 60.0)
    with place.writer() as silent, place.writer(busy_timeout_ms=5_000) as other:
        silent.put_documents("n", [make("a", "apple")])
        for is_first in (True, False):
            with pytest.raises(BusyError, match="taken over"), silent.transaction():
                silent.put_documents("n", [make("lost", "banana")])
                if is_first:
                    assert finds(silent, "banana") == 1
                other.put_documents("n", [make(f"kept{is_first}", "cherry")])
                silent.remove_documents("n", ["a"])
        assert finds(other, "banana") == 0
        other.put_documents("n", [make("late", "cherry")])
    with place.reader() as reader:
        assert paths(reader) == ["a", "keptFalse", "keptTrue", "late"]
        assert finds(reader, "banana") == 0
        assert reader.check() == []


def test_an_index_of_a_newer_version_is_refused(place: Place) -> None:
    place.writer().close()
    table = Connection(str(place.address)).open_state()
    table.update(values={"state": encode_state(State(format=999))})
    for open_index in (place.reader, place.writer):
        with pytest.raises(StoreError, match="written by a newer qmd") as caught:
            open_index()
        assert caught.value.hint == "upgrade qmd"


def test_tidying_joins_files_and_keeps_those_in_use(
    place: Place, make: MakeDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "_VERSIONS", 3)
    with place.writer() as writer, ExitStack() as readers:
        before = []
        for n in range(8):
            writer.put_documents("n", [make(f"{n}", f"apple number{n}")])
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


def test_former_states_do_not_pile_up(place: Place, make: MakeDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "_VERSIONS", 10)
    monkeypatch.setattr(tidying, "_STATES_KEPT", timedelta(milliseconds=1))
    with place.writer() as writer, place.reader() as reader:
        for n in range(20):
            writer.put_documents("n", [make(f"{n}", "apple")])
            writer.mark_updated("n")
        assert len(Connection(str(place.address)).open_state().list_versions()) < 20
        assert paths(reader) == []
        assert finds(writer, "apple") == 20


def test_a_large_table_is_joined_more_rarely(place: Place, make: MakeDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "_VERSIONS", 2)
    monkeypatch.setattr(tidying, "_ROWS", 20)
    joined = []
    with place.writer() as writer:
        for n in range(60):
            writer.put_skipped(f"c{n}", [SkippedFile(f"c{n}", "a", "why")])
            before = _state(place).tidied.get("places")
            writer.mark_updated("n")
            if _state(place).tidied.get("places") != before:
                joined.append(n)
    waits = [after - before for before, after in pairwise(joined)]
    assert waits == sorted(waits)
    assert waits[-1] > waits[0]


def _state(place: Place) -> State:
    connection = Connection(str(place.address))
    return connection.read_state(connection.open_state())


def test_what_readers_of_a_process_keep_is_that_of_the_state_they_see(place: Place, make: MakeDocument) -> None:
    for round_, word in enumerate(("apple", "banana")):
        with place.writer() as writer:
            for n in range(3):
                writer.put_documents("n", [make(f"{n}", f"{word} number{n}")])
                writer.mark_updated("n", f"2026-01-01T00:00:0{round_}.{n:03}Z")
                with place.reader() as reader:
                    assert (len(paths(reader)), finds(reader, word)) == (n + 1, n + 1)
                    assert reader.vector_coverage("f").pending == n + 1
                    assert reader.document_frequencies([LexicalTerm(word, f'"{word}"')]) == [n + 1]
        shutil.rmtree(str(place.address).removeprefix("lance:"))


def test_an_index_of_vectors_finds_the_same(place: Place, make: MakeDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "INDEXED_VECTORS", 1_000)
    with place.writer() as writer:
        matrix = fill(writer, make, 600)
        writer.cleanup()
        vector = unit_vectors(1, seed=77)[0]
        put_late(writer, make, vector)
    with place.reader() as reader:
        assert reader.search_dense(vector, 1, Scope(), "f")[0].document_id == 601
        # Questions near to a chunk: between chunks that are alike by chance the index chooses by chance, too.
        near = matrix[:20, 1] + 0.3 * unit_vectors(20, seed=8)
        queries = near / np.linalg.norm(near, axis=1, keepdims=True)
        first = [reader.search_dense(query, 1, Scope(), "f")[0].document_id for query in queries]
        assert first == [int((matrix @ query).max(axis=1).argmax()) + 1 for query in queries]
        assert len(reader.search_dense(queries[0], 601, Scope(), "f")) == 601


def test_an_older_vector_index_is_rebuilt(place: Place, make: MakeDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "INDEXED_VECTORS", 1_000)
    with place.writer() as writer:
        fill(writer, make, 600)
    connection = Connection(str(place.address))
    table = connection.open("vectors_1")
    table.create_index("vector", config=IvfRq(distance_type="cosine"))
    row = connection.open_state()
    state = connection.read_state(row)
    state.versions["vectors_1"] = table.version
    row.update(values={"state": encode_state(state)})
    with place.writer() as writer:
        writer.cleanup()
    indexes = connection.open("vectors_1").list_indices()
    assert sorted(one.name for one in indexes) == ["key_idx", "vector_2_bits"]


def test_words_are_counted_once_per_state(place: Place, make: MakeDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    apple = LexicalTerm("apple", '"apple"')
    with place.writer() as writer:
        writer.put_documents("n", [make("a", "apple")])
        with writer.transaction():
            assert writer.document_frequencies([apple]) == [1]
            writer.put_documents("n", [make("b", "apple")])
            assert (writer.document_frequencies([apple]), writer.count_documents()) == ([2], 2)
    with place.reader() as reader:
        assert reader.document_frequencies([apple]) == [2]
    monkeypatch.setattr(tables.Tables, "match", None)
    with place.reader() as reader:
        assert reader.document_frequencies([apple]) == [2]


def test_a_change_of_many_rows_by_id_brings_their_index_up_to_date_first(
    place: Place, make: MakeDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "UNINDEXED", 2)
    made: list[str] = []
    create = LanceTable.create_index

    def record(table: LanceTable, column: str, **kwargs: object) -> None:
        made.append(column)
        create(table, column, **kwargs)

    monkeypatch.setattr(LanceTable, "create_index", record)
    with place.writer() as writer:
        writer.put_documents("n", [make(f"{n}", f"apple number{n}") for n in range(5)])
        made.clear()
        with writer.transaction():
            for file in writer.known_files("n").values():
                writer.touch(file.document_id, 7, 8, "2026-02-02T00:00:00Z")
    assert made == ["id"]
    with place.reader() as reader:
        assert {rows[0][1:] for rows in reader.recorded_files("n")} == {(7, 8)}
        assert (len(paths(reader)), finds(reader, "apple")) == (5, 5)


def test_all_letters_that_case_folding_changes_are_looked_up() -> None:
    lower = "".join(map(chr, range(0x110000))).lower()
    assert {one for one in lower if one.casefold() != one} <= set(re.findall(UNFOLDED, lower))
