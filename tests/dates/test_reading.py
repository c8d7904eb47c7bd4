"""Dates as people write them, and texts that only look like one."""

from datetime import date
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qmd.analysis.dates import date_terms, days_and_months, terms_within
from qmd.dates.days import DateSpan
from qmd.dates.ranges import is_explicit
from qmd.dates.reading import find_dates
from qmd.dates.relative import find_relative
from qmd.dates.words import DAYS, MONTHS, ORDINALS, SEASONS, SHIFTS_BEFORE, UNITS, WEEKDAYS, may_name_date

TODAY = date(2026, 3, 18)
"""A Wednesday."""

ONE_DAY = (
    *("17 October 2018", "17th of October, 2018", "October 17th, 2018", "October 17, 2018", "Oct 17 2018"),
    *("Oct. 17, 2018", "17-Oct-2018", "2018-Oct-17", "17.10.2018", "17. 10. 2018", "17/10/2018", "10/17/2018"),
    *("2018-10-17", "2018/10/17", "2018_10_17", "20181017", "201810171530", "2018-10-17T15:30:00Z"),
    *(
        "17. Oktober 2018",
        "17 octobre 2018",
        "17 de octubre de 2018",
        "17 октября 2018",
        "2018年10月17日",
        "2018-W42-3",
    ),
)
PARTS = {
    "July 2019": ("2019-07-01", "2019-07-31"),
    "Juli 2019": ("2019-07-01", "2019-07-31"),
    "juillet 2019": ("2019-07-01", "2019-07-31"),
    "julio de 2019": ("2019-07-01", "2019-07-31"),
    "июле 2019": ("2019-07-01", "2019-07-31"),
    "2019-07": ("2019-07-01", "2019-07-31"),
    "07/2019": ("2019-07-01", "2019-07-31"),
    "2019年7月": ("2019-07-01", "2019-07-31"),
    "Q3 2024": ("2024-07-01", "2024-09-30"),
    "2024-Q3": ("2024-07-01", "2024-09-30"),
    "3. Quartal 2024": ("2024-07-01", "2024-09-30"),
    "2024年第三季度": ("2024-07-01", "2024-09-30"),
    "2024-W42": ("2024-10-14", "2024-10-20"),
    "KW 42 2024": ("2024-10-14", "2024-10-20"),
    "May 22-24, 2018": ("2018-05-22", "2018-05-24"),
    "22-24 May 2018": ("2018-05-22", "2018-05-24"),
}
RANGES = {
    "oct-dec 2020|Oct–Dec 2020|from October to December 2020|October 2020 to December|2020-10 - 2020-12"
    "|10/2020 - 12/2020|von Oktober bis Dezember 2020|de octobre à décembre 2020|de octubre a diciembre de 2020"
    "|с октября по декабрь 2020|2020年10月到12月|last quarter of 2020|4e trimestre 2020": "2020-10-01/2020-12-31",
    "between March and May 2021|between March 2021 and May 2021|zwischen März und Mai 2021|entre mars et mai 2021"
    "|entre marzo y mayo de 2021|между мартом и маем 2021|spring 2021|Frühling 2021|printemps 2021|primavera de 2021"
    "|весной 2021|2021年春天": "2021-03-01/2021-05-31",
    "between 3 and 5 May 2024|3-5 May 2024|3 to 5 May 2024|3rd–5th of May 2024|May 3 to 5, 2024|May 3 - May 5, 2024"
    "|2024-05-03 to 2024-05-05|2024-05-03/2024-05-05|2024-05-03..2024-05-05|between 2024-05-03 and 2024-05-05"
    "|vom 3. bis 5. Mai 2024|3.-5.5.2024|3.5. bis 5.5.2024|03.05.–05.05.2024|zwischen dem 3. und dem 5. Mai 2024"
    "|du 3 au 5 mai 2024|entre le 3 et le 5 mai 2024|del 3 al 5 de mayo de 2024|entre el 3 y el 5 de mayo de 2024"
    "|с 3 по 5 мая 2024|между 3 и 5 мая 2024|2024年5月3日到5日|2024年5月3日至5月5日": "2024-05-03/2024-05-05",
    "dec-jan 2021|Dec 2020 - Jan 2021|Dec 2020 to Jan": "2020-12-01/2021-01-31",
    "first quarter of 2020|1st quarter 2020|Q1 2020|erstes Quartal 2020|1er trimestre 2020|premier trimestre de 2020"
    "|primer trimestre de 2020|первый квартал 2020|2020年一季度": "2020-01-01/2020-03-31",
    "Q1-Q2 2020|Q1 to Q2 2020|from Q1 2020 to Q2 2020": "2020-01-01/2020-06-30",
    "summer of 2018|Sommer 2018|été 2018|verano de 2018|лето 2018|2018年夏天": "2018-06-01/2018-08-31",
    "winter 2019/20|Winter 2019-2020|hiver 2019/20|invierno 2019/20|зима 2019/20": "2019-12-01/2020-02-29",
    "from 2019 to 2021|between 2019 and 2021|von 2019 bis 2021|entre 2019 et 2021|с 2019 по 2021|2019年到2021年"
    "|2019-2021": "2019-01-01/2021-12-31",
}
YEARS = "in 2019|2019 meeting|during 2019|im Jahr 2019|en 2019|в 2019 году|2019年|minutes 2019|2019|in the year 2019"
NO_YEARS = (
    "ES2015|C++ 2020 standard|2019 lines|fits in 2019 lines|migrate visual studio 2019 to 2022|RFC 2019|iso 2022"
    "|pages 2001-2003|version 2020.1|CVE-2019-2021|10.0.2019.1|mid-2020|from ES2015 to ES2020"
)
FROM_TODAY = {
    "today heute hoy сегодня 今天": ("2026-03-18", "2026-03-18"),
    "yesterday gestern hier ayer вчера 昨天": ("2026-03-17", "2026-03-17"),
    "vorgestern позавчера 前天": ("2026-03-16", "2026-03-16"),
    "3_days_ago vor_drei_Tagen il_y_a_trois_jours hace_tres_días три_дня_назад 三天前 3天前": (
        "2026-03-15",
        "2026-03-15",
    ),
    "last_week letzte_Woche semaine_dernière semana_pasada прошлой_неделе 上周 上星期": ("2026-03-09", "2026-03-15"),
    "this_week diese_Woche cette_semaine esta_semana этой_неделе 这周 本周": ("2026-03-16", "2026-03-22"),
    "last_month letzten_Monat mois_dernier mes_pasado прошлом_месяце 上个月": ("2026-02-01", "2026-02-28"),
    "last_quarter letztes_Quartal": ("2025-10-01", "2025-12-31"),
    "last_year letztes_Jahr l'année_dernière año_pasado прошлом_году 去年": ("2025-01-01", "2025-12-31"),
    "last_Tuesday letzten_Dienstag mardi_dernier martes_pasado": ("2026-03-17", "2026-03-17"),
    "last_Wednesday": ("2026-03-11", "2026-03-11"),
    "next_Monday nächsten_Montag lundi_prochain": ("2026-03-23", "2026-03-23"),
    "上周二": ("2026-03-10", "2026-03-10"),
    "last_7_days 7_derniers_jours últimos_7_días 最近7天": ("2026-03-11", "2026-03-18"),
    "last_summer letzten_Sommer été_dernier verano_pasado прошлым_летом": ("2025-06-01", "2025-08-31"),
    "this_winter": ("2025-12-01", "2026-02-28"),
    "next_summer nächsten_Sommer": ("2026-06-01", "2026-08-31"),
    "two_weeks_ago": ("2026-03-02", "2026-03-08"),
}
NO_DATES = (
    *(
        "Windows 10",
        "version 1.2.2018",
        "v1.2.2018",
        "2018.10.17.1",
        "192.168.10.2018",
        "555-2018-1017",
        "CVE-2018-1017",
    ),
    *("2018-02-31", "31.11.2018", "id20181017", "20181017a", "2018-13", "2018", "in 2019 may companies", "1999-2005"),
    *("may the force", "the second march", "how do I set up sun grid", "was gibt es hier", "the last day of school"),
    *("pp. 3-5", "3-5 pm", "pages 3-5 of 2019", "does this fall under it", "chapter 3 to 5, 2024", "winter games 2018"),
    *("99999999999999 days ago", "last 9999 years", "week plan", "10.2018.17", "2024-W60"),
)


