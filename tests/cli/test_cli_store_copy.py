"""`qmd store copy`: from a name, a file or an address to another one."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

import qmd as package
from tests.cli.test_cli_addresses import ADDRESS, bucket  # noqa: F401
from tests.program import Qmd


def found(qmd: Qmd, index: str, question: str = "what does a seat cost") -> list[tuple[str, float, str]]:
    rows = qmd("query", question, "--json", "--index", index).json
    return [(row["file"].partition("?")[0], row["score"], row["snippet"]) for row in rows]


@pytest.fixture
def embedded(qmd: Qmd, notes: Path) -> Qmd:
    assert qmd("index", str(notes)).status == 0
    return qmd


def test_a_copy_under_another_name_answers_the_same(embedded: Qmd) -> None:
    run = embedded("store", "copy", "index", "spare")
    assert (run.status, run.err) == (0, "next: qmd status --index spare\n")
    assert run.out.startswith("✓ Copied 3 documents with 3 vectors of 1 model to ")
    assert found(embedded, "spare") == found(embedded, "index") != []
    status = [embedded("status", "--json", "--index", name).json for name in ("index", "spare")]
    assert status[0]["collections"] == status[1]["collections"]


def test_a_copy_goes_to_a_file_to_an_address_and_back(embedded: Qmd, home: Path, bucket: Path) -> None:  # noqa: F811
    places = ("index", "file.sqlite", ADDRESS, "back")
    for source, target in pairwise(places):
        assert embedded("store", "copy", source, target).status == 0
    assert found(embedded, ADDRESS) == found(embedded, "back") == found(embedded, "index") != []
    with package.open_index(home / "file.sqlite") as index:
        assert index.collections() == package.open_index(index="index").collections()


def test_a_copy_takes_the_configuration_with_its_comments_along(embedded: Qmd, tmp_path: Path) -> None:
    config = tmp_path / "config/qmd"
    (config / "index.yml").write_text("# mine\n" + (config / "index.yml").read_text())
    assert embedded("store", "copy", "index", "spare").status == 0
    assert (config / "spare.yml").read_text() == (config / "index.yml").read_text()
    assert embedded("update", "--index", "spare").status == 0
    assert found(embedded, "spare") == found(embedded, "index")


def test_a_copy_of_a_mere_file_leaves_its_commands_out(embedded: Qmd, home: Path, tmp_path: Path) -> None:
    with package.open_index(index="index") as index:
        index.set_update_command("notes", "touch was-run")
    assert embedded("store", "copy", "index", "file.sqlite").status == 0
    run = embedded("store", "copy", "file.sqlite", "spare")
    assert "warning: the update command of collection 'notes' was skipped" in run.err
    assert "was-run" not in (tmp_path / "config/qmd/spare.yml").read_text()
    assert found(embedded, "spare") == found(embedded, "index")


def test_a_copy_never_lands_on_another_index(embedded: Qmd, home: Path, tmp_path: Path) -> None:
    run = embedded("store", "copy", "index", "index")
    assert run.status == 2
    assert "index.sqlite' already contains documents or collections" in run.err
    (tmp_path / "config/qmd/spare.yml").write_text("collections:\n  other:\n    path: /srv\n")
    run = embedded("store", "copy", "index", "spare")
    assert run.status == 2
    assert "has other collections in" in run.err
    assert not (tmp_path / "cache/qmd/spare.sqlite").exists()


def test_what_is_missing_is_named(qmd: Qmd, home: Path, tmp_path: Path) -> None:
    run = qmd("store", "copy", "nothing", "spare")
    assert (run.status, run.err.splitlines()[0]) == (3, f"error: no index at '{tmp_path}/cache/qmd/nothing.sqlite'")
    assert qmd("store", "copy", "nothing").status == 2
    assert not (tmp_path / "config/qmd/spare.yml").exists()


def test_index_path_has_no_say_in_a_copy(embedded: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDEX_PATH", os.fspath(home / "elsewhere.sqlite"))
    assert embedded("store", "copy", "index", "spare").status == 0
    assert not (home / "elsewhere.sqlite").exists()


def test_a_copy_goes_to_a_folder_of_the_other_engine_and_back(embedded: Qmd, home: Path) -> None:
    pytest.importorskip("lancedb")
    assert embedded("store", "copy", "index", "lance:shared").status == 0
    assert (home / "shared").stat().st_mode & 0o077 == 0 or os.name != "posix"
    assert [row[0] for row in found(embedded, "lance:shared")] == [row[0] for row in found(embedded, "index")]
    assert embedded("store", "copy", "lance:shared", "back").status == 0
    assert found(embedded, "back") == found(embedded, "index")
    assert embedded("embed", "--index", "lance:shared").status == 0
    assert embedded("collection", "rename", "notes", "vault", "--index", "lance:shared").status == 0
    assert {row[0].split("/")[2] for row in found(embedded, "lance:shared")} == {"vault"}
