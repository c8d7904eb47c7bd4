"""The query language: text → `Query`, and its `Scope` in an index."""

from __future__ import annotations

import re
from collections.abc import Collection as Names
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from qmd.errors import UsageError, collection_not_found, refuse_unknown
from qmd.file_names import storable
from qmd.masks import HISTORY
from qmd.records import Collection, FieldFilter, Filter, Query, Scope, Sort, SubQuery, SubQueryKind, TextFilter
from qmd.retrieval.query_filters import explain_unknown_fields, names_fields, read_filters, read_order, take_filters
from qmd.retrieval.request import Mode, SearchRequest, primary_text

if TYPE_CHECKING:
    from qmd.inference.records import Role
    from qmd.store.base import IndexReader

MAX_QUERY_CHARS = 16_384
"""Limit of all texts of a query together: a long passage for `hyde` and a dozen sub-queries are under 8,000."""

MAX_SUBQUERIES = 32
MAX_FILTERS = 100
"""Each becomes a condition of one SQL statement, whose depth SQLite limits to 1,000."""

NOTHING_INDEXED = "nothing is indexed yet"
"""Beginning of the one warning of an empty index."""

_TYPED = r"(lex|vec|hyde|intent|expand):(.*)\Z"
_NEGATION = r'(?:^|\s)-["\w]'

_NO_COLLECTION = "every collection is excluded from searches; name one with -c, or run: qmd collection include NAME"


class _QueryLines(Struct):
    """Parsed lines of a query document."""

    plain: list[tuple[int, str]] = field(default_factory=list)
    typed: list[SubQuery] = field(default_factory=list)
    filters: list[Filter | Sort] = field(default_factory=list)
    intent: str | None = None
    expand: tuple[int, str] | None = None


def read_query(request: SearchRequest) -> Query:
    """Parse a request; `resolve` applies its collections, and the fields in the index.

    Plain text of several lines is one question.

    Raises:
        UsageError: It breaks the rules of the query language, or would keep models and index busy for minutes.
    """
    if request.mode not in get_args(Mode):
        raise UsageError(f"unknown mode '{request.mode}'", hint=", ".join(get_args(Mode)))
    text = request.text
    if text is None:
        validate_subqueries(request.searches)
        query = Query(request.label, request.searches)
    elif request.filter and not text.strip():
        query = Query("")
    elif "\n" in text and not any(_match_typed_line(line.lstrip()) for line in text.splitlines()):
        query = parse_query(" ".join(text.split()))
    else:
        query = parse_query(text)
    _check_length(len(request.filter or ""))
    order = request.sort and read_order(request.sort)
    found = read_filters(request.filter) if request.filter else []
    query = _add_filters(query, found)
    query = replace(query, intent=request.intent or query.intent, sort=order or query.sort)
    _check_size(query)
    return query


def parse_query(text: str) -> Query:
    """Parse plain text or a query document, and move filters by `FIELDS` out of its words.

    A leading `-` negates a filter, values with spaces are in double quotes; filters are anywhere in plain text or on
    their own lines, as is `sort:`. `expand: foo` is `foo`. Possible filters by front matter stay in the text until
    `resolve`.

    Raises:
        UsageError: Empty query, one that is too long, or a query document that breaks its rules. `read_query` checks
            the numbers of sub-queries and filters.
    """
    _check_length(len(text))
    lines = _QueryLines()
    for number, raw in enumerate(storable(text).split("\n"), start=1):
        _read_line(number, raw.strip(), lines)
    query = _build_query(lines)
    validate_subqueries(query.subqueries, numbered=True)
    return query


def roles_of(request: SearchRequest, query: Query) -> frozenset[Role]:
    """Return the models that a search can use, so only these are loaded."""
    is_used: dict[Role, bool] = {
        "embed": request.mode != "lexical",
        "rerank": request.mode == "hybrid" and request.rerank is not False,
        "expand": request.mode != "lexical" and not query.subqueries and request.expand is not False,
    }
    return frozenset(role for role, is_needed in is_used.items() if is_needed)


