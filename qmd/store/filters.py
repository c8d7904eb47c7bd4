"""What a scope asks of a document: the rules, of which each engine writes the smallest parts in its own language.

Front matter is compared by `conditions`. A tag stands for those nested in it, too. A note is of the day or
month that it names, else of the day on which its file was written, where its reader is.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress

from msgspec.structs import replace

from qmd.records import MetadataFilter, Scope
from qmd.times import time_text

_AFTER_ANY_DAY = "~"
"""Behind the start of a date it stands for the end of what that names: `2024-02~` is later than any day of it."""

_FIRST_DAY, _SURE_DAY, _LAST_DAY = (f"date || '-{day}'" for day in ("01", "28", "31"))
"""A note's own date, of a month its first day, the last that any month has, and the last. What this adds to a whole day
changes no comparison with a date."""


class ScopeWriter(ABC):
    """Writes conditions on rows of `documents` in what all dialects of SQL share; what they do not is abstract.

    Attributes:
        parts: What was written of a scope so far.
    """

    def __init__(self) -> None:
        self.parts: list[str] = []

    def scope(self, scope: Scope) -> list[str]:
        """All that a scope asks, so that nothing is left to be filtered afterwards; empty where it asks nothing."""
        if scope.collections is not None:
            self.parts.append(f"collection IN ({', '.join(map(self.value, scope.collections))})")
        if scope.path_prefix:
            self.parts.append(self.begins("path", scope.path_prefix))
        for one in scope.filters:
            self.parts.append(self._filter(one))
        return self.parts

    def dated(self, days: Iterable[tuple[str, str]], *, by_file_time: bool) -> str:
        """That a document is of a day, or whole month, in one of the spans of days (first and last, ISO).

        With `by_file_time` for those alone that have no date of their own, by the day on which the file was written.
        """
        parts = [self._written(*span) if by_file_time else self._named(*span) for span in days]
        return f"({' OR '.join(parts) or 'false'})"

    @abstractmethod
    def value(self, value: object) -> str:
        """What stands for a value."""

    @abstractmethod
    def begins(self, column: str, text: str) -> str:
        """That a column begins with a text."""

    @abstractmethod
    def contains(self, column: str, text: str) -> str:
        """That a column contains a text."""

    @abstractmethod
    def contains_folded(self, column: str, text: str) -> str:
        """That a column, case-folded, contains a text that is."""

    @abstractmethod
    def matches(self, column: str, mask: str) -> str:
        """That a column matches a mask of `*`, `?` and `[...]`, `/` like any other character."""

    @abstractmethod
    def tagged(self, tag: str) -> str:
        """That the front matter has this tag, folded and without `#`, or one nested in it."""

    @abstractmethod
    def metadata_clause(self, condition: str) -> str:
        """That the front matter meets a condition, in JSON (`conditions`)."""

    def _filter(self, asked: MetadataFilter) -> str:
        if asked.is_negated:
            # What is not known must count as "does not hold" here, too.
            return f"NOT coalesce({self._filter(replace(asked, is_negated=False))}, false)"
        value = asked.value
        match asked.field:
            case "after":
                own, day = f"{_LAST_DAY} >= {self.value(value)}", f"modified_at >= {self._instant(value)}"
                return f"({own} OR (date IS NULL AND {day}))"
            case "before":
                own, day = f"{_FIRST_DAY} < {self.value(value)}", f"modified_at < {self._instant(value)}"
                return f"({own} OR (date IS NULL AND {day}))"
            case "on":
                first, _, last = value.partition("/")
                return f"({self._named(first, last or first)} OR {self._written(first, last or first)})"
            case "title":
                return self.contains_folded("title", value.casefold())
            case "path":
                return self.matches("path", value) if re.search(r"[*?\[]", value) else self.contains("path", value)
            case "collection":
                return f"collection = {self.value(value)}"
            case "tag" | "tags":
                return self.tagged(value.strip("#/").casefold())
            case _:
                return self.metadata_clause(value)

    def _named(self, first: str, last: str) -> str:
        """Its own date lies between two; a month lies within its month and not within any day of it."""
        return f"({_FIRST_DAY} >= {self.value(first)} AND {_SURE_DAY} <= {self.value(last + _AFTER_ANY_DAY)})"

    def _written(self, first: str, last: str) -> str:
        """It has no date of its own, and its file was written between two."""
        since, until = self._instant(first), self._instant(last, is_end=True)
        return f"(date IS NULL AND modified_at >= {since} AND modified_at < {until})"

    def _instant(self, day: str, *, is_end: bool = False) -> str:
        """When a day, month or year begins where the reader is, or the next one, as `modified_at` has it."""
        from datetime import date, datetime, timedelta

        def first_of(months: int) -> date:
            # Of one that the calendar cannot hold, the first of another year.
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
