"""fastembed's models behind the `Embedder` protocol: its catalogue of encoders.

Its import costs 0.4 s, so nothing here is loaded unless a configuration names a model as `fastembed:NAME`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.errors import ModelError
from qmd.inference.base import EngineDescription
from qmd.inference.engines.embedder import MAX_FOREIGN_CHUNK_SHARE, MAX_FOREIGN_QUERY_SHARE, foreign_share
from qmd.inference.models.fingerprints import sampled_digest
from qmd.inference.runtime.sessions import import_runtime
from qmd.inference.runtime.tokenization import Tokenizer
from qmd.inference.settings import FASTEMBED_PREFIX

_TITLE_ROOM = 32
"""Tokens kept free for the title and special tokens in front of a chunk."""


class FastembedEmbedder(Struct, frozen=True):
    """An `Embedder` over a fastembed model, one text per run: its padded default batches are 4.3x slower."""

    model: Any
    """`fastembed.TextEmbedding`, loaded."""
    name: str
    tokenizer: Tokenizer
    dim: int
    fingerprint: str
    max_tokens: int
    scripts: tuple[str, ...]

    @property
    def description(self) -> EngineDescription:
        """Model and provider; the catalogue of fastembed does not say which weights a file holds."""
        return EngineDescription("embed", FASTEMBED_PREFIX + self.name, "onnx", "full", "cpu")

    def token_starts(self, text: str) -> Sequence[int]:
        """Code-point offset of the first character of every token of `text`, ascending."""
        return self.tokenizer.token_starts(text)

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors of document texts, shape (len(texts), dim), in the order given."""
        return self._collect(self.model.passage_embed(list(texts), batch_size=1), len(texts), on_progress)

    def embed_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors of queries, shape (len(texts), dim)."""
        return self._collect(self.model.query_embed(list(texts)), len(texts), None)

    def embeds(self, text: str) -> bool:
        """False when most letters of a chunk are in scripts the model was not trained on."""
        return foreign_share(text, self.scripts) <= MAX_FOREIGN_CHUNK_SHARE

    def query_trust(self, text: str) -> float:
        """0 for scripts the model was not trained on, else 1 less the share of foreign letters."""
        foreign = foreign_share(text, self.scripts)
        return 0.0 if foreign > MAX_FOREIGN_QUERY_SHARE else 1.0 - foreign

    def _collect(
        self, vectors: Iterator[Any], n_texts: int, on_progress: Callable[[int], None] | None
    ) -> npt.NDArray[np.float32]:
        rows = np.zeros((n_texts, self.dim), dtype=np.float32)
        with _mapped_errors(self.name):
            for row, vector in enumerate(vectors):
                rows[row] = vector / max(float(np.linalg.norm(vector)), 1e-12)
                if on_progress is not None:
                    on_progress(row + 1)
        return rows


def load_fastembed(name: str, cache_dir: Path, *, threads: int = 1) -> FastembedEmbedder:
    """Open a model by fastembed's name from files that lie in `cache_dir` in fastembed's own layout.

    Raises:
        ModelError: fastembed is missing, does not know the model, or its files are absent or damaged.
    """
    import_runtime()  # fastembed would load it as it is
    try:
        from fastembed import TextEmbedding
    except ImportError as exc:
        raise ModelError(f"fastembed cannot be imported: {exc}", "reinstall qmd") from exc
    if not any(model["model"].lower() == name.lower() for model in TextEmbedding.list_supported_models()):
        raise ModelError(f"fastembed has no model '{name}'", "see: qmd models list")
    # fastembed's default tries CUDA wherever it is compiled in, and prints red lines where it cannot load.
    providers = ["CPUExecutionProvider"]
    with _mapped_errors(name):
        model = TextEmbedding(
            name, cache_dir=str(cache_dir), threads=threads, providers=providers, local_files_only=True
        )
    return wrap_fastembed(name, model)


def wrap_fastembed(name: str, model: Any) -> FastembedEmbedder:
    """An opened `fastembed.TextEmbedding` as an `Embedder`."""
    inner = model.model
    truncation: dict[str, Any] = inner.tokenizer.truncation or {}
    context = int(truncation.get("max_length", 512))
    weights = Path(inner._model_dir) / inner.model_description.model_file
    description = str(inner.model_description.description).lower()
    is_english = "english" in description and "multilingual" not in description
    return FastembedEmbedder(
        model=model,
        name=name,
        tokenizer=Tokenizer.copy_of(inner.tokenizer),
        dim=int(inner.model_description.dim),
        fingerprint=sampled_digest(weights, FASTEMBED_PREFIX + name, str(context)),
        max_tokens=max(16, min(context, 512) - _TITLE_ROOM),
        scripts=("LATIN",) if is_english else (),
    )


@contextlib.contextmanager
def _mapped_errors(name: str) -> Iterator[None]:
    """Turn what fastembed, the hub's client or the runtime raise into one `ModelError` line that names the model."""
    try:
        yield
    except ModelError:
        raise
    except Exception as exc:  # three libraries below, with no common base
        detail = " ".join(str(exc).split())[:160]
        raise ModelError(
            f"fastembed model '{name}' cannot be used: {detail}", "is it fetched? qmd models list"
        ) from exc
