"""Typed words rank above their relatives, and a hit with all of them is never weak."""

import pytest

from qmd.analysis.query import analyze_query, parse_lex
from qmd.records import LexicalTerm, SearchResponse
from qmd.retrieval import literal_matches as literal
from qmd.retrieval.calibration import GOOD
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from tests import fakes
from tests.note_index import NoteIndex

RELATIVE = "# Adherent point\n\nAn adherent point of a set. Limit points are adherent, adherent points no limits.\n"
TYPED = "# Sampling bias\n\nPatients who stay in a trial differ in age and habits. Their adherence is better.\n"
LEXICAL = SearchRequest(mode="lexical", explain=True)


def index_of(**notes: str) -> NoteIndex:
    reader = NoteIndex()
    for name, text in notes.items():
        reader.add(f"{name}.md", text)
    for number in range(20):
        reader.add(f"filler-{number}.md", f"# Note {number}\n\nSome text about topic {number} and other things.\n")
    return reader


def ask(reader: NoteIndex, text: str, options: SearchRequest = LEXICAL) -> SearchResponse:
    return search(reader, fakes.fake_engines(), parse_query(text), options)


def names(answer: SearchResponse) -> list[str]:
    return [hit.document.path.removesuffix(".md") for hit in answer.hits]


@pytest.mark.parametrize("typed", ["adherence", "ADHERENCE", "Adhérence", "ａｄｈｅｒｅｎｃｅ"])
def test_the_form_that_was_typed_goes_before_the_stem_in_a_title(typed: str) -> None:
    answer = ask(index_of(relative=RELATIVE, typed=TYPED), typed)
    assert names(answer) == ["typed", "relative"]
    assert answer.verdict == "good"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("résumés", "# A\n\nTwo re\u0301sume\u0301s lie here.\n"),
        ("naive approach", "# B\n\nA naïve approach to the naïveté of approaches.\n"),
        ("C++ templates", "# C\n\nThe templates of C++ are one thing.\n"),
        ("key-value stores", "# D\n\nAmong key-value stores this is one.\n"),
        ('"points of contact"', "# E\n\nThere are points of contact.\n"),
    ],
)
def test_every_way_to_write_it_is_the_same_word(query: str, text: str) -> None:
    relatives = "# Resume, naively: template, key, value, store\n\nResume the point in contact, approaching C.\n" * 3
    answer = ask(index_of(relative=relatives, typed=text), query)
    assert names(answer)[0] == "typed"
    assert answer.hits[0].relevance >= GOOD


def test_a_border_inside_a_word_is_none() -> None:
    answer = ask(index_of(inside="# In\n\nadherences, unadherence\n", typed=TYPED), "adherence")
    assert names(answer)[0] == "typed"


def test_a_word_in_a_name_counts_like_one_in_the_text() -> None:
    reader = index_of(relative=RELATIVE)
    reader.add("on adherence/talk.md", "# Talk\n\nOf other things.\n")
    assert names(ask(reader, "adherence"))[0] == "on adherence/talk"


def test_the_only_literal_match_is_found_behind_hundreds_of_relatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literal, "_BATCH", 10)
    reader = index_of(typed="# Other\n\n" + "Words about other things. " * 80 + "Their adherence is better.\n")
    for number in range(60):
        reader.add(f"relative-{number}.md", RELATIVE)
    answer = ask(reader, "adherence", SearchRequest(mode="lexical", limit=3, folds_copies=False))
    assert names(answer)[0] == "typed"


def test_literal_matches_respect_exclusions_and_filters() -> None:
    reader = index_of(typed=TYPED, other="# Other\n\nAdherence to rules.\n", relative=RELATIVE)
    assert names(ask(reader, "adherence -patients")) == ["other", "relative"]
    assert names(ask(reader, "adherence path:typed*")) == ["typed"]


def test_a_question_is_ranked_by_all_evidence_and_its_quotes_by_their_words() -> None:
    question = _terms("how many adherent points has a closed bounded set")
    assert literal.select_typed_terms(question) == []
    quoted = _terms('many "adherent points" have closed bounded sets', lex_syntax=True)
    assert [term.text for term in literal.select_typed_terms(quoted)] == ["adherent points"]


def test_parts_of_typed_words_are_not_matched_literally() -> None:
    assert [term.text for term in literal.select_typed_terms(_terms("getUserName"))] == ["getusername"]
    assert literal.select_typed_terms(_terms("adher*", lex_syntax=True)) == []


def test_a_word_of_nearly_every_note_is_no_weak_answer() -> None:
    assert ask(index_of(typed=TYPED), "text").verdict == "good"


def test_words_far_apart_are_no_whole_answer() -> None:
    apart = "# Apart\n\nTheir adherence." + " Other words of a long note." * 60 + " The compass.\n"
    together = "# Together\n\nThe adherence of a compass.\n"
    by_name = {hit.document.path: hit.relevance for hit in ask(index_of(apart=apart), "adherence compass").hits}
    assert ask(index_of(together=together), "adherence compass").verdict == "good"
    assert by_name["apart.md"] < GOOD


def test_an_older_version_of_a_note_takes_no_relevance_from_it() -> None:
    draft = TYPED + "A draft.\n"
    alone = ask(index_of(relative=RELATIVE, typed=TYPED), "patients adherence").hits[0]
    with_draft = ask(index_of(relative=RELATIVE, typed=TYPED, draft=draft), "patients adherence").hits[0]
    other = TYPED.replace(". ", ".\n")
    with_rival = ask(index_of(relative=RELATIVE, typed=TYPED, rival=other), "patients adherence").hits[0]
    assert alone.relevance == pytest.approx(with_draft.relevance, abs=0.1)
    assert with_rival.relevance < alone.relevance - 0.1


def _terms(text: str, *, lex_syntax: bool = False) -> tuple[LexicalTerm, ...]:
    return parse_lex(text) if lex_syntax else analyze_query(text)
