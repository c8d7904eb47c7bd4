"""Where an index lies and what is configured for it come in; the index, kept in step with that configuration, goes out.

Commands, servers and the Python API open indexes here, so that all of them treat an edited configuration, an untrusted
project, a foreign index and a running embedding alike. It must not know terminals, protocols or search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmd.workspace.collections import (
        check_name,
        collection_not_found,
        remove_collection,
        rename_collection,
        require_collection,
        scope_collections,
    )
    from qmd.workspace.locks import embed_lock
    from qmd.workspace.models import engine_settings
    from qmd.workspace.opening import (
        MIRROR_TIMEOUT_MS,
        mirror,
        open_current_reader,
        open_current_writer,
        open_or_replace,
        with_the_rest,
    )

_HOMES = {
    "embed_lock": "locks",
    "engine_settings": "models",
    "mirror": "opening",
    "open_current_reader": "opening",
    "open_current_writer": "opening",
    "open_or_replace": "opening",
    "with_the_rest": "opening",
    "MIRROR_TIMEOUT_MS": "opening",
}

__all__ = [
    "MIRROR_TIMEOUT_MS",
    "check_name",
    "collection_not_found",
    "embed_lock",
    "engine_settings",
    "mirror",
    "open_current_reader",
    "open_current_writer",
    "open_or_replace",
    "remove_collection",
    "rename_collection",
    "require_collection",
    "scope_collections",
    "with_the_rest",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: a search needs one of these modules only."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'collections')}"), name)
