"""Links between notes, and the texts of links as a field of full-text search of the notes that they lead to.

What a link means is decided when it is asked, from the links and names of its collection as they are then: a note that
is added, renamed or removed changes the meaning of links in others, which are not read again for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache

from qmd.analysis.index import analyze_text
from qmd.analysis.link_targets import Named, choose_target, link_key, place_of
from qmd.analysis.note_names import name_key
from qmd.batches import batches
from qmd.records import Link, StoredDocument
from qmd.store.packing import hash_key, unpack_links
from qmd.store.records import PackedLinks, ResolvedLink
from qmd.store.sqlite.connection import Database

MAX_ANCHORS = 50
"""Texts by which one note is found: those of the first links, by path and place."""

MANY_LINKS = 200
"""Links of one name beyond which sharing the note says nothing, and would cost much to find out."""

MAX_SHARED = 50
"""Notes that one links to that are looked at for who links there, too."""

_BATCH = 20_000
"""Notes whose anchors are held at once; each batch reads the links of its collection again."""

_REMOVED_AT_ONCE = 500


_Written = tuple[int, str, str, Link]
"""A link behind the document that holds it, the path of that, and the link's key (`link_key`)."""


def put_links(database: Database, document_id: int, links: PackedLinks) -> None:
    """Store the links of a new document."""
    database.run("INSERT INTO links (source, packed) VALUES (?, ?)", (document_id, links.packed))
    rows = [(key, document_id, n) for key, n in links.counts.items()]
    database.run_many("INSERT INTO link_keys (key, source, n) VALUES (?, ?, ?)", rows)


def touch_links(database: Database, collection: str, new: Iterable[PackedLinks | None]) -> None:
    """Remember which names new documents link to, unless all anchors of the collection are yet to be made."""
    if database.value("SELECT 1 FROM meta WHERE key = ?", (f"anchored:{collection}",)):
        touched = {key for links in new if links is not None for key in _texts(unpack_links(links.packed))}
        _touch(database, collection, touched)


