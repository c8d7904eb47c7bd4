import json
import re
from pathlib import Path

import pytest

from qmd.analysis.tokens import count_tokens
from tests.program import Qmd


def test_get_shows_header_rule_and_numbered_lines(indexed: Qmd) -> None:
    run = indexed("get", "qmd://notes/daily/sunday.md")
    assert (run.status, run.err) == (0, "")
    header, *rest = run.out.split("\n")
    assert re.fullmatch(r"qmd://notes/daily/sunday\.md  #[0-9a-f]{6}", header)
    assert rest == [
        "---",
        "",
        "1: # Sunday",
        "2: ",
        "3: Talked about the rate limiter.",
        "4: It has a sliding window.",
        "",
    ]


@pytest.mark.parametrize(
    "argv",
    [
        ["sunday.md:3:1"],
        ["sunday.md:3", "-l", "1"],
        ["sunday.md:1:9", "--from", "3", "-l1"],
        ["sunday.md", "--from=3", "-l1"],
    ],
)
def test_a_range_can_be_a_suffix_or_options(indexed: Qmd, argv: list[str]) -> None:
    assert indexed("get", *argv).out.split("---\n\n")[1] == "3: Talked about the rate limiter.\n"


@pytest.mark.parametrize("reference", ["sunday.md:3-4", "sunday.md:4-3", "sunday.md:3:2", "notes/daily/sunday.md:3-99"])
def test_lines_can_be_named_by_first_and_last(indexed: Qmd, reference: str) -> None:
    shown = indexed("get", reference).out.split("---\n\n")[1]
    assert shown == "3: Talked about the rate limiter.\n4: It has a sliding window.\n"


def test_get_shows_several_documents_and_says_which_is_missing(indexed: Qmd) -> None:
    run = indexed("get", "pricing.md", "nope.md", "sunday.md:3:1")
    assert run.status == 3
    assert re.findall(r"(?m)^qmd://(\S+)", run.out) == ["notes/pricing.md", "notes/daily/sunday.md"]
    assert run.out.endswith("\n---\n\n3: Talked about the rate limiter.\n")
    assert run.err.startswith("error: Document not found: nope.md\n")


def test_words_of_one_name_are_still_one_name(indexed: Qmd) -> None:
    run = indexed("get", "Pricing", "decision")
    assert (run.status, run.out.count("qmd://")) == (0, 1)


def test_multi_get_takes_what_a_shell_makes_of_a_glob(
    indexed: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes / "daily/pricing.md").write_text("# Daily price\n")
    (notes / "daily/a, b.md").write_text("# Comma\n")
    indexed("update")
    monkeypatch.chdir(notes / "daily")
    run = indexed("multi-get", "a, b.md", "pricing.md", "sunday.md", "--files")
    assert [line.split(",", 1)[1] for line in run.out.splitlines()] == [
        "qmd://notes/daily/a, b.md",
        "qmd://notes/daily/pricing.md",
        "qmd://notes/daily/sunday.md",
    ]
    assert (run.status, run.err) == (0, "")
    assert indexed("get", "pricing.md").out.startswith("qmd://notes/daily/pricing.md")
    assert indexed("get", "notes/pricing.md").out.startswith("qmd://notes/pricing.md")


def test_an_address_goes_before_a_file_of_the_working_folder(
    indexed: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes / "notes").mkdir()
    (notes / "notes/pricing.md").write_text("# Another\n")
    indexed("update")
    monkeypatch.chdir(notes)
    assert indexed("get", "notes/pricing.md").out.startswith("qmd://notes/pricing.md")


def test_multi_get_takes_several_globs(indexed: Qmd) -> None:
    run = indexed("multi-get", "daily/*.md", "pri*.md", "nope.md", "--files")
    assert [line.split(",")[1] for line in run.out.splitlines()] == [
        "qmd://notes/daily/sunday.md",
        "qmd://notes/pricing.md",
    ]
    assert (run.status, run.err) == (0, "File not found: nope.md\n")


def test_a_search_row_leads_to_the_document_by_docid(indexed: Qmd) -> None:
    (row,) = indexed("search", "tomatoes", "--json").json
    assert indexed("get", row["docid"]).out.startswith("qmd://notes/we ird/c & d.md  #")


def test_line_numbers_can_be_left_out(indexed: Qmd) -> None:
    assert indexed("get", "pricing.md", "--no-line-numbers", "-l", "1").out.endswith("---\n\n# Pricing decision\n")