def select_collections(query: Query, request: SearchRequest, known: Sequence[Collection]) -> tuple[str, ...] | None:
    """Return the collections of a search; None for all.

    The caller asks for those of the request, and a `collection:` filter in the query may only narrow them. Without
    them, the filter alone selects, and reaches collections that are not searched by default.
    """
    names, named = request.collections, query.scope.collections
    if not names and named is not None:
        return named
    own: Names[str] = ()
    if any(one.pattern == HISTORY for one in known):
        from qmd.plugins.histories import project_names

        own = project_names(Path(request.folder or "/"))
    searched = tuple(dict.fromkeys(names)) or tuple(
        one.name for one in known if one.include_by_default or (one.pattern == HISTORY and one.path.name in own)
    )
    is_all = not names and len(searched) == len(known)
    return None if is_all else intersect_scopes(Scope(searched), Scope(named)).collections


def resolve(query: Query, request: SearchRequest, reader: IndexReader) -> tuple[Query, tuple[str, ...]]:
    """Return the query with its scope in an index, and warnings about it; see `select_collections`.

    Raises:
        NotFoundError: A collection of the request does not exist; the hint has the nearest name.
    """
    known, fields, names, named = reader.collections(), None, request.collections, query.scope.collections
    has_conditions = any(isinstance(one, FieldFilter) for one in query.scope.filters)
    if has_conditions or any(map(names_fields, _searchable_texts(query))):
        fields = reader.field_names()
        query = take_field_filters(query, fields)
    selected = select_collections(query, request, known)
    query = replace(query, scope=replace(query.scope, collections=selected))
    notes = (
        () if fields is None else tuple(explain_unknown_fields(_searchable_texts(query), query.scope.filters, fields))
    )
    known_names = [collection.name for collection in known]
    refuse_unknown(names, known_names)
    unknown = [collection_not_found(name, known_names) for name in named or () if not names and name not in known_names]
    is_empty = (_NO_COLLECTION,) if selected == () and not names and named is None else ()
    return query, (*notes, *is_empty, *(f"{one.message}; {one.hint}" for one in unknown))


def take_field_filters(query: Query, fields: Names[str]) -> Query:
    """Return the query with filters on `fields` of front matter taken out of its words, in plain text and `lex` lines.

    Raises:
        UsageError: Nothing is left, or there are too many filters.
    """
    text, found = (query.text, []) if query.subqueries else take_filters(query.text, fields)
    kept: list[SubQuery] = []
    for subquery in query.subqueries:
        rest, more = take_filters(subquery.text, fields) if subquery.kind == "lex" else (subquery.text, [])
        found += more
        kept += [replace(subquery, text=rest)] if rest else []
    if not found:
        return query
    query = replace(query, text=primary_text(kept) if query.subqueries else text, subqueries=tuple(kept))
    query = _add_filters(query, found)
    _check_size(query)
    return query


def _searchable_texts(query: Query) -> tuple[str, ...]:
    """Return the texts of a query that may contain filters."""
    return tuple(one.text for one in query.subqueries if one.kind == "lex") if query.subqueries else (query.text,)


def _add_filters(query: Query, found: Sequence[Filter | Sort]) -> Query:
    """Return the query with more filters. Positive `collection:` filters unite, everything else is required."""
    named = [one for one in found if isinstance(one, TextFilter) and one.column == "collection" and not one.is_negated]
    orders = [one for one in found if isinstance(one, str)]
    rest = tuple(one for one in found if not isinstance(one, str) and one not in named)
    scope = Scope(tuple(dict.fromkeys(one.value for one in named)) or None, filters=rest)
    return replace(query, scope=intersect_scopes(query.scope, scope), sort=orders[-1] if orders else query.sort)


def _check_size(query: Query) -> None:
    text = "" if query.subqueries else query.text
    _check_length(len(text) + len(query.intent or "") + sum(len(subquery.text) for subquery in query.subqueries))
    if len(query.subqueries) > MAX_SUBQUERIES:
        raise UsageError(f"the query has {len(query.subqueries)} sub-queries, at most {MAX_SUBQUERIES} are allowed")
    if len(query.scope.filters) > MAX_FILTERS:
        raise UsageError(f"the query has {len(query.scope.filters)} filters, at most {MAX_FILTERS} are allowed")


def _check_length(n_chars: int) -> None:
    if n_chars > MAX_QUERY_CHARS:
        raise UsageError(
            f"the query has {n_chars:,} characters, at most {MAX_QUERY_CHARS:,} are allowed", "shorten the query"
        )


