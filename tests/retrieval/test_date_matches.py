"""Dates in a question, over a real index."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from qmd import times
from qmd.records import SearchResponse
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from tests import fakes
from tests.note_index import NoteIndex, paths

EMBEDDER = fakes.HashingEmbedder()


def journal(embedder: fakes.HashingEmbedder | None = None) -> NoteIndex:
    index = NoteIndex(embedder=embedder)
    for day in range(10, 25):
        text = f"# Standup\n\nWe met about the budget, October and {day} more.\n"
        index.add(f"journal/2018-10-{day}.md", text, modified_at="2019-01-01T12:00:00Z")
    index.add("meetings.md", "# Meeting of October\n\nA meeting of October 2018, of 17 meetings, meeting, meeting.\n")
    index.add("2018-11/nov-2.md", "# Deployment\n\nThe rollback failed.\n")
    index.add("log.md", "# Log\n\n## 2018-12-03\n\nbread\n\n## 2018-12-04\n\nrolls\n")
    for number in range(10):
        index.add(f"other {'abcdefghij'[number]}.md", f"# Other\n\nmeeting of {number} people, text {number}\n")
    return index


def ask(index: NoteIndex, text: str, mode: str = "lexical", **wishes: object) -> SearchResponse:
    engines = fakes.fake_engines(embedder=index.embedder)
    return search(index, engines, parse_query(text), SearchRequest(mode=mode, **wishes))  # type: ignore[arg-type]


@pytest.fixture
def at_noon(monkeypatch: pytest.MonkeyPatch, set_zone: Callable[[str], None]) -> None:
    """Set the clock to Wednesday 17 October 2018."""
    set_zone("UTC")
    monkeypatch.setattr(times, "utc_now", lambda: datetime(2018, 10, 17, 12, tzinfo=UTC))


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
@pytest.mark.parametrize("date", ["17 October 2018", "17.10.2018", "10/17/2018", "20181017", "2018年10月17日"])
def test_the_note_of_the_day_comes_first_however_the_day_is_written(date: str, mode: str) -> None:
    answer = ask(journal(EMBEDDER), f"meeting of {date}", mode, rerank=False)
    assert paths(answer)[0] == "journal/2018-10-17.md"
    assert answer.warnings == ()


def test_the_note_of_the_day_comes_before_a_mention_of_the_day() -> None:
    index = journal()
    index.add("summary.md", "# Summary\n\nstandup of 17 October 2018\n")
    assert paths(ask(index, "17 October 2018"))[0] == "journal/2018-10-17.md"


def test_a_note_of_the_day_without_any_other_word_is_found() -> None:
    assert paths(ask(journal(), "zucchini 2 November 2018"))[0] == "2018-11/nov-2.md"


def test_a_date_alone_finds_its_note_and_is_sure_of_it() -> None:
    answer = ask(journal(), "02.11.2018")
    assert paths(answer) == ["2018-11/nov-2.md"]
    assert answer.verdict == "good"


def test_among_the_notes_of_a_month_the_rest_of_the_question_decides() -> None:
    index = journal()
    index.add("2018-11/nov-3.md", "# Garden\n\nTomatoes.\n")
    assert paths(ask(index, "tomatoes in November 2018"))[:2] == ["2018-11/nov-3.md", "2018-11/nov-2.md"]


@pytest.mark.parametrize("date", ["from 14 to 16 October 2018", "between 2018-10-14 and 2018-10-16", "14.-16.10.2018"])
def test_the_notes_of_a_range_of_days_come_first(date: str) -> None:
    days = [f"journal/2018-10-{day}.md" for day in (14, 15, 16)]
    assert sorted(paths(ask(journal(), f"standup {date}"))[:3]) == days


@pytest.mark.parametrize("date", ["nov-dec 2018", "autumn 2018", "last quarter of 2018", "2018"])
def test_of_the_notes_of_a_long_range_those_come_first_that_the_rest_fits(date: str) -> None:
    index = journal()
    index.add("2017-11/nov-2.md", "# Deployment\n\nThe rollback failed.\n")
    assert paths(ask(index, f"rollback minutes {date}"))[0] == "2018-11/nov-2.md"


def test_the_number_of_a_year_stays_a_word_of_the_question() -> None:
    index = journal()
    index.add("plan.md", "# Budget of 2018\n\nbudget\n")
    assert paths(ask(index, "budget of 2018"))[0] == "plan.md"
    assert "2018" in [term.text for term in ask(index, "budget in 2018").terms]


def test_a_log_is_found_by_each_of_its_dated_headings() -> None:
    assert paths(ask(journal(), "what was on December 4th, 2018"))[0] == "log.md"


def test_the_passage_of_a_log_is_the_section_of_the_day() -> None:
    index = journal()
    days = "".join(f"## 2018-12-{day:02}\n\nbread and rolls\n\n{'filler ' * 60}\n\n" for day in range(5, 25))
    index.add("long log.md", f"# Long log\n\n{days}")
    hit = ask(index, "bread of 14 December 2018").hits[0]
    assert hit.document.path == "long log.md"
    assert "2018-12-14" in hit.passage.text


def test_words_count_from_today(at_noon: None) -> None:
    assert paths(ask(journal(), "standup yesterday"))[0] == "journal/2018-10-16.md"
    assert paths(ask(journal(), "Besprechung vor drei Tagen"))[0] == "journal/2018-10-14.md"


def test_a_note_without_a_date_is_of_the_day_it_was_written_for_words_alone(at_noon: None) -> None:
    index = journal()
    index.add("scratch.md", "# Scratch\n\nzucchini\n", modified_at="2018-10-16T12:00:00Z")
    assert "scratch.md" in paths(ask(index, "yesterday"))[:2]
    assert "scratch.md" not in paths(ask(index, "16 October 2018"))


def test_a_date_that_no_note_has_is_searched_as_words() -> None:
    assert paths(ask(journal(), "October 2030"))[0] == "meetings.md"


def test_a_date_that_most_notes_have_has_no_influence() -> None:
    index = NoteIndex()
    for number in range(20):
        index.add(f"2018-10-{number + 10}.md", f"# Day\n\n{'rain' if number else 'sun'} {number}\n")
    explained = [hit.explanation or pytest.fail() for hit in ask(index, "sun October 2018", explain=True).hits]
    assert all(part.source != "date" for explanation in explained for part in explanation.contributions)


def test_a_quoted_date_is_literal() -> None:
    assert paths(ask(journal(), '"meeting of October 2018"')) == ["meetings.md"]


def test_the_explanation_shows_the_influence_of_the_date() -> None:
    hit = ask(journal(), "meeting of 17 October 2018", explain=True).hits[0]
    assert hit.explanation is not None
    part = hit.explanation.contributions[-1]
    assert (part.source, part.kind, part.query, part.contribution) == ("date", "day", "17 October 2018", 16.0)


def test_a_filter_by_date_finds_the_note_that_is_named_by_it() -> None:
    index = NoteIndex()
    index.add("2024-02-02.md", "# Day\n\nword\n", modified_at="2026-01-01T00:00:00Z")
    index.add("2024-04.md", "# Month\n\nword\n", modified_at="2026-01-01T00:00:00Z")
    assert paths(ask(index, "after:2024-02 before:2024-03 word")) == ["2024-02-02.md"]
    assert paths(ask(index, 'on:"April 2024" word')) == ["2024-04.md"]
    assert paths(ask(index, 'on:"2 Feb 2024" word')) == ["2024-02-02.md"]


def test_hits_are_sorted_by_date_among_those_that_are_shown() -> None:
    index = journal()
    best = paths(ask(index, "budget", limit=4))
    assert paths(ask(index, "budget sort:date", limit=4)) == sorted(best, reverse=True)
    assert paths(ask(index, "budget sort:-date", limit=4)) == sorted(best)
    assert paths(ask(index, "path:journal sort:-date", limit=2)) == ["journal/2018-10-10.md", "journal/2018-10-11.md"]


def test_hits_of_one_day_where_the_user_is_stay_in_order_of_relevance(set_zone: Callable[[str], None]) -> None:
    set_zone("Pacific/Kiritimati")
    index = NoteIndex()
    index.add("morning.md", "# Budget\n\nbudget, budget and budget\n", modified_at="2026-01-01T23:00:00.000Z")
    index.add("evening.md", "# Plans\n\nbudget and other things of the day\n", modified_at="2026-01-02T09:00:00.000Z")
    index.add("2026-01-03.md", "# Diary\n\nbudget of one more\n")
    assert paths(ask(index, "budget sort:date")) == ["2026-01-03.md", "morning.md", "evening.md"]
    assert paths(ask(index, "sort:date")) == ["2026-01-03.md", "evening.md", "morning.md"]


def test_a_month_is_no_evidence_that_a_note_of_it_answers() -> None:
    index = journal(EMBEDDER)
    found = ask(index, "why rollback price weather November 2018", "hybrid", rerank=False)
    assert (paths(found)[0], found.verdict) == ("2018-11/nov-2.md", "none")


def test_a_day_remains_evidence() -> None:
    assert ask(journal(EMBEDDER), "deployment of 2 November 2018", "hybrid", rerank=False).verdict == "good"
