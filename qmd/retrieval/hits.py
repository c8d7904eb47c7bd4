"""Hits: relevance, passages, context and explanation of ranked candidates, and for a stub its mention elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from qmd.batching import batches
from qmd.note_names import aliases_of
from qmd.records import Candidate, Explanation, Hit, LexicalTerm, Mention, Passage, StoredDocument
from qmd.retrieval import calibration
from qmd.retrieval.calibration import Evidence
from qmd.retrieval.fusion import FusedCandidate
from qmd.retrieval.literal_matches import LITERAL
from qmd.retrieval.lookup import context_for
from qmd.retrieval.matching import (
    WINDOW_CHARS,
    MatchedText,
    WeightedTerm,
    coverage,
    find_spans,
    header_lines,
    inverse_frequency,
    match_text,
)
from qmd.retrieval.name_matches import NAME
from qmd.retrieval.request import SearchRequest
from qmd.retrieval.snippets import FILL_CHARS, choose_passages
from qmd.store.base import IndexReader

BATCH = 200
"""Documents whose texts are in memory at once."""


SHORT_TEXT = 200
"""Characters up to which equal texts are copies only under one file name: two unfilled templates are two notes."""

MAX_STUB_LETTERS = 40
"""Letters of prose in a stub, fewer than in a short sentence; Chinese, Japanese, Korean ones count three times."""

LEAST_LETTERS = 8
"""Fewest letters, without links, in a line that mentions a stub."""

_MAX_STUB_CHARACTERS = 2_000
"""Length above which no text is a stub; most hits are longer."""

_MAX_LINKS = 20
_MENTION_CHARACTERS = 200
_NO_PROSE = (
    r"(?ms)^(?:```|~~~)[ \t]*(?:dataview\w*|tasks|query|button|toc)\b.*?(?:^(?:```|~~~)[^\n]*$|\Z)"
    r"|^[ \t]*#{1,6}[ \t][^\n]*"
    r"|!?\[\[[^\[\]\n]*\]\]|!?\[[^\[\]\n]*\]\([^()\n]*\)|https?://\S+|#[\w/-]+"
    r"|<!--.*?(?:-->|\Z)|<%.*?(?:%>|\Z)|\{\{.*?(?:\}\}|\Z)|<[^<>\n]*>|^[^\n:]{1,40}:(?::[^\n]*|[ \t]*$)"
)
"""Queries of plug-ins, headings, links, tags, comments, template marks, and fields (`key:: value`), uncompiled."""


class RankedCandidate(Struct, frozen=True):
    """A candidate at its final rank: fused entry, rerank score, matched chunk, and copies."""

    document: StoredDocument
    fused: FusedCandidate
    fused_rank: int
    rerank_score: float | None
    blended_score: float
    chunk: Candidate | None
    also_in: tuple[str, ...] = ()

    @property
    def span(self) -> tuple[int, int] | None:
        """Offsets of that chunk in the text."""
        if self.chunk is None or self.chunk.chunk_start is None or self.chunk.chunk_end is None:
            return None
        return self.chunk.chunk_start, self.chunk.chunk_end


class RelevanceScale(Struct, frozen=True):
    """Basis of relevance: the query's terms, the size of the collection, and the calibration."""

    terms: Sequence[WeightedTerm]
    n_judged: int
    """The first of the terms, which are evidence; a month or longer behind them selects and orders only."""
    n_documents: int
    judge: Callable[[Evidence], float]
    known_text: Mapping[int, str] = {}
    """Text known of a document in addition to its own, such as its date: whole lines, by id."""
    searched: Sequence[LexicalTerm] = ()
    """Terms without those that no document contains; for explanations."""
    texts: Mapping[str, str] = {}
    """Texts that an earlier stage read, by hash,"""
    matched: Mapping[int, MatchedText] = {}
    """and what it matched, by document id."""


