"""Measures of benchmarks: metrics by hand, judged files, comparison, known items."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from qmd.errors import NotFoundError, UsageError
from tests.benchmarks import bench_quality, compare_answers, transcripts
from tests.benchmarks.bootstrap import compare_runs
from tests.benchmarks.judged import read_beir, read_qrels, read_run, write_run
from tests.benchmarks.known_items import known_item_queries
from tests.benchmarks.metrics import mrr_at, ndcg_at, precision_at, recall_at
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
    write_run(tmp_path / "x.run", {"a query": ["b", "a note\u3000b"]}, "test")
    assert read_run(tmp_path / "x.run") == {"a%20query": ["b", "a%20note%E3%80%80b"]}
    assert bench_quality.as_in_runs({"a query": {"a note\u3000b": 1.0}}) == {"a%20query": {"a%20note%E3%80%80b": 1.0}}


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


def test_known_items_are_unique_headings_and_link_texts() -> None:
    reader = NoteIndex()
    reader.add("a.md", "# A\n\n## Rotating secret keys\n\nText.\n")
    reader.add("b.md", "# B\n\n## Rotating secret keys\n\n## Watering the plants\n\n[the key manual](a.md)\n")
    judged = known_item_queries(reader)
    found = {judged.queries[key]: next(iter(grades)) for key, grades in judged.qrels.items()}
    assert found == {"Watering the plants": "notes/b.md", "the key manual": "notes/a.md"}


def test_a_comment_in_fenced_code_is_no_known_item() -> None:
    reader = NoteIndex()
    reader.add(
        "a.md", "---\n## not this one\ntag: x\n---\n# A\n\n## Rotating secret keys\n\n```sh\n## not that one\n```\n"
    )
    assert set(known_item_queries(reader).queries.values()) == {"Rotating secret keys"}


@pytest.fixture
def beir_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    rows = [("a", "Bread", "Flour, water and salt."), ("b", "Ships", "Sails and anchors.")]
    corpus = "".join(json.dumps({"_id": name, "title": title, "text": text}) + "\n" for name, title, text in rows)
    (folder / "corpus.jsonl").write_text(corpus)
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "baking: flour"}\n{"_id": "2", "text": "anchors"}\n')
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\tb\t2\n")
    return folder


@pytest.mark.slow
def test_every_setting_is_measured_stored_compared_and_scored(
    tmp_path: Path, beir_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [str(beir_folder), "--index-dir", str(tmp_path / "indexes")]
    runs = tmp_path / "runs"
    assert bench_quality.main([*argv, "--save", str(runs)]) == 0
    table = capsys.readouterr().out
    assert [line.split()[0] for line in table.splitlines()[2:]] == ["bm25", "vector", "rrf", "hybrid", "full"]
    assert table.count("nDCG@10 1.0000  recall@100 1.0000  MRR@10 1.0000") == 5
    assert bench_quality.main([*argv, "--modes", "bm25", "--compare", str(runs)]) == 0
    assert capsys.readouterr().out.count("+0.0000 [+0.0000, +0.0000] p=1.000") == 3
    assert bench_quality.main([str(beir_folder), "--score", str(runs / "tiny.bm25.run")]) == 0
    assert "nDCG@10 1.0000" in capsys.readouterr().out


def test_answers_are_compared_query_by_query_over_all_and_by_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def report(rank: int | None, verdict: str) -> str:
        answer = {"rank": rank, "passage_holds": rank == 1, "verdict": verdict}
        refused = {"rank": None, "passage_holds": None, "verdict": verdict}
        found = {"bm25": answer, "full": {"error": "no"}}
        rows = [
            {"id": "q", "type": "typo", "expected_files": ["a.md"], "backends": found},
            {"id": "u", "type": "unanswerable", "expected_files": [], "backends": {"bm25": refused}},
        ]
        return json.dumps({"results": rows})

    (tmp_path / "before.json").write_text(report(1, "good"))
    (tmp_path / "after.json").write_text(report(2, "none"))
    assert compare_answers.main([str(tmp_path / "before.json"), str(tmp_path / "after.json")]) == 0
    rows = {" ".join(line.split()[:3]): line for line in capsys.readouterr().out.splitlines()}
    assert set(rows) == {
        *(f"bm25 {kind} {name}" for kind in ("all", "typo") for name in ("success@1", "success@3", "passage_holds")),
        *(f"bm25 {kind} verdict_right" for kind in ("all", "typo", "unanswerable")),
    }
    assert "1.0000 -> 0.0000" in rows["bm25 typo success@1"]
    assert "better 0 worse 0" in rows["bm25 typo success@3"]
    assert "better 1 worse 1 of 2" in rows["bm25 all verdict_right"]


def test_the_history_states_each_fact_in_one_session_and_its_questions_name_that_turn(tmp_path: Path) -> None:
    places = transcripts.write_history(tmp_path)
    texts = {path.relative_to(tmp_path).as_posix(): path.read_text("utf-8") for path in tmp_path.rglob("*.jsonl")}
    for fact in transcripts.FACTS:
        stated = json.dumps(fact.evidence, ensure_ascii=False)[1:-1]
        assert [name for name, text in texts.items() if stated in text] == [places[fact.id].file], fact.id
    facts = {fact.id: fact for fact in transcripts.FACTS}
    questions = json.loads((Path(transcripts.__file__).parent / "questions/history.json").read_text("utf-8"))["queries"]
    for one in questions:
        if one["kind"] != "none":
            place = places[one["fact"]]
            assert (one["session"], one["turn"]) == (place.file, place.turn), one["id"]
            assert one["evidence"] == [facts[one["fact"]].evidence]


def test_the_history_is_the_same_in_every_run(tmp_path: Path) -> None:
    for name in ("one", "other"):
        transcripts.write_history(tmp_path / name)
    files = list((tmp_path / "one").rglob("*.jsonl"))
    assert len(files) > len(transcripts.SESSIONS)
    for path in files:
        assert path.read_bytes() == (tmp_path / "other" / path.relative_to(tmp_path / "one")).read_bytes()
