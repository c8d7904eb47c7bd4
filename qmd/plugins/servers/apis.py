"""Request, answer and address of each kind of model server: a row for each interface.

Requests contain only documented fields, because some servers refuse others. Sources, all checked in 2026: OpenAI
https://platform.openai.com/docs/api-reference, Cohere https://docs.cohere.com/reference/embed and `/rerank`, Jina
https://api.jina.ai/openapi.json, Voyage https://docs.voyageai.com/reference, Mixedbread
https://www.mixedbread.com/api-reference, text-embeddings-inference
https://huggingface.github.io/text-embeddings-inference, Ollama https://docs.ollama.com/api, vLLM
https://docs.vllm.ai/en/latest/serving/openai_compatible_server, llama.cpp
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from qmd.errors import ModelError
from qmd.plugins.servers.settings import split_url

Vector = Sequence[float]

_VERSION = re.compile(r"/v\d+$")


class EmbedCall(Struct, frozen=True):
    """Texts to embed."""

    model: str
    texts: Sequence[str]
    is_query: bool
    dim: int | None = None
    """Requested size of a vector; None takes the model's own."""
    truncates: bool = False
    """The server should cut texts that are too long, if it can."""


class RerankCall(Struct, frozen=True):
    """Passages to score against a query."""

    model: str
    query: str
    passages: Sequence[str]

    @property
    def n_passages(self) -> int:
        """Number of requested scores: all."""
        return len(self.passages)


class ChatCall(Struct, frozen=True):
    """A conversation to continue, and the limit of tokens under the server's name for it."""

    model: str
    messages: Sequence[Mapping[str, str]]
    num_predict: int
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    draws: bool = True
    """Send sampling settings; models that think refuse them."""


class ChatAnswer(Struct, frozen=True):
    """A model's answer."""

    text: str
    is_cut: bool
    """The limit of tokens ended it."""


class Slot(NamedTuple):
    """Place in a request for an attribute of the call, or for one of two words by its truth."""

    attribute: str
    yes: object = True
    no: object = False

    def fill(self, call: Struct) -> object:
        """Return the value for this place in a request."""
        value: object = getattr(call, self.attribute)
        return (self.yes if value else self.no) if isinstance(value, bool) else value


class Api(Struct, frozen=True):
    """One interface for one role."""

    name: str
    """Its name in `api:`."""
    path: str
    """Path of the endpoint, after `version` or after the base that the user wrote."""
    version: str | None
    """Prefix of `path` for an address without a base; None: the endpoint is at the server's root."""
    request: Mapping[str, object]
    """Fields of a request; a slot that is None is omitted."""
    rows_at: str = ""
    """Place of the vectors in an answer: names with dots."""
    endings: tuple[str, ...] = ()
    """Endings of an address that is the whole endpoint."""
    is_guessed: bool = False
    """Tried if the address does not show the server's interface."""
    hosts: tuple[str, ...] = ()
    """Services with this interface."""

    def asks_for(self, attribute: str) -> bool:
        """Return whether requests contain this attribute of the call."""
        return any(isinstance(value, Slot) and value.attribute == attribute for value in self.request.values())


def fill_request(template: Mapping[str, object], call: Struct) -> dict[str, object]:
    """Return the body of a request for `call`."""
    body: dict[str, object] = {}
    for name, value in template.items():
        if isinstance(value, Slot):
            value = value.fill(call)
        elif isinstance(value, Mapping):
            value = fill_request(value, call)
        if value is not None:
            body[name] = value
    return body


_MODEL, _TEXTS, _DIM, _CUT = Slot("model"), Slot("texts"), Slot("dim"), Slot("truncates")


# No encoding_format: all send floats without it, and some know only "base64".
_OPENAI_EMBED = {"model": _MODEL, "input": _TEXTS, "dimensions": _DIM}
_OLLAMA_EMBED = {**_OPENAI_EMBED, "truncate": _CUT}
_JINA_EMBED = {**_OLLAMA_EMBED, "task": Slot("is_query", "retrieval.query", "retrieval.passage")}
_TEI_EMBED = {"inputs": _TEXTS, "truncate": _CUT, "dimensions": _DIM}
_VOYAGE_EMBED = {
    "model": _MODEL,
    "input": _TEXTS,
    "input_type": Slot("is_query", "query", "document"),
    "truncation": _CUT,
    "output_dimension": _DIM,
}
_COHERE_EMBED = {
    "model": _MODEL,
    "texts": _TEXTS,
    "input_type": Slot("is_query", "search_query", "search_document"),
    "embedding_types": ["float"],
    "truncate": Slot("truncates", "END", "NONE"),
    "output_dimension": _DIM,
}
_OF_COHERE = ("api.cohere.com", "api.cohere.ai")

