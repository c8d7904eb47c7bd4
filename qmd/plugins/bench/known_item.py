"""Queries that an index asks itself: each heading should find its document, and each name of a note that note."""

from __future__ import annotations

import random
import re
from urllib.parse import quote

from qmd.file_names import aliases_of, file_name
from qmd.ingest.outline import read_outline
from qmd.plugins.bench.answers import folded
from qmd.plugins.bench.collections import JudgedQueries
from qmd.records import Scope
from qmd.store.base import IndexReader

_LEVELS = (2, 3, 4)
"""A heading of level 1 is the document's title, and one below 4 mostly a label."""

_LINK = re.compile(r"\[([^\]\[]{8,80})\]\((?!https?:|#|mailto:)([^)\s#]+\.md)[^)]*\)")
_MARKUP = re.compile(r"[`*_\[\]]|\([^)]*\)|\{[^}]*\}|<[^>]*>")


def known_item_queries(reader: IndexReader, scope: Scope = Scope(), limit: int = 200, seed: int = 0) -> JudgedQueries:
    """Known-item queries from headings and link texts; names are `collection/path`.

    Headings are used when they stand in one document only and have two words or more; a link's text asks for the
    document it leads to. Kinds are `heading` and `link`. At most `limit`, drawn at random and the same for the same
    seed.
    """
    texts: dict[str, set[str]] = {}
    headings_found: set[str] = set()
    documents = list(reader.iter_documents(scope))
    known = {f"{document.collection}/{document.path}" for document in documents}
    for document in documents:
        name = f"{document.collection}/{document.path}"
        text = reader.texts([document.hash]).get(document.hash, "")
        headings = read_outline(document.path, text).headings
        labels = [heading.text for heading in headings if heading.level in _LEVELS]
        found = {(query, name) for label in labels if (query := _clean(label))}
        headings_found.update(query for query, _ in found)
        for label, target in _LINK.findall(text):
            wanted = _target(name, target)
            if wanted in known and wanted != name and (query := _clean(label)):
                found.add((query, wanted))
        for query, wanted in found:
            texts.setdefault(query, set()).add(wanted)
    unique = sorted(query for query, wanted in texts.items() if len(wanted) == 1)
    chosen = random.Random(seed).sample(unique, min(limit, len(unique)))
    queries = {f"auto-{number}": query for number, query in enumerate(chosen, start=1)}
    return JudgedQueries(
        queries,
        {key: {next(iter(texts[query])): 1.0} for key, query in queries.items()},
        {key: "heading" if query in headings_found else "link" for key, query in queries.items()},
    )


def name_queries(reader: IndexReader, scope: Scope, limit: int, seed: int = 0) -> JudgedQueries:
    """Every name of a note as a query that should find it; documents are called `collection/path`.

    Names are that of the file without its ending and the aliases of its front matter; kinds are `name` and `alias`. A
    name that several notes carry, in whatever case, is one query that any of them answers. Ids are made of the names,
    so that runs over two states of a collection can be compared. At most `limit`, drawn as `known_item_queries` does.
    """
    documents = list(reader.iter_documents(scope))
    carried = [(file_name(one.path), "name", one) for one in documents]
    carried += [(alias, "alias", one) for one in documents for alias in aliases_of(one.metadata)]
    queries: dict[str, str] = {}
    kinds: dict[str, str] = {}
    qrels: dict[str, dict[str, float]] = {}
    for name, kind, document in carried:
        query = " ".join(name.split())
        if key := quote(folded(query), safe=""):
            queries.setdefault(key, query)
            kinds.setdefault(key, kind)
            qrels.setdefault(key, {})[f"{document.collection}/{document.path}"] = 1.0
    chosen = random.Random(seed).sample(sorted(queries), min(limit, len(queries)))
    return JudgedQueries({key: queries[key] for key in chosen}, qrels, kinds)


def _clean(label: str) -> str:
    text = " ".join(_MARKUP.sub(" ", label).replace(":", " ").replace('"', " ").split())
    return text if " " in text else ""


def _target(source: str, link: str) -> str:
    """The document that a relative link of `source` leads to."""
    parts = source.split("/")[:-1]
    for part in link.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
