"""Walk of a folder: the files found, their order, and the report of the others."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from qmd.errors import NotFoundError
from qmd.file_names import to_text
from qmd.ingest.scan import ScanResult, SkippedPath, scan_collection
from qmd.records import Collection

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX file names and links")


def write(root: Path, *paths: str, text: str = "# Title\n") -> None:
    for path in paths:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def scan(root: Path, pattern: str = "**/*.md", ignore: Iterable[str] = ()) -> ScanResult:
    return scan_collection(Collection("notes", root, pattern, tuple(ignore)))


def paths(result: ScanResult) -> list[str]:
    return [entry.path for entry in result.files]


def test_files_come_sorted_by_path_with_size_and_time(tmp_path: Path) -> None:
    write(tmp_path, "b.md", "a/z.md", "a.md", "a-b.md")
    result = scan(tmp_path)
    assert paths(result) == sorted(["a-b.md", "a.md", "a/z.md", "b.md"])
    entry = result.files[0]
    assert entry.absolute.is_file()
    assert (entry.size_bytes, entry.mtime_ns) == (8, entry.absolute.stat().st_mtime_ns)


def test_whether_there_is_any_file_is_known_at_the_first_folder_that_has_one(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b/c.md", "d/e/f.md", "d/g/h.md")
    notes = Collection("notes", tmp_path)
    assert list(scan_collection(notes, enough=1).folders) == [""]
    assert len(scan_collection(notes, "d", enough=1).files) == 1
    assert not scan_collection(notes, "b/x", enough=1).files


FOUND: dict[str, tuple[str, dict[str, str], str, list[str]]] = {
    # behaviour: files, ignore files and their lines, mask, files found
    "dot segments are never entered even when asked for": (
        ".hidden/a.md b/.c.md d.md", {}, "**/*.md,.hidden/*.md", ["d.md"]
    ),
    "dependencies and caches are never indexed": (
        "node_modules/a.md x/node_modules/b/c.md ok.md", {}, "**/*.md", ["ok.md"]
    ),
    "build folders of documentation are indexed": (
        "docs/build/intro.md docs/vendor/list.md", {}, "**/*.md", ["docs/build/intro.md", "docs/vendor/list.md"]
    ),
    "build folders next to a manifest are output and skipped": (
        "app/package.json app/build/a.md app/dist/b.md app/src/build/c.md", {}, "**/*.md", ["app/src/build/c.md"]
    ),
    "a mask that names a build folder gets it": ("package.json build/a.md", {}, "build/**/*.md", ["build/a.md"]),
    "an exclusion in the mask removes files": ("a.md drafts/b.md", {}, "**/*.md,!drafts/**", ["a.md"]),
    "qmdignore brings back what git ignores": (
        "private/a.md", {".gitignore": "private/\n", ".qmdignore": "!private/\n"}, "**/*.md", ["private/a.md"]
    ),
    "a malformed ignore line costs that line only": ("a.md b.md", {".gitignore": "!\nb.md\n"}, "**/*.md", ["a.md"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FOUND)
def test_the_walk_finds(tmp_path: Path, case: str) -> None:
    files, ignores, mask, expected = FOUND[case]
    write(tmp_path, *files.split())
    for name, lines in ignores.items():
        write(tmp_path, name, text=lines)
    assert paths(scan(tmp_path, mask)) == expected


def test_ignore_globs_drop_files_and_whole_folders(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "drafts/x/b.md", "c.tmp.md")
    result = scan(tmp_path, ignore=["drafts/**", "**/*.tmp.md"])
    assert paths(result) == ["a.md"]
    assert result.ignored_files == 1, "an ignored folder is not entered, so its files are not counted"


def test_gitignore_applies_at_every_level_with_negation(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "x/secret.md", "x/y/secret.md", "x/y/out.md", "logs/l.md")
    write(tmp_path, ".gitignore", text="secret.md\n/logs/\n")
    write(tmp_path, "x/y/.gitignore", text="!secret.md\nout.md\n")
    result = scan(tmp_path)
    assert paths(result) == ["a.md", "x/y/secret.md"]
    assert result.ignored_files == 2


def test_rules_of_the_surrounding_work_tree_apply(tmp_path: Path) -> None:
    (tmp_path / ".git" / "info").mkdir(parents=True)
    write(tmp_path, ".git/info/exclude", text="mine.md\n")
    write(tmp_path, ".gitignore", text="/docs/generated/\n*.tmp.md\n")
    write(tmp_path, "docs/a.md", "docs/generated/b.md", "docs/c.tmp.md", "docs/mine.md")
    assert paths(scan(tmp_path / "docs")) == ["docs/a.md".removeprefix("docs/")]


def test_a_collection_that_git_itself_ignores_is_still_indexed(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path, ".gitignore", text="journal/\n")
    write(tmp_path, "journal/a.md")
    assert paths(scan(tmp_path / "journal")) == ["a.md"]


@posix_only
def test_linked_files_inside_are_found_and_those_outside_reported(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "root-other"
    write(root, "real.md")
    write(outside, "far.md")
    (root / "near.md").symlink_to(root / "real.md")
    (root / "far.md").symlink_to(outside / "far.md")
    result = scan(root)
    assert paths(result) == ["near.md", "real.md"]
    assert [(s.path, s.reason) for s in result.skipped] == [("far.md", "OUTSIDE_COLLECTION")]
    assert not result.is_undecided("far.md")


@posix_only
def test_linked_folders_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "a/x.md")
    (tmp_path / "b").symlink_to(tmp_path / "a", target_is_directory=True)
    (tmp_path / "a" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "folder.md").symlink_to(tmp_path / "a", target_is_directory=True)
    assert paths(scan(tmp_path)) == ["a/x.md"]


@posix_only
def test_a_broken_link_is_reported_not_fatal(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere.md")
    result = scan(tmp_path)
    assert paths(result) == ["a.md"]
    assert [s.path for s in result.skipped] == ["gone.md"]


@posix_only
def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    assert paths(scan(tmp_path)) == []


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root reads every folder")
def test_an_unreadable_folder_is_reported_and_its_documents_stay(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "locked/b.md")
    (tmp_path / "locked").chmod(0)
    try:
        result = scan(tmp_path)
    finally:
        (tmp_path / "locked").chmod(0o700)
    assert paths(result) == ["a.md"]
    assert [(s.path, s.reason) for s in result.skipped] == [("locked", "UNREADABLE_DIRECTORY")]
    assert result.is_undecided("locked/b.md")
    assert not result.is_undecided("locked2/b.md")


def test_documents_stay_if_the_folder_of_the_collection_fails_during_the_walk() -> None:
    result = ScanResult((), (SkippedPath("", "UNREADABLE_DIRECTORY", "Input/output error"),))
    assert result.is_undecided("a.md") and result.is_undecided("sub/b.md")


def test_a_missing_folder_is_an_error_not_an_empty_collection(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="'notes' cannot be read"):
        scan(tmp_path / "unmounted")


def test_a_single_file_is_a_collection_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "b.md")
    assert paths(scan(tmp_path / "a.txt", "a.txt")) == ["a.txt"]


@posix_only
@pytest.mark.parametrize("name", ["line\nbreak.md", "e\u0301.md", " lead.md", "a'\"$(x).md", "bad\udcff.md", "🎉#?.md"])
def test_hostile_names_survive_literally(tmp_path: Path, name: str) -> None:
    try:
        (tmp_path / name).write_bytes(b"# x\n")
    except (OSError, UnicodeError):
        pytest.skip("this file system refuses the name")
    assert paths(scan(tmp_path)) == [to_text(name)]


def test_a_part_of_a_collection_is_scanned_by_the_rules_of_all_of_it(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "sub/b.md", "sub/deep/c.md", "sub/drafts/d.md", "subway/e.md", "sub.md")
    write(tmp_path, ".gitignore", text="sub/drafts/\n")
    part = scan_collection(Collection("notes", tmp_path), "sub")
    assert paths(part) == ["sub/b.md", "sub/deep/c.md"]
    assert paths(scan_collection(Collection("notes", tmp_path), "sub/deep")) == ["sub/deep/c.md"]
    assert paths(scan_collection(Collection("notes", tmp_path), "sub/b.md")) == ["sub/b.md"]
    assert paths(scan_collection(Collection("notes", tmp_path), "sub/drafts")) == []
