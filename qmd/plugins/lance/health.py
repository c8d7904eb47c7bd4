"""Status, soundness and tidiness of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from lancedb.index import IvfRq
from lancedb.table import LanceTable

from qmd.errors import StoreError
from qmd.plugins.lance import chunks
from qmd.plugins.lance.tables import REBUILD, STATE, OpenTables, Tables, both, literal
from qmd.status import CollectionStatus, IndexStatus, LeftOutFile
from qmd.store.runs import lock_holder

UNINDEXED = 1_000
"""Documents that a search reads one by one because the full-text index lacks them, at most when a change is complete:
about 0.2 ms each. Bringing them in writes the whole index anew, 0.5 ms for each document that there is."""

_VERSIONS = 100
"""Changes of a table after which its many small files are joined."""

KEPT = timedelta(hours=2)
"""How long what was replaced stays for readers that were opened before: an hour, and one for the longest change."""

INDEXED_VECTORS = 100_000
"""Vectors of a model from which on they have an index; fewer are all compared, in 1 µs each. One bit for each dimension
(IVF_RQ) takes 50 µs a vector to make and 64 bytes to keep; IVF_PQ took ten times as long, for no more recall."""

_WHOLE_BYTES = 8
"""Dimensions that the index takes at once; vectors of other lengths have none."""


def tidy(tables: OpenTables, name: str, *, always: bool = False) -> None:
    """Join a table's small files, bring its indexes up to date and drop old versions, where that is due."""
    table = tables.table(name)
    if table is None or not (always or _is_due(tables, name, table)):
        return
    with tables.connection.failing():
        n_rows = table.count_rows()
        table.optimize(cleanup_older_than=_age_of_oldest_kept(table, tables.state.versions[name]))
        if n_rows >= INDEXED_VECTORS and _can_index(table):
            table.create_index("vector", config=IvfRq(distance_type="cosine"))
        if table.count_rows() != n_rows:
            raise StoreError(f"index '{tables.connection.address}' was changed by two processes", "run it again")
        tables.state.versions[name] = tables.state.tidied[name] = table.version


def read_status(tables: Tables, path: Path, fingerprint: str | None) -> IndexStatus:
    """Counts of what the index holds; vectors only of the given model, None standing for the one used last."""
    state = tables.state
    model = state.model(fingerprint) if fingerprint else next(iter(state.searched[-1:]), None)
    fingerprint = model.fingerprint if model else fingerprint
    documents = tables.select("documents", ("collection", "hash"))
    counts = Counter(row["collection"] for row in documents)
    complete = chunks.done(tables, fingerprint or "")
    updated = {key.partition(":")[2]: value for key, value in state.meta.items() if key.startswith("updated_at:")}
    return IndexStatus(
        path=path,
        size_bytes=sum(_size_bytes(table) for name in state.versions if (table := tables.table(name))),
        documents=len(documents),
        embedded_documents=sum(row["hash"] in complete for row in documents),
        pending_documents=len({row["hash"] for row in documents} - complete),
        chunks=tables.count("chunks", both(f"model = {model.id}", "seq >= 0")) if model else 0,
        vectors=tables.count(model.table) if model else 0,
        updated_at=max(updated.values(), default=None),
        fingerprint=fingerprint,
        collections=tuple(
            CollectionStatus.of(one, counts.get(one.name, 0), updated.get(one.name)) for one in state.collections
        ),
        left_out=tuple(read_left_out(tables, None)),
        holder=lock_holder(path),
    )


def read_left_out(tables: Tables, collection: str | None) -> list[LeftOutFile]:
    """The files that were left out of one collection, or of all, by collection and path."""
    inside = "" if collection is None else f"collection = {literal(collection)}"
    rows = tables.select("places", ("collection", "value"), both("kind = 'left_out'", inside))
    found = [
        msgspec.structs.replace(msgspec.json.decode(row["value"], type=LeftOutFile), collection=row["collection"])
        for row in rows
    ]
    return sorted(found, key=lambda one: (one.collection, one.path))


def check(tables: Tables) -> list[str]:
    """Everything found wrong, one line each; empty when the index is sound. Reads all of it."""
    unreadable = _unreadable(tables)
    if unreadable:
        return [error.message for error in unreadable.values()]
    found = []
    for model in tables.state.models:
        stored = {row["key"] for row in tables.select(model.table, ("key",))}
        used = [row["key"] for row in tables.select("chunks", ("key",), both(f"model = {model.id}", "seq >= 0"))]
        lost = sum(key not in stored for key in used)
        if lost:
            found.append(f"{lost} chunks have no vector")
    return found


