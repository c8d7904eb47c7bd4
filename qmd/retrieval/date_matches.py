"""Date matches: notes of the days in a query come first, those that fit the rest of the query before others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from qmd.analysis.stopwords import language_of
from qmd.dates.words import may_name_date
from qmd.records import Candidate, DateFilter, LexicalTerm, Query, Ranking, Scope
from qmd.retrieval.matching import WeightedTerm, inverse_frequency
from qmd.store.base import IndexReader
from qmd.store.records import sort_candidates

if TYPE_CHECKING:
    from datetime import date

    from qmd.dates.days import DateSpan
    from qmd.retrieval.lexical import LexicalQuery

SHORT_DAYS = 7
"""Days up to which a span counts like a single day."""

FEW_NOTES = 5
"""Notes of a date that always count as evidence. Above, more than half of those in scope are no evidence."""

MAX_SPANS = 8
MAX_SPELLINGS = 40
"""Days and months of a span that are searched in texts."""
MAX_NAMED_SPELLINGS = 7
"""Days and months up to which their names are searched as well; each spelling is a phrase query."""

_QUOTED = r'"[^"]*"?'
_WHEN = r"(?i)^(when|wann|quand|quando|cuándo)\b|\b(since|timeline|history|seit|verlauf|depuis|histoire|historia)\b"
"""Words of questions about time or history."""


class DateMatches(Struct, frozen=True):
    """Documents of the dates in a query.

    Attributes:
        documents: Ids with the kind of match: of that day, written then and without a date (file time), or a mention.
        undated_text: The query without its dates except whole years; all of it without matches, "" if nothing else is
            left.
        date_text: The dates as the query writes them.
        term: The dates as one term that the index has for every document of them.
        weighted: The same as texts write it.
    """

    documents: Mapping[int, str]
    undated_text: str
    date_text: str = ""
    term: LexicalTerm | None = None
    weighted: WeightedTerm | None = None
    group: str = "date"
    """First part of the rows of its kinds in `qmd.retrieval.fusion.INFLUENCES`."""
    known_text: Mapping[int, str] = field(default_factory=dict)
    """Lines with the date, for documents whose texts do not contain it."""


def match_dates(reader: IndexReader, text: str, scope: Scope) -> DateMatches:
    """Return the notes of the days in `text`; none where it has no date, or most notes are of these days."""
    nothing = DateMatches({}, text)
    if not may_name_date(text):
        return nothing
    spans = _find_dates(text)[:MAX_SPANS]
    if not spans:
        return nothing
    from qmd.analysis.dates import terms_within

    total = reader.count_documents(scope)
    limit = max(total // 2, FEW_NOTES) + 1
    days = list(dict.fromkeys((one.first.isoformat(), one.last.isoformat()) for one in spans))
    keys = list(dict.fromkeys(key for one in spans for key in terms_within(one.first, one.last)))
    date_text = " ".join(dict.fromkeys(text[one.start : one.end] for one in spans))
    term = _match_any(date_text, keys)
    spellings = _spell_dates(spans, date_text)
    in_text = _match_any(date_text, spellings)
    mentions = reader.search_lexical([LexicalTerm(date_text, f"({term.fts} OR {in_text.fts})")], limit, scope)
    found = dict.fromkeys((one.document_id for one in mentions), "mention")
    if any(one.is_relative for one in spans):
        found |= dict.fromkeys(reader.find_by_date(days, scope, limit, by_file_time=True), "file time")
    found |= dict.fromkeys(reader.find_by_date(days, scope, limit), "day")
    if not 0 < len(found) < limit:
        return nothing
    weighted = WeightedTerm(in_text, inverse_frequency(len(found), total))
    known_text = {document_id: f"{spellings[0]}\n" for document_id, kind in found.items() if kind != "mention"}
    group = "long date" if any((one.last - one.first).days >= SHORT_DAYS for one in spans) else "date"
    return DateMatches(found, _remove_dates(text, spans), date_text, term, weighted, group, known_text)


def complete_query(query: LexicalQuery, dates: DateMatches) -> LexicalQuery:
    """Return the undated query with its dates as one more term, or only the dates without other words."""
    if dates.term is None or dates.weighted is None:
        return query
    if not dates.undated_text:
        return replace(query, terms=(dates.term, dates.weighted.term), weighted=(dates.weighted,))
    return replace(query, terms=(*query.terms, dates.weighted.term), weighted=(*query.weighted, dates.weighted))


def complete_ranking(
    reader: IndexReader, query: LexicalQuery, ranking: Ranking, dates: DateMatches, scope: Scope
) -> Ranking:
    """Return the ranking with those notes of the date that contain words of the query and are missing in it."""
    ranked = {candidate.document_id for candidate in ranking.candidates}
    missing = [document_id for document_id in dates.documents if document_id not in ranked]
    if not missing:
        return ranking
    found: Sequence[Candidate] = reader.search_lexical(query.terms, len(missing), scope, within=missing)
    return replace(ranking, candidates=tuple(sort_candidates((*ranking.candidates, *found))))


def asks_for_time(query: Query) -> bool:
    """Return whether the answer reads best in order of days: the query names, filters, sorts by or asks for dates."""
    is_sorted = query.sort != "relevance" or any(isinstance(one, DateFilter) for one in query.scope.filters)
    return is_sorted or bool(re.search(_WHEN, query.text) or (may_name_date(query.text) and _find_dates(query.text)))


def _find_dates(text: str) -> list[DateSpan]:
    """Return the dates outside quotes and without a sign; the user's marks make the rest literal."""
    from qmd.dates.ranges import is_explicit
    from qmd.dates.reading import find_dates
    from qmd.dates.relative import find_relative
    from qmd.times import local_today

    language = language_of(text, is_listed=True)
    # English puts the day or the month first; the other languages put the day first.
    found = find_dates(text, day_first=None if language in (None, "en") else True, years=True)
    spans = [one for one in found if is_explicit(text, one)]
    # `last quarter of 2020` and `last week of May 2020` are not relative to today.
    taken = {place for one in spans for place in range(one.start - 4, one.end)}
    spans += [one for one in find_relative(text, local_today()) if taken.isdisjoint(range(one.start, one.end + 1))]
    marked = [match.span() for match in re.finditer(_QUOTED, text)]
    return [
        one
        for one in sorted(spans, key=lambda one: one.start)
        if text[max(one.start - 1, 0) : one.start] not in ("+", "-")
        and not any(start <= one.start < end for start, end in marked)
    ]


