"""Status, integrity and cleaning of the index file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qmd.status import IndexStatus
from qmd.store.runs import lock_holder
from qmd.store.sqlite.chunks import Chunks, collections_clause, known_model
from qmd.store.sqlite.connection import DamagedIndexError, Database, forget_verified
from qmd.store.sqlite.files import add_checksums

_STEPS = (
    ("unused texts", ("content",), "hash NOT IN (SELECT hash FROM documents)"),
    ("unused chunks", ("chunks", "embedded"), "content NOT IN (SELECT id FROM content)"),
)
"""(kind, its tables, condition of unused rows in them); each drop may make rows of the next kind unused."""


def read_status(reader: Chunks, fingerprint: str | None) -> IndexStatus:
    """Return counts of the stored content; vectors only of the given model, None for those in use."""
    database = reader.database
    models = reader.vector_models() if fingerprint is None else {fingerprint: None}
    ids = {model: known_model(database, model) for model in models}
    embedded = 0
    for model, names in models.items():
        inside, bound = collections_clause(names)
        embedded += database.value(
            "SELECT count(*) FROM embedded JOIN content ON content.id = embedded.content"
            f" JOIN documents ON documents.hash = content.hash WHERE embedded.model = ? {inside}",
            (ids[model], *bound),
        )
    of_models = f"WHERE model IN ({','.join(map(str, ids.values()))})"
    counts: dict[str, int] = dict(database.rows("SELECT collection, count(*) FROM documents GROUP BY collection"))
    wal = database.path.with_name(f"{database.path.name}-wal")
    return IndexStatus(
        path=database.path,
        size_bytes=database.path.stat().st_size + (wal.stat().st_size if wal.exists() else 0),
        documents=sum(counts.values()),
        embedded_documents=embedded,
        pending_documents=sum(reader.vector_coverage(*one).pending for one in models.items()),
        chunks=database.value(f"SELECT count(*) FROM chunks {of_models}"),
        vectors=database.value(f"SELECT count(*) FROM vector_keys {of_models}"),
        updated_at=reader.updated_at(),
        fingerprint=next(iter(models)) or None,
        collections=reader.collection_statuses(counts),
        left_out=tuple(reader.left_out(None)),
        holder=lock_holder(database.path),
        copies=database.value("SELECT count(*) - count(DISTINCT hash) FROM documents WHERE n_chars"),
    )


def check(database: Database, *, thorough: bool = True) -> list[str]:
    """Return every defect, one line each; empty if the file is sound. Reads the whole file.

    Args:
        database: The index.
        thorough: Also compare indexes with their tables and the parts of the full-text index with one another, which
            takes seven times as long and finds no more if pages have checksums.
    """
    try:
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"
        names = [] if thorough else [name for (name,) in database.rows(tables)]
        checks = [f'PRAGMA quick_check("{name}")' for name in names] or ["PRAGMA integrity_check(20)"]
        # A message of SQLite's can have several lines.
        found = [" ".join(row[0].split()) for sql in checks for row in database.rows(sql) if row[0] != "ok"]
        if missing := database.value("SELECT count(*) FROM documents WHERE hash NOT IN (SELECT hash FROM content)"):
            found.append(f"{missing} documents have no text")
        documents, indexed = database.rows(
            "SELECT count(*), coalesce(sum(id), 0) FROM documents UNION ALL"
            " SELECT count(*), coalesce(sum(id), 0) FROM terms_docsize"
        )
        if documents != indexed:
            found.append(f"full-text index contains {indexed[0]} documents of {documents[0]}")
        models = database.rows("SELECT id, dim FROM models")
        if lost := sum(_chunks_without_vector(database, *model) for model in models):
            found.append(f"{lost} chunks have no vector")
    except DamagedIndexError as exc:
        return [exc.message]
    if found:
        forget_verified(database.path)
    return found


def _chunks_without_vector(database: Database, model: int, dim: int) -> int:
    from qmd.store.sqlite.vec0 import vectors_of

    table = vectors_of(database, model, dim)
    there = f"SELECT rowid FROM {table.name}_rowids" if table.exists() else "SELECT NULL LIMIT 0"
    return int(database.value(f"SELECT count(*) FROM chunks WHERE model = ? AND slot NOT IN ({there})", (model,)))


def cleanup(
    database: Database, models: Mapping[str, Sequence[str] | None] = {}, *, dry_run: bool = False
) -> Mapping[str, int]:
    """Delete unused content, then shrink the file; return the number removed per kind.

    Args:
        database: Open for writing, no transaction begun.
        models: Models in use with their collections; chunks of other texts are unused.
        dry_run: Only count.
    """
    counts: dict[str, int] = {}
    for what, tables, unused in _STEPS:
        counts[what] = database.value(f"SELECT count(*) FROM {tables[0]} WHERE {unused}")
        if counts[what] and not dry_run:
            with database.transaction():
                database.run(";".join(f"DELETE FROM {table} WHERE {unused}" for table in tables))
    for model, names in models.items():
        if names is not None:
            inside, bound = collections_clause(names)
            read = f"SELECT id FROM content WHERE hash IN (SELECT hash FROM documents WHERE true {inside})"
            unused, values = f"WHERE model = ? AND content NOT IN ({read})", (known_model(database, model), *bound)
            counts["unused chunks"] += database.value(f"SELECT count(*) FROM chunks {unused}", values)
            for table in () if dry_run else ("chunks", "embedded"):
                database.run(f"DELETE FROM {table} {unused}", values)
    from qmd.store.sqlite import vectors

    counts["unused vectors"] = vectors.drop_unused(database, dry_run=dry_run)
    if dry_run:
        return counts
    for table in ("terms", "anchors"):
        database.run(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
    add_checksums(database)
    database.run("VACUUM")
    database.run("PRAGMA wal_checkpoint(TRUNCATE)")
    return counts
