"""`--explain` on a terminal: what found a hit, what that was worth, and where the time of a search went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from qmd.render.terminal import visible
from qmd.render.wrapping import shorten

if TYPE_CHECKING:
    from rich.text import Text

    from qmd.records import Contribution, Explanation, SearchResponse

_FOUND_BY = {"bm25": "words", "dense": "meaning"}
_BAR = 20
_EDGE = ("│ ", "faint")


def explanation_rows(explanation: Explanation, width: int) -> Iterator[Text]:
    """A hit's path: a row for each list that it was looked for in, and one for what they came to."""
    from rich.text import Text

    asked = {one.query for one in explanation.contributions}
    for one in explanation.contributions:
        row = Text.assemble(_EDGE, (_found_in(one), "faint"))
        if len(asked) > 1:
            row.append(f"  {visible(' '.join(one.query.split()))}", "faint")
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
    """How the answer came about: what a model proposed, what was refused, the time of each stage and the models."""
    from rich.text import Text

    for subquery in response.expansions:
        yield shorten(Text.assemble(("proposed  ", "faint"), visible(f"{subquery.kind}: {subquery.text}")), width)
    for text, reason in response.dropped_expansions:
        yield shorten(Text.assemble(("refused   ", "faint"), visible(f"{text}: {reason}")), width)
    total = sum(one.elapsed_ms for one in response.timings)
    for one in response.timings:
        bar = "▰" * round(_BAR * one.elapsed_ms / max(total, 1.0))
        yield Text.assemble(f"{one.stage:10}{one.elapsed_ms:6.0f} ms  ", (bar, "faint"))
    models = ", ".join(response.models)
    yield shorten(Text.assemble(f"{'together':10}{total:6.0f} ms  ", (visible(models), "faint")), width)
