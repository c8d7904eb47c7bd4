"""Updates of documents from files: read files, kept documents, and recovery from a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.errors import NotFoundError
from qmd.indexing.reading import stored_form
from qmd.indexing.update import update_collection
from qmd.records import Collection, IndexTerms, LexicalTerm, Scope
from qmd.store.base import IndexWriter
from qmd.store.opening import open_reader, open_writer
from qmd.store.sqlite.writer import SqliteWriter
from qmd.times import UNKNOWN_TIME_NS
from tests.parsing import parse_document

LONG_AGO_NS = 1_600_000_000_123_456_789


def write(folder: Path, path: str, text: str | bytes, mtime_ns: int = LONG_AGO_NS) -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(file, ns=(mtime_ns, mtime_ns))
    return file


def counts(writer: IndexWriter, folder: Path, *, verify: bool = False) -> tuple[int, int, int, int]:
    report = update_collection(writer, Collection("notes", folder), verify=verify)
    return report.new, report.updated, report.unchanged, report.removed


def found(writer: IndexWriter, word: str) -> list[str]:
    candidates = writer.search_lexical([LexicalTerm(word, f'"{word}"')], 10, Scope())
    return [writer.documents([one.document_id])[one.document_id].path for one in candidates]


def test_an_update_that_finds_nothing_new_is_one_commit(tmp_path: Path, notes: Path) -> None:
    write(notes, "a.md", "# a\n\ntext")
    with open_writer(tmp_path / "index.sqlite") as writer:
        assert isinstance(writer, SqliteWriter)
        counts(writer, notes)
        statements: list[str] = []

        def note(_: object, statement: str, __: object) -> bool:
            statements.append(statement)
            return True

        writer.database.connection.exec_trace = note
        assert counts(writer, notes) == (0, 0, 1, 0)
    assert statements.count("COMMIT") == 1


def test_new_changed_unchanged_and_removed_files_are_counted(writer: IndexWriter, notes: Path) -> None:
    for name in ("a", "b", "c"):
        write(notes, f"{name}.md", f"# {name}\n\nfirst text of {name}")
    assert counts(writer, notes) == (3, 0, 0, 0)
    write(notes, "a.md", "# a\n\nsecond words", LONG_AGO_NS + 1)
    (notes / "b.md").unlink()
    write(notes, "sub/d.md", "# d")
    assert counts(writer, notes) == (1, 1, 1, 1)
    assert [document.path for document in writer.iter_documents()] == ["a.md", "c.md", "sub/d.md"]
    assert found(writer, "second") == ["a.md"]
    assert counts(writer, notes) == (0, 0, 3, 0)


def test_unchanged_files_are_not_read_unless_asked_to_verify(writer: IndexWriter, notes: Path) -> None:
    write(notes, "a.md", "apple tree")
    counts(writer, notes)
    write(notes, "a.md", "mango tree")
    assert update_collection(writer, Collection("notes", notes)).n_bytes == 0
    assert found(writer, "apple") == ["a.md"]
    assert counts(writer, notes, verify=True) == (0, 1, 0, 0)
    assert found(writer, "mango") == ["a.md"]


def test_a_file_changed_in_the_tick_in_which_it_was_read_is_read_again(writer: IndexWriter, notes: Path) -> None:
    ahead_of_reading = time.time_ns() // 1_000_000_000 * 1_000_000_000
    write(notes, "a.md", "apple tree", ahead_of_reading)
    counts(writer, notes)
    write(notes, "a.md", "mango tree", ahead_of_reading)
    assert counts(writer, notes) == (0, 1, 0, 0)
    assert found(writer, "mango") == ["a.md"]


@pytest.mark.parametrize("mtime_ns", [2**63, 13_600_000_000_000_000_000, UNKNOWN_TIME_NS])
def test_a_file_time_that_no_index_can_hold_hides_no_change(writer: IndexWriter, notes: Path, mtime_ns: int) -> None:
    if (stat := write(notes, "a.md", "apple tree", mtime_ns).stat()).st_mtime_ns != mtime_ns:
        pytest.skip(f"this file system stores {stat.st_mtime_ns}")
    write(notes, "b.md", "other tree")
    os.utime(notes, ns=(mtime_ns, mtime_ns))
    assert counts(writer, notes) == (2, 0, 0, 0)
    assert counts(writer, notes) == (0, 0, 2, 0)
    write(notes, "a.md", "mango tree", mtime_ns)
    assert counts(writer, notes) == (0, 1, 1, 0)
    assert found(writer, "mango") == ["a.md"]


def test_a_touched_file_has_the_date_that_a_new_index_would_give_it(
    writer: IndexWriter, notes: Path, tmp_path: Path
) -> None:
    path = write(notes, "a.md", "# A\n\ntext\n")
    update_collection(writer, Collection("notes", notes))
    os.utime(path, ns=(LONG_AGO_NS + 86_400 * 10**9,) * 2)
    update_collection(writer, Collection("notes", notes))
    with open_writer(tmp_path / "new.sqlite") as fresh:
        update_collection(fresh, Collection("notes", notes))
        assert [d.modified_at for d in writer.iter_documents()] == [d.modified_at for d in fresh.iter_documents()]


def test_a_touched_file_is_read_once_and_stays_the_same_document(writer: IndexWriter, notes: Path) -> None:
    write(notes, "a.md", "apple")
    counts(writer, notes)
    before = writer.find_path("notes", "a.md")
    write(notes, "a.md", "apple", LONG_AGO_NS + 5)
    assert counts(writer, notes) == (0, 0, 1, 0)
    assert update_collection(writer, Collection("notes", notes)).n_bytes == 0
    after = writer.find_path("notes", "a.md")
    assert before is not None and after is not None
    assert after.id == before.id


def test_an_emptied_file_replaces_its_old_text(writer: IndexWriter, notes: Path) -> None:
    write(notes, "a.md", "apple")
    counts(writer, notes)
    write(notes, "a.md", "")
    assert counts(writer, notes) == (0, 1, 0, 0)
    assert found(writer, "apple") == []


def test_a_binary_file_is_skipped_with_a_reason_and_its_old_text_removed(writer: IndexWriter, notes: Path) -> None:
    write(notes, "a.md", "apple")
    write(notes, "b.md", "banana")
    counts(writer, notes)
    write(notes, "a.md", b"\0\1\2 apple")
    report = update_collection(writer, Collection("notes", notes))
    assert [path for path, _ in report.skipped] == ["a.md"]
    assert len(report.warnings) == 1 and "binary" in report.warnings[0]
    assert report.removed == 1
    assert found(writer, "apple") == []
    assert found(writer, "banana") == ["b.md"]


def test_invalid_utf8_is_indexed_with_a_warning(writer: IndexWriter, notes: Path) -> None:
    write(notes, "a.md", b"apple \xff tart")
    report = update_collection(writer, Collection("notes", notes))
    assert report.new == 1
    assert [warning for warning in report.warnings if "a.md" in warning and "UTF-8" in warning]
    assert found(writer, "tart") == ["a.md"]


def test_a_file_that_cannot_be_read_keeps_its_old_text(writer: IndexWriter, notes: Path) -> None:
    write(notes, "a.md", "apple")
    counts(writer, notes)
    # A link to nowhere fails to open for every user; permissions would not stop the superuser.
    (notes / "a.md").unlink()
    (notes / "a.md").symlink_to(notes / "nowhere.md")
    report = update_collection(writer, Collection("notes", notes))
    assert [path for path, _ in report.skipped] == ["a.md"]
    assert report.removed == 0
    assert found(writer, "apple") == ["a.md"]


def test_a_missing_folder_leaves_the_index_as_it_is(writer: IndexWriter, notes: Path) -> None:
    write(notes, "a.md", "apple")
    counts(writer, notes)
    notes.rename(notes.with_name("elsewhere"))
    with pytest.raises(NotFoundError):
        counts(writer, notes)
    assert found(writer, "apple") == ["a.md"]


def test_progress_ends_at_the_number_of_files_to_read(writer: IndexWriter, notes: Path) -> None:
    for number in range(40):
        write(notes, f"{number}.md", f"text {number}")
    seen: list[tuple[int, int]] = []
    update_collection(writer, Collection("notes", notes), on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (40, 40)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_odd_file_names_are_kept_literally(writer: IndexWriter, notes: Path) -> None:
    names = ["über größe.md", "a'b\"c.md", "percent%20.md", "日本.md", "x;y&z.md"]
    for name in names:
        write(notes, name, "apple")
    counts(writer, notes)
    assert sorted(document.path for document in writer.iter_documents()) == sorted(names)


def test_an_interrupt_keeps_what_was_committed_and_the_next_run_completes_it(writer: IndexWriter, notes: Path) -> None:
    for number in range(60):
        write(notes, f"{number}.md", f"text {number}")

    def interrupt(done: int, total: int) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        update_collection(writer, Collection("notes", notes), on_progress=interrupt)
    assert writer.check() == []
    counts(writer, notes)
    assert writer.status(None).documents == 60
    assert writer.check() == []


_KILLED = """
import sys
from pathlib import Path
import qmd.indexing.update as update
from qmd.records import Collection
from qmd.store.opening import open_writer
update.COMMIT_BYTES = 1
def report(done, total):
    print(done, flush=True)
