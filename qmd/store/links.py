"""Links between notes, and the texts of links as a field of full-text search of the notes that they lead to.

What a link means is decided when it is asked, from the links and names of its collection as they are then: a note that
is added, renamed or removed changes the meaning of links in others, which are not read again for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache

from msgspec import Struct

from qmd.analysis.index import analyze_text
from qmd.analysis.link_targets import Named, choose_target, place_of
from qmd.analysis.note_names import name_key
from qmd.batches import batches
from qmd.records import Link, StoredDocument
from qmd.store.connection import Database, Row

MAX_ANCHORS = 50
"""Texts by which one note is found: those of the first links, by path and place."""

MANY_LINKS = 200
"""Links of one name beyond which sharing the note says nothing, and would cost much to find out."""

MAX_SHARED = 50
"""Notes that one links to that are looked at for who links there, too."""

_BATCH = 2_000
"""Notes whose incoming links are held at once."""

_COLUMNS = "links.key, links.target, links.fragment, links.text, links.line, links.embed"
"""The key, and then the fields of `Link` in order."""

_KEY, _TEXT = 2, 5
"""Where they stand in a row of `_rows_of`."""


class KeyedLink(Struct, frozen=True):
    """A link, and the name that its target ends with (`link_targets.link_key`)."""

    key: str
    link: Link


class ResolvedLink(Struct, frozen=True):
    """A link, the document that holds it, and the one that it means; None where there is no such note."""

    source: int
    target: int | None
    link: Link


def put_links(database: Database, document_id: int, links: Sequence[KeyedLink]) -> None:
    """Store the links of a new document."""
    rows = [
        (document_id, position, one.key, link.target, link.fragment, link.text, link.line, link.is_embed)
        for position, one in enumerate(links)
        for link in (one.link,)
    ]
    database.run_many("INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)


def remove_links(database: Database, collection: str, ids: Iterable[tuple[int]]) -> None:
    """Forget the links and the anchors of documents that go, and remember which names that concerns."""
    rows = [(collection, *one, *one) for one in ids]
    database.run_many(
        "INSERT OR IGNORE INTO touched SELECT ?1, key FROM names WHERE document = ?2"
        " UNION SELECT ?1, key FROM links WHERE source = ?3",
        rows,
    )
    for sql in ("DELETE FROM links WHERE source = ?", "DELETE FROM anchors WHERE rowid = ?"):
        database.run_many(sql, [row[1:2] for row in rows])


def links_from(database: Database, document: StoredDocument) -> list[ResolvedLink]:
    """The links in a document, in its order."""
    rows = database.rows(f"SELECT {_COLUMNS} FROM links WHERE source = ? ORDER BY position", (document.id,))
    found = [(document.id, document.path, *row) for row in rows]
    return _records(_resolved(database, document.collection, found))


def links_to(database: Database, document: StoredDocument, limit: int | None = None) -> list[ResolvedLink]:
    """The links of other documents that mean this one, by path and place; with a limit, of so many with its name."""
    return _links_to(database, document.id, document.collection, limit)


def count_shared_links(database: Database, document: StoredDocument) -> dict[int, float]:
    """Documents that link to what this one links to, and the sum over the shared notes of one by all links to each.

    A note that many link to says little about those that do, so the most linked ones are passed over.
    """
    targets = dict.fromkeys(one.target for one in links_from(database, document) if one.target != document.id)
    shared: defaultdict[int, float] = defaultdict(float)
    for target in list(targets)[:MAX_SHARED]:
        counted = "SELECT count(*) FROM links WHERE key IN (SELECT key FROM names WHERE document = ?)"
        if target is not None and database.value(counted, (target,)) <= MANY_LINKS:
            sources = {one.source for one in _links_to(database, target, document.collection)}
            for source in sources - {document.id}:
                shared[source] += 1 / len(sources)
    return shared


def settle_anchors(database: Database, collection: str, since: int) -> int:
    """Bring the anchors of a collection's documents up to date; to be called when its documents are complete.

    Args:
        database: Open for writing, in a transaction.
        collection: Its name.
        since: What the last call returned, 0 for the first: documents with larger ids are new.

    Returns:
        The largest id that has been counted.
    """
    new = "documents.collection = ?1 AND documents.id > ?2"
    if since:
        touched = database.rows(
            f"SELECT key FROM documents JOIN names ON names.document = documents.id WHERE {new}"
            f" UNION SELECT key FROM documents JOIN links ON links.source = documents.id WHERE {new}"
            " UNION SELECT key FROM touched WHERE collection = ?1",
            (collection, since),
        )
        named = _named(database, collection, [key for (key,) in touched])
        targets = sorted({one.document_id for found in named.values() for one in found})
        database.run_many("DELETE FROM anchors WHERE rowid = ?", [(one,) for one in targets])
    else:
        targets = [one for (one,) in database.rows("SELECT id FROM documents WHERE collection = ?", (collection,))]
    for part in batches(targets, _BATCH):
        anchors = _anchors_of(database, collection, part)
        database.run_many("INSERT INTO anchors (rowid, text) VALUES (?, ?)", sorted(anchors.items()))
    database.run("DELETE FROM touched WHERE collection = ?", (collection,))
    newest = database.value("SELECT max(id) FROM documents WHERE collection = ?", (collection,))
    return int(newest or since)


def _links_to(database: Database, document_id: int, collection: str, limit: int | None = None) -> list[ResolvedLink]:
    keys = [key for (key,) in database.rows("SELECT key FROM names WHERE document = ?", (document_id,))]
    found = _resolved(database, collection, _rows_of(database, collection, keys, limit=-1 if limit is None else limit))
    return _records(one for one in found if one[1] == document_id != one[0])


def _anchors_of(database: Database, collection: str, ids: Sequence[int]) -> dict[int, str]:
    """What others call each of these documents in their links, and it does not call itself, as full text sees it."""
    own: defaultdict[int, set[str]] = defaultdict(set)
    for document_id, key in database.select_in("SELECT document, key FROM names WHERE document IN ({})", ids):
        own[document_id].add(key)
    keys = list({key for names in own.values() for key in names})
    texts: defaultdict[int, dict[str, str]] = defaultdict(dict)
    key_of = cache(name_key)
    for source, target, row in _resolved(
        database, collection, _rows_of(database, collection, keys, "links.text != ''")
    ):
        text = row[_TEXT]
        if target is None or target not in own or target == source or len(texts[target]) == MAX_ANCHORS:
            continue
        if key_of(text) not in own[target]:
            texts[target].setdefault(key_of(text), text)
    return {document_id: analyze_text("\n".join(found.values())) for document_id, found in texts.items() if found}


def _rows_of(
    database: Database, collection: str, keys: Sequence[str], condition: str = "true", limit: int = -1
) -> list[Row]:
    """(source, its path, `_COLUMNS`) of a collection's links with one of these keys, by path and place."""
    sql = (
        f"SELECT links.source, documents.path, {_COLUMNS}, links.position FROM links"
        " CROSS JOIN documents ON documents.id = links.source"
        f" WHERE documents.collection = ? AND {condition} AND links.key IN ({{}}) LIMIT {limit}"
    )
    rows = sorted(database.select_in(sql, keys, (collection,)), key=lambda row: (row[1], row[-1]))
    return [row[:-1] for row in rows]


