"""Engines that call model servers, with the same protocols.

For a bigger machine, an inference cluster or a service. `settings` selects a role's server, `apis` has the interfaces
and addresses; `expander` is the third engine.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.batching import batches
from qmd.errors import ModelError
from qmd.inference.base import EngineDescription
from qmd.inference.records import Role, Vectors
from qmd.plugins.servers.apis import (
    EMBED_APIS,
    RERANK_APIS,
    Api,
    EmbedCall,
    RerankCall,
    Vector,
    endpoints,
    fill_request,
    read_scores,
    read_vectors,
)
from qmd.plugins.servers.client import DeadlineError, RefusalError, RemoteClient
from qmd.plugins.servers.settings import hide_query

AnswerT = TypeVar("AnswerT")

_TOKEN = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W_]{1,4}|[^\w\s]|_")
"""A cautious estimate of a token: a word piece of four letters, one ideograph or syllable, one mark."""
_MAX_DIM = 8192
"""Limit of a table of sqlite-vec."""
_LEAST_CHARS = 64
"""No model refuses a shorter text as too long, so the refusal has another reason."""
_WANTED: Mapping[Role, str] = {"embed": "usable vectors", "rerank": "usable scores", "expand": "a message"}


class ServerEngine(Generic[AnswerT]):
    """Common part of the engines: a server, and its possible interfaces until one has answered."""

    role: Role
    also_by_form = True
    """A refusal of the request's form may mean another interface."""

    def __init__(self, client: RemoteClient, apis: Sequence[Api], read: Callable[[Api, Any], AnswerT]) -> None:
        self.client = client
        self._read_answer = read
        self.settings = client.settings
        self._endpoints = endpoints(client.settings.url, client.settings.api, apis)

    @property
    def description(self) -> EngineDescription:
        """The server, at the address in use."""
        return EngineDescription(self.role, self.settings.model, "remote", "remote", hide_query(self._endpoints[0][1]))

    @property
    def _name(self) -> str:
        return self.client.label(self._endpoints[0][1])

    def ask(self, call: Struct, *, deadline_s: float | None = None, limit_s: float | None = None) -> AnswerT:
        """Return the answer, and keep the interface that gave it, so that no failing one is tried twice.

        Raises:
            RefusalError: The server refuses in every possible interface, or its answer cannot be read.
            DeadlineError, ModelError: As `RemoteClient.post`.
        """
        refusals: list[RefusalError] = []
        absent: set[str] = set()
        for api, address in self._endpoints:
            if address in absent:
                continue
            try:
                raw = self.client.post(address, fill_request(api.request, call), deadline_s=deadline_s, limit_s=limit_s)
                answer = self._read(api, address, raw)
            except RefusalError as exc:
                if not exc.may_be_other_api or (exc.status in (400, 422) and not self.also_by_form):
                    raise
                refusals.append(exc)
                if exc.status in (404, 405):
                    absent.add(address)
                continue
            self._endpoints = ((api, address),)
            return answer
        raise max(refusals, key=lambda exc: exc.weight)

    def _read(self, api: Api, address: str, raw: Any) -> AnswerT:
        try:
            return self._read_answer(api, raw)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as exc:
            raise RefusalError(f"{self.client.label(address)} answered without {_WANTED[self.role]}", 200) from exc

    def _invalid_answer(self, what: str) -> ModelError:
        return ModelError(f"{self._name} answered {what}", "check the URL and the model's name")


