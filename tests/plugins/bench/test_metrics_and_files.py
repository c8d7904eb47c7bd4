"""Metrics by hand, judged files, fixtures, comparison, known items."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from qmd.errors import ModelError, NotFoundError, UsageError
from qmd.plugins.bench.collections import read_beir, read_qrels, read_run, write_run
from qmd.plugins.bench.compare import compare_runs
from qmd.plugins.bench.fixture import FixtureQuery, read_fixture, same_file, score_fixture
from qmd.plugins.bench.known_item import known_item_queries
from qmd.plugins.bench.metrics import mrr_at, ndcg_at, precision_at, recall_at
from qmd.plugins.bench.runs import evaluate
from tests import fakes
from tests.note_index import NoteIndex

GRADES = {"a": 2.0, "b": 1.0, "c": 0.0}


def test_ndcg_discounts_by_the_logarithm_of_the_rank() -> None:
    expected = (1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3))
    assert ndcg_at(["b", "a"], GRADES, 10) == pytest.approx(expected)
    assert ndcg_at(["a", "b"], GRADES, 10) == pytest.approx(1.0)
    assert ndcg_at(["a"], {"c": 0.0}, 10) == 0.0


def test_recall_precision_and_reciprocal_rank() -> None:
    assert recall_at(["c", "b"], GRADES, 2) == 0.5
    assert precision_at(["c", "b"], GRADES, 10) == 0.1
    assert mrr_at(["c", "b", "a"], GRADES, 10) == 0.5
    assert mrr_at(["c"], GRADES, 10) == 0.0


def test_a_beir_folder_is_read_in_both_spellings(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tsome doc\t2\n")
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "hello"}\n{"_id": "2", "text": "unjudged"}\n')
    judged = read_beir(tmp_path)
    assert judged.queries == {"1": "hello"}
    assert judged.qrels == {"1": {"some doc": 2.0}}


def test_trec_qrels_have_four_columns(tmp_path: Path) -> None:
    path = tmp_path / "qrels.txt"
    path.write_text("1 0 doc 1\n")
    assert read_qrels(path) == {"1": {"doc": 1.0}}
    path.write_text("1 0 doc 1\n1 0 doc x\n")
    with pytest.raises(UsageError, match="line 2"):
        read_qrels(path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="qrels"):
        read_beir(tmp_path)


def test_runs_round_trip(tmp_path: Path) -> None:
    write_run(tmp_path / "x.run", {"q": ["b", "a"]}, "test")
    assert read_run(tmp_path / "x.run") == {"q": ["b", "a"]}


def test_a_clear_improvement_is_significant_and_noise_is_not() -> None:
    old = {str(n): 0.2 for n in range(40)}
    better = compare_runs(old, {str(n): 0.3 + 0.001 * n for n in range(40)})
    assert better.p_value < 0.01
    assert better.low > 0
    noise = compare_runs(old, {str(n): 0.2 + (0.1 if n % 2 else -0.1) for n in range(40)})
    assert noise.p_value > 0.5
    assert (noise.better, noise.worse) == (20, 20)


def test_runs_without_a_shared_query_are_refused() -> None:
    with pytest.raises(ValueError, match="share no query"):
        compare_runs({"1": 0.0}, {"2": 0.0})


def test_a_fixture_is_read_and_scored(tmp_path: Path) -> None:
    path = tmp_path / "fx.json"
    row = {"id": "q1", "query": "x", "expected_files": ["docs/a.md", "b.md"], "expected_in_top_k": 2}
    path.write_text(json.dumps({"queries": [row], "collection": "docs"}))
    query = read_fixture(path).queries[0]
    score = score_fixture(query, ["qmd://docs/c.md", "qmd://docs/docs/a.md", "qmd://docs/x/b.md"], 5.0)
    assert score.hits_at_k == 1
    assert score.precision_at_k == 0.5
    assert score.recall == 1.0
    assert score.mrr == 0.5
    assert score.recall_at_1 == 0.0


def test_file_names_match_at_a_slash_only() -> None:
    assert same_file("a.md", "qmd://docs/sub/A.md")
    assert not same_file("a.md", "qmd://docs/aaa.md")


def test_a_file_that_is_no_fixture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fx.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match="Invalid fixture: missing 'queries' array"):
        read_fixture(path)


@pytest.mark.parametrize("tree", ["cpp-docs", "fastapi-docs"])
def test_the_carried_questions_can_be_asked(tree: str) -> None:
    queries = read_fixture(Path(__file__).parents[2] / f"benchmarks/questions/{tree}.json").queries
    assert len({query.id for query in queries}) == len(queries) >= 10
    assert all(query.expected_files and query.expected_in_top_k == 3 for query in queries)


def test_an_expected_file_that_is_missing_is_listed() -> None:
    score = score_fixture(FixtureQuery("1", "q", "", ("a.md",), 5), [], 1.0)
    assert score.unmatched_expected_files == ("a.md",)
    assert score.mrr == 0.0


def reader_with_headings() -> NoteIndex:
    embedder = fakes.HashingEmbedder()
    reader = NoteIndex(embedder=embedder)
    reader.add("a.md", "# A\n\n## Rotating secret keys\n\nText.\n")
    reader.add("b.md", "# B\n\n## Rotating secret keys\n\n## Watering the plants\n\n[the key manual](a.md)\n")
    return reader


def test_known_items_are_unique_headings_and_link_texts() -> None:
    judged = known_item_queries(reader_with_headings())
    found = {judged.queries[key]: next(iter(grades)) for key, grades in judged.qrels.items()}
    assert found == {"Watering the plants": "notes/b.md", "the key manual": "notes/a.md"}


def test_a_comment_in_fenced_code_is_no_known_item() -> None:
    reader = NoteIndex()
    reader.add(
        "a.md", "---\n## not this one\ntag: x\n---\n# A\n\n## Rotating secret keys\n\n```sh\n## not that one\n```\n"
    )
    assert set(known_item_queries(reader).queries.values()) == {"Rotating secret keys"}


def test_every_backend_reports_its_metrics() -> None:
    reader = reader_with_headings()
    engines = fakes.fake_engines(reader.embedder, fakes.OverlapReranker())
    reports = evaluate(reader, engines, {"1": "watering plants"}, {"1": {"b.md": 1.0}})
    assert [report.backend for report in reports] == ["bm25", "vector", "hybrid", "full"]
    for report in reports:
        assert report.mean("nDCG@10") == 1.0
        assert sum(report.stage_share.values()) == pytest.approx(1.0)


def test_a_query_that_cannot_run_is_a_failure_and_no_zero() -> None:
    reader = reader_with_headings()
    reports = evaluate(reader, fakes.fake_engines(), {"1": "plants", "2": "lex:"}, {"1": {"b.md": 1.0}}, ["bm25"])
    assert [failure.query_id for failure in reports[0].failures] == ["2"]
    assert reports[0].mean("nDCG@10") == 1.0


def test_a_missing_model_fails_the_backends_that_need_it() -> None:
    with pytest.raises(ModelError, match="vector"):
        evaluate(reader_with_headings(), fakes.fake_engines(), {}, {}, ["vector"])
