"""Questions in other languages than English: forms of words, one line instead of twenty, the model that reads them."""

import sys

import pytest

from qmd.inference.models.catalogue import READERS
from qmd.records import SearchResponse
from qmd.retrieval.lexical import MAX_TERMS, MAX_UNKNOWN
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from qmd.store.sqlite.index import SqliteReader
from tests import fakes
from tests.note_index import NoteIndex, paths

GERMAN = {
    "boot.md": "# Hafen\n\nDie Überfahrten mit dem alten Kahn sind im Winter nicht möglich.\n",
    "brot.md": "# Küche\n\nDas Brot wird im Ofen auf dem Stein gebacken und ist nach einer Stunde fertig.\n",
    "rad.md": "# Keller\n\nDie Reifen sind für den Winter, und der Schlauch wird vor dem Frost geflickt.\n",
}


def answer(index: NoteIndex, text: str) -> SearchResponse:
    options = SearchRequest() if index.embedder else SearchRequest(mode="lexical")
    return search(index, fakes.fake_engines(index.embedder), parse_query(text), options)


def german(embedder: fakes.HashingEmbedder | None = None) -> NoteIndex:
    index = NoteIndex(embedder)
    for path, text in GERMAN.items():
        index.add(path, text)
    return index


def test_a_word_is_found_in_another_form_of_its_language_behind_notes_that_have_it_as_typed() -> None:
    index = german()
    found = answer(index, "wann ist eine Überfahrt")
    assert (paths(found)[0], found.warnings) == ("boot.md", ())
    index.add("fahrt.md", "# Fähre\n\nDie Überfahrt ist bei Sturm nicht zu empfehlen, und das Ticket ist teuer.\n")
    assert paths(answer(index, "wann ist eine Überfahrt"))[:2] == ["fahrt.md", "boot.md"]


def test_unknown_words_are_reported_in_one_line_next_to_their_corrections() -> None:
    text = "warum ist das Kaninchen und der Igel im Gartenhaus und das Brot nicht gebakken"
    warnings = answer(german(), text).warnings
    assert "'gebakken' does not appear in any note: searched for 'gebacken' instead" in warnings
    assert (
        "the query is read as German: no note has 'kaninchen', 'igel', 'gartenhaus'" in warnings and len(warnings) == 2
    )


def test_keywords_follow_the_language_of_the_notes_and_marked_words_are_literal() -> None:
    assert paths(answer(german(), "Überfahrt")) == ["boot.md"]
    assert "boot.md" in paths(answer(german(), "der Winter ist -Überfahrt"))


def test_without_the_stemmer_words_are_searched_as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py_rust_stemmers", None)
    assert paths(answer(german(), "wann ist der Winter"))[0] in GERMAN


def test_a_vocabulary_of_one_beginning_costs_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    index = NoteIndex()
    index.add("many.md", "und der die das ist mit " + " ".join(f"überfahr{n:x}t" for n in range(2 * MAX_TERMS)))
    compared: list[int] = []
    terms_from = SqliteReader.terms_from

    def count(reader: SqliteReader, start: str, limit: int) -> list[str]:
        terms = terms_from(reader, start, limit)
        compared.append(len(terms))
        return terms

    monkeypatch.setattr(SqliteReader, "terms_from", count)
    answer(index, " ".join(["wann ist der", *(f"überfahr{chr(97 + n)}" for n in range(26))]))
    assert len(compared) == MAX_UNKNOWN and max(compared) == MAX_TERMS


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("wann ist die Fähre da", "de"),
        ("when is the ferry", "de"),
        ("渡船什么时候开", "zh"),
        ("フェリーはいつ", ""),
        ("醤油", ""),
    ],
)
def test_the_built_in_model_names_the_one_that_reads_the_question_or_the_notes(text: str, language: str) -> None:
    index = german(fakes.HashingEmbedder(trust=float(text.isascii() or language == "de")))
    assert [READERS[language] in line for line in answer(index, text).warnings if "models pull" in line] == [True]


def test_a_query_gets_one_line_about_its_language() -> None:
    unread = german(fakes.HashingEmbedder(trust=0.0))
    (line,) = answer(unread, "醤油").warnings
    assert "cannot read the query's script: searched by words only; for Chinese or Japanese: " in line
    words, advice, _ = answer(german(fakes.HashingEmbedder()), "when was the release postponed").warnings
    assert words == "the query is read as English: no note has 'release', 'postponed'"
    assert "for German" in advice


@pytest.mark.parametrize(
    "text", ["wann ist eine Überfahrt im Winter", "как продлить паспорт", "渡船什么时候开", "Πότε φεύγει"]
)
def test_the_english_reranker_leaves_other_languages_alone_whatever_model_embeds(text: str) -> None:
    reranker = fakes.OverlapReranker(tier="built-in")
    index = german(fakes.HashingEmbedder())
    for question, calls in ((text, 0), ("how is the bread baked in the oven", 1)):
        engines = fakes.fake_engines(index.embedder, reranker)
        found = search(index, engines, parse_query(question), SearchRequest(rerank=True))
        assert len(reranker.calls) == calls
        assert not any("rerank" in warning for warning in found.warnings)
