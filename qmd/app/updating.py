"""Updates of an index: words from the files of its collections, then missing vectors.

One process at a time computes vectors: a command, `qmd watch`, or an idle server. The last two work in slices and give
way to a command. Updates by a search are in `app/freshness`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from qmd.app.records import EmbeddingStart, EmbedRequest
from qmd.errors import ModelError
from qmd.indexing.update import UpdateReport, update_collection
from qmd.process import lower_thread_priority, usable_cpus
from qmd.store.records import OtherFiles

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qmd.indexing.reports import EmbedReport
    from qmd.inference.base import Embedder, EngineDescription
    from qmd.inference.settings import EngineSettings
    from qmd.progress import Progress
    from qmd.records import Collection
    from qmd.store.base import IndexWriter


SLICE_S = 30.0
"""Interval at which a server looks for the newest notes again, which takes some 5 % of it in an index of 80,000."""

_PATIENT_BATCH = 16
"""Texts at a time for models on a GPU or a server, where one by one wastes most of the time."""


class Update:
    """Update of an index, open for writing, from the files of its collections.

    Args:
        writer: The index.
        collections: The trusted ones.
        verify: Read every file, even if it looks unchanged.
    """

    def __init__(self, writer: IndexWriter, collections: tuple[Collection, ...], *, verify: bool) -> None:
        self._writer = writer
        self._verify = verify
        self.collections = collections

    def run(
        self, collection: Collection, on_progress: Callable[[int, int], None] | None = None, below: str = ""
    ) -> UpdateReport:
        """Update the index from the files of one collection.

        Args:
            collection: One of `collections`.
            below: Only this folder or file of it.
            on_progress: Gets (files done, files to read).

        Raises:
            NotFoundError: Its folder cannot be read.
        """
        return update_collection(self._writer, collection, below=below, verify=self._verify, on_progress=on_progress)

    def unreported_file_types(self, collection: Collection, *, again: bool) -> Counter[str]:
        """Return suffix → number of skipped files in a folder; if not `again`, only if there are new suffixes."""
        known = OtherFiles.of(self._writer.facts(), collection.name)
        from qmd.app.file_types import other_kinds

        found = other_kinds(self._writer, collection.name)
        if not again and found.keys() <= known.reported:
            return Counter()
        self._writer.set_facts(OtherFiles(known.counts, found.keys()).as_facts(collection.name))
        return found

    def pending(self) -> int:
        """Count the texts without vectors of the model used last."""
        models = self._writer.models()
        return self._writer.vector_coverage(models[-1].fingerprint if models else "").pending


def nothing_to_embed(
    writer: IndexWriter,
    settings: EngineSettings,
    request: EmbedRequest,
    on_start: Callable[[EmbeddingStart], None] | None,
) -> EmbedReport | None:
    """Return the report of `embed` if no vector is missing, without loading the model; None if it is needed."""
    from qmd.app.engines import is_words_only
    from qmd.indexing.reports import EmbedReport
    from qmd.indexing.stamps import are_chunks_current
    from qmd.inference.loader import identify_embedder
    from qmd.store.records import STAGING

    if request.force or is_words_only():
        return None
    model = identify_embedder(settings)
    if model is None or not are_chunks_current(writer, model.fingerprint):
        return None
    if model.description.tier != "built-in" and f"scale:{model.fingerprint}" not in writer.facts():
        return None
    is_staged = writer.vector_coverage(STAGING + model.fingerprint).has_vectors and not request.resumes
    if is_staged or writer.count_pending(model.fingerprint, request.collections)[0]:
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
    """Compute missing vectors; computed ones are kept however it ends."""
    from qmd.indexing import reembedding
    from qmd.indexing.embed import embed_pending
    from qmd.indexing.stamps import forget_outdated_chunks

    writer.prepare_vectors()
    collections, force = request.collections, request.force
    fingerprint = reembedding.begin(writer, embedder.fingerprint, collections, force=force, resumes=request.resumes)
    if on_start is not None:
        # `embed_pending` forgets them, too; here they would be counted as done.
        forget_outdated_chunks(writer, fingerprint)
        on_start(EmbeddingStart(embedder.description, writer.count_pending(fingerprint, collections)[0]))
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
    notes = reembedding.finish(writer, embedder.fingerprint, collections, force=force)
    return replace(report, warnings=(*report.warnings, *notes))


class ThrottledEmbedder:
    """An `Embedder` that waits before every text, or few texts, and leaves half of the processors to others.

    Args:
        inner: The embedder that computes.
        wait: Returns once nothing is more urgent; its exceptions end the work.
    """

    def __init__(self, inner: Embedder, wait: Callable[[], None]) -> None:
        self._inner = inner
        self.scale, self.dim, self.max_tokens = inner.scale, inner.dim, inner.max_tokens
        self.embed_queries, self.embeds, self.query_trust = inner.embed_queries, inner.embeds, inner.query_trust
        self._wait = wait
        self._batch = 1 if inner.description.provider == "cpu" else _PATIENT_BATCH
        self._threads = max(1, usable_cpus() // 2) if self._batch == 1 else 1

    @property
    def description(self) -> EngineDescription:
        return self._inner.description

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    def token_starts(self, text: str) -> Sequence[int]:
        # Texts are cut in Python, which blocks every other thread.
        self._wait()
        return self._inner.token_starts(text)

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        from concurrent.futures import ThreadPoolExecutor

        import numpy as np

        from qmd.batching import batches

        done: list[npt.NDArray[np.float32]] = []
        # A single text runs in the calling thread, so it has the priority of these threads.
        with ThreadPoolExecutor(self._threads, initializer=lower_thread_priority) as pool:
            for vectors in pool.map(self._embed, batches(texts, self._batch)):
                done.append(vectors)
                if on_progress is not None:
                    on_progress(sum(map(len, done)))
        return np.concatenate(done)

    def _embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self._wait()
        return self._inner.embed_documents(texts)


def refuse_another_model(embedder: Embedder, known: str | None) -> None:
    """Refuse a model that the user has not started with: its vectors take time, and a server gets every text.

    Args:
        embedder: The configured model.
        known: Fingerprint of the model whose vectors the index has; None before there are any.

    Raises:
        ModelError: The index has vectors of another model, or none and a model server would compute them.
    """
    if known is None and embedder.description.tier == "remote":
        raise ModelError("a server's model computes vectors only on request", "begin with: qmd embed")
    if known is not None and known != embedder.fingerprint:
        raise ModelError("the index has vectors of another model than the configured one", "run: qmd embed")
