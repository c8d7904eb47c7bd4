"""Expansion: sub-queries that a model proposes, and the rule when it runs."""

from __future__ import annotations

from collections.abc import Sequence

from qmd.analysis.query import has_user_operators, is_identifier_like
from qmd.analysis.scripts import unspaced_share
from qmd.inference.base import Expansion
from qmd.retrieval.lexical import LexicalCandidates
from qmd.retrieval.matching import WeightedTerm, coverage, find_occurrences, fold
from qmd.retrieval.trace import Run

STRONG_COVERAGE = 0.999
"""Share of the query's term weight in the first document's title, in [0, 1], from which expansion is skipped."""

STRONG_GAP = 0.15
"""Lead of the first lexical score over the second, as a share of the first."""

UNSPACED_SHARE = 0.3
"""Share of unspaced characters above which an English-only model is not trusted with a query (measured on Chinese)."""

ESTIMATE_MS = 1500.0
"""Time of one expansion with the full tier's model on two CPU threads."""


def should_expand(run: Run, words: LexicalCandidates) -> bool:
    """Return whether the expander runs for a plain query: it is wanted and loaded, and there is time."""
    wanted, trace = run.request.expand, run.trace
    if run.engines.expander is None:
        if wanted:
            trace.warn("not expanded: no expansion model; run 'qmd models pull'")
        return False
    is_wanted = _is_worth_expanding(run, words) if wanted is None else wanted
    return is_wanted and trace.has_time(ESTIMATE_MS, "expansion")


def expand(run: Run) -> Expansion:
    """Return the sub-queries that the expander proposes. Raises what it raises."""
    query, trace, expander = run.query, run.trace, run.engines.expander
    if expander is None:
        return Expansion(())
    listener = trace.listener
    listener.begin("expanding")
    expansion = expander.expand(
        query.text, intent=query.intent, deadline_s=trace.deadline_s(), is_cancelled=lambda: listener.is_cancelled
    )
    listener.check()
    trace.record_model(expander.description)
    return expansion


def _is_worth_expanding(run: Run, words: LexicalCandidates) -> bool:
    """Return whether expansion can help.

    It cannot for a query with operators or an identifier, which are literal; in a script that the embedding model does
    not know; and when one document answers literally.
    """
    text, embedder = run.query.text, run.engines.embedder
    if has_user_operators(text) or is_identifier_like(text):
        return False
    if unspaced_share(text) > UNSPACED_SHARE and embedder is not None and embedder.query_trust(text) < 0.5:
        return False
    # A literal answer: the title of one document contains every term, and no other document comes near it.
    candidates = words.rankings[0].candidates if words.rankings else ()
    if not candidates or _title_coverage(run, candidates[0].document_id, words.terms) < STRONG_COVERAGE:
        return True
    second = candidates[1].score if len(candidates) > 1 else 0.0
    return candidates[0].score - second < STRONG_GAP * candidates[0].score


def _title_coverage(run: Run, document_id: int, terms: Sequence[WeightedTerm]) -> float:
    """Return the weighted share of the query's terms in title and path of a document, in [0, 1]."""
    document = run.reader.documents([document_id]).get(document_id)
    if document is None:
        return 0.0
    return coverage(find_occurrences(fold(f"{document.title}\n{document.path}"), terms), terms)
