"""Every documented kind of model server, strict, with every role it has and every fault."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.base import Embedder
from qmd.plugins.servers.apis import CHAT_APIS, EMBED_APIS, RERANK_APIS, endpoints
from qmd.plugins.servers.client import RemoteClient
from qmd.plugins.servers.engines import RemoteEmbedder, RemoteReranker
from qmd.plugins.servers.expander import RemoteExpander
from qmd.plugins.servers.settings import RemoteSettings, remote_settings
from tests.plugins.servers.model_interfaces import DIM, INTERFACES, Answer, word_vector
from tests.plugins.servers.model_server import ModelServer, serve_models

# Kind of server, the user's text after its host, the interface that the user or its host names, and the number of
# requests until it answers: more than one if the address does not show the interface.
EMBEDDERS = (
    ("openai", "", None, 1),
    ("openai", "/v1", None, 1),
    ("openai", "/v1/embeddings", None, 1),
    ("vllm", "", None, 1),
    ("tei", "", None, 1),
    ("tei", "/embed", None, 1),
    ("tei", "", "tei", 1),
    ("ollama", "", None, 1),
    ("ollama", "/api", None, 1),
    ("ollama", "/api/embed", None, 1),
    ("llama.cpp", "/v1", None, 1),
    ("llama.cpp", "/embeddings", None, 1),
    ("infinity", "", None, 3),
    ("cohere", "/v2/embed", None, 1),
    ("cohere", "", "cohere", 1),
    ("cohere", "/v1", "cohere", 1),
    ("jina", "/v1", "jina", 1),
    ("voyage", "/v1", "voyage", 1),
    ("mixedbread", "/v1", None, 1),
)
RERANKERS = (
    ("vllm", "", None, 1),
    ("vllm", "/v1", None, 1),
    ("vllm", "/v2/rerank", None, 1),
    ("vllm", "/rerank", None, 1),
    ("vllm", "/score", None, 1),
    ("vllm", "/v1", "score", 1),
    ("tei", "", None, 2),
    ("tei", "/v1", None, 2),
    ("tei", "/rerank", None, 2),
    ("tei", "", "tei", 1),
    ("llama.cpp", "", None, 1),
    ("llama.cpp", "/rerank", None, 1),
    ("llama.cpp", "/v1/reranking", None, 1),
    ("infinity", "", None, 3),
    ("infinity", "/rerank", None, 1),
    ("cohere", "/v1/rerank", None, 1),
    ("cohere", "/v2", "cohere", 1),
    ("jina", "/v1", "jina", 1),
    ("voyage", "/v1", "voyage", 1),
    ("mixedbread", "/v1", "mixedbread", 1),
)
CHATS = (
    ("openai", "/v1", None, 1),
    ("vllm", "", None, 1),
    ("llama.cpp", "/v1/chat/completions", None, 1),
    ("ollama", "", None, 1),
    ("ollama", "/api", None, 1),
    ("ollama", "/api/chat", None, 1),
)
Served = tuple[str, str, str | None, int]


def _one_of_each(servers: Sequence[Served]) -> list[Served]:
    """Return the first row of each kind of server."""
    return list({one[0]: one for one in reversed(servers)}.values())


@pytest.fixture
def server(served: Served) -> Iterator[ModelServer]:
    with serve_models(served[0]) as running:
        yield running


def _client(server: ModelServer, served: Served, work: str, **changes: Any) -> RemoteClient:
    settings = RemoteSettings(f"{server.url}{served[1]}", "m", served[2], api_key="secret-key", timeout_s=5.0)
    return RemoteClient(replace(settings, **changes), work, sleep=lambda s: None)


def _embedder(server: ModelServer, served: Served, **changes: Any) -> RemoteEmbedder:
    return RemoteEmbedder(_client(server, served, "embedding", **changes))


def _reranker(server: ModelServer, served: Served) -> RemoteReranker:
    return RemoteReranker(_client(server, served, "reranking"))


def _expander(server: ModelServer, served: Served) -> RemoteExpander:
    return RemoteExpander(_client(server, served, "expansion"))


def _unit(text: str, dim: int = DIM) -> npt.NDArray[np.float64]:
    vector = np.array(word_vector(text, dim), np.float64)
    vector /= np.linalg.norm(vector)
    return vector


@pytest.mark.parametrize("served", EMBEDDERS, ids=str)
def test_a_server_embeds_in_the_form_it_wants(server: ModelServer, served: Served) -> None:
    embedder = _embedder(server, served)
    texts = ["a seat", "the price of a seat", "limits"]
    assert np.allclose(embedder.embed_documents(texts), [_unit(text) for text in texts], atol=1e-6)
    assert len(server.requests) == served[3]
    # A discovered interface is not tried again.
    assert np.allclose(embedder.embed_queries(["a seat"]), [_unit("a seat")], atol=1e-6)
    assert len(server.requests) == served[3] + 1
    assert embedder.description.provider == f"{server.url}{server.requests[-1][0]}"


@pytest.mark.parametrize("served", RERANKERS, ids=str)
def test_a_server_reranks_in_the_form_it_wants(server: ModelServer, served: Served) -> None:
    reranker = _reranker(server, served)
    assert reranker.score("seat price", ["a price", "none", "seat price list"]) == [0.5, 0.0, 1.0]
    assert len(server.requests) == served[3]
    reranker.score("seat price", ["one", "two"])
    assert len(server.requests) == served[3] + 1


@pytest.mark.parametrize("served", CHATS, ids=str)
def test_a_server_chats_in_the_form_it_wants(server: ModelServer, served: Served) -> None:
    expander = _expander(server, served)
    assert [item.text for item in expander.expand("seat price").subqueries] == ["how seats are priced"]
    assert len(server.requests) == served[3]


@pytest.mark.parametrize("served", [(kind, *rest) for kind, *rest in EMBEDDERS if kind in ("cohere", "jina", "voyage")])
def test_queries_and_documents_are_told_apart_where_the_server_does(server: ModelServer, served: Served) -> None:
    embedder = _embedder(server, served)
    embedder.embed_documents(["a"])
    embedder.embed_queries(["a"])
    document, query = (body.get("input_type") or body["task"] for _, body, _ in server.requests)
    assert ("document" in document or "passage" in document) and "query" in query


@pytest.mark.parametrize("served", _one_of_each(EMBEDDERS), ids=str)
def test_a_batch_that_is_too_large_is_embedded_in_parts(server: ModelServer, served: Served) -> None:
    server.max_batch = 2
    texts = [f"word{number}" for number in range(7)]
    embedder = _embedder(server, served)
    assert np.allclose(embedder.embed_documents(texts), [_unit(text) for text in texts], atol=1e-6)
    assert embedder.warnings == ()


@pytest.mark.parametrize("served", _one_of_each(EMBEDDERS), ids=str)
def test_a_text_that_is_too_long_is_cut_and_that_is_told(server: ModelServer, served: Served) -> None:
    server.max_chars = 200
    long = "seat " * 100
    embedder = _embedder(server, served)
    vectors = embedder.embed_documents(["price", long, "limit"])
    assert np.allclose(vectors[0], _unit("price"), atol=1e-6) and np.allclose(vectors[2], _unit("limit"), atol=1e-6)
    assert vectors[1] @ _unit("seat") > 0.99
    (warning,) = embedder.warnings
    assert "QMD_EMBED_MAX_TOKENS" in warning and server.url in warning


@pytest.mark.parametrize("served", _one_of_each(RERANKERS), ids=str)
def test_passages_that_are_too_many_or_too_long_are_reranked_in_parts(server: ModelServer, served: Served) -> None:
    server.max_batch, server.max_chars = 2, 200
    scores = _reranker(server, served).score("seat", ["seat " * 100, "none", "a seat", "chair", "table"])
    assert scores == [1.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("served", [("tei", "", None, 1)])
def test_a_text_that_no_cut_makes_short_enough_is_named(server: ModelServer, served: Served) -> None:
    server.misbehave = lambda path, body: (413, {"error": "too large", "error_type": "Validation"})
    with pytest.raises(ModelError, match=r"413: too large \(for a text of \d+ characters: 'The zebra"):
        _embedder(server, served).embed_documents(["The zebra has stripes. " * 20])


@pytest.mark.parametrize("served", _one_of_each(EMBEDDERS), ids=str)
def test_a_size_of_vectors_is_asked_for_where_the_model_has_a_larger_one(server: ModelServer, served: Served) -> None:
    server.dim = 2 * DIM
    vectors = _embedder(server, served, dim=DIM).embed_documents(["a seat", "b"])
    assert np.allclose(vectors[0], _unit("a seat"), atol=1e-6)


def _rows(answer: Any) -> list[Any]:
    """Return the list of vectors or scores in an answer of any form."""
    if isinstance(answer, list):
        return answer
    for name in ("data", "results", "embeddings", "float"):
        if name in answer:
            return _rows(answer[name])
    raise AssertionError(answer)


def _first_number(row: Any, value: Any) -> None:
    if isinstance(row, list):
        row[0] = value
    elif "embedding" in row:
        vector = row["embedding"]
        (vector[0] if isinstance(vector[0], list) else vector)[0] = value
    else:
        row["relevance_score" if "relevance_score" in row else "score"] = value


def _renumbered(rows: list[Any]) -> None:
    if isinstance(rows[0], dict):
        rows[0]["index"] = rows[-1]["index"]
    else:
        rows.pop()


def _changed(change: Callable[[list[Any]], Any]) -> Callable[[Any], Answer]:
    def answer(right: Any) -> Answer:
        copy = json.loads(json.dumps(right))
        change(_rows(copy))
        return 200, copy

    return answer


Fault = tuple[Callable[[Any], Answer], str]

ROW_FAULTS: dict[str, Fault] = {
    "fewer rows than asked": (_changed(lambda rows: rows.pop()), "answered|without usable"),
    "a number twice": (_changed(_renumbered), "without usable|answered"),
    "not a number": (_changed(lambda rows: _first_number(rows[0], float("nan"))), "that are not numbers"),
    "null for a number": (_changed(lambda rows: _first_number(rows[0], None)), "without usable"),
    "words for a number": (_changed(lambda rows: _first_number(rows[0], "high")), "without usable"),
    "no rows": (_changed(lambda rows: rows.clear()), "answered"),
}
"""Faults in the rows of an answer, whose place and form differ among these servers."""

WIRE_FAULTS: dict[str, Fault] = {
    "an empty object": (lambda right: (200, {}), "answered without usable"),
    "an error with status 200": (lambda right: (200, {"error": {"message": "out of memory"}}), "200: out of memory$"),
    "a web page": (lambda right: (200, b"<!doctype html><title>Sign in</title>"), "answers something that is not JSON"),
    "a web page with status 502": (lambda right: (502, b"<html><h1>Bad gateway</h1>"), "answered 502$"),
    "half of the answer": (lambda right: (200, json.dumps(right).encode()[:-9]), "not JSON"),
    "status 500": (lambda right: (500, {"error": "boom"}), "answered 500: boom$"),
    "status 400": (lambda right: (400, {"message": "no such model"}), "answered 400: no such model$"),
    "status 401 that repeats the key": (lambda right: (401, {"detail": "bad key secret-key"}), r"401: bad key \*\*\*$"),
    "status 404 with a reason": (lambda right: (404, {"error": "model 'm' not found"}), "404: model 'm' not found$"),
    "status 422 without a reason": (lambda right: (422, b""), "answered 422"),
}
"""Faults in place of an answer of any form."""

_FORMS = {
    "embed": [one for one in _one_of_each(EMBEDDERS) if one[0] in ("openai", "tei", "llama.cpp", "cohere")],
    "rerank": [one for one in _one_of_each(RERANKERS) if one[0] in ("vllm", "tei", "voyage")],
}
"""Numbered, bare, bare and numbered, below names; in `results`, bare, in `data`."""

_WAYS = {"embed": [("openai", "/v1/embeddings", None, 1), ("tei", "", None, 1)], "rerank": [("infinity", "", None, 3)]}
"""One known address, and guesses."""

_CASES = [
    pytest.param(role, served, fault, id=f"{role} {served[0]} {name}")
    for ways, faults in ((_FORMS, ROW_FAULTS), (_WAYS, WIRE_FAULTS))
    for role, servers in ways.items()
    for served in servers
    for name, fault in faults.items()
]


@pytest.mark.parametrize(("role", "served", "fault"), _CASES)
def test_a_fault_is_a_line_with_server_and_cause(server: ModelServer, served: Served, role: str, fault: Fault) -> None:
    change, expected = fault
    usual = ModelServer(server.kind)

    def misbehave(path: str, body: dict[str, Any]) -> Answer:
        status, right = usual.answer(path, body)
        return change(right) if status == 200 else (status, right)

    server.misbehave = misbehave
    with pytest.raises(ModelError, match=expected) as caught:
        if role == "embed":
            _embedder(server, served).embed_documents(["a seat", "a price", "limits"])
        else:
            _reranker(server, served).score("seat", ["a seat", "a price", "limits"])
    message = caught.value.message
    assert f"{'embedding' if role == 'embed' else 'reranking'} server '{server.url}" in message
    assert "\n" not in message and "<" not in message and "secret-key" not in message
    assert len(server.requests) <= 12


@pytest.mark.parametrize("served", [one for one in CHATS if "/api" not in one[1]], ids=str)
def test_parameters_that_a_chat_model_refuses_are_left_out_from_then_on(server: ModelServer, served: Served) -> None:
    server.thinks = True
    expander = _expander(server, served)
    for _ in range(2):
        assert [item.text for item in expander.expand("seat price").subqueries] == ["how seats are priced"]
    bodies = [body for _, body, _ in server.requests]
    assert ["max_tokens" in body for body in bodies] == [True, False, False, False]
    assert ["temperature" in body for body in bodies] == [True, True, False, False]
    assert "max_completion_tokens" in bodies[-1]


@pytest.mark.parametrize("served", [("vllm", "/v1", None, 1), ("ollama", "/api", None, 1)], ids=str)
def test_a_model_that_thought_up_to_the_limit_gets_a_higher_one(server: ModelServer, served: Served) -> None:
    usual = ModelServer(server.kind, thinks=True)
    server.misbehave = lambda path, body: usual._chat(
        INTERFACES[server.kind].routes[path].answer,  # type: ignore[arg-type]
        {
            "max_completion_tokens": body.get("max_tokens"),
            "options": {"num_predict": body.get("options", {}).get("num_predict")},
        },
    )
    expander = _expander(server, served)
    assert [item.text for item in expander.expand("seat price").subqueries] == ["how seats are priced"]
    assert len(server.requests) == 2


@pytest.mark.parametrize("served", [("vllm", "/v1", None, 1)])
def test_a_model_that_only_thinks_is_told_of(server: ModelServer, served: Served) -> None:
    message = {"content": "<think>What is a seat? lex: hm", "reasoning_content": None}
    server.misbehave = lambda path, body: (200, {"choices": [{"message": message, "finish_reason": "length"}]})
    expansion = _expander(server, served).expand("seat price")
    assert expansion.subqueries == ()
    assert expansion.dropped == (("seat price", "the model thought for 2000 tokens and gave no answer"),)


@pytest.mark.parametrize("served", [("openai", "/v1", None, 1)])
@pytest.mark.parametrize(
    "content",
    [
        "<think>lex: no</think>\nvec: how seats are priced",
        "lex: no\nso it is</think>\nvec: how seats are priced",
        [{"type": "thinking", "thinking": "lex: no"}, {"type": "text", "text": "vec: how seats are priced"}],
    ],
)
def test_thinking_is_no_answer(server: ModelServer, served: Served, content: Any) -> None:
    server.misbehave = lambda path, body: (200, {"choices": [{"message": {"content": content}}]})
    expansion = _expander(server, served).expand("seat price")
    assert [item.text for item in expansion.subqueries] == ["how seats are priced"] and expansion.dropped == ()


@pytest.mark.parametrize(
    ("url", "api", "expected"),
    [
        ("http://h:1", None, ["cohere /v1/rerank", "tei /rerank", "cohere /rerank"]),
        ("http://h:1/", None, ["cohere /v1/rerank", "tei /rerank", "cohere /rerank"]),
        ("http://h:1/v1", None, ["cohere /v1/rerank", "tei /rerank", "cohere /rerank"]),
        ("http://h:1/v1/rerank", None, ["cohere /v1/rerank"]),
        ("http://h:1/rerank", None, ["cohere /rerank", "tei /rerank"]),
        ("http://h:1/rerank", "TEI", ["tei /rerank"]),
        ("http://h:1/v1", "tei", ["tei /rerank"]),
        ("http://h:1/score", None, ["score /score"]),
        ("https://api.jina.ai/v1", None, ["jina /v1/rerank"]),
        ("https://api.voyageai.com", None, ["voyage /v1/rerank"]),
        ("https://api.mixedbread.com/v1/reranking", None, ["mixedbread /v1/reranking"]),
        (
            "https://h/openai/v1/?key=1",
            None,
            ["cohere /openai/v1/rerank", "tei /openai/rerank", "cohere /openai/rerank"],
        ),
    ],
)
def test_the_address_tells_what_a_reranker_may_speak(url: str, api: str | None, expected: list[str]) -> None:
    found = endpoints(url, api, RERANK_APIS)
    host = "/".join(url.split("/")[:3])
    query = "?key=1" if "?" in url else ""
    assert [f"{api.name} {address.removeprefix(host).removesuffix(query)}" for api, address in found] == expected
    assert all(address.startswith(host) and address.endswith(query) for _, address in found)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:11434/api", "ollama http://h:11434/api/embed"),
        ("https://api.cohere.com", "cohere https://api.cohere.com/v2/embed"),
        ("https://api.jina.ai/v1/embeddings", "jina https://api.jina.ai/v1/embeddings"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", None),
    ],
)
def test_the_address_tells_what_an_embedder_may_speak(url: str, expected: str | None) -> None:
    api, address = endpoints(url, None, EMBED_APIS)[0]
    assert f"{api.name} {address}" == (expected or f"openai {url}/embeddings")


def test_ollamas_address_may_also_be_that_of_a_server_below_api() -> None:
    found = endpoints("http://h/api", None, CHAT_APIS)
    assert [address for _, address in found][:2] == ["http://h/api/chat", "http://h/api/chat/completions"]


def test_an_interface_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ModelError, match="called 'vllm'") as caught:
        endpoints("http://h", "vllm", RERANK_APIS)
    assert "'cohere', 'tei', 'score'" in (caught.value.hint or "")


def test_the_interface_is_written_before_the_address_or_into_the_environment() -> None:
    for model, env in (("tei+http://h:1#m", {}), ("http://h:1#m", {"QMD_RERANK_API": "tei"})):
        found = remote_settings("rerank", model, env)
        assert found is not None and (found.url, found.model, found.api) == ("http://h:1", "m", "tei")


def test_the_fingerprint_tells_interfaces_apart_that_make_other_vectors() -> None:
    def fingerprint(api: str | None) -> str:
        embedder: Embedder = RemoteEmbedder(RemoteClient(RemoteSettings("http://h", "m", api, dim=3)))
        return embedder.fingerprint

    assert fingerprint(None) == fingerprint("openai") == fingerprint("tei") == fingerprint("ollama")
    assert len({fingerprint(api) for api in ("openai", "jina", "voyage", "cohere")}) == 4


@pytest.mark.parametrize("served", [("openai", "/v1", None, 1)])
def test_vectors_in_base64_are_read(server: ModelServer, served: Served) -> None:
    usual = ModelServer("openai")
    server.misbehave = lambda path, body: usual.answer(path, {**body, "encoding_format": "base64"})
    assert np.allclose(_embedder(server, served).embed_documents(["a seat"]), [_unit("a seat")], atol=1e-6)


@pytest.mark.parametrize("served", [("tei", "", None, 1)])
def test_half_of_a_character_does_not_stop_a_batch(server: ModelServer, served: Served) -> None:
    assert len(_embedder(server, served).embed_documents(["damaged \ud800 text"])) == 1
