"""The sentence of `--explain` claims only what a reader of the note can check."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product

import pytest

from qmd import times
from qmd.records import Contribution, Explanation, SearchResponse
from qmd.render.explain import explain_place
from qmd.retrieval.matching import find_spans
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from tests import fakes
from tests.note_index import NoteIndex

EMBEDDER = fakes.HashingEmbedder(synonyms={"invoice": "bill"})


@pytest.fixture(scope="module")
def vault() -> NoteIndex:
    index = NoteIndex(EMBEDDER)
    index.add(
        "Reference/Backups.md", "---\naliases: [Rescue]\n---\n# Backups\n\n## Restore one\n\nStop the shop first.\n"
    )
    index.add("Home.md", "# Home\n\nHow a backup is restored.\n")
    index.add("pay.md", "# Payment\n\nThe bill comes in May.\n")
    index.add("2018-10-17.md", "# Standup\n\nWe met about the oven.\n")
    index.add("备份.md", "# 发布\n\n恢复备份的步骤。\n")
    for number in range(8):
        index.add(f"other {number}.md", f"# Other {number}\n\nThe oven and the shop, again {number}.\n")
    return index


def ask(vault: NoteIndex, query: str, **wishes: object) -> SearchResponse:
    engines = fakes.fake_engines(embedder=EMBEDDER, reranker=fakes.OverlapReranker())
    request = SearchRequest(explain=True, full_body=True, **wishes)  # type: ignore[arg-type]
    return search(vault, engines, parse_query(query), request)


def sentences(answer: SearchResponse) -> list[str]:
    return [explain_place(one.explanation or pytest.fail(), at) for at, one in enumerate(answer.hits, start=1)]


QUERIES = (
    *("restore backup", "Backups", "rescue", "oven zebra", '"met about the oven" standup', "恢复备份", "frumious"),
    *("invoice", "what happened on 17 October 2018", "backup 17 October 2018", "shop oven again sort:date"),
    *("the oven of the shop in may again and again zebra", "lex: oven\nvec: bill", "vec: oven", "C++ oven"),
)


def _quoted(pattern: str, sentence: str) -> list[tuple[str, str]]:
    """Return (word, place) of each quoted word before a pattern with the place."""
    found = re.findall(rf"((?:'[^']+'(?: and )?)+) (?:is|are) {pattern}", sentence)
    return [(word, place) for words, place in found for word in re.findall("'([^']+)'", words)]


@pytest.mark.parametrize("query", QUERIES)
def test_every_claim_on_words_and_places_is_true(vault: NoteIndex, query: str) -> None:
    for mode, rerank in product(("lexical", "dense", "hybrid"), (True, False)):
        answer = ask(vault, query, mode=mode, rerank=rerank)
        terms = {one.text: one for one in answer.terms}
        for hit, sentence in zip(answer.hits, sentences(answer), strict=True):
            why = hit.explanation or pytest.fail()
            texts = {"title": hit.document.title, "path": hit.document.path, "text": hit.body or ""}
            texts["aliases"] = "Rescue" if hit.document.title == "Backups" else ""
            texts["heading"] = " ".join(hit.passage.heading_trail)
            assert all(find_spans(texts[at], [terms[word]]) for word, at in _quoted(r"in its (\w+)", sentence)), (
                sentence
            )
            missing = [terms[word] for word, _ in _quoted("(missing)", sentence)]
            assert not any(find_spans(text, missing) for text in texts.values()), sentence
            ranks = {one.source: one.rank for one in why.contributions}
            for rank, source in re.findall(r"it is (\d*)(?:st|nd|rd|th)? ?nearest by (words|meaning)", sentence):
                assert ranks["bm25" if source == "words" else "dense"] == int(rank or 1), sentence
            assert ("before reranking" in sentence) == (why.rerank_score is not None and why.place != why.fused_rank)
            assert f"; {100 * hit.relevance:.0f} %" in sentence


def test_the_first_reason_is_the_one_that_decides(vault: NoteIndex) -> None:
    first = sentences(ask(vault, "Backups", rerank=False))[0]
    assert first.startswith("first because the query is its file name, ") and first.endswith(" % because of its name")
    first, second = sentences(ask(vault, "backup restored", mode="lexical"))[:2]
    assert first.startswith("first because both words are in its text, as typed in one passage; ")
    assert first.endswith(" because both words are in it, close together")
    assert "'backup' is in its title" in second


def test_words_that_are_missing_are_named_and_many_are_counted(vault: NoteIndex) -> None:
    (found,) = sentences(ask(vault, "backup zebra", mode="lexical", limit=1))
    assert found.endswith("because 'zebra' is missing")
    assert "5 of 6 words are missing" in sentences(ask(vault, "bill aaa bbb ccc ddd eee", mode="lexical"))[0]


def test_a_hit_by_meaning_alone_claims_no_word(vault: NoteIndex) -> None:
    first = sentences(ask(vault, "invoice", rerank=False))[0]
    assert re.fullmatch(r"first because .*(nearest).*because the word is missing", first)
    assert " is in its " not in first


def test_a_note_of_the_day_says_so(
    vault: NoteIndex, monkeypatch: pytest.MonkeyPatch, set_zone: Callable[[str], None]
) -> None:
    set_zone("UTC")
    monkeypatch.setattr(times, "utc_now", lambda: datetime(2018, 10, 18, 12, tzinfo=UTC))
    first = sentences(ask(vault, "oven yesterday", rerank=False))[0]
    assert "its date is in 'yesterday'" in first and "because its date fits and the word is in it" in first


def test_a_list_by_date_does_not_call_the_oldest_the_first_by_relevance(vault: NoteIndex) -> None:
    answer = ask(vault, "oven shop sort:-date", mode="lexical")
    places = [(one.explanation or pytest.fail()).place for one in answer.hits]
    assert places != sorted(places)
    for at, text in enumerate(sentences(answer)):
        assert (" by relevance" in text) == (places[at] != at + 1)


def test_a_levelled_relevance_comes_with_its_own() -> None:
    parts = (Contribution("bm25", "original", "q", 1, 2.0, 1.0, 1.0),)
    one = Explanation(parts, 2, 1.0, 0.5, 1.0, 0.4, 1, 0.13, {"a": "text", "b\u202e": ""}, False)
    assert explain_place(one, 1) == (
        "first (before reranking 2nd) because 'a' is in its text; "
        "40 % with its neighbours, 13 % alone, because 'b\u202e' is missing"
    )