def group_copies(documents: Iterable[StoredDocument], missing: Sequence[str] = ()) -> dict[int, tuple[str, ...]]:
    """Return the first document of each text, by id and in order, with the addresses of the others.

    An empty text is no copy. Documents of `missing` collections come after others of the same text.
    """
    groups: dict[tuple[str, str | int], list[StoredDocument]] = {}
    for document in documents:
        name = "" if document.size > SHORT_TEXT else document.path.rpartition("/")[2]
        groups.setdefault((document.hash, name if document.size else document.id), []).append(document)
    ordered = (sorted(group, key=lambda document: document.collection in missing) for group in groups.values())
    return {first.id: tuple(one.uri for one in others) for first, *others in ordered}


def build_hits(
    reader: IndexReader, ranked: Sequence[RankedCandidate], scale: RelevanceScale, request: SearchRequest
) -> tuple[tuple[Hit, ...], tuple[float, ...]]:
    """Return hits in the order given, cut by `min_relevance` and `limit`, and the relevances of all judged candidates.

    Documents that left the index in the meantime are skipped. With a small `limit` more than that are judged, so that
    the relevance of the first hit does not depend on it; only shown ones get a passage.
    """
    wanted = ranked[: max(request.limit, calibration.POOL)]
    collections = {collection.name: collection for collection in reader.collections()}
    global_context = reader.global_context()
    shown: list[Hit] = []
    raw: list[float] = []
    lead = 0.0
    for batch in batches(wanted, BATCH):
        unread = {entry.document.hash for entry in batch} - scale.texts.keys()
        texts = {**scale.texts, **reader.texts(sorted(unread))}
        for entry in batch:
            document, text = entry.document, texts.get(entry.document.hash)
            if text is None:
                continue
            names = header_lines(document) + scale.known_text.get(document.id, "")
            matched = scale.matched.get(document.id) or match_text(text, scale.terms, before=names)
            # Without a first note ahead, the next ones are as doubtful; otherwise they may be further answers.
            lead = _measure_lead(ranked, texts) if entry is ranked[0] else min(lead, calibration.MAX_LEAD / 2)
            evidence = _collect_evidence(matched, len(names), entry, lead, scale)
            raw.append(scale.judge(evidence))
            if len(shown) < request.limit:
                passage, passages = choose_passages(
                    text,
                    scale.terms,
                    matched=matched,
                    chunk=entry.span,
                    max_chars=request.snippet_chars,
                    path=document.path,
                    title=document.title,
                    chunk_only=request.mode == "dense",
                    fill_chars=FILL_CHARS if not shown else FILL_CHARS // 2,
                )
                context = context_for(collections.get(document.collection), global_context, document.path)
                body = text if request.full_body else None
                mention = find_mention(reader, document, text)
                why = None
                if request.explain:
                    scores = (entry.fused_rank, entry.fused.score, entry.rerank_score, entry.blended_score, raw[-1])
                    words = _find_words(document, passage, text, scale.searched)
                    judged = (len(shown) + 1, raw[-1], words, evidence.window > 1 - 1e-9)
                    why = Explanation(entry.fused.contributions, *scores, *judged)
                shown.append(Hit(document, raw[-1], passage, context, body, why, entry.also_in, passages, mention))
    # The relevance of a hit depends on those of its neighbours.
    relevances = calibration.non_increasing(raw)
    hits = tuple(
        replace(hit, relevance=relevance, explanation=hit.explanation and replace(hit.explanation, relevance=relevance))
        for hit, relevance in zip(shown, relevances, strict=False)
        if relevance >= request.min_relevance
    )
    return hits, tuple(relevances)


def _measure_lead(ranked: Sequence[RankedCandidate], texts: Mapping[str, str]) -> float:
    """Return the distance of the first to the next that is no version of it, with more than half of its lines."""
    lines = set(texts[ranked[0].document.hash].split("\n"))
    for other in ranked[1 : calibration.POOL]:
        shared = lines.intersection(texts.get(other.document.hash, "").split("\n"))
        if 2 * sum(map(len, shared)) <= sum(map(len, lines)):
            return ranked[0].blended_score - other.blended_score
    return calibration.MAX_LEAD


