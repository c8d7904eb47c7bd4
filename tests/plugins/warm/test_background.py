"""Missing vectors: computed while a server is idle, without delaying requests, and never lost."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from qmd.app import engines as app_engines
from qmd.app.engines import EnginePool
from qmd.app.index import Index
from qmd.app.opening import open_index
from qmd.app.queues import StoppedError
from qmd.cli.app import main
from qmd.errors import AlreadyEmbeddingError, ModelError, NotFoundError
from qmd.inference.base import EngineDescription, Engines
from qmd.plugins.warm.background import VectorWorker
from qmd.store.opening import open_reader
from qmd.store.runs import EmbeddingLock
from tests.fakes import HashingEmbedder
from tests.processes import environment, wait_until

N_NOTES = 200


@dataclass(frozen=True)
class SlowEmbedder(HashingEmbedder):
    """Slow embedder that records the start time of each text."""

    text_s: float = 0.0
    begun: list[float] = field(default_factory=list)
    tier: str = "built-in"

    @property
    def description(self) -> EngineDescription:
        return EngineDescription("embed", "slow", "fp32", self.tier, "cpu")  # type: ignore[arg-type]

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        self.begun.append(time.monotonic())
        time.sleep(self.text_s * len(texts))
        return super().embed_documents(texts, on_progress)


def make_notes(folder: Path) -> Path:
    folder.mkdir()
    for number in range(N_NOTES):
        (folder / f"{number}.md").write_text(f"# Note {number}\n\nWord{number} is all it says.\n", encoding="utf-8")
    return folder


def open_notes(folder: Path, embedder: HashingEmbedder, **settings: bool) -> Index:
    """Return the index of a folder, updated but without vectors, with that model."""
    config = {"collections": {"notes": {"path": str(folder)}}, **settings}
    index = open_index(folder.parent / "index.sqlite", config=config, environ={})
    index._engines = EnginePool(lambda asked, roles: Engines(embedder, None, None), ttl_s=300)
    index.update()
    return index


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return make_notes(tmp_path / "notes")


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let background work start immediately after a request."""
    monkeypatch.setattr("qmd.app.queues.REST_S", 0.0)


def stored_vectors(database: Path) -> int:
    """Count the vectors of an index that may not exist yet."""
    with suppress(NotFoundError), open_reader(database) as reader:
        return reader.status(None).vectors
    return 0


def test_an_idle_server_computes_what_is_missing(notes: Path) -> None:
    with open_notes(notes, HashingEmbedder()) as index:
        worker = VectorWorker(index, start_s=0.0)
        with worker.running():
            wait_until(lambda: index.status().pending_documents == 0)
            wait_until(lambda: not worker.is_busy)
        assert index.status().embedding is None


def test_a_server_that_has_just_started_answers_first(notes: Path) -> None:
    with open_notes(notes, HashingEmbedder()) as index, VectorWorker(index).running():
        time.sleep(0.2)
        assert index.status().vectors == 0


def test_no_text_is_begun_while_a_request_is_answered(notes: Path) -> None:
    embedder = SlowEmbedder(text_s=0.005)
    with open_notes(notes, embedder) as index, VectorWorker(index, start_s=0.0).running():
        wait_until(lambda: len(embedder.begun) > 3)
        with index.reader():
            # The texts that were already started, one per thread, are finished.
            asked = time.monotonic() + 0.05
            time.sleep(0.3)
            assert [moment for moment in embedder.begun if moment > asked] == []
        wait_until(lambda: index.status().pending_documents == 0)


def test_others_see_how_far_a_server_is_and_that_it_is_one(notes: Path) -> None:
    with open_notes(notes, SlowEmbedder(text_s=0.005)) as index, VectorWorker(index, start_s=0.0).running():
        wait_until(lambda: index.status().vectors > 0)
        run = index.status().embedding
        assert run is not None
        assert (run.pid, run.by, run.who) == (os.getpid(), "server", f"a server, process {run.pid}")
        assert run.total > 0


