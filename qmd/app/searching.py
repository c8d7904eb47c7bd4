"""A search, from what a caller asked for to what the pipeline runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypedDict, get_args

from msgspec import Struct
from msgspec.structs import replace

from qmd.app.records import as_names
from qmd.errors import UsageError
from qmd.records import Query, SubQuery
from qmd.retrieval.query import (
    CANDIDATES,
    PASSAGE_CHARS,
    Mode,
    SearchOptions,
    narrow_query,
    primary_text,
    read_query,
)
from qmd.retrieval.query_filters import doubtful_filters, may_name_fields

if TYPE_CHECKING:
    from qmd.inference.records import Role
    from qmd.store.base import IndexReader


class SearchRequest(Struct, frozen=True):
    """A search as a caller asks for it: either `text` or typed `searches`."""

    text: str | None
    searches: tuple[SubQuery, ...] = ()
    mode: Mode = "hybrid"
    collections: tuple[str, ...] = ()
    """Only these; empty = those that the query names, else those that are searched by default."""
    intent: str | None = None
    """What the answer is for."""
    limit: int = 10
    min_relevance: float = 0.0
    """Hits below are left out, in [0, 1]."""
    rerank: bool | None = None
    expand: bool | None = None
    """True lets the model propose sub-queries, False forbids it, None leaves it to the query."""
    candidate_limit: int | None = None
    """Candidates that the reranker reads; None leaves it to what the reranker costs."""
    budget_ms: int | None = None
    """Wall time; stages are cut to hold it."""
    overhead_ms: int = 0
    """What the caller has spent of the budget already, starting a process."""
    explain: bool = False
    full_body: bool = False
    snippet_chars: int = PASSAGE_CHARS
    sort: str | None = None
    """`relevance`, `date` (newest first) or `-date`; None leaves it to the query."""
    filter: str | None = None
    """Filters beside the query: as they are typed (`status:draft priority>=3`), or in JSON."""
    cursor: str | None = None
    """Where the answer before ended: the results behind it."""
    seen: tuple[str, ...] = ()
    """Docids or addresses that are left out."""
    max_tokens: int | None = None
    """What the texts may cost a model; programs that render an answer count it as rendered instead."""

    @property
    def label(self) -> str:
        """The query as shown to people: first `lex`, else first `vec`, else the first text."""
        return primary_text(self.searches) if self.text is None else self.text


class SearchWishes(TypedDict, total=False):
    """The fields of `SearchRequest` that a Python caller may give by name."""

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
    query: str | Sequence[SubQuery] | SearchRequest, collections: str | Sequence[str] | None, wishes: SearchWishes
) -> SearchRequest:
    """The request that a query and wishes make; a request is one already."""
    if isinstance(query, SearchRequest):
        return query
    text, typed = (query, ()) if isinstance(query, str) else (None, tuple(query))
    return SearchRequest(text, typed, collections=as_names(collections) or (), **wishes)


class Search(Struct, frozen=True):
    """What a request means: the query, the pipeline's options, and the models that can be of use, so that no others are
    loaded."""

    query: Query
    options: SearchOptions
    roles: frozenset[Role]


def read_request(request: SearchRequest, fields: Collection[str] = ()) -> Search:
    """What a request means, before the index is asked which collections it has; `fields` are those of front matter.

    Raises:
        UsageError: For text that breaks the rules of the query language, and a mode that there is not.
    """
    if request.mode not in get_args(Mode):
        raise UsageError(f"unknown mode '{request.mode}'", hint=", ".join(get_args(Mode)))
    text = request.searches if request.text is None else request.text
    query = read_query(text, request.intent, request.sort, request.filter, fields)
    options = SearchOptions(
        mode=request.mode,
        limit=request.limit + _n_before(request),
        min_relevance=request.min_relevance,
        rerank=request.rerank if request.mode == "hybrid" else False,
        expand=request.expand,
        candidate_limit=CANDIDATES if request.candidate_limit is None else request.candidate_limit,
        rerank_depth=request.candidate_limit,
        budget_ms=request.budget_ms,
        explain=request.explain,
        full_body=request.full_body,
        snippet_chars=request.snippet_chars,
    )
    of_use: dict[Role, bool] = {
        "embed": request.mode != "lexical",
        "rerank": options.rerank is not False,
        "expand": request.mode != "lexical" and not query.subqueries and options.expand is not False,
    }
    return Search(query, options, frozenset(role for role, is_of_use in of_use.items() if is_of_use))


def narrow_request(request: SearchRequest, asked: Search, reader: IndexReader) -> tuple[Search, tuple[str, ...]]:
    """What a request means to an index with its collections and fields of front matter, and what is to be said of it.

    Raises:
        NotFoundError: There is no collection of a name.
    """
    text = request.text or ""
    doubts: tuple[str, ...] = ()
    if request.filter is not None or may_name_fields(text):
        names = reader.field_names()
        asked = read_request(request, names)
        doubts = tuple(doubtful_filters(text, asked.query.scope.filters, names))
    narrowed, warnings = narrow_query(asked.query, reader.collections(), request.collections)
    return replace(asked, query=narrowed), (*doubts, *warnings)


def _n_before(request: SearchRequest) -> int:
    """How many results there may be that are not shown again."""
    if not request.cursor:
        return len(request.seen)
    from qmd.app.paging import start_of

    return start_of(request.cursor) + len(request.seen)
