"""Git's index file: files that git tracks, and ignored files that are skipped unless a user requests them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.ingest.exclusion import find_exclusion
from qmd.ingest.scan import ScanResult, scan_collection
from qmd.ingest.work_trees import tracked_names, work_tree_around
from qmd.records import Collection

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="makes repositories with git")
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX file names")

ODD_NAMES = ["a b/ü [1].md", "-n.md", "new\nline.md", 'quote".md', "x" * 200 + "/" + "y" * 200 + ".md", "caf\udce9.md"]


def git(folder: Path, *arguments: str) -> str:
    """Run git as on a machine without settings of its own."""
    settings = ("user.name=a", "user.email=a@b", "protocol.file.allow=always", "init.defaultBranch=main")
    command = ["git", *(part for one in settings for part in ("-c", one)), *arguments]
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True).stdout


def write(root: Path, *paths: str, text: str = "# Title\n") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def repository(root: Path, *tracked: str, ignores: str = "") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q")
    write(root, *tracked)
    git(root, "add", ".")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    write(root, ".gitignore", text=ignores)
    return root


def scan(root: Path, pattern: str = "**/*.md", **settings: bool) -> ScanResult:
    return scan_collection(Collection("notes", root, pattern, **settings))  # type: ignore[arg-type]


def paths(result: ScanResult) -> list[str]:
    return [entry.path for entry in result.files]


def names_in_index(root: Path) -> list[str]:
    return [os.fsdecode(name) for name in tracked_names((root / ".git/index").read_bytes())]


@needs_git
@posix_only
@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_every_version_of_gits_index_gives_all_names_in_order(tmp_path: Path, version: str) -> None:
    root = repository(tmp_path / "r", *ODD_NAMES, "docs/a.md", "docs/b.md", "docs/deep/c.md")
    git(root, "update-index", "--index-version", version)
    if version == "3":
        git(root, "update-index", "--skip-worktree", "docs/a.md")
    assert names_in_index(root) == sorted([*ODD_NAMES, "docs/a.md", "docs/b.md", "docs/deep/c.md"], key=os.fsencode)


@needs_git
def test_a_repository_with_long_hashes_is_read(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256")
    write(tmp_path, "a.md", "b/c.md")
    git(tmp_path, "add", ".")
    assert names_in_index(tmp_path) == ["a.md", "b/c.md"]


@given(st.binary(max_size=300), st.sampled_from([2, 3, 4, 9]), st.integers(0, 2**32 - 1))
def test_no_damaged_index_stops_a_scan(rest: bytes, version: int, count: int) -> None:
    names = tracked_names(b"DIRC" + version.to_bytes(4, "big") + count.to_bytes(4, "big") + rest)
    assert all(isinstance(name, bytes) for name in names)


@needs_git
def test_an_index_cut_short_tracks_nothing(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", "a.md", "b.md", ignores="*.md\n")
    file = root / ".git/index"
    file.write_bytes(file.read_bytes()[:90])
    assert paths(scan(root)) == []


@needs_git
def test_a_file_that_git_tracks_is_taken_although_a_pattern_matches_it(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", "MEMORY.md", "private/kept.md", ignores="MEMORY.md\nprivate/\n*.tmp.md\n")
    write(root, "private/new.md", "x.tmp.md", "open.md")
    result = scan(root)
    assert paths(result) == ["MEMORY.md", "open.md", "private/kept.md"]
    assert result.git_ignored == ("private/new.md", "x.tmp.md")
    collection = Collection("notes", root)
    assert find_exclusion(collection, "MEMORY.md") is None
    assert find_exclusion(collection, "private/kept.md") is None
    assert find_exclusion(collection, "private/new.md") is not None


@needs_git
def test_git_is_asked_from_a_collection_inside_of_the_repository(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", "docs/a/kept.md", "kept.md", ignores="kept.md\nloose.md\n")
    write(root, "docs/a/loose.md", "docs/kept.md")
    result = scan(root / "docs")
    assert (paths(result), result.git_ignored) == (["a/kept.md"], ("a/loose.md", "kept.md"))


@needs_git
def test_a_submodule_and_a_second_work_tree_have_indexes_of_their_own(tmp_path: Path) -> None:
    inner = repository(tmp_path / "inner", "kept.md")
    outer = repository(tmp_path / "outer", "a.md")
    git(outer, "submodule", "--quiet", "add", str(inner), "sub")
    git(outer, "commit", "-q", "-m", "second")
    git(outer, "worktree", "add", "-q", str(tmp_path / "second"))
    for root, tracked in ((outer / "sub", "kept.md"), (tmp_path / "second", "a.md")):
        assert (root / ".git").is_file()
        write(root, ".gitignore", text="*.md\n")
        write(root, "loose.md")
        assert paths(scan(root)) == [tracked]
    assert paths(scan(outer)) == ["a.md", "sub/kept.md"]


@needs_git
def test_a_folder_of_repositories_looks_into_the_index_of_each(tmp_path: Path) -> None:
    for name in ("one", "two"):
        repository(tmp_path / name, f"{name}.md", ignores="*.md\n")
        write(tmp_path / name, "loose.md")
    assert paths(scan(tmp_path)) == ["one/one.md", "two/two.md"]


@pytest.mark.parametrize("text", ["", "gitdir: /dev/zero", "gitdir: ../../../../etc", "no such line", "gitdir: \0"])
def test_a_git_file_that_leads_nowhere_tracks_nothing(tmp_path: Path, text: str) -> None:
    write(tmp_path, ".git", text=text)
    write(tmp_path, ".gitignore", text="a.md\n")
    write(tmp_path, "a.md", "b.md")
    assert paths(scan(tmp_path)) == ["b.md"]
    tree = work_tree_around(tmp_path)
    assert tree is not None
    assert not tree.tracks("a.md")


def test_a_mask_that_names_an_ignored_file_gets_it(tmp_path: Path) -> None:
    write(tmp_path, "MEMORY.md", "private/deep/b.md", "private/deep/c.md", "open.md")
    write(tmp_path, ".gitignore", text="MEMORY.md\nprivate/\n")
    assert paths(scan(tmp_path, "MEMORY.md")) == ["MEMORY.md"]
    assert paths(scan(tmp_path, "{MEMORY,open}.md")) == ["MEMORY.md", "open.md"]
    assert paths(scan(tmp_path, "private/deep/b.md,*.md")) == ["open.md", "private/deep/b.md"]
    assert paths(scan(tmp_path, "M*.md")) == []
    assert find_exclusion(Collection("notes", tmp_path, "private/deep/b.md"), "private/deep/b.md") is None


def test_a_mask_does_not_bring_back_what_qmdignore_keeps_out(tmp_path: Path) -> None:
    write(tmp_path, "MEMORY.md")
    write(tmp_path, ".qmdignore", text="MEMORY.md\n")
    assert paths(scan(tmp_path, "MEMORY.md")) == []


@needs_git
def test_a_file_that_git_ignores_and_a_mask_names_is_still_kept_out_by_a_qmdignore_above(tmp_path: Path) -> None:
    root = repository(tmp_path / "r")
    write(root, "sub/x.md")
    write(root, "sub/.gitignore", text="x.md\n")
    assert paths(scan(root, "sub/x.md")) == ["sub/x.md"]
    write(root, ".qmdignore", text="x.md\n")
    assert paths(scan(root, "sub/x.md")) == []


def test_a_collection_without_gitignore_takes_everything_but_what_qmdignore_keeps_out(tmp_path: Path) -> None:
    (tmp_path / ".git/info").mkdir(parents=True)
    write(tmp_path, ".git/info/exclude", text="mine.md\n")
    write(tmp_path, "notes/.gitignore", text="a.md\nsub/\n")
    write(tmp_path, "notes/.qmdignore", text="b.md\n")
    write(tmp_path, "notes/mine.md", "notes/a.md", "notes/b.md", "notes/sub/c.md")
    result = scan(tmp_path / "notes", gitignore=False)
    assert (paths(result), result.git_ignored) == (["a.md", "mine.md", "sub/c.md"], ())
    assert find_exclusion(Collection("notes", tmp_path / "notes", gitignore=False), "a.md") is None


def test_ignored_files_and_folders_are_named(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.txt", "c.md", "out/d.md", "drafts/e.md", "drafts/f.md")
    write(tmp_path, ".gitignore", text="a.md\nb.txt\nout/\n")
    write(tmp_path, "drafts/.gitignore", text="e.md\n")
    result = scan(tmp_path)
    assert result.git_ignored == ("a.md", "drafts/e.md", "out/"), "only what the mask selects"
    assert scan_collection(Collection("notes", tmp_path), "drafts").git_ignored == ("drafts/e.md",)
