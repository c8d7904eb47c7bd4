"""Report of an embedding run, separate from the code that computes, as most runs find nothing to do."""

from __future__ import annotations

from msgspec import Struct


class EmbedReport(Struct, frozen=True):
    """Counts of an embedding run."""

    documents: int
    """Distinct texts that are complete now and were not before."""
    chunks: int
    embedded: int
    """Vectors computed."""
    reused: int
    """Chunks with an existing vector: shared, renamed or unchanged text."""
    stopped: bool
    """True when `should_stop` ended the run; computed vectors are kept."""
    elapsed_s: float
    warnings: tuple[str, ...] = ()
