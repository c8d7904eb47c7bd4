"""Warm process and its commands: same results as without it, and no way to break a command."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import uvicorn
from msgspec import json
from msgspec.structs import replace

import qmd
from qmd.app.configuration import IndexConfiguration
from qmd.app.engines import EnginePool
from qmd.app.index import Index
from qmd.app.notices import Notices
from qmd.conditions import Condition
from qmd.config.paths import Locations, locate
from qmd.errors import NotFoundError
from qmd.plugins.histories import project_names
from qmd.plugins.mcp.guard import AccessPolicy
from qmd.plugins.mcp.http_app import build_app
from qmd.plugins.mcp.http_server import TimedServer, prompt_protocol
from qmd.plugins.warm import process as warm_process
from qmd.plugins.warm import remote_index
from qmd.plugins.warm.process import WarmProcess
from qmd.plugins.warm.record import (
    SEARCH_PATH,
    Answer,
    Message,
    WarmRecord,
    connect,
    is_starting,
    make_record,
    read_record,
    warm_files,
    write_record,
)
from qmd.plugins.warm.remote_index import RemoteIndex, may_use_warm_process
from qmd.records import (
    Contribution,
    Explanation,
    FieldFilter,
    Hit,
    LexicalTerm,
    Mention,
    Passage,
    Query,
    Scope,
    SearchResponse,
    StageTiming,
    StoredDocument,
    SubQuery,
    TagFilter,
)
from qmd.retrieval.request import SearchRequest
from qmd.retrieval.trace import CancelledSearch, Listener
from tests.plugins.serving import Loader, make_index
from tests.processes import wait_until
from tests.program import write_notes

ROOT = Path(__file__).resolve().parents[2]
REQUEST = SearchRequest("rate limiter cache flushed", limit=3)
"""Index of two documents, so that a search reranks."""

Environ = dict[str, str]


@pytest.fixture
def environ(tmp_path: Path, database: Path) -> Environ:
    own = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "c"), "INDEX_PATH": str(database)}
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **own}


@pytest.fixture
def locations(tmp_path: Path, environ: Environ) -> Locations:
    return locate(None, tmp_path, environ)


@pytest.fixture
def own_loader() -> Loader:
    """Loader of the command's models, for searches without the warm process."""
    return Loader()


Ask = Callable[..., SearchResponse]


@pytest.fixture
def ask(locations: Locations, environ: Environ, own_loader: Loader) -> Ask:
    """Function that searches as a command does."""

    def search(listener: Listener = Listener(), place: Locations = locations, **variables: str) -> SearchResponse:
        return command_index(place, environ | variables, own_loader).search(REQUEST, listener)

    return search


def command_index(locations: Locations, environ: Environ, loader: Loader) -> RemoteIndex:
    opened = RemoteIndex(locations, IndexConfiguration(locations, Notices()), environ, notices=Notices())
    opened._engines = EnginePool(loader)
    return opened


@contextmanager
def serving(index: Index, locations: Locations, environ: Environ, token: str | None = None) -> Iterator[WarmProcess]:
    """Warm process in a thread; with a token of its policy it serves HTTP as well."""
    warm = WarmProcess(locations, environ)
    app = build_app(index, AccessPolicy("localhost", token=token or warm.token), warm.token)
    server = TimedServer(uvicorn.Config(app, http=prompt_protocol(), log_config=None, lifespan="on"))
    thread = threading.Thread(target=lambda: server.run(sockets=[warm.socket]), daemon=True)
    with warm.published():
        thread.start()
        try:
            yield warm
        finally:
            server.should_exit = True
            thread.join(60)


@pytest.fixture
def warm(index: Index, locations: Locations, environ: Environ) -> Iterator[WarmProcess]:
    with serving(index, locations, environ) as process:
        yield process


@contextmanager
def pretending(locations: Locations, environ: Environ, *sent: bytes, stays: bool = False) -> Iterator[None]:
    """Process that accepts a request, sends these bytes, and then closes the connection or hangs."""
    files = warm_files(locations)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        write_record(files, make_record(environ, listener.getsockname()[1]))

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100_000)
                for part in sent:
                    connection.sendall(part)
                over.wait(60 if stays else 0)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield
        over.set()
        thread.join(60)


