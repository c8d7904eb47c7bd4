"""Days of a note: from its path, its front matter and its headings, never from its body."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache

from msgspec import Struct

from qmd.dates.days import DateSpan, month_of
from qmd.dates.reading import YEAR, find_dates
from qmd.dates.words import MONTHS
from qmd.records import Heading, MetadataValue

MAX_DATES = 5_000
_MAX_VALUE_CHARACTERS = 60
"""Longest front-matter value that may be a date; longer ones are descriptions."""

_OWN_KEYS = (
    *("date", "day", "datum", "fecha", "дата", "日期"),
    *("created", "createdat", "createdon", "creationdate", "datecreated", "erstellt", "créé", "creado", "создано"),
    *("published", "publishedat", "publishedon", "publishdate", "publicationdate", "pubdate", "posted"),
)
"""Keys of a note's own date, without spaces, hyphens and underscores; the first with a date counts."""

_BETWEEN = re.compile(r"[\s_-]+")
_FOLDER = r"(?:^|/)(?P<y>(?:19|20)[0-9]{2})[-_/. ]?(?P<m>0?[1-9]|1[0-2]|[^\W\d_]{3,12})(?:[-_ .]+[^\W\d_]{3,12})?/"
_DAY_IN_FOLDER = (
    rf"{_FOLDER}(?:(?P<w>[^\W\d_]{{3,12}})[-_ .]*|(?P<n>[01]?[0-9])[-_])?(?P<d>[0-3]?[0-9])(?![0-9])[^/]*\Z"
)
_dates_of_value = lru_cache(maxsize=1_000)(find_dates)
"""Cached, as notes share their days."""


class NoteDates(Struct, frozen=True):
    """Day or month of a note (ISO, None without one), and all days that it names."""

    own: str | None
    all: tuple[DateSpan, ...]


def dates_of(
    path: str, name: str, metadata: Mapping[str, MetadataValue], headings: Sequence[Heading], title: str
) -> NoteDates:
    """Return the dates in path, front matter and headings; the first source with a date gives the note's own date.

    In this order: file name, front matter, folders together with the file name, title or first heading.
    """
    named = find_dates(name)
    fields = _field_dates(metadata)
    written: Sequence[DateSpan] = next((fields[key] for key in _OWN_KEYS if key in fields), ())
    folder = _folder_date(path)
    # No date crosses lines, and none is without a year.
    headed = find_dates("\n".join([one.text for one in headings if "20" in one.text or "19" in one.text]))
    first = find_dates("\n".join([title, *(heading.text for heading in headings[:1])]))
    own = named or written or folder or first
    every = [*named, *(one for found in fields.values() for one in found), *folder, *first, *headed]
    unique = {(one.first, one.last): one for one in every[:MAX_DATES]}
    return NoteDates(own[0].iso if own else None, tuple(unique.values()))


def _field_dates(metadata: Mapping[str, MetadataValue]) -> dict[str, Sequence[DateSpan]]:
    """Return the dates of the front matter by key; both readings of an ambiguous value, the American one first."""
    fields: dict[str, Sequence[DateSpan]] = {}
    for key, value in metadata.items():
        # Of a list only the first entry: long ones are keywords.
        for text in value[:1] if isinstance(value, tuple) else (str(value),):
            if len(text) <= _MAX_VALUE_CHARACTERS and YEAR.search(text) and (found := _dates_of_value(text)):
                fields.setdefault(_BETWEEN.sub("", key), found)
    return fields


def _folder_date(path: str) -> Sequence[DateSpan]:
    """Return the day of `2018-10/oct-17.md` or `2018/10/17 standup.md`, else the month of the folder."""
    folder = path.rpartition("/")[0]
    if not YEAR.search(folder):
        return ()
    whole = find_dates(folder)
    if whole and whole[-1].first == whole[-1].last:
        return whole[-1:]
    day, month = re.search(_DAY_IN_FOLDER, path), re.search(_FOLDER, path)
    with suppress(ValueError):
        if day is not None and (number := _month(day["w"] or day["n"] or day["m"])):
            # The last days of a December meeting may be in January.
            year = int(day["y"]) + (number == 1 and _month(day["m"]) == 12)
            found = date(year, number, int(day["d"]))
            return (DateSpan(found, found, *day.span()),)
    with suppress(ValueError):
        if month is not None and (number := _month(month["m"])):
            return (DateSpan(*month_of(int(month["y"]), number), *month.span()),)
    return whole


def _month(text: str) -> int | None:
    return int(text) if text.isdecimal() else MONTHS.get(text.lower())