EMBED_APIS = (
    Api("openai", "/embeddings", "/v1", _OPENAI_EMBED, "data", ("/embeddings",), is_guessed=True),
    Api("tei", "/embed", None, _TEI_EMBED, "", ("/embed",), is_guessed=True),
    Api("ollama", "/api/embed", None, _OLLAMA_EMBED, "embeddings", ("/api/embed",)),
    Api("cohere", "/embed", "/v2", _COHERE_EMBED, "embeddings.float", ("/v1/embed", "/v2/embed"), hosts=_OF_COHERE),
    Api("jina", "/embeddings", "/v1", _JINA_EMBED, "data", hosts=("api.jina.ai",)),
    Api("voyage", "/embeddings", "/v1", _VOYAGE_EMBED, "data", hosts=("api.voyageai.com",)),
)


def read_vectors(api: Api, answer: Any) -> list[Vector]:
    """Return vectors in the order of the texts, from bare vectors or rows with numbers.

    Raises:
        KeyError, IndexError, TypeError, ValueError, AttributeError: An answer of another form.
    """
    rows = answer
    # llama.cpp's `/embeddings` answers a bare list, whose rows contain a list of one vector each.
    for name in api.rows_at.split(".") if isinstance(answer, dict) else ():
        rows = rows[name]
    if not isinstance(rows, list):
        raise TypeError("no list of vectors")
    if any(isinstance(row, dict) for row in rows):
        rows = [row["embedding"] for row in _sort_rows(rows)]
    return [_floats(row) for row in rows]


def _floats(value: Any) -> Vector:
    if isinstance(value, str):
        return list(map(float, np.frombuffer(base64.b64decode(value, validate=True), "<f4")))
    if len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    return [float(number) for number in value]


def _sort_rows(rows: list[Any]) -> list[Any]:
    """Return rows by their numbers; rows without numbers are in the order of the texts."""
    if all("index" not in row for row in rows):
        return rows
    by_number = {int(row["index"]): row for row in rows}
    if sorted(by_number) != list(range(len(rows))):
        raise ValueError("rows with wrong numbers")
    return [by_number[number] for number in range(len(rows))]


_QUERY, _PASSAGES, _ALL = Slot("query"), Slot("passages"), Slot("n_passages")
_COHERE_RERANK = {"model": _MODEL, "query": _QUERY, "documents": _PASSAGES, "top_n": _ALL}
# By default it sends the documents back.
_JINA_RERANK = {**_COHERE_RERANK, "return_documents": False}
_TEI_RERANK = {"query": _QUERY, "texts": _PASSAGES, "raw_scores": False, "truncate": True}
_VOYAGE_RERANK = {"model": _MODEL, "query": _QUERY, "documents": _PASSAGES, "truncation": True}
_MIXEDBREAD_RERANK = {"model": _MODEL, "query": _QUERY, "input": _PASSAGES, "top_k": _ALL, "return_input": False}
_SCORE = {"model": _MODEL, "text_1": _QUERY, "text_2": _PASSAGES}
_RERANK_ENDINGS = ("/v1/rerank", "/v2/rerank", "/rerank", "/reranking")

RERANK_APIS = (
    Api("cohere", "/rerank", "/v1", _COHERE_RERANK, endings=_RERANK_ENDINGS, is_guessed=True),
    Api("tei", "/rerank", None, _TEI_RERANK, endings=("/rerank",), is_guessed=True),
    Api("score", "/score", None, _SCORE, endings=("/score",)),
    Api("jina", "/rerank", "/v1", _JINA_RERANK, hosts=("api.jina.ai",)),
    Api("voyage", "/rerank", "/v1", _VOYAGE_RERANK, hosts=("api.voyageai.com",)),
    Api("mixedbread", "/reranking", "/v1", _MIXEDBREAD_RERANK, hosts=("api.mixedbread.com",)),
)


