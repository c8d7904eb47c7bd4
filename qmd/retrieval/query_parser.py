"""Query text → `Query`: plain text, query documents, and filters anywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast, get_args

from msgspec import Struct, field

from qmd.errors import UsageError
from qmd.records import MetadataFilter, Query, Scope, Sort, SubQuery, SubQueryKind

MAX_QUERY_CHARS = 16_384
"""All texts of a query together: a long passage for `hyde` and a dozen sub-queries are under 8,000."""

MAX_SUBQUERIES = 32
MAX_FILTERS = 100
"""Each becomes a condition of one SQL statement, whose depth SQLite limits to 1,000."""

_FILTER = re.compile(
    r'(?<!\S)(?P<sign>-?)(?P<field>tag|path|collection|after|since|before|on|title|sort):(?:"(?P<quoted>[^"\n]+)"|(?P<bare>[^\s":/][^\s"]*))'
    r"(?!\S)",
    re.IGNORECASE,
)
_TYPED = re.compile(r"(lex|vec|hyde|intent|expand):(.*)\Z", re.IGNORECASE | re.DOTALL)
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?\Z")
_DATE_FILTERS = {"after": "after", "since": "after", "before": "before", "on": "on"}
_NEGATION = re.compile(r'(?:^|\s)-["\w]')


class _Lines(Struct):
    """What the lines of a query document said so far."""

    plain: list[tuple[int, str]] = field(default_factory=list)
    typed: list[SubQuery] = field(default_factory=list)
    intent: str | None = None
    expand: tuple[int, str] | None = None


def parse_query(text: str) -> Query:
    """Read plain text or a query document, and take the filters out of it.

    Filters are `tag:`, `path:`, `collection:`, `title:`, `after:` (`since:`), `before:` and `on:`, negated by a leading
    `-`, values with spaces in double quotes; they stand anywhere in plain text or on lines of their own, as does
    `sort:`. `expand: foo` is `foo`.

    Raises:
        UsageError: Empty query, one that is too long, or a query document that breaks its rules. How many
            sub-queries and filters there may be is for `check_size`, which every search asks.
    """
    _check_length(len(text))
    filters: list[MetadataFilter] = []
    lines = _Lines()
    for number, raw in enumerate(text.split("\n"), start=1):
        _read_line(number, raw.strip(), lines, filters)
    query = _assemble(lines, filters)
    validate_subqueries(query.subqueries, numbered=True)
    return query


def check_size(query: Query) -> None:
    """Refuse a query that would keep the models and the index busy for minutes, whoever made it.

    Raises:
        UsageError: Too many characters, sub-queries or filters.
    """
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
        if subquery.kind != "lex" and _NEGATION.search(subquery.text):
            raise UsageError(f"{prefix}Negation (-term) is not supported in vec/hyde queries. Use lex for exclusions.")


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


def _read_line(number: int, line: str, lines: _Lines, filters: list[MetadataFilter]) -> None:
    if not line:
        return
    typed = _TYPED.match(line)
    if typed is None:
        rest = _take_filters(line, filters)
        if rest:
            lines.plain.append((number, rest))
        return
    kind, value = typed[1].lower(), typed[2].strip()
    if kind == "expand":
        lines.expand = (number, _take_filters(value, filters))
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
        text = _take_filters(value, filters) if kind == "lex" else value
        if text:
            lines.typed.append(SubQuery(cast(SubQueryKind, kind), text, number))


def _assemble(lines: _Lines, filters: list[MetadataFilter]) -> Query:
    if lines.expand is not None:
        number, expanded = lines.expand
        if lines.plain or lines.typed or lines.intent is not None:
            raise UsageError(
                f"Line {number} starts with expand:, but query documents cannot mix expand with typed lines. "
                "Submit a single expand query instead."
            )
        lines.plain.append((number, expanded))
    is_document = bool(lines.typed or lines.intent is not None)
    if lines.plain and (is_document or len(lines.plain) > 1):
        raise UsageError(
            f"Line {lines.plain[0][0]} is missing a lex:/vec:/hyde:/intent: prefix. "
            "Each line in a query document must start with one."
        )
    if lines.intent is not None and not lines.typed:
        raise UsageError("intent: cannot appear alone. Add at least one lex:, vec:, or hyde: line.")
    sort = _sort(filters)
    scope = _scope(filters)
    if lines.typed:
        # The first lex line stands for the document, else the first vec line, else the first of all.
        primary = min(lines.typed, key=lambda subquery: ("lex", "vec", "hyde").index(subquery.kind))
        return Query(primary.text, tuple(lines.typed), lines.intent, scope, sort)
    plain = lines.plain[0][1] if lines.plain else ""
    query = Query(plain, scope=scope, sort=sort)
    if query == Query(""):
        raise UsageError("the query is empty", hint="qmd query 'how do I …', or qmd --help")
    return query


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
    return [match for match in _FILTER.finditer(text) if text.count('"', 0, match.start()) % 2 == 0]


def _take_filters(text: str, filters: list[MetadataFilter]) -> str:
    """`text` without its filters, which are appended to `filters`."""
    kept: list[str] = []
    position = 0
    for match in _find_filters(text):
        name = match["field"].lower()
        value = match["quoted"] or match["bare"]
        if name in _DATE_FILTERS:
            value = _normal_date(name, value)
            name = _DATE_FILTERS[name]
        elif name == "tag":
            value = value.removeprefix("#")
        filters.append(MetadataFilter(name, "!=" if match["sign"] else "=", value))
        kept.append(text[position : match.start()])
        position = match.end()
    if not kept:
        return text.strip()
    kept.append(text[position:])
    return " ".join(part for piece in kept if (part := piece.strip()))


def _normal_date(name: str, value: str) -> str:
    """The start of an ISO date, or for `on` of anything but a day, month or year its first and last day."""
    match = _DATE.match(value)
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


def _sort(filters: Sequence[MetadataFilter]) -> Sort:
    """The order that `sort:` asks for; the last one counts."""
    return ([check_sort(one.value) for one in filters if one.field == "sort"] or ["relevance"])[-1]


def check_sort(value: str) -> Sort:
    """An order of hits that a caller named.

    Raises:
        UsageError: There is no such order.
    """
    for known in get_args(Sort):
        if value.lower() == known:
            return cast(Sort, known)
    raise UsageError(f"unknown order 'sort:{value}'", hint="sort:date (newest first), sort:-date or sort:relevance")


def _scope(filters: Sequence[MetadataFilter]) -> Scope:
    """Positive `collection:` filters unite and become the scope's collections; everything else must hold together."""
    named = [one for one in filters if one.field == "collection" and one.op == "="]
    rest = tuple(one for one in filters if one not in named and one.field != "sort")
    return Scope(tuple(dict.fromkeys(one.value for one in named)) or None, filters=rest)
