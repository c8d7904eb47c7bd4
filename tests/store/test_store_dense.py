"""Dense search of SQLite's engine alone: its tables, their versions, sign bits."""

import sys
from pathlib import Path

import apsw
import numpy as np
import pytest
import sqlite_vec
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.errors import ModelError
from qmd.records import Scope
from qmd.store.records import ChunkRecord, VectorCoverage
from qmd.store.sqlite import vectors
from qmd.store.sqlite.opening import open_reader, open_writer
from qmd.store.sqlite.quantisation import as_words, dequantise, hamming, pack_signs, quantise, score_rows
from qmd.store.sqlite.writer import SqliteWriter
from tests.old_schema import take_back
from tests.store.conftest import MakeDocument
from tests.store.made_vectors import DIM, fill, key_of, put_late, unit_vectors


def test_an_open_reader_sees_vectors_that_were_added_later(writer: SqliteWriter, make: MakeDocument) -> None:
    matrix = fill(writer, make, 5)
    with open_reader(writer.database.path) as reader:
        assert len(reader.search_dense(matrix[0, 0], 10, Scope(), "f")) == 5
        vector = unit_vectors(1, seed=77)[0]
        put_late(writer, make, vector)
        assert reader.search_dense(vector, 10, Scope(), "f")[0].document_id == 6


def test_sign_bits_answer_as_a_scan(writer: SqliteWriter, make: MakeDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(np, "bitwise_count"):
        pytest.skip("numpy before 2.0 scans exactly")
    monkeypatch.setattr(vectors, "SIGNS_FROM", 3_000)
    matrix = fill(writer, make, 2_000)
    vector = unit_vectors(1, seed=77)[0]
    put_late(writer, make, vector)
    assert writer.database.value("SELECT count(*) FROM signs_1_rowids") == 6_001
    assert writer.search_dense(vector, 1, Scope(), "f")[0].document_id == 2_001
    query = unit_vectors(1, seed=8)[0]
    expected = {int(n) + 1 for n in np.argsort(-(matrix @ query).max(axis=1))[:10]}
    found = {candidate.document_id for candidate in writer.search_dense(query, 10, Scope(), "f")}
    assert len(found & expected) >= 9
    # More documents than candidates: only the full scan can answer.
    assert len(writer.search_dense(query, 2_001, Scope(), "f")) == 2_001


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(1, 200), st.integers(0, 2**31))
def test_packed_rows_keep_direction_and_signs_keep_distance(n: int, dim: int, seed: int) -> None:
    made = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    rows = quantise(made)
    assert rows.shape == (n, dim)
    assert np.abs((dequantise(rows) * made).sum(axis=1) - 1).max() < 1e-3
    assert np.abs(score_rows(rows, made[0])[0] - made @ made[0]).max() < 0.02
    assert np.array_equal(quantise(dequantise(rows)), rows)
    centre = np.zeros(dim, dtype=np.float32)
    signs = pack_signs(made, centre)
    expected = ((made > 0) != (made[0] > 0)).sum(axis=1)
    if hasattr(np, "bitwise_count"):
        assert hamming([as_words(signs)], as_words(signs[:1])).tolist() == expected.tolist()


def test_a_zero_vector_is_similar_to_nothing() -> None:
    rows = quantise(np.zeros((1, 8), dtype=np.float32))
    assert score_rows(rows, np.ones(8, dtype=np.float32))[0].tolist() == [0.0]


@pytest.mark.parametrize("n", [3, 400])
def test_a_warm_reader_sees_new_vectors(writer: SqliteWriter, index_path: Path, make: MakeDocument, n: int) -> None:
    before = fill(writer, make, n)[:, 0]
    after = unit_vectors(n * 3, seed=7)
    with open_reader(index_path) as warm:
        assert warm.search_dense(before[1], 1, Scope(), "f")[0].document_id == 2
        # The same number of writes and of vectors, and the first free row id again: only the values differ.
        writer.keep_models({})
        keys = [key_of(number) for number in range(n * 3)]
        contents = {
            make("x", f"text {number}").hash: [
                ChunkRecord(i, i * 10, i * 10 + 9, keys[number * 3 + i]) for i in range(3)
            ]
            for number in range(n)
        }
        writer.put_vectors("f", DIM, dict(zip(keys, after, strict=True)))
        writer.put_chunks("f", DIM, contents)
        found = warm.search_dense(after[4], 1, Scope(), "f")[0]
        assert (found.document_id, round(found.score, 1)) == (2, 1.0)