def test_an_embed_command_takes_over_from_a_server(notes: Path) -> None:
    with (
        open_notes(notes, SlowEmbedder(text_s=0.005)) as index,
        open_notes(notes, HashingEmbedder()) as command,
        VectorWorker(index, start_s=0.0).running(),
    ):
        wait_until(lambda: index.status().vectors > 0)
        done = command.embed()
        assert not done.stopped
        assert 0 < done.embedded < N_NOTES
        assert command.status().pending_documents == 0


def test_a_server_leaves_the_work_to_the_process_at_it(notes: Path) -> None:
    embedder = SlowEmbedder()
    with open_notes(notes, embedder) as index, EmbeddingLock(index.path):
        with pytest.raises(AlreadyEmbeddingError):
            index.embed_in_background(lambda: False)
        assert embedder.begun == []


def test_the_end_of_a_server_waits_for_no_vectors_and_leaves_no_text_without(notes: Path) -> None:
    embedder = SlowEmbedder(text_s=0.005)
    with open_notes(notes, embedder) as index:
        with VectorWorker(index, start_s=0.0).running():
            wait_until(lambda: len(embedder.begun) > 40)
            ended = time.monotonic()
        # No work continues after the index is closed.
        n_begun = len(embedder.begun)
        time.sleep(0.1)
        assert len(embedder.begun) == n_begun and embedder.begun[-1] <= ended + 0.5
        status = index.status()
        assert (status.embedding, status.vectors > 0) == (None, True)
        assert status.pending_documents + status.embedded_documents == N_NOTES
        assert not index.embed().stopped
        assert index.status().vectors == N_NOTES


def test_a_stop_while_texts_are_cut_does_not_count_them_as_done(notes: Path) -> None:
    answers = iter([False, False])
    with open_notes(notes, HashingEmbedder()) as index:
        with pytest.raises(StoppedError):
            index.embed_in_background(lambda: next(answers, True))
        assert index.status().pending_documents == N_NOTES
        assert index.status().embedding is None


def test_a_killed_server_loses_at_most_a_slice(notes: Path) -> None:
    program = (
        "from pathlib import Path; import threading; import qmd.app.queues as queues; queues.REST_S = 0.0\n"
        "from qmd.plugins.warm.background import VectorWorker; from tests.plugins.warm import test_background as t\n"
        f"index = t.open_notes(Path({str(notes)!r}), t.SlowEmbedder(text_s=0.01))\n"
        "with VectorWorker(index, start_s=0.0).running(): threading.Event().wait(60)\n"
    )
    database = notes.parent / "index.sqlite"
    process = subprocess.Popen([sys.executable, "-c", program], env=environment(notes.parent))
    wait_until(lambda: stored_vectors(database) > 0)
    process.kill()
    assert process.wait() in (-getattr(signal, "SIGKILL", 9), 1)
    stored = stored_vectors(database)
    with open_notes(notes, HashingEmbedder()) as index:
        assert index.status().embedding is None
        assert index.embed().embedded == N_NOTES - stored
        assert index.status().vectors == N_NOTES


