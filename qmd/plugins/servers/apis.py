"""What each kind of model server wants to be asked, and what it answers: one record for each documented interface.

Requests hold only fields that the makers document, for some servers refuse others. Sources, all checked in 2026:
OpenAI https://platform.openai.com/docs/api-reference, Cohere https://docs.cohere.com/reference/embed and `/rerank`,
Jina https://api.jina.ai/openapi.json, Voyage https://docs.voyageai.com/reference, Mixedbread
https://www.mixedbread.com/api-reference, text-embeddings-inference
https://huggingface.github.io/text-embeddings-inference, Ollama https://docs.ollama.com/api, vLLM
https://docs.vllm.ai/en/latest/serving/openai_compatible_server, llama.cpp
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import Struct

AskT = TypeVar("AskT")
AnswerT = TypeVar("AnswerT")
Body = dict[str, Any]
Vector = Sequence[float]


class EmbedAsk(Struct, frozen=True):
    """Texts to embed."""

    model: str
    texts: Sequence[str]
    is_query: bool
    dim: int | None = None
    """Size of vector to ask for; None takes the model's own."""
    truncates: bool = False
    """Whether the server shall cut texts that are too long, where it can."""


class RerankAsk(Struct, frozen=True):
    """Passages to score against a query."""

    model: str
    query: str
    passages: Sequence[str]


class ChatAsk(Struct, frozen=True):
    """A conversation to go on with."""

    model: str
    messages: Sequence[Mapping[str, str]]
    max_tokens: int
    limit_name: str
    """What the server calls the limit: `max_tokens`, or `max_completion_tokens`."""
    sampling: Mapping[str, float]
    """`temperature` and so on; empty for models that refuse them."""


class ChatAnswer(Struct, frozen=True):
    """What a model said."""

    text: str
    is_cut: bool
    """The limit of tokens ended it."""


class Api(Struct, Generic[AskT, AnswerT], frozen=True):
    """One interface for one role."""

    name: str
    """What `api:` calls it."""
    path: str
    """Of the endpoint, behind `version` or behind the base that the user wrote."""
    version: str | None
    """What stands before `path` where the address names no base; None: the endpoint stands at the server's root."""
    endings: tuple[str, ...]
    """Endings of an address that is the whole endpoint."""
    body: Callable[[AskT], Body]
    read: Callable[[Any], AnswerT]
    """Raises KeyError, IndexError, TypeError, ValueError or AttributeError for an answer of another form."""
    is_guessed: bool = False
    """Tried where the address does not say what the server speaks."""
    hosts: tuple[str, ...] = ()
    """Services that speak this."""
    can_truncate: bool = False
    has_kinds: bool = False
    """Queries and documents are told apart by a field, which makes other vectors."""


def _set(body: Body, **optional: object) -> Body:
    """`body` and those of the optional fields that are set."""
    return body | {name: value for name, value in optional.items() if value is not None}


# --- embedding


def _openai_embed(ask: EmbedAsk) -> Body:
    # No encoding_format: floats are what all send without it, and some know only "base64".
    return _set({"model": ask.model, "input": list(ask.texts)}, dimensions=ask.dim)


def _tei_embed(ask: EmbedAsk) -> Body:
    return _set({"inputs": list(ask.texts), "truncate": ask.truncates}, dimensions=ask.dim)


def _ollama_embed(ask: EmbedAsk) -> Body:
    body = {"model": ask.model, "input": list(ask.texts), "truncate": ask.truncates}
    return _set(body, dimensions=ask.dim)


def _cohere_embed(ask: EmbedAsk) -> Body:
    body: Body = {
        "model": ask.model,
        "texts": list(ask.texts),
        "input_type": "search_query" if ask.is_query else "search_document",
        "embedding_types": ["float"],
        "truncate": "END" if ask.truncates else "NONE",
    }
    return _set(body, output_dimension=ask.dim)


def _jina_embed(ask: EmbedAsk) -> Body:
    body: Body = {
        "model": ask.model,
        "input": list(ask.texts),
        "task": "retrieval.query" if ask.is_query else "retrieval.passage",
        "truncate": ask.truncates,
    }
    return _set(body, dimensions=ask.dim)


def _voyage_embed(ask: EmbedAsk) -> Body:
    body: Body = {
        "model": ask.model,
        "input": list(ask.texts),
        "input_type": "query" if ask.is_query else "document",
        "truncation": ask.truncates,
    }
    return _set(body, output_dimension=ask.dim)


def _numbered_vectors(answer: Any) -> list[Vector]:
    """Of OpenAI's form; a bare list of rows, each a list of one vector, is what llama.cpp's `/embeddings` answers."""
    rows = answer["data"] if isinstance(answer, dict) else answer
    return [_floats(row["embedding"]) for row in _in_order(rows)]


def _floats(value: Any) -> Vector:
    if isinstance(value, str):
        return list(map(float, np.frombuffer(base64.b64decode(value, validate=True), "<f4")))
    if len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    return [float(number) for number in value]


def _in_order(rows: Any) -> list[Any]:
    """Rows by their numbers; rows that have none stand in the order of the texts."""
    if all("index" not in row for row in rows):
        return list(rows)
    by_number = {int(row["index"]): row for row in rows}
    if sorted(by_number) != list(range(len(rows))):
        raise ValueError("rows with wrong numbers")
    return [by_number[number] for number in range(len(rows))]