class RemoteEmbedder(ServerEngine[list[Vector]]):
    """An `Embedder` over a server."""

    role = "embed"
    scale = None

    def __init__(self, client: RemoteClient) -> None:
        super().__init__(client, EMBED_APIS, read_vectors)
        self._dim = client.settings.dim
        self._asks_for_dim = self._truncates = False
        self._cut: str | None = None
        settings = client.settings
        self.max_tokens = settings.max_tokens
        self.handling = (
            "pooling: the server's",
            f"prompts: query {settings.query_prompt!r}, document {settings.document_prompt!r} (your settings)",
            f"length: {settings.max_tokens} tokens a chunk (QMD_EMBED_MAX_TOKENS)",
        )

    @property
    def dim(self) -> int:
        """Size of a vector. If the settings do not state it, opening the engine has asked the server."""
        if self._dim is None:
            raise ModelError(f"size of the vectors of '{self.settings.model}' is not known yet", "embed a text first")
        return self._dim

    @property
    def fingerprint(self) -> str:
        """Over model, size, prompts and window, but not the address: the same model may move."""
        settings, api = self.settings, self._endpoints[0][0]
        parts = [settings.model, self.dim, settings.document_prompt, settings.query_prompt, settings.max_tokens]
        parts += [api.name] if api.asks_for("is_query") else []
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    @property
    def warnings(self) -> Sequence[str]:
        """A line if texts were cut."""
        return () if self._cut is None else (self._cut,)

    def token_starts(self, text: str) -> Sequence[int]:
        """Return starts of estimated tokens: the server's tokenizer is not available, so the estimate is short."""
        return [match.start() for match in _TOKEN.finditer(text)]

    def embed_documents(self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None) -> Vectors:
        """Return vectors, shape (len(texts), dim), L2-normalised, in the order given.

        A text that is too long for the server's model is cut, which `warnings` reports.

        Raises:
            ModelError: If the server fails, or returns vectors of another number or size.
        """
        return self._embed([self.settings.document_prompt + text for text in texts], on_progress, is_query=False)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return vectors, shape (len(texts), dim), L2-normalised. A user waits, so one timeout covers all tries."""
        return self._embed([self.settings.query_prompt + text for text in texts], None, is_query=True)

    def embeds(self, text: str) -> bool:
        """Return True: the languages of the server's model are unknown."""
        return True

    def query_trust(self, text: str) -> float:
        """Return 1: the user chose the server's model."""
        return 1.0

    def _embed(self, texts: Sequence[str], on_progress: Callable[[int], None] | None, *, is_query: bool) -> Vectors:
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        parts: list[Vectors] = []
        done = 0
        for batch in batches(texts, self.settings.batch_size):
            parts.append(self._embed_batch(batch, is_query))
            done += len(batch)
            if on_progress is not None:
                on_progress(done)
        return np.concatenate(parts)

    def _embed_batch(self, texts: Sequence[str], is_query: bool) -> Vectors:
        try:
            return self._vectors(texts, is_query).astype(np.float32)
        except RefusalError as exc:
            # text-embeddings-inference and many others answer 422 to too many texts, with or without reasons.
            if exc.is_too_large or (exc.status == 422 and len(texts) > 1):
                return self._embed_smaller(texts, is_query, exc)
            raise

    def _embed_smaller(self, texts: Sequence[str], is_query: bool, refusal: RefusalError) -> Vectors:
        """Embed in two halves; the server cuts a text alone if it can, else the text is halved."""
        if len(texts) > 1:
            middle = len(texts) // 2
            return np.concatenate([self._embed_batch(half, is_query) for half in (texts[:middle], texts[middle:])])
        (text,) = texts
        if len(text) < _LEAST_CHARS:
            message = f"{refusal.message} (for a text of {len(text)} characters: '{' '.join(text.split())[:40]}')"
            raise ModelError(message, refusal.hint)
        if self._cut is None:
            limit = "takes shorter texts: the ends of longer ones are not embedded; see QMD_EMBED_MAX_TOKENS"
            self._cut = f"{self._name} {limit}"
        if self._endpoints[0][0].asks_for("truncates") and not self._truncates:
            self._truncates = True
            return self._embed_batch(texts, is_query)
        return self._embed_batch([text[: len(text) // 2]], is_query)

    def _vectors(self, texts: Sequence[str], is_query: bool) -> npt.NDArray[np.float64]:
        """Return vectors of length 1 and the wanted size, which is requested if the server's own is larger."""
        vectors = self._vectors_of_server(texts, is_query)
        wanted = self._dim
        if wanted is not None and vectors.shape[1] > wanted and not self._asks_for_dim:
            self._asks_for_dim = True
            try:
                vectors = self._vectors_of_server(texts, is_query)
            except RefusalError:
                self._asks_for_dim = False
        if wanted is not None and vectors.shape[1] != wanted:
            raise ModelError(
                f"{self._name} returns vectors of size {vectors.shape[1]}, not {wanted}",
                "check the model's name, or re-embed everything: qmd embed -f",
            )
        self._dim = vectors.shape[1]
        return vectors

    def _vectors_of_server(self, texts: Sequence[str], is_query: bool) -> npt.NDArray[np.float64]:
        dim = self._dim if self._asks_for_dim else None
        call = EmbedCall(self.settings.model, texts, is_query, dim, self._truncates)
        rows = self.ask(call, limit_s=self.settings.timeout_s if is_query else None)
        if len(rows) != len(texts):
            raise self._invalid_answer(f"{len(rows)} vectors for {len(texts)} texts")
        if len({len(row) for row in rows}) != 1 or not rows[0]:
            raise self._invalid_answer("vectors of several sizes")
        if len(rows[0]) > _MAX_DIM:
            raise self._invalid_answer(f"vectors of size {len(rows[0]):,}, more than the {_MAX_DIM:,} that can be kept")
        vectors = np.array(rows, np.float64)
        with np.errstate(over="ignore"):
            norms: npt.NDArray[np.float64] = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise self._invalid_answer("vectors with values that are not numbers")
        if not norms.all():
            raise self._invalid_answer("a vector of zeros")
        return vectors / norms


class RemoteReranker(ServerEngine[dict[int, float]]):
    """A `Reranker` over a server."""

    role = "rerank"
    _has_raw_scores = False

    def __init__(self, client: RemoteClient) -> None:
        super().__init__(client, RERANK_APIS, read_scores)

    def score(
        self,
        query: str,
        passages: Sequence[str],
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[float | None]:
        """Return relevance in [0, 1]; None after the deadline.

        Some servers return logits: once a score is outside [0, 1], this and all later ones go through a sigmoid.

        Raises:
            ModelError: If the server fails or does not score every passage.
        """
        distinct = list(dict.fromkeys(passages))
        wanted = f"{query}\n{intent.strip()}" if intent and intent.strip() else query
        raw: dict[str, float] = {}
        for batch in batches(distinct, self.settings.batch_size):
            if is_cancelled is not None and is_cancelled():
                break
            try:
                raw.update(zip(batch, self._score_batch(wanted, batch, deadline_s), strict=True))
            except DeadlineError:
                break
        if any(not 0.0 <= score <= 1.0 for score in raw.values()):
            self._has_raw_scores = True
        if self._has_raw_scores:
            raw = {passage: 0.5 + 0.5 * math.tanh(0.5 * score) for passage, score in raw.items()}
        return [raw.get(passage) for passage in passages]

    def _score_batch(self, query: str, passages: Sequence[str], deadline_s: float | None) -> list[float]:
        call = RerankCall(self.settings.model, query, passages)
        try:
            scores = self.ask(call, deadline_s=deadline_s, limit_s=self.settings.timeout_s)
        except RefusalError as exc:
            if len(passages) > 1 and (exc.is_too_large or exc.status == 422):
                middle = len(passages) // 2
                halves = (passages[:middle], passages[middle:])
                return [score for half in halves for score in self._score_batch(query, half, deadline_s)]
            if exc.is_too_large and len(passages[0]) >= _LEAST_CHARS:
                return self._score_batch(query, [passages[0][: len(passages[0]) // 2]], deadline_s)
            raise
        if set(scores) != set(range(len(passages))):
            raise self._invalid_answer(f"{len(scores)} usable scores for {len(passages)} passages")
        if not all(map(math.isfinite, scores.values())):
            raise self._invalid_answer("scores that are not numbers")
        return [scores[index] for index in range(len(passages))]
