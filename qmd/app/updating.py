"""Updates of an index: words from the files of its collections, then missing vectors.

One process at a time computes vectors: a command, `qmd watch`, or an idle server. The last two work in slices and give
way to a command. Updates by a search are in `app/freshness`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from qmd.app.records import EmbeddingStart, EmbedRequest
from qmd.errors import ModelError
from qmd.indexing.update import UpdateReport, update_collection
from qmd.process import lower_thread_priority, usable_cpus
from qmd.progress import Pace
from qmd.store.records import OtherFiles, chosen_models, split_by_model

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qmd.indexing.model_choices import UnreadCollection
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


def choose_models(writer: IndexWriter, settings: EngineSettings, request: EmbedRequest) -> tuple[UnreadCollection, ...]:
    """Choose the built-in models of collections; return those that keep a model which does not read their language."""
    from qmd.indexing.model_choices import choose_again
    from qmd.inference.loader import chooses_by_language

    if not chooses_by_language(settings):
        return ()
    return choose_again(writer, request.collections or writer.collections_with_documents(), force=request.force)


def nothing_to_embed(
    writer: IndexWriter,
    settings: EngineSettings,
    request: EmbedRequest,
    on_start: Callable[[EmbeddingStart], None] | None,
) -> EmbedReport | None:
    """Return the report of `embed` if no vector is missing, without loading the models; None if they are needed."""
    from qmd.app.engines import is_words_only
    from qmd.indexing.reports import EmbedReport
    from qmd.indexing.stamps import are_chunks_current
    from qmd.inference.loader import chooses_by_language, identify_embedder
    from qmd.store.records import STAGING

    if request.force or is_words_only():
        return None
    parts: dict[str, tuple[str, ...] | None] = {"": request.collections}
    if settings.by_collection and chooses_by_language(settings):
        parts = dict(split_by_model(writer.facts(), request.collections or writer.collections_with_documents()))
    first = None
    for name, collections in parts.items():
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


class _Part(Struct, frozen=True):
    """Part of a run: the collections of one model."""

    name: str
    embedder: Embedder
    collections: tuple[str, ...] | None
    used: frozenset[str]
    """Fingerprints of models whose vectors it may replace."""


def _split_run(writer: IndexWriter, engines: Engines, request: EmbedRequest) -> list[_Part]:
    """Return a part for each model, the default one first."""
    if engines.embedder is not None and not engines.embedders:
        used = frozenset(one.fingerprint for one in writer.models())
        return [_Part("", engines.embedder, request.collections, used)]
    names, models = request.collections or writer.collections_with_documents(), writer.vector_models()
    split, parts = split_by_model(writer.facts(), names), []
    for name, embedder in engines.embedders.items():
        if own := split.get(name):
            used = frozenset(one for one, read in models.items() if read is None or not {*read}.isdisjoint(own))
            parts.append(_Part(name, embedder, own, used))
    return parts


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
    from qmd.indexing import reembedding
    from qmd.indexing.embed import embed_pending
    from qmd.indexing.model_choices import record_models
    from qmd.indexing.reports import EmbedReport
    from qmd.indexing.stamps import forget_outdated_chunks

    writer.prepare_vectors()
    parts, force = _split_run(writer, engines, request), request.force
    keys, counts = [], []
    for part in parts:
        fingerprint = part.embedder.fingerprint
        key = reembedding.begin(
            writer, fingerprint, part.collections, part.used, force=force, resumes=request.resumes
        )
        # `embed_pending` forgets them, too; here they would be counted as done.
        forget_outdated_chunks(writer, key)
        keys.append(key)
        counts.append(writer.count_pending(key, part.collections))
    if on_start is not None:
        waiting = [part.embedder.description for part, count in zip(parts, counts, strict=True) if count[0]]
        first = waiting[0] if waiting else parts[0].embedder.description
        on_start(EmbeddingStart(first, sum(count[0] for count in counts), tuple(waiting[1:])))
    end = None if request.timeout_s is None else time.monotonic() + request.timeout_s

    def is_over() -> bool:
        return (end is not None and time.monotonic() > end) or (should_stop is not None and should_stop())

    done = EmbedReport(documents=0, chunks=0, embedded=0, reused=0, stopped=False, elapsed_s=0.0)
    pace = Pace(sum(count[1] for count in counts))
    for part, key in zip(parts, keys, strict=True):
        report = embed_pending(
            writer,
            part.embedder,
            fingerprint=key,
            collections=part.collections,
            on_progress=on_progress,
            should_stop=is_over,
            cut_declarations=request.cut_declarations,
            pace=pace,
        )
        done = done.plus(report)
        if report.stopped:
            break
        notes: tuple[str, ...] = ()
        if key != (fingerprint := part.embedder.fingerprint):
            notes = reembedding.finish(writer, fingerprint, part.collections, part.used, force=force)
            done = replace(done, warnings=(*done.warnings, *notes))
        if not notes:
            names = chosen_models(writer.facts()) if part.collections is None else part.collections
            record_models(writer, names, part.name, fingerprint)
    return done


def throttle(engines: Engines, wait: Callable[[], None]) -> Engines:
    """Return the engines with throttled embedders; see `ThrottledEmbedder`."""
    first = engines.embedder and ThrottledEmbedder(engines.embedder, wait)
    patient = {name: ThrottledEmbedder(one, wait) for name, one in engines.embedders.items()}
    return replace(engines, embedder=first, embedders=patient)


class ThrottledEmbedder:
    """An `Embedder` that waits before every text, or few texts, and leaves half of the processors to others.

    Args:
        inner: The embedder that computes.
        wait: Returns once nothing is more urgent; its exceptions end the work.
    """

    def __init__(self, inner: Embedder, wait: Callable[[], None]) -> None:
        self._inner = inner
        self.scale = inner.scale
        self._wait = wait
        self._batch = 1 if inner.description.provider == "cpu" else _PATIENT_BATCH
        self._threads = max(1, usable_cpus() // 2) if self._batch == 1 else 1

    @property
    def description(self) -> EngineDescription:
        return self._inner.description

    @property
    def dim(self) -> int:
        return self._inner.dim

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    @property
    def max_tokens(self) -> int:
        return self._inner.max_tokens

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

    def embed_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return self._inner.embed_queries(texts)

    def embeds(self, text: str) -> bool:
        return self._inner.embeds(text)

    def query_trust(self, text: str) -> float:
        return self._inner.query_trust(text)

    def _embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self._wait()
        return self._inner.embed_documents(texts)


def refuse_another_model(writer: IndexWriter, engines: Engines) -> None:
    """Refuse a model that the user has not started with: its vectors take time, and a server gets every text.

    Raises:
        ModelError: The index has vectors of another model, or none and a model server would compute them.
    """
    known = writer.vector_models().keys() - {""}
    for part in _split_run(writer, engines, EmbedRequest()):
        if not known and part.embedder.description.tier == "remote":
            raise ModelError("a server's model computes vectors only on request", "begin with: qmd embed")
        if part.used & known and part.embedder.fingerprint not in part.used:
            raise ModelError("the index has vectors of another model than the configured one", "run: qmd embed")
