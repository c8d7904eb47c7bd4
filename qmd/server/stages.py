"""Tells a caller which stage a search has reached, and lets it stop the search there.

The pipeline knows nothing of callers; it only uses engines. So the engines are wrapped: each announces itself before it
works, and an announcement that raises ends the search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from qmd.inference.base import Embedder, EngineDescription, Engines, Expander, Expansion, Reranker

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class StageSink(Protocol):
    """Told of each stage as it begins; raises when the asker has gone, which stops the work."""

    def __call__(self, stage: str, /) -> None: ...


def announce_stages(engines: Engines, on_stage: StageSink) -> Engines:
    """The same engines, announcing `expanding`, `embedding` and `reranking` before they work."""
    return Engines(
        embedder=_Embedder(engines.embedder, on_stage) if engines.embedder else None,
        reranker=_announce_reranker(engines.reranker, on_stage) if engines.reranker else None,
        expander=_Expander(engines.expander, on_stage) if engines.expander else None,
        notes=engines.notes,
        failures=engines.failures,
    )


@dataclass(frozen=True, slots=True)
class _Embedder:
    inner: Embedder
    on_stage: StageSink

    @property
    def description(self) -> EngineDescription:
        return self.inner.description

    @property
    def dim(self) -> int:
        return self.inner.dim

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def max_tokens(self) -> int:
        return self.inner.max_tokens

    def token_starts(self, text: str) -> Sequence[int]:
        return self.inner.token_starts(text)

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        return self.inner.embed_documents(texts, on_progress)

    def embed_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.on_stage("embedding")
        return self.inner.embed_queries(texts)

    def embeds(self, text: str) -> bool:
        return self.inner.embeds(text)

    def query_trust(self, text: str) -> float:
        return self.inner.query_trust(text)


@dataclass(frozen=True, slots=True)
class _Reranker:
    inner: Reranker
    on_stage: StageSink

    @property
    def description(self) -> EngineDescription:
        return self.inner.description

    def score(
        self,
        query: str,
        passages: Sequence[str],
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
    ) -> Sequence[float | None]:
        self.on_stage("reranking")
        return self.inner.score(query, passages, intent=intent, deadline_s=deadline_s)


@dataclass(frozen=True, slots=True)
class _CollectionReranker(_Reranker):
    """A reranker that the pipeline tells how rare words are; hiding that would change its scores."""

    def with_idf(self, idf: Callable[[Sequence[str]], Sequence[float]]) -> Reranker:
        inner: Any = self.inner
        return _Reranker(inner.with_idf(idf), self.on_stage)


def _announce_reranker(reranker: Reranker, on_stage: StageSink) -> Reranker:
    from qmd.retrieval.reranking import CollectionAware

    return (_CollectionReranker if isinstance(reranker, CollectionAware) else _Reranker)(reranker, on_stage)


@dataclass(frozen=True, slots=True)
class _Expander:
    inner: Expander
    on_stage: StageSink

    @property
    def description(self) -> EngineDescription:
        return self.inner.description

    def expand(self, query: str, *, intent: str | None = None, deadline_s: float | None = None) -> Expansion:
        self.on_stage("expanding")
        return self.inner.expand(query, intent=intent, deadline_s=deadline_s)
