"""Compatibility with scripts for the original: spellings and messages."""

import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from qmd import __version__
from qmd.masks import PROSE
from tests.program import Qmd


def test_the_skill_option_prints_the_skill(qmd: Qmd) -> None:
    assert qmd("--skill").out == qmd("skill", "show").out
    assert qmd("--skill").out.startswith("QMD Skill\n")


@pytest.mark.parametrize(
    "argv",
    [
        ("--version",),
        ("-v",),
        ("status", "--version"),
        ("search", "words", "-v"),
        ("--index", "x", "-v"),
        ("collection", "-v"),
    ],
)
def test_the_version_is_printed_wherever_it_is_asked_for(qmd: Qmd, argv: tuple[str, ...]) -> None:
    assert (qmd(*argv).status, qmd(*argv).out) == (0, f"qmd {__version__}\n")


def test_a_word_after_two_dashes_is_no_option(qmd: Qmd) -> None:
    assert qmd("search", "--", "--version").out != f"qmd {__version__}\n"


def test_help_ends_with_the_index_that_would_be_used(qmd: Qmd, tmp_path: Path) -> None:
    assert qmd("--help").out.endswith(f"Index: {tmp_path / 'cache' / 'qmd' / 'index.sqlite'}\n")
    assert qmd("--index", "work", "--help").out.endswith(f"Index: {tmp_path / 'cache' / 'qmd' / 'work.sqlite'}\n")


def test_a_missing_document_has_the_known_words(indexed: Qmd) -> None:
    run = indexed("get", "pricingg.md")
    assert (run.status, run.out) == (3, "")
    assert run.err == "error: Document not found: pricingg.md\nhint: similar: notes/pricing.md\n"


@pytest.mark.parametrize("reference", ["notes/drafts/a.md", "qmd://notes/drafts/a.md:3", "drafts/a.md"])
def test_a_document_that_an_ignore_file_excludes_is_named_with_the_rule(
    indexed: Qmd, notes: Path, reference: str
) -> None:
    (notes / "drafts").mkdir()
    (notes / "drafts" / "a.md").write_text("# Draft\n")
    (notes / ".qmdignore").write_text("drafts/\n")
    run = indexed("get", reference)
    assert run.status == 3
    assert f"Document is excluded by ignore rule: {reference}" in run.err
    assert "Matched path: drafts/a.md" in run.err
    assert "Ignore rule: drafts/ (.qmdignore)" in run.err


def test_a_document_that_an_ignore_glob_excludes_is_named_with_the_glob(qmd: Qmd, notes: Path, tmp_path: Path) -> None:
    config = tmp_path / "config" / "qmd" / "index.yml"
    config.parent.mkdir(parents=True)
    config.write_text(f"collections:\n  notes:\n    path: {notes}\n    ignore: ['daily/**']\n")
    qmd("update")
    run = qmd("get", "daily/sunday.md")
    assert "Ignore rule: daily/** (ignore of collection 'notes')" in run.err


def test_a_file_outside_the_mask_is_named_with_the_mask(indexed: Qmd, notes: Path) -> None:
    (notes / "plan.csv").write_text("plan\n")
    assert f"Ignore rule: {PROSE} (mask of collection 'notes')" in indexed("get", "plan.csv").err


def test_a_new_file_is_not_found_but_known_to_exist(indexed: Qmd, notes: Path) -> None:
    (notes / "new.md").write_text("# New\n")
    run = indexed("get", "new.md")
    assert run.err == "error: Document not found: new.md (the file exists, but is not indexed)\nhint: run: qmd update\n"


def test_what_no_update_will_take_is_never_sent_to_update(indexed: Qmd, notes: Path, home: Path) -> None:
    (notes / "package.json").write_text("{}")
    (notes / "build").mkdir()
    (notes / "build" / "x.md").write_text("# Made\n")
    (home / "elsewhere").mkdir()
    (home / "elsewhere" / "y.md").write_text("# Elsewhere\n")
    (notes / "y.md").symlink_to(home / "elsewhere" / "y.md")
    (notes / "linked").symlink_to(home / "elsewhere")
    (notes / "binary.md").write_bytes(b"\0\0")
    indexed("update")
    for reference, reason in (
        ("build/x.md", "Ignore rule: build/ (generated files are not indexed unless the mask names the folder)"),
        ("notes/y.md", "Ignore rule: y.md (links that lead out of the collection are not followed)"),
        ("linked/y.md", "Ignore rule: linked/ (links to folders are not followed)"),
        ("binary.md", "(skipped: 'binary.md' is binary)"),
    ):
        run = indexed("get", reference)
        assert reason in run.err
        assert "hint: run: qmd update" not in run.err


def test_nothing_is_said_of_files_outside_the_collections(indexed: Qmd, home: Path) -> None:
    (home / "secret.md").write_text("# Secret\n")
    assert "the file exists" not in indexed("get", "../secret.md").err
    assert "the file exists" not in indexed("get", "qmd://notes/../secret.md").err


def test_paths_on_disk_stand_alone(indexed: Qmd) -> None:
    rows = indexed("multi-get", "daily/*.md", "--full-path", "--json").json
    assert rows[0]["file"] == f".{os.sep}notes/daily/sunday.md"
    assert "docid" not in rows[0]
    assert indexed("multi-get", "daily/*.md", "--full-path", "--files").out == "./notes/daily/sunday.md\n"


