"""Chunk sets and vector keys of a model: complete, pending and stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from qmd.batching import batches
from qmd.store.base import IndexWriter
from qmd.store.records import STAGING, ChunkRecord, StoredModel, VectorCoverage
from qmd.store.sqlite.connection import DamagedIndexError, Database, Row
from qmd.store.sqlite.documents import Documents

_CONTENTS_AT_A_TIME = 256

SEARCHED = f"fingerprint NOT GLOB '{STAGING}*'"
"""Condition on `models`: not being re-embedded."""


class Chunks(Documents):
    """Read methods for chunks and pending texts."""

    def vector_coverage(self, fingerprint: str, collections: Sequence[str] | None = None) -> VectorCoverage:
        """See `IndexReader`; costs a twentieth of a whole status."""
        with self.database.snapshot():
            model = known_model(self.database, fingerprint)
            has_vectors = self.database.value("SELECT EXISTS (SELECT 1 FROM vector_keys WHERE model = ?)", (model,))
            if collections is not None:
                return VectorCoverage(self.count_pending(fingerprint, collections)[0], bool(has_vectors))
            contents = self.database.value("SELECT count(DISTINCT hash) FROM documents")
            done = self.database.value("SELECT count(*) FROM embedded WHERE model = ?", (model,))
        return VectorCoverage(contents - done, bool(has_vectors))

    def count_pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> tuple[int, int]:
        inside, names = collections_clause(collections)
        [(contents, characters)] = self.database.rows(
            "SELECT count(*), coalesce(sum(content.n_chars), 0) FROM content "
            "LEFT JOIN embedded ON embedded.model = ? AND embedded.content = content.id "
            f"WHERE embedded.content IS NULL AND hash IN (SELECT hash FROM documents WHERE true {inside})",
            (known_model(self.database, fingerprint), *names),
        )
        return contents, characters

    def without_vectors(self, fingerprint: str, hashes: Sequence[str]) -> dict[str, str]:
        sql = (
            "SELECT documents.hash, min(documents.path) FROM documents JOIN content USING (hash) "
            "LEFT JOIN embedded ON embedded.model = ? AND embedded.content = content.id "
            "WHERE embedded.content IS NULL AND documents.hash IN ({}) GROUP BY documents.hash"
        )
        return dict(self.database.select_in(sql, hashes, (known_model(self.database, fingerprint),)))

    def models(self) -> list[StoredModel]:
        rows = self.database.rows(f"SELECT fingerprint, dim FROM models WHERE {SEARCHED} ORDER BY id")
        return [StoredModel(*row) for row in rows]

    def chunk_sets(self, fingerprint: str) -> Iterator[dict[str, list[ChunkRecord]]]:
        model = known_model(self.database, fingerprint)
        keys = keys_by_slot(self.database, model)
        done = self.database.rows(
            "SELECT content.id, content.hash FROM embedded JOIN content ON content.id = embedded.content"
            " WHERE embedded.model = ? ORDER BY content.id",
            (model,),
        )
        wanted = "model = ? AND content IN ({}) ORDER BY content, seq"
        sql = f"SELECT content, seq, start, end, slot FROM chunks WHERE {wanted}"
        for part in batches(done, _CONTENTS_AT_A_TIME):
            rows = self.database.select_in(sql, [content for content, _ in part], (model,))
            by_content = {content: list(group) for content, group in groupby(rows, key=lambda row: row[0])}
            try:
                sets = {
                    content_hash: [ChunkRecord(*[*span, keys[slot]]) for _, *span, slot in by_content.get(content, ())]
                    for content, content_hash in part
                }
            except KeyError as exc:
                raise DamagedIndexError(self.database.path) from exc
            yield sets


class ChunkWriter(Chunks, IndexWriter):
    """Write methods for chunks."""

    def pending_paths(self, fingerprint: str, collections: Sequence[str] | None) -> list[Row]:
        inside, names = collections_clause(collections)
        return self.database.rows(
            "SELECT documents.hash, min(documents.path) AS path FROM documents JOIN content USING (hash) "
            "LEFT JOIN embedded ON embedded.model = ? AND embedded.content = content.id "
            f"WHERE embedded.content IS NULL {inside} GROUP BY documents.hash "
            "ORDER BY max(coalesce(documents.date, documents.modified_at)) DESC, path",
            (known_model(self.database, fingerprint), *names),
        )

    def existing_keys(self, fingerprint: str, keys: Sequence[bytes]) -> frozenset[bytes]:
        return frozenset(slots_of(self.database, known_model(self.database, fingerprint), keys))

    def put_chunks(
        self, fingerprint: str, dim: int, contents: Mapping[str, Sequence[ChunkRecord]], *, is_complete: bool = True
    ) -> None:
        """See `IndexWriter`; contents deleted meanwhile are skipped.

        Raises:
            ValueError: A chunk's key has no vector.
        """
        database = self.database
        with database.transaction():
            model = model_id(database, fingerprint, dim)
            slots = slots_of(database, model, [chunk.key for chunks in contents.values() for chunk in chunks])
            if any(chunk.key not in slots for chunks in contents.values() for chunk in chunks):
                raise ValueError("a chunk has no vector")
            stored = database.select_in("SELECT id, hash FROM content WHERE hash IN ({})", list(contents))
            known = [(content, contents[content_hash]) for content, content_hash in stored]
            sql = "DELETE FROM chunks WHERE model = ? AND content = ?"
            database.run_many(sql, [(model, content) for content, _ in known])
            database.run_many(
                "INSERT INTO chunks (model, content, seq, start, end, slot) VALUES (?, ?, ?, ?, ?, ?)",
                [(model, content, c.seq, c.start, c.end, slots[c.key]) for content, chunks in known for c in chunks],
            )
            if is_complete:
                database.run_many(
                    "INSERT OR REPLACE INTO embedded (model, content, n_chunks) VALUES (?, ?, ?)",
                    [(model, content, len(chunks)) for content, chunks in known],
                )

    def forget_chunks(self, fingerprint: str, suffixes: Sequence[str] | None = None) -> None:
        model = known_model(self.database, fingerprint)
        if suffixes is None:
            self.database.run("DELETE FROM embedded WHERE model = ?", (model,))
            return
        ends = "SELECT hash FROM documents WHERE substr(lower(path), -length(?2)) = ?2"
        sql = f"DELETE FROM embedded WHERE model = ?1 AND content IN (SELECT id FROM content WHERE hash IN ({ends}))"
        with self.database.transaction():
            self.database.run_many(sql, [(model, suffix) for suffix in suffixes])


def keys_by_slot(database: Database, model: int) -> dict[int, bytes]:
    """Return the key of each vector of a model, in storage order."""
    return dict(database.rows("SELECT slot, key FROM vector_keys WHERE model = ? ORDER BY slot", (model,)))


def slots_of(database: Database, model: int, keys: Sequence[bytes]) -> dict[bytes, int]:
    """Return the slots of those `keys` that have a vector."""
    return dict(database.select_in("SELECT key, slot FROM vector_keys WHERE model = ? AND key IN ({})", keys, (model,)))


def model_id(database: Database, fingerprint: str, dim: int) -> int:
    """Return the row id of a model, creating its row if missing.

    Raises:
        ValueError: The model has another dimension there.
    """
    row = database.row("SELECT id, dim FROM models WHERE fingerprint = ?", (fingerprint,))
    if row is None:
        database.run("INSERT INTO models (fingerprint, dim, generation) VALUES (?, ?, random())", (fingerprint, dim))
        return int(database.connection.last_insert_rowid())
    if row[1] != dim:
        raise ValueError(f"model {fingerprint} has dimension {row[1]}, not {dim}")
    return int(row[0])


def known_model(database: Database, fingerprint: str) -> int:
    """Return the row id of a model, -1 if the index has none."""
    model = database.value("SELECT id FROM models WHERE fingerprint = ?", (fingerprint,))
    return -1 if model is None else int(model)


def collections_clause(collections: Sequence[str] | None) -> tuple[str, Sequence[str]]:
    """Return a further condition on `documents`, with its bindings."""
    if collections is None:
        return "", ()
    return f"AND documents.collection IN ({','.join('?' * len(collections))})", collections
