"""Decoder networks, as Qwen3: a folder with a graph comes in, a reranker or an expander goes out.

The package feeds and samples tokens. It must not know where models come from, or which of several was chosen.
"""

from __future__ import annotations

from qmd.inference.base import EngineProvider, Expander, Reranker
from qmd.inference.records import ModelChoice
from qmd.inference.settings import EngineSettings


class QwenProvider(EngineProvider):
    """Provider of rerankers and expanders whose files are here: of the catalogue, in folders and imported."""

    def open_reranker(self, choice: ModelChoice, settings: EngineSettings) -> Reranker:
        """Open a cross-encoder, which reads query and passage together."""
        from qmd.plugins.qwen.cross_encoder import load_cross_encoder

        return load_cross_encoder(*choice.here, settings)

    def open_expander(self, choice: ModelChoice, settings: EngineSettings) -> Expander:
        """Open a decoder that writes sub-queries."""
        from qmd.plugins.qwen.expansion import load_expander

        return load_expander(*choice.here, settings)
