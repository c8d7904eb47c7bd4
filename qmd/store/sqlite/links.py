"""Links between notes, and link texts as a full-text field of their targets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from qmd.analysis.note_names import NamedNote, link_key, name_key, path_key
from qmd.batching import batches
from qmd.records import Link
from qmd.store.base import IndexWriter
from qmd.store.records import PackedLinks, hash_key, unpack_links
from qmd.store.sqlite.connection import Database
from qmd.store.sqlite.documents import Documents

if TYPE_CHECKING:
    from qmd.store.linking import Written

_BATCH = 100_000
"""Notes whose anchors are in memory at once; each batch reads the links of its collection again."""

_REMOVED_AT_ONCE, _UNPACKED_AT_ONCE = 500, 100


class SqliteLinks:
    """The `LinkTables` of an index."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def links_in(self, document_id: int) -> Sequence[Link]:
        rows = self._database.rows("SELECT packed FROM links WHERE source = ?", (document_id,))
        with self._database.decoding():
            return [link for (packed,) in rows for link in unpack_links(packed)]

    def written(self, collection: str, keys: Collection[str], limit: int | None = None) -> Iterator[Written]:
        sql = (
            "SELECT source FROM link_keys CROSS JOIN documents ON id = source"
            f" WHERE collection = ? AND key IN ({{}}) LIMIT {-1 if limit is None else limit}"
        )
        found = self._database.select_in(sql, sorted(set(map(hash_key, keys))), (collection,))
        sql = "SELECT path, id, packed FROM documents JOIN links ON source = id WHERE id IN ({})"
        rows = self._database.select_in(sql, sorted({one for (one,) in found}))
        for part in batches(sorted(rows), _UNPACKED_AT_ONCE):
            with self._database.decoding():
                documents = [(source, path, unpack_links(packed)) for path, source, packed in part]
            yield from documents

    def count_links(self, keys: Collection[str]) -> int:
        sql = "SELECT sum(n) FROM link_keys WHERE key IN ({})"
        return sum(n or 0 for (n,) in self._database.select_in(sql, sorted(map(hash_key, keys))))

    def names_of(self, ids: Sequence[int]) -> Iterator[tuple[int, str]]:
        yield from self._database.select_in("SELECT document, key FROM names WHERE document IN ({})", ids)

    def named(self, collection: str, keys: Collection[str]) -> dict[str, list[NamedNote]]:
        sql = (
            "SELECT names.key, documents.path, names.document, names.kind FROM names CROSS JOIN documents"
            " ON documents.id = names.document WHERE documents.collection = ? AND names.key IN ({})"
        )
        named: defaultdict[str, list[NamedNote]] = defaultdict(list)
        for key, path, document_id, kind in sorted(self._database.select_in(sql, list(keys), (collection,))):
            named[key].append(NamedNote(document_id, path_key(path), kind))
        return named


class LinkWriter(Documents, IndexWriter):
    """Write methods for links and anchors."""

    def settle_since(self, collection: str, since: int) -> int:
        from qmd.store.linking import anchors_of, correct_titles

        database, tables = self.database, SqliteLinks(self.database)
        headed = "SELECT id, path, title, heading FROM documents WHERE heading IS NOT NULL AND"
        new = "SELECT id FROM documents WHERE collection = ? AND id > ?"
        ids = targets = [one for (one,) in database.rows(new, (collection, since))]
        if since:
            touched = {key for (key,) in database.rows("SELECT key FROM touched WHERE collection = ?", (collection,))}
            touched.update(key for _, key in tables.names_of(ids))
            targets = sorted({one.document_id for found in tables.named(collection, touched).values() for one in found})
            database.run_many("DELETE FROM anchors WHERE rowid = ?", [(one,) for one in targets])
            # A heading is a name of its note: if none of these is touched, it is as common as before, and some notes
            # with it are not among them.
            rows = [row for row in database.select_in(f"{headed} id IN ({{}})", targets) if name_key(row[3]) in touched]
        else:
            rows = database.rows(f"{headed} collection = ?", (collection,))
        database.run_many("UPDATE documents SET title = ? WHERE id = ?", correct_titles(rows))
        for part in batches(targets, _BATCH):
            anchors = anchors_of(tables, collection, part)
            database.run_many("INSERT INTO anchors (rowid, text) VALUES (?, ?)", sorted(anchors.items()))
        database.run("DELETE FROM touched WHERE collection = ?", (collection,))
        return max(ids, default=since)

    def _put_links(self, links: Mapping[int, PackedLinks]) -> None:
        """Store the links of new documents, keys in order: in an index of many notes a fifteenth of the writing."""
        rows = [(source, one.packed) for source, one in links.items()]
        self.database.run_many("INSERT INTO links (source, packed) VALUES (?, ?)", rows)
        keys = sorted((key, source, n) for source, one in links.items() for key, n in one.counts.items())
        self.database.run_many("INSERT INTO link_keys (key, source, n) VALUES (?, ?, ?)", keys)

    def _touch_links(self, collection: str, new: Iterable[PackedLinks | None]) -> None:
        """Record the names that new documents link to, unless all anchors of the collection are yet to be made."""
        if self.database.value("SELECT 1 FROM meta WHERE key = ?", (f"anchored:{collection}",)):
            touched = {key for links in new if links is not None for key in _texts_by_key(unpack_links(links.packed))}
            self._touch(collection, touched)

    def _remove_links(self, collection: str, successors: Mapping[int, PackedLinks | None]) -> None:
        """Delete the links and anchors of removed documents, and record the affected names.

        Args:
            collection: Their collection.
            successors: Document → the links of its replacement. Links common to both affect no names.
        """
        for part in batches(list(successors), _REMOVED_AT_ONCE):
            found = self.database.select_in("SELECT source, packed FROM links WHERE source IN ({})", part)
            with self.database.decoding():
                before = {source: _texts_by_key(unpack_links(packed)) for source, packed in found}
            keys = [(hash_key(key), source) for source, texts in before.items() for key in texts]
            self.database.run_many("DELETE FROM link_keys WHERE key = ? AND source = ?", keys)
            touched = {key for _, key in SqliteLinks(self.database).names_of(part)}
            for source in part:
                links, old = successors[source], before.get(source, {})
                new = {} if links is None else _texts_by_key(unpack_links(links.packed))
                touched.update(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
            self._touch(collection, touched)
        for sql in ("DELETE FROM links WHERE source = ?", "DELETE FROM anchors WHERE rowid = ?"):
            self.database.run_many(sql, [(one,) for one in successors])

    def _touch(self, collection: str, keys: Iterable[str]) -> None:
        self.database.run_many("INSERT OR IGNORE INTO touched VALUES (?, ?)", [(collection, key) for key in keys])


def _texts_by_key(links: Iterable[Link]) -> dict[str, list[tuple[str, str]]]:
    """Return key → (target, text) of each of its links, in order: the input of anchors."""
    texts: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for link in links:
        texts[link_key(link.target)].append((link.target, link.text))
    return texts