def without_timings(response: SearchResponse) -> SearchResponse:
    return replace(response, timings=())


def test_the_answer_equals_that_of_the_command_itself(
    warm: WarmProcess, index: Index, ask: Ask, own_loader: Loader, loader: Loader
) -> None:
    answer = ask()
    assert len(answer.hits) > 1
    assert (own_loader.loads, len(loader.loads)) == ([], 1)
    assert without_timings(answer) == without_timings(index.search(REQUEST))


def test_a_server_that_asks_for_a_token_of_its_own_answers_commands_all_the_same(
    index: Index, locations: Locations, environ: Environ, ask: Ask, own_loader: Loader
) -> None:
    with serving(index, locations, environ, token="s3cret"):
        assert ask().hits
    assert own_loader.loads == []


def test_it_searches_the_sessions_of_the_project_in_which_the_command_runs(
    loader: Loader, environ: Environ, ask: Ask, own_loader: Loader, tmp_path: Path
) -> None:
    (app := tmp_path / "app").mkdir()
    index = make_index(tmp_path / "own.sqlite", app, loader)
    sessions = tmp_path / ".claude/projects" / project_names(app)[0]
    index.ensure_collections([write_notes(sessions, {"s.jsonl": "the cache is flushed"})])
    index.update()
    places = [locate(None, cwd, environ | {"INDEX_PATH": str(index.path)}) for cwd in (app, tmp_path)]
    with serving(index, places[1], environ):
        assert ([len(ask(place=place).hits) for place in places], own_loader.loads) == ([1, 0], [])
        assert not command_index(places[0], environ, own_loader).search(replace(REQUEST, folder="/")).hits


def test_searches_by_words_are_not_asked_for(
    warm: WarmProcess, locations: Locations, environ: Environ, own_loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_index, "connect", None)
    assert command_index(locations, environ, own_loader).search("cache", mode="lexical").hits


def test_a_query_that_json_cannot_say_is_answered_by_the_command(
    warm: WarmProcess, locations: Locations, environ: Environ, own_loader: Loader
) -> None:
    command_index(locations, environ, own_loader).search("rate limiter \ud800 cache flushed")
    assert own_loader.loads


def test_every_field_of_a_response_survives() -> None:
    document = StoredDocument(1, "c", "p.md", "T", "ab" * 32, "2026-01-01T00:00:00Z", 3, {"tags": ("x", "y"), "n": 1})
    explanation = Explanation(
        (Contribution("bm25", "lex", "q", None, 1.0, 2.0, 0.5),),
        1,
        0.5,
        None,
        0.25,
        0.125,
        1,
        0.2,
        {"q": "title"},
        True,
    )
    hit = Hit(document, 0.5, Passage("text\nline", 3, 4, 3, 2, 0), None, "body", explanation, ("qmd://d/p.md",))
    named = replace(hit, mention=Mention(document, 1, "m"), continues=Mention(document, 2, "l"))
    conditions = (TagFilter("x", True), FieldFilter(Condition("eq", "a", 1)))
    query = Query("q", (SubQuery("lex", "q", 2),), "why", Scope(("c",), "p", conditions))
    details = ((SubQuery("vec", "v"),), (("t", "r"),), (StageTiming("s", 1.5),), ("m",))
    terms = (LexicalTerm("q", '"q"', required=True),)
    found = Answer(SearchResponse(query, (hit, named), "weak", ("careful",), *details, terms))
    assert json.decode(json.encode(found), type=Message) == found


class Stages(Listener):
    """Listener that records the stages, and disconnects at one of them."""

    def __init__(self, goes_at: str = "") -> None:
        self.heard: list[str] = []
        self._goes_at = goes_at

    @property
    def is_cancelled(self) -> bool:
        return self._goes_at in self.heard

    def stage(self, name: str, /) -> None:
        self.heard.append(name)


def test_stages_arrive_as_they_begin(warm: WarmProcess, ask: Ask) -> None:
    listener = Stages()
    ask(listener)
    assert listener.heard[:2] == ["loading models", "searching"]
    assert "reranking" in listener.heard