def validate_subqueries(subqueries: Sequence[SubQuery], *, numbered: bool = False) -> None:
    """Check typed sub-queries before they run.

    Args:
        numbered: Whether messages name the line of a query document, or else `Structured search`.

    Raises:
        UsageError: Line break, open quote in `lex`, or negation in `vec` and `hyde`.
    """
    for subquery in subqueries:
        where = f"Line {subquery.line}" if numbered else "Structured search"
        prefix = f"{where} ({subquery.kind}): "
        if subquery.kind not in get_args(SubQueryKind):
            raise UsageError(f"{prefix}unknown type, expected lex, vec or hyde")
        if not subquery.text.strip():
            raise UsageError(f"{where} ({subquery.kind}:) must include text.")
        if re.search(r"[\r\n]", subquery.text):
            raise UsageError(f"{prefix}queries must be single-line. Remove newline characters.")
        if subquery.kind == "lex" and subquery.text.count('"') % 2:
            raise UsageError(
                f'{prefix}Lex query has an unmatched double quote ("). Add the closing quote or remove it.'
            )
        if subquery.kind != "lex" and re.search(_NEGATION, subquery.text):
            raise UsageError(f"{prefix}Negation (-term) is not supported in vec/hyde queries. Use lex for exclusions.")


def intersect_scopes(base: Scope, extra: Scope) -> Scope:
    """Return a scope for both: collections intersect, filters add up, the longer compatible path prefix applies."""
    collections = base.collections
    if extra.collections is not None:
        allowed = extra.collections
        collections = allowed if collections is None else tuple(name for name in collections if name in allowed)
    prefix = base.path_prefix or extra.path_prefix
    if base.path_prefix and extra.path_prefix:
        longer, shorter = sorted((base.path_prefix, extra.path_prefix), key=len, reverse=True)
        prefix = longer
        if not longer.startswith(shorter):
            collections = ()
    return Scope(collections, prefix, (*base.filters, *extra.filters))


def _match_typed_line(line: str) -> re.Match[str] | None:
    """Match `lex: text` and its like: kind and text."""
    return re.match(_TYPED, line, re.IGNORECASE | re.DOTALL) if ":" in line else None


def _read_line(number: int, line: str, lines: _QueryLines) -> None:
    if not line:
        return
    typed = _match_typed_line(line)
    kind, value = ("", line) if typed is None else (typed[1].lower(), typed[2].strip())
    if kind == "intent":
        if lines.intent is not None:
            raise UsageError(f"Line {number}: only one intent: line is allowed per query document.")
        if not value:
            raise UsageError(f"Line {number}: intent: must include text.")
        lines.intent = value
        return
    if not value:
        missing = "expand: query" if kind == "expand" else f"Line {number} ({kind}:)"
        raise UsageError(f"{missing} must include text.")
    text, found = (value, []) if kind in ("vec", "hyde") else take_filters(value, ())
    lines.filters += found
    if kind == "expand":
        lines.expand = (number, text)
    elif text and kind:
        lines.typed.append(SubQuery(cast(SubQueryKind, kind), text, number))
    elif text:
        lines.plain.append((number, text))


def _check_document(lines: _QueryLines) -> None:
    """Refuse lines that exclude each other."""
    is_document = bool(lines.typed or lines.intent is not None)
    if lines.expand is not None and (lines.plain or is_document):
        raise UsageError(
            f"Line {lines.expand[0]} starts with expand:, but query documents cannot mix expand with typed lines. "
            "Submit a single expand query instead."
        )
    if lines.plain and (is_document or len(lines.plain) > 1):
        raise UsageError(
            f"Line {lines.plain[0][0]} is missing a lex:/vec:/hyde:/intent: prefix. "
            "Each line in a query document must start with one."
        )
    if lines.intent is not None and not lines.typed:
        raise UsageError("intent: cannot appear alone. Add at least one lex:, vec:, or hyde: line.")


def _build_query(lines: _QueryLines) -> Query:
    _check_document(lines)
    plain = lines.plain if lines.expand is None else [lines.expand]
    text = plain[0][1] if plain else primary_text(lines.typed)
    query = _add_filters(Query(text, tuple(lines.typed), lines.intent), lines.filters)
    if query == Query(""):
        raise UsageError("the query is empty", hint="qmd query 'how do I …', or qmd --help")
    return query
