"""Parse documents from bytes, as an update does from files."""

from __future__ import annotations

from qmd.ingest.document import decode_file, parse_text
from qmd.ingest.outline import kind_of
from qmd.records import Document


def parse_document(path: str, raw: bytes) -> Document:
    """Return the document in `raw`, of the kind that `path` names."""
    kind = kind_of(path)
    return parse_text(path, kind, *decode_file(path, kind, raw))
