"""Documents, contents and collections in the index, and what other programs may rely on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from qmd.errors import UsageError
from qmd.records import Collection, LexicalTerm, Scope
from qmd.store.records import ChunkRecord, NewDocument, VectorCoverage
from qmd.store.sqlite.index import SqliteWriter

MakeDocument = Callable[..., NewDocument]


def word(text: str) -> LexicalTerm:
    return LexicalTerm(text, f'"{text}"')


def found(writer: SqliteWriter, text: str, scope: Scope = Scope()) -> list[str]:
    candidates = writer.search_lexical([word(text)], 10, scope)
    stored = writer.documents([candidate.document_id for candidate in candidates])
    return [stored[candidate.document_id].path for candidate in candidates]


def test_removing_a_collection_keeps_what_another_one_shares(writer: SqliteWriter, make_document: MakeDocument) -> None:
    writer.put_documents("one", [make_document("a.md", "shared words"), make_document("b.md", "own words")])
    writer.put_documents("two", [make_document("c.md", "shared words")])
    shared = writer.find_path("two", "c.md")
    assert shared is not None
    writer.put_vectors("f", 2, {b"k" * 16: np.eye(2, dtype="f4")[0]})
    writer.put_chunks("f", 2, {shared.hash: [ChunkRecord(0, 0, 6, b"k" * 16)]})
    assert writer.remove_collection("one") == 2
    assert found(writer, "words") == ["c.md"]
    assert writer.texts([shared.hash]) == {shared.hash: "shared words"}
    assert list(writer.pending("f")) == []


def test_renaming_a_collection_moves_its_documents_and_refuses_a_taken_name(
    writer: SqliteWriter, make_document: MakeDocument
) -> None:
    writer.put_documents("old", [make_document("a.md", "apple")])
    writer.put_documents("taken", [make_document("b.md", "banana")])
    with pytest.raises(UsageError, match="'taken' already exists"):
        writer.rename_collection("old", "taken")
    writer.rename_collection("old", "new")
    assert found(writer, "apple", Scope(collections=("new",))) == ["a.md"]


def test_another_program_reads_the_documents_table_while_the_writer_is_open(
    writer: SqliteWriter, index_path: Path, make_document: MakeDocument
) -> None:
    writer.put_documents("notes", [make_document("a.md", "apple")])
    stored = writer.find_path("notes", "a.md")
    assert stored is not None
    with writer.transaction():
        writer.put_documents("notes", [make_document("b.md", "banana")])
        foreign = sqlite3.connect(f"file:{index_path}?mode=ro", uri=True)
        sql = "SELECT collection, path FROM documents WHERE hash = ? AND active = 1"
        assert foreign.execute(sql, (stored.hash,)).fetchall() == [("notes", "a.md")]
        counts = "SELECT collection, COUNT(*) FROM documents WHERE active=1 GROUP BY collection"
        assert foreign.execute(counts).fetchall() == [("notes", 1)]
        columns = {row[1] for row in foreign.execute("PRAGMA table_info(documents)")}
        assert columns >= {"id", "collection", "path", "title", "hash", "created_at", "modified_at", "active"}
        foreign.close()


def test_status_counts_documents_and_pending_texts(
    writer: SqliteWriter, make_document: MakeDocument, tmp_path: Path
) -> None:
    writer.mirror_config([Collection("notes", tmp_path), Collection("empty", tmp_path)], None, "h")
    writer.put_documents(
        "notes", [make_document("a.md", "same"), make_document("b.md", "same"), make_document("c", "x")]
    )
    writer.mark_updated("notes")
    before = writer.status("f")
    assert (before.documents, before.pending_documents, before.embedded_documents, before.vectors) == (3, 2, 0, 0)
    same = writer.find_path("notes", "a.md")
    assert same is not None
    writer.put_vectors("f", 2, {b"k" * 16: np.eye(2, dtype="f4")[0]})
    writer.put_chunks("f", 2, {same.hash: [ChunkRecord(0, 0, 4, b"k" * 16)]})
    after = writer.status("f")
    assert (after.pending_documents, after.embedded_documents, after.chunks, after.vectors) == (1, 2, 1, 1)
    assert [(one.name, one.documents) for one in after.collections] == [("notes", 3), ("empty", 0)]
    assert after.updated_at is not None
    assert writer.status(None) == after
    assert writer.status("another model").pending_documents == 2
    assert writer.vector_coverage("another model") == VectorCoverage(pending=2, has_vectors=False)


def test_cleanup_says_what_it_would_drop_and_then_drops_it(writer: SqliteWriter, make_document: MakeDocument) -> None:
    writer.put_documents("notes", [make_document("a.md", "apple"), make_document("b.md", "banana")])
    stored = {document.path: document.hash for document in writer.iter_documents()}
    vectors = {bytes([n]) * 16: np.eye(4, dtype=np.float32)[n] for n in range(3)}
    chunks = {
        stored["a.md"]: [ChunkRecord(0, 0, 5, b"\0" * 16), ChunkRecord(1, 0, 5, b"\1" * 16)],
        stored["b.md"]: [ChunkRecord(0, 0, 6, b"\2" * 16)],
    }
    writer.put_vectors("f", 4, vectors)
    writer.put_chunks("f", 4, chunks)
    writer.remove_documents("notes", ["a.md"])
    expected = {"unused texts": 0, "unused chunks": 0, "unused vectors": 2}
    assert writer.cleanup(dry_run=True) == expected
    assert writer.cleanup() == expected
    assert writer.existing_keys("f", list(vectors)) == {b"\2" * 16}
    best = writer.search_dense(np.eye(4, dtype=np.float32)[2], 5, Scope(), "f")
    assert [(round(candidate.score, 3), candidate.chunk_end) for candidate in best] == [(1.0, 6)]
    assert writer.check() == []
