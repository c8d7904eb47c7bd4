"""Ordered candidates → hits: calibrated relevance, passage, context, explanation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from qmd.batches import batches
from qmd.quick_dataclasses import dataclass
from qmd.records import Candidate, Collection, Explanation, Hit, Passage, StoredDocument
from qmd.retrieval import calibration
from qmd.retrieval.calibration import Evidence
from qmd.retrieval.fusion import Fused
from qmd.retrieval.lookup import context_for
from qmd.retrieval.matching import MarkedText, WeightedTerm, coverage, inverse_frequency, mark_text
from qmd.retrieval.options import SearchOptions
from qmd.retrieval.snippets import best_passage
from qmd.store.base import Reader

WINDOW_CHARS = 400
"""Stretch of text (code points) in which terms count as said together; about four lines of prose."""

BATCH = 200
"""Documents whose texts are held at once."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A candidate in its final place: its fused entry, what reranking said, and the chunk that matched."""

    fused: Fused
    fused_rank: int
    rerank_score: float | None
    blended_score: float
    chunk: Candidate | None


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What relevance is measured with: the query's terms, its own background cosine, and the calibration."""

    terms: Sequence[WeightedTerm]
    n_documents: int
    background: float | None
    judge: Callable[[Evidence], float]


def build_hits(
    reader: Reader, ordered: Sequence[Ordered], yardstick: Yardstick, options: SearchOptions
) -> tuple[tuple[Hit, ...], tuple[float, ...]]:
    """Hits in the order given, cut by `min_relevance` and `limit`, and the relevances of all that were judged.

    Documents that left the index in the meantime are passed over. More than `limit` are judged when the limit is small,
    so that the relevance of the first hit does not depend on it; only those that can be shown get a passage.
    """
    wanted = ordered[: max(options.limit, calibration.POOL)]
    collections = {collection.name: collection for collection in reader.collections()}
    global_context = reader.global_context()
    shown: list[Callable[[float], Hit]] = []
    raw: list[float] = []
    for batch in batches(wanted, BATCH):
        documents = reader.documents([entry.fused.document_id for entry in batch])
        texts = reader.texts([document.hash for document in documents.values()])
        for entry in batch:
            document = documents.get(entry.fused.document_id)
            text = texts.get(document.hash) if document is not None else None
            if document is None or text is None:
                continue
            # Title and path stand in front of the text, so that they count as said together with its first lines.
            marked = mark_text(text, yardstick.terms, before=f"{document.path}\n{document.title}\n")
            raw.append(yardstick.judge(_measure(marked, entry.chunk, yardstick)))
            if len(shown) < options.limit:
                context = _context(document, collections, global_context)
                passage = _passage(document, text, marked, entry.chunk, yardstick.terms, options)
                shown.append(
                    partial(_hit, document, text if options.full_body else None, entry, passage, context, options)
                )
    relevances = calibration.non_increasing(raw)
    hits = tuple(make(value) for make, value in zip(shown, relevances, strict=False) if value >= options.min_relevance)
    return hits, tuple(relevances)


def _measure(marked: MarkedText, chunk: Candidate | None, yardstick: Yardstick) -> Evidence:
    """The evidence that calibration judges one document by."""
    return Evidence(
        coverage=coverage(marked.occurrences, yardstick.terms),
        window=coverage(marked.occurrences, yardstick.terms, WINDOW_CHARS),
        mass=sum(w.weight for w in yardstick.terms) / inverse_frequency(0, yardstick.n_documents),
        cosine=chunk.score if chunk is not None else None,
        background=yardstick.background,
    )


def _passage(
    document: StoredDocument,
    text: str,
    marked: MarkedText,
    chunk: Candidate | None,
    terms: Sequence[WeightedTerm],
    options: SearchOptions,
) -> Passage:
    span = None
    if chunk is not None and chunk.chunk_start is not None and chunk.chunk_end is not None:
        span = (chunk.chunk_start, chunk.chunk_end)
    return best_passage(
        text,
        terms,
        chunk=span,
        max_chars=options.snippet_chars,
        is_source=_is_source(document.path),
        marked=marked,
    )


def _hit(
    document: StoredDocument,
    body: str | None,
    entry: Ordered,
    passage: Passage,
    context: str | None,
    options: SearchOptions,
    relevance: float,
) -> Hit:
    explanation = Explanation(
        contributions=entry.fused.contributions,
        fused_rank=entry.fused_rank,
        fused_score=entry.fused.score,
        rerank_score=entry.rerank_score,
        blended_score=entry.blended_score,
        relevance=relevance,
    )
    return Hit(
        document=document,
        relevance=relevance,
        passage=passage,
        context=context,
        body=body,
        explanation=explanation if options.explain else None,
    )


def _is_source(path: str) -> bool:
    if path.endswith(".md"):
        return False  # nearly all documents, decided without an import
    from qmd.chunking import language_of

    return language_of(path) is not None


def _context(document: StoredDocument, collections: Mapping[str, Collection], global_context: str | None) -> str | None:
    return context_for(collections.get(document.collection), global_context, document.path)
