"""`qmd bench` through `main`: fixtures, scores, backends that cannot run, failures."""

import json
from pathlib import Path

import pytest

from tests.program import Qmd

FIXTURE = {
    "description": "what the notes decide",
    "version": "1",
    "queries": [
        {
            "id": "price",
            "query": "lex: seat pricing",
            "type": "exact",
            "description": "",
            "expected_files": ["notes/pricing.md"],
            "expected_in_top_k": 3,
        },
        {"id": "limit", "query": "rate limiter", "expected_files": ["sunday.md"], "expected_in_top_k": 1},
    ],
}


@pytest.fixture
def fixture_file(home: Path) -> Path:
    path = home / "fx.json"
    path.write_text(json.dumps(FIXTURE))
    return path


def test_a_fixture_gives_the_shape_that_scripts_read(indexed: Qmd, fixture_file: Path) -> None:
    run = indexed("bench", str(fixture_file), "--json", "--backends", "bm25")
    assert (run.status, run.err) == (0, "")
    report = run.json
    assert report["fixture"] == "fx.json"
    first = report["results"][0]
    assert (first["id"], first["query"], first["type"]) == ("price", "lex: seat pricing", "exact")
    score = first["backends"]["bm25"]
    assert (score["precision_at_k"], score["recall"], score["mrr"], score["hits_at_k"]) == (1.0, 1.0, 1.0, 1)
    assert score["top_files"][0] == "qmd://notes/pricing.md"
    assert (score["matched_files"], score["unmatched_expected_files"]) == (["notes/pricing.md"], [])
    assert report["summary"]["bm25"]["avg_mrr"] == 1.0
    assert set(report) == {"timestamp", "fixture", "results", "summary", "unavailable"}


def test_a_fixture_prints_a_table_and_a_summary(indexed: Qmd, fixture_file: Path) -> None:
    run = indexed("bench", str(fixture_file), "--backends", "bm25")
    assert run.status == 0
    lines = run.out.splitlines()
    assert lines[0].split() == ["query", "backend", "P@k", "R@1", "R@3", "R@5", "MRR", "F1", "ms"]
    assert "Summary:" in lines


def test_backends_that_cannot_run_are_named_and_are_no_zeros(indexed: Qmd, fixture_file: Path) -> None:
    run = indexed("bench", str(fixture_file), "--json")
    assert run.status == 0
    report = run.json
    assert list(report["summary"]) == ["bm25"]
    assert set(report["unavailable"]) == {"vector", "hybrid", "full"}
    assert "backend 'vector' needs vectors" in run.err
    assert "qmd embed" in run.err


def test_a_backend_asked_for_by_name_must_run(indexed: Qmd, fixture_file: Path) -> None:
    run = indexed("bench", str(fixture_file), "--backends", "vector")
    assert (run.status, run.out) == (4, "")
    assert "backend 'vector' needs vectors" in run.err


def test_an_unknown_backend_is_refused(indexed: Qmd, fixture_file: Path) -> None:
    run = indexed("bench", str(fixture_file), "--backends", "bm52")
    assert (run.status, run.err) == (2, "error: unknown backend 'bm52'\nhint: known: bm25, vector, hybrid, full\n")


def test_a_fixture_that_finds_nothing_is_questioned(indexed: Qmd, home: Path) -> None:
    (home / "fx.json").write_text(
        json.dumps({"queries": [{"id": "1", "query": "pricing", "expected_files": ["z.md"]}]})
    )
    run = indexed("bench", "fx.json", "--backends", "bm25")
    assert "no expected file was found" in run.err


def test_a_fixture_names_its_collection_and_the_option_another(indexed: Qmd, home: Path) -> None:
    (home / "fx.json").write_text(json.dumps({**FIXTURE, "collection": "nots"}))
    run = indexed("bench", "fx.json", "--backends", "bm25")
    assert run.status == 3
    assert "did you mean 'notes'" in run.err
    assert indexed("bench", "fx.json", "--backends", "bm25", "-c", "notes").status == 0


def test_one_fixture_is_measured(indexed: Qmd) -> None:
    assert "\nUsage: qmd bench" in indexed("bench").err
    run = indexed("bench", "a.json", "b.json")
    assert (run.status, run.out) == (2, "")


def test_a_missing_target_is_named(indexed: Qmd) -> None:
    run = indexed("bench", "gone.json")
    assert run.status == 3
    assert "no fixture 'gone.json'" in run.err


def test_the_help_names_every_option(qmd: Qmd) -> None:
    run = qmd("bench", "--help")
    assert run.status == 0
    for option in ("--backends", "--json", "-c"):
        assert option in run.out


@pytest.mark.slow
def test_every_backend_runs_on_the_built_in_models(indexed: Qmd, fixture_file: Path) -> None:
    assert indexed("embed").status == 0
    run = indexed("bench", str(fixture_file), "--json")
    assert run.status == 0
    report = run.json
    assert list(report["summary"]) == ["bm25", "vector", "hybrid", "full"]
    assert all(row["avg_mrr"] == 1.0 for row in report["summary"].values())
