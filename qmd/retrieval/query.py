"""What is asked: text → `Query`, within a `Scope`, with the options of its caller."""

from __future__ import annotations

import re
from collections.abc import Collection as Names
from collections.abc import Sequence
from typing import Literal, cast, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from qmd.errors import UsageError, collection_not_found, refuse_unknown
from qmd.records import Collection, MetadataFilter, Query, Scope, Sort, SubQuery, SubQueryKind
from qmd.retrieval.query_filters import take_filters

Mode = Literal["lexical", "dense", "hybrid"]

MAX_QUERY_CHARS = 16_384
"""All texts of a query together: a long passage for `hyde` and a dozen sub-queries are under 8,000."""

MAX_SUBQUERIES = 32
MAX_FILTERS = 100
"""Each becomes a condition of one SQL statement, whose depth SQLite limits to 1,000."""

NOTHING_INDEXED = "nothing is indexed yet"
"""How the one warning begins that an empty index answers with."""

CANDIDATES = 40
"""Fused candidates kept where a caller sets no other number."""

PASSAGE_CHARS = 500
"""Longest passage, in code points, where a caller sets no other length."""


class SearchOptions(Struct, frozen=True):
    """Choices of one search; the defaults are those of `qmd query`."""

    mode: Mode = "hybrid"
    limit: int = 10
    """Hits returned at most, >= 1."""
    min_relevance: float = 0.0
    """Hits below this calibrated relevance are left out, in [0, 1]."""
    rerank: bool | None = None
    """Whether the top of the fused ranking is reranked, never in mode `lexical`; None leaves it to `reranking`."""
    expand: bool | None = None
    """True forces expansion, False forbids it, None leaves it to the policy of `expansion`."""
    candidate_limit: int = CANDIDATES
    """Fused candidates kept for what follows, at least `limit` of them."""
    rerank_depth: int | None = None
    """Candidates that the reranker sees; None leaves it to what the reranker costs (`reranking`)."""
    budget_ms: int | None = None
    """Wall time for the whole query; stages are cut to hold it, and a warning says which."""
    strict: bool = False
    """Whether a model that fails ends the search instead of being left out with a warning: for measuring."""
    folds_copies: bool = True
    """Whether documents with one text are one hit; False for measuring, where judgements name each of them."""
    explain: bool = False
    full_body: bool = False
    snippet_chars: int = PASSAGE_CHARS
    """Longest passage text in code points."""


_TYPED = r"(lex|vec|hyde|intent|expand):(.*)\Z"
_NEGATION = r'(?:^|\s)-["\w]'

_NO_COLLECTION = "every collection is excluded from searches; name one with -c, or run: qmd collection include NAME"


class _Lines(Struct):
    """What the lines of a query document said so far."""

    plain: list[tuple[int, str]] = field(default_factory=list)
    typed: list[SubQuery] = field(default_factory=list)
    filters: list[MetadataFilter] = field(default_factory=list)
    intent: str | None = None
    expand: tuple[int, str] | None = None


def read_query(
    asked: str | Sequence[SubQuery],
    intent: str | None = None,
    sort: str | None = None,
    filter: str | None = None,
    fields: Names[str] | None = (),
) -> Query:
    """The query that a text means, or typed sub-queries; its collections are applied by `narrow_query`.

    Plain text of several lines is one question.

    Args:
        asked: Plain text, a query document, or typed sub-queries.
        intent: What the answer is for; goes before an `intent:` line.
        sort: The order of hits; goes before `sort:`.
        filter: Filters as they are typed, or in JSON; every name in it is a field.
        fields: The names in the query that are.

    Raises:
        UsageError: It breaks the rules of the query language, or would keep models and index busy for minutes.
    """
    if not isinstance(asked, str):
        validate_subqueries(asked)
        query = Query(primary_text(asked), tuple(asked))
    elif filter and not asked.strip():
        query = Query("")
    elif "\n" in asked and not any(_typed_line(line.lstrip()) for line in asked.splitlines()):
        query = parse_query(" ".join(asked.split()), fields)
    else:
        query = parse_query(asked, fields)
    if filter:
        given = _parse_filter(filter)
        order = query.sort if given.sort == "relevance" else given.sort
        query = replace(query, scope=build_scope(query.scope, given.scope), sort=order)
    query = replace(query, intent=intent or query.intent, sort=query.sort if sort is None else _order(sort))
    _check_size(query)
    return query


def parse_query(text: str, fields: Names[str] | None = ()) -> Query:
    """Read plain text or a query document, and take the filters out of it.

    Filters are the `FIELDS` and what `fields` of front matter, negated by a leading `-`, values with spaces in double
    quotes; they stand anywhere in plain text or on lines of their own, as does `sort:`. `expand: foo` is `foo`.

    Raises:
        UsageError: Empty query, one that is too long, or a query document that breaks its rules. How many
            sub-queries and filters there may be is for `read_query`.
    """
    _check_length(len(text))
    lines = _Lines()
    for number, raw in enumerate(text.split("\n"), start=1):
        _read_line(number, raw.strip(), lines, fields)
    query = _assemble(lines)
    validate_subqueries(query.subqueries, numbered=True)
    return query


