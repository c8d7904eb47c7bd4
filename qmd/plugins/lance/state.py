"""The state committed with every change, and the columns and indexes of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
from lancedb.index import FTS, BTree, LabelList
from msgspec import Struct, field

from qmd.file_names import to_disk, to_text
from qmd.records import Collection
from qmd.store.records import STAGING

FORMAT = 1
"""Version of the tables below; a reader refuses a higher one."""


class Model(Struct, frozen=True):
    """A model whose vectors are stored, in the table of its `id`."""

    id: int
    fingerprint: str
    dim: int

    @property
    def table(self) -> str:
        """The table of its vectors by key."""
        return f"vectors_{self.id}"


class State(Struct):
    """The versions of tables that belong together, and everything small enough to be written with every change."""

    format: int = FORMAT
    versions: dict[str, int] = field(default_factory=dict)
    tidied: dict[str, int] = field(default_factory=dict)
    """Table → version after which it was last compacted."""
    next_document: int = 1
    next_model: int = 1
    models: list[Model] = field(default_factory=list)
    """The one used last at the end."""
    collections: list[Collection] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)

    @property
    def searched(self) -> list[Model]:
        """Return the models that are not being re-embedded."""
        return [one for one in self.models if not one.fingerprint.startswith(STAGING)]

    def model(self, fingerprint: str) -> Model | None:
        """Return the model of a fingerprint, None if nothing of it is stored."""
        return next((one for one in self.models if one.fingerprint == fingerprint), None)


_COMPRESSED = {"lance-encoding:compression": "zstd"}

SCHEMAS: Mapping[str, pa.Schema] = {
    "documents": pa.schema(
        [
            ("id", pa.int64()),
            *((name, pa.string()) for name in ("collection", "path", "title", "hash", "created_at", "modified_at")),
            *((name, pa.int64()) for name in ("n_chars", "size_bytes", "mtime_ns")),
            *((name, pa.string()) for name in ("metadata", "heading", "date")),
            ("facts", pa.list_(pa.string())),
            ("name_keys", pa.list_(pa.string())),
            ("name_kinds", pa.list_(pa.string())),
            ("link_keys", pa.list_(pa.int64())),
            ("link_counts", pa.list_(pa.int64())),
            ("links", pa.binary()),
            ("doc", pa.binary()),
            pa.field("terms", pa.string(), metadata=_COMPRESSED),
            ("anchors", pa.string()),
        ]
    ),
    "chunks": pa.schema(
        [
            ("model", pa.int64()),
            ("hash", pa.string()),
            ("seq", pa.int64()),
            ("start", pa.int64()),
            ("end", pa.int64()),
            ("key", pa.binary(16)),
        ]
    ),
    "places": pa.schema([(name, pa.string()) for name in ("kind", "collection", "path", "value")]),
    "words": pa.schema([("key", pa.string()), ("word", pa.string())]),
}
"""`chunks` has a row with `seq` -1 for each complete content; `places` contains the folders, skipped files and
touched names of collections."""

INDEXES: Mapping[str, Mapping[str, type[BTree | LabelList | FTS]]] = {
    "documents": {
        "terms": FTS, "anchors": FTS, "id": BTree, "hash": BTree, "path": BTree, "name_keys": LabelList,
        "link_keys": LabelList,
    },
    "chunks": {"hash": BTree, "key": BTree},
    "places": {},
    "words": {"key": BTree},
}  # fmt: skip
VECTOR_INDEXES: Mapping[str, type[BTree | LabelList | FTS]] = {"key": BTree}
"""Indexes of a model's vectors from the start."""

STEMMED = FTS(with_position=True, max_token_length=200, remove_stop_words=False)
"""Words as in SQLite's engine: lower case, without accents, English stems, no stop words."""


def vector_schema(dim: int) -> pa.Schema:
    """Return the schema of a model's vectors; half precision, which costs a cosine less than 0.001."""
    return pa.schema([("key", pa.binary(16)), ("vector", pa.list_(pa.float16(), dim))])


def encode_state(state: State) -> str:
    return msgspec.json.encode(state, enc_hook=to_text).decode()


def decode_state(written: str) -> State:
    """Decode a state from `encode_state`; raises `ValueError` for anything else."""
    return msgspec.json.decode(written, type=State, dec_hook=lambda _, text: Path(to_disk(text)))
