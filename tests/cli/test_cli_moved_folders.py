"""Folders of collections that moved, are missing, or are empty mount points; and changes of collections."""

import os
import shutil
from pathlib import Path

import pytest

from qmd.app.configuration import FileConfiguration
from qmd.app.index import Index
from qmd.app.notices import Notices
from qmd.config.paths import locate
from qmd.files import folder_identity
from qmd.store.opening import open_reader, open_writer
from tests.program import Qmd, write_notes

SIX = {f"n{number}.md": f"# Bird {number}\n\nA pelican numbered {number} flies.\n" for number in range(6)}
OTHERS = {name: text.replace("pelican", "wildcat") for name, text in SIX.items()}


@pytest.fixture
def birds(qmd: Qmd, home: Path) -> Path:
    write_notes(home / "birds", SIX)
    assert qmd("index", "birds", "--no-embed").status == 0
    return home / "birds"


def record_folder(home: Path, identity: str, name: str = "birds") -> None:
    with open_writer(home.parent / "cache/qmd/index.sqlite") as writer:
        writer.set_facts({f"folder:{name}": identity})


def places(qmd: Qmd) -> dict[str, str]:
    return {row["name"]: row["path"] for row in qmd("collection", "list", "--json").json}


def test_a_moved_folder_keeps_its_collection_and_contexts(qmd: Qmd, home: Path, birds: Path) -> None:
    qmd("context", "add", "qmd://birds/", "of the lake")
    new = birds.rename(home / "fowl")
    run = qmd("index", "fowl", "--no-embed")
    assert run.err == "✓ birds is now at ~/fowl\n"
    assert run.out == "✓ birds  6 notes  ~/fowl\n"
    assert places(qmd) == {"birds": str(new)}
    assert "Folder Context: of the lake" in qmd("get", "fowl/n1.md").out


def test_a_plain_index_finds_a_renamed_folder(qmd: Qmd, home: Path, birds: Path) -> None:
    birds.rename(home / "fowl")
    assert qmd("index", "--no-embed").err == "✓ birds is now at ~/fowl\n"


def test_a_folder_moves_with_its_parent_and_a_file_alone(qmd: Qmd, home: Path) -> None:
    write_notes(home / "a/b", SIX)
    qmd("index", "a/b", "--no-embed")
    qmd("index", "a/b/n1.md", "--name", "one", "--no-embed")
    (home / "a").rename(home / "c")
    (home / "c/b/n1.md").rename(home / "c/renamed.md")
    qmd("index", "c/b", "c/renamed.md", "--no-embed")
    assert places(qmd) == {"b": str(home / "c/b"), "one": str(home / "c/renamed.md")}
    assert qmd("search", "numbered 1", "-c", "one", "--files").out.endswith("qmd://one/renamed.md\n")


def test_a_new_folder_with_the_inode_of_a_deleted_one_is_new(qmd: Qmd, home: Path, birds: Path) -> None:
    cats = write_notes(home / "cats", OTHERS | {name: SIX[name] for name in ("n0.md", "n1.md")})
    record_folder(home, folder_identity(cats) or "")
    shutil.rmtree(birds)
    assert qmd("index", "cats", "--no-embed").err == ""
    assert [*places(qmd)] == ["birds", "cats"]


def test_separate_makes_another_collection_of_a_moved_folder(qmd: Qmd, home: Path, birds: Path) -> None:
    birds.rename(home / "fowl")
    assert qmd("index", "fowl", "--separate", "--no-embed").err == ""
    assert [*places(qmd)] == ["birds", "fowl"]


def test_a_copy_is_named_with_the_command_and_taken_if_the_user_agrees(qmd: Qmd, home: Path, birds: Path) -> None:
    shutil.copytree(birds, home / "copy")
    shutil.rmtree(birds)
    qmd("index", "--no-embed")

    class Agreeing(Notices):
        def confirms(self, question: str) -> bool:
            return question.endswith("Has it moved there?")

    locations = locate(None, home, os.environ)
    run = qmd("index", "copy", "--no-embed")
    assert (
        f"; if it moved there: qmd collection remove copy && qmd collection set birds --path {home / 'copy'}\n"
        in run.err
    )
    qmd("collection", "remove", "copy")
    with Index(
        locations, FileConfiguration(locations, os.environ, Agreeing()), os.environ, notices=Agreeing()
    ) as index:
        assert [part.collection for part in index.ensure_collections([home / "copy"])] == ["birds"]
    assert places(qmd) == {"birds": str(home / "copy")}


