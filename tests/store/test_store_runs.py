"""Who computes the vectors of an index, as others see it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qmd.errors import AlreadyEmbeddingError
from qmd.progress import Progress
from qmd.status import Runner
from qmd.store import runs
from qmd.store.runs import embed_lock, lock_holder, recorded_run, sole_run

_HOLD = """
import sys, time
from pathlib import Path
from qmd.progress import Progress
from qmd.store.runs import embed_lock, recorded_run
with embed_lock(Path(sys.argv[1])) as is_ours, recorded_run(Path(sys.argv[1])) as record:
    record.update(Progress(43, 100, 10.0, 4.3, 13.0))
    print(is_ours, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "index.sqlite"


def test_a_run_of_another_process_is_seen_and_a_killed_one_is_not_believed(database: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(database)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"True\n"
        run = lock_holder(database)
        assert run is not None
        assert (run.pid, run.percent, run.left_s) == (holder.pid, 43, 13.0)
        assert run.state == "43 % done, 13 s left"
        with embed_lock(database, 0.0) as is_ours:
            assert not is_ours
        holder.kill()
    assert (database.parent / f".{database.name}.embed.json").exists()
    assert lock_holder(database) is None
    with embed_lock(database, 0.0) as is_ours:
        assert is_ours


def test_a_run_that_ends_leaves_nothing_behind(database: Path) -> None:
    with embed_lock(database), recorded_run(database) as record:
        record.update(Progress(1, 2))
        assert lock_holder(database) == record.run
    assert lock_holder(database) is None
    assert [path.name for path in database.parent.iterdir()] == [f".{database.name}.embed.lock"]


def test_before_anything_is_counted_a_run_has_just_started(database: Path) -> None:
    with embed_lock(database), recorded_run(database):
        run = lock_holder(database)
        assert run is not None and run.state == "just started"


def test_asking_for_a_run_does_not_look_like_one(database: Path) -> None:
    with embed_lock(database), recorded_run(database) as record:
        record.pause()
    for _ in range(50):
        lock_holder(database)
        with embed_lock(database, 0.0) as is_ours:
            assert is_ours


def test_slices_of_one_run_are_one_run_to_others(database: Path) -> None:
    with embed_lock(database), recorded_run(database) as first:
        first.update(Progress(30, 100))
        first.pause()
    assert lock_holder(database) == first.run
    with embed_lock(database), recorded_run(database, first.run) as second:
        second.update(Progress(20, 70))
        assert (second.run.percent, second.run.started_at) == (50, first.run.started_at)


def test_a_run_that_gives_way_is_asked_to_end_and_not_back_before_the_command_has_begun(database: Path) -> None:
    taken = threading.Event()

    def command() -> None:
        with embed_lock(database) as is_ours:
            assert is_ours
            taken.set()

    with ThreadPoolExecutor() as pool:
        with embed_lock(database, by="server"), recorded_run(database, by="server") as server:
            was_wanted = server.is_wanted
            assert not was_wanted
            asking = pool.submit(command)
            while not server.is_wanted:
                time.sleep(0.01)
            with embed_lock(database, 0.0, by="watch") as is_ours:
                assert not is_ours
            assert not taken.is_set()
        asking.result(60)
    with embed_lock(database, by="server") as is_ours:
        assert is_ours


def test_a_cleaning_gets_its_turn_from_a_server_that_computes_in_slices(database: Path) -> None:
    began = threading.Event()

    def server() -> None:
        before = None
        for _ in range(200):
            with embed_lock(database, by="server") as is_ours:
                if not is_ours:
                    return
                with recorded_run(database, before, by="server") as record:
                    began.set()
                    while not record.is_wanted:
                        time.sleep(0.005)
                    record.pause()
                    before = record.run

    with ThreadPoolExecutor() as pool:
        serving = pool.submit(server)
        assert began.wait(60)
        with sole_run(database, "cleanup", "x") as cleaning:
            assert lock_holder(database) == cleaning.run
            serving.result(60)
        assert lock_holder(database) is None


def test_who_finds_the_vectors_taken_learns_by_whom_and_what_for(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_HANDOVER_S", 0.05)
    works: dict[Runner, str] = {"embed": "computing vectors for", "cleanup": "cleaning", "copy": "filling"}
    for by, work in works.items():
        with sole_run(database, by, "x") as record:
            for asking in works:
                with pytest.raises(AlreadyEmbeddingError) as caught, sole_run(database, asking, "x"):
                    pass
                message = caught.value.message
                assert message.startswith(f"another process ({record.run.who}, since {record.run.started_at}")
                assert message.endswith(f") is {work} index 'x'")


def test_a_command_is_not_asked_to_end(database: Path) -> None:
    with embed_lock(database), recorded_run(database) as record:
        with embed_lock(database, 0.0) as is_ours:
            assert not is_ours
        assert not record.is_wanted


def test_until_a_slice_knows_how_long_it_takes_the_one_before_does(database: Path) -> None:
    with embed_lock(database), recorded_run(database) as first:
        first.update(Progress(30, 100, 3.0, 10.0, 7.0))
        first.pause()
    with embed_lock(database), recorded_run(database, first.run) as second:
        second.update(Progress(0, 70))
        assert second.run.state == "30 % done, 7 s left"


def test_a_pause_that_lasts_is_an_end(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with embed_lock(database), recorded_run(database) as record:
        record.pause()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 60)
    assert lock_holder(database) is None


def test_damaged_records_are_no_run(database: Path) -> None:
    with embed_lock(database):
        record = database.parent / f".{database.name}.embed.json"
        for text in ("", "{}", "[", '{"pid": "x", "started_at": 1}'):
            record.write_text(text)
            assert lock_holder(database) is None


@pytest.mark.skipif(os.name == "nt", reason="rights of the profile hold there")
def test_the_record_is_for_its_owner_alone(database: Path) -> None:
    with embed_lock(database), recorded_run(database):
        record = database.parent / f".{database.name}.embed.json"
        assert stat.S_IMODE(record.stat().st_mode) == 0o600


def test_a_full_disk_does_not_stop_a_run(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with embed_lock(database), recorded_run(database) as record:
        record.update(Progress(1, 2))
