"""What notes are called: which note has a name, and the title shown where many notes have the same heading."""

from __future__ import annotations

from collections.abc import Mapping

from qmd.records import NameKind, Scope
from qmd.store.records import NamedDocument
from qmd.store.sqlite.connection import Database
from qmd.store.sqlite.scope import scope_condition
from qmd.store.titles import MANY_NOTES, settled_title


def put_names(database: Database, document_id: int, names: Mapping[str, NameKind]) -> None:
    """Store what a new document is called."""
    rows = [(key, document_id, kind) for key, kind in names.items()]
    database.run_many("INSERT INTO names (key, document, kind) VALUES (?, ?, ?)", rows)


def find_named(database: Database, key: str, scope: Scope, limit: int) -> list[NamedDocument]:
    """Documents in scope that are called `key`, by id."""
    condition = scope_condition(scope)
    rows = database.rows(
        "SELECT names.document, names.kind FROM names CROSS JOIN documents ON documents.id = names.document"
        f" WHERE names.key = ? {'AND ' + condition.sql if condition.sql else ''} ORDER BY names.document LIMIT ?",
        (key, *condition.bindings, limit),
    )
    return [NamedDocument(*row) for row in rows]


def settle_titles(database: Database, collection: str) -> None:
    """Show the file's name for a heading that many notes of a collection have, and the heading where few have it."""
    mine = "FROM documents WHERE collection = ?1 AND heading IS NOT NULL"
    rows = database.rows(
        f"WITH shared AS (SELECT heading {mine} GROUP BY heading HAVING count(*) >= {MANY_NOTES})"
        f" SELECT id, path, title, heading, heading IN shared AS is_shared {mine} AND (title != heading OR is_shared)",
        (collection,),
    )
    changed = []
    for document_id, path, title, heading, is_shared in rows:
        settled = settled_title(path, heading, is_shared=bool(is_shared))
        if settled != title:
            changed.append((settled, document_id))
    database.run_many("UPDATE documents SET title = ? WHERE id = ?", changed)
