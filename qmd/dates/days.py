"""Spans of days and calendar arithmetic."""

from __future__ import annotations

from datetime import date, timedelta

from msgspec import Struct

from qmd.dates.words import Unit


class DateSpan(Struct, frozen=True):
    """The days from `first` to `last` that `text[start:end]` names."""

    first: date
    last: date
    start: int
    end: int
    is_relative: bool = False
    """True if it depends on today."""

    @property
    def iso(self) -> str:
        """Return the day, the month if the span is exactly one, or else the first day."""
        is_month = self.first.day == 1 and self.last == month_of(self.first.year, self.first.month)[1]
        return self.first.isoformat()[: 7 if is_month else 10]


Days = tuple[date, date]
"""First and last."""


def month_of(year: int, month: int) -> Days:
    first = date(year, month, 1)
    return first, (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)


def quarter_of(year: int, quarter: int) -> Days:
    """Return the days of a quarter, from 1."""
    return date(year, 3 * quarter - 2, 1), month_of(year, 3 * quarter)[1]


def season_of(year: int, season: int) -> Days:
    """Return the days of a season; 0 is the winter that began in the previous year, 4 the one of this December."""
    first = month_of(year, 3 * season)[0] if season else date(year - 1, 12, 1)
    return first, month_of(first.year + first.month // 12, (first.month + 1) % 12 + 1)[1]


def season_around(day: date, season: int, shift: int) -> Days:
    """Return the latest such season before `day` (-1), the nearest (0) or the next one after it (1)."""
    near = (season_of(day.year + number, season) for number in (-1, 0, 1, 2))
    fitting = (one for one in near if not shift or (one[1] < day if shift < 0 else one[0] > day))
    return min(fitting, key=lambda one: max(one[0] - day, day - one[1]))


def week_of(year: int, week: int) -> Days:
    """Return the days of an ISO week, Monday to Sunday."""
    return date.fromisocalendar(year, week, 1), date.fromisocalendar(year, week, 7)


def unit_around(day: date, unit: Unit, shift: int) -> Days:
    """Return the calendar's day, week, month … that lies `shift` units after the one of `day`.

    Raises:
        ValueError, OverflowError: The calendar does not reach that far.
    """
    if unit in ("day", "week"):
        moved = day + timedelta(days=shift * (1 if unit == "day" else 7))
        monday = moved - timedelta(days=moved.weekday())
        return (moved, moved) if unit == "day" else (monday, monday + timedelta(days=6))
    if unit == "year":
        return date(day.year + shift, 1, 1), date(day.year + shift, 12, 31)
    step = 1 if unit == "month" else 3
    year, index = divmod((day.year * 12 + day.month - 1) // step + shift, 12 // step)
    return month_of(year, index + 1) if unit == "month" else quarter_of(year, index + 1)


def days_back(today: date, unit: Unit, count: int) -> Days:
    """Return the last `count` days, weeks … up to today.

    Raises:
        ValueError, OverflowError: The calendar does not reach that far.
    """
    lengths = {"day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}
    return today - timedelta(days=lengths[unit] * count), today
