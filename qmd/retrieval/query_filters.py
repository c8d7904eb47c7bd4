"""Filters as people type them: `tag:work`, `-status:draft`, `priority>=3`, `has:due`, and what stands around them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import json

from qmd.errors import UsageError, nearest_name
from qmd.records import MetadataFilter

if TYPE_CHECKING:
    from qmd.store.conditions import Condition

FIELDS: Mapping[str, str] = {
    **{name: name for name in ("tag", "path", "collection", "title", "after", "before", "on", "sort")},
    "since": "after",
}
"""What may stand before the colon of a filter, and the field of the `MetadataFilter` that it makes; any other is one of
front matter, where the index knows it."""

_OPERATORS = {"": "eq", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_FILTER = (
    r"(?<!\S)(?P<sign>-?)(?P<field>[^\W\d][\w.-]*)(?P<op>:?[<>]=?|:)"
    r'(?P<value>"[^"\n]+"|[^\s":/][^\s"]*)(?!\S)'
)
_DATE = r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?\Z"
_SHOWN, _NAMED, _COMPARED, _SAID = 60, 8, 2_000, 3
"""Characters of a name in a message, names in it, names among which the one that was meant is sought, messages."""


def filter_text(field: str, value: str) -> str:
    """A filter as it is typed; a value with blanks stands in quotes."""
    return f'{field}:"{value}"' if re.search(r"\s", value) else f"{field}:{value}"


def split_filters(text: str, *, is_ended: bool = False) -> tuple[str, tuple[str, ...]]:
    """`text` without its filters, and these as they are written, for somebody who is still typing.

    Unless it `is_ended`, a filter at the very end is in neither: it may go on with the next key.
    """
    words, filters, position = "", [], 0
    for match in _find_filters(text, ()):
        words += text[position : match.start()]
        position = match.end() + (text[match.end() : match.end() + 1] == " ")
        if is_ended or match.end() < len(text):
            filters.append(match[0])
    return words + text[position:], tuple(filters)


def _find_filters(text: str, fields: Collection[str] | None) -> list[re.Match[str]]:
    """The filters in `text`; `fields` are the names of front matter, in small letters, None where every name is one."""
    found = ((one, one["field"].lower() in FIELDS) for one in _look_alikes(text))
    return [
        one for one, is_ours in found if (one["op"] == ":" if is_ours else fields is None or _name_in(one) in fields)
    ]


def _look_alikes(text: str) -> Iterator[re.Match[str]]:
    """What has the form of a filter; inside a quoted phrase the spelling of one is part of the phrase."""
    found = re.finditer(_FILTER, text) if any(sign in text for sign in ":<>") else ()
    return (match for match in found if text.count('"', 0, match.start()) % 2 == 0)


def _name_in(match: re.Match[str]) -> str:
    """The field that something like a filter asks for."""
    name = match["field"].lower()
    return match["value"].strip('"').lower() if name == "has" and match["op"] == ":" else name


def take_filters(text: str, filters: list[MetadataFilter], fields: Collection[str] | None) -> str:
    """`text` without its filters, which are appended to `filters`."""
    found = _find_filters(text, fields)
    filters += map(_read_filter, found)
    for match in reversed(found):
        text = f"{text[: match.start()].rstrip()} {text[match.end() :].lstrip()}"
    return text.strip()


def _read_filter(match: re.Match[str]) -> MetadataFilter:
    name, value, is_negated = match["field"].lower(), match["value"].strip('"'), bool(match["sign"])
    meant = FIELDS.get(name)
    if meant in ("after", "before", "on"):
        value = _normal_date(name, value)
    elif meant == "tag":
        value = value.removeprefix("#")
    if meant is not None:
        return MetadataFilter(meant, value, is_negated)
    condition = _condition(_name_in(match), name == "has", _OPERATORS[match["op"].strip(":")], value)
    return MetadataFilter("where", json.encode(condition).decode(), is_negated)


def _condition(name: str, is_there: bool, operator: str, value: str) -> Condition:
    """That a field is there, or how it compares with a value, which is of every type that it can be."""
    from qmd.store.conditions import Condition, number_in

    if is_there:
        return Condition("exists", name, True)
    number, meant = number_in(value), []
    if number is not None:
        meant.append(Condition(operator, name, number))
    if operator == "eq" and value.lower() in ("true", "false"):
        meant.append(Condition(operator, name, value.lower() == "true"))
    with suppress(UsageError):
        first, _, last = _normal_date("on", value).partition("/")
        # Behind the start of a date it stands for the end of what that names.
        ends = {"lt": {"lt": first}, "gte": {"gte": first}, "gt": {"gt": f"{last or first}~"}}
        bounds = ends.get(operator, {"lte": f"{last or first}~"} | ({"gte": first} if operator == "eq" else {}))
        parts = [Condition(bound, name, day) for bound, day in bounds.items()]
        meant.append(Condition("and", operands=(Condition("type", name, "date"), *parts)))
    if operator == "eq" or not meant:
        meant.append(Condition(operator, name, value, True))
    return meant[0] if len(meant) == 1 else Condition("or", operands=tuple(meant))


def may_name_fields(text: str) -> bool:
    """Whether a text has something like a filter by front matter, so that the index must be asked for its fields."""
    return any(match["field"].lower() not in FIELDS for match in _look_alikes(text))


def doubtful_filters(query: str, filters: Iterable[MetadataFilter], names: Collection[str]) -> Iterator[str]:
    """A line for each of the first filters by a field that no note has: in a query it is none, but words."""
    from qmd.store.conditions import read_condition

    lines = (line for line in query.splitlines() if not re.match(r"\s*(vec|hyde|intent):", line, re.IGNORECASE))
    known = {*FIELDS, *names}
    alike = {one[0]: _name_in(one) for line in lines for one in _look_alikes(line) if _name_in(one) not in known}
    for written, name in islice(alike.items(), _SAID):
        # No port, line of a file, or arrow in code.
        unknown = _unknown(name, names)
        if re.search(":[^0-9]|[<>]=?[0-9]", written) or "did you mean" in unknown:
            yield f"'{written[:_SHOWN]}' is searched as words: {unknown}"
    asked = (name for one in filters if one.field == "where" for name in read_condition(one.value).fields())
    for name in islice(dict.fromkeys(one for one in asked if one not in names), _SAID):
        yield _unknown(name, names)


def _unknown(name: str, names: Collection[str]) -> str:
    near = nearest_name(name[:_SHOWN], islice(names, _COMPARED), 0.75)
    first = [" ".join(one.split())[:_SHOWN] for one in sorted(names)[:_NAMED]]
    there_are = f"there are: {', '.join(first)}{', …' * (len(names) > _NAMED)} (qmd collection metadata)"
    if not names:
        return f"no note has front matter with '{name[:_SHOWN]}'"
    return f"no note has the field '{name[:_SHOWN]}'; " + (f"did you mean '{near}'?" if near else there_are)


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
    from qmd.dates.reading import find_dates
    from qmd.dates.relative import find_relative
    from qmd.times import local_today

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
