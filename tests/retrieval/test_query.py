"""Plain text, query documents and filters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd import times
from qmd.errors import UsageError
from qmd.records import DateFilter, Query, Scope, SubQuery, TagFilter, TextFilter
from qmd.retrieval.query import intersect_scopes, parse_query, read_query, validate_subqueries
from qmd.retrieval.query_filters import split_filters
from qmd.retrieval.request import SearchRequest


@pytest.mark.parametrize(
    "text",
    [
        *("how do I rotate keys?", '"see tag:x there"'),
        *("std::vector", "path: what is it", "http://title:80/", "subtitle:x", "path:/etc"),
    ],
)
def test_plain_text_quoted_filters_and_colons_of_other_kinds_are_text(text: str) -> None:
    assert parse_query(text) == Query(text)


@pytest.mark.parametrize("text", ["a " * 10_000, "vec: a\n" * 40, "tag:a " * 200, "lex: " + "b" * 20_000])
def test_a_query_that_is_too_long_names_the_limit(text: str) -> None:
    with pytest.raises(UsageError, match=r"at most [\d,]+ are allowed"):
        read_query(SearchRequest(text))


@pytest.mark.parametrize("name", ["collection", "tag", "path", "title"])
def test_half_a_character_in_a_filter_is_replaced_as_no_index_stores_it(name: str) -> None:
    for request in (SearchRequest(f"a {name}:\ud800"), SearchRequest("a", filter=f"{name}:\ud800")):
        assert "\\ufffd" in ascii(read_query(request)) and "ud800" not in ascii(read_query(request))


def test_expand_prefix_is_the_same_as_none() -> None:
    assert parse_query("expand: rotate keys") == parse_query("rotate keys")


def test_typed_lines_keep_their_order_and_line_numbers() -> None:
    query = parse_query("LEX: rotate keys\n\nvec: how to rotate keys\nintent: security\nhyde: Keys are rotated weekly.")
    assert query.subqueries == (
        SubQuery("lex", "rotate keys", 1),
        SubQuery("vec", "how to rotate keys", 3),
        SubQuery("hyde", "Keys are rotated weekly.", 5),
    )
    assert query.intent == "security"
    assert query.text == "rotate keys"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "lex: a\nexpand: b",
            "Line 2 starts with expand:, but query documents cannot mix expand with typed lines. "
            "Submit a single expand query instead.",
        ),
        ("expand:", "expand: query must include text."),
        ("intent: a\nintent: b\nlex: c", "Line 2: only one intent: line is allowed per query document."),
        ("lex: a\nintent:", "Line 2: intent: must include text."),
        ("vec:", "Line 1 (vec:) must include text."),
        (
            "lex: a\nplain",
            "Line 2 is missing a lex:/vec:/hyde:/intent: prefix. Each line in a query document must start with one.",
        ),
        ("intent: a", "intent: cannot appear alone. Add at least one lex:, vec:, or hyde: line."),
        (
            'lex: "open',
            'Line 1 (lex): Lex query has an unmatched double quote ("). Add the closing quote or remove it.',
        ),
        (
            "vec: keys -redis",
            "Line 1 (vec): Negation (-term) is not supported in vec/hyde queries. Use lex for exclusions.",
        ),
    ],
)
def test_malformed_documents_name_the_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_query(text)
    assert caught.value.message == message


def test_hyphenated_words_are_no_negation() -> None:
    assert parse_query("vec: multi-agent systems").subqueries[0].text == "multi-agent systems"


def test_structured_callers_get_their_own_prefix() -> None:
    with pytest.raises(UsageError, match=r"Structured search \(lex\): queries must be single-line"):
        validate_subqueries([SubQuery("lex", "a\nb")])


@pytest.mark.parametrize("text", ["", "  ", "\n\n"])
def test_empty_query_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="the query is empty"):
        parse_query(text)


def test_filters_may_be_anywhere_and_are_removed_from_the_text() -> None:
    query = parse_query('rotate tag:#security keys after:2026-3 -title:"old notes"')
    assert query.text == "rotate keys"
    dates = DateFilter("after", "2026-03", "2026-03")
    assert query.scope.filters == (TagFilter("security"), dates, TextFilter("title", "old notes", True))


def test_collections_unite() -> None:
    assert parse_query("x collection:a collection:b").scope.collections == ("a", "b")


def test_filter_lines_join_a_query_document_and_are_a_query_alone() -> None:
    query = parse_query("tag:x\nlex: keys")
    assert query.subqueries == (SubQuery("lex", "keys", 2),)
    assert query.scope.filters == parse_query("tag:x").scope.filters == (TagFilter("x"),)
    assert parse_query("tag:x").text == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("after:yesterday", DateFilter("after", "2026-03-17", "2026-03-17")),
        ('since:"last week"', DateFilter("after", "2026-03-09", "2026-03-09")),
        ("since:last-week", DateFilter("after", "2026-03-09", "2026-03-09")),
        ('before:"17. Oktober 2018"', DateFilter("before", "2018-10-17", "2018-10-17")),
        ("on:2024-02-02", DateFilter("on", "2024-02-02", "2024-02-02")),
        ("on:2024-2", DateFilter("on", "2024-02", "2024-02")),
        ('on:"July 2019"', DateFilter("on", "2019-07-01", "2019-07-31")),
        ("on:上周", DateFilter("on", "2026-03-09", "2026-03-15")),
        ("on:10/17/2018", DateFilter("on", "2018-10-17", "2018-10-17")),
    ],
)
def test_date_filters_take_dates_as_people_say_them(
    text: str, expected: DateFilter, monkeypatch: pytest.MonkeyPatch, set_zone: Callable[[str], None]
) -> None:
    set_zone("UTC")
    monkeypatch.setattr(times, "utc_now", lambda: datetime(2026, 3, 18, 12, tzinfo=UTC))
    assert parse_query(f"x {text}").scope.filters == (expected,)


def test_a_filter_that_may_be_two_days_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'on:5/6/2018' may be 2018-05-06 or 2018-06-05") as raised:
        parse_query("x on:5/6/2018")
    assert raised.value.hint == "on:2018-05-06"


def test_the_order_may_be_among_the_words() -> None:
    assert parse_query("roses sort:date") == Query("roses", sort="date")
    assert parse_query("sort:-date") == Query("", sort="-date")
    with pytest.raises(UsageError, match="unknown order 'sort:size'"):
        parse_query("roses sort:size")


@pytest.mark.parametrize("text", ["after:someday", "before:2026-13", "after:2026-01-32", "on:click", "since:last"])
def test_bad_dates_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a date"):
        parse_query(f"x {text}")


def test_scopes_intersect_and_are_empty_without_a_common_path() -> None:
    both = intersect_scopes(Scope(("a", "b"), "docs/"), Scope(("b", "c"), "docs/api/"))
    assert both == Scope(("b",), "docs/api/")
    assert intersect_scopes(Scope(None, "a/"), Scope(None, "b/")).collections == ()


@given(st.text())
def test_any_text_is_a_query_or_a_usage_error(text: str) -> None:
    try:
        query = parse_query(text)
    except UsageError as exc:
        assert exc.message
    else:
        assert query.text or query.scope != Scope()


@pytest.mark.parametrize(
    ("text", "words", "filters"),
    [
        ("limits tag:work ", "limits ", ("tag:work",)),
        ("limits tag:wo", "limits ", ()),
        ('tag:a limits -path:"b c" now', "limits now", ("tag:a", '-path:"b c"')),
        ('"see tag:a here" ', '"see tag:a here" ', ()),
        ("tag: limits", "tag: limits", ()),
    ],
)
def test_a_filter_is_split_off_once_it_is_complete(text: str, words: str, filters: tuple[str, ...]) -> None:
    assert split_filters(text) == (words, filters)


def test_a_filter_at_the_end_is_complete_when_the_text_is() -> None:
    assert split_filters("limits tag:work", is_ended=True) == ("limits ", ("tag:work",))
