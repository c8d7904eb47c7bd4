"""Answers within a budget of tokens: what is in them, where they end, and how they go on."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from qmd.analysis.tokens import count_tokens
from qmd.app.budget import MARK, cut_text, fair_shares, fit_documents, fit_hits, measure_texts
from qmd.app.paging import cursor_after, turn_page
from qmd.app.records import DocumentText, DocumentTexts
from qmd.errors import UsageError
from qmd.records import Hit, Mention, Passage, Query, SearchResponse, StoredDocument
from qmd.retrieval.request import SearchRequest, start_of

WORDS = ["rent", "tea", "harbour", "der", "Überfahrt", "渡船", "don't", "12.5", "`code`", "|", "#tag\n-", ""]


def document(number: int) -> StoredDocument:
    return StoredDocument(number, "notes", f"n{number}.md", f"Note {number}", f"{number:064x}", "2026-01-01", 10)


def hit(number: int, text: str) -> Hit:
    n_lines = text.count("\n") + 1
    passage = Passage(text, 1, n_lines, 1, 0, 0)
    return Hit(replace(document(number), hash=f"{number:06x}" + "0" * 58), 0.9, passage, None, passages=(passage,))


def response(*texts: str) -> SearchResponse:
    return SearchResponse(Query("q"), tuple(hit(n, text) for n, text in enumerate(texts)), "good")


def render(found: SearchResponse) -> str:
    shown = [f"{one.document.uri}\n" + "\n".join(part.text for part in one.passages) for one in found.hits]
    return "\n".join([*shown, str(found.budget)])


def fit(found: SearchResponse, most: int) -> SearchResponse:
    return fit_hits(found, most, lambda one: count_tokens(render(one)))


def test_a_thousand_requests_hold_their_budget_and_show_what_they_can() -> None:
    rng = random.Random(7)
    for _ in range(1_000):
        texts = [" ".join(rng.choices(WORDS, k=rng.choice([1, 30, 200]))) for _ in range(rng.randrange(1, 7))]
        most = rng.choice([60, 120, 400, 2_000])
        shown = fit(response(*texts), most)
        assert count_tokens(render(shown)) <= most
        assert shown.budget is not None and shown.budget.used <= most
        assert len(shown.hits) + shown.budget.left == len(texts)


def test_the_last_result_is_cut_at_a_line_and_the_cursor_goes_on_behind_it() -> None:
    lines = "\n".join(f"line {n} of a note about the rent" for n in range(40))
    shown = fit(response("short", lines, "third"), 250)
    first, cut = shown.hits
    assert first.passage.text == "short" and cut.passages[0].text.endswith(f"about the rent {MARK}")
    assert cut.passages[0].end_line == cut.passages[0].text.count("\n") + 1 < 40
    assert shown.budget is not None and shown.budget.left == 1
    found = turn_page(response("short", lines, "third"), SearchRequest(cursor=shown.budget.cursor))
    assert [one.passage.text for one in found.hits] == ["third"] and not found.warnings


def test_less_than_forty_tokens_of_a_result_are_not_worth_a_row() -> None:
    long = "\n".join(f"line {n} of a note about the rent" for n in range(40))
    whole = count_tokens(render(fit(response("tea " * 20), 9_999)))
    shown = fit(response("tea " * 20, long), whole + 40)
    assert len(shown.hits) == 1 and shown.budget is not None and shown.budget.left == 1


def test_the_next_session_counts_and_gives_way_to_the_first_result() -> None:
    found = response("text " * 60)
    named = replace(found, hits=(replace(found.hits[0], continues=Mention(document(8), 3, "word " * 90)),))
    assert measure_texts(named) > measure_texts(found) + 90
    assert fit_hits(named, 999, measure_texts).hits == named.hits
    (least,) = fit_hits(named, 110, measure_texts).hits
    assert (least.passage.text, least.continues) == (MARK, None)


def test_where_no_result_has_room_its_docid_stands() -> None:
    path = "long/" * 60
    one = hit(7, "text " * 100)
    found = SearchResponse(Query("q"), (replace(one, document=replace(one.document, path=path)),), "good")
    shown = fit(found, 60)
    assert shown.hits == () and shown.budget is not None and shown.budget.next == one.document.docid


def test_a_text_is_shown_once() -> None:
    shown = fit(replace(response("the same words", "the same words and", "other")), 900)
    assert [one.passages[0].text for one in shown.hits] == ["the same words", "the same words and", "other"]
    both = hit(2, "other")
    both = replace(both, passages=(hit(0, "the same words").passage, both.passage))
    shown = fit(replace(response(), hits=(hit(0, "the same words"), both)), 900)
    assert [part.text for part in shown.hits[1].passages] == ["other"]


def test_one_line_without_blanks_is_cut_too() -> None:
    shown = fit(response("x" * 500_000), 100)
    assert count_tokens(render(shown)) <= 100
    assert cut_text("ab" * 10, 5) == f"ababa {MARK}"
    # The lines below keep their numbers.
    assert cut_text("\n\nword\n" + "ab" * 10, 12) == f"\n\nword {MARK}"


def test_a_cursor_says_when_the_results_before_it_are_others() -> None:
    found = response("a", "b", "c")
    cursor = cursor_after(found.hits[:2])
    assert [one.passage.text for one in turn_page(found, SearchRequest(cursor=cursor)).hits] == ["c"]
    (said,) = turn_page(replace(found, hits=found.hits[::-1]), SearchRequest(cursor=cursor)).warnings
    assert "are others now" in said


@pytest.mark.parametrize("cursor", ["x", "2", "-1.0", "1.", "999999.0", "²." + "0", "1" * 5_000 + ".a"])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(UsageError, match="cursor"):
        start_of(cursor)


def test_what_is_seen_is_left_out_by_docid_or_address_in_one_line() -> None:
    found = response("a", "b", "c")
    seen = (found.hits[0].document.docid, "qmd://notes/n1.md")
    left = turn_page(found, SearchRequest(seen=seen))
    assert [one.passage.text for one in left.hits] == ["c"] and left.warnings == ("skipped 2 results already seen",)


def test_small_texts_leave_their_share_to_large_ones() -> None:
    assert fair_shares([10, 500, 500], 210) == [10, 100, 100]
    assert fair_shares([], 5) == [] and sum(fair_shares([9] * 7, 30)) <= 30


def documents(*texts: str) -> DocumentTexts:
    return DocumentTexts(tuple(DocumentText(document(n), None, text) for n, text in enumerate(texts)))


def show(found: DocumentTexts) -> str:
    return "\n\n".join([*found.problems, *(f"{one.document.uri}\n{one.text}" for one in found.documents)])


def test_each_document_has_its_share_says_where_it_goes_on_and_the_rest_is_named() -> None:
    long = "\n".join(f"line {n} of a long note" for n in range(1, 400))
    kept = fit_documents(documents(long, "short", long), 600, show, "get {}:{}")
    assert count_tokens(show(kept)) <= 600
    first, second, third = kept.documents
    assert second.text == "short" and abs(len(first.text) - len(third.text)) < 30
    *lines, mark = first.text.split("\n")
    assert lines == long.split("\n")[: len(lines)]
    assert mark == f"[… {399 - len(lines)} more lines: get {first.document.docid}:{len(lines) + 1}]"
    few = fit_documents(documents(*[long] * 90), 400, show, "get {}:{}")
    assert count_tokens(show(few)) <= 400 and "and 82 others" in few.problems[0]


def test_a_document_of_one_line_is_shown_from_its_beginning() -> None:
    (one,) = fit_documents(documents("word " * 90_000), 200, show, "get {}:{}").documents
    assert one.text.startswith("word word") and one.text.endswith(f"[… 1 more line: get {one.document.docid}:1]")


def test_python_callers_are_counted_what_they_pass_on() -> None:
    found = response("tea " * 300)
    assert measure_texts(found) > measure_texts(fit_hits(found, 200, measure_texts)) > 0
