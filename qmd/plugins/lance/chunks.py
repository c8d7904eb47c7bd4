"""Chunk sets and vectors of a model: complete, pending and stored."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qmd.batching import batches
from qmd.plugins.lance.documents import Documents, of_collections
from qmd.plugins.lance.state import Model, vector_schema
from qmd.plugins.lance.tables import OpenTables, Row, Tables, both, literal
from qmd.plugins.lance.tidying import tidy
from qmd.store.base import IndexWriter
from qmd.store.records import ChunkRecord, StoredModel, VectorCoverage

_CONTENTS_AT_A_TIME = 256

_DONE = "seq = -1"
"""The row of a complete content."""


class Chunks(Documents):
    """Read methods for chunks and pending texts."""

    def vector_coverage(self, fingerprint: str) -> VectorCoverage:
        return self._tables.once(("coverage", fingerprint), lambda: self._count_coverage(fingerprint))

    def _count_coverage(self, fingerprint: str) -> VectorCoverage:
        tables = self._tables
        model = tables.state.model(fingerprint)
        has_vectors = model is not None and tables.count(model.table) > 0
        stored = tables.arrow("documents", ("hash",))
        if stored is None:
            return VectorCoverage(0, has_vectors)
        contents = pc.unique(stored["hash"])
        complete = None if model is None else tables.arrow("chunks", ("hash",), both(f"model = {model.id}", _DONE))
        n_done = 0 if complete is None else pc.sum(pc.is_in(contents, complete["hash"])).as_py() or 0
        return VectorCoverage(len(contents) - n_done, has_vectors)

    def without_vectors(self, fingerprint: str, hashes: Sequence[str]) -> dict[str, str]:
        tables = self._tables
        model = tables.state.model(fingerprint)
        where = "false" if model is None else both(f"model = {model.id}", _DONE)
        waiting = set(hashes) - {row["hash"] for row in tables.select_in("chunks", ("hash",), "hash", hashes, where)}
        paths: dict[str, str] = {}
        for row in tables.select_in("documents", ("hash", "path"), "hash", sorted(waiting)):
            paths[row["hash"]] = min(row["path"], paths.get(row["hash"], row["path"]))
        return paths

    def models(self) -> Sequence[StoredModel]:
        return [StoredModel(model.fingerprint, model.dim) for model in self._tables.state.searched]

    def chunk_sets(self, fingerprint: str) -> Iterator[dict[str, list[ChunkRecord]]]:
        tables = self._tables
        model = tables.state.model(fingerprint)
        if model is None:
            return
        where = both(f"model = {model.id}", "seq >= 0")
        for part in batches(sorted(complete_hashes(tables, fingerprint)), _CONTENTS_AT_A_TIME):
            found: defaultdict[str, list[ChunkRecord]] = defaultdict(list)
            for row in tables.select_in("chunks", ("hash", "seq", "start", "end", "key"), "hash", part, where):
                found[row["hash"]].append(ChunkRecord(row["seq"], row["start"], row["end"], row["key"]))
            yield {content: sorted(found[content], key=lambda one: one.seq) for content in part}


class ChunkWriter(Chunks, IndexWriter):
    """Write methods for chunks and vectors."""

    @property
    @abstractmethod
    def _open(self) -> OpenTables:
        """Return the tables of the transaction."""

    def pending_paths(self, fingerprint: str, collections: Sequence[str] | None) -> list[tuple[str, str]]:
        return [(row["hash"], row["path"]) for row in _read_pending(self._tables, fingerprint, collections)]

    def count_pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> tuple[int, int]:
        rows = _read_pending(self._tables, fingerprint, collections)
        return len(rows), sum(row["n_chars"] for row in rows)

    def existing_keys(self, fingerprint: str, keys: Sequence[bytes]) -> frozenset[bytes]:
        model = self._tables.state.model(fingerprint)
        found = self._tables.select_in(model.table, ("key",), "key", keys) if model else ()
        return frozenset(row["key"] for row in found)

    def put_chunks(
        self, fingerprint: str, dim: int, contents: Mapping[str, Sequence[ChunkRecord]], *, is_complete: bool = True
    ) -> None:
        """See `IndexWriter`; contents deleted meanwhile are skipped.

        Raises:
            ValueError: A chunk's key has no vector.
        """
        with self.transaction():
            tables = self._open
            model = _model(tables, fingerprint, dim)
            keys = list({chunk.key for chunks in contents.values() for chunk in chunks})
            if len(self.existing_keys(fingerprint, keys)) < len(keys):
                raise ValueError("a chunk has no vector")
            there = {row["hash"] for row in tables.select_in("documents", ("hash",), "hash", list(contents))}
            rows: list[Row] = []
            for content in sorted(there):
                facts = {"model": model.id, "hash": content}
                rows += [{**facts, "seq": -1}] if is_complete else []
                rows += [{**facts, **msgspec.structs.asdict(chunk)} for chunk in contents[content]]
            mine = f"model = {model.id}"
            stored = {row["hash"] for row in tables.select_in("chunks", ("hash",), "hash", list(there), mine)}
            tables.delete_in("chunks", "hash", sorted(stored), mine)
            tables.add("chunks", rows)
            for name in ("chunks", *(model.table for model in tables.state.models)):
                tidy(tables, name)

    def forget_chunks(self, fingerprint: str, suffixes: Sequence[str] | None = None) -> None:
        with self.transaction():
            tables = self._open
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

    def prepare_vectors(self) -> None:
        """Do nothing: the engine stores vectors on every platform."""

    def put_vectors(self, fingerprint: str, dim: int, new_vectors: Mapping[bytes, npt.NDArray[np.float32]]) -> None:
        """See `IndexWriter`.

        Raises:
            ValueError: A vector has another dimension.
        """
        with self.transaction():
            tables = self._open
            model = _model(tables, fingerprint, dim)
            known = self.existing_keys(fingerprint, list(new_vectors))
            new = {key: vector for key, vector in new_vectors.items() if key not in known}
            if not new:
                return
            matrix = np.asarray(list(new.values()), dtype=np.float16)
            if matrix.shape != (len(new), dim):
                raise ValueError(f"vectors have shape {matrix.shape}, not {(len(new), dim)}")
            schema = vector_schema(dim)
            columns = [pa.array(new, pa.binary(16)), pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), dim)]
            tables.add(model.table, pa.Table.from_arrays(columns, schema=schema), schema)

    def keep_models(self, names: Mapping[str, str]) -> None:
        with self.transaction():
            tables = self._open
            state, kept = tables.state, []
            for model in state.models:
                if model.fingerprint in names:
                    kept.append(Model(model.id, names[model.fingerprint], model.dim))
                else:
                    state.versions.pop(model.table, None)
                    tables.delete("chunks", f"model = {model.id}")
            state.models = kept


def complete_hashes(tables: Tables, fingerprint: str) -> set[str]:
    """Return the hashes of the contents that are complete for a model."""
    model = tables.state.model(fingerprint)
    if model is None:
        return set()
    return {row["hash"] for row in tables.select("chunks", ("hash",), both(f"model = {model.id}", _DONE))}


def _read_pending(tables: Tables, fingerprint: str, collections: Sequence[str] | None) -> list[Row]:
    """Return one document per content without a complete chunk set, by its first path, the newest first."""
    complete, inside = complete_hashes(tables, fingerprint), of_collections(collections)
    first: dict[str, Row] = {}
    for row in tables.select("documents", ("hash", "path", "date", "modified_at", "n_chars"), inside):
        if row["hash"] not in complete:
            row["day"] = row["date"] or row["modified_at"]
            known = first.setdefault(row["hash"], row)
            known["path"] = min(known["path"], row["path"])
            known["day"] = max(known["day"], row["day"])
    by_path = sorted(first.values(), key=lambda row: str(row["path"]))
    return sorted(by_path, key=lambda row: str(row["day"]), reverse=True)


def _model(tables: OpenTables, fingerprint: str, dim: int) -> Model:
    """Return the model of a fingerprint, creating it if missing.

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