def test_vectors_of_an_older_version_are_brought_over_and_answer_alike(
    writer: SqliteWriter, index_path: Path, make: MakeDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(writer, make, 100)
    queries = unit_vectors(5, seed=3)
    before = [writer.search_dense(query, 20, Scope(), "f") for query in queries]
    monkeypatch.setattr(vectors, "SIGNS_FROM", 200)
    take_back(writer.database.connection, 7)
    with open_reader(index_path) as reader:
        assert reader.vector_coverage("f") == VectorCoverage(pending=0, has_vectors=True)
        assert [reader.search_dense(query, 20, Scope(), "f") for query in queries] == before
        assert reader.database.value("SELECT count(*) FROM signs_1_rowids") == 300
        assert reader.check() == []


def test_an_old_index_loses_its_vectors_alone_where_sqlite_vec_is_missing(
    writer: SqliteWriter, index_path: Path, make: MakeDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(writer, make, 3)
    take_back(writer.database.connection, 7)
    monkeypatch.setattr(vectors, "is_available", lambda: False)
    with open_reader(index_path) as reader:
        assert reader.count_documents() == 3
        assert reader.vector_coverage("f") == VectorCoverage(pending=3, has_vectors=False)


def test_without_sqlite_vec_vectors_are_read_and_writing_them_reports_the_missing_package(
    writer: SqliteWriter, index_path: Path, make: MakeDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = fill(writer, make, 5)
    monkeypatch.setitem(sys.modules, "sqlite_vec", None)
    with open_writer(index_path) as second:
        assert second.search_dense(matrix[2, 0], 1, Scope(), "f")[0].document_id == 3
        with pytest.raises(ModelError, match="sqlite-vec is not installed"):
            second.put_vectors("f", DIM, {b"late" * 4: matrix[0, 0]})
        assert second.existing_keys("f", [b"late" * 4]) == frozenset()


def test_tables_of_unknown_layout_use_the_extension(writer: SqliteWriter, index_path: Path, make: MakeDocument) -> None:
    fill(writer, make, 50)
    query = unit_vectors(1, seed=5)[0]
    search = [(10, Scope()), (3, Scope(path_prefix="d/1"))]
    with open_reader(index_path) as reader:
        before = [reader.search_dense(query, k, scope, "f") for k, scope in search]
    # Only a program that breaks the rule writes the tables of a virtual one.
    writer.database.connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    writer.database.run("UPDATE vectors_1_info SET value = 'v9.0' WHERE key = 'CREATE_VERSION'")
    with open_reader(index_path) as reader:
        assert [reader.search_dense(query, k, scope, "f") for k, scope in search] == before


def test_cleanup_gives_the_room_of_dropped_vectors_back_and_keeps_the_others_whole(
    writer: SqliteWriter, make: MakeDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "SIGNS_FROM", 3_000)
    matrix = fill(writer, make, 2_000)
    writer.remove_documents("n", [f"d/{number}.md" for number in range(2_000) if number % 5])
    query = unit_vectors(1, seed=5)[0]
    assert writer.cleanup()["unused vectors"] == 4_800
    for table in ("vectors_1", "signs_1"):
        used = writer.database.value(f"SELECT sum(size) FROM {table}_chunks")
        assert writer.database.value(f"SELECT count(*) FROM {table}_rowids") == 1_200
        assert used <= 2 * 1_200 + 4_096
    best = {int(n) * 5 + 1 for n in np.argsort(-(matrix[::5] @ query).max(axis=1))[:10]}
    found = {one.document_id for one in writer.search_dense(query, 10, Scope(), "f")}
    assert len(found & best) >= 9
    # Slots continue after the last, and a moved row is found by its slot.
    put_late(writer, make, query)
    assert writer.search_dense(query, 1, Scope(), "f")[0].document_id == 2_001
    assert writer.dense_scores(matrix[10, 0], [11], "f")[11].score == pytest.approx(1.0, abs=0.01)


def test_a_foreign_program_asks_the_vectors_by_sql(writer: SqliteWriter, index_path: Path, make: MakeDocument) -> None:
    matrix = fill(writer, make, 50)
    writer.close()
    plain = apsw.Connection(str(index_path), flags=apsw.SQLITE_OPEN_READONLY)
    plain.enable_load_extension(True)
    plain.load_extension(sqlite_vec.loadable_path())
    query = quantise(matrix[7, :1]).tobytes()
    sql = "SELECT rowid, distance FROM vectors_1 WHERE embedding MATCH vec_int8(?) AND k = 3"
    nearest = plain.execute(sql, (query,)).fetchall()
    assert nearest[0][0] == 21
    assert nearest[0][1] == pytest.approx(0, abs=1e-3)
