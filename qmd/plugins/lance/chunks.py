"""Which texts have a complete chunk set for a model, which still wait for one, and which vectors are there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qmd.clock import batches
from qmd.plugins.lance.documents import fetch_texts
from qmd.plugins.lance.state import Model, vector_schema
from qmd.plugins.lance.tables import OpenTables, Row, Tables, both, is_in, literal
from qmd.store.records import ChunkRecord, PendingContent, VectorCoverage

if TYPE_CHECKING:
    import numpy.typing as npt

_CONTENTS_AT_A_TIME = 256

_DONE = "seq = -1"
"""The row of a content that is complete."""


def vector_coverage(tables: Tables, fingerprint: str) -> VectorCoverage:
    """What a search by vectors has to know beforehand."""
    model = tables.state.model(fingerprint)
    has_vectors = model is not None and tables.count(model.table) > 0
    stored = tables.arrow("documents", ("hash",))
    if stored is None:
        return VectorCoverage(0, has_vectors)
    contents = pc.unique(stored["hash"])
    complete = None if model is None else tables.arrow("chunks", ("hash",), both(f"model = {model.id}", _DONE))
    n_done = 0 if complete is None else pc.sum(pc.is_in(contents, complete["hash"])).as_py() or 0
    return VectorCoverage(len(contents) - n_done, has_vectors)


def done(tables: Tables, fingerprint: str) -> set[str]:
    """Hashes of the contents that are complete for a model."""
    model = tables.state.model(fingerprint)
    if model is None:
        return set()
    return {row["hash"] for row in tables.select("chunks", ("hash",), both(f"model = {model.id}", _DONE))}


def pending(tables: Tables, fingerprint: str, collections: Sequence[str] | None) -> list[Row]:
    """Documents that stand for the contents without a complete chunk set, each by its first path, the newest first."""
    complete = done(tables, fingerprint)
    where = "" if collections is None else is_in("collection", collections)
    first: dict[str, Row] = {}
    for row in tables.select("documents", ("hash", "path", "date", "modified_at", "n_chars"), where):
        if row["hash"] not in complete:
            row["day"] = row["date"] or row["modified_at"]
            known = first.setdefault(row["hash"], row)
            known["path"] = min(known["path"], row["path"])
            known["day"] = max(known["day"], row["day"])
    return sorted(
        sorted(first.values(), key=lambda row: str(row["path"])), key=lambda row: str(row["day"]), reverse=True
    )


def with_texts(rows: Sequence[Row], tables: Tables) -> list[PendingContent]:
    """The contents of such documents; those that are gone meanwhile are left out."""
    texts = fetch_texts(tables, [row["hash"] for row in rows])
    return [PendingContent(row["hash"], row["path"], texts[row["hash"]]) for row in rows if row["hash"] in texts]


def existing_keys(tables: Tables, fingerprint: str, keys: Sequence[bytes]) -> frozenset[bytes]:
    """Those keys that have a vector."""
    model = tables.state.model(fingerprint)
    if model is None:
        return frozenset()
    return frozenset(row["key"] for row in tables.select_in(model.table, ("key",), "key", keys))


def put_vectors(
    tables: OpenTables, fingerprint: str, dim: int, vectors: Mapping[bytes, npt.NDArray[np.float32]]
) -> None:
    """Store those vectors whose keys have none yet.

    Raises:
        ValueError: A vector has another dimension.
    """
    model = _model(tables, fingerprint, dim)
    known = existing_keys(tables, fingerprint, list(vectors))
    new = {key: vector for key, vector in vectors.items() if key not in known}
    if not new:
        return
    matrix = np.asarray(list(new.values()), dtype=np.float16)
    if matrix.shape != (len(new), dim):
        raise ValueError(f"vectors have shape {matrix.shape}, not {(len(new), dim)}")
    schema = vector_schema(dim)
    columns = [pa.array(new, pa.binary(16)), pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), dim)]
    tables.add(model.table, pa.Table.from_arrays(columns, schema=schema), schema)


def without_vectors(tables: Tables, fingerprint: str, hashes: Sequence[str]) -> dict[str, str]:
    """Contents without a complete chunk set among `hashes`, with the path that `pending` gives them."""
    waiting = set(hashes) - done(tables, fingerprint)
    paths: dict[str, str] = {}
    for row in tables.select_in("documents", ("hash", "path"), "hash", sorted(waiting)):
        paths[row["hash"]] = min(row["path"], paths.get(row["hash"], row["path"]))
    return paths


def put_chunks(
    tables: OpenTables,
    fingerprint: str,
    dim: int,
    contents: Mapping[str, Sequence[ChunkRecord]],
    *,
    is_complete: bool = True,
) -> None:
    """Store chunk sets by content hash; contents that are gone meanwhile are passed over.

    Raises:
        ValueError: A chunk's key has no vector.
    """
    model = _model(tables, fingerprint, dim)
    keys = list({chunk.key for chunks in contents.values() for chunk in chunks})
    if len(existing_keys(tables, fingerprint, keys)) < len(keys):
        raise ValueError("a chunk has no vector")
    there = {row["hash"] for row in tables.select_in("documents", ("hash",), "hash", list(contents))}
    rows: list[Row] = []
    for content in sorted(there):
        facts = {"model": model.id, "hash": content}
        rows += [{**facts, "seq": -1}] if is_complete else []
        rows += [{**facts, "seq": c.seq, "start": c.start, "end": c.end, "key": c.key} for c in contents[content]]
    stored = {row["hash"] for row in tables.select_in("chunks", ("hash",), "hash", list(there), f"model = {model.id}")}
    tables.delete_in("chunks", "hash", sorted(stored), f"model = {model.id}")
    tables.add("chunks", rows)


def forget_chunks(tables: OpenTables, fingerprint: str, suffixes: Sequence[str] | None) -> None:
    """Make contents pending again; their chunks stay until `put_chunks` replaces them."""
    model = tables.state.model(fingerprint)
    if model is None:
        return
    where = both(f"model = {model.id}", _DONE)
    if suffixes is None:
        tables.delete("chunks", where)
        return
    ends = " OR ".join(f"ends_with(lower(path), {literal(suffix)})" for suffix in suffixes)
    hashes = {row["hash"] for row in tables.select("documents", ("hash",), ends or "false")}
    tables.delete_in("chunks", "hash", sorted(hashes), where)


def chunk_sets(tables: Tables, fingerprint: str) -> Iterator[dict[str, list[ChunkRecord]]]:
    """The complete chunk sets of a model by content hash."""
    model = tables.state.model(fingerprint)
    if model is None:
        return
    where = both(f"model = {model.id}", "seq >= 0")
    for part in batches(sorted(done(tables, fingerprint)), _CONTENTS_AT_A_TIME):
        found: defaultdict[str, list[ChunkRecord]] = defaultdict(list)
        for row in tables.select_in("chunks", ("hash", "seq", "start", "end", "key"), "hash", part, where):
            found[row["hash"]].append(ChunkRecord(row["seq"], row["start"], row["end"], row["key"]))
        yield {content: sorted(found[content], key=lambda one: one.seq) for content in part}


def keep_models(tables: OpenTables, names: Mapping[str, str]) -> None:
    """Forget all vectors but those of these models, which get other names; see `IndexWriter`."""
    state, kept = tables.state, []
    for model in state.models:
        if model.fingerprint in names:
            kept.append(Model(model.id, names[model.fingerprint], model.dim))
        else:
            state.versions.pop(model.table, None)
            tables.delete("chunks", f"model = {model.id}")
    state.models = kept


def unused_keys(tables: Tables) -> dict[Model, set[bytes]]:
    """The keys of vectors that no chunk refers to."""
    unused = {}
    for model in tables.state.models:
        used = {row["key"] for row in tables.select("chunks", ("key",), f"model = {model.id}")}
        unused[model] = {row["key"] for row in tables.select(model.table, ("key",))} - used
    return unused


def _model(tables: OpenTables, fingerprint: str, dim: int) -> Model:
    """The model of a fingerprint, which is made for one that the index holds nothing of.

    Raises:
        ValueError: The model has another dimension there.
    """
    model = tables.state.model(fingerprint)
    if model is None:
        model = Model(tables.state.next_model, fingerprint, dim)
        tables.state.next_model += 1
        tables.state.models.append(model)
    if model.dim != dim:
        raise ValueError(f"model {fingerprint} has dimension {model.dim}, not {dim}")
    return model
