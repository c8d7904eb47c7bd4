"""The documented interfaces of model servers, for tests: each refuses unknown fields, wrong types and wrong paths.

Sources: OpenAI `openapi.yaml` of github.com/openai/openai-openapi; Cohere `cohere-openapi.yaml` of
github.com/cohere-ai/cohere-developer-experience; Jina api.jina.ai/openapi.json; Voyage docs.voyageai.com/reference;
Mixedbread mixedbread.com/api-reference/endpoints/reranking; text-embeddings-inference `docs/openapi.json` and the
status codes in `router/src/http/server.rs` of github.com/huggingface/text-embeddings-inference; Ollama
`docs/openapi.yaml` of github.com/ollama/ollama; vLLM `vllm/entrypoints/pooling/{embed,scoring}/protocol.py` of
github.com/vllm-project/vllm; llama.cpp `tools/server/README.md` of github.com/ggml-org/llama.cpp; Infinity
github.com/michaelfeil/infinity.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

DIM = 32
Answer = tuple[int, Any]
Positive = Annotated[int, Meta(ge=1)]


class Strict(Struct, forbid_unknown_fields=True):
    """A request: the documented fields that are sent to servers of its kind, and no other."""


class Message(Strict):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str


class OpenAIEmbeddings(Strict):
    model: str
    input: str | list[str]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Positive | UnsetType = UNSET
    user: str | UnsetType = UNSET


class JinaEmbeddings(Strict):
    model: str
    input: list[str]
    task: Literal["retrieval.query", "retrieval.passage", "text-matching", "classification", "separation"]
    dimensions: Positive | UnsetType = UNSET
    truncate: bool = False


class VoyageEmbeddings(Strict):
    model: str
    input: str | list[str]
    input_type: Literal["query", "document"] | None = None
    truncation: bool = True
    output_dimension: Literal[256, 512, 1024, 2048, 32] | None = None


class CohereEmbed(Strict):
    model: str
    input_type: Literal["search_document", "search_query", "classification", "clustering", "image"]
    texts: list[str]
    embedding_types: list[Literal["float", "int8", "uint8", "binary", "ubinary"]]
    truncate: Literal["NONE", "START", "END"] = "END"
    max_tokens: Positive | UnsetType = UNSET
    output_dimension: Positive | UnsetType = UNSET


class TeiEmbed(Strict):
    inputs: str | list[str]
    truncate: bool | None = False
    dimensions: Positive | None = None


class OllamaEmbed(Strict):
    model: str
    input: str | list[str]
    truncate: bool = True
    dimensions: Positive | UnsetType = UNSET
    options: dict[str, float] | UnsetType = UNSET


class CohereRerank1(Strict):
    model: str
    query: str
    documents: list[str]
    top_n: Positive | UnsetType = UNSET
    return_documents: bool = False


class CohereRerank2(Strict):
    model: str
    query: str
    documents: list[str]
    top_n: Positive | UnsetType = UNSET


class JinaRerank(Strict):
    model: str
    query: str
    documents: list[str]
    top_n: Positive | UnsetType = UNSET
    return_documents: bool = True


class VllmRerank(Strict):
    query: str
    documents: list[str]
    model: str | None = None
    top_n: int = 0
    user: str | None = None


class VllmScore(Strict):
    text_1: str | list[str]
    text_2: str | list[str]
    model: str | None = None


class TeiRerank(Strict):
    query: str
    texts: list[str]
    raw_scores: bool = False
    truncate: bool | None = False


class VoyageRerank(Strict):
    query: str
    documents: list[str]
    model: str
    top_k: Positive | None = None
    return_documents: bool = False
    truncation: bool = True


class MixedbreadRerank(Strict):
    model: str
    query: str
    input: list[str]
    top_k: Positive | UnsetType = UNSET
    return_input: bool = False


class OpenAIChat(Strict):
    model: str
    messages: list[Message]
    max_tokens: Positive | UnsetType = UNSET
    max_completion_tokens: Positive | UnsetType = UNSET
    temperature: Annotated[float, Meta(ge=0, le=2)] | UnsetType = UNSET
    top_p: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | UnsetType = UNSET
    seed: int | UnsetType = UNSET


class OllamaOptions(Strict):
    num_predict: int | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    top_p: float | UnsetType = UNSET
    presence_penalty: float | UnsetType = UNSET
    seed: int | UnsetType = UNSET


class OllamaChat(Strict):
    model: str
    messages: list[Message]
    stream: bool = True
    think: bool | Literal["high", "medium", "low"] | UnsetType = UNSET
    options: OllamaOptions | UnsetType = UNSET


def word_vector(text: str, dim: int) -> list[float]:
    """Return counts of hashed words: texts with common words are close."""
    vector = [0.01] * dim
    for word in text.lower().split():
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % dim] += 1.0
    return vector


def _vectors(texts: str | Sequence[str], asked: Any, dim: int) -> list[list[float]]:
    size = asked if isinstance(asked, int) else dim
    return [word_vector(text, size) for text in ([texts] if isinstance(texts, str) else texts)]


def _overlaps(query: str, texts: Sequence[str]) -> list[float]:
    words = set(query.lower().split())
    return [len(words & set(text.lower().split())) / len(words) for text in texts]


def _ranked(scores: Sequence[float], key: str, top: Any = None) -> list[dict[str, Any]]:
    rows = [{"index": number, key: score} for number, score in enumerate(scores)]
    rows.sort(key=lambda row: -float(row[key]))
    return rows[:top] if isinstance(top, int) and top else rows


def openai_vectors(asked: Any, dim: int) -> Any:
    vectors: list[Any] = _vectors(asked.input, getattr(asked, "dimensions", UNSET), dim)
    if getattr(asked, "encoding_format", None) == "base64":
        vectors = [base64.b64encode(np.array(one, "<f4").tobytes()).decode() for one in vectors]
    rows = [{"object": "embedding", "index": number, "embedding": one} for number, one in enumerate(vectors)]
    # Servers that work in parallel answer in any order.
    return {"object": "list", "data": rows[::-1], "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def tei_vectors(asked: TeiEmbed, dim: int) -> Any:
    return _vectors(asked.inputs, asked.dimensions, dim)


def ollama_vectors(asked: OllamaEmbed, dim: int) -> Any:
    return {"model": asked.model, "embeddings": _vectors(asked.input, asked.dimensions, dim), "prompt_eval_count": 1}


def cohere_vectors(asked: CohereEmbed, dim: int) -> Any:
    return {"id": "1", "embeddings": {"float": _vectors(asked.texts, asked.output_dimension, dim)}}


def voyage_vectors(asked: VoyageEmbeddings, dim: int) -> Any:
    rows = _vectors(asked.input, asked.output_dimension, dim)
    return {"object": "list", "data": [{"object": "embedding", "embedding": v, "index": i} for i, v in enumerate(rows)]}


def bare_vectors(asked: OpenAIEmbeddings, dim: int) -> Any:
    """Return llama.cpp's answer at `/embeddings`: one vector in a list, for there could be one for each token."""
    return [{"index": i, "embedding": [v]} for i, v in enumerate(_vectors(asked.input, None, dim))]


