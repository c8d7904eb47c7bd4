"""Fixtures of `qmd bench`, and the figures of a ranking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qmd.errors import ModelError, UsageError
from qmd.plugins.bench.fixture import Case, read_fixture
from qmd.plugins.bench.running import BACKENDS, Report, require_models, run_backend, score_case
from tests import fakes
from tests.note_index import NoteIndex


def test_a_fixture_is_read_and_scored(tmp_path: Path) -> None:
    row = {"id": "q1", "query": "x", "expected_files": ["docs/a.md", "b.md"], "expected_in_top_k": 2}
    (tmp_path / "fx.json").write_text(json.dumps({"queries": [row, row], "collection": "docs"}))
    fixture = read_fixture(tmp_path / "fx.json")
    assert (fixture.collection, list(fixture.cases)) == ("docs", ["q1", "q1#2"])
    score = score_case(fixture.cases["q1"], ["qmd://docs/c.md", "qmd://docs/docs/a.md", "qmd://docs/x/b.md"], 5.0)
    assert (score.hits_at_k, score.precision_at_k, score.recall, score.mrr) == (1, 0.5, 1.0, 0.5)
    assert (score.recall_at_1, score.recall_at_3) == (0.0, 1.0)
    assert score.f1 == pytest.approx(2 / 3)


def test_an_expected_file_that_is_missing_is_listed() -> None:
    score = score_case(Case("q", "", "", ("a.md",), 5), [], 1.0)
    assert (score.unmatched_expected_files, score.mrr) == (("a.md",), 0.0)


@pytest.mark.parametrize("text", ["{}", '{"queries": 7}', "[]"])
def test_a_file_that_is_no_fixture_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "fx.json").write_text(text)
    with pytest.raises(UsageError, match="Invalid fixture: missing 'queries' array"):
        read_fixture(tmp_path / "fx.json")


def test_every_backend_reports_its_figures() -> None:
    reader = NoteIndex(embedder=fakes.HashingEmbedder())
    reader.add("b.md", "# B\n\n## Watering the plants\n\nTwice a week.\n")
    engines = fakes.fake_engines(reader.embedder, fakes.OverlapReranker())
    for backend in BACKENDS:
        require_models(reader, engines, backend)
        report = run_backend(backend, reader, engines, {"1": Case("1", "watering plants", "", ("b.md",))})
        assert report.means()["avg_mrr"] == 1.0


def test_a_missing_model_fails_the_backends_that_need_it() -> None:
    with pytest.raises(ModelError, match="vector"):
        require_models(NoteIndex(), fakes.fake_engines(), "vector")


@pytest.mark.parametrize("tree", ["cpp-docs", "fastapi-docs"])
def test_the_carried_questions_can_be_asked(tree: str) -> None:
    cases = read_fixture(Path(__file__).parents[2] / f"benchmarks/questions/{tree}.json").cases
    assert len({case.id for case in cases.values()}) == len(cases) >= 10
    assert all(case.expected_files and case.expected_in_top_k == 3 for case in cases.values())


def test_a_query_that_expects_no_file_counts_for_the_latency_only() -> None:
    cases = [Case("q", "", "", files) for files in (("a.md",), ())]
    scores = [score_case(case, ["a.md"], 4.0) for case in cases]
    means = Report("bm25", {"1": scores[0], "2": scores[1]}, {}).means()
    assert (means["avg_mrr"], means["avg_latency_ms"]) == (1.0, 4.0)
    assert Report("bm25", {"2": scores[1]}, {}).means()["avg_mrr"] == 0.0
