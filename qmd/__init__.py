"""qmd: on-device search over your own notes.

Takes folders of text and questions; returns ranked documents with the passage that answers. This module imports
nothing heavy: `import qmd` costs nothing until a name is used. `__all__` lists the public names; start with
`open_index`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
"""True for type checkers. Importing `typing` would take most of the time of importing this module."""

NO_TELEMETRY = ("ORT_DISABLE_TELEMETRY", "ORT_TELEMETRY_DISABLED", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK")
"""Variables that turn off telemetry in ONNX Runtime, huggingface_hub and hf_xet."""

# These libraries read the variables at import. Every process that uses qmd imports this module before them. Other
# values are overwritten, because "nothing leaves this machine" has no exceptions.
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
    """Import a public name at its first use."""
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(__import__(f"{__name__}.{module}", fromlist=["*"]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
