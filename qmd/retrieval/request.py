"""Search request: one record from every front end to the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict, get_args

from msgspec import Struct

from qmd.errors import UsageError
from qmd.records import SubQuery, SubQueryKind

Mode = Literal["lexical", "dense", "hybrid"]

CANDIDATES = 40
"""Default number of fused candidates."""

PASSAGE_CHARS = 500
"""Default length of the longest passage, in code points."""


class SearchRequest(Struct, frozen=True):
    """A search: either `text` or typed `searches`, and its options; the defaults are those of `qmd query`."""

    text: str | None = None
    searches: tuple[SubQuery, ...] = ()
    mode: Mode = "hybrid"
    collections: tuple[str, ...] = ()
    """Collections to search; empty = those that the query names, else those that are searched by default."""
    folder: str | None = None
    """Real folder of the client, whose project's sessions are searched by default; None = that of the index."""
    intent: str | None = None
    """Purpose of the answer."""
    limit: int = 10
    """Maximum number of hits, >= 1."""
    min_relevance: float = 0.0
    """Lowest relevance of a hit, in [0, 1]."""
    rerank: bool | None = None
    """Rerank the top of the fused ranking, in mode `hybrid` only; None leaves it to `reranking`."""
    expand: bool | None = None
    """True lets the model propose sub-queries, False forbids it, None leaves it to `expansion`."""
    candidate_limit: int | None = None
    """Candidates to fuse and rerank; None leaves it to `CANDIDATES` and the cost of the reranker."""
    budget_ms: int | None = None
    """Wall time; stages are cut to keep it, and a warning names them."""
    overhead_ms: int = 0
    """Part of the budget that the caller spent before, on starting a process."""
    explain: bool = False
    full_body: bool = False
    snippet_chars: int = PASSAGE_CHARS
    """Longest passage text in code points."""
    sort: str | None = None
    """`relevance`, `date` (newest first) or `-date`; None leaves it to the query."""
    filter: str | None = None
    """Filters next to the query: as they are typed (`status:draft priority>=3`), or in JSON."""
    cursor: str | None = None
    """Cursor of an earlier answer: only the results after it."""
    seen: tuple[str, ...] = ()
    """Docids or addresses to skip."""
    max_tokens: int | None = None
    """Token budget of the texts; a program that renders the answer counts its rendered form instead."""
    strict: bool = False
    """End the search when a model fails, instead of a warning: for measuring."""
    folds_copies: bool = True
    """Merge documents with the same text into one hit; False for measuring, where judgements name each of them."""
    missing: tuple[str, ...] = ()
    """Collections without their folder: the hit for a text is rather one of another collection."""

    @property
    def label(self) -> str:
        """The query as shown to people: first `lex`, else first `vec`, else the first text."""
        return primary_text(self.searches) if self.text is None else self.text

    @property
    def start(self) -> int:
        """Number of results before the cursor; raises `UsageError` for a cursor that is not one of ours."""
        return start_of(self.cursor)


class SearchKeywords(TypedDict, total=False):
    """Fields of `SearchRequest` that a Python caller may give by name."""

    mode: Mode
    intent: str | None
    limit: int
    min_relevance: float
    rerank: bool | None
    expand: bool | None
    candidate_limit: int | None
    budget_ms: int | None
    explain: bool
    full_body: bool
    sort: str | None
    filter: str | None
    cursor: str | None
    seen: tuple[str, ...]
    max_tokens: int | None


def as_request(
    query: str | Sequence[SubQuery] | SearchRequest, collections: str | Sequence[str] | None, keywords: SearchKeywords
) -> SearchRequest:
    """Return the request of a query and keywords; a request is returned as it is."""
    if isinstance(query, SearchRequest):
        return query
    text, typed = (query, ()) if isinstance(query, str) else (None, tuple(query))
    names = (collections,) if isinstance(collections, str) else tuple(collections or ())
    return SearchRequest(text, typed, collections=names, **keywords)


def primary_text(subqueries: Sequence[SubQuery]) -> str:
    """Return the text that represents sub-queries: the first `lex`, else the first `vec`, else the first of all."""
    order = get_args(SubQueryKind)
    return min(subqueries, key=lambda subquery: order.index(subquery.kind)).text if subqueries else ""


def start_of(cursor: str | None) -> int:
    """Return the number of results before a cursor.

    Raises:
        UsageError: It is not one of ours.
    """
    number, _, mark = (cursor or "0.0").partition(".")
    if not (number.isascii() and number.isdigit() and len(number) < 6 and mark):
        raise UsageError(f"cursor '{cursor}' is not one of qmd", "take it from the last line of the answer before")
    return int(number)
