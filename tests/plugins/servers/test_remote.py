import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.base import Embedder
from qmd.inference.records import ModelChoice
from qmd.inference.settings import EngineSettings
from qmd.plugins.servers import ServerProvider
from qmd.plugins.servers.apis import RERANK_APIS, endpoints
from qmd.plugins.servers.client import DeadlineError, RemoteClient
from qmd.plugins.servers.engines import RemoteEmbedder, RemoteReranker
from qmd.plugins.servers.expander import RemoteExpander, parse_typed_lines
from qmd.plugins.servers.settings import RemoteSettings, is_loopback, remote_settings
from tests.loopback import serve_posts

Answer = tuple[int, Any, dict[str, str]]


@dataclass
class Server:
    """A model server on loopback: `answer` makes status, JSON and headers from a request's path and body."""

    answer: Callable[[str, dict[str, Any]], Answer]
    requests: list[tuple[str, dict[str, Any], Mapping[str, str]]] = field(default_factory=list)
    url: str = ""

    @property
    def settings(self) -> RemoteSettings:
        return RemoteSettings(self.url, "some-model", api_key="secret", timeout_s=5.0)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server(_embeddings)

    def answer(path: str, body: Any, headers: Mapping[str, str]) -> tuple[int, bytes, Mapping[str, str]]:
        state.requests.append((path, body, headers))
        status, answered, more = state.answer(path, body)
        return status, answered if isinstance(answered, bytes) else json.dumps(answered).encode(), more

    with serve_posts(answer) as state.url:
        yield state


def _embeddings(path: str, body: dict[str, Any]) -> Answer:
    rows = [{"index": i, "embedding": [float(len(text)), 1.0, 0.0]} for i, text in enumerate(body["input"])]
    return 200, {"data": rows[::-1]}, {}


def _embedder(server: Server, **changes: Any) -> RemoteEmbedder:
    settings = replace(server.settings, **changes)
    return RemoteEmbedder(RemoteClient(settings, "embedding", sleep=lambda s: None))


def _reranker(server: Server, **changes: Any) -> RemoteReranker:
    settings = replace(server.settings, **changes)
    return RemoteReranker(RemoteClient(settings, "reranking", sleep=lambda s: None))


def test_vectors_come_back_normalised_in_the_order_of_the_texts(server: Server) -> None:
    vectors = _embedder(server).embed_documents(["a", "bbb", "cc"])
    expected = np.array([[1, 1, 0], [3, 1, 0], [2, 1, 0]], float)
    assert np.allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True))
    assert vectors.dtype == np.float32
    path, body, headers = server.requests[0]
    assert path == "/v1/embeddings"
    assert body["model"] == "some-model"
    assert headers["Authorization"] == "Bearer secret"


def test_texts_are_sent_in_batches_with_progress(server: Server) -> None:
    done: list[int] = []
    _embedder(server, batch_size=2).embed_documents(["a"] * 5, done.append)
    assert [len(body["input"]) for _, body, _ in server.requests] == [2, 2, 1]
    assert done == [2, 4, 5]


def test_prompts_are_put_before_documents_and_queries(server: Server) -> None:
    embedder = _embedder(server, document_prompt="passage: ", query_prompt="query: ")
    embedder.embed_documents(["a"])
    embedder.embed_queries(["a"])
    assert [body["input"] for _, body, _ in server.requests] == [["passage: a"], ["query: a"]]


def test_vectors_of_another_size_than_before_are_refused(server: Server) -> None:
    embedder = _embedder(server, dim=4)
    with pytest.raises(ModelError, match="size 3, not 4"):
        embedder.embed_queries(["a"])


def _connected(server: Server, **env: str) -> Embedder:
    environ = {"QMD_EMBED_URL": server.url, "QMD_EMBED_MODEL": server.settings.model, **env}
    return ServerProvider().open_embedder(ModelChoice(), EngineSettings(Path(), env=environ))