def _plain_vectors(rows: Any) -> list[Vector]:
    if not isinstance(rows, list):
        raise TypeError("no list of vectors")
    return [_floats(row) for row in rows]


EMBED_APIS: tuple[Api[EmbedAsk, list[Vector]], ...] = (
    Api("openai", "/embeddings", "/v1", ("/embeddings",), _openai_embed, _numbered_vectors, is_guessed=True),
    Api("tei", "/embed", None, ("/embed",), _tei_embed, _plain_vectors, is_guessed=True, can_truncate=True),
    Api(
        "ollama",
        "/api/embed",
        None,
        ("/api/embed",),
        _ollama_embed,
        lambda answer: _plain_vectors(answer["embeddings"]),
        can_truncate=True,
    ),
    Api(
        "cohere",
        "/embed",
        "/v2",
        ("/v1/embed", "/v2/embed"),
        _cohere_embed,
        lambda answer: _plain_vectors(answer["embeddings"]["float"]),
        hosts=("api.cohere.com", "api.cohere.ai"),
        can_truncate=True,
        has_kinds=True,
    ),
    Api(
        "jina",
        "/embeddings",
        "/v1",
        (),
        _jina_embed,
        _numbered_vectors,
        hosts=("api.jina.ai",),
        can_truncate=True,
        has_kinds=True,
    ),
    Api(
        "voyage",
        "/embeddings",
        "/v1",
        (),
        _voyage_embed,
        _numbered_vectors,
        hosts=("api.voyageai.com",),
        can_truncate=True,
        has_kinds=True,
    ),
)


# --- reranking


def _cohere_rerank(ask: RerankAsk) -> Body:
    n = len(ask.passages)
    return {"model": ask.model, "query": ask.query, "documents": list(ask.passages), "top_n": n}


def _tei_rerank(ask: RerankAsk) -> Body:
    return {"query": ask.query, "texts": list(ask.passages), "raw_scores": False, "truncate": True}


def _jina_rerank(ask: RerankAsk) -> Body:
    # It sends the documents back unless told not to.
    return _cohere_rerank(ask) | {"return_documents": False}


def _voyage_rerank(ask: RerankAsk) -> Body:
    return {"model": ask.model, "query": ask.query, "documents": list(ask.passages), "truncation": True}


def _mixedbread_rerank(ask: RerankAsk) -> Body:
    n = len(ask.passages)
    return {"model": ask.model, "query": ask.query, "input": list(ask.passages), "top_k": n, "return_input": False}


def _score(ask: RerankAsk) -> Body:
    return {"model": ask.model, "text_1": ask.query, "text_2": list(ask.passages)}


def _scores(answer: Any) -> dict[int, float]:
    """Scores by the number of the passage: in `results` (Cohere, Jina), `data` (Voyage, Mixedbread, vLLM), or bare."""
    rows = answer if isinstance(answer, list) else answer["results" if "results" in answer else "data"]
    scores: dict[int, float] = {}
    for row in rows:
        number = int(row["index"])
        if number in scores:
            raise ValueError("a passage scored twice")
        scores[number] = float(row["relevance_score"] if "relevance_score" in row else row["score"])
    return scores


RERANK_APIS: tuple[Api[RerankAsk, dict[int, float]], ...] = (
    Api(
        "cohere",
        "/rerank",
        "/v1",
        ("/v1/rerank", "/v2/rerank", "/rerank", "/reranking"),
        _cohere_rerank,
        _scores,
        is_guessed=True,
    ),
    Api("tei", "/rerank", None, ("/rerank",), _tei_rerank, _scores, is_guessed=True),
    Api("score", "/score", None, ("/score",), _score, _scores),
    Api("jina", "/rerank", "/v1", (), _jina_rerank, _scores, hosts=("api.jina.ai",)),
    Api("voyage", "/rerank", "/v1", (), _voyage_rerank, _scores, hosts=("api.voyageai.com",)),
    Api("mixedbread", "/reranking", "/v1", (), _mixedbread_rerank, _scores, hosts=("api.mixedbread.com",)),
)


# --- chat


def _openai_chat(ask: ChatAsk) -> Body:
    return {"model": ask.model, "messages": list(ask.messages), ask.limit_name: ask.max_tokens, **ask.sampling}


def _ollama_chat(ask: ChatAsk) -> Body:
    return {
        "model": ask.model,
        "messages": list(ask.messages),
        "stream": False,
        "think": False,
        "options": {"num_predict": ask.max_tokens, **ask.sampling},
    }


def _openai_text(answer: Any) -> ChatAnswer:
    choice = answer["choices"][0]
    return ChatAnswer(_text(choice["message"].get("content")), choice.get("finish_reason") == "length")


def _ollama_text(answer: Any) -> ChatAnswer:
    return ChatAnswer(_text(answer["message"].get("content")), answer.get("done_reason") == "length")


def _text(content: Any) -> str:
    """A message's text; some servers send it in parts, of which thinking is one."""
    if isinstance(content, list):
        return "".join(str(part["text"]) for part in content if part.get("type") == "text")
    return str(content or "")


CHAT_APIS: tuple[Api[ChatAsk, ChatAnswer], ...] = (
    Api("openai", "/chat/completions", "/v1", ("/chat/completions",), _openai_chat, _openai_text, is_guessed=True),
    Api("ollama", "/api/chat", None, ("/api/chat",), _ollama_chat, _ollama_text),
)
