"""Queries that an index asks itself: each heading should find the document it stands in."""

from __future__ import annotations

import random
import re

from qmd.evaluation.collections import JudgedQueries
from qmd.records import Scope
from qmd.store import IndexReader

_HEADING = re.compile(r"^#{2,4}\s+(.+?)\s*#*\s*$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]\[]{8,80})\]\((?!https?:|#|mailto:)([^)\s#]+\.md)[^)]*\)")
_MARKUP = re.compile(r"[`*_\[\]]|\([^)]*\)|\{[^}]*\}|<[^>]*>")
MIN_WORDS = 2


def known_item_queries(reader: IndexReader, scope: Scope = Scope(), limit: int = 200, seed: int = 0) -> JudgedQueries:
    """Known-item queries from headings and link texts; names are `collection/path`.

    Headings are used when they stand in one document only and have two words or more; a link's text asks for the
    document it leads to. At most `limit`, drawn at random and the same for the same seed.
    """
    texts: dict[str, set[str]] = {}
    documents = list(reader.iter_documents(scope))
    known = {f"{document.collection}/{document.path}" for document in documents}
    for document in documents:
        name = f"{document.collection}/{document.path}"
        text = reader.texts([document.hash]).get(document.hash, "")
        found = {(query, name) for raw in _HEADING.findall(text) if (query := _clean(raw))}
        for label, target in _LINK.findall(text):
            wanted = _target(name, target)
            if wanted in known and wanted != name and (query := _clean(label)):
                found.add((query, wanted))
        for query, wanted in found:
            texts.setdefault(query, set()).add(wanted)
    unique = sorted(query for query, wanted in texts.items() if len(wanted) == 1)
    chosen = random.Random(seed).sample(unique, min(limit, len(unique)))
    queries = {f"auto-{number}": query for number, query in enumerate(chosen, start=1)}
    return JudgedQueries(queries, {key: {next(iter(texts[query])): 1.0} for key, query in queries.items()})


def _clean(raw: str) -> str:
    text = " ".join(_MARKUP.sub(" ", raw).replace(":", " ").replace('"', " ").split())
    return text if len(text.split()) >= MIN_WORDS else ""


def _target(source: str, link: str) -> str:
    """The document that a relative link of `source` leads to."""
    parts = source.split("/")[:-1]
    for part in link.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
