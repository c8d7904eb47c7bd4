"""The three engine protocols, and what opens them. The pipeline sees nothing else of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from qmd.errors import ModelError
from qmd.inference.records import Role, Tier
from qmd.plugins import ENGINES, find, load
from qmd.records import SubQuery

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qmd.inference.records import ModelChoice, ModelRecord
    from qmd.inference.settings import EngineSettings


class EngineDescription(Struct, frozen=True):
    """What runs: for `status`, `doctor`, warnings and cache keys."""

    role: Role
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

    embedder: Embedder | None = None
    reranker: Reranker | None = None
    expander: Expander | None = None
    notes: tuple[str, ...] = ()
    """What is to be said of them."""
    failures: tuple[str, ...] = ()
    """The notes that tell of a chosen model which cannot be used, and may be usable later."""
    load_ms: float = 0.0
    """What opening them took for this request; 0 where they were open."""
    lasting_notes: tuple[str, ...] = ()
    """The notes for users who come from tobi/qmd: `doctor` and indexing show them, answers do not."""


class EngineProvider:
    """Engines of one kind, as a row of `qmd.plugins.ENGINES` names them: by what a model's name begins with, or a role.

    Another package brings engines by a class derived from this one, which opens the roles that it can serve, and by a
    module with a table `ENGINES` that an entry point of the group `qmd.plugins` names. `tests/engine_contract.py` says
    what its engines must do. Models whose files `qmd models pull` is to fetch need a record, others need none.
    """

    def find_record(self, name: str, role: Role | None = None) -> ModelRecord | None:
        """The record of a model, None where it needs none.

        Args:
            role: What it is to do; None for a command on its files.

        Raises:
            NotFoundError: It is unknown, and no role is asked for.
            ModelError: It is unknown, or does not serve the role.
        """
        return None

    def known_records(self) -> Sequence[ModelRecord]:
        """Every model that has a record.

        Raises:
            ModelError: What knows them is not installed.
        """
        return ()

    def open_embedder(self, choice: ModelChoice, settings: EngineSettings) -> Embedder:
        """Open what was chosen.

        Raises:
            ModelError: It cannot be used; so say the other two.
        """
        raise ModelError("it is no embedding model")

    def open_reranker(self, choice: ModelChoice, settings: EngineSettings) -> Reranker:
        """Open what was chosen. One with files here is opened again with `allow_gpu` off when the GPU's memory ends."""
        raise ModelError("it is no reranking model")

    def open_expander(self, choice: ModelChoice, settings: EngineSettings) -> Expander:
        """See `open_reranker`."""
        raise ModelError("it is no model that expands queries")


def engine_provider(key: str) -> EngineProvider:
    """Return the provider of a row of `ENGINES`.

    Raises:
        ModelError: The row names something else.
    """
    place = find(ENGINES, key)
    provider = load(place) if place else None
    if isinstance(provider, type) and issubclass(provider, EngineProvider):
        return provider()
    raise ModelError(f"'{key}' of ENGINES names no EngineProvider")
