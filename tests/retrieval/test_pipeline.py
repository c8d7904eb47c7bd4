"""Search pipeline over fakes: hits, and warnings about stages that cannot run."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from qmd.errors import UsageError
from qmd.records import Query, Scope, SearchResponse, SubQuery
from qmd.retrieval.matching import find_spans
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import Mode, SearchRequest
from tests import fakes
from tests.note_index import NoteIndex, paths

LEXICAL = SearchRequest(mode="lexical")
DENSE = SearchRequest(mode="dense")
HYBRID = SearchRequest()


def notes(embedder: fakes.HashingEmbedder | None = None) -> NoteIndex:
    reader = NoteIndex(embedder=embedder)
    reader.add("limiter.md", "# Rate limiter\n\nThe rate limiter uses a sliding window.\nAuth token flow\n")
    reader.add("garden.md", "# Garden\n\nTomatoes need sun and water.\n", metadata={"tags": ("home",)})
    reader.add("work/engine.md", "# Automobile\n\nThe automobile engine needs oil.\n", modified_at="2026-05-01")
    return reader


def ask(reader: NoteIndex, text: str, options: SearchRequest = HYBRID, **roles: Any) -> SearchResponse:
    return search(reader, fakes.fake_engines(**roles), parse_query(text), options)


EMBEDDER = fakes.HashingEmbedder(synonyms={"car": "automobile"})


def test_a_literal_answer_comes_first_in_every_mode() -> None:
    reader = notes(EMBEDDER)
    for options in (LEXICAL, DENSE, HYBRID):
        answer = ask(reader, "sliding window limiter", options, embedder=EMBEDDER, reranker=fakes.OverlapReranker())
        assert paths(answer)[0] == "limiter.md"
        assert answer.verdict == "good"


UNKNOWN = "'{}' does not appear in any note"
BY_WORDS: dict[str, tuple[str, list[str], tuple[str, ...]]] = {
    # statement: query, notes found, all warnings
    "a question needs not all of its words": ("why do tomatoes hate it", ["garden.md"], (UNKNOWN.format("hate"),)),
    "a cut off word is searched as a prefix": ("automob", ["work/engine.md"], ()),
    "a correct word that no document contains is kept": ("slicing", [], (UNKNOWN.format("slicing"),)),
    "a short unknown word next to known ones is only questioned": (
        "tomatoes flwo away", ["garden.md"], (UNKNOWN.format("flwo") + ": did you mean 'flow'?", UNKNOWN.format("away"))
    ),
    "an unknown word is named": ("zzzqqq", [], (UNKNOWN.format("zzzqqq"),)),
    "a filter alone is a list": ("tag:home", ["garden.md"], ()),
}  # fmt: skip


@pytest.mark.parametrize("case", BY_WORDS)
def test_a_search_by_words(case: str) -> None:
    text, expected, warnings = BY_WORDS[case]
    answer = ask(notes(), text, LEXICAL)
    assert (paths(answer), answer.warnings) == (expected, warnings)
    assert answer.verdict == "none" or expected


DECIDED: dict[str, tuple[str, list[str]]] = {
    "excluded words hold for documents found by vectors": ("limiter -auth", ["garden.md", "work/engine.md"]),
    "required phrases hold for documents found by vectors": ('"sliding window"', ["limiter.md"]),
    "a phrase is required in a sentence too": ('what is the "sliding window" of our tomatoes for', ["limiter.md"]),
}


@pytest.mark.parametrize("case", DECIDED)
def test_operators_decide_in_a_search_by_words_and_vectors(case: str) -> None:
    text, expected = DECIDED[case]
    assert sorted(paths(ask(notes(EMBEDDER), text, HYBRID, embedder=EMBEDDER))) == expected


def test_vectors_find_notes_that_words_do_not() -> None:
    assert paths(ask(notes(EMBEDDER), "car", HYBRID, embedder=EMBEDDER))[0] == "work/engine.md"


def test_the_passage_carries_the_lines_of_the_file() -> None:
    passage = ask(notes(), "auth token", LEXICAL).hits[0].passage
    assert (passage.line, passage.start_line) == (4, 1)


def test_a_misspelt_word_is_corrected_with_a_warning() -> None:
    answer = ask(notes(), "windwo", LEXICAL)
    assert paths(answer) == ["limiter.md"]
    assert answer.warnings == ("'windwo' does not appear in any note: searched for 'window' instead",)
    text = answer.hits[0].passage.text
    assert [text[start:end] for start, end in find_spans(text, answer.terms)] == ["window"]


def test_an_answer_tells_the_words_that_were_looked_for_and_not_those_that_were_excluded() -> None:
    answer = ask(notes(), '"auth token" -garden', LEXICAL)
    assert [term.text for term in answer.terms] == ["auth token"]


@pytest.mark.parametrize(("typed", "meant"), [("slidng", "sliding"), ("engne", "engine"), ("limiterr", "limiter")])
def test_a_word_of_five_letters_with_one_near_word_is_corrected_next_to_known_ones(typed: str, meant: str) -> None:
    answer = ask(notes(), f"tomatoes {typed}", LEXICAL)
    assert set(paths(answer)) > {"garden.md"}
    assert answer.warnings == (f"'{typed}' does not appear in any note: searched for '{meant}' instead",)


def test_a_word_of_another_language_is_not_corrected_into_an_english_one() -> None:
    reader = notes()
    reader.add("de.md", "# Fahrrad\n\nDas Fahrrad und die Kette.\n")
    reader.add("en.md", "# Objects\n\nThe objects of a class.\n")
    assert paths(ask(reader, "quels sont les objectifs", LEXICAL)) == []
    assert paths(ask(reader, "objectis of a class", LEXICAL)) == ["en.md"]
    assert paths(ask(reader, "wo ist das Fahrad", LEXICAL)) == ["de.md"]


def test_a_correct_word_is_no_prefix_of_a_longer_one() -> None:
    reader = notes()
    reader.add("tv.md", "the broadcast was informative\n")
    assert paths(ask(reader, "broad", LEXICAL)) == []
    assert paths(ask(reader, "info", LEXICAL)) == ["tv.md"]


def test_a_short_unknown_word_near_to_several_is_only_questioned() -> None:
    reader = notes()
    reader.add("short.md", "rule rude rune\n")
    answer = ask(reader, "ruoe", LEXICAL)
    assert answer.hits == ()
    (warning,) = answer.warnings
    assert warning.startswith("'ruoe' does not appear in any note: did you mean ")


@pytest.mark.parametrize("text", ["%%%%", "?", "\N{CRAB}", "lex: %%%\nvec: ???", "tag:home %%%%"])
@pytest.mark.parametrize("options", [LEXICAL, DENSE, HYBRID], ids=lambda options: options.mode)
def test_a_query_without_words_is_answered_with_one_line(text: str, options: SearchRequest) -> None:
    answer = ask(notes(EMBEDDER), text, options, embedder=EMBEDDER, reranker=fakes.OverlapReranker())
    assert (answer.hits, answer.verdict) == ((), "none")
    assert answer.warnings == ("no words to search for: the query has no letter or digit",)


def test_passages_that_a_model_skips_are_not_blamed_on_an_unset_budget() -> None:
    reranker = fakes.OverlapReranker(allowed=0)
    answer = ask(notes(EMBEDDER), "window water", HYBRID, embedder=EMBEDDER, reranker=reranker)
    (warning,) = answer.warnings
    assert warning.startswith("overlap: 0 of ")


def test_of_hundreds_of_unknown_words_the_first_are_named_and_the_others_counted() -> None:
    answer = ask(notes(), "tomatoes " + " ".join(f"zqx{number}zqx" for number in range(300)), LEXICAL)
    assert paths(answer) == ["garden.md"]
    assert len(answer.warnings) == 21
    assert answer.warnings[-1] == "280 further words do not appear in any note"


def test_a_required_phrase_without_matches_is_relaxed_with_a_warning() -> None:
    answer = ask(notes(), '"window sliding" tomatoes', LEXICAL)
    assert "garden.md" in paths(answer)
    assert any("window sliding" in warning for warning in answer.warnings)


def test_one_quoted_word_in_a_sentence_is_cited() -> None:
    answer = ask(notes(), 'how do I water the "red" tomatoes in summer', LEXICAL)
    assert paths(answer)[0] == "garden.md"
    assert any("a quotation in a sentence" in warning for warning in answer.warnings)


def test_a_signed_word_decides_in_a_sentence_too() -> None:
    answer = ask(notes(), "how do I water tomatoes or set the sliding window -limiter", LEXICAL)
    assert "garden.md" in paths(answer)
    assert "limiter.md" not in paths(answer)
    assert "documents with 'limiter' are excluded because of '-limiter'" in answer.warnings


def test_an_empty_collection_list_means_none() -> None:
    answer = search(notes(), fakes.fake_engines(), Query("tomatoes", scope=Scope(collections=())), LEXICAL)
    assert answer.hits == ()
    assert "no collection is searched" in answer.warnings


def test_filters_alone_list_documents_newest_first() -> None:
    assert paths(ask(notes(), "after:2025"))[0] == "work/engine.md"


def test_a_query_without_words_or_filters_is_refused() -> None:
    with pytest.raises(UsageError):
        search(notes(), fakes.fake_engines(), Query("  "), HYBRID)


def test_without_an_embedder_words_answer_with_a_warning() -> None:
    for options in (DENSE, HYBRID):
        answer = ask(notes(), "tomatoes", options)
        assert paths(answer) == ["garden.md"]
        assert answer.warnings == ("no embedding model: searched by words only",)


def test_a_model_that_fails_to_open_is_not_called_missing() -> None:
    failure = "embedding model 'm' cannot be used: embedding server 'http://h' answered 500: boom"
    engines = replace(fakes.fake_engines(), notes=(failure,), failures=(failure,))
    answer = search(notes(), engines, Query("tomatoes"), HYBRID)
    assert answer.warnings == (failure, "searched by words only")


def test_a_substitute_model_is_reported_with_every_answer() -> None:
    note = "jina replaces the embed model 'hf:a/b.gguf'; to use it: qmd models import FILE"
    engines = replace(fakes.fake_engines(), embedder=EMBEDDER, notes=(note,))
    assert note in search(notes(EMBEDDER), engines, Query("tomatoes"), HYBRID).warnings
    assert note not in search(notes(), engines, Query("tomatoes"), LEXICAL).warnings


def test_without_vectors_words_answer_and_the_command_is_named() -> None:
    reader = notes()
    answer = ask(reader, "tomatoes", DENSE, embedder=EMBEDDER)
    assert paths(answer) == ["garden.md"]
    assert "3 documents (100%) need embeddings. Run 'qmd embed' for better results." in answer.warnings


def test_a_scope_without_vectors_is_not_taken_for_an_unknown_script() -> None:
    reader = notes(EMBEDDER)
    reader.add("new.md", "tomatoes in pots", collection="fresh", embed=False)
    query = replace(parse_query("tomatoes"), scope=Scope(collections=("fresh",)))
    answer = search(reader, fakes.fake_engines(EMBEDDER), query, HYBRID)
    assert paths(answer) == ["new.md"]
    assert "searched by words only: none of these notes has vectors: run 'qmd embed'" in answer.warnings
    assert not any("script" in warning for warning in answer.warnings)


@pytest.mark.parametrize(
    ("embedder", "expected"),
    [
        (fakes.HashingEmbedder(failure="the model file is damaged"), "the model file is damaged"),
        (fakes.HashingEmbedder(trust=0.0), "cannot read the query's script"),
    ],
    ids=["it fails", "it does not know the script"],
)
def test_a_query_that_the_model_cannot_embed_is_left_to_words(embedder: fakes.HashingEmbedder, expected: str) -> None:
    answer = ask(notes(embedder), "tomatoes", HYBRID, embedder=embedder)
    assert paths(answer) == ["garden.md"]
    assert any(expected in warning for warning in answer.warnings)


def test_a_failing_reranker_leaves_the_fused_order() -> None:
    reader = notes(EMBEDDER)
    broken = fakes.OverlapReranker(failure="no memory")
    answer = ask(reader, "rate limiter", HYBRID, embedder=EMBEDDER, reranker=broken)
    assert paths(answer)[0] == "limiter.md"
    assert any("no memory" in warning for warning in answer.warnings)


def test_a_script_the_built_in_reranker_does_not_know_is_not_reranked() -> None:
    reranker = fakes.OverlapReranker(tier="built-in")
    reader, foreign = notes(EMBEDDER), fakes.HashingEmbedder(trust=0.0)
    reader.add("a.md", "番茄 炒蛋")
    reader.add("b.md", "番茄")
    answer = ask(reader, "番茄", replace(HYBRID, rerank=True), embedder=foreign, reranker=reranker)
    assert len(answer.hits) == 2
    assert not reranker.calls


def test_the_built_in_reranker_reads_near_ties_alone_unless_it_is_asked() -> None:
    reader = notes(EMBEDDER)
    reader.add("twin.md", "# Rate limiter of old\n\nThe rate limiter uses a sliding window, too.\n")
    for query, options, n_runs in (
        ("tomatoes sun", HYBRID, 0),
        ("tomatoes sun", replace(HYBRID, rerank=True), 1),
        ("how does the sliding window of rates work", HYBRID, 1),
        ("how does the sliding window of rates work", replace(HYBRID, rerank=False), 0),
    ):
        reranker = fakes.OverlapReranker(tier="built-in")
        answer = ask(reader, query, options, embedder=EMBEDDER, reranker=reranker)
        assert (len(reranker.calls), query, len(answer.hits) > 1) == (n_runs, query, True)


def test_the_reranker_sees_the_chunk_that_matched_under_its_title() -> None:
    reranker = fakes.OverlapReranker()
    ask(notes(EMBEDDER), "car", HYBRID, embedder=EMBEDDER, reranker=reranker)
    assert any("automobile engine" in passage for passage in reranker.calls[0][1])


def test_a_budget_cut_is_reported() -> None:
    reranker = fakes.OverlapReranker(allowed=2)
    options = replace(HYBRID, budget_ms=60_000)
    answer = ask(notes(EMBEDDER), "rate limiter", options, embedder=EMBEDDER, reranker=reranker)
    assert "budget of 60000 ms: 2 of 3 passages reranked" in answer.warnings


def test_a_spent_budget_leaves_the_words() -> None:
    options = replace(HYBRID, budget_ms=0)
    answer = ask(notes(EMBEDDER), "tomatoes", options, embedder=EMBEDDER, reranker=fakes.OverlapReranker())
    assert paths(answer) == ["garden.md"]
    assert "budget of 0 ms: vectors skipped" in answer.warnings


def test_expansions_add_candidates_and_are_reported() -> None:
    expander = fakes.FixedExpander((SubQuery("lex", "tomatoes"), SubQuery("vec", "automobile oil")))
    answer = ask(notes(EMBEDDER), "what grows outside", HYBRID, embedder=EMBEDDER, expander=expander)
    assert answer.expansions == expander.subqueries
    assert "garden.md" in paths(answer)


@pytest.mark.parametrize("text", ['"rate limiter"', "getUserName", "lex: rate", "rate limiter"])
def test_expansion_is_skipped_where_it_hurts(text: str) -> None:
    expander = fakes.FixedExpander()
    ask(notes(EMBEDDER), text, HYBRID, embedder=EMBEDDER, expander=expander)
    assert expander.calls == []


def test_expansion_can_be_forced_and_forbidden() -> None:
    expander = fakes.FixedExpander()
    ask(notes(EMBEDDER), "getUserName", replace(HYBRID, expand=True), embedder=EMBEDDER, expander=expander)
    assert expander.calls == ["getUserName"]
    ask(notes(EMBEDDER), "what grows outside", replace(HYBRID, expand=False), embedder=EMBEDDER, expander=expander)
    assert len(expander.calls) == 1


def test_a_query_document_runs_its_own_lines() -> None:
    answer = ask(notes(EMBEDDER), "lex: tomatoes\nvec: car", HYBRID, embedder=EMBEDDER)
    assert set(paths(answer)[:2]) == {"garden.md", "work/engine.md"}


def test_a_minimum_that_removes_all_hits_is_reported() -> None:
    answer = ask(notes(), "tomatoes", replace(LEXICAL, min_relevance=1.0))
    assert answer.hits == ()
    assert any("score less than the minimum" in warning for warning in answer.warnings)


def test_the_limit_does_not_change_the_first_relevance() -> None:
    reader = notes(EMBEDDER)
    few = ask(reader, "rate limiter", replace(HYBRID, limit=1), embedder=EMBEDDER)
    many = ask(reader, "rate limiter", replace(HYBRID, limit=9), embedder=EMBEDDER)
    assert few.hits[0].relevance == many.hits[0].relevance


def test_the_explanation_adds_up() -> None:
    options = replace(HYBRID, explain=True, rerank=False)
    answer = ask(notes(EMBEDDER), "rate limiter", options, embedder=EMBEDDER)
    assert answer.hits
    for hit in answer.hits:
        assert hit.explanation is not None
        parts = hit.explanation.contributions
        assert hit.explanation.fused_score == pytest.approx(sum(part.contribution for part in parts))
        assert hit.explanation.relevance == hit.relevance


def test_contexts_come_with_the_hit() -> None:
    reader = notes()
    reader.set_context("Everything.", notes={"/work": "Work notes."})
    assert ask(reader, "automobile", LEXICAL).hits[0].context == "Everything.\n\nWork notes."


def test_the_body_comes_only_when_asked_for() -> None:
    assert ask(notes(), "tomatoes", LEXICAL).hits[0].body is None
    assert ask(notes(), "tomatoes", replace(LEXICAL, full_body=True)).hits[0].body is not None


def test_an_unrelated_collection_does_not_change_a_scoped_order() -> None:
    reader = notes(EMBEDDER)
    query = replace(parse_query("automobile oil water"), scope=Scope(collections=("notes",)))
    before = paths(search(reader, fakes.fake_engines(EMBEDDER), query, HYBRID))
    for number in range(20):
        reader.add(f"x{number}.md", "unrelated text about mountains", collection="other")
    assert paths(search(reader, fakes.fake_engines(EMBEDDER), query, HYBRID)) == before


@pytest.fixture(scope="module")
def embedded_notes() -> NoteIndex:
    """Return notes with vectors, for reading only."""
    return notes(EMBEDDER)


@given(st.text(max_size=60), st.sampled_from(["lexical", "dense", "hybrid"]))
def test_no_query_text_raises_anything_but_a_usage_error(embedded_notes: NoteIndex, text: str, mode: Mode) -> None:
    try:
        query = parse_query(text)
    except UsageError:
        return
    engines = fakes.fake_engines(EMBEDDER, fakes.OverlapReranker())
    answer = search(embedded_notes, engines, query, SearchRequest(mode=mode))
    relevances = [hit.relevance for hit in answer.hits]
    assert relevances == sorted(relevances, reverse=True)
    assert answer.hits or answer.warnings


COPIED = "# Fermentation\n\n" + "Cabbage and salt ferment for three weeks in a cool cellar. " * 5 + "\n"


def kitchen(n_copies: int = 3) -> NoteIndex:
    reader = NoteIndex(embedder=EMBEDDER)
    for number in range(n_copies):
        reader.add(f"{number}/fermentation.md", COPIED, collection=f"kitchen{number}")
    for number in range(5):
        reader.add(f"cabbage{number}.md", f"# Cabbage {number}\n\nCabbage soup number {number}.\n")
    return reader


@pytest.mark.parametrize("options", [LEXICAL, DENSE, HYBRID], ids=lambda options: options.mode)
def test_one_text_in_several_places_is_one_hit_that_names_the_others(options: SearchRequest) -> None:
    answer = ask(kitchen(), "cabbage salt ferment", options, embedder=EMBEDDER, reranker=fakes.OverlapReranker())
    hit = answer.hits[0]
    assert [path for path in paths(answer) if path.endswith("fermentation.md")] == [hit.document.path]
    places = {f"qmd://kitchen{number}/{number}/fermentation.md" for number in range(3)}
    assert {hit.document.uri, *hit.also_in} == places
    assert len(hit.also_in) == 2


def test_copies_are_folded_before_the_limit() -> None:
    answer = ask(kitchen(60), "cabbage", replace(LEXICAL, limit=5, candidate_limit=5))
    assert len(answer.hits) == 5
    assert len({hit.document.hash for hit in answer.hits}) == 5


def test_the_copy_whose_name_answers_is_shown() -> None:
    reader = kitchen(1)
    reader.add("sauerkraut.md", COPIED, collection="recipes")
    (hit,) = ask(reader, "sauerkraut ferment", replace(LEXICAL, limit=1)).hits
    assert hit.document.uri == "qmd://recipes/sauerkraut.md"
    assert hit.also_in == ("qmd://kitchen0/0/fermentation.md",)


def test_empty_texts_and_stubs_of_other_names_are_no_copies() -> None:
    reader = NoteIndex()
    for path in ("a/oven.md", "b/oven.md"):
        reader.add(path, "")
    for path in ("stove.md", "stove plan.md", "old/stove.md"):
        reader.add(path, "#todo\n")
    assert sorted(paths(ask(reader, "oven", LEXICAL))) == ["a/oven.md", "b/oven.md"]
    hits = ask(reader, "stove", LEXICAL).hits
    assert len(hits) == 2
    assert sum(len(hit.also_in) for hit in hits) == 1


def test_copies_outside_the_scope_are_not_named() -> None:
    hits = ask(kitchen(), "collection:kitchen1 ferment", LEXICAL).hits
    assert [(hit.document.collection, hit.also_in) for hit in hits] == [("kitchen1", ())]


def test_a_list_by_date_folds_copies_too() -> None:
    answer = ask(kitchen(), "path:fermentation", LEXICAL)
    assert len(answer.hits) == 1
    assert len(answer.hits[0].also_in) == 2


def test_measuring_sees_every_copy() -> None:
    answer = ask(kitchen(), "ferment", replace(LEXICAL, folds_copies=False))
    assert len(answer.hits) == 3
