"""Several processes that change the configuration at once."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from qmd.app.configuration import FileConfiguration
from qmd.app.notices import Notices
from qmd.config import edits
from qmd.config.edits import add_collection, edit_config, set_global_context
from qmd.config.paths import Locations, locate
from qmd.config.project import read_trust
from qmd.config.settings import load_config
from qmd.config.trust import gated_items, record_trust
from qmd.errors import BusyError, UsageError
from qmd.files import exclusive_lock
from qmd.store.opening import open_reader

N_PROCESSES = 6


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    return locate(None, tmp_path, environment(tmp_path))


def environment(tmp_path: Path) -> dict[str, str]:
    places = {"HOME": "home", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache"}
    return {name: str(tmp_path / place) for name, place in places.items()}


def test_collections_added_at_the_same_time_all_survive_with_their_documents(places: Locations, tmp_path: Path) -> None:
    commands = []
    for number in range(N_PROCESSES):
        folder = tmp_path / f"f{number}"
        folder.mkdir()
        (folder / "note.md").write_text(f"# Note {number}\n\nword{number}\n")
        commands.append(["collection", "add", str(folder), "--name", f"c{number}"])
    run_all(commands, tmp_path)
    assert {one.name for one in load_config(places).collections} == {f"c{n}" for n in range(N_PROCESSES)}
    with open_reader(places.database) as reader:
        assert {document.collection for document in reader.iter_documents()} == {f"c{n}" for n in range(N_PROCESSES)}


def test_contexts_added_at_the_same_time_all_survive(places: Locations, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    add_collection(places, "notes", tmp_path / "notes")
    run_all([["context", "add", f"qmd://notes/p{n}", f"about {n}"] for n in range(N_PROCESSES)], tmp_path)
    [notes] = load_config(places).collections
    assert dict(notes.context) == {f"p{n}": f"about {n}" for n in range(N_PROCESSES)}


def test_what_an_editor_saves_during_an_edit_is_kept(
    places: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_collection(places, "notes", tmp_path)
    sync, saved = os.fsync, list[int]()

    def save(handle: int) -> None:
        if not saved:
            saved.append(places.config_file.write_text(places.config_file.read_text() + "# from the editor\n"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", save)
    set_global_context(places, "words")
    assert load_config(places).global_context == "words"
    assert "# from the editor" in places.config_file.read_text()


def run_all(commands: list[list[str]], tmp_path: Path) -> None:
    """Run commands in parallel; each must report success."""
    environ = {**os.environ, **environment(tmp_path), "QMD_DAEMON": "0"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "qmd", *command], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        for command in commands
    ]
    for process in started:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors


def test_a_name_that_another_process_took_meanwhile_is_refused(places: Locations) -> None:
    add_collection(places, "notes", Path("/a"))
    with pytest.raises(UsageError, match="already exists: notes"):
        add_collection(places, "notes", Path("/b"))
    assert load_config(places).collections[0].path == Path("/a")


def test_a_configuration_changed_for_too_long_is_busy(places: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "_LOCK_WAIT_S", 0.05)
    with exclusive_lock(places.config_file.with_name(".index.yml.lock")) as held:
        assert held
        with pytest.raises(BusyError, match=str(places.config_file)):
            set_global_context(places, "note")
    set_global_context(places, "note")


def test_two_links_to_one_configuration_share_its_lock(places: Locations, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "qmd.yml"
    real.parent.mkdir()
    real.write_text("collections: {}\n")
    places.config_file.parent.mkdir(parents=True)
    places.config_file.symlink_to(real)

    def look(_: object) -> None:
        with exclusive_lock(real.with_name(".qmd.yml.lock")) as held:
            assert not held

    edit_config(places, look)


def test_a_folder_that_takes_no_lock_file_can_still_be_read(places: Locations, tmp_path: Path) -> None:
    places.config_file.parent.mkdir(parents=True)
    places.config_file.write_text("global_context: as it is\n")
    # A folder in place of the lock file prevents its creation, as read-only media do; permissions would not stop the
    # superuser.
    places.config_file.with_name(".index.yml.lock").mkdir()
    assert load_config(places).global_context == "as it is"
    assert set_global_context(places, "as it is").global_context == "as it is"


def test_trust_given_to_two_projects_at_once_is_kept_for_both(tmp_path: Path) -> None:
    projects = []
    for number in range(N_PROCESSES):
        folder = tmp_path / f"p{number}" / ".qmd"
        folder.mkdir(parents=True)
        (folder / "index.yml").write_text("collections: {a: {path: /etc}}")
        projects.append(locate(None, folder.parent, environment(tmp_path)))
    workers = [
        threading.Thread(target=lambda one=one: record_trust(gated_items(load_config(one), one), one))
        for one in projects
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(read_trust(projects[0].config_dir)) == N_PROCESSES


def test_a_stale_reader_of_the_configuration_deletes_no_collection(places: Locations, tmp_path: Path) -> None:
    stale = FileConfiguration(places, {}, Notices())
    assert stale.load().collections == ()
    add_collection(places, "new", tmp_path)
    FileConfiguration(places, {}, Notices()).open_writer().close()
    with stale.open_writer() as writer:
        assert [one.name for one in writer.collections()] == ["new"]
