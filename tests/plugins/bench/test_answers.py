"""Fixtures, the names of notes, what a person sees of a search, and the figures that this comes to."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from qmd.errors import ModelError, UsageError
from qmd.plugins.bench.answers import Answer, judge_answer, mean_metrics, mean_scores, score_case, summarise_answers
from qmd.plugins.bench.fixture import (
    Case,
    Fixture,
    cases_of_names,
    holds_any,
    impossible_cases,
    read_fixture,
)
from qmd.plugins.bench.running import BACKENDS, require_models, run_backend
from qmd.records import Query, Scope, SearchResponse, Verdict
from qmd.retrieval.pipeline import search
from tests import fakes
from tests.note_index import NoteIndex


def fixture_of(folder: Path, *rows: object, **more: object) -> Fixture:
    (folder / "fx.json").write_text(json.dumps({"queries": rows, **more}))
    return read_fixture(folder / "fx.json")


def case_of(*files: str, texts: tuple[str, ...] = (), k: int = 10) -> Case:
    return Case("q", "", "keyword", files, k, texts)


def answer(
    *, expected: int = 1, ranks: tuple[int, ...] = (1,), holds: bool | None = None, verdict: Verdict = "good"
) -> Answer:
    return Answer("name", expected, ranks, holds, verdict, (), 1.0, score_case(case_of("a.md"), [], 1.0))


# --- fixtures -------------------------------------------------------------------------------------


def test_a_fixture_is_read_and_scored(tmp_path: Path) -> None:
    row = {"id": "q1", "query": "x", "expected_files": ["docs/a.md", "b.md"], "expected_in_top_k": 2}
    fixture = fixture_of(tmp_path, row, row, collection="docs")
    assert (fixture.collection, list(fixture.cases)) == ("docs", ["q1", "q1#2"])
    score = score_case(fixture.cases["q1"], ["qmd://docs/c.md", "qmd://docs/docs/a.md", "qmd://docs/x/b.md"], 5.0)
    assert (score.hits_at_k, score.precision_at_k, score.recall, score.mrr) == (1, 0.5, 1.0, 0.5)
    assert (score.recall_at_1, score.recall_at_3) == (0.0, 1.0)
    assert score.f1 == pytest.approx(2 / 3)


def test_an_expected_file_that_is_missing_is_listed() -> None:
    score = score_case(case_of("a.md", k=5), [], 1.0)
    assert (score.unmatched_expected_files, score.mrr) == (("a.md",), 0.0)


@pytest.mark.parametrize("text", ["{}", '{"queries": 7}', "[]"])
def test_a_file_that_is_no_fixture_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "fx.json").write_text(text)
    with pytest.raises(UsageError, match="Invalid fixture: missing 'queries' array"):
        read_fixture(tmp_path / "fx.json")


@pytest.mark.parametrize("tree", ["cpp-docs", "fastapi-docs"])
def test_the_carried_questions_can_be_asked(tree: str) -> None:
    cases = read_fixture(Path(__file__).parents[2] / f"benchmarks/questions/{tree}.json").cases
    assert len({case.id for case in cases.values()}) == len(cases) >= 10
    assert all(case.expected_files and case.expected_in_top_k == 3 for case in cases.values())


def test_an_expected_text_is_one_string_or_several(tmp_path: Path) -> None:
    row = {"query": "x", "expected_files": ["a.md"]}
    fixture = fixture_of(tmp_path, row, {**row, "expected_text": "one"}, {**row, "expected_text": ["one", "two"]})
    assert [case.expected_text for case in fixture.cases.values()] == [(), ("one",), ("one", "two")]


@pytest.mark.parametrize("text", [7, "", [""], ["one", None], {"one": 1}])
def test_an_expected_text_that_is_no_text_is_refused(tmp_path: Path, text: object) -> None:
    with pytest.raises(UsageError, match="query 1 has a bad 'expected_text'"):
        fixture_of(tmp_path, {"query": "x", "expected_files": ["a.md"], "expected_text": text})


def test_a_case_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'unanswerable' and has 'expected_files'"):
        fixture_of(tmp_path, {"query": "x", "type": "unanswerable", "expected_files": ["a.md"]})
    with pytest.raises(UsageError, match="'expected_text' and no 'expected_files'"):
        fixture_of(tmp_path, {"query": "x", "expected_files": [], "expected_text": "one"})


def test_a_query_without_a_type_is_of_a_kind_all_the_same(tmp_path: Path) -> None:
    rows = ({"query": "x", "type": "typo", "expected_files": ["a.md"]}, {"query": "x", "expected_files": ["a.md"]})
    fixture = fixture_of(tmp_path, *rows, {"query": "x", "expected_files": []})
    assert [case.kind for case in fixture.cases.values()] == ["typo", "other", "unanswerable"]


def test_cases_that_no_search_can_meet_are_named(tmp_path: Path) -> None:
    reader = NoteIndex()
    reader.add("sub/a.md", "# A\n\nThe pump has\ntwo valves.\n")
    fixture = fixture_of(
        tmp_path,
        {"id": "right", "query": "x", "expected_files": ["a.md"], "expected_text": ["three", "has two VALVES"]},
        {"id": "gone", "query": "x", "expected_files": ["a.md", "b.md"]},
        {"id": "wrong", "query": "x", "expected_files": ["sub/a.md"], "expected_text": "four valves"},
        {"id": "none", "query": "x", "expected_files": []},
    )
    assert impossible_cases(reader, Scope(), fixture.cases) == [
        "the index lacks files that queries expect: 'gone'",
        "no expected file holds the expected text of queries: 'wrong'",
    ]


# --- names ----------------------------------------------------------------------------------------


def test_names_are_those_of_files_and_aliases_in_whatever_case() -> None:
    reader = NoteIndex()
    reader.add("a/Monad.md", "---\naliases: [Monads, programmable semicolon]\n---\nText.\n")
    reader.add("b/monad.md", "# Other\n")
    reader.add("Kleisli v1.2.md", "---\nalias: MONAD\n---\nText.\n")
    reader.add("year.md", "---\nalias: 2020\n---\nText.\n")
    cases = cases_of_names(reader, Scope(), 100).values()
    assert {case.query: (case.kind, set(case.expected_files)) for case in cases} == {
        "Monad": ("name", {"notes/a/Monad.md", "notes/b/monad.md", "notes/Kleisli v1.2.md"}),
        "Monads": ("alias", {"notes/a/Monad.md"}),
        "programmable semicolon": ("alias", {"notes/a/Monad.md"}),
        "Kleisli v1.2": ("name", {"notes/Kleisli v1.2.md"}),
        "year": ("name", {"notes/year.md"}),
        "2020": ("alias", {"notes/year.md"}),
    }


def test_a_name_keeps_its_id_when_other_notes_come() -> None:
    reader = NoteIndex()
    reader.add("Two words.md", "Text.\n")
    before = cases_of_names(reader, Scope(), 100)
    reader.add("Another.md", "Text.\n")
    after = cases_of_names(reader, Scope(), 100)
    assert before.items() < after.items()
    assert not any(" " in key for key in after)
    assert len(cases_of_names(reader, Scope(), 1)) == 1


# --- one answer -----------------------------------------------------------------------------------


def found(text: str) -> tuple[SearchResponse, list[str]]:
    """What a search by words finds in two notes, and their paths."""
    reader = NoteIndex()
    reader.add("pump.md", "# Pump\n\nThe pump has\ntwo valves, one of brass.\n")
    reader.add("tap.md", "# Tap\n\nA tap has one valve.\n")
    response = search(reader, fakes.fake_engines(), Query(text), BACKENDS["bm25"])
    return response, [hit.document.path for hit in response.hits]


def test_the_passage_of_the_first_expected_file_is_what_counts() -> None:
    response, names = found("pump valves brass")
    assert names[0] == "pump.md"
    right = judge_answer(case_of("tap.md", "pump.md", texts=("HAS TWO  valves",)), names, response, 1.0)
    assert (right.rank, right.passage_holds, right.verdict, right.kind) == (1, True, response.verdict, "keyword")
    assert judge_answer(case_of("pump.md", texts=("one valve.",)), names, response, 1.0).passage_holds is False
    assert judge_answer(case_of("pump.md"), names, response, 1.0).passage_holds is None


def test_a_file_that_is_not_shown_has_no_passage_that_holds() -> None:
    response, _ = found("pump valves brass")
    missing = judge_answer(case_of("other.md", texts=("valves",)), ["pump.md"], response, 1.0)
    assert (missing.rank, missing.passage_holds) == (None, False)
    names = [*map(str, range(10)), "pump.md"]
    far = judge_answer(case_of("pump.md", texts=("valves",)), names, response, 1.0)
    assert (far.rank, far.passage_holds) == (11, False)


def test_a_file_found_counts_for_one_expected() -> None:
    response, _ = found("pump valves brass")
    case = case_of("notes/pump.md", "pump.md", "tap.md")
    names = ["qmd://x/notes/pump.md", "qmd://x/tap.md", "qmd://x/pump.md"]
    assert judge_answer(case, names, response, 1.0).ranks == (1, 2, 3)
    assert judge_answer(case, names[:1] * 3, response, 1.0).ranks == (1, 2)


def test_line_breaks_case_and_the_form_of_characters_hide_no_text() -> None:
    assert holds_any("Zu Füßen\n  der Cafe\u0301s", ["zu füssen der cafés"])
    assert not holds_any("two valves", ["twovalves"])


# --- many answers ---------------------------------------------------------------------------------


def test_each_figure_is_over_the_queries_it_can_be_asked_of() -> None:
    answers = [
        answer(holds=True),
        answer(ranks=(3,), holds=False, verdict="weak"),
        answer(ranks=(), verdict="none"),
        answer(expected=0, ranks=(), verdict="none"),
        answer(expected=0, ranks=(), verdict="weak"),
    ]
    summary = summarise_answers(answers)
    assert (summary["cases"], summary["success@1"], summary["success@3"]) == (5, 1 / 3, 2 / 3)
    assert (summary["passage_holds"], summary["kept"], summary["refused"]) == (0.5, 2 / 3, 0.5)
    assert (summary["good"], summary["weak"], summary["none"], summary["verdict_right"]) == (0.2, 0.4, 0.4, 0.6)
    assert summarise_answers(answers[3:4])["success@1"] is None


def test_metrics_are_those_of_trec_eval_by_hand() -> None:
    metrics = mean_metrics([answer(expected=3, ranks=(2, 11))])
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    expected = {"nDCG@10": 1 / math.log2(3) / ideal, "recall@20": 2 / 3, "MRR@10": 0.5, "P@10": 0.1}
    assert metrics == pytest.approx(expected)


def test_an_unanswerable_query_spoils_no_mean() -> None:
    nothing = answer(expected=0, ranks=())
    assert mean_metrics([answer(), nothing])["nDCG@10"] == 1.0
    scores = [score_case(case, ["a.md"], 4.0) for case in (case_of("a.md"), case_of())]
    assert (mean_scores(scores)["avg_mrr"], mean_scores(scores)["avg_latency_ms"]) == (1.0, 4.0)
    assert mean_scores(scores[1:])["avg_mrr"] == 0.0


# --- backends -------------------------------------------------------------------------------------


def test_every_backend_reports_its_figures() -> None:
    reader = NoteIndex(embedder=fakes.HashingEmbedder())
    reader.add("b.md", "# B\n\n## Watering the plants\n\nTwice a week.\n")
    engines = fakes.fake_engines(reader.embedder, fakes.OverlapReranker())
    for backend in BACKENDS:
        require_models(reader, engines, backend)
        report = run_backend(backend, reader, engines, {"1": Case("1", "watering plants", "", ("b.md",))})
        assert mean_metrics(report.answers.values())["nDCG@10"] == 1.0
        assert sum(report.stage_share.values()) == pytest.approx(1.0)


def test_a_missing_model_fails_the_backends_that_need_it() -> None:
    with pytest.raises(ModelError, match="vector"):
        require_models(NoteIndex(), fakes.fake_engines(), "vector")
