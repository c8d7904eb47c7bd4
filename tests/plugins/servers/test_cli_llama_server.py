"""A real server, llama-cpp-python's, with a small model of random weights: qmd indexes and asks through its command.

Skipped unless it is at hand:

    python -m venv /tmp/llama && /tmp/llama/bin/pip install 'llama-cpp-python[server]' gguf
    QMD_TEST_LLAMA_PYTHON=/tmp/llama/bin/python pytest tests/plugins/servers/test_cli_llama_server.py
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.program import Qmd, Run

PYTHON = os.environ.get("QMD_TEST_LLAMA_PYTHON", "")
START_S = 60.0
QUERY = ("query", "seat pricing interviews", "--json")

pytestmark = pytest.mark.skipif(not PYTHON, reason="set QMD_TEST_LLAMA_PYTHON, see the top of this file")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    subprocess.run([PYTHON, str(Path(__file__).with_name("write_tiny_gguf.py")), str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[str]:
    """Run the server; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PYTHON, "-m", "llama_cpp.server", "--model", str(model), "--embedding", "true", "--n_ctx", "2048"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + START_S
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                    break
            except (URLError, ConnectionError):
                assert process.poll() is None and time.monotonic() < ends, "the server did not start"
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _files(run: Run) -> list[str]:
    assert run.status == 0, run.err
    return [row["file"] for row in run.json]


@pytest.mark.parametrize("base", ["", "/v1", "/v1/embeddings"])
def test_it_embeds(indexed: Qmd, server: str, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_EMBED_MODEL", f"{server}{base}#tiny")
    run = indexed("embed")
    assert run.status == 0 and "warning" not in run.err, run.err
    run = indexed("vsearch", "sliding window limiter", "--json")
    assert len(_files(run)) > 1 and "searched by words" not in run.err


def test_it_expands(indexed: Qmd, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_GENERATE_MODEL", f"{server}/v1#tiny")
    run = indexed(*QUERY, "--expand", "--explain-full")
    assert "pricing.md" in _files(run)[0]
    # Random weights write no typed line; the dropped lines show that the server answered.
    assert "expansion dropped: " in run.err and "expand skipped" not in run.err


def test_it_cannot_rerank_and_keeps_the_fused_order(indexed: Qmd, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed("embed")
    monkeypatch.setenv("QMD_RERANK_MODEL", f"{server}#tiny")
    run = indexed(*QUERY)
    assert "pricing.md" in _files(run)[0]
    assert f"rerank skipped: reranking server '{server}/v1/rerank' answered 404" in run.err
