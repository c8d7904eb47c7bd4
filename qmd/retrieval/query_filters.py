"""Query filters as people type them: `tag:work`, `-status:draft`, `priority>=3`, `has:due`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import cast, get_args

from msgspec import json

from qmd.conditions import Condition, Scalar, ScalarSet, number_in, read_condition
from qmd.errors import UsageError, nearest_name
from qmd.file_names import storable
from qmd.records import DateFilter, FieldFilter, Filter, Sort, TagFilter, TextFilter

FIELDS: Mapping[str, str] = {
    **{name: name for name in ("tag", "path", "collection", "title", "after", "before", "on", "sort")},
    "since": "after",
}
"""Meaning of the names before the colon of a filter; any other name is a field of front matter in the index."""

_OPERATORS = {"": "eq", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_FILTER = (
    r"(?<!\S)(?P<sign>-?)(?P<field>[^\W\d][\w.-]*)(?P<op>:?[<>]=?|:)"
    r'(?P<value>"[^"\n]+"|[^\s":/][^\s"]*)(?!\S)'
)
_DATE = r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?\Z"
_SHOWN, _NAMED, _COMPARED, _MAX_MESSAGES = 60, 8, 2_000, 3
"""Characters of a name in a message, names in it, names that are compared with an unknown one, messages."""


def filter_text(field: str, value: str) -> str:
    """Return a filter as it is typed; a value with blanks gets quotes."""
    return f'{field}:"{value}"' if re.search(r"\s", value) else f"{field}:{value}"


def split_filters(text: str, *, is_ended: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return `text` without its filters, and the filters as written, for a query that is still being typed.

    Unless it `is_ended`, a filter at the very end is in neither: the next key may continue it.
    """
    words, filters, position = "", [], 0
    for match in _find_filters(text, ()):
        words += text[position : match.start()]
        position = match.end() + (text[match.end() : match.end() + 1] == " ")
        if is_ended or match.end() < len(text):
            filters.append(match[0])
    return words + text[position:], tuple(filters)


def _find_filters(text: str, fields: Collection[str] | None) -> list[re.Match[str]]:
    """Return the filters in `text`; `fields` are the names of front matter in lower case, None for any name."""
    found = ((one, one["field"].lower() in FIELDS) for one in _find_lookalikes(text))
    return [
        one for one, is_ours in found if (one["op"] == ":" if is_ours else fields is None or _field_of(one) in fields)
    ]


def _find_lookalikes(text: str) -> Iterator[re.Match[str]]:
    """Yield the parts with the form of a filter, outside quoted phrases."""
    found = re.finditer(_FILTER, text) if any(sign in text for sign in ":<>") else ()
    return (match for match in found if text.count('"', 0, match.start()) % 2 == 0)


def _field_of(match: re.Match[str] | Mapping[str, str]) -> str:
    """Return the field that a filter or its lookalike names."""
    name = match["field"].lower()
    return match["value"].strip('"').lower() if name == "has" and match["op"] == ":" else name


def take_filters(text: str, fields: Collection[str] | None) -> tuple[str, list[Filter | Sort]]:
    """Return `text` without its filters, and these in order; `sort:` is an order.

    Args:
        text: One line.
        fields: Names of front-matter fields in lower case; None for any name.

    Raises:
        UsageError: A date or an order that cannot be read.
    """
    found = _find_filters(text, fields)
    for match in reversed(found):
        text = f"{text[: match.start()].rstrip()} {text[match.end() :].lstrip()}"
    return text.strip(), [_read_filter(match) for match in found]


def read_filters(text: str) -> list[Filter | Sort]:
    """Return the filters of a text without words, as typed or in JSON (also `{field: value}`); every name is a field.

    Raises:
        UsageError: The text contains anything else.
    """
    if text.lstrip()[:1] not in ("{", "["):
        rest, found = take_filters(storable(text), None)
        if rest or not found:
            raise UsageError(f"'{rest}' is no filter", "for example: status:draft 'priority>=3' -has:due, or JSON")
        return found
    with suppress(ValueError, RecursionError):
        plain = json.decode(text, type=dict[str, Scalar | ScalarSet])
        if plain and plain.keys().isdisjoint(("operator", "operands", "operand", "field", "")):
            return [_read_plain(name, one if isinstance(one, tuple) else (one,)) for name, one in plain.items()]
    return [FieldFilter(read_condition(text))]


def _read_plain(name: str, values: tuple[Scalar, ...]) -> Filter | Sort:
    if len(values) == 1:
        return _read_filter({"sign": "", "field": name, "op": ":", "value": str(values[0])})
    if name.lower() in FIELDS:
        raise UsageError(f"'{name}' takes one value in a filter", "as typed, tag:a tag:b means both")
    any_of = tuple(_condition(name.lower(), False, "eq", str(value)) for value in values)
    return FieldFilter(Condition("or", operands=any_of))


def read_order(value: str) -> Sort:
    """Return the order of hits that a caller named."""
    for known in get_args(Sort):
        if value.lower() == known:
            return cast(Sort, known)
    raise UsageError(f"unknown order 'sort:{value}'", hint="sort:date (newest first), sort:-date or sort:relevance")


