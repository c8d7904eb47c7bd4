"""The warm worker and its client: same answers as in process, and no way to break a command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import qmd
from qmd.config import Locations, locate
from qmd.errors import NotFoundError
from qmd.files import exclusive_lock
from qmd.inference import EngineSettings
from qmd.records import Query, SearchResponse
from qmd.retrieval import SearchOptions, parse_query
from qmd.server.calls import ServiceCalls
from qmd.server.client import ask_daemon, ask_worker, describe_with_daemon, embed_with_daemon, start_worker
from qmd.server.endpoint import Endpoint, connect, read_endpoint, worker_files, write_endpoint
from qmd.server.pools import EnginePool, ReaderPool
from qmd.server.service import SearchService
from qmd.server.worker import Worker, WorkerCalls, run_worker
from qmd.store import open_reader
from tests.fakes import HashingEmbedder

Loader = Any
ROOT = Path(__file__).resolve().parents[2]
ROLES = ("embed", "rerank", "expand")
QUERY = parse_query("rate limiter")
OPTIONS = SearchOptions(limit=3)


@pytest.fixture
def environ(tmp_path: Path, database: Path) -> dict[str, str]:
    own = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "c"), "INDEX_PATH": str(database)}
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **own}


@pytest.fixture
def locations(tmp_path: Path, environ: dict[str, str]) -> Locations:
    place = locate(None, tmp_path, environ)
    place.cache.mkdir(parents=True)
    return place


@pytest.fixture
def settings(locations: Locations) -> EngineSettings:
    return EngineSettings(models_dir=locations.models, embed="built-in", rerank="built-in", expand="built-in")


@pytest.fixture
def worker(service: SearchService, locations: Locations, environ: dict[str, str]) -> Iterator[Worker]:
    files = worker_files(locations.cache, locations.database)
    with exclusive_lock(files.lock) as is_mine:
        assert is_mine
        worker = Worker(files, ServiceCalls(service), environ=environ)
        thread = threading.Thread(target=worker.serve, daemon=True)
        thread.start()
        yield worker
        worker.stop()
        thread.join(5)


def ask(
    locations: Locations,
    settings: EngineSettings,
    environ: dict[str, str],
    query: Query = QUERY,
    stages: list[str] | None = None,
) -> SearchResponse | None:
    on_stage = stages.append if stages is not None else None
    return ask_daemon(locations, query, OPTIONS, settings, ROLES, environ, on_stage)


def without_timings(response: SearchResponse) -> SearchResponse:
    return replace(response, timings=())


def test_the_answer_equals_that_of_the_process_itself(
    worker: Worker, service: SearchService, locations: Locations, settings: EngineSettings, environ: dict[str, str]
) -> None:
    warm = ask(locations, settings, environ)
    cold = service.search(QUERY, OPTIONS, settings, frozenset(ROLES))
    assert warm is not None
    assert warm.hits
    assert without_timings(warm) == without_timings(cold)


def test_stages_arrive_as_they_begin(
    worker: Worker, locations: Locations, settings: EngineSettings, environ: dict[str, str]
) -> None:
    stages: list[str] = []
    ask(locations, settings, environ, parse_query("the cache and the limiter"), stages)
    assert stages[:2] == ["loading models", "searching"]
    assert "reranking" in stages


def test_errors_are_raised_as_if_the_command_had_searched(
    tmp_path: Path, service: SearchService, locations: Locations, settings: EngineSettings, environ: dict[str, str]
) -> None:
    class Failing:
        def handle(self, *_: object) -> dict[str, object]:
            raise NotFoundError("collection not found: 'x'", "qmd collection list")

        def release_idle(self) -> None: ...

    files = worker_files(locations.cache, locations.database)
    worker = Worker(files, Failing(), environ=environ)
    thread = threading.Thread(target=worker.serve, daemon=True)
    thread.start()
    with pytest.raises(NotFoundError) as raised:
        ask(locations, settings, environ)
    worker.stop()
    thread.join(5)
    assert (raised.value.message, raised.value.hint) == ("collection not found: 'x'", "qmd collection list")


def test_it_is_not_asked_when_switched_off(
    worker: Worker, locations: Locations, settings: EngineSettings, environ: dict[str, str], loader: object
) -> None:
    assert ask(locations, settings, environ | {"QMD_DAEMON": "off"}) is None


def test_a_worker_under_other_settings_is_not_believed(
    worker: Worker, locations: Locations, settings: EngineSettings, environ: dict[str, str]
) -> None:
    assert ask(locations, settings, environ | {"QMD_FORCE_CPU": "1"}) is None
    assert ask(locations, settings, environ) is not None


def test_a_worker_of_another_version_makes_room(
    worker: Worker,
    locations: Locations,
    settings: EngineSettings,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = worker_files(locations.cache, locations.database).record
    request = {"token": worker.endpoint.token, "version": "0.0.0", "environment": "", "call": "search", "params": {}}
    with connect(worker.endpoint, 5) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        assert b"another version" in connection.recv(1000)
    assert qmd.__version__ == worker.endpoint.version
    assert read_endpoint(record) is None
    assert ask(locations, settings, environ) is None


def test_strangers_get_nothing(
    worker: Worker, locations: Locations, settings: EngineSettings, environ: dict[str, str]
) -> None:
    record = worker_files(locations.cache, locations.database).record
    assert record.stat().st_mode & 0o077 == 0
    for line in (b'{"token":"wrong"}\n', b"GET / HTTP/1.1\r\n\r\n", b"\xff\n", b"[]\n", b"{" * 100, b""):
        with connect(worker.endpoint, 5) as connection:
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            assert b"result" not in connection.recv(1000)
    assert ask(locations, settings, environ) is not None


def test_requests_of_many_bytes_or_levels_are_turned_away(
    worker: Worker, locations: Locations, settings: EngineSettings, environ: dict[str, str]
) -> None:
    for line in (b"[" * 500_000 + b"\n", b'"' + b"a" * 2_000_000 + b'"\n'):
        with connect(worker.endpoint, 60) as connection, suppress(OSError):
            connection.sendall(line)
            assert connection.recv(1000) == b""
    assert ask(locations, settings, environ) is not None


def test_a_request_that_comes_byte_by_byte_is_not_waited_for(worker: Worker) -> None:
    with connect(worker.endpoint, 60) as connection:
        for _ in range(300):
            try:
                connection.sendall(b" ")
            except OSError:
                return
            time.sleep(0.2)
    pytest.fail("the connection stayed open for a minute")


@pytest.mark.parametrize("record", ["", "{", "{}", '{"pid":1,"token":"x","version":"y"}', "[1]"])
def test_a_damaged_record_is_no_worker(
    locations: Locations, settings: EngineSettings, environ: dict[str, str], record: str
) -> None:
    worker_files(locations.cache, locations.database).record.write_text(record, encoding="utf-8")
    assert ask(locations, settings, environ) is None


def test_a_dead_worker_is_no_worker(
    tmp_path: Path, locations: Locations, settings: EngineSettings, environ: dict[str, str]
) -> None:
    files = worker_files(locations.cache, locations.database)
    write_endpoint(files.record, Endpoint(1, "t", qmd.__version__, socket=str(files.socket)))
    assert ask(locations, settings, environ) is None
    write_endpoint(files.record, Endpoint(1, "t", qmd.__version__, port=1))
    assert ask(locations, settings, environ) is None


def test_a_worker_that_dies_while_it_works_is_no_worker(
    tmp_path: Path, locations: Locations, settings: EngineSettings, environ: dict[str, str]
) -> None:
    files = worker_files(locations.cache, locations.database)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(files.socket))
        listener.listen()

        def die_half_way() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100_000)
                connection.sendall(b'{"alive":true}\n{"result":{"que')

        thread = threading.Thread(target=die_half_way, daemon=True)
        thread.start()
        write_endpoint(files.record, Endpoint(1, "t", qmd.__version__, socket=str(files.socket)))
        assert ask(locations, settings, environ) is None
        thread.join(5)


def test_it_serves_a_port_where_the_socket_path_is_too_long(
    service: SearchService, tmp_path: Path, environ: dict[str, str], database: Path, settings: EngineSettings
) -> None:
    deep = tmp_path / ("x" * 120)
    place = locate(None, tmp_path, environ | {"XDG_CACHE_HOME": str(deep)})
    place.cache.mkdir(parents=True)
    worker = Worker(worker_files(place.cache, place.database), ServiceCalls(service), environ=environ)
    thread = threading.Thread(target=worker.serve, daemon=True)
    thread.start()
    assert worker.endpoint.socket is None and worker.endpoint.port
    assert ask(place, settings, environ) is not None
    worker.stop()
    thread.join(5)


def test_it_exits_when_idle_and_takes_its_files_along(
    service: SearchService, locations: Locations, environ: dict[str, str]
) -> None:
    files = worker_files(locations.cache, locations.database)
    assert run_worker(files, ServiceCalls(service), idle_exit_s=0.0, environ=environ)
    assert not files.record.exists() and not files.socket.exists()


def test_it_exits_when_its_index_is_gone(service: SearchService, locations: Locations, environ: dict[str, str]) -> None:
    files = worker_files(locations.cache, locations.database)
    assert run_worker(files, ServiceCalls(service), idle_exit_s=None, environ=environ, keep_going=lambda: False)


def test_a_second_worker_of_the_same_index_steps_back(
    worker: Worker, service: SearchService, locations: Locations, environ: dict[str, str]
) -> None:
    files = worker_files(locations.cache, locations.database)
    assert run_worker(files, ServiceCalls(service), idle_exit_s=None, environ=environ) is False
    assert read_endpoint(files.record) == worker.endpoint


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_two_simultaneous_starts_end_with_one_worker_that_survives_a_kill(
    locations: Locations, settings: EngineSettings, environ: dict[str, str]
) -> None:
    found: list[Endpoint | None] = []
    threads = [threading.Thread(target=lambda: found.append(start_worker(locations, environ))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    first, second = found
    assert first is not None and first == second
    try:
        answer = ask(locations, settings, environ)
        assert answer is not None
        assert answer.hits[0].document.path == "a.md"
    finally:
        os.kill(first.pid, signal.SIGKILL)
    # Its record and socket stay behind; a command notices, and `auto` starts another one once the dead one let go.
    auto = environ | {"QMD_DAEMON": "auto"}
    deadline = time.monotonic() + 20
    while (answer := ask(locations, settings, auto)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    endpoint = read_endpoint(worker_files(locations.cache, locations.database).record)
    assert answer is not None and endpoint is not None and endpoint.pid != first.pid
    os.kill(endpoint.pid, signal.SIGTERM)


def test_asking_imports_nothing_heavy() -> None:
    heavy = {"numpy", "onnxruntime", "mcp", "pydantic", "apsw", "rich", "typer", "inspect", "subprocess"}
    code = f"import sys, qmd.server.client; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def own_service(database: Path, loader: Loader, settings: EngineSettings, locations: Locations) -> SearchService:
    """A service over a copy of the index, which a test may write."""
    place = locations.cache / "own.sqlite"
    shutil.copy(database, place)
    readers = ReaderPool(lambda: open_reader(place), (place,))
    return SearchService(place, readers, EnginePool(loader, ttl_s=0), lambda: settings)


@pytest.fixture
def own_locations(locations: Locations) -> Locations:
    return replace(locations, database=locations.cache / "own.sqlite")


@contextmanager
def serving(locations: Locations, calls: WorkerCalls, environ: dict[str, str]) -> Iterator[Worker]:
    worker = Worker(worker_files(locations.cache, locations.database), calls, environ=environ)
    thread = threading.Thread(target=worker.serve, daemon=True)
    thread.start()
    yield worker
    worker.stop()
    thread.join(5)


def test_vectors_are_computed_by_the_worker_with_progress(
    own_service: SearchService, own_locations: Locations, settings: EngineSettings, environ: dict[str, str]
) -> None:
    told: list[tuple[int, int]] = []
    with serving(own_locations, ServiceCalls(own_service), environ):
        facts = describe_with_daemon(own_locations, settings, environ)
        report = embed_with_daemon(
            own_locations, settings, ["docs"], None, environ, lambda done, total: told.append((done, total))
        )
    assert facts is not None and facts.description is not None
    assert (facts.description.model, facts.fingerprint) == ("hashing", HashingEmbedder().fingerprint)
    assert report is not None and report.documents == 5 and not report.stopped
    assert told and all(0 <= done <= total for done, total in told)
    assert own_service.status().pending_documents == 0
    own_service.close()


def test_an_embedding_run_of_the_worker_ends_at_its_time_limit(
    own_service: SearchService, own_locations: Locations, settings: EngineSettings, environ: dict[str, str]
) -> None:
    with serving(own_locations, ServiceCalls(own_service), environ):
        report = embed_with_daemon(own_locations, settings, None, 0.0, environ, lambda *_: None)
    assert report is not None and report.stopped and report.documents == 0
    own_service.close()


def test_searches_go_on_and_models_stay_while_vectors_are_computed(
    own_service: SearchService, own_locations: Locations, settings: EngineSettings, loader: Loader
) -> None:
    answers: list[object] = []

    def search_meanwhile() -> bool:
        own_service.release_idle()
        if not answers:
            answers.append(own_service.search(QUERY, OPTIONS, settings, frozenset({"embed"})))
        return False

    report = own_service.embed(settings, None, should_stop=search_meanwhile)
    assert report.documents == 5
    assert answers
    assert loader.loads == [frozenset({"embed"})]
    own_service.close()


def test_a_worker_that_is_asked_for_nothing_known_leaves_the_work_to_the_command(
    worker: Worker, locations: Locations, environ: dict[str, str]
) -> None:
    assert ask_worker(locations, "dance", {}, environ) is None
