"""All that an index holds, read in pieces by whoever writes it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from qmd.batches import batches
from qmd.store.records import ChunkRecord, StoredFile, StoredModel
from qmd.store.sqlite.chunks import SEARCHED, known_model
from qmd.store.sqlite.connection import DamagedIndexError, Database

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_FILES_AT_A_TIME = 256
_CONTENTS_AT_A_TIME = 256
_VECTORS_AT_A_TIME = 4_096


def stored_files(database: Database) -> Iterator[list[StoredFile]]:
    """What is known of every document's file, by the document's id."""
    sql = (
        "SELECT id, collection, path, hash, size_bytes, mtime_ns, created_at, modified_at FROM documents"
        f" WHERE id > ? ORDER BY id LIMIT {_FILES_AT_A_TIME}"
    )
    last = 0
    while rows := database.rows(sql, (last,)):
        yield [StoredFile(*facts) for _, *facts in rows]
        last = rows[-1][0]


def models(database: Database) -> list[StoredModel]:
    """The models that vectors are of, in the order of their first use."""
    return [
        StoredModel(*row) for row in database.rows(f"SELECT fingerprint, dim FROM models WHERE {SEARCHED} ORDER BY id")
    ]


def chunk_sets(database: Database, fingerprint: str) -> Iterator[dict[str, list[ChunkRecord]]]:
    """The complete chunk sets of a model by content hash."""
    model = known_model(database, fingerprint)
    keys = _keys_by_slot(database, model)
    done = database.rows(
        "SELECT content.id, content.hash FROM embedded JOIN content ON content.id = embedded.content"
        " WHERE embedded.model = ? ORDER BY content.id",
        (model,),
    )
    sql = "SELECT content, seq, start, end, slot FROM chunks WHERE model = ? AND content IN ({}) ORDER BY content, seq"
    for part in batches(done, _CONTENTS_AT_A_TIME):
        rows = database.select_in(sql, [content for content, _ in part], (model,))
        by_content = {content: list(group) for content, group in groupby(rows, key=lambda row: row[0])}
        try:
            sets = {
                content_hash: [
                    ChunkRecord(seq, start, end, keys[slot]) for _, seq, start, end, slot in by_content.get(content, ())
                ]
                for content, content_hash in part
            }
        except KeyError as exc:
            raise DamagedIndexError(database.path) from exc
        yield sets


def all_vectors(database: Database, fingerprint: str) -> Iterator[Mapping[bytes, npt.NDArray[np.float32]]]:
    """Every vector of a model by key, in the order of their slots."""
    from qmd.store.sqlite.vectors import vectors_at

    model = known_model(database, fingerprint)
    dim = database.value("SELECT dim FROM models WHERE id = ?", (model,))
    for part in batches(list(_keys_by_slot(database, model).items()), _VECTORS_AT_A_TIME):
        rows = vectors_at(database, model, dim, [slot for slot, _ in part])
        yield dict(zip((key for _, key in part), rows, strict=True))


def _keys_by_slot(database: Database, model: int) -> dict[int, bytes]:
    return dict(database.rows("SELECT slot, key FROM vector_keys WHERE model = ? ORDER BY slot", (model,)))
