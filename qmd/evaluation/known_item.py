"""Queries that an index asks itself: each heading should find the document it stands in."""

from __future__ import annotations

import random
import re

from qmd.evaluation.collections import JudgedQueries
from qmd.ingest.document import parse_document
from qmd.records import Scope
from qmd.store import IndexReader

_LEVELS = (2, 3, 4)
"""A heading of level 1 is the document's title, and one below 4 mostly a label."""

_LINK = re.compile(r"\[([^\]\[]{8,80})\]\((?!https?:|#|mailto:)([^)\s#]+\.md)[^)]*\)")
_MARKUP = re.compile(r"[`*_\[\]]|\([^)]*\)|\{[^}]*\}|<[^>]*>")


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
        raw = text.encode("utf-8", "replace")
        headings = parse_document(document.path, raw, max_size_bytes=len(raw)).headings
        labels = [heading.text for heading in headings if heading.level in _LEVELS]
        found = {(query, name) for label in labels if (query := _clean(label))}
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
