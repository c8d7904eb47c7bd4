"""What a request means: its query within its collections, the options of the pipeline, and the models it can use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from qmd.records import Query, Scope
from qmd.server.pools import Role
from qmd.server.requests import QueryRequest, nearest_name

if TYPE_CHECKING:
    from qmd.retrieval import SearchOptions
    from qmd.store.base import Reader

SNIPPET_CHARS = 300
"""Longest passage in an answer to a program, as in the original."""


def build_query(request: QueryRequest) -> Query:
    """The query that a request means; its collections are applied later, when the index is open.

    Raises:
        UsageError: For text that breaks the rules of the query language.
    """
    from qmd.retrieval import parse_query, validate_subqueries
    from qmd.retrieval.query_parser import check_size

    if request.text is not None:
        text = request.text
        if not any(line.lstrip().lower().startswith(_TYPED_PREFIXES) for line in text.splitlines()):
            # Plain text of several lines is one question here; only the command line reads it as a document.
            text = " ".join(text.split())
        query = parse_query(text)
    else:
        validate_subqueries(request.searches)
        query = Query(text=request.label, subqueries=request.searches)
    query = replace(query, intent=request.intent or query.intent)
    check_size(query)
    return query


_TYPED_PREFIXES = ("lex:", "vec:", "hyde:", "intent:", "expand:")


def build_options(request: QueryRequest) -> SearchOptions:
    """The pipeline's options for a request."""
    from qmd.retrieval import SearchOptions
    from qmd.retrieval.options import Mode

    mode: Mode = "lexical" if request.lexical_only else "dense" if request.dense_only else "hybrid"
    options = SearchOptions(
        mode=mode,
        limit=request.limit,
        min_relevance=request.min_score,
        rerank=request.rerank and mode == "hybrid",
        snippet_chars=SNIPPET_CHARS,
    )
    if request.candidate_limit is None:
        return options
    return replace(options, candidate_limit=request.candidate_limit, rerank_depth=request.candidate_limit)


def roles_for(query: Query, options: SearchOptions) -> frozenset[Role]:
    """The models that a search can use, so that no others are loaded."""
    if options.mode == "lexical":
        return frozenset()
    roles: set[Role] = {"embed"}
    if options.rerank and options.mode != "dense":
        roles.add("rerank")
    if not query.subqueries and options.expand is not False:
        roles.add("expand")
    return frozenset(roles)


def apply_collections(reader: Reader, query: Query, wanted: tuple[str, ...] | None) -> tuple[Query, tuple[str, ...]]:
    """The query within the collections asked for, else the default ones, and what the caller must be told."""
    from qmd.retrieval.query_parser import build_scope

    known = reader.collections()
    names = [collection.name for collection in known]
    if wanted is None:
        chosen = tuple(collection.name for collection in known if collection.include_by_default)
        if query.scope.collections is not None or len(chosen) == len(names):
            return query, ()
        excluded = "every collection is excluded from searches by default: name 'collections'"
        warnings: tuple[str, ...] = () if chosen else (excluded,)
    else:
        chosen = tuple(name for name in wanted if name in names)
        warnings = tuple(_unknown_collection(name, names) for name in wanted if name not in names)
    return replace(query, scope=build_scope(query.scope, Scope(collections=chosen))), warnings


def _unknown_collection(name: str, names: list[str]) -> str:
    nearest = nearest_name(name, names)
    return f"collection '{name}' not found" + (f", did you mean '{nearest}'?" if nearest else "")