def read_scores(api: Api, answer: Any) -> dict[int, float]:
    """Return scores by passage number: in `results` (Cohere, Jina), `data` (Voyage, Mixedbread, vLLM), or bare.

    Raises:
        KeyError, IndexError, TypeError, ValueError, AttributeError: An answer of another form.
    """
    rows = answer if isinstance(answer, list) else answer["results" if "results" in answer else "data"]
    scores: dict[int, float] = {}
    for row in rows:
        number = int(row["index"])
        if number in scores:
            raise ValueError("a passage scored twice")
        scores[number] = float(row["relevance_score"] if "relevance_score" in row else row["score"])
    return scores


DRAWING: Mapping[str, float] = {"temperature": 0.7, "top_p": 0.8, "presence_penalty": 0.5, "seed": 0}
_DRAWING = {name: Slot("draws", value, None) for name, value in DRAWING.items()}
_LIMITS = {name: Slot(name) for name in ("max_tokens", "max_completion_tokens")}
_OPENAI_CHAT = {"model": _MODEL, "messages": Slot("messages"), **_LIMITS, **_DRAWING}
_OLLAMA_CHAT = {
    "model": _MODEL,
    "messages": Slot("messages"),
    "stream": False,
    "think": False,
    "options": {"num_predict": Slot("num_predict"), **_DRAWING},
}

CHAT_APIS = (
    Api("openai", "/chat/completions", "/v1", _OPENAI_CHAT, endings=("/chat/completions",), is_guessed=True),
    Api("ollama", "/api/chat", None, _OLLAMA_CHAT, endings=("/api/chat",)),
)


def read_chat(api: Api, answer: Any) -> ChatAnswer:
    """Return a message, and whether it is whole: among OpenAI's `choices`, or by itself as Ollama's.

    Raises:
        KeyError, IndexError, TypeError, ValueError, AttributeError: An answer of another form.
    """
    choice = answer if api.name == "ollama" else answer["choices"][0]
    content = choice["message"].get("content")
    if isinstance(content, list):
        # Some servers send a text in parts, thinking among them.
        content = "".join(str(part["text"]) for part in content if part.get("type") == "text")
    return ChatAnswer(str(content or ""), "length" in (choice.get("finish_reason"), choice.get("done_reason")))


def endpoints(url: str, api: str | None, apis: Sequence[Api]) -> tuple[tuple[Api, str], ...]:
    """Return interfaces and addresses to try, in that order; only one if the address, its host or `api` decides.

    Args:
        url: Base (`http://host:8000/v1`), host only, or the whole address of an endpoint.
        api: The interface that the user named.
        apis: Those of the role.

    Raises:
        ModelError: The URL is not http(s) or names no host, or no interface has that name.
    """
    parts = split_url(url)
    path = parts.path.rstrip("/")
    named = _known(api, parts.hostname or "", apis)
    paths = _paths_of_endpoint(path, named, apis) or [(one, _join(path, one)) for one in named] or _guesses(path, apis)
    unique = {(one.name, tried): (one, parts._replace(path=tried, fragment="").geturl()) for one, tried in paths}
    return tuple(unique.values())


def _known(api: str | None, host: str, apis: Sequence[Api]) -> list[Api]:
    """Return the interface that the user named, else that of this host's service."""
    if api is None:
        return [one for one in apis if host.lower() in one.hosts]
    named = [one for one in apis if one.name == api.strip().lower()]
    if not named:
        known = ", ".join(f"'{one.name}'" for one in apis)
        raise ModelError(f"no interface of model servers is called '{api}' here", f"one of {known}")
    return named


def _paths_of_endpoint(path: str, named: Sequence[Api], apis: Sequence[Api]) -> list[tuple[Api, str]]:
    """Return the address itself, if it is that of an endpoint."""
    ending = max((ending for one in apis for ending in one.endings if path.endswith(ending)), key=len, default=None)
    if ending is None:
        return []
    return [(one, path) for one in named or [one for one in apis if ending in one.endings]]


def _guesses(path: str, apis: Sequence[Api]) -> list[tuple[Api, str]]:
    guessed = [one for one in apis if one.is_guessed]
    of_ollama = [one for one in apis if path.endswith("/api") and one.path.startswith("/api/")]
    at_root = [(one, _root(path) + one.path) for one in guessed if one.version is not None]
    return [*((one, _join(path, one)) for one in [*of_ollama, *guessed]), *at_root]


def _join(path: str, api: Api) -> str:
    """Return the endpoint under the base that the user wrote."""
    if api.version is None:
        return _root(path) + api.path
    return (path or api.version) + api.path


def _root(path: str) -> str:
    return _VERSION.sub("", path).removesuffix("/api")
