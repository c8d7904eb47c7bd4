"""fastembed's embedding models behind the `Embedder` protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from qmd.inference.base import EngineDescription
from qmd.inference.engines.embedder import TokenizedEmbedder, check_dim
from qmd.inference.models.catalogue import chunk_tokens
from qmd.inference.models.weights import sampled_digest
from qmd.inference.records import EmbedOverrides, ModelRecord, Vectors
from qmd.inference.runtime.parallel import map_bounded
from qmd.inference.settings import EngineSettings
from qmd.plugins.fastembed.models import OpenModel, mapped_errors, open_fastembed


class FastembedEmbedder(TokenizedEmbedder):
    """An `Embedder` over a model of fastembed's, with fastembed's own pooling and its makers' prompts.

    Args:
        overrides: The user's number of values of a vector that are kept, and length of chunks.
        prompts_from: Source of the prompts of queries and documents.
    """

    def __init__(
        self, model: OpenModel, fingerprint: str, overrides: EmbedOverrides, prompts_from: str = "its makers"
    ) -> None:
        super().__init__(model.record, model.tokenizer)
        self._model = model
        self.session = model.session
        self.fingerprint = fingerprint
        """Over weights, tokenizer, prompts, window, and fastembed's class and version, which decide the pooling."""
        self.max_tokens = chunk_tokens(model.context, "", overrides.max_tokens or model.context)
        self.description = EngineDescription("embed", self.record.name, model.format, "full", model.provider)
        self.full_dim = len(self._run(model.own.passage_embed, ["a"])[0])
        self.dim = overrides.dim or self.full_dim
        prompts = f"query {self.record.query_prompt!r}, document {self.record.document_prompt!r} ({prompts_from})"
        cut = f", the first {self.dim} dimensions" if overrides.dim else ""
        self.handling = (
            f"pooling: fastembed's {type(model.own).__name__}{cut}",
            f"prompts: {prompts if self.record.query_prompt or self.record.document_prompt else 'none'}",
            f"length: {model.context} tokens (fastembed)",
        )
        """Pooling, prompts and length, each with its source."""

    def embed_documents(self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None) -> Vectors:
        prompt = self.record.document_prompt
        return self._embed(self._model.own.passage_embed, [prompt + text for text in texts], on_progress)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._embed(self._model.own.query_embed, [self.record.query_prompt + text for text in texts], None)

    def _embed(
        self, embed: Callable[..., Any], texts: Sequence[str], on_progress: Callable[[int], None] | None
    ) -> Vectors:
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        # Longest first: the threads then finish together.
        runs = sorted(self._model.runs(texts), key=lambda run: -max(len(texts[index]) for index in run))
        parts = map_bounded(lambda run: self._run(embed, [texts[index] for index in run]), runs, self._model.threads)
        done = 0
        for indexes, vectors in zip(runs, parts, strict=True):
            rows[indexes] = [vector[: self.dim] for vector in vectors]
            done += len(indexes)
            if on_progress is not None:
                on_progress(done)
        # Some of the graphs do not normalise.
        result: Vectors = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return result

    def _run(self, embed: Callable[..., Any], texts: list[str]) -> list[Any]:
        with mapped_errors(self.record.name):
            return list(embed(texts, batch_size=len(texts)))


def load_fastembed_embedder(folder: Path, record: ModelRecord, settings: EngineSettings) -> FastembedEmbedder:
    """Open an embedding model of fastembed's from its folder.

    Raises:
        ModelError: fastembed is missing, a file is absent or damaged, or the graph does not match the record.
    """
    overrides = settings.embed_overrides
    own_prompts = {
        name: text
        for name, text in (("query_prompt", overrides.query_prompt), ("document_prompt", overrides.document_prompt))
        if text is not None
    }
    record = replace(record, **own_prompts)
    model = open_fastembed(folder, record, settings)
    import fastembed

    computed = (
        type(model.own).__name__,
        # Pooling changed between minor versions before.
        fastembed.__version__.rsplit(".", 1)[0],
        (record.document_prompt, record.query_prompt),
        model.context,
        overrides.dim,
        *filter(None, [overrides.max_tokens]),
    )
    tokenizer = (folder / "tokenizer.json").read_bytes()
    fingerprint = sampled_digest(folder / record.formats[0].weights.path, record.name, repr(computed), tokenizer)
    embedder = FastembedEmbedder(model, fingerprint, overrides, "your settings" if own_prompts else "its makers")
    check_dim(record.name, embedder.full_dim, record.dim, overrides.dim)
    return embedder