def _named(database: Database, collection: str, keys: Collection[str]) -> dict[str, list[Named]]:
    """The notes of a collection that have each name, by path."""
    sql = (
        "SELECT names.key, documents.path, names.document, names.kind FROM names"
        " CROSS JOIN documents ON documents.id = names.document WHERE documents.collection = ? AND names.key IN ({})"
    )
    named: defaultdict[str, list[Named]] = defaultdict(list)
    for key, path, document_id, kind in sorted(database.select_in(sql, list(keys), (collection,))):
        named[key].append(Named(document_id, place_of(path), kind))
    return named


def _resolved(database: Database, collection: str, rows: Sequence[Row]) -> Iterator[tuple[int, int | None, Row]]:
    """(source, what the link means, the row) of rows of `_rows_of`; links alike in one folder are looked at once."""
    named = _named(database, collection, {row[_KEY] for row in rows if row[_KEY]})
    known: dict[tuple[str, str], int | None] = {}
    for row in rows:
        source, path, key, target = row[:4]
        place = path.rpartition("/")[0], target
        if key and place not in known:
            known[place] = choose_target(target, path, named.get(key, ()))
        yield source, known[place] if key else source, row


def _records(resolved: Iterable[tuple[int, int | None, Row]]) -> list[ResolvedLink]:
    records = []
    for source, target, (_, _, _, written, fragment, text, line, is_embed) in resolved:
        records.append(ResolvedLink(source, target, Link(written, fragment, text, line, bool(is_embed))))
    return records
