"""A search, from what a caller asked for to what the pipeline runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from qmd.app.collections import as_names, collection_not_found, refuse_unknown
from qmd.errors import nearest_name
from qmd.records import Collection, Query, Scope, SubQuery
from qmd.retrieval.options import PASSAGE_CHARS, Mode, SearchOptions
from qmd.retrieval.query_parser import build_scope, check_sort, parse_query, validate_subqueries

if TYPE_CHECKING:
    from qmd.inference.records import Role
    from qmd.store.base import IndexReader

_TYPED_PREFIXES = ("lex:", "vec:", "hyde:", "intent:", "expand:")

_TAGS_NAMED = 8

NOTHING_BY_DEFAULT = "every collection is excluded from searches; name one with -c, or run: qmd collection include NAME"


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
    rerank: bool = True
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

    @property
    def label(self) -> str:
        """The query as shown to people: first `lex`, else first `vec`, else the first text."""
        if self.text is not None:
            return self.text
        for kind in ("lex", "vec"):
            for search in self.searches:
                if search.kind == kind:
                    return search.text
        return self.searches[0].text if self.searches else ""


class SearchWishes(TypedDict, total=False):
    """The fields of `SearchRequest` that a Python caller may give by name."""

    mode: Mode
    intent: str | None
    limit: int
    min_relevance: float
    rerank: bool
    expand: bool | None
    candidate_limit: int | None
    budget_ms: int | None
    explain: bool
    full_body: bool
    sort: str | None


def as_request(
    query: str | Sequence[SubQuery] | SearchRequest, collections: str | Sequence[str] | None, wishes: SearchWishes
) -> SearchRequest:
    """The request that a query and wishes make; a request is one already."""
    if isinstance(query, SearchRequest):
        return query
    text, typed = (query, ()) if isinstance(query, str) else (None, tuple(query))
    return SearchRequest(text, typed, collections=as_names(collections) or (), **wishes)


def read_query(request: SearchRequest) -> Query:
    """The query of a request; its collections are applied by `narrow_query`, when the index is open.

    Plain text of several lines is one question.

    Raises:
        UsageError: For text that breaks the rules of the query language.
    """
    if request.text is None:
        validate_subqueries(request.searches)
        query = Query(text=request.label, subqueries=request.searches)
    else:
        text = request.text
        if "\n" in text and not any(line.lstrip().lower().startswith(_TYPED_PREFIXES) for line in text.splitlines()):
            text = " ".join(text.split())
        query = parse_query(text)
    sort = query.sort if request.sort is None else check_sort(request.sort)
    return replace(query, intent=request.intent or query.intent, sort=sort)


def search_options(request: SearchRequest) -> SearchOptions:
    """The pipeline's options for a request."""
    options = SearchOptions(
        mode=request.mode,
        limit=request.limit,
        min_relevance=request.min_relevance,
        rerank=request.rerank and request.mode == "hybrid",
        expand=request.expand,
        budget_ms=request.budget_ms,
        explain=request.explain,
        full_body=request.full_body,
        snippet_chars=request.snippet_chars,
    )
    if request.candidate_limit is None:
        return options
    return replace(options, candidate_limit=request.candidate_limit, rerank_depth=request.candidate_limit)


def needed_roles(query: Query, options: SearchOptions) -> frozenset[Role]:
    """The models that a search can use, so that no others are loaded."""
    if options.mode == "lexical":
        return frozenset()
    roles: set[Role] = {"embed"}
    if options.rerank:
        roles.add("rerank")
    if not query.subqueries and options.expand is not False:
        roles.add("expand")
    return frozenset(roles)


def narrow_query(query: Query, known: Sequence[Collection], names: Sequence[str]) -> tuple[Query, tuple[str, ...]]:
    """The query within the collections that it may search, and what the caller must be told about them.

    Named collections hold, and a `collection:` filter in the query may only narrow them. Where none is named, the
    filter itself is the naming, and reaches collections that are not searched by default.

    Raises:
        NotFoundError: A name that does not exist; the hint names the nearest.
    """
    refuse_unknown(names, known)
    if names:
        return _within(query, tuple(dict.fromkeys(names))), ()
    if query.scope.collections is not None:
        known_names = [collection.name for collection in known]
        unknown = [
            collection_not_found(name, known_names) for name in query.scope.collections if name not in known_names
        ]
        return query, tuple(f"{one.message}; {one.hint}" for one in unknown)
    default = tuple(collection.name for collection in known if collection.include_by_default)
    if len(default) == len(known):
        return query, ()
    return _within(query, default), () if default else (NOTHING_BY_DEFAULT,)


def doubts_about(query: Query, reader: IndexReader, *, is_empty: bool) -> tuple[str, ...]:
    """What a query may not mean as it is written: an open quote, and where nothing was found a tag that no note has."""
    doubts: list[str] = []
    if not query.subqueries and query.text.count('"') % 2:
        doubts.append("a quote is not closed: all that follows it is read as one phrase")
    wanted = [one.value for one in query.scope.filters if one.field in ("tag", "tags") and one.op == "="]
    if is_empty and wanted:
        known = _tags(reader)
        doubts += [_unknown_tag(tag, known) for tag in wanted if tag.strip("#/").casefold() not in known]
    return tuple(doubts)


def _tags(reader: IndexReader) -> Counter[str]:
    """Every tag of the index in small letters without `#`, and the tags around nested ones, with the notes of each."""
    found: Counter[str] = Counter()
    for document in reader.iter_documents():
        for tag in document.tags:
            parts = tag.casefold().split("/")
            found.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return found


def _unknown_tag(tag: str, known: Counter[str]) -> str:
    near = nearest_name(tag, known)
    if near:
        return f"no note has the tag '{tag}'; did you mean 'tag:{near}'?"
    if not known:
        return f"no note has the tag '{tag}', or any other in its front matter"
    more = ", …" if len(known) > _TAGS_NAMED else ""
    common = ", ".join(name for name, _ in known.most_common(_TAGS_NAMED))
    return f"no note has the tag '{tag}'; there are: {common}{more}"


def _within(query: Query, names: tuple[str, ...]) -> Query:
    return replace(query, scope=build_scope(Scope(collections=names), query.scope))
