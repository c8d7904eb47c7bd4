"""Bulk embedding on a GPU: an `Embedder` that sends batches to CUDA, and falls back to the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.base import EngineDescription
from qmd.inference.engines.embedder import OnnxEmbedder, TokenizedEmbedder
from qmd.inference.engines.encoder_graph import BatchRuns
from qmd.inference.records import Vectors
from qmd.inference.runtime.gpu_memory import GpuUse, OutOfMemory
from qmd.inference.runtime.sessions import cuda_works, open_session

SAME_VECTORS = 0.998
"""Mean cosine to the CPU's vectors at which another device's vectors count as the same model's. Between two processors
the built-in INT8 graph itself reaches 0.9997, and 0.994 at worst: one last digit moves its rounding."""

_CALL = 100
"""Least texts of one call for CUDA. A search embeds at most 64 missing vectors, and must not wait for CUDA."""
_PATIENCE = 256
"""Texts that the CPU embeds before CUDA is opened; opening takes about as long as these do (3 s)."""
_COMPARED = 32
"""Texts that both devices embed before vectors of the GPU are stored."""


class BulkEmbedder(TokenizedEmbedder):
    """An `Embedder` whose documents run on a GPU in batches once there are many; queries stay with `inner`.

    Args:
        open_runs: Opens batch runs on the GPU; returns None if CUDA does not work. Called once.
        open_on_cpu: Opens the embedder that continues when a single text does not fit in the GPU's memory.
        patience: Texts before `open_runs` is called.
    """

    def __init__(
        self,
        inner: OnnxEmbedder,
        open_runs: Callable[[], BatchRuns | None],
        open_on_cpu: Callable[[], OnnxEmbedder],
        *,
        patience: int = _PATIENCE,
    ) -> None:
        super().__init__(inner.record, inner.encoder.tokenizer)
        self.inner = inner
        self.dim, self.fingerprint, self.max_tokens = inner.dim, inner.fingerprint, inner.max_tokens
        self.runs: BatchRuns | None = None
        self.cosine = 0.0
        """Mean cosine between the vectors of both devices, after the comparison."""
        self._open_runs: Callable[[], BatchRuns | None] | None = open_runs
        self._open_on_cpu = open_on_cpu
        self._patience = patience
        self._note: str | None = None

    @property
    def description(self) -> EngineDescription:
        """The description of `inner`, with the GPU once documents run there, or the reason why they no longer do."""
        provider = "cuda" if self.runs is not None else self.inner.description.provider
        return replace(self.inner.description, provider=provider, note=self._note)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._embed(lambda: self.inner.embed_queries(texts))

    def embed_documents(self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None) -> Vectors:
        if len(texts) < _CALL:
            return self._embed(lambda: self.inner.embed_documents(texts, on_progress))
        self._patience -= len(texts)
        if self._open_runs is not None and self._patience < 0:
            self.open_now(texts)
        return self._embed(lambda: self.inner.embed_documents(texts, on_progress, self.runs))

    def _embed(self, run: Callable[[], Vectors]) -> Vectors:
        """Return what `run` returns; run once more on the CPU if one text does not fit in the GPU's memory."""
        try:
            return run()
        except OutOfMemory:
            if self.runs is None and self.inner.session.got == "cpu":
                raise
        # Outside the handler: its traceback would keep the session and its memory. Leave the GPU for good: its memory
        # is short, and every further batch would fail again.
        self.runs = self._open_runs = None
        self.inner = self._open_on_cpu()
        self._note = f"'{self.inner.session.name}' runs on the CPU: the GPU has no memory left for one text"
        return run()

    def open_now(self, texts: Sequence[str]) -> None:
        """Open batch runs on the GPU unless already tried, and compare vectors of some texts with the CPU's."""
        open_runs, self._open_runs = self._open_runs, None
        try:
            opened = open_runs() if open_runs is not None else None
            if opened is None:
                return
            compared = texts[:: max(1, len(texts) // _COMPARED)]
            ours, theirs = self.inner.embed_documents(compared), self.inner.embed_documents(compared, runs=opened)
            self.cosine = float((ours * theirs).sum(axis=1).mean())
            if self.cosine < SAME_VECTORS:
                raise ModelError(f"the GPU's vectors agree with the CPU's by {self.cosine:.4f} only")
            self.runs = opened
        except ModelError as exc:
            self._note = f"no documents go to the GPU in batches: {exc.message}"


def open_batches(path: Path, gpu: GpuUse) -> BatchRuns | None:
    """Return the batch runs of a graph on CUDA; None if CUDA does not work here.

    Raises:
        ModelError: Documents stay on the CPU for another reason.
    """
    if not cuda_works(gpu.device):
        return None
    session = open_session(path, format="fp32", fuse=False, gpu=gpu)
    if session.got != "cuda":
        raise ModelError(session.note or "CUDA did not load")
    return BatchRuns(session)