def cohere_scores(asked: Any, dim: int) -> Any:
    rows = _ranked(_overlaps(asked.query, asked.documents), "relevance_score", asked.top_n)
    if getattr(asked, "return_documents", False):
        rows = [{**row, "document": {"text": asked.documents[row["index"]]}} for row in rows]
    return {"id": "1", "results": rows}


def tei_scores(asked: TeiRerank, dim: int) -> Any:
    return _ranked(_overlaps(asked.query, asked.texts), "score")


def voyage_scores(asked: VoyageRerank, dim: int) -> Any:
    return {"object": "list", "data": _ranked(_overlaps(asked.query, asked.documents), "relevance_score", asked.top_k)}


def mixedbread_scores(asked: MixedbreadRerank, dim: int) -> Any:
    return {"object": "list", "data": _ranked(_overlaps(asked.query, asked.input), "score", asked.top_k)}


def vllm_scores(asked: VllmScore, dim: int) -> Any:
    assert isinstance(asked.text_1, str)
    scores = _overlaps(asked.text_1, asked.text_2)
    return {"object": "list", "data": [{"index": i, "object": "score", "score": s} for i, s in enumerate(scores)]}


def openai_error(status: int, message: str, param: str | None = None) -> Answer:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": None}
    return status, {"error": error}


