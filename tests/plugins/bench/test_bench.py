"""`qmd bench` through `main`: fixtures, the names of notes, backends that cannot run, failures."""

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
    assert report["backends"]["bm25"]["metrics"]["nDCG@10"] == 1.0


def test_a_fixture_prints_a_table_and_a_summary(indexed: Qmd, fixture_file: Path) -> None:
    run = indexed("bench", str(fixture_file), "--backends", "bm25")
    assert run.status == 0
    lines = run.out.splitlines()
    assert lines[0].split() == ["query", "backend", "P@k", "R@1", "R@3", "R@5", "MRR", "F1", "ms"]
    assert "Summary:" in lines
    assert "Share of time per stage:" in lines


def test_backends_that_cannot_run_are_named_and_are_no_zeros(indexed: Qmd, fixture_file: Path) -> None:
    run = indexed("bench", str(fixture_file), "--json")
    assert run.status == 0
    report = run.json
    assert list(report["backends"]) == ["bm25"]
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


@pytest.mark.parametrize("argv", [[], ["a.json", "b.json"], ["a.json", "--names"], ["--names", "2", "a.json"]])
def test_one_thing_is_measured_at_a_time(indexed: Qmd, argv: list[str]) -> None:
    run = indexed("bench", *argv)
    assert run.status == 2
    assert run.err.startswith("Usage: qmd bench")


def test_a_missing_target_is_named(indexed: Qmd) -> None:
    run = indexed("bench", "gone.json")
    assert run.status == 3
    assert "no fixture 'gone.json'" in run.err


def test_the_help_names_every_option(qmd: Qmd) -> None:
    run = qmd("bench", "--help")
    assert run.status == 0
    for option in ("--names", "--backends", "-n", "--json", "-c"):
        assert option in run.out


CASES = {
    "queries": [
        {
            "id": "why",
            "query": "seat pricing interviews",
            "type": "keyword",
            "expected_files": ["pricing.md"],
            "expected_text": "per-seat pricing after the interviews",
        },
        {
            "id": "window",
            "query": "rate limiter",
            "type": "keyword",
            "expected_files": ["sunday.md"],
            "expected_text": ["limiter. it has a SLIDING"],
        },
        {"id": "alien", "query": "zeppelin quantum", "type": "unanswerable", "expected_files": []},
    ]
}


@pytest.fixture
def cases(home: Path) -> str:
    (home / "cases.json").write_text(json.dumps(CASES))
    return "cases.json"


def test_cases_say_what_a_person_sees_by_kind(indexed: Qmd, cases: str) -> None:
    run = indexed("bench", cases, "--backends", "bm25", "--json")
    assert run.status == 0
    report = run.json
    rows = {row["id"]: row["backends"]["bm25"] for row in report["results"]}
    assert (rows["why"]["rank"], rows["why"]["passage_holds"]) == (1, True)
    assert (rows["alien"]["rank"], rows["alien"]["passage_holds"], rows["alien"]["verdict"]) == (None, None, "none")
    backend = report["backends"]["bm25"]
    assert backend["metrics"]["nDCG@10"] == report["summary"]["bm25"]["avg_mrr"] == 1.0
    assert (backend["answers"]["cases"], backend["answers"]["success@1"], backend["answers"]["refused"]) == (
        3,
        1.0,
        1.0,
    )
    assert (backend["kinds"]["keyword"]["passage_holds"], backend["kinds"]["keyword"]["refused"]) == (1.0, None)
    assert (backend["kinds"]["unanswerable"]["success@1"], backend["kinds"]["unanswerable"]["none"]) == (None, 1.0)


def test_cases_print_a_table_of_each_backend(indexed: Qmd, cases: str) -> None:
    lines = indexed("bench", cases, "--backends", "bm25").out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("bm25") and "success@1" in line)
    kinds = [line.split() for line in lines[start + 1 : start + 4]]
    assert [row[:6] for row in kinds] == [
        ["keyword", "2", "1.000", "1.000", "1.000", "1.000"],
        ["unanswerable", "1", "-", "-", "-", "-"],
        ["all", "3", "1.000", "1.000", "1.000", "1.000"],
    ]


@pytest.mark.slow
def test_every_backend_runs_on_the_built_in_models(indexed: Qmd, cases: str) -> None:
    assert indexed("embed").status == 0
    run = indexed("bench", cases, "--json", "-n", "1")
    assert run.status == 0
    report = run.json
    assert list(report["backends"]) == ["bm25", "vector", "hybrid", "full"]
    assert all(row["metrics"]["MRR@10"] == 1.0 for row in report["backends"].values())
    assert report["backends"]["full"]["stage_share"]["rerank"] > 0


def test_names_ask_for_each_note_by_what_it_is_called(indexed: Qmd, notes: Path) -> None:
    (notes / "Idea.md").write_text("---\naliases: [brainwave]\n---\n# Idea\n\nA brainwave is an idea.\n")
    assert indexed("update").status == 0
    run = indexed("bench", "--names", "--backends", "bm25", "--json")
    assert run.status == 0
    report = run.json
    assert (report["name"], report["queries"]) == ("names", 5)
    assert {row["query"]: row["type"] for row in report["results"]}["brainwave"] == "alias"
    wave = next(row["backends"]["bm25"] for row in report["results"] if row["query"] == "brainwave")
    assert (wave["rank"], wave["top_files"]) == (1, ["notes/Idea.md"])
    assert report["backends"]["bm25"]["kinds"]["name"]["cases"] == 4
    few = indexed("bench", "--names", "2", "--backends", "bm25", "--json").json
    assert few["queries"] == 2
