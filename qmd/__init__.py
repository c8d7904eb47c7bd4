"""qmd: on-device search over your own markdown.

Comes in: folders of text, questions. Goes out: ranked documents with the passage that answers. This package root must
not import anything heavy: `import qmd` costs nothing until a name is used. Everything public is in `__all__`; start
with `open_index`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
"""What type checkers take for true; `typing` itself would be most of what importing this costs."""

NO_TELEMETRY = ("ORT_DISABLE_TELEMETRY", "ORT_TELEMETRY_DISABLED", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK")
"""Variables that keep ONNX Runtime, huggingface_hub and hf_xet from reporting to their makers."""

# ONNX Runtime looks when it is imported, the others too: here no import of theirs can come first, and every process
# that runs a part of qmd passes by. Set over any other value, because "nothing leaves this machine" has no exceptions.
os.environ.update(dict.fromkeys(NO_TELEMETRY, "1"))

if TYPE_CHECKING:
    from qmd.app.index import Index
    from qmd.app.opening import default_index_path, open_index
    from qmd.app.records import (
        ContextNote,
        DocumentText,
        DocumentTexts,
        IndexHealth,
        Listing,
        NoteLink,
        NoteLinks,
        RelatedNote,
        RelatedNotes,
        SkippedDocument,
    )
    from qmd.errors import BusyError, ConfigError, ModelError, NotFoundError, QmdError, StoreError, UsageError
    from qmd.indexing.reports import EmbedReport
    from qmd.indexing.update import UpdateReport
    from qmd.records import (
        Collection,
        Explanation,
        Hit,
        Link,
        Mention,
        Passage,
        Query,
        SearchResponse,
        StoredDocument,
        SubQuery,
    )
    from qmd.retrieval.request import SearchRequest
    from qmd.status import CollectionStatus, IndexStatus

__version__ = "0.1.0"

__all__ = [
    "BusyError",
    "Collection",
    "CollectionStatus",
    "ConfigError",
    "ContextNote",
    "DocumentText",
    "DocumentTexts",
    "EmbedReport",
    "Explanation",
    "Hit",
    "Index",
    "IndexHealth",
    "IndexStatus",
    "Link",
    "Listing",
    "Mention",
    "ModelError",
    "NotFoundError",
    "NoteLink",
    "NoteLinks",
    "Passage",
    "QmdError",
    "Query",
    "RelatedNote",
    "RelatedNotes",
    "SearchRequest",
    "SearchResponse",
    "SkippedDocument",
    "StoreError",
    "StoredDocument",
    "SubQuery",
    "UpdateReport",
    "UsageError",
    "__version__",
    "default_index_path",
    "open_index",
]

_MODULES = {
    "app.index": "Index",
    "app.opening": "default_index_path open_index",
    "app.records": "ContextNote DocumentText DocumentTexts IndexHealth Listing NoteLink NoteLinks RelatedNote"
    " RelatedNotes SkippedDocument",
    "retrieval.request": "SearchRequest",
    "errors": "BusyError ConfigError ModelError NotFoundError QmdError StoreError UsageError",
    "indexing.reports": "EmbedReport",
    "indexing.update": "UpdateReport",
    "records": "Collection Explanation Hit Link Mention Passage Query SearchResponse StoredDocument SubQuery",
    "status": "CollectionStatus IndexStatus",
}
"""Module → the public names that it defines."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(__import__(f"{__name__}.{module}", fromlist=["*"]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
