"""Ranges of dates (oct-dec 2020, zwischen dem 3. und 5. Mai 2024, 2020年10月到12月) and explicit years."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain, groupby, product

from qmd.dates.days import DateSpan

ORDINAL = r"(?:st|nd|rd|th|ère|er|ème|eme|e|º|\.|-?[йм])?"
_AND = r"and|und|et|y|и"
_TO = rf"(?:{_AND}|to|till|until|through|bis|au|à|al?|hasta|по|до)[ ](?:(?:the|dem|den|el|le)[ ])?"
JOINT = rf"(?:[ ]?(?:[-–—~～/到至]|\.\.)[ ]?|[ ]{_TO})"
"""Text between the two ends of a range; words need spaces around them."""

_DAY = r"[0-9]{1,2}"
_END = rf"(?:{_DAY}{ORDINAL}[ ]?(?:(?:of|de)[ ])?)?(?:[^\W\d_]{{3,12}}\.?|[QT][1-4]|{_DAY}\.)(?: {_DAY}[a-z]{{0,2}},?)?"
_LEFT = rf"(?i)(?<![^\W_])({_END})({JOINT})\Z"
_CHINESE_END = r"(?:[0-9]{1,2}月)?[0-9]{1,2}[月日号號]"
_RIGHT = rf"(?i)\A({JOINT})({_END}(?![^\W_]|[ ,.]{{0,2}}(?:(?:of|de)[ ])?[0-9])|{_CHINESE_END})"
OPEN = r"(?:(between|zwischen|entre|между)|from|von|vom|desde|del?|du|с|от|从|自)[ ]?(?:(?:the|dem|den|el|le)[ ])?"
"""Text before a range."""
_LONGEST = 40
"""Most characters that are read of an end without its year and the joint, and around a year."""
_Readings = Sequence[Sequence[DateSpan]]
_Reader = Callable[[str], Sequence[DateSpan]]
_YEARS = r"[0-9]{4}(?:[^\w年]+[0-9]{4}|[ ][^\W\d_]{1,7}[ ][0-9]{4})?"
_NOTES = (
    r"notes?|minutes|meetings?|journals?|diary|logs?|reviews?|summary|reports?|notizen|protokolle?|besprechung(?:en)?"
    r"|treffen|sitzung(?:en)?|tagebuch|réunions?|reuni(?:ón|ones)|notas|actas|diario|встреч[аи]|заметки|год[ау]?|会议|笔记|日记"
)
_TIME = rf"(?:in|during|of|years?|jahre?s?|während|aus|en|année|an|pendant|durante|año|в|за|{_NOTES})[ ]+"


def join_ranges(text: str, found: Sequence[DateSpan], read: _Reader) -> list[DateSpan]:
    """Return `found` with the ends of ranges in `text` joined; `read` reads an end."""
    joined: list[list[DateSpan]] = []
    for group in (list(spans) for _, spans in groupby(found, key=lambda one: one.start)):
        start, stop, year = group[0].start, group[0].end, group[0].first.year
        before = text[max(joined[-1][0].end if joined else 0, start - _LONGEST) : start]
        if joined and re.fullmatch(JOINT, before, re.IGNORECASE):
            group = _pair(text, joined[-1][0].start, joined[-1:], before, [group]) or group
        elif end := _search(_LEFT, before):
            ends = [f"{end[1]} {year}", f"{end[1]} {year - 1}"]
            if re.fullmatch(r"[0-9.]+\.", end[1]):  # 3.-5.5.2024, 3.5.-5.5.2024: the first may have a month
                ends = [re.sub(rf"\A(?:[0-9]+\.[ ]?){{{end[1].count('.')}}}", end[1], text[start:stop])]
            group = _pair(text, start - len(end[0]), _read_ends(ends, read, 0), end[2], [group]) or group
        if end := _search(_RIGHT, text[stop : stop + _LONGEST]):
            ends = [f"{year}年{end[2]}", f"{year}年{group[0].first.month}月{end[2]}"]
            ends += [f"{end[2]} {year}", f"{end[2]} {year + 1}"]
            group = _pair(text, group[0].start, [group], end[1], _read_ends(ends, read, stop + len(end[0]))) or group
        if joined and group[0].start <= joined[-1][0].start:
            joined.pop()
        joined.append(group)
    return list(chain.from_iterable(joined))


def _search(pattern: str, text: str) -> re.Match[str] | None:
    """Search non-empty text: most dates have none around them, so the pattern need not be compiled."""
    return re.search(pattern, text) if text else None


def _read_ends(ends: Sequence[str], read: _Reader, stop: int) -> _Readings:
    """Read each text that is a date and nothing else."""
    readings = ([one for one in read(end) if (one.start, one.end) == (0, len(end))] for end in ends)
    return [[DateSpan(one.first, one.last, 0, stop) for one in spans] for spans in readings]


def _pair(text: str, start: int, lefts: _Readings, joint: str, rights: _Readings) -> list[DateSpan]:
    """Return the first ranges between two readings of the same kind that do not run backwards."""
    opened = re.search(rf"(?i)(?<![^\W_]){OPEN}\Z", text[max(start - _LONGEST, 0) : start])
    if re.fullmatch(rf"(?i)[ ](?:{_AND})[ ].*", joint) and not (opened and opened[1]):
        return []
    start -= len(opened[0]) if opened else 0
    for left, right in product(lefts, rights):
        pairs = zip(left, right, strict=True) if len(left) == len(right) else product(left, right)
        kinds = [(a, b) for a, b in pairs if a.first <= b.first and (a.first == a.last) == (b.first == b.last)]
        if kinds:
            return [DateSpan(a.first, b.last, start, b.end) for a, b in kinds]
    return []


def is_explicit(text: str, span: DateSpan) -> bool:
    """Return whether a span is surely a time; years without month or day may be a version or a count."""
    before, after = text[max(span.start - _LONGEST, 0) : span.start], text[span.end : span.end + _LONGEST]
    if not re.fullmatch(_YEARS, text[span.start : span.end]) or not any(map(str.isalnum, before + after)):
        return True
    is_time = re.search(rf"(?i)(?<![^\W_]){_TIME}\Z", before) or re.match(rf"(?i)[ ]*(?:{_NOTES})(?![^\W_])", after)
    is_counted = re.match(r"(?i)[ ]?(?:lines?|bytes?|[kmg]b|px|pixels|words|items|files|ms)(?![^\W_])", after)
    return bool(is_time) and not is_counted