def remove_links(database: Database, collection: str, successors: Mapping[int, PackedLinks | None]) -> None:
    """Forget the links and the anchors of documents that go, and remember which names that concerns.

    Args:
        database: Open for writing, in a transaction.
        collection: Theirs.
        successors: Document → the links of the text that takes its place. What both link to alike is not concerned.
    """
    for part in batches(list(successors), _REMOVED_AT_ONCE):
        before = dict(_links_in(database, part))
        keys = [(hash_key(key), source) for source, texts in before.items() for key in texts]
        database.run_many("DELETE FROM link_keys WHERE key = ? AND source = ?", keys)
        touched = _names_of(database, part)
        for source in part:
            links, old = successors[source], before.get(source, {})
            new = {} if links is None else _texts(unpack_links(links.packed))
            touched.update(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        _touch(database, collection, touched)
    for sql in ("DELETE FROM links WHERE source = ?", "DELETE FROM anchors WHERE rowid = ?"):
        database.run_many(sql, [(one,) for one in successors])


def links_from(database: Database, document: StoredDocument) -> list[ResolvedLink]:
    """The links in a document, in its order."""
    rows = database.rows("SELECT packed FROM links WHERE source = ?", (document.id,))
    links = [link for (packed,) in rows for link in _unpacked(database, packed)]
    written = [(document.id, document.path, link_key(link.target), link) for link in links]
    named = _named(database, document.collection, {key for _, _, key, _ in written})
    return list(_resolved(named, written))


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
        if target is not None and _count_links(database, _names_of(database, [target])) <= MANY_LINKS:
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
    if since:
        new = "SELECT id FROM documents WHERE collection = ? AND id > ?"
        ids = [one for (one,) in database.rows(new, (collection, since))]
        touched = {key for (key,) in database.rows("SELECT key FROM touched WHERE collection = ?", (collection,))}
        touched.update(_names_of(database, ids))
        named = _named(database, collection, touched)
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
    keys = _names_of(database, [document_id])
    written = list(_written(database, collection, keys, limit))
    if limit is not None:
        written = sorted(sorted(written, key=lambda one: one[0])[:limit], key=lambda one: one[1])
    found = _resolved(_named(database, collection, keys), written)
    return [one for one in found if one.target == document_id != one.source]


def _anchors_of(database: Database, collection: str, ids: Sequence[int]) -> dict[int, str]:
    """What others call each of these documents in their links, and it does not call itself, as full text sees it."""
    own: defaultdict[int, set[str]] = defaultdict(set)
    for document_id, key in database.select_in("SELECT document, key FROM names WHERE document IN ({})", ids):
        own[document_id].add(key)
    keys = {key for names in own.values() for key in names}
    texts: defaultdict[int, dict[str, str]] = defaultdict(dict)
    key_of = cache(name_key)
    written = (one for one in _written(database, collection, keys) if one[3].text)
    for one in _resolved(_named(database, collection, keys), written):
        target, text = one.target, one.link.text
        if target is None or target not in own or target == one.source or len(texts[target]) == MAX_ANCHORS:
            continue
        if key_of(text) not in own[target]:
            texts[target].setdefault(key_of(text), text)
    return {document_id: analyze_text("\n".join(found.values())) for document_id, found in texts.items() if found}


def _touch(database: Database, collection: str, keys: Iterable[str]) -> None:
    database.run_many("INSERT OR IGNORE INTO touched VALUES (?, ?)", [(collection, key) for key in keys])


def _unpacked(database: Database, packed: bytes) -> list[Link]:
    with database.decoding():
        return unpack_links(packed)


def _texts(links: Iterable[Link]) -> dict[str, list[tuple[str, str]]]:
    """Key → (target, text) of each of its links, in order: all that anchors are made of."""
    texts: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for link in links:
        texts[link_key(link.target)].append((link.target, link.text))
    return texts


def _links_in(database: Database, ids: Sequence[int]) -> Iterator[tuple[int, dict[str, list[tuple[str, str]]]]]:
    """The links in documents, as `_texts` has them."""
    for source, packed in database.select_in("SELECT source, packed FROM links WHERE source IN ({})", ids):
        yield source, _texts(_unpacked(database, packed))


def _names_of(database: Database, ids: Sequence[int]) -> set[str]:
    return {key for (key,) in database.select_in("SELECT key FROM names WHERE document IN ({})", ids)}


def _count_links(database: Database, keys: Collection[str]) -> int:
    rows = database.select_in("SELECT sum(n) FROM link_keys WHERE key IN ({})", sorted(map(hash_key, keys)))
    return sum(n or 0 for (n,) in rows)


def _written(
    database: Database, collection: str, keys: Collection[str], limit: int | None = None
) -> Iterator[_Written]:
    """A collection's links with one of these keys, by path and place; of so many documents, where there is a limit."""
    sql = (
        "SELECT source FROM link_keys CROSS JOIN documents ON id = source"
        f" WHERE collection = ? AND key IN ({{}}) LIMIT {-1 if limit is None else limit}"
    )
    sources = {one for (one,) in database.select_in(sql, sorted(set(map(hash_key, keys))), (collection,))}
    sql = "SELECT path, id, packed FROM documents JOIN links ON source = id WHERE id IN ({})"
    key_of = cache(link_key)
    for path, source, packed in sorted(database.select_in(sql, sorted(sources))):
        for link in _unpacked(database, packed):
            key = key_of(link.target)
            if key in keys:
                yield source, path, key, link


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


def _resolved(named: Mapping[str, Sequence[Named]], written: Iterable[_Written]) -> Iterator[ResolvedLink]:
    """What links mean, with the notes of their collection by name; links alike in one folder are looked at once."""
    known: dict[tuple[str, str], int | None] = {}
    for source, path, key, link in written:
        place = path.rpartition("/")[0], link.target
        if key and place not in known:
            known[place] = choose_target(link.target, path, named.get(key, ()))
        yield ResolvedLink(source, known[place] if key else source, link)
