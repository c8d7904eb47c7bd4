"""Cases of `bench_answers.py` and `bench_names.py`, their answers and figures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from qmd.errors import UsageError
from qmd.plugins.bench.running import BACKENDS
from qmd.records import Query, SearchResponse, Verdict
from qmd.retrieval.pipeline import search
from tests import fakes
from tests.benchmarks import bench_answers, bench_names
from tests.benchmarks.answers import (
    Answer,
    AnswerCase,
    cases_of_names,
    holds_any,
    impossible_cases,
    judge_answer,
    mean_metrics,
    read_cases,
    summarise_answers,
)
from tests.benchmarks.corpus_index import index_corpus
from tests.note_index import NoteIndex


def cases_in(folder: Path, *rows: object) -> dict[str, AnswerCase]:
    (folder / "fx.json").write_text(json.dumps({"queries": rows}))
    return read_cases(folder / "fx.json")


def case_of(*files: str, texts: tuple[str, ...] = ()) -> AnswerCase:
    return AnswerCase("q", "", "keyword", files, expected_text=texts)


def answer(
    *, expected: int = 1, ranks: tuple[int, ...] = (1,), holds: bool | None = None, verdict: Verdict = "good"
) -> Answer:
    return Answer("name", expected, ranks, holds, verdict, (), 1.0)


def test_an_expected_text_is_one_string_or_several(tmp_path: Path) -> None:
    row = {"query": "x", "expected_files": ["a.md"]}
    cases = cases_in(tmp_path, row, {**row, "expected_text": "one"}, {**row, "expected_text": ["one", "two"]})
    assert [case.expected_text for case in cases.values()] == [(), ("one",), ("one", "two")]


@pytest.mark.parametrize("text", [7, "", [""], ["one", None], {"one": 1}])
def test_an_expected_text_that_is_no_text_is_refused(tmp_path: Path, text: object) -> None:
    with pytest.raises(UsageError, match="query '1' has a bad 'expected_text'"):
        cases_in(tmp_path, {"query": "x", "expected_files": ["a.md"], "expected_text": text})


def test_a_case_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'unanswerable' and has 'expected_files'"):
        cases_in(tmp_path, {"query": "x", "type": "unanswerable", "expected_files": ["a.md"]})
    with pytest.raises(UsageError, match="'expected_text' and no 'expected_files'"):
        cases_in(tmp_path, {"query": "x", "expected_files": [], "expected_text": "one"})


def test_a_query_without_a_type_is_of_a_kind_all_the_same(tmp_path: Path) -> None:
    rows = ({"query": "x", "type": "typo", "expected_files": ["a.md"]}, {"query": "x", "expected_files": ["a.md"]})
    cases = cases_in(tmp_path, *rows, {"query": "x", "expected_files": []})
    assert [case.kind for case in cases.values()] == ["typo", "other", "unanswerable"]


def test_cases_that_no_search_can_meet_are_named(tmp_path: Path) -> None:
    reader = NoteIndex()
    reader.add("sub/a.md", "# A\n\nThe pump has\ntwo valves.\n")
    cases = cases_in(
        tmp_path,
        {"id": "right", "query": "x", "expected_files": ["a.md"], "expected_text": ["three", "has two VALVES"]},
        {"id": "gone", "query": "x", "expected_files": ["a.md", "b.md"]},
        {"id": "wrong", "query": "x", "expected_files": ["sub/a.md"], "expected_text": "four valves"},
        {"id": "none", "query": "x", "expected_files": []},
    )
    assert impossible_cases(reader, cases) == [
        "the index lacks files that queries expect: 'gone'",
        "no expected file has the expected text of queries: 'wrong'",
    ]


def test_names_are_those_of_files_and_aliases_in_whatever_case() -> None:
    reader = NoteIndex()
    reader.add("a/Monad.md", "---\naliases: [Monads, programmable semicolon]\n---\nText.\n")
    reader.add("b/monad.md", "# Other\n")
    reader.add("Kleisli v1.2.md", "---\nalias: MONAD\n---\nText.\n")
    reader.add("year.md", "---\nalias: 2020\n---\nText.\n")
    cases = cases_of_names(reader, 100).values()
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
    before = cases_of_names(reader, 100)
    reader.add("Another.md", "Text.\n")
    after = cases_of_names(reader, 100)
    assert before.items() < after.items()
    assert not any(" " in key for key in after)
    assert len(cases_of_names(reader, 1)) == 1


def found(text: str) -> tuple[SearchResponse, list[str]]:
    """Return the lexical answer of two notes, and their paths."""
    reader = NoteIndex()
    reader.add("pump.md", "# Pump\n\nThe pump has\ntwo valves, one of brass.\n")
    reader.add("tap.md", "# Tap\n\nA tap has one valve.\n")
    response = search(reader, fakes.fake_engines(), Query(text), BACKENDS["bm25"])
    return response, [hit.document.path for hit in response.hits]


def test_the_passage_of_the_first_expected_file_counts() -> None:
    response, names = found("pump valves brass")
    assert names[0] == "pump.md"
    right = judge_answer(case_of("tap.md", "pump.md", texts=("HAS TWO  valves",)), names, response, 1.0)
    assert (right.rank, right.passage_holds, right.verdict, right.kind) == (1, True, response.verdict, "keyword")
    assert judge_answer(case_of("pump.md", texts=("one valve.",)), names, response, 1.0).passage_holds is False
    assert judge_answer(case_of("pump.md"), names, response, 1.0).passage_holds is None


def test_a_file_that_is_not_shown_has_no_passage() -> None:
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


@pytest.mark.parametrize("tree", ["cpp-docs", "fastapi-docs", "garden", "several-garden"])
def test_the_carried_questions_can_be_asked(tree: str) -> None:
    cases = read_cases(Path(__file__).parent / f"questions/{tree}.json")
    assert len({case.id for case in cases.values()}) == len(cases) >= 10


def test_questions_and_names_are_asked_of_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("pricing", "Pricing", "Per-seat pricing after the interviews."), ("ships", "Ships", "Sails and anchors.")]
    corpus = "".join(json.dumps({"_id": name, "title": title, "text": text}) + "\n" for name, title, text in rows)
    (tmp_path / "corpus.jsonl").write_text(corpus)
    index_corpus(tmp_path, tmp_path / "index.sqlite")
    questions = [
        {"id": "1", "query": "seat pricing", "expected_files": ["pricing.md"], "expected_text": "after the interviews"},
        {"id": "2", "query": "zeppelin quantum", "type": "unanswerable", "expected_files": []},
    ]
    (tmp_path / "fx.json").write_text(json.dumps({"queries": questions}))
    asked = [str(tmp_path / "index.sqlite"), str(tmp_path / "fx.json"), "--backends", "bm25"]
    assert bench_answers.main([*asked, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["results"]
    assert (first["backends"]["bm25"]["rank"], first["backends"]["bm25"]["passage_holds"]) == (1, True)
    assert (second["type"], second["backends"]["bm25"]["verdict"]) == ("unanswerable", "none")
    assert bench_answers.main(asked) == 0
    assert "nDCG@10 1.0000" in capsys.readouterr().out
    assert bench_names.main([asked[0], "2", "--backends", "bm25"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[-2:]] == [["name", "2"], ["all", "2"]]
