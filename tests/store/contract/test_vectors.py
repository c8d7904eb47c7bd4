"""Dense search in every engine."""

import numpy as np
import pytest

from qmd.errors import StoreError
from qmd.records import Scope
from qmd.retrieval.query import read_query
from qmd.retrieval.request import SearchRequest
from qmd.store.base import IndexWriter
from qmd.store.records import STAGING, ChunkRecord, VectorCoverage
from tests.store.conftest import MakeDocument
from tests.store.contract.conftest import Place
from tests.store.made_vectors import DIM, fill, key_of, unit_vectors


@pytest.mark.parametrize("n", [30, 700])
def test_documents_rank_by_their_best_chunk(writer: IndexWriter, make: MakeDocument, n: int) -> None:
    matrix = fill(writer, make, n)
    query = unit_vectors(1, seed=5)[0]
    best = (matrix @ query).max(axis=1)
    found = writer.search_dense(query, 10, Scope(), "f")
    assert len({one.document_id for one in found}) == 10
    assert len({one.document_id - 1 for one in found} & set(np.argsort(-best)[:10].tolist())) >= 9
    for candidate in found:
        number = candidate.document_id - 1
        assert candidate.score == pytest.approx(float(best[number]), abs=0.01)
        assert candidate.chunk_start == int((matrix[number] @ query).argmax()) * 10


@pytest.mark.parametrize("n", [40, 1_200])
def test_narrow_and_wide_scopes_are_applied_before_the_cut(writer: IndexWriter, make: MakeDocument, n: int) -> None:
    matrix = fill(writer, make, n, per=2)
    query = matrix[30, 0]
    scopes = {
        Scope(path_prefix="d/3"): [one for one in range(n) if str(one).startswith("3")],
        read_query(SearchRequest("", filter="status:odd")).scope: list(range(1, n, 2)),
        Scope(path_prefix="d/"): list(range(n)),
    }
    for scope, inside in scopes.items():
        scores = (matrix[inside] @ query).max(axis=1)
        found = writer.search_dense(query, 5, scope, "f")
        assert len(found) == 5
        assert found[0].document_id - 1 == inside[int(scores.argmax())]
        assert all(candidate.document_id - 1 in inside for candidate in found)
    assert writer.search_dense(query, 5, Scope(collections=()), "f") == []
    assert writer.search_dense(query, 5, Scope(path_prefix="none/"), "f") == []
    assert len(writer.search_dense(query, n + 5, Scope(), "f")) == n


def test_scores_of_given_documents_equal_those_of_the_search(writer: IndexWriter, make: MakeDocument) -> None:
    fill(writer, make, 30)
    query = unit_vectors(1, seed=3)[0]
    searched = {candidate.document_id: candidate for candidate in writer.search_dense(query, 30, Scope(), "f")}
    scored = writer.dense_scores(query, [*range(1, 31), 99, 5], "f")
    assert scored.keys() == searched.keys()
    for number, candidate in scored.items():
        assert candidate.score == pytest.approx(searched[number].score, abs=1e-3)
        assert candidate.chunk_start == searched[number].chunk_start
    assert writer.dense_scores(query, [], "f") == {}


def test_a_text_in_several_documents_finds_all_and_is_most_like_itself(writer: IndexWriter, make: MakeDocument) -> None:
    matrix = fill(writer, make, 6)
    writer.put_documents("copy", [make("c.md", "text 1")])
    found = writer.search_dense(matrix[1, 0], 2, Scope(), "f")
    assert [candidate.document_id for candidate in found] == [2, 7]
    only = writer.search_dense(matrix[1, 0], 2, Scope(collections=("copy",)), "f")
    assert [candidate.document_id for candidate in only] == [7]
    stored = writer.documents([2])[2]
    like = writer.search_like(stored, 3, Scope())
    assert {candidate.document_id for candidate in like[:2]} == {2, 7}
    mean = matrix[1].mean(axis=0)
    assert like[0].score == pytest.approx((matrix[1] @ mean).max() / np.linalg.norm(mean), abs=0.01)
    bare = make("bare.md", "no vectors")
    writer.put_documents("n", [bare])
    [without] = writer.find_docid(bare.hash)
    assert writer.search_like(without, 3, Scope()) == []


def test_vectors_of_another_model_are_never_compared(writer: IndexWriter, make: MakeDocument) -> None:
    matrix = fill(writer, make, 5)
    assert writer.search_dense(matrix[0, 0], 5, Scope(), "other") == []
    with pytest.raises(StoreError, match=f"{DIM} dimensions"):
        writer.search_dense(np.ones(7, dtype=np.float32), 5, Scope(), "f")
    with pytest.raises(ValueError, match="dimension"):
        writer.put_vectors("f", 7, {b"x" * 16: np.ones(7, dtype=np.float32)})


def test_texts_wait_for_vectors_the_newest_first(writer: IndexWriter, make: MakeDocument) -> None:
    made = [
        make("old.md", "old", modified_at="2020-01-01T00:00:00.000Z"),
        make("b.md", "same", modified_at="2023-01-01T00:00:00.000Z"),
        make("a.md", "same", modified_at="2022-01-01T00:00:00.000Z"),
        make("dated.md", "dated", date="2025-01-01"),
    ]
    writer.put_documents("n", made)
    writer.put_documents("m", [make("m.md", "other")])
    waiting = [(one.path, one.text) for one in writer.pending("f", ["n"])]
    assert waiting == [("dated.md", "dated"), ("a.md", "same"), ("old.md", "old")]
    assert writer.count_pending("f", ["n"]) == (3, 12)
    assert writer.count_pending("f") == (4, 17)
    writer.put_chunks("f", DIM, {made[0].hash: []})
    assert writer.count_pending("f", ["n"]) == (2, 9)
    assert writer.vector_coverage("f") == VectorCoverage(pending=3, has_vectors=False)
    assert writer.vector_coverage("g") == VectorCoverage(pending=4, has_vectors=False)
    assert writer.status("f").embedded_documents == 1
    with pytest.raises(ValueError, match="no vector"):
        writer.put_chunks("f", DIM, {made[1].hash: [ChunkRecord(0, 0, 3, b"x" * 16)]})
    assert writer.count_pending("f", ["n"]) == (2, 9)


