"""Requests that take too long: the client gets an error, the work stops, and the next request is served."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmd.app import documents
from qmd.app.deadlines import parse_timeout
from qmd.app.index import Index
from qmd.app.queues import AT_ONCE
from qmd.app.records import DocumentText, SkippedDocument
from qmd.errors import DeadlineError, StoreError, UsageError
from qmd.plugins.mcp.guard import AccessPolicy
from qmd.plugins.warm import deadline
from qmd.plugins.warm.deadline import run_with_timeout
from qmd.retrieval.request import SearchRequest
from qmd.store.sqlite.opening import open_reader
from tests.plugins.mcp.test_http import running
from tests.plugins.serving import Loader, open_with

ROOT = Path(__file__).parents[2]
LEXICAL = SearchRequest("rate limiter", mode="lexical")
BOTH = SearchRequest("rate limiter cache flushed")
"""Index of two documents, so that a search reranks."""


@pytest.fixture
def hasty(database: Path, loader: Loader) -> Iterator[Index]:
    """Index with a timeout of half a second per request."""
    with open_with(database, loader) as opened:
        opened.timeout_s = 0.5
        yield opened


def test_the_default_is_two_minutes_and_the_environment_changes_it() -> None:
    assert parse_timeout({}) == 120
    assert parse_timeout({"QMD_REQUEST_TIMEOUT": "5m"}) == 300
    assert parse_timeout({"QMD_REQUEST_TIMEOUT": "off"}) is None
    with pytest.raises(UsageError, match="QMD_REQUEST_TIMEOUT"):
        parse_timeout({"QMD_REQUEST_TIMEOUT": "soon"})


def test_a_search_that_takes_too_long_ends_and_gives_the_models_back(hasty: Index, loader: Loader) -> None:
    block = threading.Event()
    loader.before_scoring = lambda: block.wait(0.7)
    with pytest.raises(DeadlineError, match=r"longer than 0\.5 s"):
        hasty.search(BOTH)
    loader.before_scoring = lambda: None
    assert hasty.search(BOTH).hits


def test_waiting_for_models_ends_at_the_deadline_and_searches_by_words_go_on(hasty: Index, loader: Loader) -> None:
    block, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        block.wait(60)

    loader.before_scoring = hang

    def search() -> None:
        with pytest.raises(DeadlineError):
            hasty.search(BOTH)

    threads = [threading.Thread(target=search) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
        assert begun.acquire(timeout=60)
    with pytest.raises(DeadlineError):
        hasty.search(BOTH)
    assert hasty.search(LEXICAL).hits
    # The request waited for its turn and did not hang itself.
    assert not begun.acquire(blocking=False)
    block.set()
    for thread in threads:
        thread.join(60)


def test_reading_stops_in_the_middle_of_a_statement_and_of_a_loop(database: Path) -> None:
    with open_reader(database) as reader:
        questions = iter([False] * 3)
        reader.stop_when(lambda: next(questions, True))
        with pytest.raises(StoreError, match="interrupted"):
            reader.database.rows("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n")
        questions = iter([False] * 2)
        documents = reader.iter_documents()
        with pytest.raises(StoreError, match="interrupted"):
            list(documents)
        reader.stop_when(None)
        assert len(list(reader.iter_documents())) == 5


@pytest.mark.anyio
async def test_a_client_is_told_even_if_the_work_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "_GRACE_S", 0.1)
    block = threading.Event()
    with pytest.raises(DeadlineError):
        await run_with_timeout(0.1, lambda: block.wait(60))
    block.set()


@pytest.mark.anyio
async def test_over_http_one_gets_a_gateway_timeout(hasty: Index, loader: Loader, policy: AccessPolicy) -> None:
    block = threading.Event()
    loader.before_scoring = lambda: block.wait(0.7)
    async with running(hasty, policy) as client:
        late = await client.post("/query", json={"query": BOTH.text})
        assert (late.status_code, late.json()["error"]) == (504, "the request took longer than 0.5 s")
        assert (await client.get("/health")).status_code == 200


def test_multi_get_leaves_out_what_no_answer_can_hold(hasty: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="at most 1000 names"):
        hasty.multi_get("a.md," * 1001)
    monkeypatch.setattr(documents, "MAX_DOCUMENTS", 3)
    monkeypatch.setattr(documents, "MAX_ANSWER_CHARS", 150)
    found = hasty.multi_get("docs/**")
    assert [type(entry) for entry in found.entries] == [DocumentText, SkippedDocument, DocumentText]
    assert found.problems == ("5 files match, the first 3 are shown: narrow the pattern",)


BUSY = """
import sys, threading
from pathlib import Path
from qmd.config.paths import locate
from qmd.plugins.mcp.guard import AccessPolicy
from qmd.plugins.mcp import http_server
from qmd.plugins.warm.lifecycle import end_process
from qmd.app.index import Index
from qmd.app.opening import open_index

class Busy(Index):
    def overview(self):
        sys.stderr.write("opening\\n")
        return super().overview()
    def search(self, request, listener=None):
        sys.stderr.write("working\\n")
        sys.stderr.flush()
        while True:
            pass

index = open_index(Path(sys.argv[1]), environ={})
index.__class__ = Busy
environ = {"HOME": sys.argv[2]}
http_server.SHUTDOWN_TIMEOUT_S = 1
http_server.run_server(index, locate(None, Path(sys.argv[2]), environ), environ, AccessPolicy("127.0.0.1"))
end_process()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM there")
def test_a_signal_ends_a_server_whose_thread_never_does(database: Path, tmp_path: Path) -> None:
    import http.client

    command = [sys.executable, "-c", BUSY, str(database), str(tmp_path)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "listening" in line)
        port = int(line.split(":")[-1].split("/")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/query", b'{"query": "x"}')
        next(line for line in process.stderr if "working" in line)
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
