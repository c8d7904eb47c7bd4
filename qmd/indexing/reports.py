"""What a run that computes vectors did; apart from what computes them, as most runs find nothing to do."""

from __future__ import annotations

from msgspec import Struct


class EmbedReport(Struct, frozen=True):
    """What an embedding run did."""

    documents: int
    """Distinct texts that are complete now and were not before."""
    chunks: int
    embedded: int
    """Vectors computed."""
    reused: int
    """Chunks whose vector was there already: shared, renamed or unchanged text."""
    stopped: bool
    """True when `should_stop` ended the run; what was computed is kept."""
    elapsed_s: float
    warnings: tuple[str, ...] = ()
