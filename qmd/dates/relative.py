"""Dates that depend on today: yesterday, last week, vor drei Tagen, la semaine dernière, на прошлой неделе, 上个月."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta
from functools import cache
from typing import cast

from qmd.dates import words as vocabulary
from qmd.dates.days import DateSpan, Days, days_back, season_around, unit_around
from qmd.dates.reading import MAX_CHARACTERS
from qmd.dates.words import AGO_AFTER, AGO_BEFORE, NUMBERS, SEASONS, SHIFTS_AFTER, SHIFTS_BEFORE, UNITS, WEEKDAYS, Unit

_CHINESE_NUMBERS = "零一二三四五六七八九十"
_CHINESE_UNITS = {
    "天": "day",
    "日": "day",
    "周": "week",
    "星期": "week",
    "礼拜": "week",
    "月": "month",
    "季度": "quarter",
}
_CHINESE_SHIFTS = {"上": -1, "这": 0, "本": 0, "下": 1}
_CHINESE_YEARS = {"前年": -2, "去年": -1, "今年": 0, "明年": 1}
_LARGEST = 4
"""Most digits of a number of days or years."""


class _Word(str):
    """A word in lower case with its place in the text."""

    start: int
    end: int


def find_relative(text: str, today: date) -> list[DateSpan]:
    """Find the dates in `text` that depend on today, by place."""
    text = text[:MAX_CHARACTERS]
    words = _split_words(text)
    found: list[DateSpan] = []
    position = 0
    while position < len(words):
        n_words, days = 0, None
        with suppress(ValueError, OverflowError):
            n_words, days = _read_date(words, position, today)
        if days is not None:
            last = words[position + n_words - 1]
            found.append(DateSpan(*days, words[position].start, last.end, is_relative=True))
        position += max(n_words, 1)
    if not text.isascii():
        found.extend(_find_chinese(text, today))
        found.sort(key=lambda one: one.start)
    return found


def _split_words(text: str) -> list[_Word]:
    words = []
    # An elided article (d'hier) is a word of its own; aujourd'hui is one, as is avant-hier.
    for match in re.finditer(r"aujourd['’]hui|(?:avant|après)-[^\W_]+|[^\W_]+", text, re.IGNORECASE):
        word = _Word(match[0].lower())
        word.start, word.end = match.span()
        words.append(word)
    return words


def _read_date(words: Sequence[_Word], position: int, today: date) -> tuple[int, Days | None]:
    """Return how many words from `position` on are a date, and its days; 0 and None if none begins there."""
    following: list[str] = [*words[position : position + 6]]
    word, *rest = following + [""] * 5
    if word in vocabulary.DAYS and not (word == "hier" and not vocabulary.GERMAN.isdisjoint(words)):
        return 1, unit_around(today, "day", vocabulary.DAYS[word])
    if [word, *rest[:2]] == ["day", "before", "yesterday"]:
        return 3, unit_around(today, "day", -2)
    is_counted = position > 0 and words[position - 1].isdecimal()
    return _read_ago(word, rest, today, is_counted=is_counted) or _read_shift(word, rest, today) or (0, None)


def _read_ago(word: str, rest: Sequence[str], today: date, *, is_counted: bool) -> tuple[int, Days] | None:
    """Read dates like three days ago, vor drei Tagen, il y a trois jours."""
    for n_words, unit, count in (
        (3, rest[0], word if rest[1] in AGO_AFTER else ""),
        # неделю назад; nothing is left of `99999999 days ago`
        (2, word, "one" if rest[0] in AGO_AFTER and not is_counted else ""),
        (3, rest[1], rest[0] if word in AGO_BEFORE else ""),
        (5, rest[3], rest[2] if [word, *rest[:2]] == ["il", "y", "a"] else ""),
    ):
        number = _parse_number(count)
        if unit in UNITS and number is not None:
            return n_words, unit_around(today, _unit(unit), -number)
    return None


def _read_shift(word: str, rest: Sequence[str], today: date) -> tuple[int, Days] | None:
    """Read dates like last 7 days, last week, lundi prochain."""
    for shift, count in ((word, rest[0]), (rest[0], word)):
        # last 7 days, les 7 derniers jours
        number = _parse_number(count)
        if SHIFTS_BEFORE.get(shift) == -1 and number is not None and rest[1] in UNITS:
            return 3, days_back(today, _unit(rest[1]), number)
    for shifts, shift, unit in ((SHIFTS_BEFORE, word, rest[0]), (SHIFTS_AFTER, rest[0], word)):
        if shift in shifts and unit in WEEKDAYS:
            return 2, _weekday(today, WEEKDAYS[unit], shifts[shift])
        if shift in shifts and unit in SEASONS and (shift, unit) != ("this", "fall"):  # does this fall under …
            return 2, season_around(today, SEASONS[unit], shifts[shift])
        # `this day`, `the last day` do not depend on today
        if shift in shifts and unit in UNITS and UNITS[unit] != "day":
            return 2, unit_around(today, _unit(unit), shifts[shift])
    return None


def _unit(word: str) -> Unit:
    return cast(Unit, UNITS[word])


def _parse_number(word: str) -> int | None:
    return int(word) if word.isdecimal() and len(word) <= _LARGEST else NUMBERS.get(word)


def _weekday(today: date, weekday: int, shift: int) -> Days:
    """Return the nearest such day before today, after it, or in its week."""
    ahead = weekday - today.weekday()
    if shift:
        ahead = (ahead - shift) % 7 + shift if shift > 0 else -((-ahead - 1) % 7) - 1
    day = today + timedelta(days=ahead)
    return day, day


@cache
def _chinese_pattern() -> re.Pattern[str]:
    number = rf"(?P<{{}}>[0-9]{{{{1,{_LARGEST}}}}}|[{_CHINESE_NUMBERS}两]{{{{1,3}}}})"
    unit = "(?P<{}>天|日|周|星期|礼拜|月|季度|年)"
    return re.compile(
        "(?P<day>前天|昨天|昨日|今天|今日|明天|后天)|(?P<year>前年|去年|今年|明年)"
        f"|{number.format('ago')}[个個]?{unit.format('ago_unit')}(?:之|以)?前"
        f"|(?:最近|过去|近){number.format('back')}[个個]?{unit.format('back_unit')}"
        "|(?P<shift>[上这本下])[个個]?(?P<unit>周|星期|礼拜|月|季度)(?P<weekday>(?<!月)(?<!度)[一二三四五六日天])?"
    )


def _find_chinese(text: str, today: date) -> Iterator[DateSpan]:
    for match in _chinese_pattern().finditer(text):
        if match["day"] and any(match["day"] == word.group() for word in re.finditer(r"[^\W_]+", text)):
            continue  # an earlier complete word
        with suppress(ValueError, OverflowError):
            yield DateSpan(*_chinese_days(match, today), match.start(), match.end(), is_relative=True)


def _chinese_days(match: re.Match[str], today: date) -> Days:
    if match["day"]:
        return unit_around(today, "day", vocabulary.DAYS[match["day"]])
    if match["year"]:
        return unit_around(today, "year", _CHINESE_YEARS[match["year"]])
    if match["ago"]:
        return unit_around(today, _chinese_unit(match["ago_unit"]), -_chinese_number(match["ago"]))
    if match["back"]:
        return days_back(today, _chinese_unit(match["back_unit"]), _chinese_number(match["back"]))
    unit, shift = _chinese_unit(match["unit"]), _CHINESE_SHIFTS[match["shift"]]
    first, last = unit_around(today, unit, shift)
    if match["weekday"]:
        day = first + timedelta(days="一二三四五六日".find(match["weekday"].replace("天", "日")))
        return day, day
    return first, last


def _chinese_unit(text: str) -> Unit:
    return "year" if text == "年" else cast(Unit, _CHINESE_UNITS[text])


def _chinese_number(text: str) -> int:
    """Parse a number up to 99: 3, 三, 十二, 二十."""
    if text.isdecimal():
        return int(text)
    text = text.replace("两", "二")
    tens, ten, ones = text.rpartition("十")
    if not ten:
        return _CHINESE_NUMBERS.index(text)
    return 10 * (_CHINESE_NUMBERS.index(tens) if tens else 1) + (_CHINESE_NUMBERS.index(ones) if ones else 0)
