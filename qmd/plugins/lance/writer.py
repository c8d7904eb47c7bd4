"""The write side of an index in LanceDB tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from qmd.clock import batches
from qmd.errors import StoreError
from qmd.plugins.lance import chunks, documents, health
from qmd.plugins.lance.claim import Claim
from qmd.plugins.lance.index import LanceReader, of_collection
from qmd.plugins.lance.state import encode_state
from qmd.plugins.lance.tables import Connection, OpenTables, Row, Tables, both, is_in
from qmd.records import Collection
from qmd.status import LeftOutFile
from qmd.store.base import IndexWriter
from qmd.store.records import ChunkRecord, KnownFile, NewDocument, PendingContent

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_TEXTS_AT_ONCE = 64


class LanceWriter(LanceReader, IndexWriter):
    """The write side: one transaction at a time per index, whichever machine it runs on.

    Args:
        connection: The index.
        local_state: Where this machine keeps what it remembers of it.
        wait_s: How long a transaction waits for another writer.
    """

    def __init__(self, connection: Connection, local_state: Path, wait_s: float) -> None:
        super().__init__(connection, local_state)
        self._wait_s = wait_s
        self._changing: OpenTables | None = None
        self._unwritten: dict[str, dict[str, NewDocument]] = {}
        self._touched: dict[int, Row] = {}
        self._words: tuple[int | None, set[str] | None] = (None, None)

    @property
    def _tables(self) -> Tables:
        return self._pinned if self._changing is None else self._open

    @property
    def _open(self) -> OpenTables:
        """The tables of the transaction, with all that was put so far."""
        if self._changing is None:
            raise RuntimeError("outside of a transaction")
        # Many small changes become one: each costs a version of a table.
        waiting, self._unwritten = self._unwritten, {}
        for collection, batch in waiting.items():
            documents.write_documents(self._changing, collection, batch)
        touched, self._touched = self._touched, {}
        self._changing.patch_documents(list(touched.values()))
        return self._changing

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._changing is not None:
            yield
            return
        claim = Claim(self._connection, self._wait_s)
        try:
            state = claim.state()
            before = encode_state(state)
            self._changing = OpenTables(self._connection, state, claim.confirm)
            self._changing.is_over = self._pinned.is_over
            if self._words[0] == state.versions.get("words"):
                self._changing.words = self._words[1]
            yield
            tables = self._open
        except BaseException:
            self._changing, self._unwritten, self._touched = None, {}, {}
            self._words = (None, None)
            # What failed matters more; a claim that stays is taken over by the next writer.
            with suppress(StoreError):
                claim.end(None)
            raise
        self._changing, self._words = None, (None, None)
        claim.end(state if encode_state(state) != before else None)
        self._words = (state.versions.get("words"), tables.words)
        self._pinned = Tables(self._connection, state)
        self._pinned.is_over = tables.is_over

    def put_collections(self, collections: Sequence[Collection]) -> None:
        self._open.state.collections = list(collections)

    def set_facts(self, facts: Mapping[str, str | None]) -> None:
        with self.transaction():
            meta = self._open.state.meta
            for key, value in facts.items():
                meta.pop(key, None)
                if value is not None:
                    meta[key] = value

    def known_files(self, collection: str) -> Mapping[str, KnownFile]:
        columns = ("path", "id", "hash", "size_bytes", "mtime_ns")
        rows = self._tables.select("documents", columns, of_collection(collection))
        return {row["path"]: KnownFile(*(row[name] for name in columns[1:])) for row in rows}

    def put_left_out(self, collection: str, files: Iterable[LeftOutFile]) -> None:
        wanted = {one.path: one for one in files}
        if list(self.left_out(collection)) == sorted(wanted.values(), key=lambda one: one.path):
            return
        with self.transaction():
            self._open.delete("places", both("kind = 'left_out'", of_collection(collection)))
            values = {path: msgspec.json.encode(one).decode() for path, one in wanted.items()}
            self._open.add("places", _places("left_out", collection, values))

    def put_folders(self, collection: str, changed: Mapping[str, int], gone: Iterable[str]) -> None:
        with self.transaction():
            where = both("kind = 'folder'", of_collection(collection))
            self._open.delete_in("places", "path", sorted({*changed, *gone}), where)
            values = {path: str(mtime_ns) for path, mtime_ns in changed.items()}
            self._open.add("places", _places("folder", collection, values))

    def mark_updated(self, collection: str, moment: str | None = None) -> None:
        with self.transaction():
            super().mark_updated(collection, moment)
            for name in ("documents", "places", "words"):
                health.tidy(self._open, name)

    def put_documents(self, collection: str, new_documents: Iterable[NewDocument]) -> None:
        with self.transaction():
            waiting = self._unwritten.setdefault(collection, {})
            for document in new_documents:
                # In the order in which they were put last, as their ids are.
                waiting.pop(document.path, None)
                waiting[document.path] = document

    def settle_titles(self, collection: str) -> None:
        documents.settle_titles(self._open, collection)

    def settle_anchors(self, collection: str, since: int) -> int:
        return documents.settle_anchors(self._open, collection, since)

    def touch(self, document_id: int, size_bytes: int, mtime_ns: int, modified_at: str) -> None:
        facts = {"id": document_id, "size_bytes": size_bytes, "mtime_ns": mtime_ns, "modified_at": modified_at}
        with self.transaction():
            self._touched[document_id] = facts

    def remove_documents(self, collection: str, paths: Iterable[str]) -> int:
        wanted = list(paths)
        if not wanted:
            return 0
        with self.transaction():
            return documents.remove_documents(self._open, collection, wanted)

    def collections_with_documents(self) -> Sequence[str]:
        return sorted({row["collection"] for row in self._tables.select("documents", ("collection",))})

    def drop_collection(self, name: str) -> int:
        tables = self._open
        paths = [row["path"] for row in tables.select("documents", ("path",), of_collection(name))]
        removed = documents.remove_documents(tables, name, paths)
        tables.delete("places", of_collection(name))
        tables.state.collections = [one for one in tables.state.collections if one.name != name]
        return removed

    def move_collection(self, old: str, new: str) -> None:
        tables = self._open
        rows = tables.select("documents", ("id",), of_collection(old))
        tables.patch_documents([{"id": row["id"], "collection": new} for row in rows])
        places = tables.select("places", ("kind", "path", "value"), of_collection(old))
        tables.delete("places", is_in("collection", (old, new)))
        tables.add("places", [{**row, "collection": new} for row in places])
        tables.state.collections = [
            msgspec.structs.replace(one, name=new) if one.name == old else one for one in tables.state.collections
        ]

    def pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> Iterator[PendingContent]:
        for part in batches(chunks.pending(self._tables, fingerprint, collections), _TEXTS_AT_ONCE):
            yield from chunks.with_texts(part, self._tables)

    def count_pending(self, fingerprint: str, collections: Sequence[str] | None = None) -> tuple[int, int]:
        rows = chunks.pending(self._tables, fingerprint, collections)
        return len(rows), sum(row["n_chars"] for row in rows)

    def existing_keys(self, fingerprint: str, keys: Sequence[bytes]) -> frozenset[bytes]:
        return chunks.existing_keys(self._tables, fingerprint, keys)

    def put_chunks(
        self,
        fingerprint: str,
        dim: int,
        contents: Mapping[str, Sequence[ChunkRecord]],
        *,
        is_complete: bool = True,
    ) -> None:
        with self.transaction():
            chunks.put_chunks(self._open, fingerprint, dim, contents, is_complete=is_complete)
            for name in ("chunks", *(model.table for model in self._open.state.models)):
                health.tidy(self._open, name)

    def forget_chunks(self, fingerprint: str, suffixes: Sequence[str] | None = None) -> None:
        with self.transaction():
            chunks.forget_chunks(self._open, fingerprint, suffixes)

    def prepare_vectors(self) -> None:
        """Nothing: the engine keeps vectors wherever it runs."""

    def put_vectors(self, fingerprint: str, dim: int, new_vectors: Mapping[bytes, npt.NDArray[np.float32]]) -> None:
        with self.transaction():
            chunks.put_vectors(self._open, fingerprint, dim, new_vectors)

    def keep_models(self, names: Mapping[str, str]) -> None:
        with self.transaction():
            chunks.keep_models(self._open, names)

    def forget_damaged(self, *, thorough: bool) -> Sequence[str]:
        """See `health`."""
        with self.transaction():
            return health.forget_damaged(self._open, thorough=thorough)

    def cleanup(self, *, dry_run: bool = False) -> Mapping[str, int]:
        if dry_run:
            return health.count_unused(self._tables)
        with self.transaction():
            counts = health.count_unused(self._open)
            health.drop_unused(self._open)
            return counts


def _places(kind: str, collection: str, values: Mapping[str, str]) -> list[Row]:
    return [{"kind": kind, "collection": collection, "path": path, "value": one} for path, one in values.items()]
