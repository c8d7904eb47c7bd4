"""Keeping the tables compact: joining their small files, and deleting unused content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from lancedb.index import IvfRq
from lancedb.table import LanceTable

from qmd.errors import StoreError
from qmd.plugins.lance.state import Model
from qmd.plugins.lance.tables import REBUILD, STATE, UNINDEXED, OpenTables, Tables, both

_VERSIONS = 100
"""Changes of a table after which its many small files are joined: as many again for each `_ROWS`, since joining
rewrites most of the table. Former states, three for each transaction, are dropped with them; they are read at once."""

_ROWS = 250_000
_STATES_KEPT = timedelta(minutes=10)

KEPT = timedelta(hours=2)
"""Time that replaced versions stay for readers opened before: an hour, and one for the longest change."""

INDEXED_VECTORS = 100_000
"""Vectors of a model from which on they have an index; fewer are all compared, in 1 µs each. Two bits for each
dimension (IVF_RQ) take 50 to 130 µs a vector to build and 130 bytes to store; IVF_PQ took ten times as long."""

_TWO_BITS = "vector_2_bits"
"""That index. An older one has a single bit, and finds .89 of the ten nearest of a million where this finds .955."""

_WHOLE_BYTES = 8
"""Dimensions that the index accepts; vectors of other lengths have none."""


def tidy(tables: OpenTables, name: str, *, always: bool = False) -> None:
    """Join a table's small files, update its indexes and drop old versions, if due."""
    table = tables.table(name)
    if table is None or not (always or _is_due(tables, name, table)):
        return
    with tables.connection.failing():
        n_rows = table.count_rows()
        table.optimize(cleanup_older_than=_max_kept_age(table, tables.state.versions[name]))
        if n_rows >= INDEXED_VECTORS and _can_index(table):
            for one in table.list_indices():
                if list(one.columns) == ["vector"]:
                    table.drop_index(one.name)
            table.create_index("vector", config=IvfRq(distance_type="cosine", num_bits=2), name=_TWO_BITS)
        if table.count_rows() != n_rows:
            raise StoreError(f"index '{tables.connection.address}' was changed by two processes", "run it again")
        tables.state.versions[name] = tables.state.tidied[name] = table.version
        tables.connection.open_state().optimize(cleanup_older_than=_STATES_KEPT)


def drop_unused(tables: OpenTables, models: Mapping[str, Sequence[str] | None]) -> None:
    """Delete unused content, and compact all tables; `models` are those in use, with their collections."""
    for model, hashes in unused_chunks(tables, models).items():
        tables.delete_in("chunks", "hash", sorted({*hashes}), f"model = {model.id}")
    for model, keys in unused_keys(tables).items():
        tables.delete_in(model.table, "key", sorted(keys))
    for name in list(tables.state.versions):
        tidy(tables, name, always=True)
    for name in set(tables.connection.names()) - tables.state.versions.keys() - {STATE}:
        # Of a model whose vectors were all deleted; a reader may still use them, unless they are damaged.
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
        return bool(table.version - tables.state.tidied.get(name, 0) > _VERSIONS * (1 + table.count_rows() // _ROWS))


def _max_kept_age(table: LanceTable, committed: int) -> timedelta:
    """Return the greatest age of a version that stays: the newest of `KEPT` ago and the committed one must stay.

    LanceDB drops versions by the time at which they were written, however recently they were replaced.
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
    """Return whether it is a table of vectors without an index."""
    if "vector" not in table.schema.names or table.schema.field("vector").type.list_size % _WHOLE_BYTES:
        return False
    return not any(one.name == _TWO_BITS for one in table.list_indices())


def unused_chunks(
    tables: Tables, models: Mapping[str, Sequence[str] | None], where: str = "true"
) -> dict[Model, list[str]]:
    """Return the hash of each chunk of a text that its model does not read."""
    unused, documents = {}, tables.select("documents", ("hash", "collection"))
    for model in tables.state.models:
        names = models.get(model.fingerprint)
        texts = {row["hash"] for row in documents if names is None or row["collection"] in names}
        rows = tables.select("chunks", ("hash",), both(f"model = {model.id}", where))
        unused[model] = [row["hash"] for row in rows if row["hash"] not in texts]
    return unused


def unused_keys(tables: Tables) -> dict[Model, set[bytes]]:
    """Return the keys of vectors that no chunk refers to."""
    unused = {}
    for model in tables.state.models:
        used = {row["key"] for row in tables.select("chunks", ("key",), f"model = {model.id}")}
        unused[model] = {row["key"] for row in tables.select(model.table, ("key",))} - used
    return unused
