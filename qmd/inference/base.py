"""The three engine protocols. The pipeline sees nothing else of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from msgspec import Struct

from qmd.records import SubQuery

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Tier = Literal["built-in", "full", "remote"]


class EngineDescription(Struct, frozen=True):
    """What runs: for `status`, `doctor`, warnings and cache keys."""

    role: Literal["embed", "rerank", "expand"]
    model: str
    format: str
    """`int8`, `q4f16`, `q8`, `fp16`, `fp32`, `remote`."""
    tier: Tier
    provider: str
    """`cpu`, `cuda` or the server's URL."""
    note: str | None = None
    """What changed while it ran and the user must know, one line: it no longer runs where it did."""


class Embedder(Protocol):
    """Text → normalised vectors."""

    @property
    def description(self) -> EngineDescription: ...

    @property
    def dim(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """16 hex digits over everything that changes a vector (weights, pooling, prompts, window). Keys the vectors."""

    @property
    def max_tokens(self) -> int:
        """Token budget of one chunk's body; names, headings and special tokens are not counted."""

    def token_starts(self, text: str) -> Sequence[int]:
        """Code-point offset of the first character of every token of `text`, ascending."""

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors, shape (len(texts), dim), L2-normalised, in the order given. `on_progress` gets the number done."""

    def embed_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors, shape (len(texts), dim), L2-normalised."""

    def embeds(self, text: str) -> bool:
        """False for a chunk that this model cannot read (mostly in another script), which is then left to BM25."""

    def query_trust(self, text: str) -> float:
        """How far this model understands `text`, in [0, 1]; 0 for scripts outside its training. Drives the weight."""


@runtime_checkable
class Telling(Protocol):
    """An embedder that may not do all that it is asked, and tells of it."""

    @property
    def warnings(self) -> Sequence[str]:
        """What was left out so far, one line each; empty for nothing."""


class Reranker(Protocol):
    """(query, passages) → relevance of each passage."""

    @property
    def description(self) -> EngineDescription: ...

    def score(
        self,
        query: str,
        passages: Sequence[str],
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Sequence[float | None]:
        """One score per passage, larger is better; None where the deadline (a `time.monotonic` value) came first.

        `is_cancelled` is asked between runs; once it is true the rest is None as well.
        Passages arrive in order of promise and are scored in that order.
        """


class Expansion(Struct, frozen=True):
    """Sub-queries the model proposed, and what validation refused: (text, reason)."""

    subqueries: tuple[SubQuery, ...]
    dropped: tuple[tuple[str, str], ...] = ()


class Expander(Protocol):
    """Query → typed sub-queries."""

    @property
    def description(self) -> EngineDescription: ...

    def expand(
        self,
        query: str,
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Expansion:
        """Validated sub-queries in the query's own language; empty when nothing survives.

        `is_cancelled` is asked between tokens.
        """


class Engines(Struct, frozen=True):
    """What `load_engines` hands to the pipeline; None where a role has no model, with the reason in `notes`."""

    embedder: Embedder | None
    reranker: Reranker | None
    expander: Expander | None
    notes: tuple[str, ...] = ()
    """What is to be said of them."""
    failures: tuple[str, ...] = ()
    """The notes that tell of a chosen model which cannot be used, and may be usable later."""
    load_ms: float = 0.0
    """What opening them took for this request; 0 where they were open."""
    standing: tuple[str, ...] = ()
    """The notes that hold for whoever comes from tobi/qmd: `doctor` and indexing tell them, and no answer does."""