def test_a_full_path_replaces_the_header(indexed: Qmd) -> None:
    assert indexed("get", "pricing.md", "--full-path").out.startswith("./notes/pricing.md\n---\n")


def test_contexts_stand_above_the_text(indexed: Qmd) -> None:
    indexed("context", "add", "/", "everything")
    indexed("context", "add", "qmd://notes/daily", "day by day")
    assert "\nFolder Context: everything day by day\n---\n" in indexed("get", "sunday.md").out


def test_multi_get_takes_globs_lists_and_docids(indexed: Qmd) -> None:
    assert [row["file"] for row in indexed("multi-get", "daily/*.md", "--json").json] == ["daily/sunday.md"]
    run = indexed("multi-get", "pricing.md, nope.md", "--json", "--no-line-numbers")
    (row,) = run.json
    assert row["file"] == "qmd://notes/pricing.md"
    assert row["body"].startswith("# Pricing")
    assert "File not found: nope.md" in run.err
    assert run.status == 0


def test_multi_get_skips_what_is_too_large_and_cuts_what_is_too_long(indexed: Qmd) -> None:
    (row,) = indexed("multi-get", "pricing.md", "--max-bytes", "10", "--json").json
    assert row["skipped"] is True
    assert "qmd get" in row["reason"]
    shown = indexed("multi-get", "pricing.md", "-l", "1", "--no-line-numbers", "--json").out
    assert json.loads(shown)[0]["body"].startswith("# Pricing decision\n\n[... truncated ")


def test_a_note_whose_file_is_gone_is_shown_as_it_was_indexed(indexed: Qmd, notes: Path) -> None:
    assert "is gone" not in indexed("get", "pricing.md").err
    (notes / "pricing.md").unlink()
    run = indexed("get", "pricing.md")
    assert run.status == 0 and "1: # " in run.out
    assert "the file of 'qmd://notes/pricing.md' no longer exists: this is its text as it was indexed" in run.err


def test_a_folder_on_disk_is_listed_by_its_path_as_an_address(indexed: Qmd, notes: Path) -> None:
    assert indexed("ls", f"qmd://{notes}/daily").out == indexed("ls", "notes/daily").out
    assert indexed("ls", f"qmd://{notes.parent}/elsewhere").status == 3


def test_ls_lists_collections_then_files_then_a_prefix(indexed: Qmd) -> None:
    assert indexed("ls").out == "Collections:\n\n  qmd://notes/  (3 files)\n"
    assert [line.split("qmd://")[1] for line in indexed("ls", "notes").out.splitlines()] == [
        "notes/daily/sunday.md",
        "notes/pricing.md",
        "notes/we ird/c & d.md",
    ]
    assert indexed("ls", "qmd://notes/dai").out.count("\n") == 1
    assert indexed("ls", "notes/none").out == "No files found under qmd://notes/none\n"


def test_status_and_lists_work_before_anything_is_indexed(qmd: Qmd) -> None:
    assert qmd("status").status == 0
    assert qmd("status", "--json").json["totalDocuments"] == 0
    assert qmd("collection", "list", "--json").json == []
    assert qmd("ls").out.startswith("No collections found.")


def test_status_counts_vectors(indexed: Qmd) -> None:
    assert "Pending:  3 need embedding" in indexed("status").out
    indexed("embed")
    shown = indexed("status").out
    assert "Pending" not in shown
    assert int(re.search(r"^\s*Vectors:\s*(\d+)", shown, re.MULTILINE)[1]) >= 3  # type: ignore[index]


def test_a_budget_of_tokens_cuts_documents_at_lines_and_says_how_to_go_on(indexed: Qmd, notes: Path) -> None:
    (notes / "long.md").write_text("# Long\n\n" + "".join(f"line {n} of a long note\n" for n in range(3, 400)))
    indexed("update")
    run = indexed("get", "long.md", "--tokens", "200")
    mark = re.search(r"\[… \d+ more lines: qmd get '(#\w+):(\d+)'\]\n$", run.out)
    assert mark and count_tokens(run.out) <= 200
    assert f"\n{int(mark[2]) - 1}: line {int(mark[2]) - 1} of" in run.out
    assert indexed("get", f"{mark[1]}:{mark[2]}:1").out.endswith(f"{mark[2]}: line {mark[2]} of a long note\n")
    several = indexed("multi-get", "*.md", "--tokens", "250", "--json")
    assert count_tokens(several.out) <= 250 and "more lines" in several.out + several.err
