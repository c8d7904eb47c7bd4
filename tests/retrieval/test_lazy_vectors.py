"""Answers, and stored vectors, while texts have no vectors yet."""

from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.indexing.embed import embed_pending
from qmd.indexing.precomputed import PrecomputedChunks
from qmd.inference.base import Embedder
from qmd.plugins.doctor.vector_sample import sample_vectors
from qmd.records import Candidate, Ranking, SearchResponse
from qmd.retrieval import lazy_vectors
from qmd.retrieval.fusion import fuse_zscores
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from qmd.store.records import PendingContent
from tests import fakes
from tests.note_index import NoteIndex, paths

EMBEDDER = fakes.HashingEmbedder(synonyms={"car": "automobile"})
HYBRID = SearchRequest(rerank=False, explain=True)
UNKNOWN = "'car' does not appear in any note"
DENSE = replace(HYBRID, mode="dense")


def notes() -> NoteIndex:
    """Return four notes with the word engine, one of them about cars; none has vectors."""
    index = NoteIndex()
    index.add("games.md", "# Games\n\nAn engine draws pictures.\n")
    index.add("search.md", "# Search\n\nThe engine ranks notes.\n")
    index.add("work/automobile.md", "# Repair\n\nAn automobile engine needs oil.\n")
    index.add("log.md", "# Log\n\n" + "Walked, read, slept. " * 40 + "Heard an engine.\n")
    return index


def ask(index: NoteIndex, text: str, options: SearchRequest = HYBRID, embedder: Embedder = EMBEDDER) -> SearchResponse:
    opened: list[PrecomputedChunks] = []

    def open_source(embedder: Embedder) -> PrecomputedChunks:
        opened.append(PrecomputedChunks(embedder))
        return opened[-1]

    answer = search(index, fakes.fake_engines(embedder), parse_query(text), options, open_source=open_source)
    for ahead in opened:
        ahead.store(index)
    return answer


def pending(index: NoteIndex) -> int:
    return index.count_pending(EMBEDDER.fingerprint)[0]


def test_the_first_query_is_answered_by_meaning_before_there_are_vectors() -> None:
    index = notes()
    words = search(index, fakes.fake_engines(EMBEDDER), parse_query("car engine"), HYBRID)
    answer = ask(index, "car engine")
    assert paths(words)[0] != "work/automobile.md"
    assert paths(answer)[0] == "work/automobile.md"
    assert "vectors of 4 of the best notes were missing and computed now" in answer.warnings
    assert "4 documents (100%) need embeddings. Run 'qmd embed' for better results." in answer.warnings
    assert "embed" in [timing.stage for timing in answer.timings]


def test_vectors_of_an_answer_stay_and_the_next_answer_is_the_same() -> None:
    index = notes()
    first, second = ask(index, "car engine"), ask(index, "car engine")
    assert paths(first) == paths(second)
    assert pending(index) == 0
    assert second.warnings == (UNKNOWN,)


def test_a_later_run_computes_none_of_them_again() -> None:
    index = notes()
    index.add("other.md", "# Other\n\nTomatoes need sun.\n")
    ask(index, "car engine")
    report = embed_pending(index, EMBEDDER)
    assert (report.documents, report.embedded) == (1, 1)


def test_the_answer_with_all_vectors_is_the_one_without_this() -> None:
    index = notes()
    embed_pending(index, EMBEDDER)
    plain = search(index, fakes.fake_engines(EMBEDDER), parse_query("car engine"), HYBRID)
    supplied = ask(index, "car engine")
    assert [hit.explanation for hit in plain.hits] == [hit.explanation for hit in supplied.hits]
    assert plain.warnings == supplied.warnings == (UNKNOWN,)


def test_a_dense_search_ranks_lexical_candidates() -> None:
    answer = ask(notes(), "car engine", DENSE)
    assert paths(answer)[0] == "work/automobile.md"
    assert not any("words only" in warning for warning in answer.warnings)


def test_chunks_of_a_long_note_with_query_terms_are_embedded_first() -> None:
    index = NoteIndex()
    filler = "\n\n".join(f"## Part {number}\n\n" + "lorem ipsum dolor " * 60 for number in range(12))
    index.add("long.md", f"# Long\n\n{filler}\n\n## Last\n\nThe automobile engine is loud.\n")
    answer = ask(index, "car engine")
    assert answer.hits[0].passage.text.startswith("## Last")
    assert pending(index) == 1
    stored = index.status(EMBEDDER.fingerprint).chunks
    assert 0 < stored <= lazy_vectors.CHUNKS
    report = embed_pending(index, EMBEDDER)
    assert report.reused == stored
    assert pending(index) == 0