def test_a_backup_never_takes_the_collection_of_an_unplugged_disk(qmd: Qmd, home: Path, birds: Path) -> None:
    shutil.copytree(birds, home / "backup")
    machine, device, inode = str(folder_identity(birds)).split(":")
    # The parent of the folder is now an empty mount point, on another device.
    record_folder(home, f"{machine}:{int(device) + 1}:{inode}")
    shutil.rmtree(birds)
    assert qmd("index", "backup", "--no-embed").err == ""
    assert places(qmd) == {"birds": str(birds), "backup": str(home / "backup")}


def test_an_empty_mount_point_loses_no_document(qmd: Qmd, home: Path, birds: Path) -> None:
    record_folder(home, "another:1:2")
    for file in birds.iterdir():
        file.unlink()
    for command in (("index",), ("update",)):
        run = qmd(*command)
        assert run.status == 3
        assert f"folder '{birds}' of collection 'birds' is empty, and not the one that was indexed" in run.err
        assert qmd("status", "--json").json["totalDocuments"] == 6
    assert "has none of its files any more" in qmd("search", "pelican").err
    qmd("collection", "set", "birds", "--path", "birds")
    assert "6 removed" in qmd("index", "--no-embed").out


def test_a_folder_that_was_emptied_loses_its_documents(qmd: Qmd, birds: Path) -> None:
    for file in birds.iterdir():
        file.unlink()
    assert "6 removed" in qmd("index", "--no-embed").out


def test_a_missing_folder_is_named_by_every_command(qmd: Qmd, home: Path, birds: Path) -> None:
    qmd("embed")
    birds.rename(home.parent / "elsewhere")
    assert f"  Missing:  birds ({birds})\n" in qmd("status").out
    assert qmd("status", "--json").json["missingFolders"] == f"birds ({birds})"
    run = qmd("search", "pelican", "-n", "1")
    assert run.err == f"warning: folder '{birds}' of collection 'birds' is missing; if it moved: qmd index NEWPLACE\n"
    assert "\nfile not found\n" in run.out
    assert "  file not found" in qmd("search", "pelican", "--color", "always").out
    assert "no longer exists" in qmd("get", "birds/n1.md").err
    for command in ("index", "update"):
        run = qmd(command)
        assert run.status == 3
        assert "hint: qmd collection set birds --path NEWPLACE, or: qmd collection remove birds\n" in run.err
        assert "embeddings" not in run.out


def test_of_equal_notes_the_one_with_a_file_is_shown(qmd: Qmd, home: Path, birds: Path) -> None:
    shutil.copytree(birds, home / "copy")
    qmd("index", "copy", "--no-embed")
    shutil.rmtree(birds)
    run = qmd("search", "numbered 3", "-n", "1")
    assert (run.err, run.out.startswith("qmd://copy/n3.md")) == ("", True)
    assert "also in qmd://birds/n3.md\n" in run.out


def test_swapped_folders_are_read_again(qmd: Qmd, home: Path, birds: Path) -> None:
    cats = write_notes(home / "cats", {f"c{name}": text for name, text in OTHERS.items()})
    qmd("index", "cats", "--no-embed")
    birds.rename(home / "t")
    cats.rename(birds)
    (home / "t").rename(cats)
    assert qmd("index", "--no-embed").out.count("6 new, 6 removed, 6 notes") == 2
    assert qmd("search", "wildcat", "--files", "-n", "1").out.endswith("qmd://birds/cn0.md\n")


def test_a_link_in_the_old_place_is_no_move_and_a_broken_one_is(qmd: Qmd, home: Path, birds: Path) -> None:
    birds.rename(home / "fowl")
    birds.symlink_to(home / "fowl")
    assert (qmd("index", "fowl", "--no-embed").err, places(qmd)) == ("", {"birds": str(birds)})
    birds.unlink()
    birds.symlink_to(home / "nowhere")
    assert qmd("index", "fowl", "--no-embed").err == "✓ birds is now at ~/fowl\n"


@pytest.mark.parametrize("name", ["two\nerror: forged", "red\x1b[31m", "a'b; touch x"])
def test_strange_names_of_folders_stay_in_one_visible_line(qmd: Qmd, home: Path, name: str) -> None:
    write_notes(home / name, SIX)
    assert qmd("index", f"./{name}", "--name", "birds", "--no-embed").status == 0
    (home / name).rename(home / f"{name}2")
    shown = qmd("search", "pelican").err + qmd("status").out + qmd("update").err + qmd("index", f"./{name}2").err
    assert "✓ birds is now at ~/" in shown
    assert not any(line.startswith("error: forged") for line in shown.splitlines())
    assert "\x1b" not in shown


