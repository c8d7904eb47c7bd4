"""Engines that are OpenAI-compatible servers: the same protocols, the work done elsewhere.

For a bigger machine or an inference cluster (vLLM, text-embeddings-inference, llama.cpp's server). Which server a role
has is settled in `qmd.inference.engines.remote_settings`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from qmd.batches import batches
from qmd.errors import ModelError
from qmd.inference.base import EngineDescription, Expansion
from qmd.inference.engines.expansion_checks import check_expansions
from qmd.inference.engines.remote_client import DeadlineError, RemoteClient, TooLargeError
from qmd.inference.models.catalogue import Role
from qmd.records import SubQuery, SubQueryKind

_TOKEN = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W_]{1,4}|[^\w\s]|_")
"""A cautious guess at a token: a word piece of four letters, one ideograph or syllable, one mark."""
_TYPED_LINE = re.compile(r"^\s*[-*]?\s*(lex|vec|hyde)\s*:\s*(.+)$", re.IGNORECASE)
_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_INSTRUCTIONS = (
    "You expand search queries over a collection of notes and documents. Write in the language of the query. "
    "Answer with four lines and nothing else:\n"
    "lex: two to five keywords for full-text search\n"
    "lex: other keywords, with a synonym or related term\n"
    "vec: the query reworded as one clear sentence\n"
    "hyde: one sentence from a document that would answer the query\n"
    "Keep the query's own names and key terms."
)


class _ServerEngine:
    """What the engines have in common."""

    _role: Role

    def __init__(self, client: RemoteClient) -> None:
        self._client = client
        self._settings = client.settings
        self.description = EngineDescription(self._role, client.settings.model, "remote", "remote", client.url)

    def _nonsense(self, what: str) -> ModelError:
        return ModelError(f"model server '{self._client.url}' returns {what}", "check the URL and the model's name")


class RemoteEmbedder(_ServerEngine):
    """The Embedder over `/v1/embeddings`."""

    _role = "embed"

    def __init__(self, client: RemoteClient) -> None:
        super().__init__(client)
        self._dim = client.settings.dim
        self.max_tokens = client.settings.max_tokens
        """Token budget of one chunk's body."""

    @property
    def dim(self) -> int:
        """Size of a vector. Where the settings do not say, `connect_embedder` has asked the server."""
        if self._dim is None:
            raise ModelError(f"size of the vectors of '{self._settings.model}' is not known yet", "embed a text first")
        return self._dim

    @property
    def fingerprint(self) -> str:
        """Over model, size, prompts and window. The address is left out: the same model may move."""
        settings = self._settings
        parts = [settings.model, self.dim, settings.document_prompt, settings.query_prompt, settings.max_tokens]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def token_starts(self, text: str) -> Sequence[int]:
        """Starts of estimated tokens: the server's tokenizer is not at hand, so they are guessed on the short side."""
        return [match.start() for match in _TOKEN.finditer(text)]

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors, shape (len(texts), dim), L2-normalised, in the order given.

        Raises:
            ModelError: If the server fails, or returns vectors of another number or size.
        """
        return self._embed([f"{self._settings.document_prompt}{text}" for text in texts], on_progress)

    def embed_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors, shape (len(texts), dim), L2-normalised. Someone waits: one time-out covers all tries."""
        prompted = [f"{self._settings.query_prompt}{text}" for text in texts]
        return self._embed(prompted, None, limit_s=self._settings.timeout_s)

    def embeds(self, text: str) -> bool:
        """True always: which languages the server's model reads is not known here."""
        return True

    def query_trust(self, text: str) -> float:
        """1 always: what the server's model was trained on is its user's choice."""
        return 1.0

    def _embed(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None, limit_s: float | None = None
    ) -> npt.NDArray[np.float32]:
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        parts: list[npt.NDArray[np.float32]] = []
        done = 0
        for batch in batches(texts, self._settings.batch_size):
            parts.append(self._embed_batch(batch, limit_s))
            done += len(batch)
            if on_progress is not None:
                on_progress(done)
        return np.concatenate(parts)

    def _embed_batch(self, texts: Sequence[str], limit_s: float | None) -> npt.NDArray[np.float32]:
        body = {"model": self._settings.model, "input": list(texts), "encoding_format": "float"}
        try:
            answer = self._client.post(body, limit_s=limit_s)
        except TooLargeError:
            if len(texts) == 1:
                raise
            middle = len(texts) // 2
            return np.concatenate([self._embed_batch(half, limit_s) for half in (texts[:middle], texts[middle:])])
        vectors = self._read_vectors(answer, len(texts))
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        result: npt.NDArray[np.float32] = (vectors / np.where(norms == 0, 1, norms)).astype(np.float32)
        return result

    def _read_vectors(self, answer: Any, expected: int) -> npt.NDArray[np.float64]:
        try:
            rows = sorted(answer["data"], key=lambda row: int(row.get("index", 0)))
            vectors = np.array([row["embedding"] for row in rows], np.float64)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise self._nonsense("no embeddings") from exc
        if vectors.ndim != 2 or len(vectors) != expected or not np.isfinite(vectors).all():
            raise self._nonsense(f"{len(vectors)} usable vectors for {expected} texts")
        if self._dim is not None and vectors.shape[1] != self._dim:
            raise ModelError(
                f"model server '{self._client.url}' returns vectors of size {vectors.shape[1]}, not {self._dim}",
                "check the model's name, or embed everything anew: qmd embed -f",
            )
        self._dim = vectors.shape[1]
        return vectors


