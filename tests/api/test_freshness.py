"""A search finds changes since the last update, and never fails or waits because of them."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import qmd
from qmd.app import freshness
from qmd.app.freshness import Refresher, mark_missing
from qmd.store.opening import open_writer

LONG_AGO = 1_600_000_000
CONFIG = "collections:\n  notes:\n    path: {}\n"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give checks enough time on a busy machine."""
    monkeypatch.setattr(freshness, "_LOOK_S", 60.0)


@pytest.fixture
def index(folder: Path, tmp_path: Path, patient: None) -> Iterator[qmd.Index]:
    """Index of `notes` as the command line opens it; files and folders have not changed for long."""
    (tmp_path / "config/qmd").mkdir(parents=True)
    (tmp_path / "config/qmd/index.yml").write_text(CONFIG.format(folder / "notes"))
    settle(folder)
    with qmd.open_index() as opened:
        opened.update()
        yield opened


def settle(folder: Path) -> None:
    for place in (folder, *folder.rglob("*")):
        os.utime(place, (LONG_AGO, LONG_AGO))


def update_at_once(index: qmd.Index, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the files in the same clock tick in which they were written."""
    settle(folder)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: LONG_AGO * 1_000_000_000)
        index.update()


def found(index: qmd.Index, word: str, **wishes: object) -> tuple[list[str], int, bool]:
    """Return (paths, number of changed files indexed, whether nothing else has changed)."""
    response = index.search(word, mode="lexical", **wishes)  # type: ignore[arg-type]
    return [hit.document.path for hit in response.hits], response.refreshed, response.is_fresh


def rested(index: qmd.Index) -> qmd.Index:
    """Return the index as if some seconds had passed."""
    index._refresher._fresh_at.clear()
    return index


def test_a_folder_that_is_away_or_whose_disk_is_loses_no_document(index: qmd.Index, folder: Path) -> None:
    (folder / "notes").rename(folder / "elsewhere")
    assert found(index, "pricing") == (["pricing.md"], 0, False)
    (folder / "notes").mkdir()
    assert found(rested(index), "pricing") == (["pricing.md"], 0, False)
    warning = index.search("pricing", mode="lexical").warnings
    assert warning == ("the folder of 'notes' has none of its files any more; if so, run: qmd update",)


def test_a_search_of_unchanged_files_writes_nothing(index: qmd.Index) -> None:
    before = index.path.stat().st_mtime_ns, index.status().updated_at
    assert found(index, "pricing") == (["pricing.md"], 0, True)
    assert (index.path.stat().st_mtime_ns, index.status().updated_at) == before


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        (lambda notes: (notes / "new.md").write_text("wombat"), ["new.md"]),
        (lambda notes: (notes / "daily/new.md").write_text("wombat"), ["daily/new.md"]),
        (lambda notes: (notes / "pricing.md").write_text("wombat"), ["pricing.md"]),
        (lambda notes: (notes / "pricing.md").rename(notes / "wombat.md"), ["wombat.md"]),
        (lambda notes: (notes / "daily").rename(notes / "wombat"), ["wombat/sunday.md"]),
    ],
    ids=["new", "new in a folder", "edited", "renamed", "folder renamed"],
)
def test_a_search_finds_what_has_changed_since_the_last_update(
    index: qmd.Index, folder: Path, change: Callable[[Path], object], paths: list[str]
) -> None:
    change(folder / "notes")
    hits, refreshed, is_fresh = found(index, "wombat")
    assert (hits, is_fresh) == (paths, True)
    assert refreshed > 0
    assert found(rested(index), "wombat") == (paths, 0, True)


def test_a_note_that_was_deleted_is_no_longer_found(index: qmd.Index, folder: Path) -> None:
    (folder / "notes/pricing.md").unlink()
    assert found(index, "pricing") == ([], 1, True)


def test_a_change_that_no_mask_selects_is_looked_at_once(index: qmd.Index, folder: Path) -> None:
    (folder / "notes/list.txt").write_text("wombat")
    settle(folder)
    assert found(index, "wombat") == ([], 0, True)
    before = index.status().updated_at
    assert found(rested(index), "wombat") == ([], 0, True)
    assert index.status().updated_at == before


def test_a_change_in_the_same_tick_is_found(index: qmd.Index, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "notes/new.md").write_text("first")
    tick_ns = (folder / "notes").stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: tick_ns)
        assert found(index, "first")[0] == ["new.md"]
    (folder / "notes/second.md").write_text("second")
    os.utime(folder / "notes", ns=(tick_ns, tick_ns))
    assert found(rested(index), "second") == (["second.md"], 1, True)


def test_a_process_looks_only_every_few_seconds(index: qmd.Index, folder: Path) -> None:
    assert found(index, "wombat")[2]
    (folder / "notes/new.md").write_text("wombat")
    assert found(index, "wombat") == ([], 0, True)
    assert found(rested(index), "wombat") == (["new.md"], 1, True)


def test_only_collections_that_are_searched_are_looked_at(index: qmd.Index, folder: Path) -> None:
    (folder / "other").mkdir()
    index.add_collection("other", folder / "other")
    index.update("other")
    (folder / "notes/new.md").write_text("wombat")
    assert found(index, "wombat", collections="other")[:2] == ([], 0)
    assert found(index, "wombat", collections="notes")[:2] == (["new.md"], 1)


@pytest.mark.parametrize("value", ["0", "off", "no"])
def test_a_variable_turns_it_off(index: qmd.Index, folder: Path, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_AUTO_UPDATE", value)
    (folder / "notes/new.md").write_text("wombat")
    with qmd.open_index() as other:
        assert found(other, "wombat") == ([], 0, False)


def test_the_configuration_switches_it_off(index: qmd.Index, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "config/qmd/index.yml"
    file.write_text("auto_update: false\n" + file.read_text())
    (folder / "notes/new.md").write_text("wombat")
    assert found(index, "wombat") == ([], 0, False)
    file.write_text(file.read_text().replace("false", "true"))
    assert found(index, "wombat") == (["new.md"], 1, True)


def test_an_edited_mask_is_for_an_update_to_apply(index: qmd.Index, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "config/qmd/index.yml"
    file.write_text(file.read_text() + '    pattern: "**/*.txt"\n')
    assert found(index, "pricing")[0] == ["pricing.md"]


def test_many_changes_are_left_to_an_update_and_a_warning_says_so(index: qmd.Index, folder: Path) -> None:
    for number in range(201):
        (folder / f"notes/{number}.md").write_text("wombat")
    response = index.search("wombat", mode="lexical")
    assert (response.hits, response.refreshed, response.is_fresh) == ((), 0, False)
    assert response.warnings[0] == "201 changed files wait in 'notes'; to take up all: qmd index"
    index.update()
    assert index.search("wombat", mode="lexical", limit=300).warnings == ()


@pytest.mark.parametrize("content", ["wombat", "\ufeffwombat", "\ufeff \n", b"wombat\xff", "wombat".encode("utf-16")])
def test_files_that_were_read_as_soon_as_they_were_written_are_not_called_changed(
    index: qmd.Index, folder: Path, monkeypatch: pytest.MonkeyPatch, content: str | bytes
) -> None:
    for number in range(201):
        (folder / f"notes/{number}.md").write_bytes(content.encode() if isinstance(content, str) else content)
    update_at_once(index, folder, monkeypatch)
    response = index.search("pricing", mode="lexical")
    assert (response.warnings, response.refreshed, response.is_fresh) == ((), 0, True)
    before = index.path.stat().st_mtime_ns
    assert found(rested(index), "pricing") == (["pricing.md"], 0, True)
    assert index.path.stat().st_mtime_ns == before


def test_files_that_could_not_be_indexed_do_not_keep_a_search_from_taking_up_another(
    index: qmd.Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(201):
        (folder / f"notes/{number}.md").write_bytes(b"\0")
    update_at_once(index, folder, monkeypatch)
    (folder / "notes/new.md").write_text("wombat")
    assert found(index, "wombat") == (["new.md"], 1, True)


def test_a_text_that_was_written_within_the_tick_of_the_reading_of_another_is_found(
    index: qmd.Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = folder / "notes/new.md"
    note.write_text("potato")
    update_at_once(index, folder, monkeypatch)
    note.write_text("wombat")
    settle(folder)
    assert found(index, "wombat") == (["new.md"], 1, True)
    assert found(rested(index), "potato") == ([], 0, True)


def test_a_search_does_not_wait_for_another_writer(index: qmd.Index, folder: Path) -> None:
    (folder / "notes/new.md").write_text("wombat")
    with open_writer(index.path) as writer, writer.transaction():
        assert found(index, "wombat") == ([], 0, False)
    assert found(index, "wombat") == (["new.md"], 1, True)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_search_of_an_index_that_cannot_be_written_answers(index: qmd.Index, folder: Path) -> None:
    (folder / "notes/new.md").write_text("wombat")
    index.path.chmod(0o400)
    assert found(index, "pricing") == (["pricing.md"], 0, False)


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX permissions")
def test_a_file_that_cannot_be_read_is_not_tried_by_every_search(index: qmd.Index, folder: Path) -> None:
    pricing = folder / "notes/pricing.md"
    pricing.unlink()
    pricing.symlink_to("nowhere.md")
    found(index, "pricing")
    settle(folder / "notes/daily")
    os.utime(folder / "notes", (LONG_AGO, LONG_AGO))
    found(rested(index), "pricing")
    before = index.status().updated_at
    assert found(rested(index), "pricing")[1:] == (0, True)
    assert index.status().updated_at == before


def test_what_takes_too_long_to_look_at_is_left_alone_for_a_while_but_for_its_folders(
    index: qmd.Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "_FEW_FILES", 1)
    with monkeypatch.context() as patch:
        patch.setattr(freshness, "_LOOK_S", -1.0)
        assert found(index, "pricing") == (["pricing.md"], 0, False)
    (folder / "notes/pricing.md").write_text("wombat")
    assert found(index, "wombat") == ([], 0, False)
    (folder / "notes/daily/new.md").write_text("wombat")
    assert found(rested(index), "wombat") == (["daily/new.md"], 1, False)
    mark = index.path.with_name(f".{index.path.name}.large")
    os.utime(mark, (LONG_AGO, LONG_AGO))
    assert set(found(rested(index), "wombat")[0]) == {"daily/new.md", "pricing.md"}


def test_a_disk_slow_once_is_looked_at_again(index: qmd.Index, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "notes/pricing.md").write_text("wombat")
    with monkeypatch.context() as patch:
        patch.setattr(freshness, "_LOOK_S", -1.0)
        assert found(index, "wombat") == ([], 0, False)
    assert found(index, "wombat") == (["pricing.md"], 1, True)


def test_a_search_with_a_time_budget_does_not_look(index: qmd.Index, folder: Path) -> None:
    (folder / "notes/new.md").write_text("wombat")
    assert found(index, "wombat", budget_ms=5_000) == ([], 0, False)


def test_update_commands_are_not_run(index: qmd.Index, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "config/qmd/index.yml"
    file.write_text(file.read_text() + f"    update: touch {tmp_path}/ran\n")
    (folder / "notes/new.md").write_text("wombat")
    assert found(index, "wombat")[0] == ["new.md"]
    assert not (tmp_path / "ran").exists()


def test_an_index_that_is_opened_by_its_path_is_left_as_it_is(index: qmd.Index, folder: Path) -> None:
    (folder / "notes/new.md").write_text("wombat")
    with qmd.open_index(index.path) as other:
        assert found(other, "wombat") == ([], 0, False)


def test_an_index_with_a_mapping_takes_changes_unless_that_says_no(folder: Path, tmp_path: Path, patient: None) -> None:
    settle(folder)
    config = {"collections": {"notes": {"path": str(folder / "notes")}}}
    with qmd.open_index(tmp_path / "own.sqlite", config=config) as index:
        index.update()
        (folder / "notes/new.md").write_text("wombat")
    with qmd.open_index(tmp_path / "own.sqlite", config={**config, "auto_update": False}) as index:
        assert found(index, "wombat") == ([], 0, False)
    with qmd.open_index(tmp_path / "own.sqlite", config=config) as index:
        assert found(index, "wombat") == (["new.md"], 1, True)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_project_that_is_not_trusted_is_not_written(
    folder: Path, is_trusted: bool, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    (folder / ".qmd").mkdir()
    text = "collections:\n  notes:\n    path: notes\n    update: make notes\n"
    (folder / ".qmd/index.yml").write_text(text)
    settle(folder)
    if is_trusted:
        monkeypatch.setenv("QMD_TRUST_LOCAL_CONFIG", "1")
    with qmd.open_index() as index:
        index.update()
    (folder / "notes/new.md").write_text("wombat")
    with qmd.open_index() as index:
        assert found(index, "wombat") == ((["new.md"], 1, True) if is_trusted else ([], 0, False))


def test_a_project_does_not_make_a_search_look_outside_of_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    monkeypatch.setenv("QMD_TRUST_LOCAL_CONFIG", "1")
    (folder / ".qmd").mkdir()
    (tmp_path / "outside").mkdir()
    (folder / ".qmd/index.yml").write_text(f"collections:\n  outside:\n    path: {tmp_path / 'outside'}\n")
    with qmd.open_index() as index:
        index.update()
        (tmp_path / "outside/new.md").write_text("wombat")
        assert found(index, "wombat") == ([], 0, False)


def test_a_collection_of_one_file_is_looked_at(index: qmd.Index, folder: Path) -> None:
    index.add_collection("one", folder / "notes/pricing.md")
    index.update("one")
    assert found(index, "pricing", collections="one") == (["pricing.md"], 0, True)
    (folder / "notes/pricing.md").write_text("wombat")
    assert found(rested(index), "wombat", collections="one") == (["pricing.md"], 1, True)


def test_searches_at_the_same_time_do_not_wait_for_a_look(index: qmd.Index, folder: Path) -> None:
    (folder / "notes/new.md").write_text("wombat")
    refresher: Refresher = index._refresher
    with refresher._lock:
        assert found(index, "wombat") == ([], 0, False)


def test_the_missing_folder_of_the_next_session_is_named_and_its_hit_is_not_marked(index: qmd.Index) -> None:
    found = index.search("sort:date", mode="lexical")
    document = replace(found.hits[0].document, collection="usb")
    named = replace(found, hits=(replace(found.hits[0], continues=qmd.Mention(document, 1, "x")),))
    marked = mark_missing(named, {"usb": Path("/usb"), "other": Path("/other")})
    assert marked.warnings == ("folder '/usb' of collection 'usb' is missing; if it moved: qmd index NEWPLACE",)
    assert not marked.hits[0].is_missing
