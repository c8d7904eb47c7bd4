"""Questions in other languages than English: forms of words, one line instead of twenty, the model that reads them."""

import sys

import pytest

from qmd.analysis.query import parse_lex
from qmd.records import SearchResponse
from qmd.retrieval.lexical import MAX_TERMS, MAX_UNKNOWN
from qmd.retrieval.matching import find_spans
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
        ("wann ist die Fähre da", "German"),
        ("when is the ferry", "German"),
        ("渡船什么时候开", "Chinese"),
        ("フェリーはいつ", "Japanese"),
        ("醤油", "Chinese or Japanese"),
    ],
)
def test_where_the_model_reads_neither_question_nor_notes_the_package_that_does_is_named(
    text: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "qmd_multilingual", None)
    index = german(fakes.HashingEmbedder(trust=float(text.isascii() or language == "German")))
    (line,) = (line for line in answer(index, text).warnings if "models pull" in line)
    assert line.endswith(f"; for {language}: the package qmd-search-multilingual, see: qmd models pull multilingual")


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


UNSPACED = {
    "th": ("แมวสีดำนอนอยู่บนหลังคาบ้านของเพื่อนบ้านทุกเช้า", "หลังคา"),
    "lo": ("ແມວສີດຳນອນຢູ່ເທິງຫຼັງຄາເຮືອນທຸກເຊົ້າ", "ຫຼັງຄາ"),
    "km": ("ឆ្មាខ្មៅ\u200bដេក\u200bលើ\u200bដំបូលផ្ទះរៀងរាល់ព្រឹក", "ដេកលើដំបូល"),
    "my": ("ကြောင်နက်သည် မနက်တိုင်း အိမ်ခေါင်မိုးပေါ်တွင် အိပ်သည်", "ခေါင်မိုး"),
    "bo": ("ཞི་མི་ནག་པོ་དེ་ཉིན་ལྟར་ཁང་པའི་ཐོག་ལ་ཉལ་གྱི་ཡོད།", "ཁང་པའི་ཐོག"),
}


@pytest.mark.parametrize("language", UNSPACED)
def test_a_word_inside_a_sentence_without_spaces_is_found_and_marked(language: str) -> None:
    text, word = UNSPACED[language]
    index = NoteIndex()
    for other, (sentence, _) in UNSPACED.items():
        index.add(f"{other}.md", f"# Note\n\nReleased 2024: {sentence}\n")
    found = answer(index, word)
    assert (paths(found), found.warnings) == ([f"{language}.md"], ())
    marked = {text[start:end].replace("\u200b", "") for start, end in find_spans(text, found.terms)}
    assert marked == {word}
    assert paths(answer(index, f'"{text.replace(chr(0x200B), "")[:16]}"')) == [f"{language}.md"]


def test_ideographs_are_japanese_in_japanese_notes_and_english_questions_get_the_advice() -> None:
    index = NoteIndex(fakes.HashingEmbedder(trust=0.0))
    for number in range(3):
        index.add(f"{number}.md", f"# 醤油{number}\n\n醤油は大豆と小麦から作られる調味料です。\n")
    assert index.main_language() == "ja"
    assert any("for Japanese: " in line for line in answer(index, "醤油").warnings)
    index.embedder = fakes.HashingEmbedder()
    advice = [line for line in answer(index, "what is the sauce made of").warnings if "for Japanese: " in line]
    assert len(advice) == 1


@pytest.mark.parametrize(
    "text", ["ก" + "\u0e49" * 1_000_000, "\ud800แมว\udfffneko猫", "\u0e49" * 999 + "猫" + "\u17d2" * 999]
)
def test_hostile_marks_and_halves_of_characters_are_searched_like_any_text(text: str) -> None:
    index = NoteIndex()
    index.add("a.md", text.encode("utf-8", "replace").decode())
    assert answer(index, text[:200]).hits is not None and find_spans(text[:5_000], parse_lex(text[:50])) is not None