def test_connecting_asks_for_the_size_and_the_fingerprint_leaves_the_address_out(server: Server) -> None:
    embedder = _connected(server)
    assert embedder.dim == 3
    moved = replace(server.settings, url="http://elsewhere:1", dim=3)
    elsewhere = RemoteEmbedder(RemoteClient(moved, "embedding"))
    assert elsewhere.fingerprint == embedder.fingerprint
    assert len(embedder.fingerprint) == 16
    other = replace(moved, model="other")
    assert RemoteEmbedder(RemoteClient(other, "embedding")).fingerprint != embedder.fingerprint


def test_estimated_tokens_start_in_order_and_count_ideographs_singly(server: Server) -> None:
    embedder = _embedder(server)
    assert list(embedder.token_starts("ab, 数据库")) == [0, 2, 4, 5, 6]
    assert embedder.token_starts("") == []


@pytest.mark.parametrize("answer", [{"data": [{"index": 0}]}, []])
def test_a_nonsense_answer_is_one_clear_line(server: Server, answer: Any) -> None:
    server.answer = lambda path, body: (200, answer, {})
    with pytest.raises(ModelError) as caught:
        _embedder(server).embed_queries(["a"])
    assert "\n" not in caught.value.message and server.url in caught.value.message


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("vector", "expected"),
    [
        ([0.0, 0.0, 0.0], "answered a vector of zeros"),
        ([float("inf"), 1.0], "answered vectors with values that are not numbers"),
        ([1e300, 1e300], "answered vectors with values that are not numbers"),
        ([10**400, 1.0], "answered without usable vectors"),
        ([1.0] * 200_000, "answered vectors of size 200,000, more than the 8,192 that can be kept"),
        ([1.0] * 7_000_000, "server answers with more than 33,554,432 bytes"),
    ],
    ids=["zeros", "infinite", "overflowing", "huge", "wide", "long"],
)
def test_vectors_that_cannot_be_used_are_refused_at_once(server: Server, vector: list[float], expected: str) -> None:
    raw = json.dumps({"data": [{"index": 0, "embedding": vector}]}).encode()
    server.answer = lambda path, body: (200, raw, {})
    embedder = _embedder(server, dim=None, batch_size=1)
    for embed in (embedder.embed_queries, embedder.embed_documents):
        server.requests.clear()
        with pytest.raises(ModelError) as caught:
            embed(["first", "second"])
        assert expected in caught.value.message and caught.value.hint
        assert {tuple(body["input"]) for _, body, _ in server.requests if "input" in body} == {("first",)}


def _rerank(scores: list[float], key: str = "relevance_score") -> Callable[[str, dict[str, Any]], Answer]:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        rows = [{"index": i, key: scores[i]} for i in range(len(body["documents"]))]
        return 200, {"results": sorted(rows, key=lambda row: -row[key])}, {}

    return answer


def test_scores_come_back_in_the_order_of_the_passages(server: Server) -> None:
    server.answer = _rerank([0.1, 0.9, 0.4])
    assert _reranker(server).score("query", ["a", "b", "c"]) == [0.1, 0.9, 0.4]
    assert server.requests[0][0] == "/v1/rerank"
    assert server.requests[0][1]["documents"] == ["a", "b", "c"]


def test_raw_logits_are_mapped_into_0_to_1(server: Server) -> None:
    server.answer = _rerank([-2.0, 3.0, 0.0])
    scores = _reranker(server).score("query", ["a", "b", "c"])
    assert scores == pytest.approx([1 / (1 + np.exp(2)), 1 / (1 + np.exp(-3)), 0.5])


def test_identical_passages_are_sent_once(server: Server) -> None:
    server.answer = _rerank([0.3, 0.6])
    assert _reranker(server).score("query", ["a", "b", "a"]) == [0.3, 0.6, 0.3]
    assert server.requests[0][1]["documents"] == ["a", "b"]


def test_passages_after_the_deadline_stay_unscored(server: Server) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        time.sleep(0.05 if len(server.requests) == 1 else 1.0)
        return _rerank([0.5, 0.5])(path, body)

    server.answer = answer
    reranker = _reranker(server, batch_size=2)
    scores = reranker.score("query", ["a", "b", "c", "d"], deadline_s=time.monotonic() + 0.5)
    assert scores == [0.5, 0.5, None, None]