def _match_any(text: str, words: Sequence[str]) -> LexicalTerm:
    return LexicalTerm(text, "(" + " OR ".join(f'"{word}"' for word in words) + ")")


def _remove_dates(text: str, spans: Sequence[DateSpan]) -> str:
    sure = [one for one in spans if one.is_relative or (one.last - one.first).days < 364]  # 2019 may be in a name
    return _cut_spans(text, sure) if any(map(str.isalnum, _cut_spans(text, spans))) else ""


def _cut_spans(text: str, spans: Sequence[DateSpan]) -> str:
    pieces: list[str] = []
    position = 0
    for one in spans:
        pieces.append(text[position : one.start])
        position = max(position, one.end)
    pieces.append(text[position:])
    return " ".join(" ".join(pieces).split())


def _spell_dates(spans: Sequence[DateSpan], date_text: str) -> list[str]:
    """Return the dates as texts write them, words separated by spaces: 2018 10 17, 17 october 2018, and as typed."""
    from qmd.analysis.dates import days_and_months

    spellings: dict[str, None] = {}
    for one in spans:
        parts = days_and_months(one.first, one.last)[:MAX_SPELLINGS]
        for day, is_month in parts:
            spelled = _spell_day(day, is_month)
            spellings.update(dict.fromkeys(spelled if len(parts) <= MAX_NAMED_SPELLINGS else spelled[:1]))
    words = re.findall(r"[^\W_]+", date_text)
    return [*spellings, *([" ".join(words).lower()] if words and not spans[0].is_relative else [])]


def _spell_day(day: date, is_month: bool) -> list[str]:
    from qmd.dates.words import MONTHS

    iso = day.isoformat().replace("-", " ")
    names = [name for name, number in MONTHS.items() if number == day.month][:2]
    if is_month:
        return [iso[:7], *(f"{name} {day.year}" for name in names)]
    return [iso, *(one for name in names for one in (f"{day.day} {name} {day.year}", f"{name} {day.day} {day.year}"))]
