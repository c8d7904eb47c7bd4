"""What an index holds, without what may differ between two ways to the same state: row ids, slots, times of the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

import apsw

from qmd.config.paths import Locations
from qmd.store.records import unpack_links, unpack_text
from qmd.store.sqlite.connection import Database
from qmd.store.sqlite.vec0 import vectors_of

SELECTS = {
    "collections": "SELECT name, path, pattern, ignore_json, context_json, include_by_default, position"
    " FROM qmd_collections ORDER BY name",
    "documents": "SELECT collection, path, title, hash, modified_at, active, n_chars, size_bytes, mtime_ns, metadata"
    " FROM documents ORDER BY collection, path",
    "texts": "SELECT hash, n_chars, doc FROM content ORDER BY hash",
    "terms": "SELECT term, doc, cnt FROM vocabulary ORDER BY term",
    "embedded": "SELECT hash, embedded.n_chunks FROM embedded JOIN content ON content.id = embedded.content"
    " ORDER BY hash",
    "chunks": "SELECT hash, seq, start, end, key FROM chunks JOIN content ON content.id = chunks.content"
    " JOIN vector_keys USING (model, slot) ORDER BY hash, seq",
    "left out": "SELECT collection, path, reason, program FROM left_out ORDER BY collection, path",
    "unused chunks": "SELECT count(*) FROM chunks WHERE content NOT IN (SELECT id FROM content)",
}

_UNPACKED: dict[str, Callable[[bytes], object]] = {"doc": unpack_text, "links": unpack_links}
"""ISA-L packs equal links in two ways once in 3,000 times."""

Tables = dict[str, list[tuple[object, ...]]]


def tables_of(locations: Locations, collections: Collection[str], *, with_vectors: bool = True) -> Tables:
    """What an index of either engine holds of these collections.

    In one that several machines share others may stay, and words of documents that are gone. Its vectors, and chunks,
    need not be read: a million take 24 GB here.
    """
    if locations.address is None:
        return tables(locations.database)
    from qmd.plugins.lance.state import SCHEMAS
    from qmd.plugins.lance.tables import Connection
    from qmd.plugins.lance.tables import Tables as Opened

    connection = Connection(locations.address)
    state = connection.read_state(connection.open_state())
    opened = Opened(connection, state)
    models = state.models if with_vectors else []
    names = {model.id: model.fingerprint for model in models}
    own = [name for name in SCHEMAS["documents"].names if name not in ("id", "created_at")]
    texts = {row["hash"] for row in opened.select("documents", ("hash",))}
    documents = [row for row in opened.select("documents", own) if row["collection"] in collections]
    chunks = opened.select("chunks", SCHEMAS["chunks"].names) if with_vectors else []
    held = {row["hash"] for row in documents}
    used = {(row["model"], row["key"]) for row in chunks if row["hash"] in held}
    words = {word for row in documents for word in re.findall(r"[^\W_]+", row["terms"].lower())}
    found: Tables = {
        "collections": [(one.name, repr(one)) for one in state.collections if one.name in collections],
        "documents": [
            tuple(repr(_UNPACKED[name](one) if one and name in _UNPACKED else one) for name, one in row.items())
            for row in documents
        ],
        "places": [
            tuple(row.values())
            for row in opened.select("places", SCHEMAS["places"].names)
            if row["collection"] in collections and row["kind"] != "folder"
        ],
        "words": [(row["word"],) for row in opened.select("words", ("word",)) if row["word"] in words],
        "chunks": [
            (names[row.pop("model")], *(row[name] if name != "key" else repr(row[name]) for name in row))
            for row in chunks
            if row["hash"] in held
        ],
        "unused chunks": [(sum(row["hash"] not in texts for row in chunks),)],
        "vectors": [
            (model.fingerprint, row["key"], tuple(row["vector"]))
            for model in models
            for row in opened.select(model.table, ("key", "vector"))
            if (model.id, row["key"]) in used
        ],
    }
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def tables(index: Path) -> Tables:
    """Every table of an index, in an order of its own, and the vectors that its chunks refer to."""
    connection = apsw.Connection(str(index), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found: Tables = {name: connection.execute(sql).fetchall() for name, sql in SELECTS.items()}
        found["vectors"] = _vectors(Database(connection, index))
    finally:
        connection.close()
    return found


def _vectors(database: Database) -> list[tuple[object, ...]]:
    import numpy as np

    found: list[tuple[object, ...]] = []
    for model, fingerprint, dim in database.rows("SELECT id, fingerprint, dim FROM models ORDER BY fingerprint"):
        used = "SELECT DISTINCT key, slot FROM vector_keys JOIN chunks USING (model, slot) WHERE model = ? ORDER BY key"
        keys = database.rows(used, (model,))
        slots = np.array(sorted(slot for _, slot in keys), dtype=np.int64)
        rows = (
            dict(zip(slots.tolist(), vectors_of(database, model, dim).read_slots(slots), strict=True))
            if len(slots)
            else {}
        )
        found += [(fingerprint, key, rows[slot].tobytes()) for key, slot in keys]
    return found


def differing(one: Tables, other: Tables, leaving_out: tuple[str, ...] = ()) -> list[str]:
    """The tables that are not equal, each with a few of the rows that only one side has."""
    found = []
    for name in one:
        if name not in leaving_out and one[name] != other[name]:
            extra, lacking = set(one[name]) - set(other[name]), set(other[name]) - set(one[name])
            found.append(f"{name} (extra {_some(extra)}, lacking {_some(lacking)})")
    return found


def _some(rows: set[tuple[object, ...]]) -> str:
    shown = ", ".join(repr(row[:3])[:120] for row in sorted(rows, key=repr)[:2])
    return f"{len(rows)}: {shown}" if rows else "none"
