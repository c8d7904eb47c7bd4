"""Conditions of a scope on documents: the rules, of which each engine writes the smallest parts in its own language.

Front matter is compared by `conditions`. A tag includes the tags nested in it. The date of a note is the day or month
that it names, else the day on which its file was written, in the reader's time zone.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress

from msgspec.structs import replace

from qmd.conditions import Condition
from qmd.records import DateFilter, FieldFilter, Filter, Scope, TagFilter, TextFilter
from qmd.times import time_text

_AFTER_ANY_DAY = "~"
"""Suffix of a date that makes it later than any day in it: `2024-02~` sorts after `2024-02-29`."""

_FIRST_DAY, _SURE_DAY, _LAST_DAY = (f"date || '-{day}'" for day in ("01", "28", "31"))
"""A note's own date; for a month its first day, the last day that every month has, and its last possible day. The
suffix of a whole day changes no comparison with a date."""


class ScopeWriter(ABC):
    """Writer of conditions on rows of `documents`, in the SQL that all dialects share; the rest is abstract.

    Attributes:
        parts: The conditions of a scope so far.
    """

    def __init__(self) -> None:
        self.parts: list[str] = []

    def scope(self, scope: Scope) -> list[str]:
        """Return all conditions of a scope, so that no result needs filtering; empty if every document is in scope."""
        if scope.collections is not None:
            self.parts.append(f"collection IN ({', '.join(map(self.value, scope.collections))})")
        if scope.path_prefix:
            self.parts.append(self.begins("path", scope.path_prefix))
        for one in scope.filters:
            self.parts.append(self._filter(one))
        return self.parts

    def dated(self, days: Iterable[tuple[str, str]], *, by_file_time: bool) -> str:
        """Return the condition that a document's date is in one of the spans of days (first and last, ISO).

        With `by_file_time` the condition is on documents without a date of their own, by the day of the file's time.
        """
        parts = [self._written(*span) if by_file_time else self._named(*span) for span in days]
        return f"({' OR '.join(parts) or 'false'})"

    @abstractmethod
    def value(self, value: object) -> str:
        """Return the form of a value in a condition."""

    @abstractmethod
    def begins(self, column: str, text: str) -> str:
        """Return the condition that a column begins with a text."""

    @abstractmethod
    def contains(self, column: str, text: str) -> str:
        """Return the condition that a column contains a text."""

    @abstractmethod
    def contains_folded(self, column: str, text: str) -> str:
        """Return the condition that a column, case-folded, contains a case-folded text."""

    @abstractmethod
    def matches(self, column: str, mask: str) -> str:
        """Return the condition that a column matches a mask of `*`, `?` and `[...]`; `/` is like other characters."""

    @abstractmethod
    def tagged(self, tag: str) -> str:
        """Return the condition that the front matter has this tag, folded and without `#`, or one nested in it."""

    @abstractmethod
    def metadata_clause(self, condition: Condition) -> str:
        """Return the condition that the front matter meets a `Condition`."""

    def _filter(self, one: Filter) -> str:
        if one.is_negated:
            # A document without the value does not match the filter, so it matches the negation.
            return f"NOT coalesce({self._filter(replace(one, is_negated=False))}, false)"
        match one:
            case DateFilter("after", first):
                own, day = f"{_LAST_DAY} >= {self.value(first)}", f"modified_at >= {self._instant(first)}"
                return f"({own} OR (date IS NULL AND {day}))"
            case DateFilter("before", first):
                own, day = f"{_FIRST_DAY} < {self.value(first)}", f"modified_at < {self._instant(first)}"
                return f"({own} OR (date IS NULL AND {day}))"
            case DateFilter(_, first, last):
                return f"({self._named(first, last)} OR {self._written(first, last)})"
            case TextFilter("title", value):
                return self.contains_folded("title", value.casefold())
            case TextFilter("path", value):
                return self.matches("path", value) if re.search(r"[*?\[]", value) else self.contains("path", value)
            case TextFilter(_, value):
                return f"collection = {self.value(value)}"
            case TagFilter(name):
                return self.tagged(name.strip("#/").casefold())
            case FieldFilter(condition):
                return self.metadata_clause(condition)

    def _named(self, first: str, last: str) -> str:
        # A month lies within its month and not within any day of it.
        return f"({_FIRST_DAY} >= {self.value(first)} AND {_SURE_DAY} <= {self.value(last + _AFTER_ANY_DAY)})"

    def _written(self, first: str, last: str) -> str:
        since, until = self._instant(first), self._instant(last, is_end=True)
        return f"(date IS NULL AND modified_at >= {since} AND modified_at < {until})"

    def _instant(self, day: str, *, is_end: bool = False) -> str:
        """Return when a day, month or year starts in the reader's time zone, or the next one, like `modified_at`."""
        from datetime import date, datetime, timedelta

        def first_of(months: int) -> date:
            # For a year outside the calendar, the first of another year.
            return date(min(max(months // 12, 2), 9998), months % 12 + 1, 1)

        year, month, number = ([int(part) for part in re.findall(r"\d+", day)] + [0, 0, 0])[:3]
        months = 12 * year + max(month - 1, 0)
        if is_end:
            number, months = (number + 1, months) if number else (0, months + (1 if month else 12))
        begin = min(first_of(months) + timedelta(days=max(number - 1, 0)), first_of(months + 1))
        moment = datetime(begin.year, begin.month, begin.day)
        # Windows knows no time zones before 1970.
        with suppress(OSError, OverflowError):
            moment -= moment.astimezone().utcoffset() or timedelta()
        return self.value(time_text(moment) + "Z")
