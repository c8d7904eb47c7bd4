"""The three engine protocols and the providers that open engines. The pipeline sees nothing else of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from qmd.errors import ModelError
from qmd.inference.records import CosineScale, ModelChoice, ModelRecord, Role, Tier, Vectors
from qmd.plugins import ENGINES, find, load
from qmd.records import SubQuery

if TYPE_CHECKING:
    from qmd.inference.settings import EngineSettings


class EngineDescription(Struct, frozen=True):
    """Identity of a running engine, for `status`, `doctor`, warnings and cache keys."""

    role: Role
    model: str
    format: str
    """`int8`, `q4f16`, `q8`, `fp16`, `fp32`, `remote`."""
    tier: Tier
    provider: str
    """`cpu`, `cuda` or the server's URL."""
    note: str | None = None
    """A change at run time that the user must know, one line: the engine moved to another device."""


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

    @property
    def scale(self) -> CosineScale | None:
        """Scale of its cosines; None where an index has to measure it."""

    def token_starts(self, text: str) -> Sequence[int]:
        """Return the code-point offset of the first character of every token of `text`, ascending."""

    def embed_documents(self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None) -> Vectors:
        """Return vectors, shape (len(texts), dim), L2-normalised, in the order given. `on_progress` gets a count."""

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return vectors, shape (len(texts), dim), L2-normalised."""

    def embeds(self, text: str) -> bool:
        """Return False for a chunk that this model cannot read (mostly in another script); only BM25 then finds it."""

    def query_trust(self, text: str) -> float:
        """Return how far this model understands `text`, in [0, 1]; 0 for untrained scripts. Sets the weight."""


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
        """Return one score per passage, larger is better; None after the deadline (a `time.monotonic` value).

        `is_cancelled` is called between runs; once it returns True, the remaining scores are None as well. Passages
        arrive most promising first and are scored in that order.
        """


class Expansion(Struct, frozen=True):
    """Sub-queries that the model proposed, and those that validation refused: (text, reason)."""

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
        """Return validated sub-queries in the query's own language; empty when none is valid.

        `is_cancelled` is called between tokens.
        """


class Engines(Struct, frozen=True):
    """Opened engines; None for a role without a model, with the reason in `notes`."""

    embedder: Embedder | None = None
    reranker: Reranker | None = None
    expander: Expander | None = None
    notes: tuple[str, ...] = ()
    """Messages about the engines."""
    failures: tuple[str, ...] = ()
    """The notes about a chosen model that cannot be used now and may be usable later."""
    load_ms: float = 0.0
    """Time spent opening engines for this request; 0 if they were open."""
    lasting_notes: tuple[str, ...] = ()
    """The notes for users who come from tobi/qmd: `doctor` and indexing show them, answers do not."""


class EngineProvider:
    """Engines of one kind: a row of `qmd.plugins.ENGINES`, selected by the prefix of a model's name or by role.

    Another package adds engines with a class derived from this one, which opens the roles that it serves, and with a
    module with a table `ENGINES` that an entry point of the group `qmd.plugins` names. `tests/engine_contract.py`
    specifies what engines must do. Only models that `qmd models pull` fetches need a record.
    """

    def find_record(self, name: str, role: Role | None = None) -> ModelRecord | None:
        """Return the record of a model, None if it needs none.

        Args:
            role: The role to serve; None for a command on the model's files.

        Raises:
            NotFoundError: The model is unknown, and `role` is None.
            ModelError: The model is unknown, or does not serve the role.
        """
        return None

    def known_records(self) -> Sequence[ModelRecord]:
        """Return every model that has a record.

        Raises:
            ModelError: The package that lists them is not installed.
        """
        return ()

    def open_embedder(self, choice: ModelChoice, settings: EngineSettings) -> Embedder:
        """Open the chosen embedder.

        Raises:
            ModelError: It cannot be used; the other two methods raise the same.
        """
        raise ModelError("it is no embedding model")

    def open_reranker(self, choice: ModelChoice, settings: EngineSettings) -> Reranker:
        """Open the chosen reranker. Local files are reopened with `allow_gpu` off when the GPU's memory runs out."""
        raise ModelError("it is no reranking model")

    def open_expander(self, choice: ModelChoice, settings: EngineSettings) -> Expander:
        """See `open_reranker`."""
        raise ModelError("it is no model that expands queries")


def engine_provider(key: str) -> EngineProvider:
    """Return the provider of a row of `ENGINES`; a ModelError if the row names something else."""
    place = find(ENGINES, key)
    provider = load(place) if place else None
    if isinstance(provider, type) and issubclass(provider, EngineProvider):
        return provider()
    raise ModelError(f"'{key}' of ENGINES names no EngineProvider")
