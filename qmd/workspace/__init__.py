"""Where an index lies and what is configured for it come in; the index, kept in step with that configuration, goes out.

Commands, servers and the Python API open indexes here, so that all of them treat an edited configuration, an untrusted
project, a foreign index and a running embedding alike. It must not know terminals, protocols or search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.lazy import lazy_names

if TYPE_CHECKING:
    from qmd.workspace.collections import (
        check_name,
        collection_not_found,
        remove_collection,
        rename_collection,
        require_collection,
    )
    from qmd.workspace.locks import clean_index, embed_lock
    from qmd.workspace.models import engine_settings
    from qmd.workspace.opening import (
        MIRROR_TIMEOUT_MS,
        mend,
        mirror,
        open_current_reader,
        open_current_writer,
        open_or_make,
        with_the_rest,
    )

_HOMES = {
    "clean_index": "locks",
    "embed_lock": "locks",
    "engine_settings": "models",
    "mend": "opening",
    "mirror": "opening",
    "open_current_reader": "opening",
    "open_current_writer": "opening",
    "open_or_make": "opening",
    "with_the_rest": "opening",
    "MIRROR_TIMEOUT_MS": "opening",
}

__all__ = [
    "MIRROR_TIMEOUT_MS",
    "check_name",
    "clean_index",
    "collection_not_found",
    "embed_lock",
    "engine_settings",
    "mend",
    "mirror",
    "open_current_reader",
    "open_current_writer",
    "open_or_make",
    "remove_collection",
    "rename_collection",
    "require_collection",
    "with_the_rest",
]


# A search needs one of these modules only.
__getattr__ = lazy_names(__name__, __all__, _HOMES, "collections")