def _parse_filter(text: str) -> Query:
    """The query without words that filters alone make."""
    _check_length(len(text))
    if text.lstrip()[:1] in ("{", "["):
        from qmd.store.conditions import read_condition

        read_condition(text)
        return Query("", scope=Scope(filters=(MetadataFilter("where", text),)))
    lines = _Lines()
    rest = take_filters(text, lines.filters, None)
    if rest or not lines.filters:
        raise UsageError(f"'{rest}' is no filter", "for example: status:draft 'priority>=3' -has:due, or JSON")
    return _assemble(lines)


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


def primary_text(subqueries: Sequence[SubQuery]) -> str:
    """What stands for several sub-queries: the first `lex`, else the first `vec`, else the first of all."""
    order = get_args(SubQueryKind)
    return min(subqueries, key=lambda subquery: order.index(subquery.kind)).text if subqueries else ""


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


def narrow_query(query: Query, known: Sequence[Collection], names: Sequence[str]) -> tuple[Query, tuple[str, ...]]:
    """The query within the collections that it may search, and what the caller must be told about them.

    Named collections hold, and a `collection:` filter in the query may only narrow them. Where none is named, the
    filter itself is the naming, and reaches collections that are not searched by default.

    Raises:
        NotFoundError: A name that does not exist; the hint names the nearest.
    """
    refuse_unknown(names, known)
    known_names = [collection.name for collection in known]
    named = query.scope.collections
    if not names and named is not None:
        unknown = [collection_not_found(name, known_names) for name in named if name not in known_names]
        return query, tuple(f"{one.message}; {one.hint}" for one in unknown)
    searched = tuple(dict.fromkeys(names)) or tuple(one.name for one in known if one.include_by_default)
    if not names and len(searched) == len(known):
        return query, ()
    narrowed = replace(query, scope=build_scope(Scope(searched), query.scope))
    return narrowed, () if searched else (_NO_COLLECTION,)


def build_scope(base: Scope, extra: Scope) -> Scope:
    """Both scopes at once: collections intersect, filters add up, the longer compatible path prefix holds."""
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


def _typed_line(line: str) -> re.Match[str] | None:
    """`lex: text` and its like as kind and text."""
    return re.match(_TYPED, line, re.IGNORECASE | re.DOTALL) if ":" in line else None


def _read_line(number: int, line: str, lines: _Lines, fields: Names[str] | None) -> None:
    if not line:
        return
    typed = _typed_line(line)
    if typed is None:
        rest = take_filters(line, lines.filters, fields)
        if rest:
            lines.plain.append((number, rest))
        return
    kind, value = typed[1].lower(), typed[2].strip()
    if kind == "expand":
        lines.expand = (number, take_filters(value, lines.filters, fields))
        if not value:
            raise UsageError("expand: query must include text.")
    elif kind == "intent":
        if lines.intent is not None:
            raise UsageError(f"Line {number}: only one intent: line is allowed per query document.")
        if not value:
            raise UsageError(f"Line {number}: intent: must include text.")
        lines.intent = value
    else:
        if not value:
            raise UsageError(f"Line {number} ({kind}:) must include text.")
        text = take_filters(value, lines.filters, fields) if kind == "lex" else value
        if text:
            lines.typed.append(SubQuery(cast(SubQueryKind, kind), text, number))


def _check_document(lines: _Lines) -> None:
    """Refuse lines that do not go together."""
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


def _assemble(lines: _Lines) -> Query:
    _check_document(lines)
    plain = lines.plain if lines.expand is None else [lines.expand]
    # Positive `collection:` filters unite and become the scope's collections; everything else must hold together.
    named = [one for one in lines.filters if one.field == "collection" and not one.is_negated]
    orders = [_order(one.value) for one in lines.filters if one.field == "sort"]
    rest = tuple(one for one in lines.filters if one not in named and one.field != "sort")
    scope = Scope(tuple(dict.fromkeys(one.value for one in named)) or None, filters=rest)
    text = plain[0][1] if plain else primary_text(lines.typed)
    query = Query(text, tuple(lines.typed), lines.intent, scope, orders[-1] if orders else "relevance")
    if query == Query(""):
        raise UsageError("the query is empty", hint="qmd query 'how do I …', or qmd --help")
    return query


def _order(value: str) -> Sort:
    """The order of hits that a caller named."""
    for known in get_args(Sort):
        if value.lower() == known:
            return cast(Sort, known)
    raise UsageError(f"unknown order 'sort:{value}'", hint="sort:date (newest first), sort:-date or sort:relevance")
