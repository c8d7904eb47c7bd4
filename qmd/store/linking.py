"""Meaning of links and headings among the notes of a collection.

A link is resolved on request, from the current links and names of its collection: a note that is added, renamed or
removed changes the meaning of links in others, which are not read again for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Protocol

from qmd.analysis.note_names import NamedNote, choose_target, link_key, name_key
from qmd.analysis.scripts import analyze_text
from qmd.file_names import file_name
from qmd.note_names import is_descriptive
from qmd.records import Link, StoredDocument
from qmd.store.records import ResolvedLink

MAX_ANCHORS = 50
"""Link texts that find one note: those of the first links, by path and place."""

MANY_LINKS = 200
"""Links of one name beyond which a shared target means nothing and is expensive to evaluate."""

MAX_SHARED = 50
"""Most link targets of a note that are checked for other notes linking to them."""

MANY_NOTES = 3
"""Notes with a common heading from which it is not a title; two may well be drafts of one another."""

Written = tuple[int, str, Sequence[Link]]
"""A document, its path, and its links."""


class LinkTables(Protocol):
    """An engine's tables of links and names."""

    def links_in(self, document_id: int) -> Sequence[Link]:
        """Return the links in a document, in its order."""

    def written(self, collection: str, keys: Collection[str], limit: int | None = None) -> Iterable[Written]:
        """Yield all links of the documents that link to one of these keys, by path; at most `limit`."""

    def count_links(self, keys: Collection[str]) -> int:
        """Count the links with one of these keys."""

    def names_of(self, ids: Sequence[int]) -> Iterable[tuple[int, str]]:
        """Yield (document, name) for each name of these documents."""

    def named(self, collection: str, keys: Collection[str]) -> Mapping[str, Sequence[NamedNote]]:
        """Return the notes of a collection that have each name, by path."""


def links_from(tables: LinkTables, document: StoredDocument) -> list[ResolvedLink]:
    """Return the links in a document, in its order."""
    links = tables.links_in(document.id)
    named = tables.named(document.collection, {link_key(link.target) for link in links})
    return list(_resolve(named, [(document.id, document.path, links)]))


def links_to(tables: LinkTables, document_id: int, collection: str, limit: int | None = None) -> list[ResolvedLink]:
    """Return the links of other documents that mean this one, by path and place; check at most `limit` by name."""
    keys = {key for _, key in tables.names_of([document_id])}
    documents = tables.written(collection, keys, limit)
    written = [(at, path, [link]) for at, path, links in documents for link in links if link_key(link.target) in keys]
    if limit is not None:
        written = sorted(sorted(written, key=itemgetter(0))[:limit], key=itemgetter(1))
    found = _resolve(tables.named(collection, keys), written)
    return [one for one in found if one.target == document_id != one.source]


def count_shared_links(tables: LinkTables, document: StoredDocument) -> dict[int, float]:
    """Return the documents that share link targets, with the sum of 1/links over the shared notes.

    A target with many links means little, so the most linked ones are skipped.
    """
    targets = dict.fromkeys(one.target for one in links_from(tables, document) if one.target != document.id)
    shared: defaultdict[int, float] = defaultdict(float)
    for target in list(targets)[:MAX_SHARED]:
        if target is not None and tables.count_links({key for _, key in tables.names_of([target])}) <= MANY_LINKS:
            sources = {one.source for one in links_to(tables, target, document.collection)}
            for source in sources - {document.id}:
                shared[source] += 1 / len(sources)
    return shared


def anchors_of(tables: LinkTables, collection: str, ids: Sequence[int]) -> dict[int, str]:
    """Return the link texts of each document that are not its own names, as full text sees them."""
    wanted, keys = set(ids), {key for _, key in tables.names_of(ids)}
    texts: defaultdict[int, dict[str, str]] = defaultdict(dict)
    key_of, called, named = cache(link_key), cache(name_key), tables.named(collection, keys)

    def adds(link: Link) -> bool:
        # A link text equal to the target adds nothing, and most links are such.
        return link.text != "" and (key := key_of(link.target)) in named and called(link.text) != key

    written = ((source, path, list(filter(adds, links))) for source, path, links in tables.written(collection, keys))
    for one in _resolve(named, written):
        target, key = one.target, called(one.link.text)
        if target is None or target not in wanted or target == one.source or len(texts[target]) == MAX_ANCHORS:
            continue
        if key not in texts[target] and all(other.document_id != target for other in named.get(key, ())):
            texts[target][key] = one.link.text
    return {document_id: analyze_text("\n".join(found.values())) for document_id, found in texts.items() if found}


def _resolve(named: Mapping[str, Sequence[NamedNote]], written: Iterable[Written]) -> Iterator[ResolvedLink]:
    """Resolve links with the notes of their collection by name; equal links in one folder are resolved once."""
    known: dict[tuple[str, str], int | None] = {}
    for source, path, links in written:
        folder = path.rpartition("/")[0]
        for link in links:
            place = folder, link.target
            if place not in known and (key := link_key(link.target)):
                known[place] = choose_target(link.target, path, named.get(key, ()))
            yield ResolvedLink(source, known.get(place, source), link)


def correct_titles(documents: Sequence[tuple[int, str, str, str]]) -> list[tuple[str, int]]:
    """Return (title, document) for each (document, path, title, heading) with a wrong title.

    The title is the file's name for a heading of many documents, the heading otherwise.
    """
    n_notes, changed = Counter(heading for *_, heading in documents), list[tuple[str, int]]()
    for document_id, path, title, heading in documents:
        settled = name if n_notes[heading] >= MANY_NOTES and is_descriptive(name := file_name(path)) else heading
        changed += [(settled, document_id)] if settled != title else []
    return changed
