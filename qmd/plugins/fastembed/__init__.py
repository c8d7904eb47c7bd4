"""fastembed's models, as `fastembed:NAME`: embedders, cross-encoders and late interaction.

A name and a folder come in, records and engines go out. fastembed is imported only for such a name (0.4 s); it
downloads nothing, and its models run on sessions of qmd.
"""

from __future__ import annotations

from collections.abc import Sequence

from qmd.inference.base import Embedder, EngineProvider, Reranker
from qmd.inference.records import ModelChoice, ModelRecord, Role
from qmd.inference.settings import EngineSettings


class FastembedProvider(EngineProvider):
    """Provider of the models that the installed fastembed lists."""

    def find_record(self, name: str, role: Role | None = None) -> ModelRecord:
        from qmd.plugins.fastembed.catalogue import fastembed_record

        return fastembed_record(name, role)

    def known_records(self) -> Sequence[ModelRecord]:
        """Return them in fastembed's order."""
        from qmd.plugins.fastembed.catalogue import fastembed_models

        return [model.record for model in fastembed_models()]

    def open_embedder(self, choice: ModelChoice, settings: EngineSettings) -> Embedder:
        """Open a model with fastembed's own pooling."""
        from qmd.plugins.fastembed.embedders import load_fastembed_embedder

        return load_fastembed_embedder(*choice.here, settings)

    def open_reranker(self, choice: ModelChoice, settings: EngineSettings) -> Reranker:
        """Open a cross-encoder or a late-interaction model."""
        from qmd.plugins.fastembed.rerankers import load_fastembed_reranker

        return load_fastembed_reranker(*choice.here, settings)
