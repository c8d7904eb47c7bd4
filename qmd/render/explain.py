"""A hit's path through the pipeline, as an object for programs and as lines for people."""

from __future__ import annotations

from qmd.records import Contribution, Explanation

_SOURCES = {"bm25": "fts", "dense": "vec"}


def explain_object(explanation: Explanation) -> dict[str, object]:
    """The explanation under the key names that existing readers of `explain` know, newer keys last.

    `topRankBonus` is always 0: fused scores carry no bonus by position.
    """
    return {
        "ftsScores": _scores(explanation, "bm25"),
        "vectorScores": _scores(explanation, "dense"),
        "rrf": {
            "rank": explanation.fused_rank,
            "positionScore": 1 / explanation.fused_rank,
            "weight": 1 if explanation.rerank_score is None else 0.5,
            "baseScore": explanation.fused_score,
            "topRankBonus": 0,
            "totalScore": explanation.fused_score,
            "contributions": [
                {
                    "listIndex": index,
                    "source": _SOURCES.get(one.source, one.source),
                    "queryType": one.kind,
                    "query": one.query,
                    "rank": one.rank,
                    "weight": one.weight,
                    "backendScore": one.score,
                    "rrfContribution": one.contribution,
                }
                for index, one in enumerate(explanation.contributions)
            ],
        },
        "rerankScore": explanation.rerank_score or 0,
        "blendedScore": explanation.blended_score,
        "relevance": explanation.relevance,
    }


def explain_lines(explanation: Explanation) -> list[str]:
    """The explanation in up to four lines, four decimals, the three largest contributions."""
    rerank = "none" if explanation.rerank_score is None else f"{explanation.rerank_score:.4f}"
    lexical, dense = (
        ", ".join(f"{score:.4f}" for score in _scores(explanation, source)) or "none" for source in _SOURCES
    )
    lines = [
        f"Explain: fts=[{lexical}] vec=[{dense}]",
        f"  Fusion: total={explanation.fused_score:.4f} rank={explanation.fused_rank}",
        f"  Blend: rerank={rerank} blended={explanation.blended_score:.4f} relevance={explanation.relevance:.4f}",
    ]
    top = sorted(explanation.contributions, key=lambda one: -one.contribution)[:3]
    if top:
        lines.append("  Top contributions: " + " | ".join(_contribution(one) for one in top))
    return lines


def _contribution(one: Contribution) -> str:
    rank = "-" if one.rank is None else one.rank
    return f"{_SOURCES.get(one.source, one.source)}/{one.kind}#{rank}:{one.contribution:.4f}"


def _scores(explanation: Explanation, source: str) -> list[float]:
    return [one.score for one in explanation.contributions if one.source == source and one.rank is not None]