def read(text: str) -> list[tuple[str, str, str]]:
    spans = [*find_dates(text), *find_relative(text, TODAY)]
    return [(text[one.start : one.end], one.first.isoformat(), one.last.isoformat()) for one in spans]


@pytest.mark.parametrize("text", ONE_DAY)
def test_a_day_is_read_however_it_is_written(text: str) -> None:
    for around in ("{}", "meeting of {} in Berlin", "会议 {} 记录", "({})"):
        whole = around.format(text)
        assert [one[1:] for one in read(whole)] == [("2018-10-17", "2018-10-17")], whole


@pytest.mark.parametrize(("text", "days"), PARTS.items())
def test_months_quarters_and_weeks_are_spans_of_days(text: str, days: tuple[str, str]) -> None:
    assert read(f"plans for {text}") == [(text, *days)]


def read_asked(text: str) -> list[tuple[str, str]]:
    spans = [one for one in find_dates(text, day_first=True, years=True) if is_explicit(text, one)]
    return [(text[one.start : one.end], f"{one.first}/{one.last}") for one in spans]


@pytest.mark.parametrize(("texts", "days"), RANGES.items())
def test_a_range_a_quarter_and_a_season_are_spans(texts: str, days: str) -> None:
    assert [read_asked(text) for text in texts.split("|")] == [[(text, days)] for text in texts.split("|")]


