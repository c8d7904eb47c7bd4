"""Ranked candidates → hits: calibrated relevance, passage, context, explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from qmd.clock import batches
from qmd.names import aliases_of
from qmd.records import Candidate, Explanation, Hit, StoredDocument
from qmd.retrieval import calibration
from qmd.retrieval.calibration import Evidence
from qmd.retrieval.fusion import Fused
from qmd.retrieval.lookup import context_for
from qmd.retrieval.matching import MatchedText, WeightedTerm, coverage, inverse_frequency, match_text
from qmd.retrieval.mentions import find_mention
from qmd.retrieval.naming import NAME, PART
from qmd.retrieval.query import SearchOptions
from qmd.retrieval.snippets import best_passage
from qmd.store.base import IndexReader

WINDOW_CHARS = 400
"""Stretch of text (code points) in which terms count as said together; about four lines of prose."""

BATCH = 200
"""Documents whose texts are held at once."""


SHORT_TEXT = 200
"""Characters up to which two equal texts are one only under one file name: two notes that were begun from one template,
and hold nothing else yet, are two notes."""


class RankedCandidate(Struct, frozen=True):
    """A candidate in its final place: its fused entry, what reranking said, the chunk that matched, and its copies."""

    document: StoredDocument
    fused: Fused
    fused_rank: int
    rerank_score: float | None
    blended_score: float
    chunk: Candidate | None
    also_in: tuple[str, ...] = ()

    @property
    def span(self) -> tuple[int, int] | None:
        """Where that chunk lies in the text."""
        if self.chunk is None or self.chunk.chunk_start is None or self.chunk.chunk_end is None:
            return None
        return self.chunk.chunk_start, self.chunk.chunk_end


class Scale(Struct, frozen=True):
    """What relevance is measured with: the query's terms, the size of the collection, and the calibration."""

    terms: Sequence[WeightedTerm]
    n_documents: int
    judge: Callable[[Evidence], float]
    said: Mapping[int, str] = {}
    """What is known to hold for a document beside its text, in words of the terms: its date. Whole lines, by id."""


def fold_copies(documents: Iterable[StoredDocument]) -> dict[int, tuple[str, ...]]:
    """For each first document of its text, by id and in order, the addresses of those after it that hold the same text.

    An empty text is nobody's copy.
    """
    first_of: dict[tuple[str, str], int] = {}
    copies: dict[int, tuple[str, ...]] = {}
    for document in documents:
        name = "" if document.size > SHORT_TEXT else document.path.rpartition("/")[2]
        first = first_of.setdefault((document.hash, name), document.id) if document.size else document.id
        copies[first] = copies[first] + (document.uri,) if first in copies else ()
    return copies


def build_hits(
    reader: IndexReader, ranked: Sequence[RankedCandidate], scale: Scale, options: SearchOptions
) -> tuple[tuple[Hit, ...], tuple[float, ...]]:
    """Hits in the order given, cut by `min_relevance` and `limit`, and the relevances of all that were judged.

    Documents that left the index in the meantime are passed over. More than `limit` are judged when the limit is small,
    so that the relevance of the first hit does not depend on it; only those that can be shown get a passage.
    """
    wanted = ranked[: max(options.limit, calibration.POOL)]
    collections = {collection.name: collection for collection in reader.collections()}
    global_context = reader.global_context()
    shown: list[tuple[RankedCandidate, Hit]] = []
    raw: list[float] = []
    for batch in batches(wanted, BATCH):
        texts = reader.texts([entry.document.hash for entry in batch])
        for entry in batch:
            document, text = entry.document, texts.get(entry.document.hash)
            if text is None:
                continue
            # Names stand in front of the text, so that they count as said together with its first lines.
            names = "".join(f"{name}\n" for name in (document.path, document.title, *aliases_of(document.metadata)))
            names += scale.said.get(document.id, "")
            matched = match_text(text, scale.terms, before=names)
            raw.append(scale.judge(_measure(matched, len(names), entry, scale)))
            if len(shown) < options.limit:
                passage = best_passage(
                    text,
                    scale.terms,
                    matched=matched,
                    chunk=entry.span,
                    max_chars=options.snippet_chars,
                    path=document.path,
                    title=document.title,
                    chunk_only=options.mode == "dense",
                )
                context = context_for(collections.get(document.collection), global_context, document.path)
                body = text if options.full_body else None
                mention = find_mention(reader, document, text)
                hit = Hit(document, raw[-1], passage, context, body, also_in=entry.also_in, mention=mention)
                shown.append((entry, hit))
    # The relevance of a hit depends on those of its neighbours.
    relevances = calibration.non_increasing(raw)
    hits = tuple(
        replace(hit, relevance=relevance, explanation=_explain(entry, relevance) if options.explain else None)
        for (entry, hit), relevance in zip(shown, relevances, strict=False)
        if relevance >= options.min_relevance
    )
    return hits, tuple(relevances)


def _measure(matched: MatchedText, names_end: int, entry: RankedCandidate, scale: Scale) -> Evidence:
    """The evidence that calibration judges one document by; its names end at `names_end`."""
    chunk = entry.chunk
    # Folding may move that border by a letter or two, which the evidence survives.
    in_names = [occurrence for occurrence in matched.occurrences if occurrence.offset < names_end]
    return Evidence(
        coverage=coverage(matched.occurrences, scale.terms),
        window=coverage(matched.occurrences, scale.terms, WINDOW_CHARS),
        mass=sum(term.weight for term in scale.terms) / inverse_frequency(0, scale.n_documents),
        cosine=chunk.score if chunk is not None else None,
        in_names=coverage(in_names, scale.terms),
        n_terms=len(scale.terms),
        n_documents=scale.n_documents,
        is_named=any(part.source == NAME and part.kind != PART for part in entry.fused.contributions),
    )


def _explain(ranked: RankedCandidate, relevance: float) -> Explanation:
    return Explanation(
        contributions=ranked.fused.contributions,
        fused_rank=ranked.fused_rank,
        fused_score=ranked.fused.score,
        rerank_score=ranked.rerank_score,
        blended_score=ranked.blended_score,
        relevance=relevance,
    )
