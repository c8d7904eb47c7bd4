"""Days as full-text terms of notes and queries."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from functools import lru_cache

from qmd.dates.days import DateSpan, month_of

_MONTH_DAYS = 28
MANY_DAYS = 62
"""Longest span in days that is indexed and searched by its days; longer ones use only months."""


def date_terms(spans: Iterable[DateSpan]) -> list[str]:
    """Return every day and month that spans touch, each once; of a month or more only months.

    No text contains such words (`onday20181017`, `onmonth201810`), and no one types them.
    """
    return list(dict.fromkeys(term for span in spans for term in _span_terms(span.first, span.last)))


@lru_cache(maxsize=1_000)
def _span_terms(first: date, last: date) -> tuple[str, ...]:
    """Cached, as notes share their days."""
    n_days = (last - first).days + 1
    days = [first + timedelta(days=number) for number in (range(n_days) if n_days < _MONTH_DAYS else (0, n_days - 1))]
    kept = [day for day in days if n_days < _MONTH_DAYS or day not in month_of(day.year, day.month)]
    return (*map(_day_term, kept), *_month_terms(first, last))


def terms_within(first: date, last: date) -> list[str]:
    """Return terms such that every note naming a day, or a whole month, from `first` to `last` has one of them."""
    return [_month_terms(day, day)[0] if is_month else _day_term(day) for day, is_month in days_and_months(first, last)]


def days_and_months(first: date, last: date) -> list[tuple[date, bool]]:
    """Return the days of a span, whole months as their first day and True; of a long span only months."""
    parts: list[tuple[date, bool]] = []
    day = first
    while day <= last:
        start, end = month_of(day.year, day.month)
        is_month = (day == start and end <= last) or (last - first).days > MANY_DAYS
        parts.append((day, is_month))
        day = (end if is_month else day) + timedelta(days=1)
    return parts


def _day_term(day: date) -> str:
    return "onday" + day.isoformat().replace("-", "")


def _month_terms(first: date, last: date) -> list[str]:
    touched = range(first.year * 12 + first.month - 1, last.year * 12 + last.month)
    return [f"onmonth{number // 12:04}{number % 12 + 1:02}" for number in touched]
