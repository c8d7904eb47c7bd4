"""Events of the operating system: arrival, and their collections."""

import threading
import time
from pathlib import Path

import pytest

from qmd.plugins.watch.file_events import SystemEvents, find_collections, find_roots
from qmd.records import Collection

ROOTS = {"/srv/notes": frozenset({"notes"}), "/srv/notes/work": frozenset({"work"}), "/srv/one.md": frozenset({"one"})}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/notes/a.md", {"notes"}),
        ("/srv/notes/work/b.md", {"notes", "work"}),
        ("/srv/notes", {"notes"}),
        ("/srv/one.md", {"one"}),
        ("/srv/notes-2/a.md", set()),
        ("/srv/notes/.git/index", set()),
        ("/srv/notes/.qmd/index.sqlite-wal", set()),
        ("/srv/notes/sub/.draft.md.swp", set()),
        ("/srv/notes/sub/.gitignore", {"notes"}),
        ("/srv/notes/.qmdignore", {"notes"}),
        ("/srv/notes/.git/.gitignore", set()),
    ],
)
def test_a_report_concerns_the_collections_around_it(path: str, expected: set[str]) -> None:
    assert find_collections([path], ROOTS) == expected


def test_folders_that_are_away_are_not_listened_to(tmp_path: Path) -> None:
    there, away = Collection("there", tmp_path), Collection("away", tmp_path / "away")
    also = Collection("also", tmp_path, pattern="**/*.txt")
    assert find_roots([there, away, also]) == {str(tmp_path.resolve()): frozenset({"there", "also"})}


def wait_for(events: SystemEvents, name: str, timeout_s: float = 20.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if name in events.wait(0.2):
            return True
    return False


def test_a_new_file_is_reported_also_in_a_folder_that_came_later(tmp_path: Path) -> None:
    said: list[str] = []
    events = SystemEvents(said.append)
    events.follow([Collection("notes", tmp_path)])
    deadline = time.monotonic() + 20
    number = 0
    # Listening begins in another thread, and earlier changes cause no event.
    while not events.wait(0.2) and time.monotonic() < deadline:
        number += 1
        (tmp_path / f"{number}.md").write_text("# New\n", encoding="utf-8")
    later = tmp_path / "later"
    later.mkdir()
    assert wait_for(events, "notes")
    (later / "deep.md").write_text("# Deep\n", encoding="utf-8")
    assert wait_for(events, "notes")
    events.close()
    assert said == []


def test_nothing_changed_means_no_report(tmp_path: Path) -> None:
    events = SystemEvents(lambda _: None)
    events.follow([Collection("notes", tmp_path)])
    (tmp_path / ".hidden").write_text("x", encoding="utf-8")
    assert events.wait(0.5) == frozenset()
    events.close()


def test_waking_ends_a_wait(tmp_path: Path) -> None:
    events = SystemEvents(lambda _: None)
    events.follow([Collection("notes", tmp_path)])
    waiting = threading.Thread(target=events.wait, args=(60,))
    waiting.start()
    events.wake()
    waiting.join(10)
    assert not waiting.is_alive()
    events.close()