def tei_error(status: int, message: str) -> Answer:
    # A body that does not fit is answered by the web framework, in plain text.
    return (422, message.encode()) if status == 400 else (status, {"error": message, "error_type": "Validation"})


def vllm_error(status: int, message: str) -> Answer:
    return status, {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}


def pydantic_error(status: int, message: str) -> Answer:
    return 422, {"detail": [{"type": "value_error", "loc": ["body", "input"], "msg": message}]}


def ollama_error(status: int, message: str) -> Answer:
    return status, {"error": message}


def llamacpp_error(status: int, message: str) -> Answer:
    return status, {"error": {"code": status, "message": message, "type": "invalid_request_error"}}


def cohere_error(status: int, message: str) -> Answer:
    return status, {"id": "1", "message": message}


def voyage_error(status: int, message: str) -> Answer:
    return status, {"detail": message}


class Route(Struct):
    """One endpoint."""

    request: Any
    answer: Callable[[Any, int], Any] | Literal["openai chat", "ollama chat"]


class Interface(Struct):
    """A kind of server: its endpoints, its refusals, and its words for too much."""

    routes: dict[str, Route]
    error: Callable[[int, str], Answer]
    too_many: tuple[int, str]
    """Status and words, with `{n}` texts and at most `{limit}`."""
    too_long: tuple[int, str]
    truncates: tuple[str, Any] | None = None
    """The field, and its value, that makes it cut texts."""


_CHAT = Route(OpenAIChat, "openai chat")
_OPENAI = Route(OpenAIEmbeddings, openai_vectors)
_VLLM_RERANK = Route(VllmRerank, cohere_scores)
_SCORE = Route(VllmScore, vllm_scores)
_LLAMACPP_RERANK = Route(CohereRerank2, cohere_scores)
_CONTEXT = "This model's maximum context length is {limit} tokens. However, you requested {n} tokens"