@pytest.mark.parametrize("fact", ["", "x", ":::", "a:b:c:d", "0:" + "9" * 400, "\x1b[31m\n:1:2"])
def test_a_foreign_record_of_a_folder_moves_nothing(qmd: Qmd, home: Path, birds: Path, fact: str) -> None:
    record_folder(home, fact)
    birds.rename(home / "fowl")
    assert qmd("index", "--no-embed").status == 3
    assert qmd("index", "fowl", "--no-embed").status == 0
    assert [*places(qmd)] == ["birds", "fowl"]


def test_a_project_moves_with_its_folders_and_without_its_trust(
    qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_notes(home / "old/docs", SIX)
    monkeypatch.chdir(home / "old")
    qmd("init")
    qmd("index", "docs", "--no-embed")
    qmd("collection", "update-cmd", "docs", "touch ran")
    config = home / "new/.qmd/index.yml"
    for written in ("path: docs\n", f"path: {home / 'old/docs'}\n"):
        (home / "old").rename(home / "new")
        monkeypatch.chdir(home / "new")
        assert written in config.read_text()
        assert qmd("index", "--no-embed").out.startswith("✓ docs  6 notes  ")
        qmd("update")
        assert not (home / "new/docs/ran").exists()
        config.write_text(config.read_text().replace("path: docs\n", f"path: {home / 'old/docs'}\n"))
        (home / "new").rename(home / "old")
        monkeypatch.chdir(home / "old")


def test_a_folder_of_a_project_outside_of_it_is_not_examined(
    qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_notes(home / "p/.qmd", {"index.yml": f"collections: {{out: {{path: {home / 'gone'}}}}}\n"})
    write_notes(home / "gone", SIX)
    monkeypatch.chdir(home / "p")
    qmd("trust")
    assert "6 new" in qmd("update").out
    shutil.rmtree(home / "gone")
    assert qmd("status", "--json").json["missingFolders"] is None


def test_index_with_a_mask_changes_the_collection_of_the_folder(qmd: Qmd, home: Path, birds: Path) -> None:
    (birds / "list.txt").write_text("a walrus\n")
    run = qmd("index", "birds", "--glob", "**/*.{md,txt}", "--no-embed")
    assert (run.err, run.out[:24]) == ("✓ birds now takes **/*.{md,txt}\n", "✓ birds  1 new, 7 notes ")
    run = qmd("index", "birds", "--glob", "**/*.nope", "--no-embed")
    assert (run.status, "there are 6 .md, 1 .txt" in run.err) == (3, True)
    assert len(places(qmd)) == 1


def test_a_second_collection_for_a_folder_needs_a_name_and_separate(qmd: Qmd, birds: Path) -> None:
    run = qmd("index", "birds", "--name", "more", "--no-embed")
    assert run.status == 2
    assert run.err == (
        f"error: '{birds}' is the folder of collection birds\n"
        "hint: to rename it: qmd collection set birds --name more; for another: --name more --separate\n"
    )
    assert qmd("index", "birds", "--separate", "--no-embed").status == 2
    assert qmd("index", "birds", "--name", "more", "--separate", "--glob", "n1.md", "--no-embed").status == 0
    assert "collection birds, more\n" in qmd("index", "birds", "--glob", "n2.md", "--no-embed").err
    assert qmd("index", "birds", "--glob", "n1.md", "--no-embed").out.startswith("✓ more  ")


def test_a_collection_is_changed_in_one_command(qmd: Qmd, home: Path, birds: Path) -> None:
    shutil.copytree(birds, home / "copy")
    run = qmd("collection", "set", "birds", "--path", "copy", "--glob", "n*.md", "--name", "fowl")
    assert run.out == "✓ birds is now at ~/copy\n✓ birds now takes n*.md\n✓ birds is now called fowl\n"
    assert qmd("index", "--no-embed").out.startswith("✓ fowl  6 notes  ")
    assert qmd("collection", "set", "fowl").status == 2
    qmd("index", "birds", "--glob", "n*.md", "--no-embed")
    assert "already exists" in qmd("collection", "set", "birds", "--path", "copy").err
    with open_reader(home.parent / "cache/qmd/index.sqlite") as reader:
        assert reader.facts()["folder:fowl"] == folder_identity(home / "copy")
