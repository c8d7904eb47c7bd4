"""Consecutive sessions: the place where the next days of a meeting go on with the item of a hit in its minutes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from itertools import islice

from msgspec.structs import replace

from qmd.analysis.query import parse_lex
from qmd.analysis.stopwords import stop_words_of
from qmd.ingest.outline import kind_of, read_outline
from qmd.records import Hit, Mention, Scope, StoredDocument
from qmd.retrieval.layout import SUMMARY, Layout
from qmd.retrieval.matching import fold
from qmd.retrieval.references import form_of_place
from qmd.store.base import IndexReader
from qmd.store.sqlite.schema import indexed_form

FIRST, OFFERS, LEAD, SIMILAR, RECURRING = 5, 3, 2 / 3, 0.65, 0.1
"""Hits that may name a place, how many do, their least share of the best relevance, least cosine of two headings of one
item, and share of dated notes with a heading that is none. All headings of tc39-notes name 116 places, about 5 of them
of another matter; of 9 more from .6 on, 5 are wrong; without RECURRING 28 days of a diary go on with `House`."""

FEW = 11
"""Headings in addition to those of the sessions: in few headings no word is much rarer than another."""

DAYS, SESSIONS, HEADINGS, NOTES, CHARACTERS = 4, 8, 500, 1_000, 1_000_000
"""Days of one meeting, over a weekend, and limits of reading. In the next meeting 9 of 15 single facts have a place."""

_NO_ITEM = rf"{SUMMARY}|(?:opening|attend|participants|present$|agenda|anwesen|teilnehm|tagesordnung)"
_MARK = r"\b(?:cont(?:in\w+|'?d)?|part|pt|revisit\w*|redux|follow[- ]?up|fortsetzung|suite|seguito|vervolg)\b"
_NO_MATTER = rf"(?i)\A\s*\d{{1,2}}(?:\.\w*)*\s|[(\[][^()\[\]]*{_MARK}[^()\[\]]*[)\]]|{_MARK}|(?-i:(?<=[a-z])(?=[A-Z]))"


def add_continuations(reader: IndexReader, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return the hits, best first; of the first ones some name the place where their item goes on."""
    places: dict[int, Mention] = {}
    for number, hit in enumerate(hits[:FIRST]):
        if len(places) == OFFERS or hit.relevance < LEAD * hits[0].relevance:
            break
        place = _find_next(reader, hit)
        if place is not None and place not in places.values():
            places[number] = place
    return tuple(replace(hit, continues=places.get(number)) for number, hit in enumerate(hits))


def _find_next(reader: IndexReader, hit: Hit) -> Mention | None:
    path, day = hit.document.path, hit.document.date or ""
    trail, place = reversed(hit.passage.heading_trail), kind_of(path).place or None
    item = next((one for one in trail if not re.match(_NO_ITEM, one) and form_of_place(one) != place), "")
    # A note whose path does not name its day is not the minutes of that day.
    if not item or len(day) < 10 or not re.search(rf"(?s){day[:4]}.*?{int(day[8:])}(?!\d)", path):
        return None
    scope = Scope((hit.document.collection,), re.split(r"\d", path[: path.rfind("/") + 1])[0] or None)
    first, last = (str(date.fromisoformat(day) + timedelta(days)) for days in (1, DAYS))
    sessions = reader.documents(reader.find_by_date([(first, last)], scope, SESSIONS)).values()
    return _find_item(reader, item, sessions) if sessions and not _recurs(reader, item, scope) else None


def _recurs(reader: IndexReader, item: str, scope: Scope) -> bool:
    phrase = [replace(one, fts=f"headings : ({one.fts})") for one in parse_lex(f'"{item}"')]
    n_notes = len(reader.find_by_date([("0001", "9999")], scope, NOTES))
    return len(reader.search_lexical(phrase, NOTES, scope)) > max(OFFERS, RECURRING * n_notes)


def _find_item(reader: IndexReader, item: str, sessions: Iterable[StoredDocument]) -> Mention | None:
    texts = reader.texts([one.hash for one in sessions if one.size <= CHARACTERS])
    ordered = sorted((one.day, one.path, one, texts.get(one.hash, "")) for one in sessions)
    read = [
        (session, text, outline, heading, _read_words(heading.text))
        for *_, session, text in ordered
        for outline in [read_outline(kind_of(session.path), text)]
        for heading in outline.headings[1:HEADINGS]  # the first one names the session
    ]
    words, counts = _read_words(item), Counter(word for *_, own in read for word in own)
    rarity = {word: math.log((len(read) + FEW) / (counts[word] + 0.5)) ** 2 for word in {*counts, *words}}
    for session, text, outline, heading, own in read:
        shared, all_words, all_own = (sum(map(rarity.__getitem__, some)) for some in (words & own, words, own))
        if 0 < shared >= SIMILAR * math.sqrt(all_words * all_own):
            layout = Layout(text, outline.headings, outline.fences, is_source=False)
            line = layout.line_at(heading.offset)
            at = layout.summary(line)
            below = layout.lines[at + 1 :] if at is not None and heading.text in layout.trail(at) else []
            quoted = ": ".join([heading.text, *islice(filter(str.strip, below), 1)])
            return Mention(session, line + 1, quoted.strip())
    return None


def _read_words(heading: str) -> set[str]:
    """Return the stems of the words that say what a heading is about, of numbers only long ones."""
    spaced = fold(re.sub(_NO_MATTER, " ", heading))
    words = re.findall(r"[^\W\d_]\w+|\d{3,}", spaced)
    return {indexed_form(one) or one for one in {*words} - stop_words_of(words)}