def test_errors_come_back_as_themselves(
    warm: WarmProcess, locations: Locations, environ: Environ, own_loader: Loader, index: Index
) -> None:
    with pytest.raises(NotFoundError) as cold:
        index.search("cache", collections="dosc")
    with pytest.raises(NotFoundError) as raised:
        command_index(locations, environ, own_loader).search("cache", collections="dosc")
    assert (raised.value.message, raised.value.hint) == (cold.value.message, cold.value.hint)
    assert raised.value.hint
    assert own_loader.loads == []


def test_after_a_failure_the_command_searches(warm: WarmProcess, ask: Ask, loader: Loader, own_loader: Loader) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    loader.before_scoring = fail
    assert ask().hits
    assert own_loader.loads


class Abandoned:
    """Search that runs until its client disconnects."""

    def __init__(self) -> None:
        self.has_begun, self.was_cancelled = threading.Event(), threading.Event()
        self.listener = Listener()

    def wait_until_gone(self) -> None:
        self.has_begun.set()
        wait_until(lambda: self.listener.is_cancelled)


@pytest.fixture
def abandoned(index: Index, loader: Loader, monkeypatch: pytest.MonkeyPatch) -> Abandoned:
    """Intercept the next search of the warm process."""
    watched, search = Abandoned(), index.search

    def watch(request: SearchRequest, listener: Listener) -> SearchResponse:
        watched.listener = listener
        try:
            return search(request, listener)
        except CancelledSearch:
            watched.was_cancelled.set()
            raise

    monkeypatch.setattr(index, "search", watch)
    loader.before_scoring = watched.wait_until_gone
    return watched


def test_a_search_ends_when_its_listener_goes(
    warm: WarmProcess, ask: Ask, abandoned: Abandoned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_process, "HEARTBEAT_S", 0.05)
    with pytest.raises(CancelledSearch):
        ask(Stages(goes_at="reranking"))
    assert abandoned.was_cancelled.wait(60)


