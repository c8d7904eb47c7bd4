"""Queries from an index itself: each heading should find its document, each link's text its target."""

from __future__ import annotations

import random
import re

from qmd.ingest.outline import kind_of, read_outline
from qmd.records import Scope
from qmd.store.base import IndexReader
from tests.benchmarks.judged import JudgedQueries

_LEVELS = (2, 3, 4)
"""A heading of level 1 is the document's title, and one below 4 mostly a label."""

_LINK = re.compile(r"\[([^\]\[]{8,80})\]\((?!https?:|#|mailto:)([^)\s#]+\.md)[^)]*\)")
_MARKUP = re.compile(r"[`*_\[\]]|\([^)]*\)|\{[^}]*\}|<[^>]*>")


def known_item_queries(reader: IndexReader, scope: Scope = Scope(), limit: int = 200, seed: int = 0) -> JudgedQueries:
    """Return known-item queries from headings and link texts; names are `collection/path`.

    Headings are used when they occur in one document only and have two words or more; a link's text asks for the
    document it leads to. At most `limit`, drawn at random and the same for the same seed.
    """
    texts: dict[str, set[str]] = {}
    documents = list(reader.iter_documents(scope))
    known = {f"{document.collection}/{document.path}" for document in documents}
    for document in documents:
        name = f"{document.collection}/{document.path}"
        text = reader.texts([document.hash]).get(document.hash, "")
        for query, wanted in [*_headings(document.path, text, name), *_links(text, name)]:
            if query and wanted in known:
                texts.setdefault(query, set()).add(wanted)
    unique = sorted(query for query, wanted in texts.items() if len(wanted) == 1)
    chosen = random.Random(seed).sample(unique, min(limit, len(unique)))
    queries = {f"auto-{number}": query for number, query in enumerate(chosen, start=1)}
    return JudgedQueries(queries, {key: {next(iter(texts[query])): 1.0} for key, query in queries.items()})


def _headings(path: str, text: str, name: str) -> list[tuple[str, str]]:
    headings = read_outline(kind_of(path), text).headings
    return [(_clean(heading.text), name) for heading in headings if heading.level in _LEVELS]


def _links(text: str, name: str) -> list[tuple[str, str]]:
    found = [(_clean(label), _target(name, target)) for label, target in _LINK.findall(text)]
    return [(query, wanted) for query, wanted in found if wanted != name]


def _clean(label: str) -> str:
    text = " ".join(_MARKUP.sub(" ", label).replace(":", " ").replace('"', " ").split())
    return text if " " in text else ""


def _target(source: str, link: str) -> str:
    """Return the document that a relative link of `source` leads to."""
    parts = source.split("/")[:-1]
    for part in link.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
