"""Filters by front matter, as people type them and as programs write them."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.conditions import MAX_CONDITIONS, read_condition
from qmd.errors import UsageError
from qmd.records import FieldFilter
from qmd.retrieval.query import parse_query, read_query, take_field_filters
from qmd.retrieval.query_filters import explain_unknown_fields, names_fields
from qmd.retrieval.request import SearchRequest
from qmd.times import local_today

NAMES = ("status", "priority", "due", "done", "plugin-id")


def meets(asked: str, **metadata: object) -> bool:
    """Return whether front matter passes a typed filter."""
    (one,) = read_query(SearchRequest("", filter=asked)).scope.filters
    assert isinstance(one, FieldFilter)
    return one.condition.holds(metadata) is not one.is_negated


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("restore status:draft now", "restore now"),
        ("-status:draft restore", "restore"),
        ('priority>=3 restore due:"next week"', "restore"),
        ("Has:Due restore -plugin-id:x", "restore"),
        ("restore priority:>3", "restore"),
        ("restore unknown:draft has:unknown", "restore unknown:draft has:unknown"),
        ('"status:draft" restore', '"status:draft" restore'),
        ("http://status:draft x->priority a>b 12:30", "http://status:draft x->priority a>b 12:30"),
        ("status: draft", "status: draft"),
    ],
)
def test_a_filter_is_what_the_index_knows_as_a_field(text: str, words: str) -> None:
    assert take_field_filters(parse_query(text), NAMES).text == words
    assert take_field_filters(parse_query(f"lex: {text}\nvec: v"), NAMES).subqueries[0].text == words
    assert parse_query(text).text == text


@pytest.mark.parametrize(
    ("asked", "matches", "fails"),
    [
        ("n:3", [3, 3.0, "3", ["1", "3"]], [30, "x", None, [], True]),
        ("n>=3", [3, 11, "11", ["2", "11"]], [2, "x", "", None, True, "inf", "nan"]),
        ("-n>=3", [2, "x", None], [3]),
        ("n:yes", ["yes", "YES", ["no", "Yes"]], [True, "yesterday"]),
        ("n:true", [True, "True"], [False, "truely"]),
        ('n:"two words"', ["Two Words"], ["two"]),
        ("n:2026-03", ["2026-03-09", "2026-03", "2026-03-09T10:00"], ["2026-04-01", "in 2026-03"]),
        ("n<2026-03", ["2026-02-28", "2026-02"], ["2026-03-01", "{{date}}", "1.2.2026", "", "0"]),
        ("n<=2026-03", ["2026-03-31T23:59", "2026-03"], ["2026-04-01"]),
        ("n>2026-03-01", ["2026-03-02"], ["2026-03-01T10:00", "soon", "~"]),
        ("n>=2026", [2026, "2026-01-01"], [2025, "2025-12-31", "2026 or so"]),
        ('n:"5 March 2026"', ["2026-03-05", "5 March 2026"], ["2026-03-06"]),
        ("has:n", ["", 0, False, ["a"]], [None, []]),
    ],
)
def test_values_are_compared_by_their_types(asked: str, matches: list[object], fails: list[object]) -> None:
    assert all(meets(asked, n=value) for value in matches)
    assert not any(meets(asked, **({} if value is None else {"n": value})) for value in fails)


def test_days_in_words_are_those_of_today() -> None:
    today, tomorrow = local_today(), local_today() + timedelta(days=1)
    assert meets("due:today", due=today.isoformat()) and meets("due<tomorrow", due=today.isoformat())
    assert not meets("due>today", due=today.isoformat()) and meets('due>"last month"', due=tomorrow.isoformat())


def test_a_lookalike_of_a_filter_is_reported() -> None:
    lines = list(explain_unknown_fields(['staus:draft port:80 foo:bar x->y size>3 "a:b" has:du'], (), NAMES))
    assert lines == [
        "'staus:draft' is searched as words: no note has the field 'staus'; did you mean 'status'?",
        "'foo:bar' is searched as words: no note has the field 'foo'; "
        "there are: done, due, plugin-id, priority, status (qmd collection metadata)",
    ]
    assert next(explain_unknown_fields(["size>3"], (), NAMES)).startswith("'size>3' is searched as words: ")
    assert next(explain_unknown_fields(["has:du"], (), NAMES)).endswith("did you mean 'due'?")
    assert list(explain_unknown_fields(["status:draft tag:x lex: http://a.b"], (), NAMES)) == []
    assert not names_fields("tag:x after:2026 plain words")


def test_a_field_that_no_note_has_is_named() -> None:
    filters = read_query(SearchRequest("", filter="statsu:x -absent>3 due:2026 tag:x")).scope.filters
    assert list(explain_unknown_fields([""], filters, NAMES)) == [
        "no note has the field 'statsu'; did you mean 'status'?",
        "no note has the field 'absent'; there are: done, due, plugin-id, priority, status (qmd collection metadata)",
    ]


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        ('{"status": "draft"}', "status:draft"),
        ('{"Priority": 3, "done": false}', "Priority:3 done:False"),
        ('{"tag": "#work", "after": "2025", "status": ["draft"]}', "tag:#work after:2025 status:draft"),
        ('{"title": "a b", "has": "due"}', 'title:"a b" has:due'),
    ],
)
def test_an_object_of_fields_and_values_means_what_is_typed(given: str, typed: str) -> None:
    read, meant = (read_query(SearchRequest("", filter=one)).scope.filters for one in (given, typed))
    assert read == meant


def test_a_list_in_an_object_means_any_of_its_values() -> None:
    asked = '{"status": ["draft", "Open", 3]}'
    assert meets(asked, status="open") and meets(asked, status=["x", "draft"]) and meets(asked, status=3)
    assert not meets(asked, status="done") and not meets(asked)


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ('{"status": {"is": "draft"}}', "Object contains unknown field `status`"),
        ('{"status": []}', "Object contains unknown field `status`"),
        ('{"status": null}', "Object contains unknown field `status`"),
        ('{"": "draft"}', "Object contains unknown field ``"),
        ('{"status": [' + "1," * 64 + "1]}", "Object contains unknown field `status`"),
        ('{"field": "status", "value": "draft"}', "Object missing required field `operator`"),
        ("some words", "'some words' is no filter"),
        ("status:draft and", "'and' is no filter"),
        ("   ", "'' is no filter"),
        ("after:someday", "'after:someday' is not a date"),
        ("[]", "the filter cannot be read: Expected `object`, got `array`"),
        ("{", "the filter cannot be read: Input data was truncated"),
        ('{"operator":"eq","value":1}', "the filter cannot be read: 'eq' takes 'field'"),
        ('{"field":"a","operator":"and","operands":[]}', "'and' takes 'operands'"),
        ('{"field":"a","operator":"is","value":1}', "unknown operator 'is', expected one of and, or, not, eq"),
        ('{"field":"a","operator":"gt","value":true}', "value of 'gt': Expected `int | float | str`, got `bool`"),
        ('{"field":"a","operator":"in","value":[]}', "value of 'in': Expected `array` of length >= 1"),
        ('{"field":"a","operator":"eq","value":NaN}', "JSON is malformed"),
        ('{"field":"a","operator":"eq","value":1,"x":1}', "Object contains unknown field `x`"),
        ('{"operator":"not","operand":{"field":"a","operator":"contains","value":3}}', "- at `$.operand`"),
        ('{"operator":"not","operand":' * (MAX_CONDITIONS + 1), f"more than {MAX_CONDITIONS} conditions"),
        ("{" + "[" * 10_000, "the filter cannot be read"),
        ("x" * 20_000, "the query has 20,000 characters"),
    ],
)
def test_a_wrong_filter_is_named_with_its_place(filter: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_query(SearchRequest("words", filter=filter))
    assert message in caught.value.message


def test_a_condition_as_deep_as_may_be_is_answered() -> None:
    inner = '{"field":"a","operator":"eq","value":1}'
    deep = '{"operator":"not","operand":' * (MAX_CONDITIONS - 1) + inner + "}" * (MAX_CONDITIONS - 1)
    grouped = '{"operator":"or","operands":[' * (MAX_CONDITIONS - 1) + inner + "]}" * (MAX_CONDITIONS - 1)
    assert read_condition(deep).holds({"a": 2})
    assert read_condition(grouped).holds({"a": 1})


@given(st.text(max_size=60), st.dictionaries(st.text(max_size=8), st.text() | st.floats() | st.integers(), max_size=4))
def test_no_text_makes_a_filter_fail(text: str, metadata: dict[str, object]) -> None:
    for query in (text, f"{text}:{text}", f"a>{text}", f'a:"{text}'):
        try:
            filters = take_field_filters(parse_query(query), ("a", *metadata)).scope.filters
        except UsageError:
            continue
        for one in filters:
            if isinstance(one, FieldFilter):
                one.condition.holds(metadata | {"a": text})


def test_many_unknown_names_cost_no_more_than_their_length() -> None:
    """Counted in calls of our own and of Python's, since each name is compared with each field that there is."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    text = " ".join(f"name{number}:value" for number in range(1_000))
    before = sys.getprofile()
    sys.setprofile(count)
    list(explain_unknown_fields([text], (), [f"field{number}" for number in range(10_000)]))
    sys.setprofile(before)
    assert calls < 400_000
