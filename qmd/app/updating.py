"""Updates of an index: words from the files of its collections, then missing vectors.

One process at a time computes vectors: a command, `qmd watch`, or an idle server. The last two work in slices and give
way to a command. Updates by a search are in `app/freshness`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Collection as Names
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from qmd.app.records import EmbeddingStart, EmbedRequest
from qmd.errors import ModelError
from qmd.indexing.update import UpdateReport, update_collection
from qmd.process import lower_thread_priority, usable_cpus
from qmd.store.records import OtherFiles, model_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qmd.indexing.reports import EmbedReport
    from qmd.inference.base import Embedder, EngineDescription, Engines
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
        """Count the texts without vectors of the models in use."""
        return sum(self._writer.vector_coverage(*one).pending for one in self._writer.vector_models().items())


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
    from qmd.inference.loader import chooses_by_language, identify_embedder
    from qmd.store.records import STAGING

    if request.force or is_words_only():
        return None
    first = None
    for name, collections in _split(writer, request, settings.by_collection if chooses_by_language(settings) else ()):
        model = identify_embedder(settings, name)
        if model is None or not are_chunks_current(writer, model.fingerprint):
            return None
        if model.description.tier != "built-in" and f"scale:{model.fingerprint}" not in writer.facts():
            return None
        is_staged = writer.vector_coverage(STAGING + model.fingerprint).has_vectors and not request.resumes
        if is_staged or writer.count_pending(model.fingerprint, collections)[0]:
            return None
        first = first or model
    if on_start is not None and first is not None:
        on_start(EmbeddingStart(first.description, 0))
    return EmbedReport(documents=0, chunks=0, embedded=0, reused=0, stopped=False, elapsed_s=0.0)


def _split(writer: IndexWriter, request: EmbedRequest, names: Names[str]) -> list[tuple[str, tuple[str, ...] | None]]:
    """Return the built-in models of these names that have collections in a run, with them; without any, one for all."""
    if not names:
        return [("", request.collections)]
    facts, collections = writer.facts(), request.collections or writer.collections_with_documents()
    found = [(name, tuple(one for one in collections if model_of(facts, one)[0] == name)) for name in names]
    return [(name, own) for name, own in found if own]


def embed(
    writer: IndexWriter,
    engines: Engines,
    request: EmbedRequest,
    *,
    on_start: Callable[[EmbeddingStart], None] | None,
    on_progress: Callable[[Progress], None] | None,
    should_stop: Callable[[], bool] | None,
) -> EmbedReport:
    """Compute missing vectors, of one model after the other; computed ones are kept however it ends."""
    from qmd.indexing.reports import EmbedReport

    writer.prepare_vectors()
    parts = [
        _begin_part(writer, name, embedder, own, request)
        for name, own in _split(writer, request, engines.embedders)
        if (embedder := engines.embedders.get(name, engines.embedder)) is not None
    ]
    if on_start is not None and parts:
        on_start(_describe_start(parts))
    end = None if request.timeout_s is None else time.monotonic() + request.timeout_s

    def is_over() -> bool:
        return (end is not None and time.monotonic() > end) or (should_stop is not None and should_stop())

    done = EmbedReport(documents=0, chunks=0, embedded=0, reused=0, stopped=False, elapsed_s=0.0)
    before, total = 0, sum(part.n_chars for part in parts)
    for part in parts:
        report = part.run(writer, request, on_progress and partial(_report_part, on_progress, before, total), is_over)
        sums = {count: getattr(done, count) + getattr(report, count) for count in _SUMS}
        done = replace(report, **sums, warnings=(*done.warnings, *report.warnings))
        if done.stopped:
            break
        before += part.n_chars
    return done


_SUMS = ("documents", "chunks", "embedded", "reused", "elapsed_s")


def _describe_start(parts: Sequence[_Part]) -> EmbeddingStart:
    models = [part.embedder.description for part in parts if part.n_texts] or [parts[0].embedder.description]
    shown = replace(models[0], model=" and ".join(one.model for one in models))
    return EmbeddingStart(shown, sum(part.n_texts for part in parts))


def _begin_part(
    writer: IndexWriter, name: str, embedder: Embedder, own: tuple[str, ...] | None, request: EmbedRequest
) -> _Part:
    from qmd.indexing.reembedding import begin
    from qmd.indexing.stamps import forget_outdated_chunks

    key = begin(writer, embedder.fingerprint, own, force=request.force, resumes=request.resumes)
    # `embed_pending` forgets them, too; here they would be counted as done.
    forget_outdated_chunks(writer, key)
    return _Part(name, embedder, own, key, *writer.count_pending(key, own))


class _Part(Struct, frozen=True):
    """Part of a run: a model, its name unless it reads all, its collections, the key of its vectors, and its work."""

    name: str
    embedder: Embedder
    collections: tuple[str, ...] | None
    key: str
    n_texts: int
    n_chars: int

    def run(
        self,
        writer: IndexWriter,
        request: EmbedRequest,
        on_progress: Callable[[Progress], None] | None,
        should_stop: Callable[[], bool],
    ) -> EmbedReport:
        """Embed its texts, and record the model of its collections."""
        from qmd.indexing.embed import embed_pending
        from qmd.indexing.model_choices import record_model
        from qmd.indexing.reembedding import finish

        own, fingerprint = self.collections, self.embedder.fingerprint
        report = embed_pending(
            writer,
            self.embedder,
            fingerprint=self.key,
            collections=own,
            on_progress=on_progress,
            should_stop=should_stop,
            cut_declarations=request.cut_declarations,
        )
        if report.stopped:
            return report
        notes = finish(writer, fingerprint, own, force=request.force) if self.key != fingerprint else ()
        if not notes:
            record_model(writer, own or writer.collections_with_documents(), self.name, fingerprint)
        return replace(report, warnings=(*report.warnings, *notes))


def _report_part(on_progress: Callable[[Progress], None], before: int, total: int, now: Progress) -> None:
    """Report the progress of a part of a run, `before` which others were done."""
    left_s = (total - before - now.done) / now.rate if now.rate else now.left_s
    on_progress(replace(now, done=before + now.done, total=total, left_s=left_s))


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


def refuse_another_model(writer: IndexWriter, engines: Engines) -> None:
    """Refuse a model that the user has not started with: its vectors take time, and a server gets every text.

    Raises:
        ModelError: The index has vectors of another model, or none and a model server would compute them.
    """
    models, present = writer.vector_models(), {one.fingerprint for one in writer.models()}
    for name, own in _split(writer, EmbedRequest(), engines.embedders):
        embedder = engines.embedders.get(name, engines.embedder)
        known = {one for one, read in models.items() if read is None or own is None or set(read) & set(own)} & present
        if embedder is not None and not known and embedder.description.tier == "remote":
            raise ModelError("a server's model computes vectors only on request", "begin with: qmd embed")
        if embedder is not None and known and embedder.fingerprint not in known:
            raise ModelError("the index has vectors of another model than the configured one", "run: qmd embed")


def throttle(engines: Engines, wait: Callable[[], None]) -> Engines:
    """Return the engines with embedders that wait; see `ThrottledEmbedder`."""
    patient = {name: ThrottledEmbedder(one, wait) for name, one in engines.embedders.items()}
    return replace(engines, embedder=engines.embedder and ThrottledEmbedder(engines.embedder, wait), embedders=patient)