def _chat(text: str) -> Callable[[str, dict[str, Any]], Answer]:
    return lambda path, body: (200, {"choices": [{"message": {"content": text}}]}, {})


def test_typed_lines_are_validated_and_other_lines_dropped_with_the_reason(server: Server) -> None:
    server.answer = _chat(
        "<think>hm</think>\nlex: login failure\nvec: best pasta\nSure!\nhyde: A login error is solved so"
    )
    settings = replace(server.settings, model="Qwen3-4B")
    result = RemoteExpander(RemoteClient(settings, "expansion")).expand("login errors", intent="web")
    subqueries = [(item.kind, item.text) for item in result.subqueries]
    assert subqueries == [("lex", "login failure"), ("hyde", "A login error is solved so")]
    assert result.dropped == (("best pasta", "shares no term with the query"), ("Sure!", "is not a typed line"))
    user = server.requests[0][1]["messages"][1]["content"]
    assert "login errors" in user and "web" in user and user.endswith("/no_think")


def test_thinking_that_never_ends_yields_no_lines() -> None:
    assert parse_typed_lines("<think>lex: a\nlex: b") == ([], [])


def test_an_expansion_past_its_deadline_is_empty_with_the_reason(server: Server) -> None:
    settings = server.settings
    expander = RemoteExpander(RemoteClient(settings, "expansion"))
    result = expander.expand("query", deadline_s=time.monotonic() - 1)
    assert result.subqueries == () and "no time" in result.dropped[0][1]
    assert server.requests == []


def test_a_busy_server_is_asked_again_after_the_pause_it_wants(server: Server) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        return (503, {}, {"Retry-After": "2"}) if len(server.requests) < 3 else (200, {"ok": 1}, {})

    server.answer = answer
    waits: list[float] = []
    assert RemoteClient(server.settings, "embedding", sleep=waits.append).post(f"{server.url}/x", {}) == {"ok": 1}
    assert waits == [2.0, 2.0]


def test_pauses_grow_and_the_tries_end(server: Server) -> None:
    server.answer = lambda path, body: (500, {"error": {"message": "out of\nmemory"}}, {})
    waits: list[float] = []
    with pytest.raises(ModelError, match="500: out of memory"):
        RemoteClient(server.settings, "embedding", sleep=waits.append).post(f"{server.url}/x", {})
    assert waits == [0.5, 1.0]
    assert len(server.requests) == 3


def test_a_wrong_key_is_not_tried_again(server: Server) -> None:
    server.answer = lambda path, body: (401, {"error": "bad key"}, {})
    with pytest.raises(ModelError) as caught:
        RemoteClient(server.settings, "embedding").post(f"{server.url}/x", {})
    assert caught.value.hint == "check the API key"
    assert len(server.requests) == 1
    assert "secret" not in caught.value.message


def test_a_redirect_is_not_followed_with_the_key(server: Server) -> None:
    server.answer = lambda path, body: (302, {}, {"Location": "http://127.0.0.1:9/elsewhere"})
    with pytest.raises(ModelError, match="302"):
        RemoteClient(server.settings, "embedding").post(f"{server.url}/x", {})
    assert len(server.requests) == 1