def forget_damaged(tables: OpenTables, *, thorough: bool) -> list[str]:
    """Leave out tables that cannot be read, so that whatever is written next begins them anew; their names."""
    # Through tables of its own: an open one has what is kept in memory.
    unreadable = _unreadable(Tables(tables.connection, tables.state), thorough=thorough)
    damaged = {name for name, error in unreadable.items() if error.hint == REBUILD}
    # Words are written with the documents that have them.
    damaged |= {"documents", "words"} if damaged & {"documents", "words"} else set()
    for name in damaged:
        tables.state.versions.pop(name, None)
    sound = [one.fingerprint for one in tables.state.models if one.table not in damaged]
    chunks.keep_models(tables, {name: name for name in sound})
    return sorted(damaged)


def _unreadable(tables: Tables, *, thorough: bool = True) -> dict[str, StoreError]:
    """Why tables cannot be read: all of them and their indexes, or else what says where their rows lie."""
    found: dict[str, StoreError] = {}
    for name in tables.state.versions:
        try:
            if (table := tables.table(name)) is not None:
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


def count_unused(tables: Tables) -> Mapping[str, int]:
    """What nothing refers to, per kind of thing."""
    texts = {row["hash"] for row in tables.select("documents", ("hash",))}
    return {
        # A text is a part of its document.
        "unused texts": 0,
        "unused chunks": sum(row["hash"] not in texts for row in tables.select("chunks", ("hash",), "seq >= 0")),
        "unused vectors": sum(map(len, chunks.unused_keys(tables).values())),
    }


def drop_unused(tables: OpenTables) -> None:
    """Delete what nothing refers to, and make all tables compact."""
    texts = {row["hash"] for row in tables.select("documents", ("hash",))}
    stored = {row["hash"] for row in tables.select("chunks", ("hash",))}
    tables.delete_in("chunks", "hash", sorted(stored - texts))
    for model, keys in chunks.unused_keys(tables).items():
        tables.delete_in(model.table, "key", sorted(keys))
    for name in list(tables.state.versions):
        tidy(tables, name, always=True)
    for name in set(tables.connection.names()) - tables.state.versions.keys() - {STATE}:
        # Of a model whose vectors were all cleared; a reader may still look at them, unless they are damaged.
        try:
            with tables.connection.failing():
                [*_, last] = tables.connection.open(name).list_versions()
        except StoreError as error:
            if error.hint != REBUILD:
                raise
            tables.connection.drop(name)
            continue
        if datetime.now(UTC) - last["timestamp"].astimezone(UTC) > KEPT:
            tables.connection.drop(name)


def _is_due(tables: OpenTables, name: str, table: LanceTable) -> bool:
    with tables.connection.failing():
        if name == "documents":
            stats = table.index_stats("terms_idx")
            n_rows = table.count_rows()
            if stats is None or stats.num_unindexed_rows > min(UNINDEXED, n_rows // 10 + 50):
                return True
        return bool(table.version - tables.state.tidied.get(name, 0) > _VERSIONS)


def _age_of_oldest_kept(table: LanceTable, committed: int) -> timedelta:
    """How old a version may be that stays: that which was the newest `KEPT` ago, and the committed one, must.

    LanceDB drops versions by the time at which they were written, however short a time ago they were replaced.
    """
    now = datetime.now(UTC)
    oldest = now - KEPT
    kept = now
    for one in table.list_versions():
        written = one["timestamp"].astimezone(UTC)
        if one["version"] == committed or written <= oldest:
            kept = min(written, kept) if one["version"] == committed else written
        if one["version"] == committed:
            break
    return max(now - min(kept, oldest), KEPT) + timedelta(minutes=1)


def _can_index(table: LanceTable) -> bool:
    """Whether it is a table of vectors that lacks an index of them."""
    if "vector" not in table.schema.names or table.schema.field("vector").type.list_size % _WHOLE_BYTES:
        return False
    return not any(list(one.columns) == ["vector"] for one in table.list_indices())


def _size_bytes(table: LanceTable) -> int:
    indexes = sum(one.size_bytes or 0 for one in table.list_indices())
    return int(table.stats()["total_bytes"]) + indexes
