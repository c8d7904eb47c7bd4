"""What is asked: text → `Query`, within a `Scope`, with the options of its caller."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, cast, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from qmd.errors import UsageError, collection_not_found, refuse_unknown
from qmd.records import Collection, MetadataFilter, Query, Scope, Sort, SubQuery, SubQueryKind

Mode = Literal["lexical", "dense", "hybrid"]

FIELDS: Mapping[str, str] = {
    "tag": "tag",
    "path": "path",
    "collection": "collection",
    "title": "title",
    "after": "after",
    "since": "after",
    "before": "before",
    "on": "on",
    "sort": "sort",
}
"""What may stand before the colon of a filter, and the field of the `MetadataFilter` that it makes. The stores filter
by any key of front matter: a row with its name makes it one that people can type."""

MAX_QUERY_CHARS = 16_384
"""All texts of a query together: a long passage for `hyde` and a dozen sub-queries are under 8,000."""

MAX_SUBQUERIES = 32
MAX_FILTERS = 100
"""Each becomes a condition of one SQL statement, whose depth SQLite limits to 1,000."""

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


_FILTER = rf'(?<!\S)(?P<sign>-?)(?P<field>{"|".join(FIELDS)}):(?:"(?P<quoted>[^"\n]+)"|(?P<bare>[^\s":/][^\s"]*))(?!\S)'
_TYPED = r"(lex|vec|hyde|intent|expand):(.*)\Z"
_DATE = r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?\Z"
_NEGATION = r'(?:^|\s)-["\w]'

_NO_COLLECTION = "every collection is excluded from searches; name one with -c, or run: qmd collection include NAME"


class _Lines(Struct):
    """What the lines of a query document said so far."""

    plain: list[tuple[int, str]] = field(default_factory=list)
    typed: list[SubQuery] = field(default_factory=list)
    filters: list[MetadataFilter] = field(default_factory=list)
    intent: str | None = None
    expand: tuple[int, str] | None = None


def read_query(asked: str | Sequence[SubQuery], intent: str | None = None, sort: str | None = None) -> Query:
    """The query that a text means, or typed sub-queries; its collections are applied by `narrow_query`.

    Plain text of several lines is one question.

    Args:
        asked: Plain text, a query document, or typed sub-queries.
        intent: What the answer is for; goes before an `intent:` line.
        sort: The order of hits; goes before `sort:`.

    Raises:
        UsageError: It breaks the rules of the query language, or would keep models and index busy for minutes.
    """
    if not isinstance(asked, str):
        validate_subqueries(asked)
        query = Query(primary_text(asked), tuple(asked))
    elif "\n" in asked and not any(_typed_line(line.lstrip()) for line in asked.splitlines()):
        query = parse_query(" ".join(asked.split()))
    else:
        query = parse_query(asked)
    query = replace(query, intent=intent or query.intent, sort=query.sort if sort is None else _order(sort))
    _check_size(query)
    return query


def parse_query(text: str) -> Query:
    """Read plain text or a query document, and take the filters out of it.

    Filters are the `FIELDS`, negated by a leading `-`, values with spaces in double quotes; they stand anywhere in
    plain text or on lines of their own, as does `sort:`. `expand: foo` is `foo`.

    Raises:
        UsageError: Empty query, one that is too long, or a query document that breaks its rules. How many
            sub-queries and filters there may be is for `read_query`.
    """
    _check_length(len(text))
    lines = _Lines()
    for number, raw in enumerate(text.split("\n"), start=1):
        _read_line(number, raw.strip(), lines)
    query = _assemble(lines)
    validate_subqueries(query.subqueries, numbered=True)
    return query


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
        subqueries: In the caller's order.
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


def _read_line(number: int, line: str, lines: _Lines) -> None:
    if not line:
        return
    typed = _typed_line(line)
    if typed is None:
        rest = _take_filters(line, lines.filters)
        if rest:
            lines.plain.append((number, rest))
        return
    kind, value = typed[1].lower(), typed[2].strip()
    if kind == "expand":
        lines.expand = (number, _take_filters(value, lines.filters))
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
        text = _take_filters(value, lines.filters) if kind == "lex" else value
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
    named = [one for one in lines.filters if one.field == "collection" and one.op == "="]
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


def filter_text(field: str, value: str) -> str:
    """A filter as it is typed; a value with blanks stands in quotes."""
    return f'{field}:"{value}"' if re.search(r"\s", value) else f"{field}:{value}"


def split_filters(text: str, *, is_ended: bool = False) -> tuple[str, tuple[str, ...]]:
    """`text` without its filters, and these as they are written, for somebody who is still typing.

    Unless it `is_ended`, a filter at the very end is in neither: it may go on with the next key.
    """
    words, filters, position = "", [], 0
    for match in _find_filters(text):
        words += text[position : match.start()]
        position = match.end() + (text[match.end() : match.end() + 1] == " ")
        if is_ended or match.end() < len(text):
            filters.append(match[0])
    return words + text[position:], tuple(filters)


def _find_filters(text: str) -> list[re.Match[str]]:
    """The filters in `text`; inside a quoted phrase the spelling of one is part of the phrase."""
    found = re.finditer(_FILTER, text, re.IGNORECASE) if ":" in text else ()
    return [match for match in found if text.count('"', 0, match.start()) % 2 == 0]


def _take_filters(text: str, filters: list[MetadataFilter]) -> str:
    """`text` without its filters, which are appended to `filters`."""
    kept: list[str] = []
    position = 0
    for match in _find_filters(text):
        name, value = match["field"].lower(), match["quoted"] or match["bare"]
        meant = FIELDS[name]
        if meant in ("after", "before", "on"):
            value = _normal_date(name, value)
        elif meant == "tag":
            value = value.removeprefix("#")
        filters.append(MetadataFilter(meant, "!=" if match["sign"] else "=", value))
        kept.append(text[position : match.start()])
        position = match.end()
    if not kept:
        return text.strip()
    kept.append(text[position:])
    return " ".join(part for piece in kept if (part := piece.strip()))


def _normal_date(name: str, value: str) -> str:
    """The start of an ISO date, or for `on` of anything but a day, month or year its first and last day."""
    match = re.match(_DATE, value)
    if match is None:
        first, last = _named_days(name, value)
        return first if name != "on" or first == last else f"{first}/{last}"
    month, day = (int(part or 1) for part in match.groups()[1:])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise _no_date(name, value)
    if match[2] is None:
        return match[1]
    return f"{match[1]}-{month:02d}" + (f"-{day:02d}" if match[3] else "")


def _named_days(name: str, value: str) -> tuple[str, str]:
    """First and last of the days that a value names in words or in another than the ISO form."""
    from qmd.clock import local_today
    from qmd.dates.reading import find_dates
    from qmd.dates.relative import find_relative

    # after:last-week spares the quotes
    spans = [*find_dates(value, years=True), *find_relative(value.replace("-", " ").replace("_", " "), local_today())]
    whole = [one for one in spans if value[: one.start].strip() == value[one.end :].strip() == ""]
    if not whole:
        raise _no_date(name, value)
    if len(whole) > 1:
        days = " or ".join(one.first.isoformat() for one in whole)
        raise UsageError(f"'{name}:{value}' may be {days}", hint=f"{name}:{whole[0].first.isoformat()}")
    return whole[0].first.isoformat(), whole[0].last.isoformat()


def _no_date(name: str, value: str) -> UsageError:
    forms = f'{name}:2026, {name}:2026-03-14, {name}:yesterday or {name}:"last week"'
    return UsageError(f"'{name}:{value}' is not a date", hint=f'{forms}; as words: "{name}:{value}"')
