"""`Scope` → a condition on `documents`, so that every search applies it before its cut.

Front matter is compared by `facts`, a list of what each document says; an order (`<`), which such a list does not have,
is looked up beforehand and becomes a list of ids.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta

import msgspec

from qmd.clock import time_text
from qmd.plugins.lance.tables import Tables, both, is_in, literal
from qmd.records import MetadataFilter, MetadataValue, Scope

_OPERATORS = {"=": "=", "!=": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

_AFTER_ANY_DAY = "~"
"""Behind the start of a date it stands for the end of what that names: `2024-02~` is later than any day of it."""

_OWN_FIRST_DAY = "left(date || '-01', 10)"


def facts_of(metadata: Mapping[str, MetadataValue]) -> list[str]:
    """What a document's front matter says, each value as a key, a mark of its type and the value.

    A tag stands there with every tag that it is nested in, so that `work` is found by `work/strategy`.
    """
    facts: dict[str, None] = {}
    for key, value in metadata.items():
        for one in value if isinstance(value, list | tuple) else (value,):
            facts[_fact(key, one)] = None
            if key in ("tag", "tags"):
                parts = str(one).casefold().lstrip("#").split("/")
                facts |= {_tag_fact("/".join(parts[: n + 1])): None for n in range(len(parts))}
    return list(facts)


def scope_condition(tables: Tables, scope: Scope) -> str:
    """Translate a scope; nothing of it is left to be filtered afterwards. Empty when every document is in scope."""
    parts = []
    if scope.collections is not None:
        parts.append(is_in("collection", scope.collections))
    if scope.path_prefix:
        parts.append(f"starts_with(path, {literal(scope.path_prefix)})")
    parts += [_filter_condition(tables, one, both(*parts)) for one in scope.filters]
    return both(*parts)


def dated_condition(first: str, last: str, *, by_file_time: bool) -> str:
    """Notes of their own whose day, or whole month, lies between two days (ISO).

    With `by_file_time` those alone that have no date, by the day on which the file was written.
    """
    if by_file_time:
        return f"date IS NULL AND modified_at >= {_instant(first)} AND modified_at < {_instant(last, is_end=True)}"
    is_whole = f"(length(date) = 10 OR date || '-28' <= {literal(last)})"
    return f"{_OWN_FIRST_DAY} BETWEEN {literal(first)} AND {literal(last)} AND {is_whole}"


def _filter_condition(tables: Tables, condition: MetadataFilter, inside: str) -> str:
    field, value = condition.field.lower(), condition.value
    match field:
        case "after":
            last_day = "left(date || '-31', 10)"
            sql = _by_day(f"{last_day} >= {literal(value)}", f"modified_at >= {_instant(value)}")
        case "before":
            sql = _by_day(f"{_OWN_FIRST_DAY} < {literal(value)}", f"modified_at < {_instant(value)}")
        case "on":
            first, _, last = value.partition("/")
            last = last or first
            # A month that is said without a day lies within its month and not within any day of it.
            own = (
                f"{_OWN_FIRST_DAY} >= {literal(first)} AND left(date || '-28', 10) <= {literal(last + _AFTER_ANY_DAY)}"
            )
            sql = _by_day(own, f"modified_at >= {_instant(first)} AND modified_at < {_instant(last, is_end=True)}")
        case "modified" | "modified_at":
            sql = f"modified_at {_OPERATORS[condition.op]} {literal(value)}"
        case "title":
            sql = f"contains(lower(title), {literal(value.lower())})"
        case "path" if any(mark in value for mark in "*?["):
            sql = f"regexp_like(path, {literal(_glob_pattern(value))})"
        case "path":
            sql = f"contains(path, {literal(value)})"
        case "collection":
            sql = f"collection = {literal(value)}"
        case "tag" | "tags":
            sql = f"array_has_any(facts, [{literal(_tag_fact(value.strip('#/').casefold()))}])"
        case _ if condition.op in ("=", "!="):
            alike = {_fact(field, one) for one in (value, _number(value)) if one is not None}
            sql = f"array_has_any(facts, [{', '.join(map(literal, sorted(alike)))}])"
        case _:
            sql = _compared(tables, field, condition, inside)
    return f"NOT coalesce({sql}, false)" if condition.op == "!=" else f"coalesce({sql}, false)"


def _compared(tables: Tables, field: str, condition: MetadataFilter, inside: str) -> str:
    """The documents with a value of a front-matter key that is smaller or larger, by id."""
    number = _number(condition.value)
    found = []
    for row in tables.select("documents", ("id", "metadata"), both(inside, "metadata != '{}'")):
        held = msgspec.json.decode(row["metadata"]).get(field)
        for one in held if isinstance(held, list) else (held,):
            is_number = isinstance(one, int | float) and not isinstance(one, bool)
            if is_number and number is not None:
                is_true = _holds(one, condition.op, number)
            else:
                is_true = one is not None and _holds(_folded(one), condition.op, condition.value.casefold())
            if is_true:
                found.append(row["id"])
    return is_in("id", dict.fromkeys(found))


def _holds(left: float | str, op: str, right: float | str) -> bool:
    if op[0] == "<":
        return left < right or (op == "<=" and left == right)  # type: ignore[operator]  # both numbers or both texts
    return left > right or (op == ">=" and left == right)  # type: ignore[operator]


def _by_day(own: str, modified: str) -> str:
    """A condition on the note's own day or month, else on when its file was written."""
    return f"((date IS NOT NULL AND {own}) OR (date IS NULL AND {modified}))"


def _instant(day: str, *, is_end: bool = False) -> str:
    """When a day, month or year begins where the reader is, or the next one, as `modified_at` has it."""
    year, month, number = ([int(part) for part in re.findall(r"\d+", day)] + [0, 0])[:3]
    first = date(min(max(year, 2), 9998), min(max(month, 1), 12), 1)
    n_days = calendar.monthrange(first.year, first.month)[1]
    begin = first + timedelta(days=min(max(number, 1) - 1, n_days))
    if is_end:
        if number:
            begin += timedelta(days=1)
        elif month:
            begin = first + timedelta(days=n_days)
        else:
            begin = date(first.year + 1, 1, 1)
    local = datetime(begin.year, begin.month, begin.day).astimezone()
    return literal(time_text((local - local.utcoffset()).replace(tzinfo=None)) + "Z")  # type: ignore[operator]


def _glob_pattern(glob: str) -> str:
    """SQLite's GLOB as a regular expression: `*`, `?` and `[...]`, `/` like any other character."""
    parts = re.findall(r"\[\^?\]?[^\]]*\]|.", glob, re.DOTALL)
    signs = {"*": ".*", "?": "."}
    made = [one if len(one) > 1 else signs.get(one, re.escape(one)) for one in parts]
    return f"(?s)^{''.join(made)}$"


def _fact(key: str, value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{key}\nn{float(value)!r}"
    return f"{key}\nt{_folded(value)}"


def _tag_fact(tag: str) -> str:
    return f"\n{tag}"


def _folded(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value).casefold()


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