@pytest.mark.skipif(sys.platform == "win32", reason="interrupted by signal")
def test_an_interrupted_command_ends_its_search(warm: WarmProcess, environ: Environ, abandoned: Abandoned) -> None:
    command = [sys.executable, "-m", "qmd", "query", "rate limiter cache flushed"]
    with subprocess.Popen(
        command,
        env=environ,
        cwd=environ["HOME"],
        stderr=subprocess.PIPE,
        # A job of the background, as these tests may be, ignores interrupts, and so would the command.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert abandoned.has_begun.wait(60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert abandoned.was_cancelled.wait(60)


def test_a_search_that_takes_long_is_no_hang(
    warm: WarmProcess, ask: Ask, loader: Loader, own_loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_process, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(remote_index, "_SILENCE_S", 1.0)
    loader.before_scoring = lambda: time.sleep(1.5)
    assert ask().hits
    assert own_loader.loads == []


def test_strangers_get_nothing(warm: WarmProcess, locations: Locations, environ: Environ, ask: Ask) -> None:
    files = warm_files(locations)
    record = read_record(files)
    assert record is not None and record.address is not None
    if sys.platform != "win32":
        # If the path is too long for a socket, a port replaces it.
        assert [file for file in (files.record, files.socket) if file.exists() and file.stat().st_mode & 0o077] == []
    body = json.encode(REQUEST)
    for path in (SEARCH_PATH, "/query", "/health", "/mcp"):
        for token, host, status in (("wrong", "localhost", b"401"), (record.token, "evil.example", b"403")):
            with connect(record.address, 60) as connection:
                head = f"POST {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                assert connection.recv(1000).split()[1] == status
    write_record(files, replace(record, token="another"))
    assert ask().hits


@pytest.mark.parametrize("body", [b"{", b'"text"', b"[" * 100_000, b"[]", b'{"text":"x","limit":"y"}', b"\xff"])
def test_requests_of_another_shape_are_turned_away(warm: WarmProcess, locations: Locations, body: bytes) -> None:
    record = read_record(warm_files(locations))
    assert record is not None and record.address is not None
    with connect(record.address, 60) as connection:
        head = f"POST {SEARCH_PATH} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {record.token}\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert connection.recv(1000).split()[1] == b"400"


def test_a_search_that_had_no_time_to_load_models_leaves_them_to_the_next(
    warm: WarmProcess, locations: Locations, environ: Environ, own_loader: Loader, loader: Loader
) -> None:
    hasty = replace(REQUEST, budget_ms=600, overhead_ms=100)
    answer = command_index(locations, environ, own_loader).search(hasty)
    assert any("budget" in warning for warning in answer.warnings)
    wait_until(lambda: loader.loads)
    answer = command_index(locations, environ, own_loader).search(hasty)
    assert not any("loading models" in warning for warning in answer.warnings)
    assert (len(loader.loads), own_loader.loads) == (1, [])


def test_the_environment_decides_whether_it_is_asked(locations: Locations, environ: Environ) -> None:
    assert not may_use_warm_process(locations, environ)
    assert may_use_warm_process(locations, environ | {"QMD_DAEMON": "auto"})
    write_record(warm_files(locations), make_record(environ, 1))
    assert may_use_warm_process(locations, environ)
    assert not may_use_warm_process(locations, environ | {"QMD_DAEMON": "off"})


def test_one_of_another_environment_is_neither_believed_nor_replaced(
    warm: WarmProcess, locations: Locations, ask: Ask, own_loader: Loader, loader: Loader
) -> None:
    before = read_record(warm_files(locations))
    assert ask(QMD_FORCE_CPU="1", QMD_DAEMON="auto").hits
    assert ask(QMD_TRUST_LOCAL_CONFIG="1").hits
    assert (len(own_loader.loads), loader.loads) == (2, [])
    assert read_record(warm_files(locations)) == before


def test_one_of_another_version_is_not_asked(
    warm: WarmProcess, locations: Locations, ask: Ask, own_loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qmd, "__version__", "0.0.0")
    assert ask().hits
    assert own_loader.loads


@pytest.mark.parametrize("record", ["", "{", "{}", "[1]", '{"pid":1,"token":"x","version":"y"}', "null"])
def test_a_damaged_record_is_none(locations: Locations, ask: Ask, record: str) -> None:
    locations.cache.mkdir(parents=True)
    warm_files(locations).record.write_text(record, encoding="utf-8")
    assert ask().hits


def test_a_dead_one_is_none(locations: Locations, environ: Environ, ask: Ask) -> None:
    for address in (str(warm_files(locations).socket), 1, None):
        write_record(warm_files(locations), make_record(environ, address))
        assert ask().hits


BEGIN = b"HTTP/1.0 200 OK\r\nserver: x\r\n\r\n\n"


@pytest.mark.parametrize(
    "sent",
    [
        *(b"", b"HTT", b"HTTP/1.0 500 Oops\r\n\r\n", b"\xff\n", BEGIN),
        *(BEGIN + b'{"type":"Answer","resp', BEGIN + b"5\n"),
        *(BEGIN + b'{"type":"Answer","response":{}}\n', BEGIN + b'{"type":"Path"}\n', BEGIN + b"[" * 100_000 + b"\n"),
    ],
)
def test_one_that_dies_while_it_works_or_answers_nonsense_is_none(
    locations: Locations, environ: Environ, ask: Ask, own_loader: Loader, sent: bytes
) -> None:
    with pretending(locations, environ, sent):
        assert ask().hits
    assert own_loader.loads


@pytest.mark.parametrize("sent", [b"", BEGIN, BEGIN + b'{"type":"Stage","name":"searching"}\n'])
def test_one_that_hangs_is_none(
    locations: Locations, environ: Environ, ask: Ask, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_index, "_CONNECT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(remote_index, "_SILENCE_S", 0.2)
    with pretending(locations, environ, sent, stays=True):
        assert ask().hits


def test_it_serves_a_port_where_the_socket_path_is_too_long(
    index: Index, tmp_path: Path, environ: Environ, ask: Ask, own_loader: Loader
) -> None:
    place = locate(None, tmp_path, environ | {"XDG_CACHE_HOME": str(tmp_path / ("x" * 120))})
    with serving(index, place, environ):
        record = read_record(warm_files(place))
        assert record is not None and isinstance(record.address, int)
        assert ask(place=place).hits
    assert own_loader.loads == []


def test_asking_imports_nothing_heavy() -> None:
    heavy = {"numpy", "onnxruntime", "mcp", "pydantic", "apsw", "rich", "typer", "subprocess", "asyncio"}
    heavy |= {"dataclasses", "http.client", "secrets"}
    imports = "sys, socket, qmd.plugins.warm.remote_index"
    code = f"import {imports}; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_it_ends_when_idle_for_long_without_its_index_or_replaced(
    locations: Locations, environ: Environ, tmp_path: Path
) -> None:
    place = replace(locations, database=tmp_path / "own.sqlite")
    place.database.touch()
    process = WarmProcess(place, environ | {"QMD_DAEMON_IDLE": "1m"})
    with process.socket, ExitStack() as later:
        with process.published():
            assert (process.may_end(0.0), process.may_end(59.0), process.may_end(61.0)) == (False, False, True)
            place.database.unlink()
            assert process.may_end(0.0)
            place.database.touch()
            assert not process.may_end(0.0)
            successor = WarmProcess(place, environ)
            later.enter_context(successor.socket)
            later.enter_context(successor.published())
            assert process.may_end(0.0) and not successor.may_end(0.0)
        # The successor's files stay.
        assert may_use_warm_process(place, environ) and not successor.may_end(0.0)
        later.close()
        assert not may_use_warm_process(place, environ)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that were started in the background."""
    processes: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **named: object) -> None:
            super().__init__(command, **named)  # type: ignore[call-overload]
            processes.append(self)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def wait_for_address(locations: Locations, process: subprocess.Popen[bytes]) -> WarmRecord:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        record = read_record(warm_files(locations))
        if record is not None and record.pid == process.pid:
            return record
        time.sleep(0.02)
    raise AssertionError(warm_files(locations).log.read_text(encoding="utf-8"))


def test_ten_commands_at_once_start_one_which_serves_the_next_and_ends_unused(
    locations: Locations, ask: Ask, own_loader: Loader, started: list[subprocess.Popen[bytes]]
) -> None:
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda _: ask(QMD_DAEMON="auto", QMD_DAEMON_IDLE="2"), range(10)))
    assert all(answer.hits for answer in answers)
    (process,) = started
    wait_for_address(locations, process)
    own_loader.loads.clear()
    assert {hit.document.path for hit in ask(QMD_DAEMON="auto").hits} == {"a.md", "sub/b.md"}
    assert own_loader.loads == []
    assert process.wait(60) == 0
    assert not warm_files(locations).record.exists() and not warm_files(locations).socket.exists()


def test_a_killed_one_is_replaced_and_one_of_another_version_too(
    locations: Locations, ask: Ask, own_loader: Loader, started: list[subprocess.Popen[bytes]]
) -> None:
    auto = {"QMD_DAEMON": "auto"}
    ask(**auto)
    wait_for_address(locations, started[0])
    started[0].kill()
    assert ask(**auto).hits
    record = wait_for_address(locations, started[1])
    write_record(warm_files(locations), replace(record, version="0.0.0"))
    assert ask(**auto).hits
    wait_for_address(locations, started[2])
    # It detects that another process has replaced it.
    assert started[1].wait(60) == 0
    # Even a process that ends immediately after its publication ends in order.
    started[2].terminate()
    assert started[2].wait(60) == 0
    assert not warm_files(locations).record.exists()


def test_a_failed_start_is_not_repeated(locations: Locations, ask: Ask, started: list[subprocess.Popen[bytes]]) -> None:
    for _ in range(3):
        assert ask(QMD_DAEMON="auto", QMD_DAEMON_IDLE="soon").hits
    (process,) = started
    assert process.wait(60) == 2
    assert "QMD_DAEMON_IDLE" in warm_files(locations).log.read_text(encoding="utf-8")


def test_a_start_that_failed_before_the_clock_went_back_hinders_no_other(
    locations: Locations, environ: Environ
) -> None:
    files = warm_files(locations)
    write_record(files, make_record(environ, None))
    assert is_starting(files, read_record(files))
    os.utime(files.record, (2**32, 2**32))
    assert not is_starting(files, read_record(files))