def _read_filter(match: re.Match[str] | Mapping[str, str]) -> Filter | Sort:
    name, value, is_negated = match["field"].lower(), match["value"].strip('"'), bool(match["sign"])
    match FIELDS.get(name):
        case "sort":
            return read_order(value)
        case "tag":
            return TagFilter(value.removeprefix("#"), is_negated)
        case "after" | "before" | "on" as relation:
            first, last = _read_days(name, value)
            return DateFilter(relation, first, last if relation == "on" else first, is_negated)
        case "title" | "path" | "collection" as column:
            return TextFilter(column, value, is_negated)
        case _:
            operator = _OPERATORS[match["op"].strip(":")]
            return FieldFilter(_condition(_field_of(match), name == "has", operator, value), is_negated)


def _condition(name: str, is_existence: bool, operator: str, value: str) -> Condition:
    """Return the condition that a field exists, or compares with a value in each type that the value may have."""
    if is_existence:
        return Condition("exists", name, True)
    number, meant = number_in(value), []
    if number is not None:
        meant.append(Condition(operator, name, number))
    if operator == "eq" and value.lower() in ("true", "false"):
        meant.append(Condition(operator, name, value.lower() == "true"))
    with suppress(UsageError):
        first, last = _read_days("on", value)
        # `~` after the start of a date is the end of the days that it names.
        ends = {"lt": {"lt": first}, "gte": {"gte": first}, "gt": {"gt": f"{last}~"}}
        bounds = ends.get(operator, {"lte": f"{last}~"} | ({"gte": first} if operator == "eq" else {}))
        parts = [Condition(bound, name, day) for bound, day in bounds.items()]
        meant.append(Condition("and", operands=(Condition("type", name, "date"), *parts)))
    if operator == "eq" or not meant:
        meant.append(Condition(operator, name, value, True))
    return meant[0] if len(meant) == 1 else Condition("or", operands=tuple(meant))


def names_fields(text: str) -> bool:
    """Return whether a text may contain filters on front matter, so that the fields of the index are needed."""
    return any(match["field"].lower() not in FIELDS for match in _find_lookalikes(text))


def explain_unknown_fields(texts: Iterable[str], filters: Iterable[Filter], names: Collection[str]) -> Iterator[str]:
    """Yield a line for each of the first filters on fields that no note has; in a query these are words."""
    known = {*FIELDS, *names}
    alike = {one[0]: _field_of(one) for text in texts for one in _find_lookalikes(text) if _field_of(one) not in known}
    for written, name in islice(alike.items(), _MAX_MESSAGES):
        # Skip ports, lines of files and arrows in code.
        unknown = _describe_unknown_field(name, names)
        if re.search(":[^0-9]|[<>]=?[0-9]", written) or "did you mean" in unknown:
            yield f"'{written[:_SHOWN]}' is searched as words: {unknown}"
    asked = (name for one in filters if isinstance(one, FieldFilter) for name in one.condition.fields())
    for name in islice(dict.fromkeys(one for one in asked if one not in names), _MAX_MESSAGES):
        yield _describe_unknown_field(name, names)


def _describe_unknown_field(name: str, names: Collection[str]) -> str:
    near = nearest_name(name[:_SHOWN], islice(names, _COMPARED), 0.75)
    first = [" ".join(one.split())[:_SHOWN] for one in sorted(names)[:_NAMED]]
    there_are = f"there are: {', '.join(first)}{', …' * (len(names) > _NAMED)} (qmd collection metadata)"
    if not names:
        return f"no note has front matter with '{name[:_SHOWN]}'"
    return f"no note has the field '{name[:_SHOWN]}'; " + (f"did you mean '{near}'?" if near else there_are)


def _read_days(name: str, value: str) -> tuple[str, str]:
    """Return the first and last day of a date, both the same for an ISO date or its start (`2026-03`).

    Raises:
        UsageError: It is no date, or may be two.
    """
    match = re.match(_DATE, value)
    if match is None:
        return _read_named_days(name, value)
    month, day = (int(part or 1) for part in match.groups()[1:])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise _date_error(name, value)
    iso = match[1] + (f"-{month:02d}" if match[2] else "") + (f"-{day:02d}" if match[3] else "")
    return iso, iso


def _read_named_days(name: str, value: str) -> tuple[str, str]:
    """Return the first and last of the days of a date in words or in a form other than ISO."""
    from qmd.dates.reading import find_dates
    from qmd.dates.relative import find_relative
    from qmd.times import local_today

    # Hyphens replace quotes: after:last-week
    spans = [*find_dates(value, years=True), *find_relative(value.replace("-", " ").replace("_", " "), local_today())]
    whole = [one for one in spans if value[: one.start].strip() == value[one.end :].strip() == ""]
    if not whole:
        raise _date_error(name, value)
    if len(whole) > 1:
        days = " or ".join(one.first.isoformat() for one in whole)
        raise UsageError(f"'{name}:{value}' may be {days}", hint=f"{name}:{whole[0].first.isoformat()}")
    return whole[0].first.isoformat(), whole[0].last.isoformat()


def _date_error(name: str, value: str) -> UsageError:
    forms = f'{name}:2026, {name}:2026-03-14, {name}:yesterday or {name}:"last week"'
    return UsageError(f"'{name}:{value}' is not a date", hint=f'{forms}; as words: "{name}:{value}"')