def test_after_three_failures_nothing_is_sent_until_the_rest_is_over(server: Server) -> None:
    server.answer = lambda path, body: (500, {}, {})
    now = [100.0]
    settings = replace(server.settings, retries=0)
    client = RemoteClient(settings, "embedding", sleep=lambda s: None, clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises(ModelError, match="500"):
            client.post(f"{server.url}/x", {})
    with pytest.raises(ModelError, match="next try in 30 s"):
        client.post(f"{server.url}/x", {})
    assert len(server.requests) == 3
    now[0] += 31
    server.answer = lambda path, body: (200, {"ok": 1}, {})
    assert client.post(f"{server.url}/x", {}) == {"ok": 1}
    server.answer = lambda path, body: (500, {}, {})
    for _ in range(2):
        with pytest.raises(ModelError, match="500"):
            client.post(f"{server.url}/x", {})


def test_a_server_that_is_not_there_is_one_clear_line() -> None:
    settings = RemoteSettings("http://127.0.0.1:9", "m", retries=0)
    with pytest.raises(ModelError, match="cannot be reached") as caught:
        RemoteClient(settings, "embedding").post("http://127.0.0.1:9/x", {})
    assert "\n" not in caught.value.message


def test_a_slow_server_meets_the_deadline(server: Server) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        time.sleep(1.0)
        return 200, {}, {}

    server.answer = answer
    with pytest.raises(DeadlineError):
        RemoteClient(server.settings, "embedding").post(f"{server.url}/x", {}, deadline_s=time.monotonic() + 0.1)


def test_offline_only_this_machine_is_asked(server: Server) -> None:
    with pytest.raises(ModelError, match="QMD_OFFLINE"):
        RemoteClient(RemoteSettings("https://models.example.org", "m", is_offline=True), "embedding")
    env = {"QMD_OFFLINE": "1", "QMD_EMBED_URL": server.url}
    settings = remote_settings("embed", "m", env)
    assert settings is not None and settings.is_offline
    assert _connected(server, QMD_OFFLINE="1").dim == 3


def test_loopback_is_told_by_address_or_the_name_localhost() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"))
    assert not any(is_loopback(host) for host in ("10.0.0.1", "localhost.example.org", "::2", ""))


@pytest.mark.parametrize("url", ["", "h:1", "ftp://h", "file:///etc/passwd", "http://", "http://[", "http://u:pw@h"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ModelError) as caught:
        endpoints(url, None, RERANK_APIS)
    assert "pw" not in caught.value.message


def test_the_environment_names_server_model_and_key() -> None:
    env = {"QMD_RERANK_URL": "http://h", "QMD_RERANK_MODEL": "m", "QMD_API_KEY": " k "}
    assert remote_settings("embed", "m", env) is None
    found = remote_settings("rerank", "m", env)
    assert found is not None and (found.url, found.model, found.api_key) == ("http://h", "m", "k")
    with pytest.raises(ModelError, match="without a model") as caught:
        remote_settings("rerank", "", {"QMD_RERANK_URL": "http://h"})
    assert "QMD_RERANK_MODEL" in (caught.value.hint or "")


def test_a_model_written_as_an_address_names_its_server() -> None:
    overrides = EngineSettings(Path(), env={"QMD_EMBED_DIM": "384", "QMD_EMBED_MAX_TOKENS": "90"}).embed_overrides
    found = remote_settings("embed", "https://h/v1#org/name", {"QMD_REMOTE_TIMEOUT": "2.5"}, overrides)
    assert found is not None
    assert (found.url, found.model, found.dim, found.max_tokens) == ("https://h/v1", "org/name", 384, 90)
    assert found.timeout_s == 2.5


@pytest.mark.parametrize("text", ["none", "-1", "0", "inf", "nan"])
def test_a_time_out_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="QMD_REMOTE_TIMEOUT"):
        remote_settings("embed", "http://h#m", {"QMD_REMOTE_TIMEOUT": text})


def test_a_key_in_the_address_is_sent_and_never_shown(server: Server) -> None:
    settings = replace(server.settings, url=f"{server.url}/v1?key=hidden")
    embedder = RemoteEmbedder(RemoteClient(settings, "embedding"))
    embedder.embed_queries(["a"])
    assert server.requests[0][0] == "/v1/embeddings?key=hidden"
    assert "hidden" not in embedder.description.provider


def test_a_query_waits_for_one_time_out_in_all_and_says_what_was_wrong(server: Server) -> None:
    server.answer = lambda path, body: (503, {"error": "overloaded"}, {"Retry-After": "9"})
    with pytest.raises(ModelError, match=r"503: overloaded \(tried for 5 s\)"):
        _embedder(server).embed_queries(["a"])
    assert len(server.requests) == 1
