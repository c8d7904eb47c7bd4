"""Models: text comes in; vectors, relevance and expansions go out.

Everything outside sees the three protocols of `base`, and gets their implementations from `load_engines`.
This package must not know the store, files of the user or commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.inference.base import (
    Embedder,
    EngineDescription,
    Engines,
    Expander,
    Expansion,
    Reranker,
)

if TYPE_CHECKING:
    from qmd.inference.loader import load_engines
    from qmd.inference.settings import EngineSettings

__all__ = [
    "Embedder",
    "EngineDescription",
    "EngineSettings",
    "Engines",
    "Expander",
    "Expansion",
    "Reranker",
    "load_engines",
]


def __getattr__(name: str) -> object:
    """Load the loader when first asked for: `search` and `--help` need the protocols only."""
    if name == "load_engines":
        from qmd.inference.loader import load_engines

        return load_engines
    if name == "EngineSettings":
        from qmd.inference.settings import EngineSettings

        return EngineSettings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
