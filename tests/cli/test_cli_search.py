import csv
import io
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from qmd.analysis.tokens import count_tokens
from tests.program import Qmd


def test_a_search_prints_json_on_stdout_and_nothing_on_stderr(indexed: Qmd) -> None:
    run = indexed("search", "sliding", "window", "--json")
    assert (run.status, run.err) == (0, "")
    (row,) = run.json
    assert (row["file"], row["title"], row["line"]) == ("qmd://notes/daily/sunday.md", "Sunday", 4)
    assert row["snippet"].startswith("@@ -")


@pytest.mark.parametrize(
    "argv",
    [
        ["--json", "-c", "notes", "search", "tomatoes"],
        ["search", "--json", "tomatoes", "-c", "notes"],
        ["search", "-c", "notes", "--format", "JSON", "--", "tomatoes"],
        ["search", "tomatoes", "--json", "-n1", "--no-gpu", "--no-rerank", "-C", "10"],
    ],
)
def test_options_work_in_any_place(indexed: Qmd, argv: list[str]) -> None:
    assert [row["title"] for row in indexed(*argv).json] == ["Beta & co"]


def test_nothing_found_is_an_empty_array_and_no_failure(indexed: Qmd) -> None:
    run = indexed("search", "zzyzxq", "--json")
    assert (run.status, run.out) == (0, "[]\n")
    assert run.err.startswith("warning: ")


def test_every_format_can_be_read_back(indexed: Qmd) -> None:
    assert len(list(csv.DictReader(io.StringIO(indexed("search", "tomatoes", "--csv").out)))) == 1
    assert ET.fromstring(indexed("search", "tomatoes", "--xml").out)[0].get("title") == "Beta & co"
    assert indexed("search", "tomatoes", "--files").out.endswith(",qmd://notes/we ird/c & d.md\n")
    assert "**file:** `qmd://notes/we ird/c & d.md`" in indexed("search", "tomatoes", "--md").out


def test_full_path_shows_where_the_file_lies(indexed: Qmd) -> None:
    run = indexed("search", "tomatoes", "--full-path", "--json")
    (row,) = run.json
    assert row["file"] == "./notes/we ird/c & d.md"
    assert "docid" not in row


def test_full_path_of_a_deleted_file_keeps_the_address_and_warns(
    indexed: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QMD_AUTO_UPDATE", "0")
    (notes / "we ird/c & d.md").unlink()
    run = indexed("search", "tomatoes", "--full-path", "--json")
    assert run.json[0]["file"] == "qmd://notes/we ird/c & d.md"
    assert "could not resolve the file on disk" in run.err


def test_full_bodies_and_source_line_numbers(indexed: Qmd) -> None:
    (row,) = indexed("search", "tomatoes", "--full", "--line-numbers", "--json").json
    assert row["body"] == "1: # Beta & co\n2: \n3: Gardening and tomatoes.\n"


def test_a_budget_too_small_to_load_models_is_answered_by_words(indexed: Qmd) -> None:
    run = indexed("query", "tomatoes", "--budget", "300", "--json")
    assert [row["title"] for row in run.json] == ["Beta & co"]
    assert "budget of 300 ms: loading models would take longer" in run.err
    assert run.err.count("warning:") == 1


def test_a_named_index_is_separate_and_part_of_the_address(indexed: Qmd, notes: Path) -> None:
    indexed("index", str(notes), "--no-embed", "--index", "other")
    (row,) = indexed("search", "tomatoes", "--json", "--index", "other").json
    assert row["file"] == "qmd://notes/we ird/c & d.md?index=other"
    assert indexed("get", row["file"]).status == 0


def test_a_note_edited_by_hand_is_shown_by_the_next_search(indexed: Qmd, tmp_path: Path) -> None:
    config = tmp_path / "config/qmd/index.yml"
    config.write_text(config.read_text() + "\nglobal_context: about everything\n")
    assert indexed("search", "tomatoes", "--json").json[0]["context"] == "about everything"


def test_a_collection_deleted_by_hand_is_no_longer_found_and_goes_with_the_next_update(
    indexed: Qmd, tmp_path: Path
) -> None:
    (tmp_path / "config/qmd/index.yml").write_text("collections:\n  other:\n    path: ~/notes/daily\n")
    assert indexed("search", "tomatoes", "--json").json == []
    assert indexed("update").status == 0
    assert indexed("status", "--json").json["totalDocuments"] == 1


def test_the_environment_variable_ci_disables_nothing(indexed: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    assert indexed("embed").status == 0
    assert len(indexed("query", "how do people pay", "--json", "-n", "1").json) == 1


def test_notes_in_another_language_are_told_with_the_model_that_reads_them(
    indexed: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "qmd_multilingual", None)
    assert "models pull" not in indexed("status").out
    for n in range(4):
        (notes / f"{n}.md").write_text(
            f"# Kahn {n}\n\nDer Kahn und die Fähre sind im Winter nicht für uns da.\n", "utf-8"
        )
    indexed("update")
    assert "German: the package qmd-search-multilingual, see: qmd models pull multilingual" in indexed("status").out


def test_a_changed_note_is_found_at_once_and_a_person_is_told(indexed: Qmd, notes: Path) -> None:
    (notes / "new.md").write_text("# Wombat\n\nA wombat.\n")
    run = indexed("search", "wombat")
    assert "qmd://notes/new.md" in run.out
    assert run.err.startswith("updated 1 changed note\n")
    (notes / "new.md").unlink()
    assert (indexed("search", "wombat", "--json").out, indexed("search", "wombat", "--json").err) == (
        "[]\n",
        "warning: 'wombat' does not appear in any note\n",
    )


def test_tokens_bound_what_is_printed_and_the_cursor_goes_on(indexed: Qmd) -> None:
    whole = indexed("search", "rate", "limiter", "tomatoes", "pricing").out
    run = indexed("search", "rate", "limiter", "tomatoes", "pricing", "--tokens", "130")
    said = re.search(r"\[(\d+) of at most 130 tokens; \d+ more results?: --cursor (\S+)\]\n$", run.out)
    assert said, run.out
    assert count_tokens(run.out) == int(said[1]) <= 130 < count_tokens(whole)
    more = indexed("search", "rate", "limiter", "tomatoes", "pricing", "--cursor", said[2], "--json")
    assert {row["file"] for row in more.json}.isdisjoint(re.findall(r"qmd://\S+\.md", run.out))
    listed = indexed("search", "rate", "limiter", "tomatoes", "pricing", "--tokens", "90", "--json")
    assert count_tokens(listed.out) <= 90 and "of at most 90 tokens" in listed.err
    assert indexed("search", "rate", "--tokens", "49").status == 2
    assert "cursor 'soon' is not one of qmd" in indexed("search", "rate", "--cursor", "soon").err


def test_a_field_that_a_new_note_brings_filters_at_once(indexed: Qmd, notes: Path) -> None:
    (notes / "draft.md").write_text("---\nstage: draft\n---\n# Tomatoes\n\nPlant tomatoes.\n")
    (row,) = indexed("search", "tomatoes stage:draft", "--json").json
    assert row["title"] == "Tomatoes"
