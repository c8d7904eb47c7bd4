"""Watcher: changes that lead to an update, and their timing."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qmd.errors import AlreadyEmbeddingError, BusyError, ModelError, NotFoundError
from qmd.plugins.watch.file_events import SystemEvents
from qmd.plugins.watch.watching import DEBOUNCE_S, MAX_DELAY_S, REPORTED_INTERVAL_S, Snapshot, WatchedIndex, Watcher
from qmd.records import Collection

NOTES = Collection("notes", Path("/srv/notes"))
WORK = Collection("work", Path("/srv/work"))


@dataclass
class World(WatchedIndex):
    """Fake of files and a clock, which records updates."""

    files: dict[str, dict[str, tuple[int, int]]] = field(
        default_factory=lambda: {"notes": {"a.md": (1, 1)}, "work": {}}
    )
    known: list[Collection] = field(default_factory=lambda: [NOTES, WORK])
    refreshed: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    is_busy: bool = False
    embedded: list[str] = field(default_factory=list)
    pieces: int = 0
    """Number of slices after the first one that the vectors of a collection take."""
    model_failure: str | None = None
    others_embed: bool = False
    is_stopped: bool = False
    now: float = 0.0

    def collections(self) -> Sequence[Collection]:
        return self.known

    def snapshot(self, collection: Collection) -> Snapshot:
        if collection.name in self.missing:
            raise NotFoundError(f"folder of '{collection.name}' is missing")
        return dict(self.files[collection.name])

    def refresh(self, collection: Collection) -> None:
        if self.is_busy:
            raise BusyError("the index is locked")
        self.refreshed.append(collection.name)

    def embed(self, collection: Collection) -> bool:
        if self.model_failure is not None:
            raise ModelError(self.model_failure)
        if self.others_embed:
            raise AlreadyEmbeddingError("another process is computing vectors for this index")
        self.embedded.append(collection.name)
        self.pieces -= 1
        return self.pieces >= 0

    def stop(self) -> None:
        self.is_stopped = True

    def watcher(self) -> Watcher:
        watcher = Watcher(self, self.messages.append, SystemEvents(self.messages.append), lambda: self.now)
        watcher.check()
        self.refreshed.clear()
        return watcher

    def check_after(self, watcher: Watcher, seconds: float) -> bool:
        self.now += seconds
        return watcher.check()


def test_the_first_look_makes_up_for_what_was_missed() -> None:
    world = World()
    Watcher(world, world.messages.append, SystemEvents(world.messages.append), lambda: world.now).check()
    assert world.refreshed == ["notes", "work"]


def test_nothing_changed_means_nothing_to_do() -> None:
    world = World()
    watcher = world.watcher()
    assert world.check_after(watcher, 5) is False
    assert world.refreshed == []


def test_a_change_is_taken_over_once_it_rests_and_only_its_collection() -> None:
    world = World()
    watcher = world.watcher()
    world.files["notes"]["b.md"] = (1, 1)
    assert world.check_after(watcher, 1) is True
    assert world.refreshed == []
    assert world.check_after(watcher, DEBOUNCE_S + 0.1) is False
    assert world.refreshed == ["notes"]
    world.check_after(watcher, 5)
    assert world.refreshed == ["notes"]


def test_changed_and_deleted_files_count() -> None:
    world = World()
    watcher = world.watcher()
    world.files["notes"]["a.md"] = (1, 2)
    world.check_after(watcher, 1)
    world.check_after(watcher, 1)
    del world.files["notes"]["a.md"]
    world.check_after(watcher, 1)
    world.check_after(watcher, 1)
    assert world.refreshed == ["notes", "notes"]


def test_a_file_that_came_during_a_refresh_and_went_after_it_does_not_stay_in_the_index() -> None:
    class Busy(World):
        def refresh(self, collection: Collection) -> None:
            super().refresh(collection)
            if len(self.refreshed) == 1:
                self.files["notes"]["brief.md"] = (1, 1)

    world = Busy(known=[NOTES])
    watcher = Watcher(world, world.messages.append, SystemEvents(world.messages.append), lambda: world.now)
    watcher.check()
    del world.files["notes"]["brief.md"]
    world.check_after(watcher, 5)
    assert world.refreshed == ["notes", "notes"]
    world.check_after(watcher, 5)
    assert world.refreshed == ["notes", "notes"]


def test_files_that_keep_changing_are_taken_over_after_a_while() -> None:
    world = World()
    watcher = world.watcher()
    for step in range(int(MAX_DELAY_S / 0.5) + 1):
        world.files["notes"]["a.md"] = (100 + step, 1)
        world.check_after(watcher, 0.5)
    assert world.refreshed == ["notes"]


def test_a_change_undone_before_it_rests_is_forgotten() -> None:
    world = World()
    watcher = world.watcher()
    world.files["notes"]["b.md"] = (1, 1)
    world.check_after(watcher, 0.1)
    del world.files["notes"]["b.md"]
    assert world.check_after(watcher, 5) is False
    assert world.refreshed == []


def test_a_missing_folder_is_reported_once_and_taken_up_again() -> None:
    world = World()
    watcher = world.watcher()
    world.missing.add("notes")
    for _ in range(3):
        world.check_after(watcher, 1)
    assert world.messages == ["notes: folder of 'notes' is missing"]
    world.missing.clear()
    world.files["notes"]["new.md"] = (1, 1)
    world.check_after(watcher, 1)
    world.check_after(watcher, 1)
    assert world.refreshed == ["notes"]


def test_a_busy_index_is_tried_again() -> None:
    world = World()
    watcher = world.watcher()
    world.files["notes"]["b.md"] = (1, 1)
    world.is_busy = True
    world.check_after(watcher, 1)
    assert world.check_after(watcher, 1) is True
    world.is_busy = False
    world.check_after(watcher, 1)
    assert world.refreshed == ["notes"]


def test_new_collections_are_taken_up_and_removed_ones_let_go() -> None:
    world = World(known=[NOTES])
    watcher = world.watcher()
    world.known = [WORK]
    world.check_after(watcher, 1)
    assert world.refreshed == ["work"]


@dataclass
class Script(SystemEvents):
    """Scripted events; the last one interrupts the run."""

    world: World
    reports: list[frozenset[str]]
    pauses: list[float] = field(default_factory=list)

    def follow(self, collections: Sequence[Collection]) -> None: ...

    def wait(self, timeout_s: float) -> frozenset[str]:
        self.pauses.append(timeout_s)
        self.world.now += timeout_s
        if not self.reports:
            raise KeyboardInterrupt
        return self.reports.pop(0)


def run(world: World, *reports: frozenset[str], interval_s: float = 1.0) -> list[float]:
    script = Script(world, list(reports))
    with contextlib.suppress(KeyboardInterrupt):
        Watcher(world, world.messages.append, script, lambda: world.now).run(interval_s)
    return script.pauses


def test_looking_takes_a_small_share_of_the_time() -> None:
    world = World()

    def slow_snapshot(collection: Collection) -> Snapshot:
        world.now += 0.5
        return {}

    world.snapshot = slow_snapshot  # type: ignore[method-assign]
    assert run(world, frozenset()) == [10.0, 10.0]


def test_a_long_refresh_does_not_make_the_next_look_late() -> None:
    world = World()

    def slow_refresh(collection: Collection) -> None:
        world.now += 60

    world.refresh = slow_refresh  # type: ignore[method-assign]
    assert run(world) == [1.0]


def test_vectors_are_computed_in_pieces_with_a_look_between_them() -> None:
    world = World(known=[NOTES], pieces=2)
    pauses = run(world, frozenset(), frozenset(), frozenset())
    assert world.embedded == ["notes"] * 3
    assert pauses == [0.0, 0.0, 1.0, 1.0]


def test_a_watch_next_to_another_run_keeps_its_pace_and_goes_on_afterwards() -> None:
    world = World(known=[NOTES], others_embed=True)
    assert run(world, frozenset(), frozenset()) == [1.0, 1.0, 1.0]
    assert (world.messages, world.embedded) == ([], [])
    watcher = world.watcher()
    assert watcher.embed() is False
    world.others_embed = False
    watcher.embed()
    assert world.embedded == ["notes"]


def test_a_missing_model_is_reported_once_and_tried_again_with_the_next_change() -> None:
    world = World(known=[NOTES], model_failure="no model")
    watcher = world.watcher()
    for _ in range(3):
        assert watcher.embed() is False
        world.check_after(watcher, 5)
    assert world.messages == ["notes: no model"]
    world.model_failure = None
    world.files["notes"]["a.md"] = (9, 9)
    world.check_after(watcher, 5)
    world.check_after(watcher, 5)
    watcher.embed()
    assert world.embedded == ["notes"]


def changed_and_reported(world: World) -> Watcher:
    """Watcher that has indexed a change after an event."""
    watcher = world.watcher()
    world.files["notes"]["b.md"] = (1, 1)
    world.now += 0.1
    assert watcher.check(frozenset({"notes"})) is True
    world.check_after(watcher, DEBOUNCE_S + 0.1)
    assert world.refreshed == ["notes"]
    world.refreshed.clear()
    return watcher


def test_a_collection_whose_changes_are_reported_is_looked_at_rarely() -> None:
    world = World(known=[NOTES])
    watcher = changed_and_reported(world)
    looked: list[str] = []
    plain = world.snapshot

    def counted(collection: Collection) -> Snapshot:
        looked.append(collection.name)
        return plain(collection)

    world.snapshot = counted  # type: ignore[method-assign]
    for _ in range(10):
        world.check_after(watcher, 1.5)
    assert looked == []
    world.check_after(watcher, REPORTED_INTERVAL_S)
    assert looked == ["notes"]


def test_a_change_that_was_not_reported_brings_back_regular_looks() -> None:
    world = World(known=[NOTES])
    watcher = changed_and_reported(world)
    world.files["notes"]["c.md"] = (1, 1)
    world.check_after(watcher, REPORTED_INTERVAL_S)
    world.check_after(watcher, DEBOUNCE_S + 0.1)
    world.files["notes"]["d.md"] = (1, 1)
    world.check_after(watcher, 1.5)
    world.check_after(watcher, DEBOUNCE_S + 0.1)
    assert world.refreshed == ["notes", "notes"]


def test_a_stopped_watcher_looks_no_more() -> None:
    world = World(known=[NOTES])
    watcher = Watcher(world, world.messages.append, SystemEvents(world.messages.append), lambda: world.now)
    watcher.stop()
    watcher.run(1.0)
    assert world.refreshed == []
    assert world.is_stopped