class RemoteReranker(_ServerEngine):
    """The Reranker over `/v1/rerank` as Jina and Cohere shape it; text-embeddings-inference's answer is read too."""

    _role = "rerank"
    _has_raw_scores = False

    def score(
        self,
        query: str,
        passages: Sequence[str],
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[float | None]:
        """Relevance in [0, 1]; None where the deadline came first.

        Some servers return logits: once a score lies outside [0, 1], this and all later ones go through a sigmoid.

        Raises:
            ModelError: If the server fails or does not score every passage.
        """
        distinct = list(dict.fromkeys(passages))
        asked = f"{query}\n{intent.strip()}" if intent and intent.strip() else query
        raw: dict[str, float] = {}
        for batch in batches(distinct, self._settings.batch_size):
            if is_cancelled is not None and is_cancelled():
                break
            body = {
                "model": self._settings.model,
                "query": asked,
                "documents": list(batch),
                "top_n": len(batch),
                "return_documents": False,
            }
            try:
                answer = self._client.post(body, deadline_s=deadline_s, limit_s=self._settings.timeout_s)
            except DeadlineError:
                break
            raw.update(zip(batch, self._read_scores(answer, len(batch)), strict=True))
        if any(not 0.0 <= score <= 1.0 for score in raw.values()):
            self._has_raw_scores = True
        if self._has_raw_scores:
            raw = {passage: 0.5 + 0.5 * math.tanh(0.5 * score) for passage, score in raw.items()}
        return [raw.get(passage) for passage in passages]

    def _read_scores(self, answer: Any, expected: int) -> list[float]:
        try:
            rows = answer["results"] if isinstance(answer, dict) else answer
            scores = {int(row["index"]): float(row.get("relevance_score", row.get("score"))) for row in rows}
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise self._nonsense("no scores") from exc
        if set(scores) != set(range(expected)) or not all(map(math.isfinite, scores.values())):
            raise self._nonsense(f"{len(scores)} usable scores for {expected} passages")
        return [scores[index] for index in range(expected)]


class RemoteExpander(_ServerEngine):
    """The Expander over `/v1/chat/completions`."""

    _role = "expand"

    def expand(
        self,
        query: str,
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Expansion:
        """Validated sub-queries in the query's own language; lines that are no typed lines are among the dropped.

        Raises:
            ModelError: If the server fails.
        """
        if not query.strip() or (is_cancelled is not None and is_cancelled()):
            return Expansion(())
        asked = f"Query: {query.strip()}" + (f"\nIntent: {intent.strip()}" if intent and intent.strip() else "")
        if "qwen3" in self._settings.model.lower():
            asked += " /no_think"
        body = {
            "model": self._settings.model,
            "messages": [{"role": "system", "content": _INSTRUCTIONS}, {"role": "user", "content": asked}],
            "max_tokens": 300,
            "temperature": 0.7,
            "top_p": 0.8,
            "presence_penalty": 0.5,
            "seed": 0,
        }
        try:
            answer = self._client.post(body, deadline_s=deadline_s, limit_s=self._settings.timeout_s)
        except DeadlineError:
            return Expansion((), ((query, "no time was left for expansion"),))
        try:
            text = str(answer["choices"][0]["message"]["content"] or "")
        except (KeyError, IndexError, TypeError) as exc:
            raise self._nonsense("no message") from exc
        proposed, other = parse_typed_lines(text)
        checked = check_expansions(query, proposed, intent=intent)
        dropped = (*checked.dropped, *((line, "is not a typed line") for line in other))
        return Expansion(checked.subqueries, dropped)


def parse_typed_lines(text: str) -> tuple[list[SubQuery], list[str]]:
    """Typed lines of a model's answer, thinking removed, and the other lines that hold text."""
    proposed: list[SubQuery] = []
    other: list[str] = []
    for line in _THINKING.sub("", text).splitlines():
        match = _TYPED_LINE.match(line)
        if match:
            kind = cast(SubQueryKind, match[1].lower())
            proposed.append(SubQuery(kind, match[2].strip(), len(proposed) + 1))
        elif line.strip():
            other.append(line.strip())
    return proposed, other


def connect_embedder(client: RemoteClient) -> RemoteEmbedder:
    """The remote embedder; asks the server for the size of a vector where the settings do not say.

    Raises:
        ModelError: If the server fails.
    """
    embedder = RemoteEmbedder(client)
    if client.settings.dim is None:
        embedder.embed_queries(["size"])
    return embedder