with open_writer(Path(sys.argv[1])) as writer:
    update.update_collection(writer, Collection("notes", Path(sys.argv[2])), on_progress=report)
"""


def table(path: Path) -> list[tuple[str, str, str]]:
    with open_reader(path) as reader:
        assert reader.check() == []
        return [(document.path, document.title, document.hash) for document in reader.iter_documents()]


def test_killing_the_process_while_indexing_loses_nothing_for_the_next_run(tmp_path: Path, notes: Path) -> None:
    for number in range(800):
        write(notes, f"{number}.md", f"# Title {number}\n\n" + f"some words about {number} " * 50)
    index = tmp_path / "killed.sqlite"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", _KILLED, str(index), str(notes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 200:
            break
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)
    process.stdout.close()
    partial = table(index)
    assert 0 < len(partial) < 800
    with open_writer(index) as writer:
        update_collection(writer, Collection("notes", notes))
    undisturbed = tmp_path / "undisturbed.sqlite"
    with open_writer(undisturbed) as writer:
        update_collection(writer, Collection("notes", notes))
    assert table(index) == table(undisturbed)


def test_files_that_an_older_analyser_indexed_are_analysed_again_once(writer: IndexWriter, notes: Path) -> None:
    write(notes, "a.md", "# a\n\nfirst words")
    assert counts(writer, notes) == (1, 0, 0, 0)
    writer.set_version_stamp("analysis:notes", "1")
    before = writer.find_path("notes", "a.md")
    assert counts(writer, notes) == (0, 0, 1, 0)
    after = writer.find_path("notes", "a.md")
    assert before and after and after.id > before.id
    assert counts(writer, notes) == (0, 0, 1, 0)
    assert writer.find_path("notes", "a.md") == after
    assert found(writer, "first") == ["a.md"]


def test_a_renamed_collection_is_not_analysed_again(writer: IndexWriter, notes: Path) -> None:
    counts(writer, notes)
    analysed_by = writer.version_stamp("analysis:notes")
    writer.rename_collection("notes", "other")
    assert (writer.version_stamp("analysis:notes"), writer.version_stamp("analysis:other")) == (None, analysed_by)


def test_a_source_file_ranks_first_for_what_it_declares(writer: IndexWriter, notes: Path) -> None:
    write(notes, "caller.py", "import os\n\n\nif unlock(1):\n    os.abort()\n")
    write(notes, "lock.py", "import os\n\n\ndef unlock(x):\n    os.abort()\n")
    update_collection(writer, Collection("notes", notes, "**/*.py"))
    assert found(writer, "unlock") == ["lock.py", "caller.py"]


def test_a_missing_grammar_is_said_once_and_made_good_when_it_is_there(
    writer: IndexWriter, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = Collection("notes", notes, "**/*.py")
    for name in ("a", "b"):
        write(notes, f"{name}.py", f"def {name}(): pass\n")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "tree_sitter_python", None)
        report = update_collection(writer, code)
    assert (report.new, len(report.warnings)) == (2, 1)
    assert "'tree-sitter-python' is not installed" in report.warnings[0]
    assert ".py" in (writer.version_stamp("analysis:notes") or "").split()
    update_collection(writer, code)
    assert ".py" not in (writer.version_stamp("analysis:notes") or "").split()


def test_a_part_of_a_collection_is_updated_alone(writer: IndexWriter, notes: Path) -> None:
    for path in ("a.md", "sub/b.md", "sub/c.md"):
        write(notes, path, f"# {path}\n\nfirst")
    write(notes, "binary.md", b"\0\1\2")
    collection = Collection("notes", notes)
    update_collection(writer, collection)
    (left_out,) = writer.left_out("notes")
    (notes / "a.md").unlink()
    (notes / "sub/b.md").unlink()
    write(notes, "sub/c.md", "second", LONG_AGO_NS + 1)
    write(notes, "sub/d.md", "fourth")
    write(notes, "e.md", "fifth")
    report = update_collection(writer, collection, below="sub")
    assert (report.new, report.updated, report.unchanged, report.removed) == (1, 1, 0, 1)
    assert sorted(one.path for one in writer.iter_documents()) == ["a.md", "sub/c.md", "sub/d.md"]
    assert writer.left_out("notes") == [left_out]


def test_what_another_version_made_is_updated_as_a_whole(writer: IndexWriter, notes: Path) -> None:
    write(notes, "a.md", "first")
    write(notes, "sub/b.md", "second")
    update_collection(writer, Collection("notes", notes), below="sub")
    assert sorted(one.path for one in writer.iter_documents()) == ["a.md", "sub/b.md"]


def test_only_notes_in_newly_known_languages_are_analysed_again(writer: IndexWriter, tmp_path: Path) -> None:
    write(tmp_path, "th.md", "# Note\n\nแมวสีดำนอนอยู่บนหลังคาบ้าน")
    write(tmp_path, "en.md", "# House\n\nThe black cat sleeps on the roof")
    assert counts(writer, tmp_path) == (2, 0, 0, 0)
    # As version 5 might have left them: neither has the terms of its text.
    for path in ("en.md", "th.md"):
        document = parse_document(path, (tmp_path / path).read_bytes())
        size, old = len(document.text.encode()), IndexTerms("", "", path, "old", "")
        writer.put_documents("notes", [replace(stored_form(document, size, LONG_AGO_NS, 1, 1), terms=old)])
    stamp = writer.version_stamp("analysis:notes") or ""
    writer.set_version_stamp("analysis:notes", stamp.replace("6 ", "5 ", 1))
    counts(writer, tmp_path)
    assert found(writer, "old") == ["en.md"] and found(writer, "หลั".translate({0xE31: 0xA231})) == ["th.md"]
    assert writer.version_stamp("analysis:notes") == stamp
