"""Fusion: merge rankings into one. Pure functions; the order of the inputs never matters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from qmd.records import Candidate, Contribution, Ranking

SCORE_DEPTH = 100
"""Candidates of a list that determine its mean and standard deviation."""

COSINE_FLOOR = -2.0
"""Lowest standardised cosine, so that a lack of meaning outweighs words only so far. With it, and without a cap on
either, a rare word of a single document is found first: +.004 nDCG@10 on six sets."""

SPREAD_FLOOR = 1e-9

FEW_PAIRS = 5
"""Documents with both scores below which their cosines are averaged; a line through fewer is unreliable."""


class Influence(Struct, frozen=True):
    """Weight of one kind of evidence in the ranking."""

    value: float
    unit: Literal["share", "deviations added", "deviations per deviation"]
    """A share of the whole sum, in [0, 1]; or deviations of the fused score, which is at most 10 of 100 scores."""
    chosen_by: str
    """The run that chose the value."""


_NAMES = "above any fused score, so that of 400 exact names 400 come first (bench_names.py)"
_DATES = "above any fused score and below names; of 240 notes asked for by their day 240 come first (bench_dates.py)"
_LONG_DATES = "below what all other words agree on; not fitted"

INFLUENCES: Mapping[str, Influence] = {
    # For a text that the model fully understands.
    "dense": Influence(0.5, "share", "nDCG@10 of ten collections, stable when one is left out"),
    # Of the query's term weight, in one passage; with less, a single word of a single note would be first, by chance.
    "words found": Influence(0.5, "share", "best or level in 8 of 9 folds, five vaults and XQuAD in four languages"),
    # A clear first of one list is not outvoted by a likely one of the other: it gains a share of its distance to the
    # second.
    "lead of a list": Influence(
        0.3,
        "deviations per deviation",
        "right first on three vaults 215 of 275 instead of 210, nDCG@10 of nlcmd +.007, cacm, cranfield, cmrc and "
        "headings within chance; .2 to .6 do as much",
    ),
    # A proposed sub-query against the user's own words, which count 1.
    "expansion": Influence(0.5, "share", "the ratio of tobi/qmd"),
    "name: file": Influence(40.0, "deviations added", _NAMES),
    "name: title": Influence(35.0, "deviations added", _NAMES),
    "name: alias": Influence(30.0, "deviations added", _NAMES),
    "name: heading": Influence(20.0, "deviations added", _NAMES),
    "literal: words": Influence(
        11.0, "deviations added", "above any fused score and below dates: what was typed goes before its relatives"
    ),
    # A name among other words is only one more reason: the question may be about another note.
    "name: part of the query": Influence(1.0, "deviations added", "one deviation, a reason among others; not fitted"),
    # A note merely created on that day may contain less of the rest.
    "date: day": Influence(16.0, "deviations added", _DATES),
    "date: file time": Influence(16.0, "deviations added", _DATES),
    "date: mention": Influence(13.0, "deviations added", _DATES),
    # A month or a quarter may as well be when something happened as when a note was written.
    "long date: day": Influence(3.0, "deviations added", _LONG_DATES),
    "long date: file time": Influence(3.0, "deviations added", _LONG_DATES),
    "long date: mention": Influence(1.5, "deviations added", _LONG_DATES),
    "built-in reranker": Influence(
        0.3,
        "deviations per deviation",
        "the largest that hurts none; nDCG@10 of ten candidates with 0, .3, .6: headings of reference pages .845, "
        ".848, .849, of the Rust book .790, .797, .796, cacm .525, .531, .538, cranfield (75) .564, .566, .571, "
        "nlcmd (120) .445, .445, .439",
    ),
    # About the deviation of the fused scores that it meets, so that both count alike.
    "reranker": Influence(0.9, "deviations per deviation", "the deviation of fused scores over the first 10 or 30"),
}
"""All evidence that moves a rank, by name; further evidence adds a row and calls `add_influence`."""


class FusedCandidate(Struct, frozen=True):
    """One document in the fused ranking."""

    document_id: int
    score: float
    contributions: tuple[Contribution, ...]


class _StandardRanking(Struct, frozen=True):
    """A ranking with its standardised scores: document → (rank, score, standardised)."""

    ranking: Ranking
    weight: float
    z_scores_by_id: Mapping[int, tuple[int | None, float, float]]
    floor: float
    """Value of a document that the ranking does not contain,"""
    expected: Mapping[int, float] = {}
    """except for these."""

    def value(self, document_id: int) -> float:
        """Return the value of a document before the weight."""
        known = self.z_scores_by_id.get(document_id)
        return self.expected.get(document_id, self.floor) if known is None else known[2]


def fuse_zscores(
    rankings: Sequence[Ranking], weights: Sequence[float], unknown: Set[int] = frozenset()
) -> tuple[FusedCandidate, ...]:
    """Merge rankings by the weighted sum of standardised scores.

    Each list is standardised over its own first `SCORE_DEPTH` candidates. A document missing in a list gets that list's
    lowest score, or 0 where a lexical list ended before that depth.

    A document without vectors still has meaning: with the lowest cosine, an index that has the vectors of a quarter of
    its notes answers worse than words alone (nDCG@10 of five sets .488 against .565). The cosine of `unknown` ones is
    estimated from their words instead.

    Args:
        rankings: Best first, documents unique in each; empty ones are ignored.
        weights: One per ranking, >= 0.
        unknown: Documents that dense rankings lack because they have no vectors.

    Returns:
        Every document of every ranking by descending score, ties by document id.

    Raises:
        ValueError: If `weights` and `rankings` differ in length.

    Chosen over reciprocal rank fusion: .612 against .596 to .600 mean nDCG@10 over ten collections; the table of
    tests/benchmarks/bench_quality.py compares the two on the development collections.
    """
    used = [(ranking, weight) for ranking, weight in zip(rankings, weights, strict=True) if ranking.candidates]
    ids = {candidate.document_id for ranking, _ in used for candidate in ranking.candidates}
    parts = [_standardize(ranking, weight, len(ids)) for ranking, weight in used]
    words = [part for part in parts if part.ranking.source == "bm25"]
    parts = [
        part if part.ranking.source == "bm25" else replace(part, expected=_expect_cosines(part, words, unknown))
        for part in parts
    ]
    fused = []
    for document_id in ids:
        contributions = []
        for part in parts:
            ranking, counted = part.ranking, part.weight * part.value(document_id)
            rank, score, _ = part.z_scores_by_id.get(document_id, (None, 0.0, 0.0))
            contributions.append(
                Contribution(ranking.source, ranking.kind, ranking.query, rank, score, part.weight, counted)
            )
        # fsum is exact, so the order of the lists cannot change the last digit, and with it the order of near ties.
        score = math.fsum(part.contribution for part in contributions)
        fused.append(FusedCandidate(document_id, score, tuple(contributions)))
    fused.sort(key=lambda entry: (-entry.score, entry.document_id))
    return tuple(fused)


def _standardize(ranking: Ranking, weight: float, n_documents: int) -> _StandardRanking:
    raw = [candidate.score for candidate in ranking.candidates]
    head = raw[:SCORE_DEPTH]
    if ranking.source == "bm25":
        # Documents missing in a list that ended early contain no term: their score is 0.
        head += [0.0] * (min(SCORE_DEPTH, n_documents) - len(head))
    mean, spread = _mean_and_spread(head)
    least = -math.inf if ranking.source == "bm25" else COSINE_FLOOR
    z_scores_by_id: dict[int, tuple[int | None, float, float]] = {
        candidate.document_id: (rank, candidate.score, max((candidate.score - mean) / spread, least))
        for rank, candidate in enumerate(ranking.candidates, start=1)
    }
    if len(raw) > 1:
        lead = INFLUENCES["lead of a list"].value * (raw[0] - raw[1])
        z_scores_by_id[ranking.candidates[0].document_id] = (1, raw[0], (raw[0] - mean + lead) / spread)
    return _StandardRanking(ranking, weight, z_scores_by_id, max((min(head) - mean) / spread, least))


def _expect_cosines(dense: _StandardRanking, words: Sequence[_StandardRanking], unknown: Set[int]) -> dict[int, float]:
    """Return the standardised cosines of unknown documents, estimated from their words.

    By least squares over the documents that have both; the slope is kept between 0 and 1.
    """
    found = {document_id for part in words for document_id in part.z_scores_by_id}
    missing = found & unknown - dense.z_scores_by_id.keys()
    known = sorted(found & dense.z_scores_by_id.keys())
    if not missing or not known:
        return {}

    def by_words(document_id: int) -> float:
        return math.fsum(part.weight * part.value(document_id) for part in words)

    total = math.fsum(part.weight for part in words) or 1.0
    x = [by_words(document_id) / total for document_id in known]
    y = [dense.value(document_id) for document_id in known]
    middle, level = math.fsum(x) / len(x), math.fsum(y) / len(y)
    spread = math.fsum((one - middle) ** 2 for one in x)
    slope = 0.0
    if len(known) >= FEW_PAIRS and spread > SPREAD_FLOOR:
        slope = math.fsum((one - middle) * (other - level) for one, other in zip(x, y, strict=True)) / spread
        slope = min(max(slope, 0.0), 1.0)
    return {document_id: level + slope * (by_words(document_id) / total - middle) for document_id in missing}


def add_influence(
    fused: Sequence[FusedCandidate], found: Mapping[int, str], source: str, query: str, group: str | None = None
) -> Sequence[FusedCandidate]:
    """Return the ranking with an influence added to the score of some documents, also of those that no list contains.

    Args:
        fused: Best first.
        found: Kind of the evidence for each of these documents, by id.
        query: Matched words of the query.
        group: First part of the rows of `INFLUENCES` for these kinds, where that is not `source`.
    """
    if not found:
        return fused
    known = {entry.document_id: entry for entry in fused}
    lowest = min((entry.score for entry in fused), default=0.0)
    for document_id, kind in found.items():
        before = known.get(document_id) or FusedCandidate(document_id, lowest, ())
        bonus = INFLUENCES[f"{group or source}: {kind}"].value
        part = Contribution(source, kind, query, None, 1.0, bonus, bonus)
        known[document_id] = FusedCandidate(document_id, before.score + bonus, (*before.contributions, part))
    return sorted(known.values(), key=lambda entry: (-entry.score, entry.document_id))


def z_scores(scores: Sequence[float]) -> list[float]:
    """Return scores as multiples of their standard deviation from their mean; all 0 when they are all equal."""
    if not scores:
        return []
    mean, spread = _mean_and_spread(scores)
    return [(score - mean) / spread for score in scores]


def blend_rerank(fused: Sequence[float], reranked: Sequence[float], weight: float) -> list[float]:
    """Return the fused scores plus `weight` times the standardised rerank scores, in the order given.

    The fused scores are standard deviations already and keep their spread, so the reranker does not overturn a large
    lead of both rankings. Standardising them once more over the ten candidates does: nDCG@10 of known items fell from
    .848 to .835 on reference pages; judged questions (cacm, cranfield) did not change.

    Args:
        fused: Scores of the fused ranking; over its first 10 or 30 their deviation is .8 to .9.
        weight: Of the reranker, in standard deviations.

    Raises:
        ValueError: If the two differ in length.
    """
    return [left + weight * right for left, right in zip(fused, z_scores(reranked), strict=True)]


def _mean_and_spread(scores: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(scores) / len(scores)
    spread = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
    return mean, spread if spread > SPREAD_FLOOR else 1.0


class DenseRanking(Struct, frozen=True):
    """A dense ranking with the model's understanding of its text, in [0, 1]."""

    ranking: Ranking
    trust: float


class DenseCandidates(Struct, frozen=True):
    """Result of dense retrieval."""

    rankings: tuple[DenseRanking, ...] = ()
    pending: frozenset[int] = frozenset()
    """Lexical candidates whose texts have no vectors in the index, by document id."""
    by_words: tuple[int, ...] = ()
    """All lexical candidates, best first, where texts are pending."""

    def best_chunks(self) -> dict[int, Candidate]:
        """Return the chunk of each document with the highest cosine over all rankings."""
        best: dict[int, Candidate] = {}
        for entry in self.rankings:
            for candidate in entry.ranking.candidates:
                known = best.get(candidate.document_id)
                if known is None or candidate.score > known.score:
                    best[candidate.document_id] = candidate
        return best
