"""All that an index holds, read in pieces by whoever writes it elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import fields

from qmd.batches import batches
from qmd.plugins.lance import chunks, dense
from qmd.plugins.lance.state import Model
from qmd.plugins.lance.tables import Tables, both
from qmd.store.records import ChunkRecord, StoredFile

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_FILES_AT_A_TIME = 256
_CONTENTS_AT_A_TIME = 256
_VECTORS_AT_A_TIME = 4_096


def stored_files(tables: Tables) -> Iterator[list[StoredFile]]:
    """What is known of every document's file, by the document's id."""
    columns = [field.name for field in fields(StoredFile)]
    rows = sorted(tables.select("documents", ("id", *columns)), key=lambda row: int(row["id"]))
    for part in batches(rows, _FILES_AT_A_TIME):
        yield [StoredFile(*(row[name] for name in columns)) for row in part]


def chunk_sets(tables: Tables, fingerprint: str) -> Iterator[dict[str, list[ChunkRecord]]]:
    """The complete chunk sets of a model by content hash."""
    model = tables.state.model(fingerprint)
    if model is None:
        return
    where = both(f"model = {model.id}", "seq >= 0")
    for part in batches(sorted(chunks.done(tables, fingerprint)), _CONTENTS_AT_A_TIME):
        found: defaultdict[str, list[ChunkRecord]] = defaultdict(list)
        for row in tables.select_in("chunks", ("hash", "seq", "start", "end", "key"), "hash", part, where):
            found[row["hash"]].append(ChunkRecord(row["seq"], row["start"], row["end"], row["key"]))
        yield {content: sorted(found[content], key=lambda one: one.seq) for content in part}


def vectors(tables: Tables, model: Model, keys: Sequence[bytes]) -> dict[bytes, npt.NDArray[np.float32]]:
    """The vectors of some keys, of unit length; keys without one are absent."""
    found, matrix = dense.fetch_vectors(tables, model, keys)
    return dict(zip(found, matrix, strict=True))


def all_vectors(tables: Tables, fingerprint: str) -> Iterator[Mapping[bytes, npt.NDArray[np.float32]]]:
    """Every vector of a model by key, of unit length."""
    model = tables.state.model(fingerprint)
    if model is None:
        return
    keys = [row["key"] for row in tables.select(model.table, ("key",))]
    for part in batches(keys, _VECTORS_AT_A_TIME):
        yield vectors(tables, model, part)