def test_paths_on_disk_are_absolute_where_services_start(
    indexed: Qmd, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(notes.anchor)
    monkeypatch.setenv("PWD", notes.anchor)
    run = indexed("multi-get", "qmd://notes/daily/*.md", "--full-path", "--files")
    assert run.out == f"{notes.resolve() / 'daily' / 'sunday.md'}\n"


def test_a_file_that_is_gone_keeps_its_docid_and_a_warning(indexed: Qmd, notes: Path) -> None:
    (notes / "pricing.md").unlink()
    run = indexed("multi-get", "pricing.md,daily/sunday.md", "--full-path", "--files")
    assert [line.startswith("#") for line in run.out.splitlines()] == [True, False]
    assert "1 of 2 results" in run.err


def test_collections_are_as_old_as_their_last_update_not_their_files(qmd: Qmd, notes: Path) -> None:
    for file in notes.rglob("*.md"):
        os.utime(file, (1_600_000_000, 1_600_000_000))
    qmd("collection", "add", str(notes))
    updated = qmd("collection", "list", "--json").json[0]["updated"]
    assert datetime.now(UTC) - datetime.fromisoformat(updated) < timedelta(minutes=5)
    assert "d ago" not in qmd("status").out


def test_an_old_index_is_mentioned_where_meaning_is_searched_and_its_folders_are_not_looked_at(
    indexed: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = (datetime.now(UTC) - timedelta(days=20)).isoformat()
    database = apsw.Connection(str(tmp_path / "cache" / "qmd" / "index.sqlite"))
    database.execute("UPDATE meta SET value = ? WHERE key GLOB 'updated_at:*'", (old,))
    database.close()
    assert "Index last updated" not in indexed("query", "pricing").err
    monkeypatch.setenv("QMD_AUTO_UPDATE", "0")
    assert "Tip: Index last updated 20 days ago. Run 'qmd update' to refresh." in indexed("query", "pricing").err
    assert "Index last updated" not in indexed("search", "pricing").err


def test_the_number_of_texts_that_wait_for_vectors_is_that_of_the_whole_index(indexed: Qmd, home: Path) -> None:
    (home / "more").mkdir()
    (home / "more" / "one.md").write_text("# One\n")
    run = indexed("collection", "add", str(home / "more"))
    assert "Run 'qmd embed' to update embeddings (4 unique hashes need vectors)\n" in run.out


def test_cleanup_says_what_it_cleared(indexed: Qmd) -> None:
    assert indexed("cleanup", "--dry-run").out.startswith("Dry run — no changes made.\n\nWould clear 0 cached")
    assert indexed("cleanup").out == "✓ Cleared 0 cached API responses\n✓ FTS compacted, database vacuumed\n"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not at hand")
def test_update_pull_fetches_what_is_new_upstream(qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@example.org")

    def git(folder: Path, *argv: str) -> None:
        subprocess.run(["git", *argv], cwd=folder, check=True, capture_output=True)

    upstream = home / "upstream"
    upstream.mkdir()
    git(upstream, "init", "-q")
    (upstream / "a.md").write_text("# A\n")
    git(upstream, "add", ".")
    git(upstream, "commit", "-qm", "one")
    git(home, "clone", "-q", str(upstream), "checkout")
    qmd("collection", "add", str(home / "checkout"))
    (upstream / "b.md").write_text("# B\n")
    git(upstream, "add", ".")
    git(upstream, "commit", "-qm", "two")
    assert "Indexed: 0 new" in qmd("update").out
    run = qmd("update", "--pull")
    assert "Running update command: git pull --ff-only" in run.out
    assert "Indexed: 1 new" in run.out


def test_update_pull_leaves_folders_without_a_checkout_alone(indexed: Qmd) -> None:
    run = indexed("update", "--pull")
    assert (run.status, "Running update command" in run.out) == (0, False)


@pytest.mark.parametrize("value", ["soon", "-1", "inf", "nan"])
def test_a_senseless_time_limit_is_told(indexed: Qmd, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    indexed("collection", "update-cmd", "notes", "true")
    monkeypatch.setenv("QMD_HOOK_TIMEOUT", value)
    run = indexed("update")
    assert run.status == 0
    assert f"QMD_HOOK_TIMEOUT '{value}' is not a number of seconds; using 600" in run.err


def test_an_update_command_keeps_its_own_options(indexed: Qmd) -> None:
    run = indexed("collection", "update-cmd", "notes", "echo", "--rebase", "-x")
    assert run.out == "✓ Set update command for 'notes': echo --rebase -x\n"
    assert "    --rebase -x\n" in indexed("update").out


def test_a_killed_update_command_reports_its_signal(indexed: Qmd) -> None:
    indexed("collection", "update-cmd", "notes", "kill -9 $$")
    run = indexed("update")
    assert run.status == 137
    assert "✗ Update failed: notes\n" in run.out


def test_a_stale_pid_file_is_no_running_server(indexed: Qmd, tmp_path: Path) -> None:
    (tmp_path / "cache" / "qmd" / "mcp.pid").write_text("999999999")
    assert "MCP:" not in indexed("status").out
