"""Embedding runs of an index, as other processes see them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from qmd.errors import AlreadyEmbeddingError
from qmd.progress import Progress
from qmd.status import Runner
from qmd.store import runs
from qmd.store.runs import EmbeddingLock, lock_holder

_HOLD = """
import sys, time
from pathlib import Path
from qmd.progress import Progress
from qmd.store.runs import EmbeddingLock
with EmbeddingLock(Path(sys.argv[1])) as lock:
    lock.update(Progress(43, 100, 10.0, 4.3, 13.0))
    print("taken", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "index.sqlite"


def test_a_run_of_another_process_is_seen_and_a_killed_one_is_not_believed(database: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(database)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"taken\n"
        run = lock_holder(database)
        assert run is not None
        assert (run.pid, run.percent, run.left_s) == (holder.pid, 43, 13.0)
        assert run.state == "43 % done, 13 s left"
        with pytest.raises(AlreadyEmbeddingError), EmbeddingLock(database):
            pass
        holder.kill()
    assert (database.parent / f".{database.name}.embed.json").exists()
    assert lock_holder(database) is None
    with EmbeddingLock(database) as lock:
        assert lock_holder(database) == lock.run


def test_a_run_that_ends_leaves_nothing_behind(database: Path) -> None:
    with EmbeddingLock(database) as record:
        record.update(Progress(1, 2))
        assert lock_holder(database) == record.run
    assert lock_holder(database) is None
    assert [path.name for path in database.parent.iterdir()] == [f".{database.name}.embed.lock"]


def test_before_anything_is_counted_a_run_has_just_started(database: Path) -> None:
    with EmbeddingLock(database):
        run = lock_holder(database)
        assert run is not None and run.state == "just started"


def test_asking_for_a_run_does_not_look_like_one(database: Path) -> None:
    with EmbeddingLock(database) as record:
        record.pause()
    for _ in range(50):
        lock_holder(database)
        with EmbeddingLock(database) as lock:
            assert lock_holder(database) == lock.run


def test_a_paused_run_is_not_believed_for_as_long_as_the_clock_went_back(database: Path) -> None:
    with EmbeddingLock(database) as record:
        record.pause()
    assert lock_holder(database) is not None
    os.utime(database.with_name(f".{database.name}.embed.json"), (2**32, 2**32))
    assert lock_holder(database) is None


def test_slices_of_one_run_are_one_run_to_others(database: Path) -> None:
    with EmbeddingLock(database) as lock:
        lock.update(Progress(30, 100))
        lock.pause()
    first = lock.run
    assert lock_holder(database) == first
    with lock:
        lock.update(Progress(20, 70))
        assert (lock.run.percent, lock.run.started_at) == (50, first.started_at)
    with lock:
        lock.update(Progress(20, 70))
        assert lock.run.percent == 28


def test_a_run_that_gives_way_is_asked_to_end_and_not_back_before_the_command_has_begun(database: Path) -> None:
    taken = threading.Event()

    def command() -> None:
        with EmbeddingLock(database):
            taken.set()

    with ThreadPoolExecutor() as pool:
        with EmbeddingLock(database, by="server") as server:
            was_wanted = server.is_wanted
            assert not was_wanted
            asking = pool.submit(command)
            while not server.is_wanted:
                time.sleep(0.01)
            with pytest.raises(AlreadyEmbeddingError), EmbeddingLock(database, by="watch"):
                pass
            assert not taken.is_set()
        asking.result(60)
    with EmbeddingLock(database, by="server") as again:
        assert lock_holder(database) == again.run


def test_a_cleaning_gets_its_turn_from_a_server_that_computes_in_slices(database: Path) -> None:
    began = threading.Event()

    def server() -> None:
        lock = EmbeddingLock(database, by="server")
        with suppress(AlreadyEmbeddingError):
            for _ in range(200):
                with lock:
                    began.set()
                    while not lock.is_wanted:
                        time.sleep(0.005)
                    lock.pause()

    with ThreadPoolExecutor() as pool:
        serving = pool.submit(server)
        assert began.wait(60)
        with EmbeddingLock(database, "cleanup", "x") as cleaning:
            assert lock_holder(database) == cleaning.run
            serving.result(60)
        assert lock_holder(database) is None


def test_a_claim_on_vectors_says_by_whom_and_what_for(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_HANDOVER_S", 0.05)
    works: dict[Runner, str] = {"embed": "computing vectors for", "cleanup": "cleaning", "copy": "filling"}
    for by, work in works.items():
        with EmbeddingLock(database, by, "x") as record:
            for asking in works:
                with pytest.raises(AlreadyEmbeddingError) as caught, EmbeddingLock(database, asking, "x"):
                    pass
                message = caught.value.message
                assert message.startswith(f"another process ({record.run.who}, since {record.run.started_at}")
                assert message.endswith(f") is {work} index 'x'")
        with EmbeddingLock(database):
            (database.parent / f".{database.name}.embed.json").unlink()
            with pytest.raises(AlreadyEmbeddingError) as caught, EmbeddingLock(database, by, "x"):
                pass
            assert caught.value.message == "another process is computing vectors for index 'x'"


def test_a_command_is_not_asked_to_end(database: Path) -> None:
    with EmbeddingLock(database) as record:
        with pytest.raises(AlreadyEmbeddingError), EmbeddingLock(database):
            pass
        assert not record.is_wanted


def test_until_a_slice_knows_how_long_it_takes_the_one_before_does(database: Path) -> None:
    with EmbeddingLock(database) as lock:
        lock.update(Progress(30, 100, 3.0, 10.0, 7.0))
        lock.pause()
    with lock:
        lock.update(Progress(0, 70))
        assert lock.run.state == "30 % done, 7 s left"


def test_a_pause_that_lasts_is_an_end(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddingLock(database) as record:
        record.pause()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 60)
    assert lock_holder(database) is None


def test_damaged_records_are_no_run(database: Path) -> None:
    with EmbeddingLock(database):
        record = database.parent / f".{database.name}.embed.json"
        for text in ("", "{}", "[", '{"pid": "x", "started_at": 1}'):
            record.write_text(text)
            assert lock_holder(database) is None


@pytest.mark.skipif(os.name == "nt", reason="rights of the profile hold there")
def test_the_record_is_for_its_owner_alone(database: Path) -> None:
    with EmbeddingLock(database):
        record = database.parent / f".{database.name}.embed.json"
        assert stat.S_IMODE(record.stat().st_mode) == 0o600


def test_a_full_disk_does_not_stop_a_run(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with EmbeddingLock(database) as record:
        record.update(Progress(1, 2))