def test_a_part_computed_for_one_query_serves_another_that_finds_it_by_meaning_alone() -> None:
    index = notes()
    index.add("new.md", "# Plants\n\nTomatoes.\n")
    ask(index, "oil", HYBRID)
    assert "work/automobile.md" in paths(ask(index, "car tomatoes", HYBRID))


def test_nothing_is_computed_for_a_script_that_the_model_does_not_read() -> None:
    answer = ask(notes(), "engine", embedder=fakes.HashingEmbedder(trust=0.0))
    assert len(answer.hits) == 4
    assert not any("computed now" in warning for warning in answer.warnings)


def test_without_time_the_words_answer_and_nothing_is_computed() -> None:
    index = notes()
    answer = ask(index, "car engine", replace(HYBRID, budget_ms=0))
    assert len(answer.hits) == 4
    assert "budget of 0 ms: vectors skipped" in answer.warnings
    assert pending(index) == 4


def test_a_model_that_fails_meanwhile_is_a_warning() -> None:
    class Failing(fakes.HashingEmbedder):
        def embed_documents(self, texts, on_progress=None):  # type: ignore[no-untyped-def]
            raise ModelError("out of memory")

    answer = ask(notes(), "engine", embedder=Failing())
    assert len(answer.hits) == 4
    assert any("embed skipped: out of memory" in warning for warning in answer.warnings)


def test_a_note_without_vectors_does_not_rank_below_notes_with_less_of_the_query() -> None:
    index = NoteIndex(EMBEDDER)
    for number in range(8):
        index.add(f"old{number}.md", f"# Old {number}\n\nA note on an engine, number {number}, with other words.\n")
    index.add("best.md", "# Engine oil\n\nengine oil, engine oil, engine oil\n", embed=False)
    answer = search(index, fakes.fake_engines(EMBEDDER), parse_query("engine oil change"), HYBRID)
    assert paths(answer)[0] == "best.md"


def test_a_run_that_completed_a_text_meanwhile_is_not_undone() -> None:
    index = NoteIndex()
    filler = "\n\n".join(f"## Part {number}\n\n" + "lorem ipsum dolor " * 60 for number in range(8))
    document = index.add("long.md", f"# Long\n\n{filler}\n")
    ahead = PrecomputedChunks(EMBEDDER)
    content = PendingContent(document.hash, "long.md", index.texts([document.hash])[document.hash])
    pieces = ahead.cut(content)
    first, text = pieces[0]
    ahead.keep(content, [chunk for chunk, _ in pieces], {first.key: EMBEDDER.embed_documents([text])[0]})
    embed_pending(index, EMBEDDER)
    before = index.status(EMBEDDER.fingerprint).chunks
    ahead.store(index)
    assert index.status(EMBEDDER.fingerprint).chunks == before > 1


def test_another_model_than_that_of_the_index_stores_nothing_in_it() -> None:
    index = notes()
    embed_pending(index, fakes.HashingEmbedder(fingerprint="f" * 16))
    answer = ask(index, "car engine")
    assert paths(answer)[0] == "work/automobile.md"
    assert index.status(None).fingerprint == "f" * 16


def test_the_cosine_of_a_note_without_vectors_is_expected_from_its_words() -> None:
    words = Ranking("bm25", "original", "q", tuple(Candidate(i, 10.0 - i) for i in range(1, 9)))
    dense = Ranking("dense", "original", "q", tuple(Candidate(i, 0.9 - i / 10) for i in range(2, 9)))
    cut = {one.document_id: one for one in fuse_zscores([words, dense], [0.5, 0.5])}
    fair = {one.document_id: one for one in fuse_zscores([words, dense], [0.5, 0.5], {1})}
    assert fair[1].score > fair[2].score > cut[1].score
    assert {i: fair[i].score for i in range(2, 9)} == {i: cut[i].score for i in range(2, 9)}


def test_doctor_does_not_take_a_note_with_some_vectors_for_a_drifted_model() -> None:
    index = NoteIndex()
    filler = "\n\n".join(f"## Part {number}\n\n" + "lorem ipsum dolor " * 60 for number in range(8))
    index.add("long.md", f"# Long\n\n{filler}\n\n## Last\n\nThe automobile engine is loud.\n")
    index.add("short.md", "# Engine\n\nOil.\n")
    ask(index, "car engine")
    sample = sample_vectors(index, EMBEDDER)
    assert sample is not None and sample.agrees
