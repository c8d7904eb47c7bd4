"""What a person sees of a search: the passage shown, the verdict, each kind of query by itself; the names of notes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qmd.errors import UsageError
from qmd.plugins.bench.answers import (
    Answer,
    answer_metrics,
    answers_path,
    compare_answers,
    holds_any,
    judge_answer,
    read_answers,
    summarise_answers,
    write_answers,
)
from qmd.plugins.bench.checks import impossible_cases
from qmd.plugins.bench.collections import JudgedQueries
from qmd.plugins.bench.fixture import Fixture, judge_fixture, read_fixture, score_fixture, summarise
from qmd.plugins.bench.known_item import name_queries
from qmd.plugins.bench.runs import BACKENDS, measure_run
from qmd.records import Query, Scope, SearchResponse, Verdict
from qmd.retrieval.pipeline import search
from tests import fakes
from tests.note_index import NoteIndex


def fixture_of(folder: Path, *rows: object) -> Fixture:
    (folder / "fx.json").write_text(json.dumps({"queries": rows}))
    return read_fixture(folder / "fx.json")


def answer(
    *,
    kind: str = "name",
    answerable: bool = True,
    rank: int | None = 1,
    holds: bool | None = None,
    verdict: Verdict = "good",
) -> Answer:
    return Answer(kind, answerable, rank, holds, verdict)


# --- fixtures -------------------------------------------------------------------------------------


def test_an_expected_text_is_one_string_or_several(tmp_path: Path) -> None:
    row = {"query": "x", "expected_files": ["a.md"]}
    fixture = fixture_of(tmp_path, row, {**row, "expected_text": "one"}, {**row, "expected_text": ["one", "two"]})
    assert [query.expected_text for query in fixture.queries] == [(), ("one",), ("one", "two")]


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
    named = {"query": "x", "type": "typo", "expected_files": ["a.md"]}
    fixture = fixture_of(
        tmp_path, named, {"query": "x", "expected_files": ["a.md"]}, {"query": "x", "expected_files": []}
    )
    assert list(judge_fixture(fixture).kinds.values()) == ["typo", "other", "unanswerable"]


def test_an_unanswerable_query_spoils_no_mean(tmp_path: Path) -> None:
    fixture = fixture_of(
        tmp_path, {"id": "a", "query": "x", "expected_files": ["a.md"]}, {"id": "u", "query": "y", "expected_files": []}
    )
    metrics = measure_run({"a": ["a.md"], "u": ["b.md"]}, judge_fixture(fixture).qrels)
    assert metrics["nDCG@10"] == {"a": 1.0}
    scores = [score_fixture(query, ["a.md"], 4.0) for query in fixture.queries]
    assert summarise(scores)["avg_mrr"] == 1.0
    assert summarise(scores)["avg_latency_ms"] == 4.0
    assert summarise(scores[1:])["avg_mrr"] == 0.0


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
    assert impossible_cases(reader, Scope(), fixture) == [
        "the index lacks files that queries expect: 'gone'",
        "no expected file holds the expected text of queries: 'wrong'",
    ]


# --- one answer -----------------------------------------------------------------------------------


def found(text: str) -> SearchResponse:
    """What a search by words finds in two notes."""
    reader = NoteIndex()
    reader.add("pump.md", "# Pump\n\nThe pump has\ntwo valves, one of brass.\n")
    reader.add("tap.md", "# Tap\n\nA tap has one valve.\n")
    return search(reader, fakes.fake_engines(), Query(text), BACKENDS["bm25"])


def judged(*files: str, texts: tuple[str, ...] = ()) -> JudgedQueries:
    return JudgedQueries({"q": ""}, {"q": dict.fromkeys(files, 1.0)}, {"q": "keyword"}, {"q": texts} if texts else {})


def test_the_passage_of_the_first_expected_file_is_what_counts() -> None:
    response = found("pump valves brass")
    names = [hit.document.path for hit in response.hits]
    assert names[0] == "pump.md"
    right = judge_answer(judged("tap.md", "pump.md", texts=("HAS TWO  valves",)), "q", names, response)
    assert (right.rank, right.passage_holds, right.verdict, right.kind) == (1, True, response.verdict, "keyword")
    assert judge_answer(judged("pump.md", texts=("one valve.",)), "q", names, response).passage_holds is False
    assert judge_answer(judged("pump.md"), "q", names, response).passage_holds is None


def test_a_file_that_is_not_shown_has_no_passage_that_holds() -> None:
    response = found("pump valves brass")
    missing = judge_answer(judged("other.md", texts=("valves",)), "q", ["pump.md"], response)
    assert (missing.rank, missing.passage_holds) == (None, False)
    far = judge_answer(judged("pump.md", texts=("valves",)), "q", [*map(str, range(10)), "pump.md"], response)
    assert (far.rank, far.passage_holds) == (11, False)


def test_line_breaks_case_and_the_form_of_characters_hide_no_text() -> None:
    assert holds_any("Zu Füßen\n  der Cafe\u0301s", ["zu füssen der cafés"])
    assert not holds_any("two valves", ["twovalves"])


# --- many answers ---------------------------------------------------------------------------------


def test_each_metric_is_over_the_queries_it_can_be_asked_of() -> None:
    answers = {
        "first": answer(rank=1, holds=True),
        "third": answer(rank=3, holds=False, verdict="weak"),
        "lost": answer(rank=None, verdict="none"),
        "refused": answer(answerable=False, rank=None, verdict="none"),
        "believed": answer(answerable=False, rank=None, verdict="weak"),
    }
    summary = summarise_answers(answers)
    assert (summary["cases"], summary["success@1"], summary["success@3"]) == (5, 1 / 3, 2 / 3)
    assert (summary["passage_holds"], summary["kept"], summary["refused"]) == (0.5, 2 / 3, 0.5)
    assert (summary["good"], summary["weak"], summary["none"], summary["verdict_right"]) == (0.2, 0.4, 0.4, 0.6)
    assert summarise_answers({"refused": answers["refused"]})["success@1"] is None


def test_answers_round_trip(tmp_path: Path) -> None:
    answers = {"q": answer(holds=True), "übrig": answer(answerable=False, rank=None, verdict="none")}
    path = answers_path(tmp_path / "bm25.run")
    write_answers(path, answers)
    assert (path.name, read_answers(path)) == ("bm25.answers.json", answers)


def test_stored_answers_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.answers.json").write_text('{"q": {"kind": "name"}}')
    with pytest.raises(UsageError, match=r"cannot read the answers '.*x\.answers\.json'"):
        read_answers(tmp_path / "x.answers.json")


def test_runs_are_compared_query_by_query_over_all_and_by_kind() -> None:
    old = {str(n): answer(kind="typo" if n < 5 else "name", rank=2 if n < 5 else 1) for n in range(20)}
    new = {name: answer(kind=one.kind, rank=1) for name, one in old.items()}
    comparison = compare_answers(old, new)
    assert set(comparison.overall) == {"success@1", "success@3", "verdict_right"}
    first = comparison.overall["success@1"]
    assert (first.queries, first.better, first.worse, first.difference) == (20, 5, 0, 0.25)
    assert first.low > 0
    assert comparison.overall["success@3"].difference == 0.0
    assert comparison.kinds["typo"]["success@1"].difference == 1.0
    assert comparison.kinds["name"]["success@1"].difference == 0.0


def test_refusing_more_gains_on_nonsense_and_loses_on_questions() -> None:
    old = {"u": answer(answerable=False, rank=None, verdict="weak"), "a": answer(verdict="weak")}
    new = {"u": answer(answerable=False, rank=None, verdict="none"), "a": answer(verdict="none")}
    verdict = compare_answers(old, new).overall["verdict_right"]
    assert (verdict.better, verdict.worse, verdict.queries) == (1, 1, 2)
    assert answer_metrics(new)["refused"] == {"u": 1.0}


def test_answers_without_a_shared_query_are_not_compared() -> None:
    with pytest.raises(ValueError, match="share no query"):
        compare_answers({"1": answer()}, {"2": answer()})


# --- names ----------------------------------------------------------------------------------------


def test_names_are_those_of_files_and_aliases_in_whatever_case() -> None:
    reader = NoteIndex()
    reader.add("a/Monad.md", "---\naliases: [Monads, programmable semicolon]\n---\nText.\n")
    reader.add("b/monad.md", "# Other\n")
    reader.add("Kleisli v1.2.md", "---\nalias: MONAD\n---\nText.\n")
    reader.add("year.md", "---\nalias: 2020\n---\nText.\n")
    judged = name_queries(reader, Scope(), 100)
    expected = {judged.queries[key]: (judged.kinds[key], set(judged.qrels[key])) for key in judged.queries}
    assert expected == {
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
    before = name_queries(reader, Scope(), 100).queries
    reader.add("Another.md", "Text.\n")
    after = name_queries(reader, Scope(), 100).queries
    assert before.items() < after.items()
    assert not any(" " in key for key in after)
    assert len(name_queries(reader, Scope(), 1).queries) == 1