@pytest.mark.parametrize("why", ["configuration", "environment", "memory", "rights"])
def test_nothing_is_computed_where_that_is_forbidden(notes: Path, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "rights" and (os.name == "nt" or os.geteuid() == 0):
        pytest.skip("needs rights that can be taken away")
    embedder = SlowEmbedder()
    with open_notes(notes, embedder, **({"auto_embed": False} if why == "configuration" else {})) as index:
        if why == "environment":
            index._environ["QMD_AUTO_EMBED"] = "0"
        elif why == "memory":
            monkeypatch.setattr(app_engines, "_machine_is_full", lambda: True)
        elif why == "rights":
            index.path.chmod(0o400)
        assert not index.embed_in_background(lambda: False)
        assert embedder.begun == []


def test_an_index_without_a_configuration_is_left_alone(notes: Path) -> None:
    with open_notes(notes, SlowEmbedder()) as index, open_index(index.path, environ={}) as bare:
        assert not bare.embed_in_background(lambda: False)


def test_a_model_server_is_sent_no_texts_before_somebody_began(notes: Path) -> None:
    with open_notes(notes, SlowEmbedder(tier="remote")) as index:
        with pytest.raises(ModelError, match="only on request"):
            index.embed_in_background(lambda: False)
        index.embed()
        (notes / "0.md").write_text("another text")
        index.update()
        assert not index.embed_in_background(lambda: False)
        assert index.status().pending_documents == 0


def test_vectors_of_another_model_are_not_replaced_behind(notes: Path) -> None:
    with open_notes(notes, HashingEmbedder(fingerprint="f" * 16)) as index:
        index.embed()
    (notes / "0.md").write_text("another text")
    with open_notes(notes, HashingEmbedder()) as index, pytest.raises(ModelError, match="another model"):
        index.embed_in_background(lambda: False)


def test_a_failure_is_logged_once(
    notes: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmd.plugins.warm.background.RETRY_S", 0.01)
    with open_notes(notes, HashingEmbedder()) as index, caplog.at_level(logging.WARNING, "qmd.behind"):
        index._engines = EnginePool(lambda asked, roles: Engines(None, None, None, ("no model here",)))
        with VectorWorker(index, start_s=0.0).running():
            time.sleep(0.3)
    line = "missing vectors are not computed: no model here; search by words works; see: qmd doctor"
    assert [record.getMessage() for record in caplog.records] == [line]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority of their own on Linux alone")
def test_only_the_threads_that_compute_have_a_low_priority(notes: Path) -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    seen: list[int] = []
    with open_notes(notes, HashingEmbedder(before=lambda _: seen.append(priority()))) as index:
        assert not index.embed_in_background(lambda: False)
    assert min(seen) >= 10 > priority()


@pytest.fixture
def index_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Run the commands of a user before the start of a server."""

    def index(folder: Path, environ: dict[str, str]) -> None:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        assert main(["index", str(folder), "--no-embed"]) == 0

    return index


_AT_ONCE = (
    "import sys; from qmd.cli.app import main; from qmd.plugins.warm.background import VectorWorker\n"
    "VectorWorker.__init__.__defaults__ = (0.0,)\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


@pytest.mark.parametrize("command", [("mcp",), ("serve", "--port", "0"), ("mcp", "--http", "--socket-only")])
def test_every_server_has_a_worker(tmp_path: Path, command: tuple[str, ...], index_words: Callable[..., None]) -> None:
    folder = tmp_path / "few"
    folder.mkdir()
    (folder / "a.md").write_text("# Tea\n\nGreen tea is steeped at 80 degrees.\n")
    environ = environment(tmp_path, INDEX_PATH=str(tmp_path / "index.sqlite"))
    index_words(folder, environ)
    with subprocess.Popen([sys.executable, "-c", _AT_ONCE, *command], env=environ, stdin=subprocess.PIPE) as process:
        try:
            wait_until(lambda: stored_vectors(tmp_path / "index.sqlite") == 1)
        finally:
            process.terminate()


@pytest.mark.skipif(sys.platform == "win32", reason="the process is asked through a socket")
def test_an_unused_warm_process_ends_with_complete_vectors(tmp_path: Path, index_words: Callable[..., None]) -> None:
    folder = make_notes(tmp_path / "many")
    environ = environment(tmp_path, INDEX_PATH=str(tmp_path / "index.sqlite"), QMD_DAEMON_IDLE="1")
    index_words(folder, environ)
    command = [sys.executable, "-c", _AT_ONCE, "mcp", "--http", "--socket-only"]
    assert subprocess.run(command, env=environ, timeout=120, check=False).returncode == 0
    with open_reader(tmp_path / "index.sqlite") as reader:
        assert reader.status(None).pending_documents == 0
