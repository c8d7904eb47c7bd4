"""Status and soundness of the whole index, and their maintenance by a writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from lancedb.table import LanceTable

from qmd.errors import StoreError
from qmd.plugins.lance.chunks import Chunks, ChunkWriter, complete_hashes
from qmd.plugins.lance.tables import REBUILD, STATE, Tables, both
from qmd.plugins.lance.tidying import drop_unused, tidy, unused_chunks, unused_keys
from qmd.status import IndexStatus
from qmd.store.runs import lock_holder


class Health(Chunks):
    """Read methods for the whole index."""

    def status(self, fingerprint: str | None) -> IndexStatus:
        tables = self._tables
        state = tables.state
        models = self.vector_models() if fingerprint is None else {fingerprint: None}
        known = [model for one in models if (model := state.model(one))]
        documents = tables.select("documents", ("collection", "hash", "n_chars"))
        counts = Counter(row["collection"] for row in documents)
        own = _complete_hashes_by_collection(tables, models, counts)
        return IndexStatus(
            path=self.path,
            size_bytes=sum(_size_bytes(table) for name in state.versions if (table := tables.table(name))),
            documents=len(documents),
            embedded_documents=sum(row["hash"] in own.get(row["collection"], ()) for row in documents),
            pending_documents=sum(self.vector_coverage(*one).pending for one in models.items()),
            chunks=sum(tables.count("chunks", both(f"model = {one.id}", "seq >= 0")) for one in known),
            vectors=sum(tables.count(one.table) for one in known),
            updated_at=self.updated_at(),
            fingerprint=next(iter(models)) or None,
            collections=self.collection_statuses(counts),
            left_out=tuple(self.left_out(None)),
            holder=lock_holder(self.path),
            copies=len(texts := [row["hash"] for row in documents if row["n_chars"]]) - len({*texts}),
        )

    def check(self, *, thorough: bool = True) -> list[str]:
        tables = self._tables
        if unreadable := _find_unreadable(tables):
            return [error.message for error in unreadable.values()]
        found = []
        for model in tables.state.models:
            stored = {row["key"] for row in tables.select(model.table, ("key",))}
            used = [row["key"] for row in tables.select("chunks", ("key",), both(f"model = {model.id}", "seq >= 0"))]
            if lost := sum(key not in stored for key in used):
                found.append(f"{lost} chunks have no vector")
        return found


class HealthWriter(Health, ChunkWriter):
    """Write methods for the whole index."""

    def mark_updated(self, collection: str, moment: str | None = None) -> None:
        with self.transaction():
            super().mark_updated(collection, moment)
            for name in ("documents", "places", "words"):
                tidy(self._open, name)

    def forget_damaged(self, *, thorough: bool) -> list[str]:
        """Drop unreadable tables, so that the next write creates them again; return their names."""
        with self.transaction():
            tables = self._open
            # Through separate tables: an open one has cached content.
            unreadable = _find_unreadable(Tables(tables.connection, tables.state), thorough=thorough)
            damaged = {name for name, error in unreadable.items() if error.hint == REBUILD}
            # Words are written with their documents.
            damaged |= {"documents", "words"} if damaged & {"documents", "words"} else set()
            for name in damaged:
                tables.state.versions.pop(name, None)
            if "places" in damaged:
                # Only reading the files again tells which are indexed without a part.
                self.set_facts({name: None for name in tables.state.meta if name.startswith("made_by:analysis:")})
            sound = [one.fingerprint for one in tables.state.models if one.table not in damaged]
            self.keep_models({name: name for name in sound})
            return sorted(damaged)

    def cleanup(self, *, dry_run: bool = False) -> Mapping[str, int]:
        if dry_run:
            return count_unused(self._tables, self.vector_models())
        with self.transaction():
            models = self.vector_models()
            counts = count_unused(self._open, models)
            drop_unused(self._open, models)
            return counts


def _find_unreadable(tables: Tables, *, thorough: bool = True) -> dict[str, StoreError]:
    """Return unreadable tables with the reason: check all rows and indexes, or else one row."""
    found: dict[str, StoreError] = {}
    for name in (*tables.state.versions, STATE):
        try:
            table = tables.connection.open_state() if name == STATE else tables.table(name)
            if table is not None:
                with tables.connection.failing():
                    for _ in table.search().limit(None if thorough else 1).to_batches():
                        tables.check()
                    for index in table.list_indices() if thorough else ():
                        table.prewarm_index(index.name)
                    if thorough:  # tidying reads the manifests of all versions
                        table.list_versions()
        except StoreError as error:
            found[name] = error
    return found


def _complete_hashes_by_collection(
    tables: Tables, models: Mapping[str, Sequence[str] | None], collections: Iterable[str]
) -> dict[str, set[str]]:
    complete = {model: complete_hashes(tables, model) for model in models}
    read = {model: collections if names is None else names for model, names in models.items()}
    return {name: complete[model] for model, names in read.items() for name in names}


def count_unused(tables: Tables, models: Mapping[str, Sequence[str] | None]) -> Mapping[str, int]:
    return {
        # A text is a part of its document.
        "unused texts": 0,
        "unused chunks": sum(map(len, unused_chunks(tables, models, "seq >= 0").values())),
        "unused vectors": sum(map(len, unused_keys(tables).values())),
    }


def _size_bytes(table: LanceTable) -> int:
    return int(table.stats()["total_bytes"]) + sum(one.size_bytes or 0 for one in table.list_indices())