def test_forgotten_chunks_are_searched_until_new_ones_take_their_place(writer: IndexWriter, make: MakeDocument) -> None:
    matrix = fill(writer, make, 4)
    writer.forget_chunks("f", [".txt"])
    assert writer.count_pending("f")[0] == 0
    writer.forget_chunks("f", [".md"])
    assert writer.count_pending("f")[0] == 4
    assert writer.search_dense(matrix[2, 1], 1, Scope(), "f")[0].document_id == 3
    waiting = next(iter(writer.pending("f")))
    writer.put_chunks("f", DIM, {waiting.hash: [ChunkRecord(0, 0, 5, key_of(0))]})
    assert writer.count_pending("f")[0] == 3
    assert writer.status("f").chunks == 10
    writer.forget_chunks("f")
    assert writer.count_pending("f")[0] == 4


def test_equal_keys_share_one_vector_which_is_kept_until_cleanup(writer: IndexWriter, make: MakeDocument) -> None:
    one, two = make("a", "one"), make("b", "two")
    writer.put_documents("n", [one, two])
    vectors = {key_of(n): unit_vectors(3)[n] for n in range(3)}
    writer.put_vectors("f", DIM, vectors)
    writer.put_vectors("f", DIM, vectors)
    assert writer.status("f").vectors == 3
    shared = [ChunkRecord(0, 0, 3, key_of(0))]
    writer.put_chunks("f", DIM, {one.hash: [*shared, ChunkRecord(1, 0, 3, key_of(1))], two.hash: shared})
    assert len(writer.search_dense(unit_vectors(1)[0], 5, Scope(), "f")) == 2
    writer.remove_documents("n", ["a"])
    expected = {"unused texts": 0, "unused chunks": 0, "unused vectors": 2}
    assert writer.existing_keys("f", list(vectors)) == vectors.keys()
    assert writer.cleanup(dry_run=True) == expected
    assert writer.cleanup() == expected
    assert writer.existing_keys("f", list(vectors)) == {key_of(0)}
    [best] = writer.search_dense(unit_vectors(1)[0], 5, Scope(), "f")
    assert best.score == pytest.approx(1.0, abs=0.01)
    assert writer.check() == []


def test_staged_vectors_are_searched_when_they_get_their_name(writer: IndexWriter, make: MakeDocument) -> None:
    matrix = fill(writer, make, 4)
    [first] = writer.find_docid(make("x", "text 1").hash)
    other = unit_vectors(1, seed=8)[0]
    writer.put_vectors(f"{STAGING}f", DIM, {key_of(0): other})
    writer.put_chunks(f"{STAGING}f", DIM, {first.hash: [ChunkRecord(0, 0, 3, key_of(0))]})
    assert [one.fingerprint for one in writer.models()] == ["f"]
    assert writer.status(None).vectors == 12
    assert writer.search_like(first, 1, Scope())[0].score < 1
    assert writer.search_dense(matrix[2, 1], 1, Scope(), "f")[0].document_id == 3
    writer.keep_models({f"{STAGING}f": "f"})
    assert [one.fingerprint for one in writer.models()] == ["f"]
    assert (writer.status(None).vectors, writer.count_pending("f")[0]) == (1, 3)
    [found] = writer.search_dense(other, 5, Scope(), "f")
    assert found.document_id == first.id
    assert found.score == pytest.approx(1.0, abs=0.01)
    assert writer.check() == []


def test_models_that_are_not_kept_leave_nothing(writer: IndexWriter, make: MakeDocument) -> None:
    fill(writer, make, 4)
    writer.put_vectors("g", DIM, {key_of(0): unit_vectors(1)[0]})
    writer.keep_models({"g": "g"})
    assert [one.fingerprint for one in writer.models()] == ["g"]
    assert writer.count_pending("f")[0] == 4
    writer.keep_models({})
    assert writer.models() == []
    assert writer.status(None).chunks == 0
    matrix = fill(writer, make, 2)
    assert writer.search_dense(matrix[1, 0], 1, Scope(), "f")[0].score == pytest.approx(1.0, abs=0.01)


def test_an_index_is_copied_from_any_engine_to_any_other(place: Place, make: MakeDocument) -> None:
    with place.writer() as writer:
        matrix = fill(writer, make, 5)
        writer.put_chunks("f", DIM, {make("x", "text 0").hash: []})
    with place.reader() as reader, reader.snapshot():
        assert [one.path for part in reader.stored_files() for one in part] == [f"d/{n}.md" for n in range(5)]
        assert [(one.fingerprint, one.dim) for one in reader.models()] == [("f", DIM)]
        sets = {content: chunks for part in reader.chunk_sets("f") for content, chunks in part.items()}
        assert sets[make("x", "text 0").hash] == []
        assert [one.key for one in sets[make("x", "text 4").hash]] == [key_of(12), key_of(13), key_of(14)]
        vectors = {key: vector for part in reader.all_vectors("f") for key, vector in part.items()}
        assert len(vectors) == 15
        assert float(vectors[key_of(13)] @ matrix[4, 1]) == pytest.approx(1.0, abs=0.01)
        assert list(reader.chunk_sets("g")) == []
