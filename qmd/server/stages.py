"""Tells a caller which stage a search has reached, and lets it stop the search there or between two runs of a model.

The pipeline knows nothing of callers; it only uses engines. So the engines are wrapped: each announces itself before it
works, asks between runs whether anybody still waits, and ends the search when nobody does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from qmd.inference.base import Embedder, EngineDescription, Engines, Expander, Expansion, Reranker

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class CancelledSearch(Exception):
    """Nobody waits for the answer any more."""


class Listener(Protocol):
    """Who waits for the answer of a search."""

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits any more."""
        ...

    def stage(self, stage: str, /) -> None:
        """Told of each stage as it begins; may raise to end the work."""
        ...


class NoListener:
    """Waits to the end and wants to hear of no stage."""

    is_gone = False

    def stage(self, stage: str, /) -> None:
        """See `Listener`."""


def begin_stage(listener: Listener, stage: str) -> None:
    """Tell of a stage, unless nobody is there to be told.

    Raises:
        CancelledSearch: If so.
    """
    if listener.is_gone:
        raise CancelledSearch
    listener.stage(stage)


def announce_stages(engines: Engines, listener: Listener) -> Engines:
    """The same engines, announcing `expanding`, `embedding` and `reranking`; they raise `CancelledSearch`."""
    return Engines(
        embedder=_Embedder(engines.embedder, listener) if engines.embedder else None,
        reranker=_announce_reranker(engines.reranker, listener) if engines.reranker else None,
        expander=_Expander(engines.expander, listener) if engines.expander else None,
        notes=engines.notes,
        failures=engines.failures,
    )


@dataclass(frozen=True, slots=True)
class _Embedder:
    inner: Embedder
    listener: Listener

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
        begin_stage(self.listener, "embedding")
        return self.inner.embed_queries(texts)

    def embeds(self, text: str) -> bool:
        return self.inner.embeds(text)

    def query_trust(self, text: str) -> float:
        return self.inner.query_trust(text)


@dataclass(frozen=True, slots=True)
class _Reranker:
    inner: Reranker
    listener: Listener

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
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Sequence[float | None]:
        begin_stage(self.listener, "reranking")
        scores = self.inner.score(
            query, passages, intent=intent, deadline_s=deadline_s, is_cancelled=lambda: self.listener.is_gone
        )
        if self.listener.is_gone:
            raise CancelledSearch
        return scores


@dataclass(frozen=True, slots=True)
class _CollectionReranker(_Reranker):
    """A reranker that the pipeline tells how rare words are; hiding that would change its scores."""

    def with_idf(self, idf: Callable[[Sequence[str]], Sequence[float]]) -> Reranker:
        inner: Any = self.inner
        return _Reranker(inner.with_idf(idf), self.listener)


def _announce_reranker(reranker: Reranker, listener: Listener) -> Reranker:
    from qmd.retrieval.reranking import CollectionAware

    return (_CollectionReranker if isinstance(reranker, CollectionAware) else _Reranker)(reranker, listener)


@dataclass(frozen=True, slots=True)
class _Expander:
    inner: Expander
    listener: Listener

    @property
    def description(self) -> EngineDescription:
        return self.inner.description

    def expand(
        self,
        query: str,
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Expansion:
        begin_stage(self.listener, "expanding")
        expansion = self.inner.expand(
            query, intent=intent, deadline_s=deadline_s, is_cancelled=lambda: self.listener.is_gone
        )
        if self.listener.is_gone:
            raise CancelledSearch
        return expansion
