"""Day of a note, and other days that it names."""

from __future__ import annotations

import pytest

from qmd.analysis.index import analyze_document
from qmd.records import Document
from tests.parsing import parse_document


def document(path: str, text: str = "word\n") -> Document:
    return parse_document(path, text.encode())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("2018-10-17.md", "2018-10-17"),
        ("journal/2024-02-02 Standup.md", "2024-02-02"),
        ("20240202-x.md", "2024-02-02"),
        ("202402021530 zettel.md", "2024-02-02"),
        ("Meeting 17 October 2018.md", "2018-10-17"),
        ("2018-10.md", "2018-10"),
        ("2024-W42.md", "2024-10-14"),
        ("2024年7月.md", "2024-07"),
        ("meetings/2018-10/oct-17.md", "2018-10-17"),
        ("meetings/2020-03/april-1.md", "2020-04-01"),
        ("meetings/2019-12/jan-2.md", "2020-01-02"),
        ("daily/2018/10/17.md", "2018-10-17"),
        ("2018/10-October/17 standup.md", "2018-10-17"),
        ("2018-10-17/notes.md", "2018-10-17"),
        ("2018-10/readme.md", "2018-10"),
        ("2018/notes.md", None),
        ("v1.2.2018.md", None),
        ("CVE-2018-1017.md", None),
        ("windows 10.md", None),
    ],
)
def test_a_path_says_the_day(path: str, expected: str | None) -> None:
    assert document(path).date == expected


def test_a_file_name_counts_before_front_matter_and_that_before_folders_and_headings() -> None:
    front = "---\ncreated: 2024-01-01\ndate: 2024-02-02\n---\n"
    heading = "# Notes of 3 March 2024\n"
    assert document("2023/05/2024-05-05.md", front + heading).date == "2024-05-05"
    assert document("2023/05/06 x.md", front + heading).date == "2024-02-02"
    assert document("2023/05/06 x.md", heading).date == "2023-05-06"
    assert document("x.md", heading).date == "2024-03-03"
    assert document("x.md", "in the body: 2024-03-03\n").date is None


@pytest.mark.parametrize(
    "line",
    [
        *("date: 2024-02-02", "Date: 2024-02-02T10:00:00", 'date: "[[2024-02-02]]"', "creation date: 2024-02-02 10:00"),
        *(
            "created_at: 02/02/2024",
            "published: Feb 2, 2024",
            "day: 20240202",
            "datum: 2. Februar 2024",
            "日期: 2024年2月2日",
        ),
        *("date: TBD\ncreated: 2024-02-02", "updated: 2025-01-01\ncreated: 2024-02-02", "date: [2024-02-02]"),
    ],
)
def test_front_matter_says_the_day(line: str) -> None:
    assert document("x.md", f"---\n{line}\n---\nword\n").date == "2024-02-02"


def test_a_change_of_a_note_is_not_its_date() -> None:
    changed = document("x.md", "---\nupdated: 2024-02-02\nrelated: 10 things\n---\nword\n")
    assert changed.date is None
    assert "onday20240202" in analyze_document(changed).extra.split()


def test_every_dated_heading_of_a_log_is_a_term_of_full_text() -> None:
    log = document("log.md", "# Log\n\n## 2018-10-17\n\na\n\n## 18. Oktober 2018\n\nb\n\n2019-01-01 is in the text\n")
    assert {"onday20181017", "onday20181018", "onmonth201810"} <= set(analyze_document(log).extra.split())
    assert "20190101" not in analyze_document(log).extra
    assert log.date is None


def test_a_week_is_a_term_for_each_of_its_days() -> None:
    terms = analyze_document(document("2024-W42.md")).extra.split()
    assert [term for term in terms if term.startswith("onday")] == [f"onday202410{day}" for day in range(14, 21)]


def test_source_code_is_dated_by_its_path_alone() -> None:
    assert document("2018-10-17.py", "# 2019-01-01\n").date == "2018-10-17"
