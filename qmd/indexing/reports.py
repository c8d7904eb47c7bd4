"""Report of an embedding run, separate from the code that computes, as most runs find nothing to do."""

from __future__ import annotations

from msgspec import Struct

from qmd.indexing.model_choices import UnreadCollection


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
    unread: tuple[UnreadCollection, ...] = ()
    """Collections with vectors of a model that does not read them."""

    def plus(self, other: EmbedReport) -> EmbedReport:
        """Return the counts of two parts of a run."""
        return EmbedReport(
            documents=self.documents + other.documents,
            chunks=self.chunks + other.chunks,
            embedded=self.embedded + other.embedded,
            reused=self.reused + other.reused,
            stopped=other.stopped,
            elapsed_s=self.elapsed_s + other.elapsed_s,
            warnings=(*self.warnings, *other.warnings),
        )