INTERFACES: dict[str, Interface] = {
    "openai": Interface(
        {"/v1/embeddings": _OPENAI, "/v1/chat/completions": _CHAT},
        openai_error,
        (400, "Invalid 'input': array too long. Expected an array with maximum length {limit}, but got {n}"),
        (400, _CONTEXT),
    ),
    "jina": Interface(
        {"/v1/embeddings": Route(JinaEmbeddings, openai_vectors), "/v1/rerank": Route(JinaRerank, cohere_scores)},
        pydantic_error,
        (422, "List should have at most {limit} items after validation, not {n}"),
        (400, "Single text cannot exceed {limit} tokens. {n} tokens given"),
        ("truncate", True),
    ),
    "cohere": Interface(
        {
            "/v2/embed": Route(CohereEmbed, cohere_vectors),
            "/v1/embed": Route(CohereEmbed, cohere_vectors),
            "/v2/rerank": Route(CohereRerank2, cohere_scores),
            "/v1/rerank": Route(CohereRerank1, cohere_scores),
        },
        cohere_error,
        (400, "invalid request: total number of texts must be at most {limit} - received {n}"),
        (400, "invalid request: too many tokens: size limit {limit} exceeded by {n} tokens"),
        ("truncate", "END"),
    ),
    "voyage": Interface(
        {"/v1/embeddings": Route(VoyageEmbeddings, voyage_vectors), "/v1/rerank": Route(VoyageRerank, voyage_scores)},
        voyage_error,
        (400, "The batch size limit is {limit}. Your batch size is {n}"),
        (400, "The text has {n} tokens, which exceeds the limit of {limit}"),
        ("truncation", True),
    ),
    "mixedbread": Interface(
        {"/v1/embeddings": _OPENAI, "/v1/reranking": Route(MixedbreadRerank, mixedbread_scores)},
        pydantic_error,
        (422, "List should have at most {limit} items after validation, not {n}"),
        (422, "input has {n} tokens, more than {limit} tokens"),
    ),
    "tei": Interface(
        {"/embed": Route(TeiEmbed, tei_vectors), "/v1/embeddings": _OPENAI, "/rerank": Route(TeiRerank, tei_scores)},
        tei_error,
        (422, "batch size {n} > maximum allowed batch size {limit}"),
        (413, "Input validation error: `inputs` must have less than {limit} tokens. Given: {n}"),
        ("truncate", True),
    ),
    "vllm": Interface(
        {
            "/v1/embeddings": _OPENAI,
            "/v1/rerank": _VLLM_RERANK,
            "/v2/rerank": _VLLM_RERANK,
            "/rerank": _VLLM_RERANK,
            "/v1/score": _SCORE,
            "/score": _SCORE,
            "/v1/chat/completions": _CHAT,
        },
        vllm_error,
        (400, "at most {limit} prompts in one request, got {n}"),
        (400, _CONTEXT + " in the input for embedding generation. Please reduce the length of the input."),
    ),
    "infinity": Interface(
        {"/embeddings": _OPENAI, "/rerank": Route(CohereRerank1, cohere_scores)},
        pydantic_error,
        (422, "List should have at most {limit} items after validation, not {n}"),
        (422, "String should have at most {limit} characters"),
    ),
    "llama.cpp": Interface(
        {
            "/v1/embeddings": _OPENAI,
            "/embeddings": Route(OpenAIEmbeddings, bare_vectors),
            "/v1/rerank": _LLAMACPP_RERANK,
            "/rerank": _LLAMACPP_RERANK,
            "/v1/reranking": _LLAMACPP_RERANK,
            "/reranking": _LLAMACPP_RERANK,
            "/v1/chat/completions": _CHAT,
        },
        llamacpp_error,
        (400, "at most {limit} prompts in one request, got {n}"),
        (500, "input ({n} tokens) is too large to process. increase the physical batch size (current: {limit})"),
    ),
    "ollama": Interface(
        {
            "/api/embed": Route(OllamaEmbed, ollama_vectors),
            "/v1/embeddings": _OPENAI,
            "/api/chat": Route(OllamaChat, "ollama chat"),
            "/v1/chat/completions": _CHAT,
        },
        ollama_error,
        (400, "at most {limit} inputs, got {n}"),
        (400, "the input length exceeds the context length"),
        ("truncate", True),
    ),
}


def texts_of(body: dict[str, Any]) -> list[str]:
    """Return the texts of a request, in any form."""
    for name in ("input", "inputs", "texts", "documents", "text_2"):
        if isinstance(body.get(name), list):
            return list(body[name])
    return []


def chat_answer(kind: str, text: str, *, thinking: str = "", is_cut: bool = False) -> Any:
    """Return a message in the form of OpenAI or Ollama; thinking has a field of its own."""
    if kind == "ollama chat":
        message = {"role": "assistant", "content": text, "thinking": thinking}
        return {"message": message, "done": True, "done_reason": "length" if is_cut else "stop"}
    answer = {"role": "assistant", "content": text or None, "reasoning_content": thinking}
    return {"choices": [{"index": 0, "message": answer, "finish_reason": "length" if is_cut else "stop"}]}


def encoded(answer: Any) -> bytes:
    """Return the bytes of an answer: JSON unless it is bytes."""
    return answer if isinstance(answer, bytes) else json.dumps(answer).encode()
