"""Dates as people write them: 17 October 2018, 10/17/2018, 2018年10月17日, Juli 2019, Q3 2024, winter 2019/20."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from functools import cache

from qmd.dates.days import DateSpan, Days, month_of, quarter_of, season_of, week_of
from qmd.dates.ranges import JOINT, OPEN, ORDINAL, join_ranges
from qmd.dates.words import MONTHS, ORDINALS, SEASONS

MAX_CHARACTERS = 100_000
"""Length of the text that is read; queries and headings are shorter."""

YEAR = re.compile(r"(?:19|20)[0-9]{2}")
"""Lookahead for a full year, which every date that does not depend on today contains."""

_LETTER = re.compile(r"[^\W\d_]")

_YEAR = r"(?P<y>(?:19|20)[0-9]{2})"
_WORD = r"(?P<w>[^\W\d_]{3,12})"
_SPACE = r"[ \t\u00a0_\-]{1,4}"
_GAP = r"[ \t\u00a0_\-]{0,4}"  # bounded, so that a text of blanks and dashes costs no more than another
_OF = r"(?:(?:of(?: the year)?|del?(?: año)?|de l['’]année|des jahres|von)[ \t])?"

_compiled = cache(re.compile)
"""One pattern, used only where a text can contain such a date: compiling all takes as long as reading ten notes."""

Match = re.Match[str]
Reader = Callable[[Match, "bool | None"], Sequence[Days]]
"""Meaning of a match: no days if it is not a date, several if it is ambiguous."""


def find_dates(text: str, *, day_first: bool | None = None, years: bool = False) -> list[DateSpan]:
    """Find the dates in `text` that do not depend on today, by place; an ambiguous one comes twice.

    Args:
        day_first: How to read 5/6/2018; None for both ways. Points (5.6.2018) always mean day first.
        years: Whether a year alone (`2018`) counts as a date.
    """
    if not YEAR.search(text):
        return []
    text = text[:MAX_CHARACTERS]
    found: list[DateSpan] = []
    taken = bytearray(len(text))
    has_words = _LETTER.search(text) is not None
    left = [match.start() for match in re.finditer(f"(?={YEAR.pattern})", text)]
    for source, read, needs_words in _patterns():
        if (needs_words and not has_words) or (read is _read_year and not years):
            continue
        if not (left := [start for start in left if taken.find(1, start, start + 4) < 0]):
            break
        for match in _compiled(source, re.IGNORECASE).finditer(text):
            if taken.find(1, *match.span()) >= 0:
                continue
            with suppress(ValueError):
                if days := read(match, day_first):
                    taken[match.start() : match.end()] = bytes([1]) * len(match[0])
                    found.extend(DateSpan(first, last, match.start(), match.end()) for first, last in days)
    found.sort(key=lambda one: one.start)
    return join_ranges(text, found, lambda end: find_dates(end, day_first=day_first, years=years))


@cache
def _patterns() -> tuple[tuple[str, Reader, bool], ...]:
    """Return (pattern, reader, whether it needs letters), the more exact first: each takes text from the later ones."""
    of_digits = (_read_day, _read_numeric_day, _read_month, _read_year)
    return tuple(
        (source, read, read not in of_digits or (read is not _read_year and "年" in source))
        for source, read in _sources()
    )


def _sources() -> Iterator[tuple[str, Reader]]:
    # 2018-10-17, 2018/10/17; a fourth part makes a version of 2018.10.17.1
    first = rf"(?:(?<![0-9])(?<![0-9][-/.])|(?<=-[0-9][0-9]/)){_YEAR}"
    yield rf"{first}(?P<s>[-/._])(?P<m>[0-9]{{1,2}})(?P=s)(?P<d>[0-9]{{1,2}})(?![0-9]|\.[0-9])", _read_day
    # 20181017, also with a time as in 201810171530; next to letters it is an identifier
    time = r"(?:T?(?:[01][0-9]|2[0-3])[0-5][0-9](?:[0-5][0-9])?Z?)?"
    yield rf"(?<![0-9A-Z.]){_YEAR}(?P<m>[0-9]{{2}})(?P<d>[0-9]{{2}}){time}(?![0-9A-Z])", _read_day
    # 17.10.2018, 17/10/2018, 10/17/2018; not v1.2.2018
    numbers = rf"(?P<a>[0-9]{{1,2}})(?P<s>[-/]|\.[ ]?)(?P<b>[0-9]{{1,2}})(?P=s){_YEAR}"
    yield rf"(?<![0-9./V])(?<![^.]-)(?<!version )(?<!release ){numbers}(?![0-9]|[-/.][0-9])", _read_numeric_day
    # 17 October 2018, 17th of October 2018, 17. Oktober 2018, 17 de octubre de 2018, 22-24 May 2018
    several = rf"(?:(?:(?<![^\W_]){OPEN})?(?P<d>[0-9]{{1,2}}){ORDINAL}{JOINT})?(?P<e>[0-9]{{1,2}}){ORDINAL}"
    yield rf"(?<![0-9.]){several}{_GAP}{_OF}{_WORD}\.?,?{_GAP}{_OF}{_YEAR}(?![0-9])", _read_named_day
    # October 17, 2018, Oct 17th 2018, May 22-24, 2018
    several = rf"(?P<d>[0-9]{{1,2}}){ORDINAL}(?:{JOINT}(?P<e>[0-9]{{1,2}}){ORDINAL})?"
    yield rf"(?<![^\W_]){_WORD}\.?{_GAP}{several},?{_SPACE}{_YEAR}(?![0-9])", _read_named_day
    # 2018-Oct-17, 2018 October 17
    yield rf"(?<![0-9]){_YEAR}{_SPACE}{_WORD}{_SPACE}(?P<d>[0-9]{{1,2}})(?![0-9])", _read_named_day
    # 2018年10月17日, 2024年7月, 2024年第三季度
    yield rf"{_YEAR}[ ]?年[ ]?(?P<m>[0-9]{{1,2}})[ ]?月[ ]?(?P<d>[0-9]{{1,2}})[ ]?[日号號]?", _read_day
    yield rf"{_YEAR}[ ]?年[ ]?(?P<m>[0-9]{{1,2}})[ ]?月", _read_month
    yield rf"{_YEAR}[ ]?年第?(?P<q>[1-4一二三四])季度?", _read_quarter
    # 2024-W42, 2024-W42-3, KW 42 2024, week 42 of 2024
    yield rf"(?<![0-9]){_YEAR}-?W(?P<k>[0-9]{{2}})(?:-?(?P<n>[1-7]))?(?![0-9])", _read_week
    week = r"(?:w|kw|week|kalenderwoche|woche|semaine|semana|неделя)"
    yield rf"(?<![^\W_]){week}{_GAP}(?P<k>[0-9]{{1,2}}){_GAP}[,/]?{_GAP}{_OF}{_YEAR}(?![0-9])", _read_week
    # Q3 2024, 2024-Q3, 3. Quartal 2024, first quarter of 2020
    yield rf"(?<![^\W_])[QT](?P<q>[1-4]){_GAP}[/'’]?{_GAP}{_YEAR}(?![0-9])", _read_quarter
    yield rf"(?<![0-9]){_YEAR}{_GAP}[/.]?Q(?P<q>[1-4])(?![0-9])", _read_quarter
    quarter = r"(?:quarter|quartal|trimestre|квартал)[^\W\d_]?"
    ordinal = rf"(?<![^\W_])(?:(?P<q>[1-4]){ORDINAL}{_GAP}|{_WORD}{_SPACE})"
    yield rf"{ordinal}{quarter}{_SPACE}{_OF}{_YEAR}(?![0-9])", _read_quarter
    # winter 2019/20, 2018年夏天, July 2019, julio de 2019, 2019-July, summer of 2018; not `in 2019 may`
    yield rf"(?<![^\W_]){_WORD}{_SPACE}{_OF}{_YEAR}{_GAP}[/–-](?P<z>(?:[0-9]{{2}}){{1,2}})(?![0-9])", _read_named_span
    yield rf"{_YEAR}[ ]?年[ ]?(?P<w>[春夏秋冬][天季])", _read_named_span
    yield rf"(?<![^\W_]){_WORD}\.?,?{_GAP}{_OF}{_YEAR}(?![0-9])", _read_named_span
    yield rf"(?<![0-9]){_YEAR}[-_/]{_WORD}(?![^\W_])", _read_named_span
    # 2019-07; a further part makes it a broken date
    yield rf"(?<![0-9])(?<![0-9][-/.]){_YEAR}(?P<s>[-/_])(?P<m>0[1-9]|1[0-2])(?![0-9])(?!(?P=s)[0-9])", _read_month
    # 07/2019, 07.2019
    yield rf"(?<![0-9.\-/])(?P<m>0[1-9]|1[0-2]|[1-9](?=/))[-/.]{_YEAR}(?![0-9]|[-/.][0-9])", _read_month
    # 2018, last because only filters ask for it
    yield rf"(?<![0-9]){_YEAR}(?![0-9])(?:[ ]?年)?", _read_year


def _read_day(match: Match, day_first: bool | None) -> Sequence[Days]:
    day = date(int(match["y"]), int(match["m"]), int(match["d"]))
    return ((day, day),)


def _read_numeric_day(match: Match, day_first: bool | None) -> Sequence[Days]:
    year, left, right = int(match["y"]), int(match["a"]), int(match["b"])
    if match["s"][0] == "." or left > 12:
        orders = [(right, left)]
    elif right > 12 or left == right:
        orders = [(left, right)]
    elif day_first is None:
        orders = [(left, right), (right, left)]
    else:
        orders = [(right, left) if day_first else (left, right)]
    return [(day, day) for day in (date(year, month, number) for month, number in orders)]


def _read_named_day(match: Match, day_first: bool | None) -> Sequence[Days]:
    if (month := MONTHS.get(match["w"].lower())) is None:
        return ()
    groups = match.groupdict()
    numbers = [int(number) for number in (groups["d"], groups.get("e")) if number]
    first, last = (date(int(match["y"]), month, number) for number in (numbers[0], numbers[-1]))
    return ((first, last),) if first <= last else ()


def _read_named_span(match: Match, day_first: bool | None) -> Sequence[Days]:
    name, year, further = match["w"].lower(), int(match["y"]), match.groupdict().get("z")
    season = SEASONS.get(name)
    if further:
        return (season_of(year, 4),) if season == 0 and int(further) in (year + 1, (year + 1) % 100) else ()
    if name in MONTHS:
        return (month_of(year, MONTHS[name]),)
    # The winter of a year is the one that ends in it, or the one that begins in it.
    return (season_of(year, season),) if season else () if season is None else (season_of(year, 0), season_of(year, 4))


def _read_month(match: Match, day_first: bool | None) -> Sequence[Days]:
    return (month_of(int(match["y"]), int(match["m"])),)


def _read_quarter(match: Match, day_first: bool | None) -> Sequence[Days]:
    word = match["q"] or match["w"].lower()
    number = ORDINALS.get(word) or "一二三四".find(word) + 1 or (int(word) if word.isdecimal() else 0)
    return (quarter_of(int(match["y"]), number),) if number else ()


def _read_week(match: Match, day_first: bool | None) -> Sequence[Days]:
    year, week = int(match["y"]), int(match["k"])
    if number := match.groupdict().get("n"):
        day = date.fromisocalendar(year, week, int(number))
        return ((day, day),)
    return (week_of(year, week),)


def _read_year(match: Match, day_first: bool | None) -> Sequence[Days]:
    year = int(match["y"])
    return ((date(year, 1, 1), date(year, 12, 31)),)
