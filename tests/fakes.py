"""Stand-ins for the models: small, deterministic, and good enough to rank."""

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from qmd.errors import ModelError
from qmd.inference.base import Embedder, EngineDescription, Engines, Expander, Expansion, Reranker
from qmd.inference.records import MINILM_SCALE, CosineScale
from qmd.records import SubQuery

_WORD = re.compile(r"\w+")
_QUOTED = re.compile(r'"([^"]*)"(\*?)')


@dataclass(frozen=True)
class HashingEmbedder:
    """An `Embedder` whose vectors are normalised bags of hashed words; `synonyms` maps a word onto another one."""

    dim: int = 256
    fingerprint: str = "0123456789abcdef"
    max_tokens: int = 200
    trust: float = 1.0
    scale: CosineScale | None = MINILM_SCALE
    synonyms: Mapping[str, str] = field(default_factory=dict)
    failure: str | None = None
    texts: list[str] = field(default_factory=list)
    """All that it was given."""
    before: Callable[[Sequence[str]], object] = len
    """Called first with what it is given."""

    @property
    def description(self) -> EngineDescription:
        return EngineDescription("embed", "hashing", "fp32", "built-in", "cpu")

    def token_starts(self, text: str) -> Sequence[int]:
        return [match.start() for match in _WORD.finditer(text)]

    def embeds(self, text: str) -> bool:
        return True

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        self.before(texts)
        self.texts.extend(texts)
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in _WORD.findall(text.lower()):
                word = self.synonyms.get(word, word)
                vectors[row, int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest()) % self.dim] += 1
        if on_progress is not None:
            on_progress(len(texts))
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return vectors

    def embed_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        if self.failure is not None:
            raise ModelError(self.failure)
        return self.embed_documents(texts)

    def query_trust(self, text: str) -> float:
        return self.trust


@dataclass
class OverlapReranker:
    """A `Reranker` that scores the share of query words in the passage; `calls` records what it was given."""

    allowed: int | None = None
    failure: str | None = None
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    tier: Literal["built-in", "full"] = "full"

    @property
    def description(self) -> EngineDescription:
        return EngineDescription("rerank", "overlap", "fp32", self.tier, "cpu")

    def score(
        self,
        query: str,
        passages: Sequence[str],
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Sequence[float | None]:
        if self.failure is not None:
            raise ModelError(self.failure)
        self.calls.append((query, tuple(passages)))
        words = set(_WORD.findall(query.lower()))
        scores: list[float | None] = []
        for number, passage in enumerate(passages):
            late = deadline_s is not None and time.monotonic() >= deadline_s
            late = late or (is_cancelled is not None and is_cancelled())
            if late or (self.allowed is not None and number >= self.allowed):
                scores.append(None)
                continue
            scores.append(len(words & set(_WORD.findall(passage.lower()))) / max(len(words), 1))
        return scores


@dataclass
class FixedExpander:
    """An `Expander` that always proposes the same sub-queries."""

    subqueries: tuple[SubQuery, ...] = ()
    failure: str | None = None
    calls: list[str] = field(default_factory=list)

    @property
    def description(self) -> EngineDescription:
        return EngineDescription("expand", "fixed", "fp32", "built-in", "cpu")

    def expand(
        self,
        query: str,
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Expansion:
        if self.failure is not None:
            raise ModelError(self.failure)
        self.calls.append(query)
        return Expansion(self.subqueries)


def fake_engines(
    embedder: Embedder | None = None, reranker: Reranker | None = None, expander: Expander | None = None
) -> Engines:
    """Engines from fakes; what is left out is absent."""
    return Engines(embedder, reranker, expander)