def test_a_number_is_a_year_only_where_it_is_said_as_a_time() -> None:
    days = "2019-01-01/2019-12-31"
    assert [text for text in YEARS.split("|") if [one[1] for one in read_asked(text)] != [days]] == []
    assert [text for text in NO_YEARS.split("|") if read_asked(text)] == []


def test_a_winter_of_one_year_may_be_either() -> None:
    assert [one[1:] for one in read("winter 2019")] == [("2018-12-01", "2019-02-28"), ("2019-12-01", "2020-02-29")]


def test_two_dates_are_no_range_without_between_and_ends_are_of_one_kind() -> None:
    assert [one[1] for one in read("17 October 2018 and 3 May 2020")] == ["2018-10-17", "2020-05-03"]
    assert read("Jan - 2024-05-03") == [("2024-05-03", "2024-05-03", "2024-05-03")]
    assert read("from 5 to 10 people in May 2024") == [("May 2024", "2024-05-01", "2024-05-31")]


@pytest.mark.parametrize("unit", ["1-", "-", " ", "2018 ", "2018-", "3 to ", "Q1 2020 - ", "2020年1月到"])
def test_a_text_of_digits_and_dashes_costs_no_more_than_another(unit: str) -> None:
    def seconds(n_characters: int) -> float:
        text = "kw 1 2020 kw 1" + (unit * n_characters)[:n_characters]
        start = process_time()
        found = find_dates(text, years=True)
        assert all(one.start < one.end and is_explicit(text, one) in (True, False) for one in found)
        return process_time() - start

    # Quadratic time would be 64 times as long.
    assert seconds(80_000) < 24 * max(seconds(10_000), 0.01)


def test_no_span_runs_backwards() -> None:
    assert read("24-22 May 2018") == [("May 2018", "2018-05-01", "2018-05-31")]


@pytest.mark.parametrize(("phrases", "days"), FROM_TODAY.items())
def test_words_are_counted_from_today(phrases: str, days: tuple[str, str]) -> None:
    for phrase in phrases.split():
        assert [one[1:] for one in read(phrase.replace("_", " "))] == [days], phrase


