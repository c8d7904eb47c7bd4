import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from qmd.config.paths import locate
from qmd.files import is_locked
from qmd.store import runs
from qmd.store.runs import EmbeddingLock
from qmd.store.sqlite.files import PAGE_BYTES
from tests.program import Qmd


def test_index_makes_collections_and_vectors_at_once(qmd: Qmd, notes: Path) -> None:
    run = qmd("index", "notes")
    assert (run.status, run.err) == (0, "")
    assert run.out.startswith("✓ notes  3 notes  ~/notes\n")
    assert "✓ Done! Embedded" in run.out


def test_index_alone_refreshes_everything(indexed: Qmd, notes: Path) -> None:
    (notes / "new.md").write_text("# Fresh\n")
    (notes / "pricing.md").unlink()
    assert "✓ notes  1 new, 1 removed, 3 notes  ~/notes\n" in indexed("index", "--no-embed").out


def test_index_of_a_known_folder_refreshes_it_under_its_name(indexed: Qmd, notes: Path) -> None:
    assert "✓ notes  3 notes  ~/notes\n" in indexed("index", f"{notes}/", "--no-embed").out


def names(qmd: Qmd) -> list[str]:
    return [row["name"] for row in qmd("collection", "list", "--json").json]


def test_index_of_a_folder_in_a_collection_refreshes_that_part_of_it(indexed: Qmd, notes: Path) -> None:
    (notes / "daily/monday.md").write_text("# Monday\n")
    (notes / "elsewhere.md").write_text("# Elsewhere\n")
    (notes / "pricing.md").unlink()
    run = indexed("index", str(notes / "daily"), "--no-embed")
    assert run.out == "✓ notes/daily  1 new, 2 notes  ~/notes/daily\n"
    assert names(indexed) == ["notes"]
    run = indexed("index", str(notes / "elsewhere.md"), str(notes / "daily"), "--no-embed")
    assert "✓ notes/elsewhere.md  1 note  ~/notes/elsewhere.md\n" in run.out
    assert "✓ notes/daily  2 notes  ~/notes/daily\n" in run.out
    assert (
        "✓ notes  1 removed, 4 notes  ~/notes\n" in indexed("index", str(notes / "daily"), str(notes), "--no-embed").out
    )


def test_a_named_folder_in_a_collection_is_a_collection_of_its_own(indexed: Qmd, notes: Path) -> None:
    indexed("index", str(notes / "daily"), "--name", "diary", "--no-embed")
    assert names(indexed) == ["notes", "diary"]
    assert "✓ diary  1 note" in indexed("index", str(notes / "daily"), "--no-embed").out


def test_a_folder_around_a_collection_and_other_masks_make_collections(indexed: Qmd, notes: Path) -> None:
    (notes / "daily/list.txt").write_text("milk\n")
    indexed("index", str(notes.parent), "--no-embed", "--yes")
    indexed("index", str(notes / "daily"), "--glob", "**/*.txt", "--no-embed")
    assert names(indexed) == ["notes", "home", "daily"]


def test_a_folder_that_its_collection_keeps_out_is_indexed_when_it_is_named(indexed: Qmd, notes: Path) -> None:
    (notes / ".qmdignore").write_text("daily/\n")
    assert "✓ daily  1 note" in indexed("index", str(notes / "daily"), "--no-embed").out
    (notes / "empty").mkdir()
    assert "✓ notes/empty  0 notes" in indexed("index", str(notes / "empty"), "--no-embed").out


def test_a_single_file_is_a_collection(qmd: Qmd, notes: Path) -> None:
    assert "✓ pricing  1 note " in qmd("index", str(notes / "pricing.md"), "--no-embed").out


def test_folders_of_one_name_get_names_of_their_own(qmd: Qmd, home: Path) -> None:
    for parent in ("a", "b"):
        (home / parent / "docs").mkdir(parents=True)
        (home / parent / "docs/x.md").write_text(f"# {parent}\n")
    qmd("index", "a/docs", "b/docs", "--no-embed")
    assert [row["name"] for row in qmd("collection", "list", "--json").json] == ["docs", "b-docs"]


def test_a_missing_path_stops_before_anything_is_written(qmd: Qmd, notes: Path, tmp_path: Path) -> None:
    run = qmd("index", "notes", "nope")
    assert (run.status, run.out, run.err) == (
        3,
        "",
        "error: path 'nope' does not exist\nhint: name an existing folder or file: qmd index ~/notes\n",
    )
    assert not (tmp_path / "config").exists()


def test_index_without_anything_to_index_says_what_to_do(qmd: Qmd) -> None:
    run = qmd("index")
    assert run.status == 3
    assert "qmd index ~/notes" in run.err


