"""Bringing an index up to date: words from the files of its collections, then the vectors that are missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from qmd.app.records import EmbeddingStart, EmbedRequest
from qmd.indexing.update import UpdateReport, update_collection

if TYPE_CHECKING:
    from qmd.clock import Progress
    from qmd.indexing.reports import EmbedReport
    from qmd.inference.base import Embedder
    from qmd.inference.settings import EngineSettings
    from qmd.records import Collection
    from qmd.status import EmbeddingRun, Runner
    from qmd.store.base import IndexWriter
    from qmd.store.runs import RunRecord


class Update:
    """An index, open for writing, and the collections that are to be made equal to their files.

    Args:
        writer: The index.
        collections: As far as they are trusted.
        verify: Read every file, also those that look unchanged.
    """

    def __init__(self, writer: IndexWriter, collections: tuple[Collection, ...], *, verify: bool) -> None:
        self._writer = writer
        self._verify = verify
        self.collections = collections

    def run(
        self,
        collection: Collection,
        on_progress: Callable[[int, int], None] | None = None,
        below: str = "",
    ) -> UpdateReport:
        """Make the index equal to the files of one collection.

        Args:
            collection: One of `collections`.
            below: Only this folder or file of it.
            on_progress: Gets (files done, files to read).

        Raises:
            NotFoundError: Its folder cannot be read.
        """
        return update_collection(self._writer, collection, below=below, verify=self._verify, on_progress=on_progress)

    def pending(self) -> int:
        """Texts without vectors of the model that was used last."""
        models = self._writer.models()
        return self._writer.vector_coverage(models[-1].fingerprint if models else "").pending


_Slices = MutableMapping[tuple[str, ...] | None, "EmbeddingRun"]
"""By collections, the embedding runs that are to be resumed."""


@contextmanager
def embedding_run(
    database: Path, slices: _Slices, collections: tuple[str, ...] | None, by: Runner
) -> Iterator[RunRecord]:
    """Be the one process that computes vectors, and let others see how far it is; raises what `sole_run` raises."""
    from qmd.store.runs import sole_run

    with sole_run(database, by, str(database), slices.get(collections)) as record:
        slices.pop(collections, None)
        yield record
    if record.run.is_paused:
        slices[collections] = record.run


def nothing_to_embed(
    writer: IndexWriter,
    settings: EngineSettings,
    request: EmbedRequest,
    on_start: Callable[[EmbeddingStart], None] | None,
) -> EmbedReport | None:
    """What `embed` gives where every vector is in place, told without its model; None where it has to be asked."""
    from qmd.app.engines import is_words_only
    from qmd.indexing.reports import EmbedReport
    from qmd.indexing.stamps import are_chunks_current
    from qmd.inference.loader import identify_embedder
    from qmd.store.records import ANEW

    if request.force or is_words_only():
        return None
    model = identify_embedder(settings)
    if model is None or not are_chunks_current(writer, model.fingerprint):
        return None
    if writer.vector_coverage(ANEW + model.fingerprint).has_vectors and not request.resumes:
        return None
    if writer.count_pending(model.fingerprint, request.collections)[0]:
        return None
    if on_start is not None:
        on_start(EmbeddingStart(model.description, 0))
    return EmbedReport(documents=0, chunks=0, embedded=0, reused=0, stopped=False, elapsed_s=0.0)


def embed(
    writer: IndexWriter,
    embedder: Embedder,
    request: EmbedRequest,
    *,
    on_start: Callable[[EmbeddingStart], None] | None,
    on_progress: Callable[[Progress], None] | None,
    should_stop: Callable[[], bool] | None,
) -> EmbedReport:
    """Compute the vectors that are missing; what was computed is kept however it ends."""
    from qmd.indexing import anew
    from qmd.indexing.embed import embed_pending
    from qmd.indexing.stamps import forget_outdated_chunks

    writer.prepare_vectors()
    collections, force = request.collections, request.force
    fingerprint = anew.begin(writer, embedder.fingerprint, collections, force=force, resumes=request.resumes)
    if on_start is not None:
        # `embed_pending` forgets them, too; here they would be counted as done.
        forget_outdated_chunks(writer, fingerprint)
        pending, _ = writer.count_pending(fingerprint, collections)
        on_start(EmbeddingStart(embedder.description, pending))
    end = None if request.timeout_s is None else time.monotonic() + request.timeout_s

    def is_over() -> bool:
        return (end is not None and time.monotonic() > end) or (should_stop is not None and should_stop())

    report = embed_pending(
        writer,
        embedder,
        fingerprint=fingerprint,
        collections=collections,
        on_progress=on_progress,
        should_stop=is_over,
        cut_declarations=request.cut_declarations,
    )
    if fingerprint == embedder.fingerprint or report.stopped:
        return report
    told = anew.finish(writer, embedder.fingerprint, collections, force=force)
    return replace(report, warnings=(*report.warnings, *told))