def _collect_evidence(
    matched: MatchedText, names_end: int, entry: RankedCandidate, lead: float, scale: RelevanceScale
) -> Evidence:
    """Return the evidence for one document; its names end at `names_end`."""
    chunk, parts = entry.chunk, entry.fused.contributions
    # Folding may move that border by a letter or two, which hardly changes the evidence.
    terms = scale.terms[: scale.n_judged]
    occurrences = [occurrence for occurrence in matched.occurrences if occurrence.term < len(terms)]
    in_names = [occurrence for occurrence in occurrences if occurrence.offset < names_end]
    return Evidence(
        window=coverage(occurrences, terms, WINDOW_CHARS),
        mass=sum(term.weight for term in terms) / inverse_frequency(0, scale.n_documents),
        cosine=min(chunk.score, 1.0) if chunk is not None else None,
        in_names=coverage(in_names, terms),
        n_documents=scale.n_documents,
        lead=lead,
        is_named=any(part.source == NAME for part in parts),
        is_typed=any(part.source == LITERAL for part in parts) and sum(not one.term.is_part for one in terms) == 1,
    )


def _find_words(document: StoredDocument, passage: Passage, text: str, terms: Sequence[LexicalTerm]) -> dict[str, str]:
    """Return the part of a document in which each word of the query occurs first; see `Explanation`."""
    parts = {"title": document.title, "path": document.path, "aliases": "\n".join(aliases_of(document.metadata))}
    parts |= {"heading": "\n".join(passage.heading_trail), "text": text}
    found: dict[str, str] = {}
    for term in terms:
        if not (term.is_part or found.get(term.text)):
            found[term.text] = next((name for name, part in parts.items() if find_spans(part, [term])), "")
    return found


def is_stub(text: str) -> bool:
    """Return whether a note has too little prose, without front matter, headings and links."""
    return _count_letters(text[_body_offset(text) :]) < MAX_STUB_LETTERS


def _count_letters(text: str) -> int:
    prose = re.sub(_NO_PROSE, " ", text)
    n_letters = sum(map(str.isalpha, prose))
    return n_letters if prose.isascii() else n_letters + 2 * sum(one >= "\u2e80" and one.isalpha() for one in prose)


def find_mention(reader: IndexReader, document: StoredDocument, text: str) -> Mention | None:
    """Return the mention of a stub in another note; None for other notes, or without a mention.

    It is the line with most letters around its links, among the first links to the note; a mere list of links is none.
    """
    if document.size > _MAX_STUB_CHARACTERS or not is_stub(text):
        return None
    links = [one for one in reader.links_to(document, _MAX_LINKS) if not one.link.is_embed]
    sources = reader.documents([one.source for one in links])
    texts = reader.texts([source.hash for source in sources.values()])
    best, most = None, LEAST_LETTERS - 1
    for one in links:
        source = sources.get(one.source)
        linking = texts.get(source.hash) if source is not None else None
        if source is None or linking is None or one.link.line <= linking.count("\n", 0, _body_offset(linking)):
            continue
        line = _cut_around_link(" ".join(linking.split("\n")[one.link.line - 1].split()), one.link.target)
        letters = _count_letters(line)
        if letters > most:
            best, most = Mention(source, one.link.line, line), letters
    return best


def _cut_around_link(line: str, target: str) -> str:
    """Return `line`, or where it is long the part of it around the link."""
    if len(line) <= _MENTION_CHARACTERS:
        return line
    start = max(min(line.find(target) - _MENTION_CHARACTERS // 2, len(line) - _MENTION_CHARACTERS), 0)
    end = start + _MENTION_CHARACTERS
    return ("..." if start else "") + line[start:end] + ("..." if end < len(line) else "")


def _body_offset(text: str) -> int:
    if not text.startswith(("---", "+++")):
        return 0
    from qmd.ingest.frontmatter import read_front_matter

    return read_front_matter(text).body_offset