def test_a_collection_whose_folder_vanished_is_reported_and_kept(indexed: Qmd, notes: Path) -> None:
    notes.rename(notes.with_name("moved"))
    run = indexed("update")
    assert run.status == 3
    assert "cannot be read" in run.err
    assert indexed("status", "--json").json["totalDocuments"] == 3


def test_update_prints_the_counts_of_each_collection(indexed: Qmd, notes: Path) -> None:
    run = indexed("update")
    counts = "Indexed: 0 new, 0 updated, 3 unchanged, 0 removed\n"
    assert run.out.startswith(f"✓ notes  3 notes  ~/notes\n{counts}"), "programs look for the counts"


def test_a_terminal_shows_one_short_line_for_each_collection(indexed: Qmd, notes: Path) -> None:
    (notes / "new.md").write_text("# New\n\nA wombat.\n")
    assert indexed("update", "--color", "always").out == (
        "✓ notes  1 new, 4 notes  ~/notes\n4 texts without vectors. To compute them: qmd embed\n"
    )
    run = indexed("index", str(notes / "new.md"), "--no-embed", "--color", "always")
    assert run.out == "✓ notes/new.md  1 note  ~/notes/new.md\n"


def test_update_may_name_collections(indexed: Qmd, home: Path) -> None:
    (home / "other").mkdir()
    indexed("collection", "add", "other")
    assert "✓ other  0 notes" in indexed("update", "-c", "other").out
    assert indexed("update", "-c", "nope").status == 3


def test_hooks_run_in_the_collection_and_their_output_is_indented(indexed: Qmd, notes: Path) -> None:
    indexed("collection", "update-cmd", "notes", "echo '# Made' > made.md; echo done")
    run = indexed("update")
    assert "    Running update command: echo" in run.out
    assert "\n    done\n" in run.out
    assert "1 new" in run.out


def test_embedding_twice_finds_nothing_to_do(indexed: Qmd) -> None:
    assert "✓ Done! Embedded" in indexed("embed").out
    assert indexed("embed").out == "✓ All content hashes already have embeddings.\n"
    assert indexed("embed", "--color", "always").out == "✓ Vectors are up to date.\n"
    assert "Force re-indexing" in indexed("embed", "-f").out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--max-docs-per-batch", "0"], "--max-docs-per-batch '0' is not a whole number of at least 1"),
        (["--timeout", "-1"], "--timeout '-1' is not a number of at least 0"),
        (["-c", "nope"], "Collection not found: nope"),
        (["--chunk-strategy", "magic"], "--chunk-strategy 'magic' is not one of auto, regex"),
    ],
)
def test_embed_checks_its_options_first(indexed: Qmd, argv: list[str], message: str) -> None:
    run = indexed("embed", *argv)
    assert run.status in (2, 3)
    assert message in run.err


@pytest.mark.skipif(os.name == "nt", reason="locks with flock")
def test_a_second_embedding_run_leaves_the_work_to_the_first(indexed: Qmd, tmp_path: Path) -> None:
    with EmbeddingLock(tmp_path / "cache/qmd/index.sqlite") as lock:
        run = indexed("embed")
    assert (run.status, run.out) == (5, "Another embed process is already running. Skipping.\n")
    who = f"process {os.getpid()}, since {lock.run.started_at}, just started"
    assert run.err.startswith(f"error: another process ({who}) is computing vectors for index '")


