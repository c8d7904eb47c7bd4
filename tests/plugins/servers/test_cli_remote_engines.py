"""Model servers through the whole program: `qmd embed` and `qmd query` with each role on a server, and failing."""

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.plugins.servers.model_interfaces import Answer
from tests.plugins.servers.model_server import Body, ModelServer, serve_models
from tests.program import Qmd, Run

QUERY = ("query", "seat pricing interviews", "--json")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serve_models() as running:
        yield running


@pytest.fixture
def remote(indexed: Qmd, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Qmd:
    """Return the program with its embedder on the server, everything embedded."""
    monkeypatch.setenv("QMD_EMBED_MODEL", f"{server.url}/v1#word-counts")
    monkeypatch.setenv("QMD_REMOTE_TIMEOUT", "0.5")
    run = indexed("embed")
    assert run.status == 0, run.err
    return indexed


def _paths(run: Run) -> list[str]:
    assert run.status == 0, run.err
    return [row["file"] for row in run.json]


def test_embedding_and_search_go_to_the_server(remote: Qmd, server: ModelServer) -> None:
    assert sum(len(body["input"]) for body in server.asked("/embeddings")) >= 4
    run = remote("vsearch", "sliding window limiter", "--json")
    assert "sunday.md" in _paths(run)[0]
    assert run.err == ""
    assert {body["model"] for body in server.asked("/embeddings")} == {"word-counts"}


def test_reranking_goes_to_the_server(remote: Qmd, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_RERANK_URL", server.url)
    monkeypatch.setenv("QMD_RERANK_MODEL", "overlap")
    assert "pricing.md" in _paths(remote(*QUERY))[0]
    (asked,) = server.asked("/rerank")
    assert asked["model"] == "overlap" and asked["query"] == QUERY[1]


def test_expansion_goes_to_the_server_and_is_explained(
    remote: Qmd, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QMD_GENERATE_MODEL", f"{server.url}#writer")
    server.expansion = "lex: seat price\nThinking about it\nhyde: Buy our cheap watches now, limited offer.\n"
    run = remote("query", "seat pricing interviews", "--expand", "--explain-full")
    assert run.status == 0
    assert len(server.asked("/chat/completions")) == 1
    assert "expansion: lex: seat price\n" in run.err
    # A cold call loads the other models, and reports the time.
    assert re.search(r"^time: load \d+ ms, lexical \d+ ms, expand \d+ ms", run.err, re.MULTILINE)
    assert "expansion dropped: 'Thinking about it': is not a typed line\n" in run.err
    assert "expansion dropped: 'Buy our cheap watches now, limited offer.'" in run.err


def test_the_configuration_may_name_a_server_and_the_key_stays_in_the_environment(
    indexed: Qmd, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config" / "qmd" / "index.yml"
    text = config.read_text("utf-8")
    config.write_text(f"{text}models:\n  embed:\n    url: {server.url}/v1\n    model: word-counts\n", "utf-8")
    monkeypatch.setenv("QMD_API_KEY", "secret-key")
    run = indexed("embed")
    assert run.status == 0, run.err
    assert {key for _, _, key in server.requests} == {"Bearer secret-key"}
    assert "secret-key" not in run.out + run.err


def test_doctor_tries_the_server(remote: Qmd, server: ModelServer) -> None:
    shown = remote("doctor").out
    assert f"word-counts remote (remote, {server.url}/v1/embeddings)" in shown
    server.misbehave = lambda path, body: (401, {"error": {"message": "no key"}})
    shown = remote("doctor").out
    assert "401: no key" in shown and "check the API key" in shown


def _one_warning(run: Run, *parts: str) -> None:
    assert "Traceback" not in run.err
    warnings = [line for line in run.err.splitlines() if all(part in line for part in parts)]
    assert len(warnings) == 1, run.err


Misbehaviour = Callable[[str, Body], Answer | None]
FAILURES: dict[str, tuple[dict[str, str], Misbehaviour, tuple[str, ...]]] = {
    # case: variables, the server's answer, the only warning
    "the server fails": (
        {}, lambda path, body: (500, {"error": {"message": "out of memory"}}), ("500: out of memory",)
    ),
    "the server is gone": (
        {"QMD_EMBED_MODEL": "http://127.0.0.1:9/v1#word-counts"}, lambda path, body: None, ("cannot be reached",)
    ),
    "vectors have another size": (
        {"QMD_EMBED_DIM": "32"},
        lambda path, body: (400, {"message": "no such sizes"}) if "dimensions" in body else None,
        ("size 48, not 32",),
    ),
    "the reranker fails": (
        {"QMD_RERANK_MODEL": "{url}#overlap"},
        lambda path, body: (500, {"error": "boom"}) if path.endswith("/rerank") else None,
        ("rerank skipped", "500: boom"),
    ),
    "the expander fails": (
        {"QMD_GENERATE_MODEL": "{url}#writer"},
        lambda path, body: (200, {"nothing": 1}) if path.endswith("completions") else None,
        ("expand skipped", "answered without a message"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_is_one_warning_and_the_rest_still_answers(
    remote: Qmd, server: ModelServer, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    variables, server.misbehave, parts = FAILURES[case]
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(url=server.url))
    server.dim = 48 if "QMD_EMBED_DIM" in variables else server.dim
    run = remote(*QUERY, *(["--expand"] if "QMD_GENERATE_MODEL" in variables else []))
    assert "pricing.md" in _paths(run)[0]
    _one_warning(run, *parts)


def test_a_server_that_does_not_answer_leaves_the_words(remote: Qmd, server: ModelServer) -> None:
    gate = threading.Event()

    def hang(path: str, body: Body) -> None:
        gate.wait(10)

    server.misbehave = hang
    try:
        run = remote(*QUERY)
    finally:
        gate.set()
    assert "pricing.md" in _paths(run)[0]
    _one_warning(run, "word-counts", "0.5 s")


@pytest.mark.parametrize("vector", [[0.0] * 8, [1.0] * 200_000], ids=["zeros", "wide"])
def test_vectors_that_cannot_be_kept_are_one_line_before_any_note_is_sent(
    indexed: Qmd, server: ModelServer, vector: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QMD_EMBED_MODEL", f"{server.url}/v1#broken")

    def misbehave(path: str, body: Body) -> Answer:
        return 200, {"data": [{"index": at, "embedding": vector} for at, _ in enumerate(body["input"])]}

    server.misbehave = misbehave
    run = indexed("embed")
    assert run.status == 4
    assert run.err.startswith("error: embedding model ") and len(run.err.splitlines()) == 2
    assert all(body["input"] == ["size"] for body in server.asked("/embeddings"))
    assert indexed("status", "--json").json["vectors"] == 0


@pytest.mark.parametrize("command", [("embed",), ("index",)])
def test_embedding_with_a_failing_server_is_status_4_and_keeps_the_words(
    remote: Qmd, server: ModelServer, notes: Path, command: tuple[str, ...]
) -> None:
    (notes / "new.md").write_text("# Zebra\n\nA zebra has stripes.\n")
    remote("update")
    server.misbehave = lambda path, body: (500, {"error": "boom"})
    run = remote(*command)
    assert run.status == 4
    assert [line for line in run.err.splitlines() if line.startswith("error: ")] != []
    assert "500: boom" in run.err and "Traceback" not in run.err
    assert "new.md" in _paths(remote("search", "zebra", "--json"))[0]


def test_offline_use_sends_nothing_to_another_machine(indexed: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_EMBED_MODEL", "http://models.example/v1#m")
    monkeypatch.setenv("QMD_OFFLINE", "1")
    run = indexed("embed")
    assert run.status == 4
    assert "QMD_OFFLINE is set" in run.err
