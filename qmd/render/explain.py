"""`--explain`: scores of a hit as an object, as lines and as drawn rows, and the time of each stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from qmd.escapes import one_line
from qmd.records import Contribution, Explanation, SearchResponse
from qmd.render.drawing import shorten

if TYPE_CHECKING:
    from rich.text import Text

_SOURCES = {"bm25": "fts", "dense": "vec"}
_FOUND_BY = {"bm25": "words", "dense": "meaning"}
_BAR = 20
_EDGE = ("│ ", "faint")


def explain_object(explanation: Explanation) -> dict[str, object]:
    """Return the explanation with the keys that programs read, newer keys last.

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
    """Return up to four lines with the three largest contributions, four decimals."""
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


def explanation_rows(explanation: Explanation, width: int) -> Iterator[Text]:
    """Yield a row for each list, and one for the combined score."""
    from rich.text import Text

    asked = {one.query for one in explanation.contributions}
    for one in explanation.contributions:
        row = Text.assemble(_EDGE, (_found_in(one), "faint"))
        if len(asked) > 1:
            row.append(f"  {one_line(one.query)}", "faint")
        yield shorten(row, width)
    steps = [f"fused {explanation.fused_score:.2f}, rank {explanation.fused_rank}"]
    if explanation.rerank_score is not None:
        steps.append(f"reranker {explanation.rerank_score:.2f} → {explanation.blended_score:.2f}")
    steps.append(f"relevance {explanation.relevance:.0%}")
    yield shorten(Text.assemble(_EDGE, " · ".join(steps)), width)


def _found_in(one: Contribution) -> str:
    kind = f" ({one.kind})" if one.kind != "original" else ""
    where = f"rank {one.rank:<4} score {one.score:6.2f}" if one.rank is not None else "not in this list"
    if one.source not in _FOUND_BY:
        where, kind = one.kind, ""
    return f"{_FOUND_BY.get(one.source, one.source) + kind:14}  {where:22}  {one.contribution:+6.2f}"


def run_rows(response: SearchResponse, width: int) -> Iterator[Text]:
    """Yield the queries that a model proposed, those that were dropped, the time of each stage, and the models."""
    from rich.text import Text

    for subquery in response.expansions:
        yield shorten(Text.assemble(("proposed  ", "faint"), one_line(f"{subquery.kind}: {subquery.text}")), width)
    for text, reason in response.dropped_expansions:
        yield shorten(Text.assemble(("dropped   ", "faint"), one_line(f"{text}: {reason}")), width)
    total = sum(one.elapsed_ms for one in response.timings)
    for one in response.timings:
        bar = "▰" * round(_BAR * one.elapsed_ms / max(total, 1.0))
        yield Text.assemble(f"{one.stage:10}{one.elapsed_ms:6.0f} ms  ", (bar, "faint"))
    models = ", ".join(response.models)
    yield shorten(Text.assemble(f"{'total':10}{total:6.0f} ms  ", (one_line(models), "faint")), width)