@pytest.mark.parametrize("text", NO_DATES)
def test_what_only_looks_like_a_date_is_none(text: str) -> None:
    assert read(text) == []


def test_a_day_that_can_be_read_in_two_ways_is_both_unless_the_reader_knows() -> None:
    assert [one[1] for one in read("5/6/2018")] == ["2018-05-06", "2018-06-05"]
    assert [one.iso for one in find_dates("5/6/2018", day_first=True)] == ["2018-06-05"]
    assert [one[1] for one in read("5.6.2018")] == ["2018-06-05"]


def test_a_year_alone_is_a_date_only_where_it_is_asked_for() -> None:
    assert [(one.first, one.last) for one in find_dates("2018", years=True)] == [(date(2018, 1, 1), date(2018, 12, 31))]


def test_a_span_is_written_as_its_day_its_month_or_its_first_day() -> None:
    assert [one.iso for one in find_dates("17.10.2018, July 2019, Q3 2024")] == ["2018-10-17", "2019-07", "2024-07-01"]


@pytest.mark.parametrize(
    "text", [*ONE_DAY, *PARTS, *YEARS.split("|"), *(p.replace("_", " ") for line in FROM_TODAY for p in line.split())]
)
def test_no_date_escapes_the_cheap_question(text: str) -> None:
    assert may_name_date(f"notes {text}")


def test_words_without_a_date_are_recognised_at_once() -> None:
    assert not may_name_date("how do I set up may the force march")


DATE_WORDS = st.sampled_from(
    [*MONTHS, *DAYS, *UNITS, *WEEKDAYS, *SHIFTS_BEFORE, "ago", "vor", "il y a", *"年月日上个周前最近三十两Q3WKW-/.,_ "]
) | st.sampled_from([*SEASONS, *ORDINALS, "quarter", "to", "between", "and"])
DATE_LIKE = st.lists(DATE_WORDS | st.integers(0, 10**9).map(str) | st.text(max_size=4), max_size=12).map(" ".join)


@given(DATE_LIKE | DATE_LIKE.map(lambda text: text.replace(" ", "")) | st.text())
@example("İ17 October 2018")
@example("2099年12月31日9999年前")
def test_no_text_makes_it_fail_and_places_are_in_the_text(text: str) -> None:
    for one in (*find_dates(text, years=True), *find_relative(text, TODAY)):
        assert 0 <= one.start < one.end <= len(text)
        assert one.first <= one.last


@given(st.dates(date(1900, 1, 1), date(2099, 12, 31)), st.sampled_from(["%Y-%m-%d", "%Y%m%d", "%d.%m.%Y", "%Y/%m/%d"]))
def test_every_day_is_read_back(day: date, form: str) -> None:
    assert [(one.first, one.last) for one in find_dates(day.strftime(form))] == [(day, day)]


SPANS = st.tuples(st.dates(date(2000, 1, 1), date(2003, 1, 1)), st.integers(0, 800)).map(
    lambda pair: (pair[0], min(date.fromordinal(pair[0].toordinal() + pair[1]), date(2005, 1, 1)))
)


@given(SPANS, st.dates(date(2000, 1, 1), date(2005, 1, 1)))
def test_a_note_of_a_day_is_found_by_every_span_that_holds_it(span: tuple[date, date], day: date) -> None:
    asked = set(terms_within(*span))
    held = set(date_terms([DateSpan(day, day, 0, 1)]))
    if span[0] <= day <= span[1]:
        assert asked & held
    elif (span[1] - span[0]).days < 28:
        assert not asked & held


@given(SPANS)
def test_a_span_is_covered_without_gaps(span: tuple[date, date]) -> None:
    parts = days_and_months(*span)
    assert parts[0][0] == span[0]
    assert [one for one, _ in parts] == sorted({one for one, _ in parts})