def test_a_busy_index_is_reported_in_the_words_that_programs_wait_for(
    indexed: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qmd.store.opening import open_writer

    monkeypatch.setenv("QMD_SQLITE_BUSY_TIMEOUT", "0")
    with open_writer(tmp_path / "cache/qmd/index.sqlite") as writer, writer.transaction():
        run = indexed("collection", "rename", "notes", "wiki")
    assert run.status == 5
    assert "database is locked" in run.err


def test_a_damaged_index_is_one_line(indexed: Qmd, tmp_path: Path) -> None:
    (tmp_path / "cache/qmd/index.sqlite").write_bytes(b"not a database" * 100)
    run = indexed("search", "x")
    assert run.status == 1
    assert run.err.startswith("error: index '")


def test_cleanup_waits_for_an_embedding_run_and_then_says_what_runs(
    indexed: Qmd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_HANDOVER_S", 0.05)
    database = locate(None, Path.cwd(), os.environ).database
    with EmbeddingLock(database) as record:
        refused = indexed("cleanup")
        assert (refused.status, refused.out) == (5, "")
        who = f"process {os.getpid()}, since {record.run.started_at}, just started"
        assert refused.err.startswith(f"error: another process ({who}) is computing vectors for index '{database}'")
        assert "hint: wait until it has ended, see: qmd status\n" in refused.err
        assert indexed("cleanup", "--dry-run").status == 0
    assert indexed("cleanup").status == 0


@pytest.mark.parametrize("argv", [("embed",), ("index",)])
def test_embed_beside_a_cleaning_waits_and_then_says_who_cleans(
    indexed: Qmd, argv: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = locate(None, Path.cwd(), os.environ).database
    is_cleaning = threading.Event()

    def clean_until_somebody_waits() -> None:
        with EmbeddingLock(database, by="cleanup"):
            is_cleaning.set()
            while not is_locked(database.with_name(f".{database.name}.embed-wanted.lock")):
                time.sleep(0.01)

    with ThreadPoolExecutor() as pool:
        cleaning = pool.submit(clean_until_somebody_waits)
        assert is_cleaning.wait(60)
        assert indexed(*argv).status == 0
        cleaning.result(60)
    assert indexed("status", "--json").json["needsEmbedding"] == 0
    monkeypatch.setattr(runs, "_HANDOVER_S", 0.05)
    with EmbeddingLock(database, by="cleanup") as record:
        refused = indexed(*argv)
        assert refused.status == 5
        assert "Skipping" not in refused.out
        who = f"qmd cleanup, process {os.getpid()}, since {record.run.started_at}"
        assert refused.err.startswith(
            f"error: another process ({who}) is cleaning index '{database}' (database is locked)\nhint: "
        )


def test_status_says_who_has_the_vectors_and_what_for(indexed: Qmd) -> None:
    database = locate(None, Path.cwd(), os.environ).database
    assert indexed("status", "--json").json["locks"] == []
    with EmbeddingLock(database, by="cleanup") as record:
        assert f"\n  Running:  cleaning the index (qmd cleanup, process {os.getpid()}, began " in indexed("status").out
        shown = indexed("status", "--json").json
        assert shown["embedding"] is None
        owner = {"owner": f"qmd cleanup, process {os.getpid()}", "pid": os.getpid(), "by": "cleanup"}
        assert shown["locks"] == [{"lock": "vectors", **owner, "startedAt": record.run.started_at}]
        assert "need embeddings: they are being computed" not in indexed("query", "pricing").err


def test_a_damaged_index_is_named_by_search_and_doctor_and_rebuilt_by_index(qmd: Qmd, notes: Path) -> None:
    qmd("index", "notes")
    database = locate(None, Path.cwd(), os.environ).database
    raw = bytearray(database.read_bytes())
    for page in range(3, len(raw) // PAGE_BYTES):
        raw[page * PAGE_BYTES + 3_000] ^= 1
    database.write_bytes(raw)
    refused = qmd("search", "pricing")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith(f"error: index '{database}' is damaged\nhint: repair it")
    assert "is damaged" in qmd("doctor").out
    mended = qmd("index")
    assert mended.status == 0
    assert f"was damaged: it was set aside as '{database}.damaged'" in mended.err
    assert "✓ notes  3 notes" in mended.out
    assert "pricing.md" in qmd("search", "pricing", "--files").out
    assert (database.with_name("index.sqlite.damaged")).read_bytes() == bytes(raw)


def test_an_index_that_another_program_wrote_is_repaired_in_place_by_the_next_index(qmd: Qmd, notes: Path) -> None:
    qmd("index", "notes")
    database = locate(None, Path.cwd(), os.environ).database
    found = qmd("search", "pricing", "--json").out
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("VACUUM")
    refused = qmd("search", "pricing")
    assert (refused.status, refused.err.count("\n")) == (1, 2)
    assert refused.err.endswith(": qmd index\n")
    repaired = qmd("index", "--no-embed")
    lacked = f"index '{database}' lacked checksums, which other programs do not write: it was sound, they were added"
    assert (repaired.status, repaired.err) == (0, f"warning: {lacked}\n")
    assert qmd("search", "pricing", "--json").out == found
    assert not list(database.parent.glob("*.damaged*"))
    assert qmd("index", "--verify").err == ""


def test_an_index_is_verified_once_a_day_since_it_was_made_and_when_asked(qmd: Qmd, notes: Path) -> None:
    qmd("index", "notes")
    database = locate(None, Path.cwd(), os.environ).database
    raw = bytearray(database.read_bytes())
    raw[-3_000] ^= 1
    before = database.stat()
    database.write_bytes(raw)
    # A fault of the disk leaves the time of the file.
    os.utime(database, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "was damaged" not in qmd("index", "--no-embed").err
    assert "was damaged" in qmd("index", "--no-embed", "--verify").err
