"""Notes of the days that the query names: they come first, among them those that the rest of the query fits best."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from qmd.analysis.stopwords import language_of
from qmd.dates.words import may_name_date
from qmd.records import Candidate, LexicalTerm, Query, Ranking, Scope
from qmd.retrieval.matching import WeightedTerm, inverse_frequency
from qmd.store.base import IndexReader
from qmd.store.records import sort_candidates

if TYPE_CHECKING:
    from datetime import date

    from qmd.dates.days import DateSpan
    from qmd.retrieval.lexical import LexicalQuery

SHORT_DAYS = 7
"""Days up to which a span names notes like a day does."""

FEW = 5
"""Notes of a date that are never too many. Above, more than half of those in scope tell nothing."""

MAX_SPANS = 8
MAX_WAYS = 40
"""Days and months of a span that are looked for in a text."""
FEW_PARTS = 7
"""Up to so many also by the names of their months; every way is a phrase that is sought."""

_QUOTED = r'"[^"]*"?'
_COURSE = r"(?i)^(when|wann|quand|quando|cuándo)\b|\b(since|timeline|history|seit|verlauf|depuis|histoire|historia)\b"
"""Words that ask when something was, or how it went on."""


class DateMatches(Struct, frozen=True):
    """What the dates of a query find.

    Attributes:
        documents: Ids, and in which way each has the date: it is of that day, was written then without having a date
            (file time), or names it anywhere (mention).
        rest: The query without its dates but for whole years: all where they find nothing, "" where nothing is left.
        said: The dates as the query writes them.
        term: The dates as one term that the index holds of every document of them.
        weighted: The same as texts write it.
    """

    documents: Mapping[int, str]
    rest: str
    date_text: str = ""
    term: LexicalTerm | None = None
    weighted: WeightedTerm | None = None
    group: str = "date"
    """What the influence of its days is called in `qmd.retrieval.fusion.INFLUENCES`."""
    words: Mapping[int, str] = field(default_factory=dict)
    """For documents that have the date without saying it in their text: a line that does."""


def match_dates(reader: IndexReader, text: str, scope: Scope) -> DateMatches:
    """The notes of the days that `text` names, unless it names none or most of the notes are of these days."""
    nothing = DateMatches({}, text)
    if not may_name_date(text):
        return nothing
    spans = _dates(text)[:MAX_SPANS]
    if not spans:
        return nothing
    from qmd.analysis.dates import terms_within

    total = reader.count_documents(scope)
    limit = max(total // 2, FEW) + 1
    days = list(dict.fromkeys((one.first.isoformat(), one.last.isoformat()) for one in spans))
    keys = list(dict.fromkeys(key for one in spans for key in terms_within(one.first, one.last)))
    date_text = " ".join(dict.fromkeys(text[one.start : one.end] for one in spans))
    term = _any_of(date_text, keys)
    ways = _ways(spans, date_text)
    in_text = _any_of(date_text, ways)
    mentions = reader.search_lexical([LexicalTerm(date_text, f"({term.fts} OR {in_text.fts})")], limit, scope)
    found = dict.fromkeys((one.document_id for one in mentions), "mention")
    if any(one.is_relative for one in spans):
        found |= dict.fromkeys(reader.find_by_date(days, scope, limit, by_file_time=True), "file time")
    found |= dict.fromkeys(reader.find_by_date(days, scope, limit), "day")
    if not 0 < len(found) < limit:
        return nothing
    weighted = WeightedTerm(in_text, inverse_frequency(len(found), total))
    words = {document_id: f"{ways[0]}\n" for document_id, kind in found.items() if kind != "mention"}
    is_long = any((one.last - one.first).days >= SHORT_DAYS for one in spans)
    return DateMatches(found, _rest(text, spans), date_text, term, weighted, "long date" if is_long else "date", words)


def complete_query(query: LexicalQuery, date_matches: DateMatches) -> LexicalQuery:
    """The terms of the rest of a query with its dates as one more, as texts write them: some say it in their bodies.

    Where nothing else is asked, beside what the index holds of the dates.
    """
    if date_matches.term is None or date_matches.weighted is None:
        return query
    if not date_matches.rest:
        return replace(query, terms=(date_matches.term, date_matches.weighted.term), weighted=(date_matches.weighted,))
    return replace(
        query, terms=(*query.terms, date_matches.weighted.term), weighted=(*query.weighted, date_matches.weighted)
    )


def complete_ranking(
    reader: IndexReader, query: LexicalQuery, ranking: Ranking, date_matches: DateMatches, scope: Scope
) -> Ranking:
    """The ranking with the notes of the date that hold words of the query and stand further below."""
    held = {candidate.document_id for candidate in ranking.candidates}
    missing = [document_id for document_id in date_matches.documents if document_id not in held]
    if not missing:
        return ranking
    found: Sequence[Candidate] = reader.search_lexical(query.terms, len(missing), scope, within=missing)
    return replace(ranking, candidates=tuple(sort_candidates((*ranking.candidates, *found))))


def asks_for_time(query: Query) -> bool:
    """Whether an answer is best read in the order of its days: dates are named, filtered or sorted by, or asked for."""
    is_sorted = query.sort != "relevance" or any(one.field in ("after", "before", "on") for one in query.scope.filters)
    return is_sorted or bool(re.search(_COURSE, query.text) or (may_name_date(query.text) and _dates(query.text)))


def _dates(text: str) -> list[DateSpan]:
    """Dates outside quotes and without a sign: what the user marks is meant word for word."""
    from qmd.dates.ranges import is_explicit
    from qmd.dates.reading import find_dates
    from qmd.dates.relative import find_relative
    from qmd.times import local_today

    language = language_of(text)
    # English is written with the day first and with the month first; the other languages agree.
    found = find_dates(text, day_first=None if language in (None, "en") else True, years=True)
    spans = [one for one in found if is_explicit(text, one)]
    # `last quarter of 2020` and `last week of May 2020` are not said from today.
    taken = {place for one in spans for place in range(one.start - 4, one.end)}
    spans += [one for one in find_relative(text, local_today()) if taken.isdisjoint(range(one.start, one.end + 1))]
    marked = [match.span() for match in re.finditer(_QUOTED, text)]
    return [
        one
        for one in sorted(spans, key=lambda one: one.start)
        if text[max(one.start - 1, 0) : one.start] not in ("+", "-")
        and not any(start <= one.start < end for start, end in marked)
    ]


def _any_of(text: str, words: Sequence[str]) -> LexicalTerm:
    return LexicalTerm(text, "(" + " OR ".join(f'"{word}"' for word in words) + ")")


def _rest(text: str, spans: Sequence[DateSpan]) -> str:
    sure = [one for one in spans if one.is_relative or (one.last - one.first).days < 364]  # 2019 may be in a name
    return _without(text, sure) if any(map(str.isalnum, _without(text, spans))) else ""


def _without(text: str, spans: Sequence[DateSpan]) -> str:
    kept: list[str] = []
    position = 0
    for one in spans:
        kept.append(text[position : one.start])
        position = max(position, one.end)
    kept.append(text[position:])
    return " ".join(" ".join(kept).split())


def _ways(spans: Sequence[DateSpan], date_text: str) -> list[str]:
    """How texts write these dates, words apart by spaces: 2018 10 17, 17 october 2018, and as the query does."""
    from qmd.analysis.dates import days_and_months

    ways: dict[str, None] = {}
    for one in spans:
        parts = days_and_months(one.first, one.last)[:MAX_WAYS]
        for day, is_month in parts:
            written = _written(day, is_month)
            ways.update(dict.fromkeys(written if len(parts) <= FEW_PARTS else written[:1]))
    words = re.findall(r"[^\W_]+", date_text)
    return [*ways, *([" ".join(words).lower()] if words and not spans[0].is_relative else [])]


def _written(day: date, is_month: bool) -> list[str]:
    from qmd.dates.words import MONTHS

    iso = day.isoformat().replace("-", " ")
    names = [name for name, number in MONTHS.items() if number == day.month][:2]
    if is_month:
        return [iso[:7], *(f"{name} {day.year}" for name in names)]
    return [iso, *(way for name in names for way in (f"{day.day} {name} {day.year}", f"{name} {day.day} {day.year}"))]
